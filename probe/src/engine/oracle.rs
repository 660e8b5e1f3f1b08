//! Random programs on a simulated clock. A reference that keeps a tree of all regions computes
//! their figures, which must agree to the tick.
//!
//! The reference does not work like the engine: it notes wall-clock and on-CPU time at each event,
//! and adds up afterwards.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pfp_shm_layout::calls::{CallSums, ROOT};
use pfp_shm_layout::environment::variable;
use pfp_shm_layout::histogram;
use pfp_shm_layout::lane::LaneState::Live;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;

use super::context::{self, Handle, Switched};
use super::overhead::{Costs, overhead};
use crate::clock::mock;
use crate::{Point, Stats};

static POINTS: [Point; 32] = [const { Point::new("oracle") }; 32];
/// Number of points that most programs use. With more points, they would have more callers than a
/// lane has edges.
const FEW: u64 = 6;
const ALPHA: f64 = 0.25;

/// Whether a point has an average: cells without an average have a shorter path.
fn is_averaged(point: usize) -> bool {
    point.is_multiple_of(2)
}

/// Points, clock and overhead belong to the process: one test at a time measures, and none during a
/// calibration.
pub(crate) fn one_at_a_time() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    crate::c::get_ready();
    assert_eq!(crate::init(), Ok(()));
    // A thread that has made the process may still be calibrating, and would overwrite the overhead
    // that a test has set.
    while crate::calibrate(64).is_none() {
        std::thread::yield_now();
    }
    one
}

/// xorshift64*: the seed determines the program.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound
    }
}

/// A region in the reference's tree.
struct Node {
    point: usize,
    around: Option<usize>,
    /// The regions directly inside it.
    children: Vec<usize>,
    started: (u64, u64),
    ended: Option<(u64, u64)>,
    /// Whether a lap began the region.
    from_lap: bool,
    /// Whether a lap ended the region.
    to_lap: bool,
}

/// The reference's state of a context.
#[derive(Default)]
struct Task {
    /// On-CPU ticks for which the context has run.
    ran: u64,
    open: Vec<usize>,
    /// The nodes of the latched parts, by point.
    latched: [Vec<usize>; POINTS.len()],
}

struct Reference {
    /// The clock source on which the program runs.
    source: &'static str,
    costs: Costs,
    wall: u64,
    tasks: Vec<Task>,
    current: usize,
    /// Whether the clock advances after each begin, so that no region ends at the moment at which
    /// it began. Only then can a reader derive the open regions, so only then are they checked.
    advances_after_begin: bool,
    nodes: Vec<Node>,
    /// Recorded measurements in order: a point, and the nodes whose sum the measurement is.
    recorded: Vec<(usize, Vec<usize>)>,
}

impl Reference {
    fn new(source: &'static str, costs: Costs) -> Self {
        let (tasks, nodes, recorded) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            source,
            costs,
            wall: 0,
            tasks,
            current: 0,
            advances_after_begin: false,
            nodes,
            recorded,
        }
    }

    fn task(&mut self) -> &mut Task {
        &mut self.tasks[self.current]
    }

    fn run(&mut self, ticks: u64) {
        self.wall += ticks;
        self.task().ran += ticks;
    }

    /// If the clock source does not notice switches, time off the CPU looks like time on the CPU.
    fn sleep(&mut self, ticks: u64) {
        self.wall += ticks;
        if self.source == "wall" {
            self.task().ran += ticks;
        }
    }

    fn begin(&mut self, point: usize) -> usize {
        let started = (self.wall, self.task().ran);
        let node = self.nodes.len();
        let open = &self.tasks[self.current].open;
        let around = open.last().copied();
        let (children, ended, from_lap, to_lap) = (vec![], None, false, false);
        let begun = Node { point, around, children, started, ended, from_lap, to_lap };
        self.nodes.push(begun);
        if let Some(around) = around {
            self.nodes[around].children.push(node);
        }
        self.task().open.push(node);
        if self.advances_after_begin {
            mock::run(1);
            self.run(1);
        }
        node
    }

    /// Ends the innermost open region of a point.
    fn end(&mut self, point: usize, latch: bool) {
        let open = &self.tasks[self.current].open;
        if let Some(at) = open.iter().rposition(|&open| self.nodes[open].point == point) {
            self.end_at(at, latch);
        }
    }

    fn end_at(&mut self, at: usize, latch: bool) {
        let now = (self.wall, self.task().ran);
        let node = self.task().open[at];
        // The regions inside were not ended, and never will be.
        self.task().open.truncate(at);
        let point = self.nodes[node].point;
        self.nodes[node].ended = Some(now);
        self.task().latched[point].push(node);
        if !latch {
            let parts = std::mem::take(&mut self.task().latched[point]);
            self.recorded.push((point, parts));
        }
    }

    /// Ends the innermost region and begins one of a point. On a clock source that is read at every
    /// stamp, a lap is an end and a begin.
    fn lap(&mut self, point: usize) {
        if let Some(&last) = self.task().open.last() {
            self.end(self.nodes[last].point, false);
            self.nodes[last].to_lap = self.source == "wall";
        }
        let node = self.begin(point);
        self.nodes[node].from_lap = self.source == "wall";
    }

    /// The overhead inside a region.
    fn inside(&self, node: usize) -> u64 {
        if self.nodes[node].from_lap { self.costs.lap } else { self.costs.inside }
    }

    /// On-CPU ticks of a region minus its overhead. Negative if the overhead is greater.
    fn net(&self, node: usize) -> i64 {
        let Node { started, ended, .. } = self.nodes[node];
        ended.map_or(0, |ended| ended.1 - started.1) as i64 - self.inside(node) as i64
    }

    fn span(&self, node: usize) -> u64 {
        self.net(node).max(0) as u64
    }

    /// The overhead that a region costs the enclosing region: the part inside, and also the part
    /// outside, unless a lap ended the region.
    fn pair(&self, node: usize) -> u64 {
        let outside = self.costs.pair - self.costs.inside;
        self.inside(node) + if self.nodes[node].to_lap { 0 } else { outside }
    }

    /// Ticks of the ended regions directly inside, with their overhead. Instead of an abandoned
    /// region, the ended regions inside it count.
    fn nested(&self, node: usize) -> i64 {
        let covered = |&child: &usize| match self.nodes[child].ended {
            Some(_) => self.net(child) + self.pair(child) as i64,
            None => self.nested(child),
        };
        self.nodes[node].children.iter().map(covered).sum()
    }

    fn own(&self, node: usize) -> u64 {
        (self.net(node) - self.nested(node)).max(0) as u64
    }

    /// The expected statistics of the point.
    fn expected(&self, point: usize) -> Option<Stats> {
        let mut stats = Stats { min: u64::MAX, ..Stats::default() };
        for (_, parts) in self.recorded.iter().filter(|(of, _)| *of == point) {
            let own: u64 = parts.iter().map(|&node| self.own(node)).sum();
            stats.exclusive += own;
            stats.min = stats.min.min(own);
            stats.max = stats.max.max(own);
            stats.last = own;
            stats.average = if stats.count == 0 {
                own as f64
            } else {
                stats.average + ALPHA * (own as f64 - stats.average)
            };
            stats.count += 1;
            for &node in parts {
                let Node { started, ended, .. } = self.nodes[node];
                let ended = ended.unwrap_or(started);
                stats.inclusive = stats.inclusive.wrapping_add(self.beyond(node));
                stats.off_cpu += (ended.0 - started.0) - (ended.1 - started.1);
            }
        }
        (stats.count > 0).then_some(stats)
    }

    /// The bounds of the point's longest time by the clock. A region that kept the CPU is recorded
    /// only if it is long, so it raises only the upper bound.
    fn longest(&self, point: usize) -> RangeInclusive<u64> {
        let (mut least, mut most) = (0, 0);
        for (_, parts) in self.recorded.iter().filter(|(of, _)| *of == point) {
            let times = parts.iter().map(|&node| {
                let Node { started, ended, .. } = self.nodes[node];
                (started, ended.unwrap_or(started))
            });
            let first = times.clone().map(|(started, _)| started.0).min().unwrap_or(0);
            let last = times.clone().map(|(_, ended)| ended.0).max().unwrap_or(0);
            most = most.max(last - first);
            let off = |(started, ended): ((u64, u64), (u64, u64))| {
                (ended.0 - started.0) - (ended.1 - started.1)
            };
            if parts.len() == 1 && times.map(off).any(|off| off > 0) {
                least = least.max(last - first);
            }
        }
        least..=most
    }

    /// The sums of each point's calls, by caller and callee. An outermost region has the caller
    /// [`ROOT`].
    fn calls(&self) -> BTreeMap<(u32, u32), CallSums> {
        let mut calls = BTreeMap::<_, CallSums>::new();
        for (point, parts) in &self.recorded {
            let around = parts.last().and_then(|&last| self.nodes[last].around);
            let caller = around.map_or(ROOT, |around| number(self.nodes[around].point));
            let spans = parts.iter().map(|&node| self.beyond(node));
            calls.entry((caller, number(*point))).or_default().add(CallSums {
                count: 1,
                exclusive: parts.iter().map(|&node| self.own(node)).sum(),
                inclusive: spans.fold(0, u64::wrapping_add),
            });
        }
        calls
    }

    /// Inclusive ticks of a region beyond the point's regions inside it.
    fn beyond(&self, node: usize) -> u64 {
        self.span(node).wrapping_sub(self.within(node, self.nodes[node].point))
    }

    /// Ticks of the outermost regions of a point inside a region, except those that were abandoned.
    fn within(&self, node: usize, point: usize) -> u64 {
        let is_one = |node: &Node| node.point == point && node.ended.is_some();
        let of = |&child: &usize| match is_one(&self.nodes[child]) {
            true => self.span(child),
            false => self.within(child, point),
        };
        self.nodes[node].children.iter().map(of).sum()
    }

    /// Checks the open regions that the calling thread shows.
    fn check_open(&self, seed: u64) {
        if !self.advances_after_begin {
            return;
        }
        let mut reader = reader();
        reader.poll();
        let tid = super::owner::tid();
        let lanes = &reader.picture().lanes;
        let lane = lanes.iter().find(|lane| lane.lane.tid == tid && lane.lane.state == Live);
        let lane = lane.map(|lane| lane.id);
        let calls = reader.calls().into_iter().find(|calls| Some(calls.lane) == lane);
        let found = calls.map_or_else(Vec::new, |calls| calls.open);
        let found: Vec<u32> = found.iter().map(|region| region.point).collect();
        let open = &self.tasks[self.current].open;
        let expected: Vec<u32> = open.iter().map(|&node| number(self.nodes[node].point)).collect();
        assert_eq!(found, expected, "seed {seed} on {}", self.source);
        let stacks = reader.open_stacks().into_iter().find(|(id, _)| Some(*id) == lane);
        let stack = stacks.map_or_else(Vec::new, |(_, points)| points);
        assert_eq!(stack, expected, "seed {seed} on {}", self.source);
    }

    /// Exclusive ticks of each recorded measurement of a point.
    fn all_own(&self, point: usize) -> impl Iterator<Item = u64> {
        let of_point = self.recorded.iter().filter(move |(of, _)| *of == point);
        of_point.map(|(_, parts)| parts.iter().map(|&node| self.own(node)).sum())
    }
}

/// The number of a point in this process.
fn number(point: usize) -> u32 {
    POINTS[point].index() as u32
}

/// A reader of this process's segment.
fn reader() -> Reader<&'static Segment> {
    let segment = &super::process::current().expect("there is a process").segment;
    Reader::new(segment, segment.facts().expect("it is whole"))
}

/// The variance by the textbook's formula, in two passes.
fn variance_of(own: &[u64]) -> f64 {
    let mean = own.iter().sum::<u64>() as f64 / own.len() as f64;
    let squares: f64 = own.iter().map(|&value| (value as f64 - mean).powi(2)).sum();
    if own.len() < 2 { 0.0 } else { squares / (own.len() - 1) as f64 }
}

/// A random program with regions that are begun by hand: they end in any order, some are latched,
/// and several contexts take turns.
fn by_hand(random: &mut Random, reference: &mut Reference) {
    let contexts: Vec<_> = (0..3).map(|_| Handle::new()).collect();
    reference.tasks.resize_with(contexts.len() + 1, Task::default);
    for _ in 0..random.below(400) {
        let point = random.below(FEW) as usize;
        match random.below(12) {
            0..=2 => {
                let ticks = random.below(5000);
                mock::run(ticks);
                reference.run(ticks);
            }
            3 => {
                let ticks = random.below(100_000);
                mock::sleep(ticks);
                reference.sleep(ticks);
            }
            4..=6 if reference.task().open.len() < 20 => {
                POINTS[point].begin();
                reference.begin(point);
            }
            7 | 8 => {
                POINTS[point].end();
                reference.end(point, false);
            }
            9 => {
                POINTS[point].end_latched();
                reference.end(point, true);
            }
            10 => {
                // Ends the innermost region, as a program without mistakes does.
                if let Some(&node) = reference.task().open.last() {
                    let point = reference.nodes[node].point;
                    POINTS[point].end();
                    reference.end(point, false);
                }
            }
            _ => {
                let to = random.below(contexts.len() as u64 + 1) as usize;
                let next = to.checked_sub(1).map(|to| &contexts[to]);
                assert_ne!(context::switch(None, next), Switched::Refused);
                reference.current = to;
            }
        }
    }
    context::switch(None, None);
    reference.current = 0;
}

/// A random program with guards: nested like blocks, and recursive.
fn with_guards(random: &mut Random, reference: &mut Reference, depth: u32) {
    reference.tasks.resize_with(1, Task::default);
    for _ in 0..random.below(8) {
        let ticks = random.below(3000);
        if random.below(5) == 0 {
            mock::sleep(ticks * 7);
            reference.sleep(ticks * 7);
        } else {
            mock::run(ticks);
            reference.run(ticks);
        }
        if depth < 7 && random.below(3) > 0 {
            let point = random.below(FEW) as usize;
            let mut guard = POINTS[point].measure();
            reference.begin(point);
            if random.below(50) == 0 {
                reference.check_open(0);
            }
            with_guards(random, reference, depth + 1);
            for _ in 0..random.below(7).saturating_sub(3) {
                // Runs for as long as a lap costs, because no lap is shorter.
                mock::run(reference.costs.lap);
                reference.run(reference.costs.lap);
                let point = random.below(FEW) as usize;
                guard.lap(&POINTS[point]);
                reference.lap(point);
                with_guards(random, reference, depth + 4);
            }
            mock::run(reference.costs.lap);
            reference.run(reference.costs.lap);
            drop(guard);
            if let Some(&last) = reference.task().open.last() {
                reference.end(reference.nodes[last].point, false);
            }
        }
    }
}

/// A random program of nested pairs of regions. The inner regions have few or many points, and one
/// to three callers.
fn in_turn(random: &mut Random, reference: &mut Reference) {
    reference.tasks.resize_with(1, Task::default);
    let (points, callers) = (1 + random.below(POINTS.len() as u64), 1 + random.below(3));
    let (most, longest) = (1 + random.below(points), random.below(24));
    for _ in 0..random.below(300) {
        let outer = random.below(callers) as usize;
        let (bound, octave) = (1 + random.below(most), random.below(1 + longest));
        let (inner, ticks) = (random.below(bound) as usize, random.below(1 << octave));
        let around = POINTS[outer].measure();
        reference.begin(outer);
        // Shorter regions could be shorter than the overhead.
        mock::run(100);
        reference.run(100);
        let within = POINTS[inner].measure();
        reference.begin(inner);
        mock::run(100 + ticks);
        reference.run(100 + ticks);
        drop(within);
        reference.end(inner, false);
        drop(around);
        reference.end(outer, false);
    }
}

/// Measurements of all lengths at every point: afterwards the histogram has a part for each length,
/// so that no region takes the slow path because a part is missing.
fn every_octave(reference: &mut Reference) {
    reference.tasks.resize_with(1, Task::default);
    for (number, point) in POINTS.iter().enumerate() {
        for ticks in (0..24).map(|octave| 1 << octave).chain([0]) {
            let guard = point.measure();
            reference.begin(number);
            mock::run(ticks);
            reference.run(ticks);
            drop(guard);
            reference.end(number, false);
        }
    }
}

fn check(
    seed: u64,
    reference: Reference,
    program: impl Fn(&mut Random, &mut Reference) + Send + Sync,
) {
    for (index, point) in POINTS.iter().enumerate() {
        point.reset();
        if is_averaged(index) {
            point.set_alpha(ALPHA).expect("in range");
        }
    }
    let reference = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            mock::start();
            let mut reference = reference;
            reference.advances_after_begin = seed.is_multiple_of(2);
            every_octave(&mut reference);
            program(&mut Random(seed.wrapping_mul(2).wrapping_add(1)), &mut reference);
            reference.check_open(seed);
            reference
        });
        thread.join().expect("no panic")
    });
    let mut reader = reader();
    reader.poll();
    let mut calls = BTreeMap::<_, CallSums>::new();
    for call in reader.calls().into_iter().flat_map(|lane| lane.edges) {
        if (0..POINTS.len()).any(|point| number(point) == call.callee) {
            calls.entry((call.caller, call.callee)).or_default().add(call.sums);
        }
    }
    assert_eq!(calls, reference.calls(), "seed {seed}");
    for (index, point) in POINTS.iter().enumerate() {
        let (found, expected) = (point.stats(), reference.expected(index));
        let (Some(found), Some(expected)) = (&found, &expected) else {
            assert_eq!(found.is_some(), expected.is_some(), "seed {seed} point {index}");
            continue;
        };
        let figures = |stats: &Stats| {
            let Stats { count, exclusive, inclusive, off_cpu, min, max, .. } = *stats;
            [count, exclusive, inclusive, off_cpu, min, max]
        };
        assert_eq!(figures(found), figures(expected), "seed {seed} point {index}");
        let bounds = reference.longest(index);
        let longest = found.longest;
        assert!(bounds.contains(&longest), "seed {seed} point {index}: {longest}, {bounds:?}");
        let average = if is_averaged(index) { expected.average } else { 0.0 };
        assert!(
            (found.average - average).abs() < 1e-3 * average.max(1.0),
            "seed {seed} point {index}: average {} and not {average}",
            found.average
        );
        let mut sorted: Vec<u64> = reference.all_own(index).collect();
        sorted.sort_unstable();
        let variance = variance_of(&sorted);
        assert!(
            (found.variance() - variance).abs() <= 1e-9 * variance.max(1.0),
            "seed {seed} point {index}: variance {} and not {variance}",
            found.variance()
        );
        for q in [0.0, 0.1, 0.5, 0.9, 0.99, 1.0] {
            let rank = (q * sorted.len() as f64).ceil() as usize;
            let ticks_per_ns = crate::ticks_per_second() / 1e9;
            let time = found.quantile(q).expect("it has measured").as_nanos() as f64;
            let (found, expected) = (time * ticks_per_ns, sorted[rank.max(1) - 1] as f64);
            // Allowed errors: half a bucket, whose width is proportional to the value plus
            // `BUCKETS`; a rate that becomes more exact; and whole nanoseconds.
            const BUCKETS: f64 = histogram::BUCKETS as f64;
            assert!(
                (found - expected).abs() <= 0.018 * (expected + BUCKETS) + 2.0 * ticks_per_ns,
                "seed {seed} point {index}: quantile {q} is {found} and not {expected}"
            );
        }
    }
}

/// Number of programs that are tried. An emulator takes a hundred times as long for each.
fn seeds() -> u64 {
    variable(c"PFP_TEST_SEEDS")
        .map_or(200, |seeds| seeds.to_str().and_then(|seeds| seeds.parse().ok()).expect("a number"))
}

/// Runs programs on two clock sources: one that is read at every stamp, so that everything takes
/// the slow path, and one that is never read, so that everything takes the fast path.
fn many_seeds(costs: Costs, program: impl Fn(&mut Random, &mut Reference) + Send + Sync) {
    let _one = one_at_a_time();
    let before = overhead().replace(costs);
    for source in ["cputime", "wall"] {
        crate::clock::choose(Some(source));
        for seed in 1..=seeds() {
            check(seed, Reference::new(source, costs), &program);
        }
    }
    overhead().replace(before);
}

const SOME: Costs = Costs { inside: 13, pair: 50, lap: 40 };

#[test]
fn regions_begun_by_hand_agree_with_the_tree() {
    many_seeds(Costs::NONE, by_hand);
}

#[test]
fn guards_agree_with_the_tree() {
    many_seeds(Costs::NONE, |random, reference| with_guards(random, reference, 0));
}

#[test]
fn pages_of_points_in_turn_agree_with_the_tree() {
    many_seeds(Costs::NONE, in_turn);
}

#[test]
fn overhead_is_taken_out_of_the_region_and_of_the_one_around() {
    many_seeds(SOME, by_hand);
    many_seeds(SOME, |random, reference| with_guards(random, reference, 0));
}

/// Each of a point's nested regions may be begun by hand or by a guard.
#[test]
fn recursion_counts_once() {
    static POINT: Point = Point::new("in itself");
    fn within(by_hand: bool, work: impl FnOnce()) {
        let guard = (!by_hand).then(|| POINT.measure());
        if by_hand {
            POINT.begin();
        }
        work();
        if by_hand {
            POINT.end();
        }
        drop(guard);
    }
    let _one = one_at_a_time();
    let before = overhead().replace(Costs::NONE);
    for source in ["cputime", "wall"] {
        crate::clock::choose(Some(source));
        for (outer_by_hand, inner_by_hand) in
            [(true, true), (false, false), (false, true), (true, false)]
        {
            let run = || {
                mock::start();
                POINT.reset();
                within(outer_by_hand, || {
                    mock::run(60);
                    within(inner_by_hand, || mock::run(50));
                    mock::run(40);
                });
            };
            std::thread::scope(|scope| scope.spawn(run).join().expect("no panic"));
            let stats = POINT.stats().expect("it has measured");
            let found = (stats.count, stats.exclusive, stats.inclusive);
            assert_eq!(found, (2, 150, 150), "{source} {outer_by_hand} {inner_by_hand}");
        }
    }
    overhead().replace(before);
}
