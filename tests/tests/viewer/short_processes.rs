//! Processes that live for less than the time between two polls. A viewer of all processes counts
//! every one of them, and removes the segments that they leave for it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use pfp_read::files::json;
use pfp_read::snapshot::Snapshot;
use pfp_tests::place::{Place, count, pfp_top};
use pfp_tests::target::{end_with_test, wait_for};
use pfp_tests::{figure, os};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// Number of calls of each process.
const CALLS: u64 = 7;

/// Runs a script under `pfp-top run`, and returns the summed snapshot.
fn run(place: &Place, options: &[&str], script: &str) -> Snapshot {
    let file = place.path("all.json");
    let mut command = place.command(pfp_top());
    command.env("XDG_STATE_HOME", place.path("state")).args(["run", "--force", "-o"]).arg(&file);
    pfp_tests::c::run(command.args(options).args(["--", "sh", "-c", script]));
    json::read(&file).expect("it was written")
}

/// Asserts that the folder of beacons is empty.
fn nothing_is_left(place: &Place) {
    assert_eq!(place.lit(), [""; 0], "everything was removed");
}

#[test]
fn every_process_of_a_run_is_summed_exactly() {
    let place = Place::new();
    let one_by_one = format!("for i in $(seq 60); do {TARGET} brief {CALLS} 0; done");
    let sum = run(&place, &["--all", "--sum"], &one_by_one);
    figure(&format!("short processes: {} of 60 one by one", sum.process.members.len()));
    assert_eq!((sum.process.members.len(), count(&sum, "brief")), (60, 60 * CALLS));
    nothing_is_left(&place);

    let at_once = format!(
        "for i in $(seq 20); do for ms in 10 30 60; do {TARGET} brief {CALLS} $ms & done; done; \
         wait"
    );
    let sum = run(&place, &["--all", "--sum"], &at_once);
    figure(&format!("short processes: {} of 60 at once", sum.process.members.len()));
    assert_eq!((sum.process.members.len(), count(&sum, "brief")), (60, 60 * CALLS));
    nothing_is_left(&place);
}

/// Processes that the program did not start are not counted. If a program is a single process, it
/// is counted, however briefly it runs.
#[test]
fn a_run_sums_its_own_processes_and_no_others() {
    let place = Place::new();
    let other = place.path("others");
    let brief = format!("{TARGET} brief {CALLS} 0");
    let others = place
        .command("sh")
        .args(["-c", &format!("until test -e {}; do {brief}; done", other.display())])
        .spawn();
    let mut others = others.expect("a shell starts");
    let sum = run(&place, &["--sum"], &format!("for i in $(seq 20); do {brief}; done"));
    std::fs::write(&other, "").expect("the folder is there");
    others.wait().expect("it ends");
    assert_eq!((sum.process.members.len(), count(&sum, "brief")), (20, 20 * CALLS));
    for _ in 0..10 {
        assert_eq!(count(&run(&place, &["--once"], &brief), "brief"), CALLS);
    }
}

/// Two viewers that watch all processes both count everything, and the leftovers of a killed viewer
/// are removed.
#[test]
fn several_viewers_of_all_count_everything_and_a_killed_one_is_swept() {
    let place = Place::new();
    let brief = |times: u64| {
        let script = format!("for i in $(seq {times}); do {TARGET} brief {CALLS} 0; done");
        pfp_tests::c::run(place.command("sh").args(["-c", &script]));
    };
    // These processes end before any viewer watches, so none counts them.
    brief(3);
    nothing_is_left(&place);
    let steady = place.start_watched(TARGET, &["life"]);
    let watch = || {
        let mut command = place.command(pfp_top());
        command.args(["--all", "--sum", "--once", "-n", "100000", "-i", "0.1"]);
        let mut viewer =
            end_with_test(&mut command).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = BufReader::new(viewer.stdout.take().expect("it was piped")).lines();
        (viewer, lines.map_while(Result::ok))
    };
    let counted = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let place = words.iter().position(|word| *word == "brief")?;
        words.get(place + 2)?.parse::<u64>().ok()
    };
    let (mut first, mut lines) = watch();
    let (mut second, mut others) = watch();
    for lines in [&mut lines, &mut others] {
        lines.find(|line| line.contains("a scope")).expect("it shows the process");
    }
    brief(40);
    for lines in [&mut lines, &mut others] {
        let found = lines.filter_map(|line| counted(&line)).find(|found| *found >= 40 * CALLS);
        assert_eq!(found, Some(40 * CALLS));
    }
    let kill = |viewer: &mut std::process::Child, signal| {
        os::signal(viewer.id(), signal);
        viewer.wait().expect("it ends");
    };
    kill(&mut first, libc::SIGKILL);
    // The killed viewer's leftovers are removed once the other viewer has ended.
    kill(&mut second, libc::SIGTERM);
    drop((lines, others));
    brief(1);
    wait_for("what it left to be swept", || place.lit().len() == 1);

    // When the only viewer is killed, no viewer is left to remove the segments left for it.
    let (mut last, mut lines) = watch();
    lines.find(|line| line.contains("a scope")).expect("it shows the process");
    os::signal(last.id(), libc::SIGSTOP);
    brief(30);
    assert!(place.lit().len() > 10, "they were left for it: {:?}", place.lit());
    kill(&mut last, libc::SIGKILL);
    brief(1);
    let beacons = place.lit().iter().filter(|name| name.ends_with(".beacon")).count();
    assert!(beacons <= 1 + 3, "no more than of crashed ones: {:?}", place.lit());
    assert_eq!(place.lit().len(), beacons, "{:?}", place.lit());
    drop(steady);
}
