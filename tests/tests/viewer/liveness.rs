//! Detecting whether processes are alive: a dead process is shown as dead at once, and never as
//! alive, even if another process has its id; a process in a container is recognized from outside;
//! sweepers harm no living process.

use std::fs::File;
use std::io::{BufRead, BufReader, Lines};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant, UNIX_EPOCH};

use pfp_shm_layout::find::{self, KEEP};
use pfp_shm_layout::liveness::Liveness;
use pfp_tests::os::runs;
use pfp_tests::place::{Place, pfp_top};
use pfp_tests::target::{Target, end_with_test, wait_for};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, needs_a_screen, os, size, skipped};
use serde_json::Value;

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const STEADY: &str = env!("CARGO_BIN_EXE_steady");

/// A viewer that prints a line for each update, as scripts use it.
struct Viewer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Viewer {
    /// Watches a process whose beacon is in a folder.
    fn watching(folder: &Path, pid: u32) -> Self {
        let mut command = Command::new(pfp_top());
        command.args(["-b", "--json", "-i", "0.1", "-p", &pid.to_string()]);
        command.env("PFP_DIR", folder).env("PFP_TOP_CONFIG", "");
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = end_with_test(&mut command).spawn().expect("pfp-top starts");
        let lines = BufReader::new(child.stdout.take().expect("it was piped")).lines();
        Self { child, lines }
    }

    /// Reads updates until the process is in a state; returns the times of the updates before, in
    /// seconds since the epoch.
    fn says(&mut self, state: &str) -> Vec<f64> {
        let mut before = Vec::new();
        for line in self.lines.by_ref().map_while(Result::ok) {
            let update: Value = serde_json::from_str(&line).expect("a line is JSON");
            if update["process"]["state"] == state {
                return before;
            }
            before.push(update["time_unix_s"].as_f64().expect("it has one"));
        }
        panic!("the viewer never said {state}");
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn list(folder: &Path) -> Vec<(u32, String)> {
    let output = Command::new(pfp_top())
        .args(["list", "--json"])
        .env("PFP_DIR", folder)
        .output()
        .expect("pfp-top starts");
    let listed: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
    let listed = listed.as_array().cloned().unwrap_or_default();
    let of = |entry: &Value| {
        let pid = entry["pid"].as_u64().expect("it has one") as u32;
        (pid, entry["state"].as_str().expect("it has one").to_owned())
    };
    listed.iter().map(of).collect()
}

/// A program is killed and started again and again. The viewer shows each death, although the dead
/// process has not been reaped.
#[test]
fn a_death_shows_at_once_and_restarts_keep_three() {
    let cycles = size(8, 1_000);
    let place = Place::new();
    let (mut slowest, mut sum) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..cycles {
        let mut target = place.start(TARGET, &["life"]);
        target.reach("done");
        let pid = target.pid();
        let entries = place.entries();
        assert!(entries.len() <= KEEP + 1, "{entries:?}");
        let mut viewer = Viewer::watching(place.beacons(), pid);
        viewer.says("running");
        let killed = Instant::now();
        os::signal(pid, libc::SIGKILL);
        wait_for("it to be dead", || !runs(pid));
        let dead = UNIX_EPOCH.elapsed().expect("it is later").as_secs_f64();
        // A poll that began before the death may print its update after the death.
        let late = viewer.says("crashed").into_iter().filter(|&time| time > dead).count();
        assert!(late <= 1, "{late} updates have taken a dead process for a living one");
        slowest = slowest.max(killed.elapsed());
        sum += killed.elapsed();
        assert_eq!(place.entry(pid).map(|entry| entry.state), Some(Liveness::Dead));
        target.kill();
    }
    let mut target = place.start(TARGET, &["life"]);
    target.reach("done");
    let entries = place.entries();
    assert_eq!(entries.len(), KEEP + 1, "{entries:?}");
    target.end_well();
    let mean = sum / cycles as u32;
    figure(&format!(
        "liveness: {cycles} kills, said to be dead {mean:?} later on average and {slowest:?} at \
         most, at 10 polls a second; {KEEP} segments kept"
    ));
}

/// A death shows on the screen, at the default interval.
#[test]
fn a_death_shows_on_the_screen() {
    needs_a_screen!();
    let place = Place::new();
    let mut target = place.start(STEADY, &[]);
    let screen = place.screen(100, 20);
    screen.pfp_top("");
    screen.wait_for("a row", |text| text.contains('●'));
    let killed = Instant::now();
    target.kill();
    screen.wait_for_status("CRASHED");
    figure(&format!("liveness: on the screen {:?} after the signal", killed.elapsed()));
}

/// Another process gets the id of a dead one.
#[test]
fn a_reused_id_does_not_revive_a_dead_process() {
    let reuses = size(3, 200);
    for _ in 0..reuses {
        let place = Place::new();
        let mut first = place.start(TARGET, &["life"]);
        first.reach("done");
        let pid = first.pid();
        let mut viewer = Viewer::watching(place.beacons(), pid);
        viewer.says("running");
        let dead = place.entry(pid).expect("it was found");
        first.kill();
        first.reap();
        let mut second = place.start(TARGET, &["as-pid", &pid.to_string()]);
        let said = second.reach("done");
        if said.has("refused") {
            return skipped("the id of a dead process", "this user may not choose ids");
        }
        // Both processes are shown, each in its own state. The viewer that watched the first one
        // still knows how it ended.
        viewer.says(if os::tells_ends() { "crashed" } else { "ended" });
        let states = |place: &Place| {
            let entries = place.entries().into_iter();
            entries.map(|entry| (entry.info.process.pid, entry.state)).collect::<Vec<_>>()
        };
        let both = [(pid, Liveness::Alive), (pid, Liveness::Dead)];
        assert_eq!(states(&place), both);
        let listed = list(place.beacons());
        assert_eq!(listed.len(), 2, "{listed:?}");
        for state in ["running", "ended"] {
            assert!(listed.contains(&(pid, state.to_owned())), "{listed:?}");
        }
        // While the test holds the lock on the dead process's beacon, only the id and the start
        // time show that the process is dead.
        let alive = place.entry(pid).expect("it was found");
        assert_ne!(alive.info.object, dead.info.object);
        if alive.info.process.start != dead.info.process.start {
            let beacon = File::open(&dead.path).expect("it is there");
            // SAFETY: the descriptor is open, and the call takes plain numbers.
            let locked = unsafe { libc::flock(beacon.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
            assert_eq!(locked, 0);
            assert_eq!(states(&place), both);
        }
        // A sweep removes the dead process' segment, and not the living one's.
        let removed = wait_for("the dead one to be swept", || {
            // A viewer holds the lock on a beacon while it looks at the beacon, and a sweep then
            // skips it. So the sweep is repeated.
            let swept = find::gc(&place.directory()).expect("the directory can be read");
            Some(swept.removed.len()).filter(|removed| *removed > 0)
        });
        assert_eq!(removed, 1);
        assert_eq!(states(&place), both[..1]);
        second.end_well();
    }
    figure(&format!("liveness: {reuses} ids used again, nobody revived"));
}

/// Starts a scenario in its own namespaces, after the shell commands `first`; `None` if this user
/// may not.
pub(super) fn contain(place: &Place, first: &str) -> Option<Target> {
    let unshare = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let tried = Command::new("unshare").args(unshare).arg("true").output();
    if !tried.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let script = format!("{first} exec {TARGET} life");
    Some(Target::start(place.command("unshare").args(unshare).args(["sh", "-c", &script])))
}

/// The only child of a process.
pub(super) fn child_of(pid: u32) -> u32 {
    wait_for("the process inside", || {
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    })
}

/// Outside of its container, the id of a process is meaningless, but the lock on its beacon shows
/// that it is alive.
#[test]
fn a_process_in_a_container_is_recognized_from_outside() {
    let place = Place::new();
    let folder = place.beacons().display();
    for (what, first) in [
        ("pids of its own", String::new()),
        ("files of its own", format!("mount -t tmpfs -o mode=700 none {folder} &&")),
    ] {
        let Some(mut target) = contain(&place, &first) else {
            return skipped("processes in namespaces", "this user may not make any");
        };
        target.reach("done");
        let outside = child_of(target.pid());
        // This path into the container works whatever is shared.
        let inside = PathBuf::from(format!("/proc/{outside}/root{folder}"));
        let shared = first.is_empty();
        assert_eq!(place.entry(1).is_some(), shared, "{what}");
        let folders = if shared { vec![place.beacons(), &inside] } else { vec![inside.as_path()] };
        for folder in &folders {
            assert_eq!(list(folder), [(1, "running".to_owned())], "{what}");
        }
        let mut viewers: Vec<_> = folders.iter().map(|it| Viewer::watching(it, 1)).collect();
        viewers.iter_mut().for_each(|viewer| drop(viewer.says("running")));
        if shared {
            let entry = place.entry(1).expect("just found");
            assert_eq!(watch::named(Watch::open(&entry).poll(), "a scope").count, 100);
            // Another container sees it, too.
            let seen = place
                .command("unshare")
                .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
                .arg(pfp_top())
                .args(["list", "--json"])
                .output()
                .expect("it was started before");
            let seen = String::from_utf8_lossy(&seen.stdout).into_owned();
            assert!(seen.contains("\"running\""), "{seen}");
        }
        let killed = Instant::now();
        os::signal(outside, libc::SIGKILL);
        // The parent, `unshare`, reaps the process at once, so only the kernel can report how it
        // ended.
        let state = if os::tells_ends() { "crashed" } else { "ended" };
        viewers.iter_mut().for_each(|viewer| drop(viewer.says(state)));
        figure(&format!("liveness: {what}, dead {:?} after the signal", killed.elapsed()));
        if shared {
            assert_eq!(place.entry(1).map(|entry| entry.state), Some(Liveness::Dead), "{what}");
            find::gc(&place.directory()).expect("the directory can be read");
        }
    }
}

/// A process with its own shared memory cannot be watched from outside; the viewer shows that it is
/// alive, and why it has no figures.
#[test]
fn a_process_with_shared_memory_of_its_own_is_explained() {
    let place = Place::new();
    let first = "mount -t tmpfs none /dev/shm &&";
    let Some(mut target) = contain(&place, first) else {
        return skipped("processes in namespaces", "this user may not make any");
    };
    target.reach("done");
    let entry = place.entry(1).expect("its beacon is here");
    assert_eq!((entry.state, entry.object_bytes), (Liveness::Alive, None));
    assert_eq!(list(place.beacons()), []);
    let doctor = place.command(pfp_top()).arg("doctor").output();
    let printed = String::from_utf8(doctor.expect("pfp-top starts").stdout).expect("it is text");
    assert!(printed.contains("runs, but its segment is not in /dev/shm"), "{printed}");
    os::signal(child_of(target.pid()), libc::SIGKILL);
    wait_for("it to be dead", || (place.entry(1)?.state == Liveness::Dead).then_some(()));
}

#[test]
fn racing_sweepers_leave_the_living_alone() {
    let races = size(100, 10_000);
    let place = Place::new();
    let mut target = place.start(TARGET, &["races", &races.to_string()]);
    let said = target.reach("done").clone();
    assert_eq!(said.one::<u64>("harmed"), 0, "the living");
    assert_eq!(said.one::<u64>("failed"), 0, "sweepers that met trouble");
    // No segment is removed twice, and none is left.
    assert_eq!(said.one::<u64>("removed"), said.one::<u64>("dead"));
    assert_eq!(said.one::<u64>("left"), 0);
    target.end_well();
    figure(&format!("liveness: {races} races of 8 sweepers, no living one harmed"));
}
