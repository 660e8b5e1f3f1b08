//! Signal handlers at each instruction: whatever one does (measure, switch to another fibre,
//! fork, jump out), the figures are exact, no child harms its parent or itself, and what a
//! jump leaves in the middle costs no later region anything. The program `interrupted` judges
//! itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use pfp_tests::place::Place;
use pfp_tests::target::Target;
use pfp_tests::watch::Watch;
use pfp_tests::{figure, size, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_interrupted");

const CASES: [&str; 18] = [
    "scope",
    "page",
    "page of one",
    "page of many",
    "nested",
    "laps",
    "by_hand",
    "latched",
    "numbered",
    "amounts",
    "amounts_by_hand",
    "polls",
    "polls_with_amounts",
    "by_macro",
    "by_attribute",
    "by_attribute_in_polls",
    "lap_with_amounts",
    "latched_amounts",
];

/// Another context is current meanwhile. No jump and no fibre may leave it.
const IN_CONTEXT: &str = "in_context";

/// Ticks that a region works, and every so manyth instruction of what is interrupted then.
#[derive(Clone, Copy)]
struct Way {
    lasts: u64,
    each: u64,
}

/// Regions that are short: every other instruction of the short ways is tried, wherever the first one
/// falls, and fewer of folds.
const SHORT: Way = Way { lasts: 4_000, each: size(2, 1) };

/// Regions that last longer than a thread goes without reading its CPU time, 2^21 ticks: all
/// their ends go the long way, and so do most begins.
const LATE: Way = Way { lasts: (1 << 21) * 9 / 8, each: size(19, 1) };

/// Short regions where each instruction costs a child.
const SHORT_FOR_CHILDREN: Way = Way { each: size(5, 1), ..SHORT };

/// Instructions between the last test of whether this is a forked child and the end of a
/// record, at most: a child that is forked among them finishes the record.
const UNTESTED: u64 = 64;

/// What came of a handler at each instruction of a case.
#[derive(Debug)]
struct Outcome {
    steps: u64,
    /// The instruction that no run has come to.
    end: u64,
    children: u64,
    /// Children that did not end well.
    harmed: u64,
    /// Instructions after which something was not as it must be, and what first.
    bad: u64,
    first: String,
}

/// Runs the program to its end.
fn run(action: &str, case: &str, clock: &str, Way { lasts, each }: Way) -> Outcome {
    run_with(&[action, case, &each.to_string(), &lasts.to_string()], &[("PFP_CLOCK", clock)])
}

/// On a thread that has no lane: all its regions are in the cells of the overflow lane.
fn run_without_lane(action: &str, case: &str, each: u64) -> Outcome {
    let arguments = [action, case, &each.to_string(), &SHORT.lasts.to_string()];
    run_with(&arguments, &[("PFP_CLOCK", "wall"), ("PFP_LANES", "1"), ("NO_LANE", "1")])
}

fn run_with(arguments: &[&str], environment: &[(&str, &str)]) -> Outcome {
    let (action, case, clock) = (arguments[0], arguments[1], environment[0].1);
    let has_lane = environment.len() == 1;
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.args(arguments).envs(environment.iter().copied());
    let mut target = Target::start(&mut command);
    let said = target.reach("done").clone();
    let tried = said.all::<u64>("steps").remove(0);
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    for cell in &picture.cells {
        let what = format!("{action} {case} {clock}: {cell:?}");
        // Each measurement is in one bucket, but for what a late child has written too.
        if ["fork", "clone"].contains(&action) {
            continue;
        }
        let in_buckets: u64 = cell.histogram.iter().map(|bucket| bucket.count).sum();
        let beyond = in_buckets - (cell.live.count + cell.retired.count);
        // Nobody puts right what a jump leaves in the middle of adding to a shared cell.
        let left = if action == "jump" && !has_lane { tried[0] } else { 0 };
        assert!(beyond <= left, "{beyond} {what}");
    }
    if ["measure", "switch", "vfork"].contains(&action) {
        assert_eq!(picture.losses.mismatched_ends, 0, "{action} {case} {clock}");
    } else if has_lane {
        // A jump may leave one measurement without a record. What it leaves in the middle
        // sends nobody the long way round, on which each measurement would lack one.
        let (missed, steps) = (picture.losses.records_missed, tried[0]);
        assert!(missed <= steps, "{action} {case} {clock}: {missed} records in {steps} steps");
    }
    let [children, harmed, _] = said.all::<u64>("children")[0][..] else { panic!("{said:?}") };
    let bad: Vec<String> = said.all("bad").remove(0);
    let outcome = Outcome {
        steps: tried[0],
        end: tried[1],
        children,
        harmed,
        bad: bad[0].parse().expect("it is a number"),
        first: bad.join(" "),
    };
    target.end_well();
    outcome
}

/// Programs that run at a time, most of which wait.
const AT_ONCE: usize = 2;

/// Does it for each case on some clocks, and says how often.
fn each(action: &str, clocks: &[&str], short: Way, judge: impl Fn(&Outcome, Way, &str) + Sync) {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    let sums = [const { AtomicU64::new(0) }; 3];
    let of_case = |case: &str| {
        // The fold of a page is thousands of instructions.
        let is_page = case.starts_with("page");
        let more = if is_page { size(11, 1) } else { 1 };
        let short = Way { each: short.each * more, ..short };
        for clock in clocks {
            let judged = |way: Way| {
                let outcome = run(action, case, clock, way);
                judge(&outcome, way, &format!("{action} {case} {clock} {}", way.lasts));
                let more = [outcome.steps, outcome.children, outcome.bad];
                sums.iter().zip(more).for_each(|(sum, more)| _ = sum.fetch_add(more, Relaxed));
                outcome.end
            };
            let mut ends = [short, LATE].map(judged);
            // A thread that waits for a CPU goes the long way, on which no page is folded.
            let is_folded = |end: u64| !is_page || end > 1_000;
            for _ in 0..3 {
                if !is_folded(ends[0]) {
                    ends[0] = judged(short);
                }
            }
            assert!(ends.iter().all(|end| *end > 120), "{action} {case} {clock}: {ends:?}");
            assert!(is_folded(ends[0]), "{action} {case} {clock}: {ends:?}");
            // A short region of the simplest kind goes the short way, unless its thread waits for a
            // CPU each time.
            let again = || run(action, case, clock, short).end;
            let is_short = |end: u64| ends[1] > 2 * end;
            let goes_short = || is_short(ends[0]) || (0..3).any(|_| is_short(again()));
            assert!(case != "scope" || goes_short(), "{action} {clock}: {ends:?}");
        }
    };
    let cases = Mutex::new(CASES.iter());
    let next = || cases.lock().expect("nobody fails in it").next();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| std::iter::from_fn(next).for_each(|case| of_case(case)));
        }
    });
    let [steps, children, bad] = sums.map(AtomicU64::into_inner);
    figure(&format!("interrupted, {action}: {steps} instructions, {children} children, {bad} bad"));
}

/// The clock on which the short ways are taken: a single step looks like a switch on `rseq`.
const CLOCKS: &[&str] = &["wall"];

#[test]
fn what_a_handler_measures_is_exact_at_each_instruction() {
    each("measure", CLOCKS, SHORT, |outcome, _, what| {
        assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first)
    });
}

/// A child in the same memory, as of `vfork`, counts as its parent or not at all.
#[test]
fn a_child_in_the_same_memory_harms_nothing_at_any_instruction() {
    let short = Way { each: size(7, 1), ..SHORT };
    each("vfork", CLOCKS, short, |outcome, _, what| {
        assert_eq!((outcome.bad, outcome.harmed), (0, 0), "{what}: {}", outcome.first);
    });
}

/// Where an interrupt's context is current, counts are exact, and children live.
#[test]
fn a_context_that_is_entered_or_left_can_be_interrupted_at_each_instruction() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    for (action, each) in [("measure", 1), ("fork", size(7, 1)), ("vfork", size(7, 1))] {
        let outcome = run(action, IN_CONTEXT, "wall", Way { each, ..SHORT });
        assert_eq!((outcome.bad, outcome.harmed), (0, 0), "{action}: {}", outcome.first);
        assert!(outcome.end > 1_000, "{action}: {outcome:?}");
    }
}

/// Threads that have no lane share cells.
#[test]
fn shared_cells_are_exact_at_each_instruction() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    let (mut steps, mut children) = (0, 0);
    for case in CASES.into_iter().filter(|case| !case.starts_with("page")) {
        let few = size(29, 1);
        let actions = [("measure", size(3, 1)), ("jump", size(5, 1)), ("switch", size(5, 1))];
        let of_children = [("fork", few), ("vfork", few), ("clone", few)];
        for (action, each) in actions.into_iter().chain(of_children) {
            let outcome = run_without_lane(action, case, each);
            let what = format!("{action} {case}: {outcome:?}");
            assert_eq!(outcome.harmed, 0, "{what}");
            // Of the record that it is in the middle of.
            let late = if action == "clone" { 3 * UNTESTED.div_ceil(each) } else { 0 };
            assert!(outcome.bad <= late, "{what}");
            // That way is longer.
            assert!(outcome.end > 1_000, "{what}");
            steps += outcome.steps;
            children += outcome.children;
        }
    }
    figure(&format!("interrupted without a lane: {steps} instructions, {children} children"));
}

/// Its stack is just above the one that it comes in between on.
#[test]
fn what_another_fibre_measures_is_exact_at_each_instruction() {
    each("switch", CLOCKS, SHORT, |outcome, _, what| {
        assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first)
    });
}

#[test]
fn a_child_that_a_handler_forks_at_any_instruction_lives_and_is_silent() {
    each("fork", CLOCKS, SHORT_FOR_CHILDREN, |outcome, _, what| {
        assert_eq!(outcome.harmed, 0, "{what}: of {} children", outcome.children);
        assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first);
    });
}

/// The kernel copies the page that this clock watches into no child.
#[test]
fn a_child_that_a_handler_forks_reads_no_page_that_it_does_not_have() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    let mut children = 0;
    for way in [SHORT_FOR_CHILDREN, LATE] {
        let outcome = run("fork", "scope", "perf", way);
        assert_eq!(outcome.harmed, 0, "of {} children", outcome.children);
        assert_eq!(outcome.bad, 0, "{}", outcome.first);
        children += outcome.children;
    }
    figure(&format!("interrupted, fork on perf: {children} children"));
}

/// No handler of the C library runs in such a child.
#[test]
fn a_child_that_a_handler_clones_at_any_instruction_lives_and_ends_its_record_at_most() {
    each("clone", CLOCKS, SHORT_FOR_CHILDREN, |outcome, way, what| {
        assert_eq!(outcome.harmed, 0, "{what}: of {} children", outcome.children);
        let records = match what {
            what if what.contains("lap") => 3,
            what if what.contains("nested") => 2,
            _ => 1,
        };
        // So many of those instructions are tried, wherever the first one falls.
        let late = UNTESTED.div_ceil(way.each);
        assert!(outcome.bad <= late * records, "{what}: {outcome:?}");
    });
}

#[test]
fn a_jump_out_of_a_handler_at_any_instruction_leaves_nothing_behind() {
    for action in ["jump", "jump_from_stack"] {
        each(action, CLOCKS, SHORT, |outcome, _, what| {
            assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first)
        });
    }
}

/// A thousand jumps out of one outer region.
#[test]
fn time_outs_at_random_instructions_leave_the_figures_exact() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("jumps", "they are for x86-64");
    }
    for clock in ["wall", "rseq"] {
        let times = size(1_000, 10_000).to_string();
        let outcome = run_with(&["storm", &times], &[("PFP_CLOCK", clock)]);
        assert_eq!(outcome.bad, 0, "{clock}: {}", outcome.first);
        figure(&format!("interrupted, at random on {clock}: {} jumps", outcome.steps));
    }
}
