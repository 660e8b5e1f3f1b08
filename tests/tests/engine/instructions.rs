//! Counts the instructions of a region with callgrind. Other load on the machine does not change
//! the number, so one more branch shows at once.
//!
//! One process of the program `pairs` runs a case n and 2n times. The difference divided by n is
//! the average of one call. It includes the rare calls that need more instructions: every 128th
//! record begins a page of the ring and folds the page before, and a region that is longer than any
//! before takes the slow path. With a small n, some of several runs have no such call, so the
//! minimum over those runs includes none. The instructions of the empty loop are subtracted.
//!
//! The program runs under `PFP_CLOCK=wall`, so that a region makes no system call. Callgrind does
//! not support restartable sequences; with this clock source, a region takes the same path under
//! callgrind as without it.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use pfp_tests::place::Place;
use pfp_tests::target::wait_for;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, lacks, os, skipped};

const PAIRS: &str = env!("CARGO_BIN_EXE_pairs");
const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Instructions of one call of each case, less the empty loop's, as compiled by [`COMPILER`] for
/// x86-64. Cases of one region: `enabled`; `amounts`, with two amounts; `amounts_last`, with the
/// last of the eight tuples of amounts that pfp counts separately; `amounts_rest`, with a tuple
/// beyond these; `amounts_off`, whose point is off; `allocs`, which counts allocations; `average`,
/// which averages; `numeric`, by number; `by_hand`; `latched`, in two parts by hand; `disabled`
/// (two of its instructions make room on the stack). `call` is a bare call, `disabled_call` a call
/// in a region that is off. `nested` are two regions in each other, `laps` two one after the other.
/// `four_in_turn`, `in_turn` and `thousand_in_turn` measure one region, of 4, 64 and 1,000 points
/// in turn. `poll` is one poll of a future, `ready` an async function that is ready at once,
/// `ready_off` the same function when its point is off, and `stamp` one reading of the on-CPU
/// clock.
///
/// To renew these numbers, run `PFP_TEST_FIGURES=1 cargo test --release -p pfp-tests --test engine
/// instructions::`, and explain the change in the commit. Numbers of another compiler are not
/// compared, so renew these when the compiler changes.
const RECORDED: [(&str, f64); 22] = [
    ("enabled", 148.0),
    ("amounts", 175.0),
    ("amounts_last", 192.0),
    ("amounts_rest", 1008.0),
    ("amounts_off", 9.0),
    ("allocs", 494.0),
    ("average", 180.0),
    ("numeric", 164.0),
    ("by_hand", 152.0),
    ("latched", 1353.0),
    ("disabled", 6.0),
    ("call", 7.0),
    ("disabled_call", 17.0),
    ("nested", 349.0),
    ("laps", 360.0),
    ("four_in_turn", 190.0),
    ("in_turn", 247.0),
    ("thousand_in_turn", 279.0),
    ("poll", 304.0),
    ("ready", 178.0),
    ("ready_off", 22.0),
    ("stamp", 148.0),
];
/// Instructions of a begin and an end without the fold, as in 127 of 128 regions. Each is the case
/// less the base: the empty loop, or one lap for `laps`, which measures two.
const WITHOUT_FOLD: [(&str, &str, f64); 4] = [
    ("enabled", "empty", 125.0),
    ("numeric", "empty", 142.0),
    ("by_hand", "empty", 130.0),
    ("laps", "one_lap", 129.0),
];
const COMPILER: &str = "rustc 1.95.";
/// Tolerance of a recorded number, in percent. Adding a record to a histogram takes 12 more
/// instructions if its octave differs from the previous record's. The thread's CPU time is read
/// every 2^21 ticks, which takes some 1,900 instructions. Empty regions depend little on either;
/// laps are kept in one octave by waits.
const TOLERANCE: f64 = 5.0;

/// Number of times that a process counts its case.
const COUNTS_PER_PROCESS: usize = 4;
/// Number of times that a case with a wrong number is counted again. A count may be too high: the
/// clock continues to run under callgrind, and some calls take the slow path because of their
/// duration, such as the longest call so far.
const RECOUNTS: usize = 6;

/// Enough whole pages of records, each folded once, that a rare call has little weight.
const TIMES: u64 = 40 * 128;
/// Number of calls in a run: so few that some runs have no fold, even with twice as many calls.
const FEW: u64 = 5;
/// Number of runs of [`FEW`] calls, and of runs of twice as many.
const RUNS_OF_FEW: usize = 15;
/// Number of calls that take long enough for a viewer to watch.
const TIMES_WATCHED: u64 = 150_000;

/// Counts the instructions of a case for each number of calls, in one process.
type Count = fn(&str, &[u64]) -> Vec<u64>;

/// States of a viewer during the count.
const VIEWERS: [(&str, Count); 3] =
    [("attached", count_watched), ("stopped", count_stopped), ("dead", count_dead)];

/// One test, because its parts use each other's numbers.
#[test]
fn a_region_takes_as_many_instructions_as_recorded() {
    const WHAT: &str = "instructions of a region";
    if cfg!(debug_assertions) || cfg!(not(target_arch = "x86_64")) {
        return skipped(WHAT, "they are recorded for a release build for x86-64");
    }
    if lacks(WHAT, "valgrind") {
        return;
    }
    let empty = per_call(&count_many("empty"), TIMES);
    let mut wrong = Vec::new();
    for (case, recorded) in RECORDED {
        // Laps wait until they are long enough, so the waits are subtracted (see `pairs.rs`).
        let base = if case == "laps" { per_call(&count_many("waits"), TIMES) } else { empty };
        let is_off = |found: f64| (found - recorded).abs() * 100.0 > TOLERANCE * recorded;
        let mut counts = count_many(case);
        let mut found = per_call(&counts, TIMES) - base;
        for _ in 0..RECOUNTS {
            if is_off(found) && is_recorded_compiler() {
                counts.extend(count_many(case));
                found = per_call(&counts, TIMES) - base;
            }
        }
        figure(&format!("instructions, {case}: {found:.2}"));
        if case == "enabled" {
            for (how, count) in VIEWERS {
                // Adding a page of records to a cell takes a number of instructions that depends on
                // their durations.
                let is_near = |watched: &f64| (found - watched).abs() * 100.0 <= TOLERANCE * found;
                let mut counts = (0..=RECOUNTS).map(|_| {
                    let watched = count(case, &[TIMES_WATCHED, 2 * TIMES_WATCHED]);
                    let watched = per_call(&watched, TIMES_WATCHED);
                    figure(&format!("instructions, {case}, viewer {how}: {:.2}", watched - empty));
                    watched - empty
                });
                assert!(counts.any(|watched| is_near(&watched)), "{case}: viewer {how}, {found}");
            }
        }
        if is_off(found) || !is_recorded_compiler() {
            wrong.push(format!("{case}: expected {recorded}, found {found:.1}"));
        }
    }
    for (case, base, recorded) in WITHOUT_FOLD {
        // These numbers do not depend on the clock, if at least one run never waited for a CPU.
        let is_off = |found: f64| (found - recorded).abs() > 2.0;
        let mut found = f64::NAN;
        for _ in 0..=RECOUNTS {
            found = per_call(&count_few(case), FEW) - per_call(&count_few(base), FEW);
            if !is_off(found) {
                break;
            }
        }
        figure(&format!("instructions without the fold, {case}: {found}"));
        if is_off(found) || !is_recorded_compiler() {
            wrong.push(format!("{case} without the fold: expected {recorded}, found {found}"));
        }
    }
    if !is_recorded_compiler() {
        let why = format!("{COMPILER} has those recorded; renew them, see RECORDED: {wrong:#?}");
        return skipped(WHAT, &why);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn count_few(case: &str) -> Vec<u64> {
    count(case, &[FEW, 2 * FEW].repeat(RUNS_OF_FEW))
}

fn count_many(case: &str) -> Vec<u64> {
    count(case, &[TIMES, 2 * TIMES].repeat(COUNTS_PER_PROCESS))
}

/// Instructions of one call, from counts of `times` calls and of twice as many in turn: the slope
/// between the smallest counts of both. With few calls, those runs have no fold and no call that is
/// longer than all before it.
fn per_call(counts: &[u64], times: u64) -> f64 {
    let fewest = |of: usize| counts.chunks(2).map(|pair| pair[of]).min().unwrap_or(0);
    (fewest(1) as f64 - fewest(0) as f64) / times as f64
}

fn is_recorded_compiler() -> bool {
    let version = Command::new("rustc").arg("--version").output();
    version.is_ok_and(|version| version.stdout.starts_with(COMPILER.as_bytes()))
}

fn count(case: &str, times: &[u64]) -> Vec<u64> {
    let place = Place::new();
    collected(start(&place, case, times), &place, times.len())
}

/// Counts like [`count`], with a viewer that has attached and is stopped before the counting
/// begins, or soon after.
fn count_stopped(case: &str, times: &[u64]) -> Vec<u64> {
    count_left(case, times, libc::SIGSTOP)
}

/// Counts like [`count`], with a viewer that has attached and is killed before the counting begins,
/// or soon after.
fn count_dead(case: &str, times: &[u64]) -> Vec<u64> {
    count_left(case, times, libc::SIGKILL)
}

/// Counts with a viewer that gets a signal in the middle of its work.
fn count_left(case: &str, times: &[u64], signal: libc::c_int) -> Vec<u64> {
    let place = Place::new();
    let child = start(&place, case, times);
    // The segment is complete, and in use.
    let mut watch = Watch::attach_to(&place, child.id());
    wait_for("the region", || watch.poll().points.iter().any(|point| point.name == case));
    let mut viewer = place.start(TARGET, &["drain", &child.id().to_string()]);
    viewer.reach("attached");
    viewer.go();
    viewer.reach("reading");
    os::signal(viewer.pid(), signal);
    collected(child, &place, times.len())
}

/// Counts like [`count`], while this process polls the segment as fast as it can.
fn count_watched(case: &str, times: &[u64]) -> Vec<u64> {
    let place = Place::new();
    let mut child = start(&place, case, times);
    let mut watch = Watch::attach_to(&place, child.id());
    let (mut count, mut rises) = (0, 0);
    wait_for("the program to end", || {
        let picture = watch.poll();
        if picture.points.iter().any(|point| point.name == case) {
            let now = watch::named(picture, case).count;
            rises += u32::from(now > count);
            count = now;
        }
        child.try_wait().expect("it is a child of this process")
    });
    // The program makes ten thousand calls before the counting begins.
    assert!(rises >= 10 && count > 10_000, "seen to rise {rises} times, to {count}");
    collected(child, &place, times.len())
}

fn start(place: &Place, case: &str, times: &[u64]) -> Child {
    let out = out(place);
    place
        .command("valgrind")
        // Counting turns on in `pairs_repeat`, and off in `pairs_repeat_wait` that it calls. One
        // pattern must match both names, and its star matches at least one character.
        .args(["--tool=callgrind", "--toggle-collect=pairs_repe*t"])
        .arg("--dump-after=pairs_repeat")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args([PAIRS, case])
        .args(times.iter().map(u64::to_string))
        .env("PFP_CLOCK", "wall")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("valgrind ran just now")
}

/// Callgrind's output path; it appends a number for each dump.
fn out(place: &Place) -> PathBuf {
    place.path("callgrind.out")
}

/// The instruction counts of each dump.
fn collected(child: Child, place: &Place, times: usize) -> Vec<u64> {
    let output = child.wait_with_output().expect("it is a child of this process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "valgrind, {}: {said}", output.status);
    let count = |time: usize| {
        let dump = out(place).with_extension(format!("out.{time}"));
        let dump = std::fs::read_to_string(&dump).unwrap_or_default();
        let total =
            dump.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
        total.unwrap_or_else(|| panic!("no count from valgrind: {said}"))
    };
    (1..=times).map(count).collect()
}
