//! Signal handlers at each instruction: whatever a handler does (measure, switch to another fibre,
//! fork, jump out), the figures are exact, no child harms its parent or itself, and an operation
//! that a jump left unfinished costs later regions nothing. The program `interrupted` judges
//! itself.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use pfp_tests::place::Place;
use pfp_tests::target::Target;
use pfp_tests::watch::Watch;
use pfp_tests::{figure, size, skipped};

const PROGRAM: &str = env!("CARGO_BIN_EXE_interrupted");

const CASES: [&str; 19] = [
    "scope",
    "page",
    "page of one",
    "page of many",
    "kept",
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

/// The case in which another context is current. No jump and no fibre switch may leave it.
const IN_CONTEXT: &str = "in_context";

/// `lasts` is the number of ticks that a region works, and `each` the distance between interrupted
/// instructions. The first interrupted instruction depends on the process id.
#[derive(Clone, Copy)]
struct Way {
    lasts: u64,
    each: u64,
}

/// Short regions. At least every third instruction of the fast paths is interrupted. Folds have
/// thousands of instructions, so fewer of theirs are.
const SHORT: Way = Way { lasts: 4_000, each: size(3, 1) };

/// Long regions. A thread reads its CPU time every 2^21 ticks, on the slow path. These regions last
/// longer, so all their ends take the slow path, and so do most begins.
const LATE: Way = Way { lasts: (1 << 21) * 9 / 8, each: size(37, 1) };

/// Short regions, with fewer interrupted instructions, because each of them needs a child.
const SHORT_FOR_CHILDREN: Way = Way { each: size(11, 1), ..SHORT };

/// Maximum number of instructions from pfp's last test of whether the process is a forked child to
/// the end of a record. A child that a bare `clone` makes at one of them finishes the record.
const UNTESTED: u64 = 64;

/// The result of a handler at each instruction of a case.
#[derive(Debug)]
struct Outcome {
    steps: u64,
    /// The first instruction that no run reached.
    end: u64,
    children: u64,
    /// Number of children that failed.
    harmed: u64,
    /// Number of instructions after which a check failed.
    bad: u64,
    /// Description of the first failure.
    first: String,
}

/// Runs the program to its end.
fn run(action: &str, case: &str, clock: &str, Way { lasts, each }: Way) -> Outcome {
    run_with(&[action, case, &each.to_string(), &lasts.to_string()], &[("PFP_CLOCK", clock)])
}

/// Runs the program on a thread without a lane, whose regions are all in the cells of the overflow
/// lane.
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
        // Each measurement is in one bucket, except with forks: a child may have added a record
        // that its parent added, too.
        if ["fork", "clone"].contains(&action) {
            continue;
        }
        let in_buckets: u64 = cell.histogram.iter().map(|bucket| bucket.count).sum();
        let beyond = in_buckets - (cell.live.count + cell.retired.count);
        // An addition to a shared cell that a jump left unfinished is not repaired.
        let left = if action == "jump" && !has_lane { tried[0] } else { 0 };
        assert!(beyond <= left, "{beyond} {what}");
    }
    if ["measure", "switch", "vfork"].contains(&action) {
        assert_eq!(picture.losses.mismatched_ends, 0, "{action} {case} {clock}");
    } else if has_lane {
        // A jump may leave one measurement without a record. The operation that it leaves
        // unfinished must not send later measurements to the slow path, on which each of them would
        // lack a record.
        let (missed, steps) = (picture.losses.records_missed, tried[0]);
        assert!(missed <= steps, "{action} {case} {clock}: {missed} records in {steps} steps");
    }
    if case == "kept" {
        let mut boxes = 0;
        watch.reader().boxes(|_| 0, |_, copy| boxes += u64::from(copy.why == "a reason"));
        // A thread that jumps out of its write gives the box up before it writes to another.
        let left = u64::from(action == "jump");
        assert!(boxes + left >= 8, "{action} {clock}: {boxes} boxes");
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

/// Number of programs that run at a time; most of them wait.
const AT_ONCE: usize = 2;

/// Judges each case on some clocks, and prints how many instructions were interrupted.
fn each(action: &str, clocks: &[&str], short: Way, judge: impl Fn(&Outcome, Way, &str) + Sync) {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    let sums = [const { AtomicU64::new(0) }; 3];
    let of_case = |case: &str| {
        // The fold of a page has thousands of instructions, and so has a write to a box.
        let is_page = case.starts_with("page");
        let more = if is_page || case == "kept" { size(11, 1) } else { 1 };
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
            // If the thread waits for a CPU, the region's end takes the slow path. The slow path
            // folds the few records so far, so no full page is folded.
            let is_folded = |end: u64| !is_page || end > 1_000;
            for _ in 0..3 {
                if !is_folded(ends[0]) {
                    ends[0] = judged(short);
                }
            }
            assert!(ends.iter().all(|end| *end > 120), "{action} {case} {clock}: {ends:?}");
            assert!(is_folded(ends[0]), "{action} {case} {clock}: {ends:?}");
            // A short region of the simplest kind takes the fast path, unless its thread waits for
            // a CPU each time.
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

/// The clock source on which regions take the fast paths. On `rseq`, a single step looks like a
/// context switch.
const CLOCKS: &[&str] = &["wall"];

#[test]
fn a_handlers_measurements_are_exact_at_each_instruction() {
    each("measure", CLOCKS, SHORT, |outcome, _, what| {
        assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first)
    });
}

/// A child that shares the memory, as after `vfork`, counts like its parent or not at all.
#[test]
fn a_child_in_the_same_memory_harms_nothing_at_any_instruction() {
    let short = Way { each: size(7, 1), ..SHORT };
    each("vfork", CLOCKS, short, |outcome, _, what| {
        assert_eq!((outcome.bad, outcome.harmed), (0, 0), "{what}: {}", outcome.first);
    });
}

/// While an interrupt's context is current, counts are exact, and children live.
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

/// Threads without a lane share cells.
#[test]
fn shared_cells_are_exact_at_each_instruction() {
    if cfg!(not(target_arch = "x86_64")) {
        return skipped("single steps", "they are for x86-64");
    }
    let (mut steps, mut children) = (0, 0);
    for case in CASES.into_iter().filter(|case| !case.starts_with("page")) {
        let few = size(61, 1);
        let actions = [("measure", size(3, 1)), ("jump", size(5, 1)), ("switch", size(5, 1))];
        let of_children = [("fork", few), ("vfork", few), ("clone", few)];
        for (action, each) in actions.into_iter().chain(of_children) {
            let outcome = run_without_lane(action, case, each);
            let what = format!("{action} {case}: {outcome:?}");
            assert_eq!(outcome.harmed, 0, "{what}");
            // A cloned child finishes the record that its parent was writing.
            let late = if action == "clone" { 3 * UNTESTED.div_ceil(each) } else { 0 };
            assert!(outcome.bad <= late, "{what}");
            // The path without a lane is longer.
            assert!(outcome.end > 1_000, "{what}");
            steps += outcome.steps;
            children += outcome.children;
        }
    }
    figure(&format!("interrupted without a lane: {steps} instructions, {children} children"));
}

/// The handler switches to a fibre, whose stack is just above the interrupted stack.
#[test]
fn another_fibres_measurements_are_exact_at_each_instruction() {
    each("switch", CLOCKS, SHORT, |outcome, _, what| {
        assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first)
    });
}

#[test]
fn a_child_forked_at_any_instruction_lives_and_adds_nothing() {
    each("fork", CLOCKS, SHORT_FOR_CHILDREN, |outcome, _, what| {
        assert_eq!(outcome.harmed, 0, "{what}: of {} children", outcome.children);
        assert_eq!(outcome.bad, 0, "{what}: {}", outcome.first);
    });
}

/// The perf clock reads a page that the kernel does not copy to a child.
#[test]
fn a_forked_child_does_not_read_the_perf_clocks_page() {
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

/// The C library's fork handlers do not run in a child of a bare clone.
#[test]
fn a_child_cloned_at_any_instruction_lives_and_finishes_at_most_its_record() {
    each("clone", CLOCKS, SHORT_FOR_CHILDREN, |outcome, way, what| {
        assert_eq!(outcome.harmed, 0, "{what}: of {} children", outcome.children);
        let records = match what {
            what if what.contains("lap") => 3,
            what if what.contains("nested") => 2,
            _ => 1,
        };
        // At most this many of UNTESTED consecutive instructions are interrupted.
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

/// In each round, a timer's handler jumps out of the regions that are measured inside an outer
/// region.
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
