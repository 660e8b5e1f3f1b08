use std::sync::Arc;

use super::report::{json, markdown, render, sentence};
use super::*;
use pfp_read::snapshot::{Cell, Edge, Point, Stats};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

/// Pseudo-random numbers that are the same on every machine (Steele, Lea, Flood: SplitMix64).
struct Dice(u64);

impl Dice {
    /// The next number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }

    /// The number in parts, one for each of three lanes.
    fn parts(&mut self, number: u64) -> [u64; 3] {
        let first = self.below(number + 1);
        let second = self.below(number - first + 1);
        [first, second, number - first - second]
    }
}

/// What a program does: points by number from 1, and their callers.
#[derive(Clone)]
struct Program {
    /// Calls, allocations and bytes of each point; all calls count their allocations.
    points: Vec<[u64; 3]>,
    /// Point, caller and calls.
    edges: Vec<(u32, Option<u32>, u64)>,
}

impl Program {
    /// A program of eight points. Each but the first is called by one or two points before it.
    fn any(dice: &mut Dice) -> Self {
        let (mut points, mut edges) = (Vec::new(), Vec::new());
        for id in 1..=8 {
            let mut calls = 1 + dice.below(5);
            match id {
                1 => edges.push((id, None, calls)),
                _ => {
                    edges.push((id, Some(1), calls));
                    let other = 1 + dice.below(u64::from(id) - 1) as u32;
                    if other > 1 {
                        let more = 1 + dice.below(1_000_000);
                        edges.push((id, Some(other), more));
                        calls += more;
                    }
                }
            }
            points.push([calls, calls * dice.below(4), calls * dice.below(500)]);
        }
        Self { points, edges }
    }

    /// A run of the program: other times, other threads, other ids of the points.
    fn run(&self, dice: &mut Dice) -> Snapshot {
        let mut snapshot = Synthetic::new().poll().unwrap();
        snapshot.process.segment_id = format!("{:032x}", dice.below(u64::MAX));
        let calibration = snapshot.points.remove(0);
        let any = snapshot.points[0].clone();
        let turn = dice.below(8) as u32;
        let id = |point: u32| 1 + (point - 1 + turn) % 8;
        snapshot.points = (1..=8)
            .map(|point| {
                let point_id = id(point);
                Point { id: point_id, name: format!("p{point}"), ..any.clone() }
            })
            .collect();
        snapshot.points.push(calibration);
        snapshot.points.sort_by_key(|point| point.id);
        snapshot.cells.clear();
        snapshot.edges.clear();
        for (point, figures) in (1..).zip(&self.points) {
            let parts = figures.map(|number| dice.parts(number));
            for lane in 0..3 {
                let [calls, allocs, bytes] = parts.map(|parts| parts[lane]);
                let ticks = calls * dice.below(1_000);
                let stats =
                    Stats { count: calls, exclusive: ticks, inclusive: ticks, ..Stats::default() };
                let allocs = Allocs { calls, allocs, bytes, ..Allocs::default() };
                let lane = lane as u32;
                let cell = Cell { point: id(point), lane, stats, allocs, ..Cell::default() };
                snapshot.cells.push(Arc::new(cell));
            }
        }
        for (point, caller, calls) in &self.edges {
            for (lane, count) in (0..).zip(dice.parts(*calls)) {
                let (point, caller) = (id(*point), caller.map(id));
                snapshot.edges.push(Edge { point, caller, lane, count, ..Edge::default() });
            }
        }
        // The calibration takes another number of calls each time.
        let stats = Stats { count: 1 + dice.below(100), ..Stats::default() };
        snapshot.cells.push(Arc::new(Cell { stats, ..Cell::default() }));
        snapshot.cells.sort_by_key(|cell| cell.key());
        snapshot.edges.sort_by_key(Edge::key);
        snapshot
    }

    fn runs(&self, dice: &mut Dice, number: usize) -> Vec<ProgramRun> {
        ProgramRun::all((0..number).map(|_| self.run(dice)).collect())
    }
}

fn all(before: &[ProgramRun], now: &[ProgramRun]) -> ExactComparison {
    compare(before, now, |_| true)
}

/// The only difference between the two programs.
fn only(before: &Program, now: &Program) -> String {
    let mut dice = Dice(99);
    let found = all(&before.runs(&mut dice, 1), &now.runs(&mut dice, 1));
    let sentences: Vec<String> = found.differences.iter().map(sentence).collect();
    assert_eq!(sentences.len(), 1, "{sentences:#?}");
    sentences[0].clone()
}

/// `p1` calls `p2` 1,203 times, which calls `p3` 4 times and allocates twice per call.
fn small() -> Program {
    let edges = vec![(1, None, 1), (2, Some(1), 1_203), (3, Some(2), 4), (3, Some(1), 2)];
    Program { points: vec![[1, 0, 0], [1_203, 2_406, 96_240], [6, 0, 0]], edges }
}

#[test]
fn unchanged_programs_raise_no_alarm() {
    let mut dice = Dice(1);
    for try_number in 0..200 {
        let program = Program::any(&mut dice);
        let runs = 1 + try_number % 3;
        let (before, now) = (program.runs(&mut dice, runs), program.runs(&mut dice, runs));
        let found = all(&before, &now);
        assert!(found.passed() && found.varying.is_empty(), "{}", render(&found));
        assert!(found.points == 8 && found.equal >= 24, "{}", render(&found));
    }
}

/// Each planted change is one more or less of one number, among up to millions.
#[test]
fn a_change_by_one_is_found() {
    let mut dice = Dice(2);
    for change in 0..20 {
        let before = Program::any(&mut dice);
        let mut now = before.clone();
        let (place, is_more) = (dice.below(8) as usize, change % 2 == 0);
        let edge = dice.below(before.edges.len() as u64) as usize;
        let figures = &mut now.points[place];
        let (number, point) = match change % 4 {
            0 => (&mut figures[0], place as u32 + 1),
            1 => (&mut now.edges[edge].2, before.edges[edge].0),
            2 => (&mut figures[1], place as u32 + 1),
            _ => (&mut figures[2], place as u32 + 1),
        };
        *number = if is_more { *number + 1 } else { number.saturating_sub(1) };
        let changed = now.points != before.points || now.edges != before.edges;
        let runs = 1 + change % 3;
        let found = all(&before.runs(&mut dice, runs), &now.runs(&mut dice, runs));
        let text = render(&found);
        let kinds: Vec<CountOf> = found.differences.iter().map(|row| row.of).collect();
        let expected: &[CountOf] = match change % 4 {
            // The regions that count allocations are the calls.
            0 => &[CountOf::Calls, CountOf::CallsWithAllocs],
            1 => &[CountOf::CallsByCaller],
            2 => &[CountOf::Allocs],
            _ => &[CountOf::AllocBytes],
        };
        assert!(changed, "a change is planted");
        assert!(!kinds.is_empty() && kinds.iter().all(|kind| expected.contains(kind)), "{text}");
        let name = format!("p{point}");
        assert!(found.differences.iter().all(|row| row.point == name), "{name}: {text}");
        assert!(text.starts_with("gate FAILED: "), "{text}");
    }
}

#[test]
fn a_difference_is_a_sentence() {
    let before = small();
    let changed = |change: fn(&mut Program)| {
        let mut now = before.clone();
        change(&mut now);
        only(&before, &now)
    };
    assert_eq!(
        changed(|it| (it.points[1][0], it.edges[1].2) = (1_204, 1_204)),
        "p2 was called 1,204 times, 1,203 before (p1 -> p2)"
    );
    assert_eq!(
        changed(|it| it.edges[2].2 = 5),
        "p2 -> p3: called 5 times, 4 before (p1 -> p2 -> p3)"
    );
    assert_eq!(changed(|it| it.edges[2].2 = 1), "p2 -> p3: called 1 time, 4 before");
    assert_eq!(changed(|it| it.edges[2].2 = 0), "p2 -> p3 is gone: called 4 times before");
    assert_eq!(
        changed(|it| it.edges.push((2, Some(3), 7))),
        "p3 -> p2 is new: called 7 times (p1 -> p3 -> p2)"
    );
    assert_eq!(
        changed(|it| it.edges.push((3, None, 1))),
        "p3 without a caller is new: called 1 time"
    );
    assert_eq!(changed(|it| it.points[1][1] = 3_609), "p2 allocates 3 times per call, 2 before");
    assert_eq!(changed(|it| it.points[1][1] = 2_526), "p2 allocates 2.10 times per call, 2 before");
    assert_eq!(changed(|it| it.points[1][1] += 1), "p2 allocates 2,407 times in all, 2,406 before");
    assert_eq!(changed(|it| it.points[1][2] = 144_360), "p2 allocates 120 B per call, 80 before");
}

/// `p3` allocates once more for `p2` and once less for `p1`.
#[test]
fn the_path_to_more_allocations_is_named() {
    let mut program = small();
    program.edges.truncate(2);
    program.points[2] = [6, 10, 100];
    let run = |dice: &mut Dice, allocs: [u64; 2]| {
        let mut snapshot = program.run(dice);
        let id = |name: &str| snapshot.points.iter().find(|it| it.name == name).unwrap().id;
        let [p1, p2, p3] = ["p1", "p2", "p3"].map(id);
        for (caller, allocs, count) in [(p1, allocs[0], 2), (p2, allocs[1], 4)] {
            let (point, caller) = (p3, Some(caller));
            snapshot.edges.push(Edge { point, caller, count, allocs, ..Edge::default() });
        }
        snapshot.edges.sort_by_key(Edge::key);
        let more = allocs[0] + allocs[1] - 10;
        let is_first = |cell: &&mut Arc<Cell>| cell.point == p3 && cell.lane == 0;
        let cell = snapshot.cells.iter_mut().find(is_first).unwrap();
        Arc::make_mut(cell).allocs.allocs += more;
        ProgramRun::all(vec![snapshot])
    };
    let mut dice = Dice(7);
    let before = run(&mut dice, [8, 2]);
    let found = all(&before, &run(&mut dice, [7, 5]));
    let sentences: Vec<String> = found.differences.iter().map(sentence).collect();
    assert_eq!(sentences, ["p3 allocates 2 times per call, 1.67 before (p1 -> p2 -> p3)"]);
    // No caller is known to allocate more.
    let mut unknown = program.clone();
    unknown.points[2][1] = 12;
    let now = unknown.runs(&mut dice, 1);
    let found = all(&program.runs(&mut dice, 1), &now);
    let sentences: Vec<String> = found.differences.iter().map(sentence).collect();
    assert_eq!(sentences, ["p3 allocates 2 times per call, 1.67 before"]);
}

#[test]
fn a_long_call_path_is_cut_at_its_begin() {
    let path = (1..=9).map(|id| format!("p{id}")).collect();
    let mut row = ExactRow {
        point: "p9".into(),
        of: CountOf::Calls,
        caller: None,
        before: vec![1],
        now: vec![2],
        calls: None,
        path,
    };
    let said = sentence(&row);
    assert!(said.ends_with(" (... -> p2 -> p3 -> p4 -> p5 -> p6 -> p7 -> p8 -> p9)"), "{said}");
    row.path.remove(0);
    assert!(sentence(&row).contains(" (p2 -> p3 -> "), "{}", sentence(&row));
}

#[test]
fn growth_comes_first_then_the_greatest_change() {
    let (before, mut now) = (small(), small());
    now.points[1] = [1_203, 2_500, 200_000];
    now.edges[2].2 = 1;
    now.edges[3].2 = 0;
    now.edges.push((2, Some(3), 1));
    let mut dice = Dice(3);
    let found = all(&before.runs(&mut dice, 2), &now.runs(&mut dice, 1));
    let text = render(&found);
    let begins = [
        "gate FAILED: 5 differences; 2 and 1 runs",
        "p3 -> p2 is new",
        "p2 allocates 166.25 B per call, 80 before",
        "p2 allocates 2.08 times per call, 2 before",
        "p1 -> p3 is gone",
        "p2 -> p3: called 1 time, 4 before",
        "7 figures of 3 points equal, 5 differ, 0 vary between the baseline runs",
    ];
    assert_eq!(text.lines().count(), begins.len(), "{text}");
    for (line, begin) in text.lines().zip(begins) {
        assert!(line.starts_with(begin), "{begin} in {text}");
    }
}

#[test]
fn numbers_that_vary_between_the_baseline_runs_are_not_judged() {
    let mut dice = Dice(4);
    let (one, mut two) = (small(), small());
    two.edges[2].2 = 7;
    let mixed = ProgramRun::all(vec![one.run(&mut dice), two.run(&mut dice)]);
    let found = all(&mixed, &two.runs(&mut dice, 2));
    assert!(found.passed() && found.varying.len() == 1, "{}", render(&found));
    let text = render(&found);
    assert!(text.contains("\nvaries between the baseline runs: calls of p2 -> p3 (4 to 7)\n"));
    assert!(text.ends_with(", 0 differ, 1 varies between the baseline runs\n"), "{text}");
    // A number that varies only between the new runs differs.
    let found = all(&one.runs(&mut dice, 2), &mixed);
    let said: Vec<String> = found.differences.iter().map(sentence).collect();
    let expected = "p2 -> p3: called 4 to 7 times in the new runs, 4 before (p1 -> p2 -> p3)";
    assert_eq!(said, [expected]);
}

#[test]
fn allocations_that_one_side_did_not_count_are_left_out() {
    let mut dice = Dice(5);
    let without = |points: &[u32], dice: &mut Dice| {
        let mut snapshot = small().run(dice);
        let named = |name: &str| points.iter().any(|point| *name == format!("p{point}"));
        let uncounted = snapshot.points.iter().filter(|point| named(&point.name));
        let ids: Vec<u32> = uncounted.map(|point| point.id).collect();
        for cell in snapshot.cells.iter_mut().filter(|cell| ids.contains(&cell.point)) {
            Arc::make_mut(cell).allocs = Allocs::default();
        }
        ProgramRun::all(vec![snapshot])
    };
    let whole = small().runs(&mut dice, 1);
    let none = all(&without(&[1, 2, 3], &mut dice), &whole);
    assert!(none.passed(), "{}", render(&none));
    let expected = "the baseline runs did not count allocations, so these are not compared";
    assert_eq!(none.notes, [expected]);
    let part = all(&whole, &without(&[2], &mut dice));
    assert!(part.passed(), "{}", render(&part));
    let expected =
        "only the baseline runs counted the allocations of p2, so these are not compared";
    assert_eq!(part.notes, [expected]);
    assert!(all(&whole, &whole).notes.is_empty());
}

#[test]
fn lost_calls_are_named() {
    let mut dice = Dice(6);
    let mut lossy = small().run(&mut dice);
    lossy.losses[Loss::BeginsMissed] = 3;
    lossy.losses[Loss::RecordsLost] = 9;
    lossy.lanes[0].unplaced = 1;
    let found = all(&small().runs(&mut dice, 1), &ProgramRun::all(vec![lossy]));
    let expected = "the new runs may lack calls or allocations: 3 begins not measured, 1 call without a known caller";
    assert_eq!(found.notes, [expected]);
}

/// A window of a run has the growth of all figures. A filter takes points, and their callers.
#[test]
fn windows_and_filters_are_compared() {
    let mut dice = Dice(7);
    let seed = dice.0;
    let first = small().run(&mut Dice(seed));
    let mut last = first.clone();
    last.elapsed_ticks += 1;
    for cell in &mut last.cells {
        let cell = Arc::make_mut(cell);
        cell.stats = [&cell.stats, &cell.stats].into_iter().sum();
        cell.allocs = cell.allocs.plus(&cell.allocs);
    }
    last.edges.iter_mut().for_each(|edge| edge.count *= 2);
    let window: Vec<_> = ProgramRun::since(first, vec![last]).into_iter().collect();
    let found = all(&small().runs(&mut dice, 1), &window);
    assert!(found.passed() && found.points == 3, "{}", render(&found));

    let mut now = small();
    now.points[1][1] += 1;
    now.edges[2].2 += 1;
    let sides = [small().runs(&mut dice, 1), now.runs(&mut dice, 1)];
    for (name, differences) in [("p1", 0), ("p2", 1), ("p3", 1)] {
        let found = compare(&sides[0], &sides[1], |it| it == name);
        assert_eq!((found.points, found.differences.len()), (1, differences), "{name}");
    }
    assert!(compare(&sides[0], &sides[1], |_| false).is_empty());
}

#[test]
fn json_and_markdown_have_the_differences() {
    let mut dice = Dice(8);
    let (mut now, mut other) = (small(), small());
    now.edges[2].2 = 5;
    other.points[2][0] = 9;
    let baseline = ProgramRun::all(vec![small().run(&mut dice), other.run(&mut dice)]);
    let found = all(&baseline, &now.runs(&mut dice, 1));
    let report: serde_json::Value = serde_json::from_str(&json(&found).unwrap()).unwrap();
    assert_eq!((&report["format"], &report["passed"]), (&"pfp-gate-exact".into(), &false.into()));
    let expected = serde_json::json!([{
        "point": "p3",
        "figure": "calls_by_caller",
        "caller": "p2",
        "before": [4, 4],
        "now": [5],
        "path": ["p1", "p2", "p3"],
        "text": "p2 -> p3: called 5 times, 4 before (p1 -> p2 -> p3)",
    }]);
    assert_eq!(report["differences"], expected);
    assert_eq!(report["varying"][0]["before"], serde_json::json!([6, 9]));
    let text = markdown(&found);
    assert!(text.starts_with("### pfp: ") && text.contains("1 differs, "), "{text}");
    assert!(text.contains("\n- p2 -\\> p3: called 5 times, 4 before (p1 "), "{text}");
    assert!(text.contains("\n- calls of p3 (6 to 9)\n"), "{text}");
}
