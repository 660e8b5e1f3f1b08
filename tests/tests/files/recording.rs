//! Recordings of real processes, and the state of the file when the recorder or the process ends,
//! or the disk is full.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Output, Stdio};
use std::thread;
use std::time::Duration;

use pfp_read::files::json;
use pfp_read::snapshot::{ProcessState, Record, Snapshot};
use pfp_read::source::{Recording, Source};
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_tests::os::{process_cpu, signal};
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Target, wait_for};
use pfp_tests::{figure, size};

const STEADY: &str = env!("CARGO_BIN_EXE_steady");
const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Starts a recorder and waits until the file exists.
fn record(place: &Place, target: &Target, file: &Path, more: &[&str]) -> Child {
    let mut command = place.command(pfp_top());
    command.args(["record", "-p", &target.pid().to_string(), "-o"]).arg(file).args(more);
    // With these settings the C library returns freed memory at once, so that resident memory is
    // the memory in use.
    command.env("MALLOC_TRIM_THRESHOLD_", "0").env("MALLOC_MMAP_THRESHOLD_", "16384");
    let child = command.stderr(Stdio::piped()).spawn().expect("pfp-top starts");
    wait_for("the recording", || file.exists());
    child
}

fn interrupted(recorder: Child) -> (bool, String) {
    signal(recorder.id(), libc::SIGINT);
    ended(recorder)
}

fn ended(recorder: Child) -> (bool, String) {
    let output = recorder.wait_with_output().expect("the recorder is this test's child");
    (output.status.success(), errors(&output))
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn read(file: &Path) -> Recording {
    Recording::read(File::open(file).unwrap(), file).unwrap_or_else(|error| panic!("{error:#}"))
}

/// Reads all snapshots, and checks that they are in order and that figures never decrease.
fn snapshots(recording: &mut Recording) -> Vec<Snapshot> {
    let mut all: Vec<Snapshot> = Vec::new();
    for place in 0..recording.len() {
        recording.seek(place);
        all.push(recording.poll().unwrap_or_else(|error| panic!("{place}: {error:#}")));
    }
    assert!(all.is_sorted_by_key(|snapshot| snapshot.elapsed_ticks));
    assert!(all.is_sorted_by_key(|snapshot| count(snapshot, "work")));
    all
}

fn count(snapshot: &Snapshot, name: &str) -> u64 {
    let of = |id| snapshot.cells.iter().filter(move |cell| cell.point == id);
    let points = snapshot.points.iter().filter(|point| point.name == name);
    points.flat_map(|point| of(point.id)).map(|c| c.stats.count + c.retired.count).sum()
}

fn has_snapshots(file: &Path) -> impl Fn() -> bool {
    let file = file.to_owned();
    move || read(&file).len() >= 5
}

#[test]
fn ctrl_c_ends_record_with_a_complete_file() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let file = place.path("a.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "20ms"]);
    wait_for("snapshots", has_snapshots(&file));
    assert!(read(&file).grows());
    let (fine, said) = interrupted(recorder);
    assert!(fine, "{said}");
    let mut recording = read(&file);
    assert_eq!((recording.remark(), recording.grows()), (None, false));
    assert!(said.contains(&format!("{} snapshots", recording.len())), "{said}");
    let all = snapshots(&mut recording);
    assert!(count(&all[all.len() - 1], "work") > 0);

    // The recorder overwrites no file, and does not append to a recording of another process.
    let before = std::fs::read(&file).unwrap();
    let other = place.start_watched(STEADY, &[]);
    for more in [None, Some("--append")] {
        let pid = other.pid().to_string();
        let mut arguments = vec!["record", "-p", &pid, "-o", file.to_str().unwrap()];
        arguments.extend(more);
        let refused = place.pfp_top(&arguments);
        assert_eq!(refused.status.code(), Some(2), "{}", errors(&refused));
    }
    assert_eq!(std::fs::read(&file).unwrap(), before);
}

#[test]
fn record_ends_after_its_duration_or_with_the_process() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let file = place.path("time.pfprec");
    let (fine, said) = ended(record(&place, &target, &file, &["-i", "50ms", "-d", "300ms"]));
    assert!(fine && said.contains("the duration is over"), "{said}");
    assert!((2..=7).contains(&read(&file).len()), "{said}");

    let file = place.path("exit.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "20ms"]);
    wait_for("snapshots", has_snapshots(&file));
    target.end_well();
    let (fine, said) = ended(recorder);
    assert!(fine && said.contains("the process has ended"), "{said}");
    let all = snapshots(&mut read(&file));
    assert_eq!(all[all.len() - 1].process.state, ProcessState::Exited);

    let mut target = place.start_watched(STEADY, &[]);
    let file = place.path("crash.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "20ms"]);
    wait_for("snapshots", has_snapshots(&file));
    target.tell("abort");
    let (fine, said) = ended(recorder);
    assert!(fine && said.contains("the process died"), "{said}");
    let all = snapshots(&mut read(&file));
    assert_eq!(all[all.len() - 1].process.state, ProcessState::Crashed);
}

/// Each record of each thread is delivered once or counted as lost, however many come between two
/// snapshots. The target prints the true number.
#[test]
fn delivered_and_lost_records_add_up_to_those_written() {
    let place = Place::new();
    let mut target = place.start_watched(TARGET, &["counts", "400000"]);
    let (pid, file) = (target.pid().to_string(), place.path("a.pfprec"));
    let recorder = record(&place, &target, &file, &["-i", "10ms", "--events"]);
    target.tell("");
    let oracle = place.path("oracle.json");
    // Eight threads with 10,000 rounds each, and one round before.
    wait_for("all rounds", || {
        let path = oracle.to_str().unwrap();
        let output = place.pfp_top(&["snapshot", "-p", &pid, "-o", path, "--force"]);
        output.status.success() && count(&json::read(&oracle).unwrap(), "outer") == 80_001
    });
    let len = read(&file).len();
    wait_for("a snapshot after that", || read(&file).len() > len + 1);
    let (fine, said) = interrupted(recorder);
    assert!(fine, "{said}");
    let recording = read(&file);
    let mut of_lane: BTreeMap<u32, (u64, u64, Vec<Record>)> = BTreeMap::new();
    for place in 0..recording.len() {
        for drained in recording.events(place).unwrap() {
            let (next, lost, records) = of_lane.entry(drained.lane).or_default();
            assert_eq!(drained.from, *next, "lane {}", drained.lane);
            *next = drained.next();
            *lost += drained.lost;
            records.extend(drained.records);
        }
    }
    let oracle = json::read(&oracle).unwrap();
    for lane in &oracle.lanes {
        let measured = |cell: &&std::sync::Arc<pfp_read::snapshot::Cell>| cell.lane == lane.id;
        let measured = oracle.cells.iter().filter(measured);
        let measured: u64 = measured.map(|cell| cell.stats.count + cell.retired.count).sum();
        let Some((_, lost, records)) = of_lane.get(&lane.id) else {
            assert_eq!(lane.records_written, 0);
            continue;
        };
        assert_eq!(lost + records.len() as u64, lane.records_written, "lane {}", lane.id);
        // The calibration measures without writing records.
        assert!(lane.records_written <= measured, "lane {}", lane.id);
        // No record appears twice: the regions of a thread end one after the other.
        let ends = records.iter().map(|record| (record.start + record.span, record.start));
        let ends: Vec<(u64, u64)> = ends.collect();
        assert!(ends.windows(2).all(|two| two[0].0 <= two[1].0), "lane {}", lane.id);
        // The recording has at least the records that were in the ring at the end.
        let held = lane.records_written.min(RING_SLOTS as u64 - 1);
        assert!(records.len() as u64 >= held, "lane {}: {} of {held}", lane.id, records.len());
    }
    let written: u64 = oracle.lanes.iter().map(|lane| lane.records_written).sum();
    // Seven regions per round.
    assert!(written >= 7 * 80_001, "{written}");
}

/// The recorder is killed repeatedly and resumes the same file each time: complete frames stay.
#[test]
fn a_killed_recorder_leaves_whole_frames() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let file = place.path("a.pfprec");
    let (mut known, mut torn, mut seed) = (0, 0, 0x9e37_79b9_7f4a_7c15_u64);
    for turn in 0..100 {
        let mut recorder = record(&place, &target, &file, &["-i", "10ms", "--events", "--append"]);
        if turn > 0 {
            wait_for("a snapshot", || read(&file).len() > known);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        thread::sleep(Duration::from_micros((seed >> 33) % 40_000));
        recorder.kill().unwrap();
        recorder.wait().unwrap();
        let recording = read(&file);
        assert!(recording.len() > known, "{turn}");
        assert!(!recording.is_damaged() && !recording.grows());
        torn += usize::from(recording.remark().is_some());
        known = recording.len();
    }
    let mut recording = read(&file);
    snapshots(&mut recording);
    // Over all resumptions, every record appears once.
    let mut next: BTreeMap<u32, u64> = BTreeMap::new();
    for place in 0..recording.len() {
        for drained in recording.events(place).unwrap() {
            let from = next.insert(drained.lane, drained.next()).unwrap_or(0);
            assert_eq!(drained.from, from, "snapshot {place}");
        }
    }
    pfp_tests::figure(&format!("100 kills: {known} snapshots, {torn} torn ends"));
}

/// Resident memory in KiB; `None` if the process has ended.
fn resident(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok())
}

/// However long it records, the recorder holds one key frame and no list of the frames it wrote.
///
/// The test compares minimums of resident memory over a while, since allocating and freeing a frame
/// changes it by a megabyte or two.
#[test]
fn a_long_recording_takes_no_more_memory_than_a_short_one() {
    let frames = size(600, 20_000) as usize;
    let place = Place::new();
    let target = place.start_watched(env!("CARGO_BIN_EXE_hundred"), &[]);
    let file = place.path("a.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "10ms", "--events"]);
    let pid = recorder.id();
    // Minimum and maximum of the resident memory until the file has this many frames. A recorder
    // that ends early prints the reason.
    let span = |frames: usize| {
        let found = std::cell::Cell::new((u64::MAX, 0));
        wait_for("more snapshots", || {
            for _ in 0..100 {
                let Some(now) = resident(pid) else { return true };
                let (least, most) = found.get();
                found.set((least.min(now), most.max(now)));
                thread::sleep(Duration::from_millis(1));
            }
            read(&file).len() >= frames
        });
        found.get()
    };
    // The first third includes several key frames and all histogram buckets.
    span(frames / 3);
    let (early, early_most) = span(frames * 2 / 3);
    let (mut late, mut late_most) = span(frames);
    // On a busy machine the minimum may appear later.
    for more in 1..=3 {
        if late >= early + 1024 {
            (late, late_most) = span(frames + more * frames / 3);
        }
    }
    let (fine, said) = interrupted(recorder);
    assert!(fine && said.contains("asked to end"), "{said}");
    figure(&format!(
        "recorder: {early} to {early_most} KiB up to {} snapshots, {late} to {late_most} up to {frames}",
        frames * 2 / 3,
    ));
    // The 1 MiB covers allocators' caches and histogram buckets that come late.
    assert!(late < early + 1024, "{early} KiB at least in the middle, {late} at the end");
}

/// A recorder that is asked to end writes everything that was measured until then.
#[test]
fn the_last_snapshot_is_taken_at_the_end() {
    let place = Place::new();
    let target = place.start_watched(env!("CARGO_BIN_EXE_hundred"), &[]);
    let file = place.path("a.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "1h"]);
    wait_for("its first snapshot", || read(&file).len() == 1);
    let (fine, said) = interrupted(recorder);
    assert!(fine && said.contains("2 snapshots"), "{said}");
}

/// Measures the CPU share of a recorder with one snapshot per second, for a hundred busy points on
/// four threads.
#[test]
fn a_recorder_uses_little_cpu_time() {
    let rounds = size(3, 60);
    let place = Place::new();
    let target = place.start_watched(env!("CARGO_BIN_EXE_hundred"), &[]);
    let file = place.path("a.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "1s"]);
    let (pid, start) = (recorder.id(), std::time::Instant::now());
    let before = process_cpu(pid).expect("it runs");
    let first = read(&file).len();
    wait_for("its snapshots", || read(&file).len() >= first + rounds as usize);
    let used = process_cpu(pid).expect("it runs") - before;
    let share = used.as_secs_f64() / start.elapsed().as_secs_f64();
    let (fine, said) = interrupted(recorder);
    assert!(fine, "{said}");
    figure(&format!("recorder: {:.2} % of a CPU over {rounds} s at -i 1s", 100.0 * share));
    // A generous limit: the real one applies to a release build on an idle machine.
    assert!(share < 0.25, "{share}");
}

/// The recorder keeps what it could write, stops, and prints the reason.
fn stops_when_full(place: &Place, file: &Path, recorder: Child) {
    let (fine, said) = ended(recorder);
    assert!(!fine, "{said}");
    let mut recording = read(file);
    assert_eq!(recording.remark(), None);
    let n = snapshots(&mut recording).len();
    assert!(said.contains(&format!("whole up to its {n} snapshots")), "{said}");
    let shown = place.pfp_top(&["open", "--once", file.to_str().unwrap()]);
    pfp_tests::well(&shown);
}

#[test]
fn a_recording_at_its_size_limit_is_complete_so_far() {
    let place = Place::new();
    let target = place.start_watched(STEADY, &[]);
    let file = place.path("a.pfprec");
    let mut command = place.command(pfp_top());
    command.args(["record", "-i", "10ms", "-p", &target.pid().to_string(), "-o"]).arg(&file);
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 40_000, rlim_max: 40_000 };
            match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        });
    }
    let recorder = command.stderr(Stdio::piped()).spawn().unwrap();
    stops_when_full(&place, &file, recorder);
}

#[test]
fn a_full_disk_leaves_the_file_whole() {
    let place = Place::new();
    let disk = place.path("disk");
    std::fs::create_dir(&disk).unwrap();
    let mounted = place
        .command("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&disk)
        .output()
        .is_ok_and(|output| output.status.success());
    if !mounted {
        return pfp_tests::skipped("a full disk", "a tmpfs cannot be mounted by this user");
    }
    let target = place.start_watched(STEADY, &[]);
    let file = disk.join("a.pfprec");
    let recorder = record(&place, &target, &file, &["-i", "10ms"]);
    let checked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        stops_when_full(&place, &file, recorder);
    }));
    // A child that another test forks holds all files open until it calls exec.
    wait_for("the disk to be free", || {
        place.command("umount").arg(&disk).output().is_ok_and(|output| output.status.success())
    });
    if let Err(panic) = checked {
        std::panic::resume_unwind(panic);
    }
}
