//! A segment that an attacker overwrites all the time while it is watched: in a real terminal, by
//! every command that prints or writes, and by a server. No process crashes or hangs, and the
//! attacker's bytes reach a terminal only as text.
//!
//! The full test runs for minutes; `PFP_HOSTILE_SECONDS` sets the time.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pfp_tests::hostile::assert_fit;
use pfp_tests::os::runs;
use pfp_tests::os::signal;
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::prometheus::get;
use pfp_tests::random::Random;
use pfp_tests::screen::rows;
use pfp_tests::target::{Target, wait_for};
use pfp_tests::{figure, needs_a_screen, size};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
const SECONDS: u64 = size(3, 240);
/// Time limit of a command, in seconds, which only a hang reaches.
const TIME_LIMIT: &str = "60";

/// Sequences that must not reach a terminal unchanged.
const EVIL: [&[u8]; 8] = [
    b"\x1b]0;pfp-owned\x07",
    b"\x1b[5;41mpfp-owned",
    b"\x1bP+q544e\x1b\\",
    b"\x1bc\x1b[2J\x1b[3J",
    b"\xc2\x9b5;41mpfp-owned",
    b"\x1b[6n\x1b[c\x1b[>q",
    b"\r\n\x08\x08\x7f\x00\x01\x02",
    b"\xe2\x80\xae\xe2\x81\xa6pfp-owned",
];

/// A segment in the attacker's memory.
struct Mapping {
    base: *mut u8,
    len: usize,
    original: Vec<u64>,
}

// SAFETY: all access is to atomics in a mapping that lives as long as the value.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(object: &Path) -> Self {
        let file = File::options().read(true).write(true).open(object).expect("it is ours");
        let len = file.metadata().expect("it is open").len() as usize;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: creates a mapping at an address that the kernel chooses.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let mut mapping = Self { base: base.cast(), len, original: Vec::new() };
        // The attacker overwrites only the part in use: touching other pages would allocate memory.
        let (segment, _) = pfp_shm_layout::segment::Segment::open(
            &pfp_shm_layout::name::Name::from_hex(
                object.to_str().and_then(|path| path.rsplit('-').next()).unwrap().as_bytes(),
            )
            .expect("it is named so"),
        )
        .expect("it is one");
        let used = segment.to_copy().expect("there is memory").len() / 8;
        mapping.original = (0..used).map(|word| mapping.word(word).load(Relaxed)).collect();
        mapping
    }

    fn word(&self, word: usize) -> &AtomicU64 {
        assert!(word * 8 + 8 <= self.len);
        // SAFETY: the word is inside the mapping and aligned, and all accesses to it are atomic.
        unsafe { &*self.base.add(word * 8).cast::<AtomicU64>() }
    }

    fn restore(&self) {
        for (word, value) in self.original.iter().enumerate() {
            if self.word(word).load(Relaxed) != *value {
                self.word(word).store(*value, Relaxed);
            }
        }
    }

    /// Overwrites the segment until `stop` is set; returns the number of words written.
    fn rewrite(&self, stop: &AtomicBool) -> u64 {
        let mut random = Random::new(99);
        let nonzero: Vec<usize> =
            (0..self.original.len()).filter(|word| self.original[*word] != 0).collect();
        let mut written = 0;
        while !stop.load(Relaxed) {
            // Writes come in bursts, and the segment is intact for a while after each, so that a
            // new viewer can attach.
            for _ in 0..random.below(40_000) {
                let word = nonzero[random.below(nonzero.len())];
                // The header is overwritten rarely, so that a viewer can attach at all.
                if word < 8 && random.below(64) != 0 {
                    continue;
                }
                let text = self.original[word].to_le_bytes().iter().all(u8::is_ascii_graphic);
                if text && random.below(2) == 0 {
                    let evil = EVIL[random.below(EVIL.len())];
                    for (place, part) in evil.chunks(8).enumerate() {
                        let mut bytes = [b'x'; 8];
                        bytes[..part.len()].copy_from_slice(part);
                        let word = (word + place).min(self.original.len() - 1);
                        self.word(word).store(u64::from_le_bytes(bytes), Relaxed);
                    }
                } else {
                    let value = match random.below(4) {
                        0 => random.word(),
                        1 => random.below(300) as u64,
                        2 => self.original[nonzero[random.below(nonzero.len())]],
                        _ => random.edge(),
                    };
                    self.word(word).store(value, Relaxed);
                }
                written += 1;
            }
            if random.below(3) == 0 {
                self.restore();
                thread::sleep(Duration::from_millis(random.below(30) as u64));
            }
        }
        self.restore();
        written
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: `base` and `len` are those of the mapping made above.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Stops the attacker, also if the test fails; otherwise the test would wait for it forever.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// An idle program with its beacon lit: only the attacker changes its segment.
fn still(place: &Place) -> (Target, Mapping, std::path::PathBuf) {
    let target = place.start(STEADY, &[]);
    wait_for("the program to be found", || place.pfp_top(&["--once"]).status.success());
    wait_for("all points to be used", || {
        let snapshot = place.snapshot(&target);
        ["tick", "round", "work", "inner"]
            .iter()
            .all(|name| snapshot.points.iter().any(|point| point.name == *name))
            && count(&snapshot, "round") > 2
    });
    signal(target.pid(), libc::SIGSTOP);
    let beacons = place.lit();
    let hex = beacons.iter().find_map(|name| name.strip_suffix(".beacon")).expect("one is lit");
    let object = Path::new("/dev/shm").join(format!("pfp-{hex}"));
    let mapping = Mapping::new(&object);
    (target, mapping, object)
}

fn seconds() -> Duration {
    let asked = std::env::var("PFP_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(asked.unwrap_or(SECONDS))
}

/// Asserts that the bytes written to a terminal are text, line ends, and only those sequences that
/// this viewer uses to move the cursor, to colour and to set modes.
fn assert_tame(raw: &[u8]) {
    let text = String::from_utf8_lossy(raw);
    assert!(!text.contains("\x1b[5;41m") && !text.contains("\x1b]0;"), "the name is obeyed");
    let mut rest = text.as_ref();
    while let Some(at) = rest.find(pfp_tests::hostile::is_control) {
        let near: String = rest[at..].chars().take(40).collect();
        rest = &rest[at..];
        let first = rest.chars().next().expect("there is one");
        if let Some(sequence) = rest.strip_prefix("\x1b[") {
            let end = sequence.find(|c: char| !matches!(c, '0'..='9' | ';' | ':' | '?'));
            let (end, last) = sequence[end.expect("it has an end")..]
                .chars()
                .next()
                .map(|last| (end.unwrap_or(0), last))
                .expect("it has an end");
            assert!("HmJKhlABCDG".contains(last), "not one of this viewer's: {near:?}");
            rest = &sequence[end + last.len_utf8()..];
        } else {
            assert!(matches!(first, '\n' | '\r'), "a control character: {near:?}");
            rest = &rest[first.len_utf8()..];
        }
    }
}

/// Peak memory of a process, in KiB.
fn peak(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_viewer_in_a_terminal_survives_an_overwritten_segment() {
    needs_a_screen!();
    let place = Place::new();
    let (target, mapping, object) = still(&place);
    let screen = place.screen(110, 30);
    screen.pfp_top("-i 0.05");
    screen.wait_for_status("STOPPED");
    let before = rows(&screen.wait_for("the points", |text| text.contains("tick"))).len();
    let (viewer, title, raw) = (screen.viewer(), screen.title(), place.path("raw"));
    screen.tap(&raw);
    let stop = AtomicBool::new(false);
    let (mut keys, mut written) = (0_u64, 0);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| mapping.rewrite(&stop));
        let stopping = Stop(&stop);
        let end = Instant::now() + seconds();
        for key in
            ["2", "j", "3", "4", "+", "5", "b", "6", "1", "Enter", "H", "Escape", "s", "Space"]
                .iter()
                .cycle()
        {
            if Instant::now() > end || !runs(viewer) {
                break;
            }
            screen.keys(&[key]);
            keys += 1;
            // Longer than a poll interval, so that each screen is drawn.
            thread::sleep(Duration::from_millis(60));
        }
        drop(stopping);
        written = attacker.join().expect("it only writes");
    });
    assert!(runs(viewer), "the viewer has crashed:\n{}", screen.shown());
    assert_eq!(screen.title(), title, "a name has set the title");
    // The viewer continues, and shows all points. The viewer reads each text only once, because no
    // program changes a text in place. So a name that was overwritten while the viewer read it may
    // stay wrong.
    screen.press(&["Escape", "1"], "the points that there are", |text| rows(text).len() == before);
    let most = peak(viewer);

    // Then most of the object is cut off.
    let file = File::options().write(true).open(&object).expect("it is ours");
    file.set_len(20_000).expect("it can be cut");
    screen.wait_for("why nothing new comes", |text| text.contains("the segment was truncated"));
    assert!(runs(viewer), "the viewer has crashed");
    // The viewer can no longer read anything, but still notices that the process dies, and keeps
    // the earlier figures.
    if screen.shown().lines().next().is_some_and(|line| line.trim_end().ends_with("PAUSED")) {
        screen.keys(&["Space"]);
    }
    signal(target.pid(), libc::SIGKILL);
    screen.wait_for_status("CRASHED");
    screen.wait_for("the points of before", |text| rows(text).len() == before);
    screen.quit();
    let raw = std::fs::read(raw).expect("there is something");
    assert_tame(&raw);
    figure(&format!(
        "hostile rewriting: {} s under a viewer in a terminal, {written} words, {keys} keys, {} KiB \
         of output, the viewer's most memory {most} KiB",
        seconds().as_secs(),
        raw.len() >> 10
    ));
}

#[test]
fn commands_and_a_server_survive_an_overwritten_segment() {
    let place = Place::new();
    let (_target, mapping, _) = still(&place);
    let mut command = place.command(pfp_top());
    command.args(["serve", "--listen", "127.0.0.1:0", "-i", "0.1"]);
    let mut server = Target::start(&mut command);
    let address = wait_for("the address", || {
        let line = server.lines_so_far().first()?;
        Some(line.split("http://").nth(1)?.split('/').next()?.to_owned())
    });

    let stop = AtomicBool::new(false);
    let (file, raw) = (place.path("out.json"), place.path("out.pfp"));
    let (file, raw) = (file.to_str().unwrap(), raw.to_str().unwrap());
    let commands: [&[&str]; 12] = [
        &["--once", "-i", "0.05"],
        &["--json", "-i", "0.05", "-n", "5"],
        &["--csv", "-i", "0.05", "-n", "3"],
        &["snapshot", "--force", "-o", file],
        &["open", "--once", file],
        &["export", "csv"],
        &["export", "openmetrics", "--per-thread"],
        &["export", "chrome"],
        &["export", "folded"],
        &["save-raw", "--force", "-o", raw],
        &["open", "--json", raw],
        &["list"],
    ];
    let (mut ran, mut well, mut asked, mut written) = (0_u64, 0_u64, 0_u64, 0);
    thread::scope(|scope| {
        let attacker = scope.spawn(|| mapping.rewrite(&stop));
        let stopping = Stop(&stop);
        let end = Instant::now() + seconds();
        for command in commands.iter().cycle() {
            if Instant::now() > end {
                break;
            }
            let mut run = place.command("timeout");
            let output = run.arg(TIME_LIMIT).arg(pfp_top()).args(*command).output();
            let output = output.expect("timeout is there");
            let (out, err) = (&output.stdout, &output.stderr);
            let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
            // After a signal there is no code; `timeout` exits with 124 after a hang, and a panic
            // exits with 101.
            let code = output.status.code();
            assert!(matches!(code, Some(0..=5)), "{command:?}: {:?}: {err}", output.status);
            assert_fit(&format!("{command:?}"), &out.replace("\r\n", "\n"));
            assert_fit(&format!("{command:?}"), &err);
            ran += 1;
            well += u64::from(code == Some(0));
            assert_eq!(get(&address, "/metrics", &[]).status, 200, "the server answers");
            asked += 1;
        }
        drop(stopping);
        written = attacker.join().expect("it only writes");
    });
    assert!(runs(server.pid()), "the server has crashed");
    let most = peak(server.pid());
    server.kill();
    assert!(well > 0, "no command of {ran} got anything");
    figure(&format!(
        "hostile rewriting: {} s under commands, {written} words; {ran} commands, {well} showed \
         something, the others said why not; the server asked {asked} times, its most memory \
         {most} KiB",
        seconds().as_secs()
    ));
}
