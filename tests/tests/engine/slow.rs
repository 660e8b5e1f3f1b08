//! A slow call among very many short ones is kept, with its cause.

use std::path::{Path, PathBuf};
use std::process::Command;

use pfp_model::slow::{Cause, explain, name};
use pfp_read::files::json;
use pfp_read::snapshot::{ProcessState, SlowCall, Snapshot};
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::{Place, pfp_top, text};
use pfp_tests::{python, tools};

const SLOW: &str = env!("CARGO_BIN_EXE_slow");
/// Runs of each cause.
const RUNS: u64 = if cfg!(feature = "torture") { 34 } else { 2 };
/// Names of the levels of calls.
const LEVELS: [&str; 3] = ["request", "step", "detail"];
/// Maximum number of runs until the planted call is kept: on a very busy machine, too many other
/// calls are slow.
const TRIES: u64 = 10;

/// The command that runs a program and writes its last snapshot.
fn run(place: &Place, file: &Path) -> Command {
    let mut command = place.command(pfp_top());
    command.env("XDG_STATE_HOME", place.path("state"));
    command.args(["run", "--once", "-o", text(file), "--"]);
    command
}

/// The slow call that the program has noted, by its own clocks.
struct Planted {
    call: SlowCall,
    snapshot: Snapshot,
    /// Time by the clock and on a CPU, nanoseconds.
    wall: u64,
    cpu: u64,
    /// The level of calls at which the time was spent.
    level: usize,
}

/// A program that makes the slow call.
enum Program {
    Rust,
    /// With spans of the crate tracing.
    Spans,
    C(PathBuf),
    Python(PathBuf),
}

impl Program {
    fn add_to(&self, place: &Place, command: &mut Command) {
        match self {
            Self::Rust => command.arg(SLOW),
            Self::Spans => command.arg(SLOW).env("SLOW_SPANS", "1"),
            Self::C(program) => command.arg(program),
            Self::Python(interpreter) => {
                command.arg(interpreter).arg(python::script("slow.py"));
                command.env("PYTHONPATH", python::package(place));
                command.env("PYTHONDONTWRITEBYTECODE", "1")
            }
        };
    }
}

/// `None` if the call was not kept, because more calls were slow than are kept.
fn planted(program: &Program, cause: &str, seed: u64) -> Option<Planted> {
    let place = Place::new();
    let [file, notes] = ["snapshot.json", "notes"].map(|name| place.path(name));
    let mut command = run(&place, &file);
    program.add_to(&place, &mut command);
    c::run(command.args([cause, &seed.to_string(), text(&notes)]));
    let snapshot: Snapshot = json::read(&file).expect("it was written");
    let notes = std::fs::read_to_string(&notes).expect("it was written");
    let noted = notes.split(' ').map(|word| word.parse::<u64>().expect("it is a number"));
    let [tid, end, wall, cpu, level] = *noted.collect::<Vec<_>>() else { panic!("{notes}") };
    // Other calls of the thread end at least 5 ms earlier or later.
    let is_it = |call: &&std::sync::Arc<SlowCall>| {
        u64::from(call.tid) == tid && (end.saturating_sub(1)..end + 4).contains(&call.unix_ms)
    };
    let Some(call) = snapshot.slow.iter().find(is_it) else {
        let is_full = snapshot.slow.len() == 8 || snapshot.slow_dropped > 0;
        assert!(is_full, "{cause} {seed}: {notes}: not kept: {:?}", snapshot.slow);
        return None;
    };
    let call = SlowCall::clone(call);
    Some(Planted { call, snapshot, wall, cpu, level: level as usize })
}

/// Checks slow calls of these causes.
fn check_all(program: &Program, causes: &[&str]) {
    for cause in causes {
        (0..RUNS).for_each(|seed| check(program, cause, seed));
    }
}

/// Checks a slow call of this cause.
fn check(program: &Program, cause: &str, seed: u64) {
    let found = (0..TRIES).find_map(|again| planted(program, cause, seed + 1000 * again));
    let Planted { call, snapshot, wall, cpu, level } = found.expect("the machine is not that busy");
    let rate = snapshot.clock.ticks_per_second;
    let what = format!(
        "{cause} {seed}, {wall} ns, {cpu} ns: {:?}",
        SlowCall { records: Vec::new(), ..call.clone() }
    );
    let ns = |ticks: u64| (ticks as f64 / rate * 1e9) as u64;
    let near = |found: u64, noted: u64| found.abs_diff(noted) < 1_000_000 + noted / 10;
    assert!(near(ns(call.span), wall) || ns(call.span) > wall, "{what}");
    assert!(near(ns(call.inclusive), cpu), "{what}");
    assert_eq!(call.limit.map(|limit| (limit.ns, limit.cpu)), Some((5_000_000, false)));
    // A span's point has the name of its module, too.
    let name = |point| name(point, &snapshot).trim_start_matches("slow::").to_owned();
    let found = explain(&call, rate);
    assert_eq!(name(call.point), LEVELS[0]);
    let chain: Vec<_> = found.chain.iter().map(|point| name(*point)).collect();
    assert_eq!(chain, LEVELS[1..=level], "{what}");
    assert!(call.enclosing.is_empty(), "{what}");
    // If the machine is busy, the program has run for less of the time than it wanted.
    let expected = match cause {
        "sleep" | "lock" => Cause::Waited,
        _ if wall > cpu * 5 / 2 => Cause::Preempted,
        _ if wall > cpu * 3 / 2 => return,
        "fault" => Cause::Faulted,
        _ => Cause::Ran,
    };
    let kernel = call.kernel.expect("the kernel counts");
    let is_mixed = found.cause == Cause::OffCpu && kernel.preemptions > kernel.waits;
    assert!(
        found.cause == expected || is_mixed && expected != Cause::Ran,
        "{:?} {what}",
        found.cause
    );
}

/// The last snapshot of a program that may be killed.
fn last_snapshot(place: &Place, cause: &str) -> Snapshot {
    let [file, notes] = ["snapshot.json", "notes"].map(|name| place.path(name));
    let mut command = run(place, &file);
    command.args([SLOW, cause, "5", text(&notes)]);
    let output = command.output().expect("it starts");
    assert_eq!(output.status.success(), cause != "killed", "{output:?}");
    json::read(&file).expect("it was written")
}

#[test]
fn a_slow_call_survives_a_crash_right_after_it() {
    for _ in 0..TRIES {
        let snapshot = last_snapshot(&Place::new(), "killed");
        assert_eq!(snapshot.process.state, ProcessState::Crashed);
        let slowest = snapshot.slow.iter().max_by_key(|call| call.span);
        let rate = snapshot.clock.ticks_per_second;
        if slowest.is_some_and(|call| explain(call, rate).cause == Cause::Waited) {
            return;
        }
        // On a busy machine, other calls may be slower.
        assert!(snapshot.slow.len() > 1, "{:?}", snapshot.slow);
    }
    panic!("the machine is not that busy");
}

#[test]
fn slow_calls_beyond_the_boxes_are_counted() {
    const STORM: u64 = 20_000;
    let snapshot = last_snapshot(&Place::new(), "storm");
    let calls: Vec<_> =
        snapshot.slow.iter().filter(|call| name(call.point, &snapshot) == "long").collect();
    assert_eq!(calls.len(), 8, "{:?}", snapshot.slow);
    let kept = calls.iter().map(|call| call.number).max().expect("there are calls");
    // Each call of the storm is slow: less its overhead, it still takes more than its limit of 1 us.
    assert_eq!(kept + snapshot.slow_dropped, STORM);
    let point = snapshot.point(calls[0].point).expect("it is there");
    assert_eq!(point.slow_calls, STORM);
    // Each kept call exceeds the limit, and the slowest one takes its 2 us.
    let mut spans: Vec<_> = calls.iter().map(|call| call.span).collect();
    spans.sort_unstable();
    let rate = snapshot.clock.ticks_per_second;
    assert!(spans[7] as f64 / rate >= 2e-6 && spans[0] as f64 / rate >= 1e-6, "{spans:?}");
}

#[test]
fn a_program_keeps_a_call_that_is_not_slow() {
    for (cause, why) in [("asked", "a reason"), ("panicked", "panicked at ")] {
        kept_by_the_program(cause, why);
    }
}

fn kept_by_the_program(cause: &str, why: &str) {
    let snapshot = last_snapshot(&Place::new(), cause);
    let asked: Vec<_> = snapshot.slow.iter().filter(|call| !call.why.is_empty()).collect();
    let [call] = *asked else { panic!("{:?}", snapshot.slow) };
    assert!(call.why.starts_with(why) && call.limit.is_none(), "{call:?}");
    let names = call.enclosing.iter().map(|region| name(region.point, &snapshot));
    let path: Vec<_> = names.chain([name(call.point, &snapshot)]).collect();
    assert_eq!(path, LEVELS[..path.len()]);
    // The enclosing regions began before it.
    assert!(call.enclosing.iter().all(|region| region.start <= call.start), "{call:?}");
}

#[test]
fn a_slow_call_is_kept_with_its_cause() {
    check_all(&Program::Rust, &["sleep", "lock", "fault", "preempted", "ran"]);
}

#[test]
fn a_slow_span_is_kept_with_its_cause() {
    check_all(&Program::Spans, &["sleep", "lock", "fault", "ran"]);
}

#[test]
fn a_slow_call_in_c_is_kept_with_its_cause() {
    let program = c::compile(Compiler::C, "slow", &["slow.c"], Link::Static, ["-pthread"]);
    check_all(&Program::C(program), &["sleep", "lock", "fault", "ran"]);
}

#[test]
fn a_slow_call_in_python_is_kept_with_its_cause() {
    let found = tools::python("slow calls in Python", "python", "tests/python/requirements.txt");
    let Some(interpreter) = found else { return };
    check_all(&Program::Python(interpreter), &["sleep", "lock", "ran"]);
}
