//! Signal handlers at each instruction: whatever one does (measure, switch to another fibre,
//! fork, jump out), the figures are exact, no child harms its parent or itself, and what a
//! jump leaves in the middle costs no later region anything. The program `interrupted` judges
//! itself.

use pfp_tests::place::Place;
use pfp_tests::target::Target;
use pfp_tests::watch::Watch;
use pfp_tests::{figure, size, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_interrupted");

const CASES: [&str; 11] = [
    "scope",
    "page",
    "page of many",
    "nested",
    "laps",
    "by_hand",
    "latched",
    "numbered",
    "amounts",
    "amounts_by_hand",
    "polls",
];

/// Ticks that a region works, and every so manyth instruction of what is interrupted then.
#[derive(Clone, Copy)]
struct Way {
    lasts: u64,
    each: u64,
}

/// Regions that are short: each instruction of the short ways is tried, but for folds.
const SHORT: Way = Way { lasts: 4_000, each: 1 };

/// Regions that last longer than a thread goes without reading its CPU time, 2^21 ticks: all
/// their ends go the long way, and so do most begins.
const LATE: Way = Way { lasts: (1 << 21) * 9 / 8, each: size(19, 1) };

/// Short regions where each instruction costs a child.
const SHORT_FOR_CHILDREN: Way = Way { each: size(3, 1), ..SHORT };

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
    run_with(&[action, case, &each.to_string(), &lasts.to_string()], clock)
}

fn run_with(arguments: &[&str], clock: &str) -> Outcome {
    let (action, case) = (arguments[0], arguments[1]);
    let place = Place::new();
    let mut command = place.command(PROGRAM);
    command.args(arguments).env("PFP_CLOCK", clock);
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
        assert_eq!(in_buckets, cell.live.count + cell.retired.count, "{what}");
    }
    if ["measure", "switch"].contains(&action) {
        assert_eq!(picture.losses.mismatched_ends, 0, "{action} {case} {clock}");
    } else {
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

/// Does it for each case on some clocks, and says how often.
fn each(action: &str, clocks: &[&str], short: Way, judge: impl Fn(&Outcome, Way, &str)) {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    let (mut steps, mut children, mut bad) = (0, 0, 0);
    for case in CASES {
        // The fold of a page is thousands of instructions.
        let is_page = case.starts_with("page");
        let more = if is_page { size(11, 1) } else { 1 };
        let short = Way { each: short.each * more, ..short };
        for clock in clocks {
            let ends = [short, LATE].map(|way| {
                let outcome = run(action, case, clock, way);
                judge(&outcome, way, &format!("{action} {case} {clock} {}", way.lasts));
                steps += outcome.steps;
                children += outcome.children;
                bad += outcome.bad;
                outcome.end
            });
            assert!(ends.iter().all(|end| *end > 140), "{action} {case} {clock}: {ends:?}");
            assert!(!is_page || ends[0] > 1_000, "{action} {clock}: {ends:?}");
            // A short region of the simplest kind goes the short way.
            assert!(case != "scope" || ends[1] > 2 * ends[0], "{action} {clock}: {ends:?}");
        }
    }
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
            what if what.contains("laps") => 3,
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
        let outcome = run_with(&["storm", &size(1_000, 10_000).to_string()], clock);
        assert_eq!(outcome.bad, 0, "{clock}: {}", outcome.first);
        figure(&format!("interrupted, at random on {clock}: {} jumps", outcome.steps));
    }
}
