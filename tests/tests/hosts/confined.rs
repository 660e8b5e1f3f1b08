//! A program that restricts its system calls once pfp has started: pfp then makes only the calls
//! that docs/in-a-host.md lists, and losses because of refused calls are counted.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use pfp_tests::place::Place;
use pfp_tests::target::{Ended, Target};
use pfp_tests::watch::Watch;
use pfp_tests::{figure, size};

const STRICT: &str = env!("CARGO_BIN_EXE_strict");
const PAGE: &str = include_str!("../../../docs/in-a-host.md");

/// System calls of the program itself: to start and end threads, to print lines, and to exit.
const OWN: &str = "brk,clone,clone3,exit,exit_group,futex,madvise=4,read,rseq,rt_sigprocmask,\
                   set_robust_list,write";
/// The exit status of an orderly end.
const ORDERLY: Option<i32> = Some(7);
/// Enough rounds that each thread fills its ring more than once.
const ROUNDS: u64 = size(700, 20_000);

/// The system calls on the documentation page in the rows whose first column starts with one of
/// these.
fn published(rows: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for row in rows {
        let line = PAGE.lines().find(|line| line.starts_with(&format!("| {row}")));
        let line = line.unwrap_or_else(|| panic!("the page has no row {row:?}"));
        let calls = line.split('|').nth(2).expect("it has a second column");
        let calls = calls.split('`').skip(1).step_by(2).map(|call| match call.split_once('(') {
            Some((name, "MADV_POPULATE_WRITE)")) => format!("{name}=23"),
            Some((name, "MADV_WIPEONFORK)")) => format!("{name}=18"),
            Some((name, "MADV_DONTDUMP)")) => format!("{name}=16"),
            Some((name, "MADV_KEEPONFORK)")) => format!("{name}=19"),
            Some((name, _)) => name.to_owned(),
            None => call.to_owned(),
        });
        found.extend(calls);
    }
    found
}

/// All calls that pfp makes after the start.
fn later() -> BTreeSet<String> {
    published(&[
        "a point that no thread has reached",
        "a thread's first region",
        "a point that is new to the thread",
        "after a switch",
        "a signal handler",
        "a thread ends",
        "the process ends",
        "while a point has a limit",
    ])
}

fn list<'a>(calls: impl IntoIterator<Item = &'a String>) -> String {
    calls.into_iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

struct Run {
    begins: u64,
    /// Measured and missed regions in the segment; `None` if there is no segment.
    found: Option<(u64, u64)>,
    ended: Ended,
}

fn run(mode: &str, calls: &str, rounds: u64, lanes: &str) -> Run {
    let place = Place::new();
    let arguments = ["confined", mode, calls, &rounds.to_string()];
    let mut target = place.start_with(STRICT, &arguments, "PFP_LANES", lanes);
    let begins = target.reach("done").one("begins");
    let found = place.entry(target.pid()).filter(|entry| entry.object_bytes.is_some()).map(|_| {
        let mut watch = Watch::attach(&place, &target);
        let picture = watch.poll();
        // The picture has a sum for each metered point. Parts, the cells of its tuples and its own
        // cell, are included in the sum.
        let cells = picture.cells.iter().filter(|cell| cell.point != 0 && !cell.is_part);
        (cells.map(|cell| cell.lifetime_count).sum(), picture.losses.begins_missed)
    });
    Run { begins, found, ended: target.end() }
}

/// Runs the program in this mode to its end. It may be killed before it prints anything.
fn end_of(mode: &str, calls: &str) -> Ended {
    let place = Place::new();
    let target: Target = place.start(STRICT, &["confined", mode, calls, "1"]);
    target.end()
}

#[test]
fn after_the_start_only_documented_calls_are_made() {
    let published = later();
    let allowed = format!("{OWN},{}", list(&published));
    let mut begins = 0;
    // Runs once with a lane for each thread, and once with most threads sharing a lane.
    for lanes in ["128", "2"] {
        let run = run("allow", &allowed, ROUNDS, lanes);
        assert_eq!(run.ended.status.code(), ORDERLY, "{lanes} lanes: {:?}", run.ended);
        // A thread that reaches a point while another one registers it waits only briefly, and may
        // miss the region.
        let (measured, missed) = run.found.expect("there is a segment");
        assert_eq!(measured + missed, run.begins, "{lanes} lanes");
        assert!(missed < run.begins / 100, "{lanes} lanes: {missed} of {}", run.begins);
        begins += run.begins;
    }
    figure(&format!("confined: {begins} regions with nothing but {}", list(&published)));
}

/// During the start and in a forked child, pfp makes only the calls that are documented, even if
/// another program is measuring with the same folder of beacons.
#[test]
fn calls_of_the_start_and_of_a_child_are_documented() {
    let place = Place::new();
    let mut other = place.start(STRICT, &["confined", "refuse", "", "1"]);
    other.reach("done");
    let (start, later, fork) = (published(&["the start"]), later(), published(&["a child"]));
    let most = [&start, &later, &fork].map(list).join(",");
    for mode in ["allow-start", "allow-in-child"] {
        let calls = format!("{OWN},wait4,{most}");
        let mut target = place.start(STRICT, &["confined", mode, &calls, "1"]);
        let begins: u64 = target.reach("done").one("begins");
        let picture = Watch::attach(&place, &target).poll().clone();
        assert!(begins > 0 && !picture.cells.is_empty(), "{mode}");
        assert_eq!(target.end().status.code(), ORDERLY, "{mode}");
    }
    other.end();
}

/// If any one of these documented calls is not allowed, the program is killed. So the filter works,
/// each of these calls is needed, and the program's own calls are not counted as pfp's.
#[test]
fn each_documented_call_is_needed() {
    assert_eq!(end_of("plain", OWN).status.code(), ORDERLY);
    let published = later();
    let advice = ["madvise=16", "madvise=18", "madvise=19", "madvise=23"];
    let others = ["clock_gettime", "getpid", "gettid", "mmap", "prctl", "unlink"];
    for needed in advice.into_iter().chain(others) {
        assert!(published.contains(needed), "{needed} is not published");
        let others = published.iter().filter(|&call| call != needed);
        let ended = end_of("allow", &format!("{OWN},{}", list(others)));
        assert_eq!(ended.status.signal(), Some(libc::SIGSYS), "without {needed}: {ended:?}");
    }
}

/// A refused call costs figures, but every begin is counted as measured or as missed. Each call is
/// refused alone, and all together, after the start and before it.
#[test]
fn losses_by_refused_calls_are_counted() {
    let mut start = published(&["the start"]);
    // The program needs these to talk to its test.
    start.retain(|call| !["read", "write"].contains(&call.as_str()));
    let later = later();
    let (mut tried, mut missed) = (0, 0);
    for (mode, calls) in [("refuse", &later), ("refuse-start", &start)] {
        let alone = calls.iter().map(|call| list([call]));
        // Without `mmap` the program could not start its own threads.
        let all = calls.iter().filter(|call| mode == "refuse" || *call != "mmap");
        for refused in alone.chain([list(all)]) {
            let run = run(mode, &refused, 40, "128");
            assert_eq!(run.ended.status.code(), ORDERLY, "{mode} {refused}: {:?}", run.ended);
            assert_eq!(run.ended.errors, "", "{mode} {refused}");
            if let Some((measured, lost)) = run.found {
                assert_eq!(measured + lost, run.begins, "{mode} {refused}");
                missed += u64::from(lost > 0);
            }
            assert!(run.found.is_some() || mode != "refuse", "{refused}");
            tried += 1;
        }
    }
    assert!(missed > 0, "nobody was refused anything");
    figure(&format!("confined: {tried} times refused, {missed} with begins not measured, counted"));
}
