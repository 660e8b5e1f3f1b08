//! The time that open regions have taken so far.
//!
//! ```text
//! lane      loop  [..........................................  open: on a CPU for 900 so far
//!             step [...] [...] [...]    step [...............  open: 200
//!               io  [.]   [.]   [.]           [.] [.]
//!           loop = 900 - 200 - total time of its ended steps
//! ```
//!
//! Figures include a region only once it has ended. For an open region, the time since its begin is
//! always known. The region's time on a CPU is known if the snapshot has that figure. The region's
//! exclusive time is its time on a CPU without the time of its callees. The callees' time follows
//! from the edges: take the time of all callees of the region's point on the lane, and subtract the
//! time of calls from ended regions. Measuring costs a fixed number of ticks for each call inside
//! the region. These ticks are excluded, too, as for ended regions.

use std::collections::HashMap;

use pfp_read::snapshot::{Edge, LaneKind, Open, ProcessState, Snapshot};

/// A region that is open.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OpenRegion {
    /// Id of its lane.
    pub lane: u32,
    /// Id of its point.
    pub point: u32,
    /// Begin, ticks since the segment was created.
    pub start: u64,
    /// Ticks since the region began.
    pub span: u64,
    /// Ticks on a CPU since it began, if known.
    pub on_cpu: Option<u64>,
    /// Exclusive ticks since it began, if known.
    pub exclusive: Option<u64>,
    /// Exclusive ticks so far. A reset since the region began makes them wrong by a constant, so
    /// that only their growth is correct.
    own: Option<f64>,
}

/// The open regions of a point.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OpenNow {
    /// Number of open regions.
    pub count: usize,
    /// Ticks since the first of them began.
    pub span: u64,
    /// Ticks on a CPU of all open regions together. `None` if the ticks of one region are unknown.
    pub on_cpu: Option<u64>,
    /// Exclusive ticks of all open regions together. `None` if they are unknown.
    pub exclusive: Option<u64>,
}

/// A point with an open region on a lane.
#[derive(Default)]
struct Around {
    /// The point of the enclosing region.
    caller: Option<u32>,
    /// Inclusive ticks of all calls from its regions.
    callees: u64,
    /// Whether the point is or was recursive, so that calls from one level cannot be distinguished
    /// from calls of another.
    is_tangled: bool,
}

/// The open regions of running threads, lane by lane, the outermost first.
pub(crate) fn open_regions(snapshot: &Snapshot) -> Vec<OpenRegion> {
    if snapshot.process.state != ProcessState::Running {
        return Vec::new();
    }
    let lanes = || {
        let runs = |process: Option<u32>| {
            let member = snapshot.member(process);
            process.is_none() || member.is_some_and(|it| it.state == ProcessState::Running)
        };
        let lanes = snapshot.lanes.iter();
        lanes.filter(move |lane| lane.kind == LaneKind::Live && runs(lane.process))
    };
    let mut around: HashMap<(u32, u32), Around> = HashMap::new();
    for lane in lanes() {
        let mut caller = None;
        for open in &lane.open {
            let known = around.contains_key(&(lane.id, open.point));
            let around = around.entry((lane.id, open.point)).or_default();
            around.is_tangled = known || lane.unplaced > 0;
            around.caller = caller;
            caller = Some(open.point);
        }
    }
    if around.is_empty() {
        return Vec::new();
    }
    let mut inside = CalleeCounts::default();
    for edge in &snapshot.edges {
        if let Some(around) = around.get_mut(&(edge.lane, edge.point)) {
            around.is_tangled |= around.caller != edge.caller;
        }
        let calls = inside.calls.entry((edge.lane, edge.point)).or_default();
        *calls = calls.saturating_add(edge.count);
        let Some(caller) = edge.caller else { continue };
        inside.callees.entry((edge.lane, caller)).or_default().push(edge);
    }
    for (place, around) in &mut around {
        let edges = inside.callees.get(place).into_iter().flatten();
        around.callees = edges.map(|edge| inside.whole(edge)).fold(0, u64::saturating_add);
    }
    let cost = snapshot.clock.overhead_pair as f64;
    let was_reset = snapshot.points.iter().any(|point| point.resets > 0);
    // A reset only affects regions that began before it.
    let resets = snapshot.points.iter().filter(|point| point.resets > 0);
    let last_reset = resets.map(|point| point.since_ticks.unwrap_or(u64::MAX)).max().unwrap_or(0);
    let mut regions = Vec::new();
    for lane in lanes() {
        for (level, open) in lane.open.iter().enumerate() {
            let place = (lane.id, open.point);
            let next = lane.open.get(level + 1);
            let own = around.get(&place).filter(|around| !around.is_tangled).and_then(|around| {
                let (on_cpu, next) = (open.on_cpu?, next.map_or(Some(0), |next| next.on_cpu)?);
                let ended = ended_callees(snapshot, place);
                let callees = around.callees as f64 - ended;
                let calls = inside.of(place);
                // `calls` includes calls from ended regions of the point. The calls from the open
                // region are estimated by its share of the callees' time.
                let calls = match around.callees {
                    0 => calls,
                    all => calls * (callees / all as f64).clamp(0.0, 1.0),
                };
                let all = on_cpu as f64 - next as f64;
                let own = all - callees - calls * cost;
                // The number of calls is an estimate. Its error grows as long as the program runs,
                // and recursion through other points adds another error. So `own` is limited to the
                // range from 0 to `all`, unless the region began before the last reset.
                Some(if open.start < last_reset { own } else { own.clamp(0.0, all.max(0.0)) })
            });
            let Open { point, start, on_cpu } = *open;
            let span = snapshot.elapsed_ticks.saturating_sub(start);
            let exclusive = own.filter(|_| !was_reset).map(|own| own.max(0.0) as u64);
            let lane = lane.id;
            regions.push(OpenRegion { lane, point, start, span, on_cpu, exclusive, own });
        }
    }
    regions
}

/// Ticks of the callees of a point's ended regions, on a lane.
fn ended_callees(snapshot: &Snapshot, (lane, point): (u32, u32)) -> f64 {
    let ended = snapshot.cell(point, lane).map(|cell| cell.total()).unwrap_or_default();
    ended.inclusive.saturating_sub(ended.exclusive) as f64
}

/// Counts, for each point of a lane, the regions that have ended inside its regions.
#[derive(Default)]
struct CalleeCounts<'a> {
    /// The edges to a point's callees, by the lane and the point.
    callees: HashMap<(u32, u32), Vec<&'a Edge>>,
    /// Number of calls of a point, from any caller, by the lane and the point.
    calls: HashMap<(u32, u32), u64>,
    /// Results of [`Self::of`].
    found: HashMap<(u32, u32), f64>,
}

impl CalleeCounts<'_> {
    /// Inclusive ticks of an edge's calls. If a call contains further calls of the same point, the
    /// edge from the point to itself has their time. Each caller gets a share of that time, by its
    /// number of calls.
    fn whole(&self, edge: &Edge) -> u64 {
        let itself = (edge.lane, edge.point);
        let mut callees = self.callees.get(&itself).into_iter().flatten();
        let Some(nested) = callees.find(|callee| callee.point == edge.point) else {
            return edge.inclusive;
        };
        let all = self.calls.get(&itself).copied().unwrap_or(0);
        let share = edge.count as f64 / all.saturating_sub(nested.count).max(1) as f64;
        edge.inclusive.saturating_add((nested.inclusive as f64 * share.min(1.0)) as u64)
    }

    /// Number of ended regions inside a point's regions, at any depth. If several points call the
    /// same point, each gets a share of the regions inside it, by its number of calls.
    fn of(&mut self, place: (u32, u32)) -> f64 {
        if let Some(found) = self.found.get(&place) {
            return *found;
        }
        // A point that calls itself finds this entry, so that the recursion ends.
        self.found.insert(place, 0.0);
        let edges = self.callees.get(&place).cloned().unwrap_or_default();
        let inside = edges.iter().map(|edge| {
            let callee = (edge.lane, edge.point);
            let all = self.calls.get(&callee).copied().unwrap_or(0).max(1);
            edge.count as f64 * (1.0 + self.of(callee) / all as f64)
        });
        let inside = inside.sum();
        self.found.insert(place, inside);
        inside
    }
}

impl OpenNow {
    /// Sums up one point's regions. `None` if the point has no open region.
    pub(super) fn of(point: u32, regions: &[OpenRegion]) -> Option<Self> {
        let of_point = || regions.iter().filter(|region| region.point == point);
        let sum = |on_cpu: fn(&OpenRegion) -> Option<u64>| {
            of_point().map(on_cpu).try_fold(0_u64, |sum, ticks| Some(sum.saturating_add(ticks?)))
        };
        let span = of_point().map(|region| region.span).max()?;
        Some(Self {
            count: of_point().count(),
            span,
            on_cpu: sum(|region| region.on_cpu),
            exclusive: sum(|region| region.exclusive),
        })
    }
}

/// The growth of the exclusive time of open regions between two snapshots, in ticks by lane and
/// point. The growth is negative if a region has ended. Regions whose time is unknown in either
/// snapshot are left out. A region may have been open before its process was watched, so its growth
/// is limited to `ticks`, the time between the snapshots.
pub(super) fn grown(
    before: &[OpenRegion],
    now: &[OpenRegion],
    ticks: u64,
) -> Vec<((u32, u32), f64)> {
    let mut sums: HashMap<(u32, u32), [Option<f64>; 2]> = HashMap::new();
    for (which, regions) in [before, now].into_iter().enumerate() {
        for region in regions {
            let sums = sums.entry((region.lane, region.point)).or_insert([Some(0.0); 2]);
            sums[which] = sums[which].and_then(|sum| Some(sum + region.own?));
        }
    }
    let difference = |(place, [before, now]): (_, [Option<f64>; 2])| {
        Some((place, (now? - before?).min(ticks as f64)))
    };
    let mut grown: Vec<_> = sums.into_iter().filter_map(difference).collect();
    grown.sort_unstable_by_key(|(place, _)| *place);
    grown
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Model;
    use pfp_read::source::synthetic::{Synthetic, cell, edge};

    /// A thread in point 1, which calls point 2, which calls point 3. All figures are ticks.
    #[derive(Clone, Copy)]
    struct Program {
        now: u64,
        /// Begin of the region of point 1 that is open, and its ticks on a CPU.
        open: Option<(u64, u64)>,
        /// Begin of the open region of point 2 inside, and its ticks on a CPU.
        inner: Option<(u64, u64)>,
        /// Ended calls: their number, exclusive and inclusive ticks.
        one: [u64; 3],
        two: [u64; 3],
        three: [u64; 3],
        resets: u32,
    }

    const NOTHING: Program = Program {
        now: 1000,
        open: None,
        inner: None,
        one: [0; 3],
        two: [0; 3],
        three: [0; 3],
        resets: 0,
    };

    fn snapshot(program: Program) -> Snapshot {
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.elapsed_ticks = program.now;
        snapshot.clock.overhead_pair = 0;
        snapshot.lanes.truncate(1);
        let points =
            [(1, program.one, None), (2, program.two, Some(1)), (3, program.three, Some(2))];
        for (point, sums, caller) in points.into_iter().filter(|(_, sums, _)| sums[0] > 0) {
            snapshot.cells.push(cell(point, 0, sums));
            snapshot.edges.push(edge(point, caller, 0, sums));
        }
        snapshot.points[2].resets = program.resets;
        let open = [(1, program.open), (2, program.inner)].into_iter();
        let open = open.filter_map(|(point, open)| {
            open.map(|(start, on_cpu)| Open { point, start, on_cpu: Some(on_cpu) })
        });
        snapshot.lanes[0].open = open.collect();
        snapshot
    }

    fn exclusive(snapshot: Snapshot) -> Vec<Option<u64>> {
        open_regions(&snapshot).iter().map(|region| region.exclusive).collect()
    }

    /// Loads of points 1, 2 and 3 and of the thread, over the interval before the last snapshot.
    /// The time constant is so short that nothing is smoothed.
    fn loads(programs: &[Program]) -> ([Option<f64>; 3], Option<f64>) {
        let mut model = Model::new(1e-12);
        for program in programs {
            model.fold(snapshot(*program));
        }
        let load = |point| model.point(point).unwrap().load();
        ([load(1), load(2), load(3)], model.thread_figures()[0].load)
    }

    #[test]
    fn open_time_excludes_the_time_of_callees() {
        // Two calls of point 2 have ended and took 60 ticks. A third has run for 50, of which point
        // 3 took 20.
        let program = Program {
            open: Some((100, 500)),
            inner: Some((900, 50)),
            two: [2, 40, 60],
            three: [3, 40, 40],
            ..NOTHING
        };
        assert_eq!(exclusive(snapshot(program)), [Some(500 - 50 - 60), Some(50 - 20)]);
        // An ended call of point 1 contained one of the calls of point 2.
        let ended = Program { one: [1, 100, 130], ..program };
        assert_eq!(exclusive(snapshot(ended))[0], Some(500 - 50 - 60 + 30));
        // Measuring the ended calls costs time, too: two of point 2 and three of point 3. Half of
        // the calls of point 3, and half of their time, were inside the open call of point 2.
        let mut costly = snapshot(program);
        costly.clock.overhead_pair = 1;
        let own = exclusive(costly);
        assert_eq!((own[0], own[1]), (Some(390 - 5), Some(28)));
    }

    /// The time of nested calls of one point is in an edge from the point to itself, so it does not
    /// count as the caller's own.
    #[test]
    fn nested_calls_of_a_point_do_not_count_for_its_caller() {
        let program = Program { open: Some((100, 500)), two: [2, 40, 60], ..NOTHING };
        let recursive = |program: Program| {
            let mut snapshot = snapshot(program);
            snapshot.edges.push(edge(2, Some(2), 0, [6, 90, 90]));
            snapshot.edges.sort_unstable_by_key(Edge::key);
            let cell = Arc::make_mut(&mut snapshot.cells[0]);
            (cell.stats.count, cell.stats.inclusive) = (8, 150);
            snapshot
        };
        assert_eq!(exclusive(recursive(program)), [Some(500 - 60 - 90)]);
    }

    /// If a point calls itself through another point, the edges lack some of its callees' time. In
    /// a program that runs long, the missing time would exceed the whole time of the open region.
    #[test]
    fn exclusive_time_never_exceeds_cpu_time() {
        // Ended calls of 1 contain 900,000 ticks that no edge from 1 has.
        let program = Program {
            now: 1_000_000,
            open: Some((999_000, 500)),
            one: [1_000, 10, 900_010],
            ..NOTHING
        };
        assert_eq!(exclusive(snapshot(program)), [Some(500)]);
        // The region has just begun, so its load is neither 90 CPUs nor one.
        let before = Program { now: 999_000, open: None, ..program };
        let (points, thread) = loads(&[before, program]);
        assert_eq!((points[0], thread), (Some(0.5), Some(0.5)));
    }

    #[test]
    fn unknown_times_of_open_regions_stay_unknown() {
        let program = Program { open: Some((100, 500)), two: [2, 40, 60], ..NOTHING };
        assert_eq!(exclusive(snapshot(program)), [Some(440)]);
        let with = |change: &dyn Fn(&mut Snapshot)| {
            let mut snapshot = snapshot(program);
            change(&mut snapshot);
            exclusive(snapshot)
        };
        assert_eq!(with(&|s| s.lanes[0].unplaced = 1), [None], "an edge may be missing");
        assert_eq!(with(&|s| s.points[2].resets = 1), [None], "nobody knows what it had taken");
        assert_eq!(with(&|s| s.lanes[0].open[0].on_cpu = None), [None]);
        let again = |s: &mut Snapshot| {
            let open = s.lanes[0].open[0];
            s.lanes[0].open.push(open);
        };
        assert_eq!(with(&again), [None, None], "recursion");
        let called = edge(1, Some(2), 0, [1, 0, 0]);
        assert_eq!(with(&|s| s.edges.insert(0, called)), [None], "it was inside its callee");
        let ended = |s: &mut Snapshot| s.process.state = ProcessState::Crashed;
        assert_eq!(with(&ended), [], "nothing is open there any more");
    }

    #[test]
    fn loads_add_up_while_a_loop_is_open_and_nothing_jumps_when_it_ends() {
        let at =
            |now, on_cpu, two: [u64; 3]| Program { now, open: Some((100, on_cpu)), two, ..NOTHING };
        // In each 1,000 ticks, the loop is on the CPU for 800, of which calls of point 2 take 600.
        let first = at(1_000, 700, [1, 500, 500]);
        let second = at(2_000, 1_500, [2, 1_100, 1_100]);
        let (points, thread) = loads(&[first, second]);
        assert_eq!((points[0], points[1]), (Some(0.2), Some(0.6)));
        assert_eq!(thread, Some(0.8));
        // Then the region ends with the time that it had as an open one.
        let third = Program { now: 3_000, one: [1, 600, 2_300], two: [3, 1_700, 1_700], ..NOTHING };
        let (points, thread) = loads(&[first, second, third]);
        assert_eq!((points[0], points[1]), (Some(0.2), Some(0.6)));
        assert_eq!(thread, Some(0.8));
        // The figures of a single snapshot are over the whole life.
        let (points, _) = loads(&[second]);
        assert_eq!((points[0], points[1]), (Some(0.2), Some(0.55)));
    }

    #[test]
    fn a_reset_makes_one_interval_unknown_and_no_load_negative() {
        let at = |now, on_cpu, two: [u64; 3], resets| Program {
            now,
            open: Some((100, on_cpu)),
            two,
            resets,
            ..NOTHING
        };
        let programs = [
            at(1_000, 700, [1, 500, 500], 0),
            at(2_000, 1_500, [1, 300, 300], 1),
            at(3_000, 2_300, [2, 900, 900], 1),
        ];
        let (points, _) = loads(&programs[..2]);
        assert_eq!((points[0], points[1]), (None, None));
        let (points, thread) = loads(&programs);
        assert_eq!((points[0], points[1]), (Some(0.2), Some(0.6)));
        assert_eq!(thread, Some(0.8));
        // The kernel's figure does not change for some milliseconds while the callees' figures
        // grow.
        let behind = at(2_000, 700, [2, 1_100, 1_100], 0);
        let (points, _) = loads(&[programs[0], behind]);
        assert_eq!(points[0], Some(0.0));
    }
}
