//! The threads: the CPU time of each, and where it is spent.
//!
//! A thread's load is the growth of the exclusive time of all its points between two snapshots,
//! divided by the time between them. Exclusive times do not overlap, so no moment counts twice. If
//! the kernel counts more CPU time, the thread spent the difference outside all regions.

use std::sync::Arc;

use pfp_read::snapshot::{
    Allocs, Cell, Lane, LaneKind, Point, Process, ProcessState, Snapshot, Stats,
};

use super::interval::{Interval, of_place, seconds, smoothed};
use super::open::OpenRegion;
use super::window::Length;

/// Factor by which a point must exceed the top one to replace it, so that two nearly equal points
/// do not swap places at every poll.
const TAKES_OVER: f64 = 1.25;

/// One thread, or the figures that ended threads left on a lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Thread {
    /// The lane that the thread owns or has owned.
    pub lane: Lane,
    /// Number of points that it has measured.
    pub points: usize,
    /// Exclusive ticks of its regions since their last reset.
    pub exclusive: u64,
    /// The thread's share of a CPU in regions, smoothed.
    pub load: Option<f64>,
    /// The thread's share of a CPU by the kernel, smoothed like `load`. `None` if unknown.
    pub cpu: Option<f64>,
    /// Switches per second.
    pub switch_rate: Option<f64>,
    /// The point that took most of its recent time.
    pub top: Option<Top>,
    /// Whether `load` is the load of intervals, so that smoothing can continue from it.
    settled: bool,
}

/// The point that took most of a thread's time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Top {
    /// Id of the point.
    pub point: u32,
    /// The point's share of the thread's time in regions, from 0 to 1.
    pub share: f64,
}

/// One point on one thread.
#[derive(Clone, Debug)]
pub struct ThreadPoint {
    /// Id of the point.
    pub point: u32,
    /// Figures of the point on the thread.
    pub total: Stats,
    /// What its regions have allocated.
    pub allocs: Allocs,
}

impl Thread {
    /// The thread's share of a CPU outside all regions.
    pub fn outside(&self) -> Option<f64> {
        Some((self.cpu? - self.load?).max(0.0))
    }

    /// Takes over the loads and rates of `old`.
    fn go_on(&mut self, old: &Self) {
        self.load = old.load;
        self.cpu = old.cpu;
        self.switch_rate = old.switch_rate;
        self.top = old.top;
        self.settled = old.settled;
    }
}

/// The growth of a thread's sums in an interval.
#[derive(Clone, Copy, Default)]
struct Grown {
    exclusive: u64,
    /// The point with the greatest growth, and its growth.
    most: Option<(u32, u64)>,
    /// The growth of the point that was the top one before.
    top: u64,
}

/// The threads of a first snapshot: shares are over the process's life, open regions included.
pub(super) fn life(snapshot: &Snapshot, open: &[OpenRegion], seconds: f64) -> Vec<Thread> {
    let ticks = snapshot.elapsed_ticks;
    let (mut threads, mut grown) = sums(snapshot, None, &[]);
    for region in open {
        if let (Some(place), Some(own)) = (place(snapshot, region.lane), region.exclusive) {
            grown[place].add_open(region.point, own as f64, None);
        }
    }
    for (thread, grown) in threads.iter_mut().zip(grown) {
        thread.load = (ticks > 0).then(|| grown.exclusive as f64 / ticks as f64);
        thread.switch_rate = (ticks > 0).then(|| thread.lane.switches as f64 / seconds);
        thread.top = top(&grown, None);
    }
    threads
}

/// The threads of a later snapshot. `open` is the growth of open regions by lane and point; `own`
/// is the length of the interval for each of several processes, if known.
pub(super) fn interval(
    snapshot: &Snapshot,
    before: &Snapshot,
    old: &[Thread],
    open: &[((u32, u32), f64)],
    own: &[Option<u64>],
    Interval { ticks, weight, .. }: Interval,
) -> Vec<Thread> {
    let (mut threads, mut grown) = sums(snapshot, Some(before), old);
    for ((lane, point), ticks) in open {
        if let Some(place) = place(snapshot, *lane) {
            grown[place].add_open(*point, *ticks, top_of(old, *lane));
        }
    }
    for (thread, grown) in threads.iter_mut().zip(grown) {
        let old = find(old, thread.lane.id).filter(|old| old.lane.tid == thread.lane.tid);
        let ticks = match (of_place(own, thread.lane.process), old) {
            // The process has not been read again since, so loads and rates stay.
            (Some(0), Some(old)) => {
                thread.go_on(old);
                continue;
            }
            (own, _) => own.filter(|own| *own > 0).unwrap_or(ticks),
        };
        let seconds = seconds(snapshot, ticks);
        // An ended thread measures nothing more, but a sum may add the figures of other ended
        // threads to the same lane.
        let had_ended = old.is_some_and(|old| old.lane.kind == LaneKind::Ended);
        let now = if had_ended { 0.0 } else { grown.exclusive as f64 / ticks as f64 };
        // The load of an ended thread drops to zero at once, instead of fading out.
        let is_at_rest = thread.lane.kind == LaneKind::Ended && grown.exclusive == 0;
        let before = old.filter(|old| old.settled && !is_at_rest).and_then(|old| old.load);
        thread.load = Some(smoothed(before, now, weight));
        let spent = old.and_then(|old| thread.lane.cpu_ns?.checked_sub(old.lane.cpu_ns?));
        let now = spent.map(|ns| ns as f64 / 1e9 / seconds);
        thread.cpu = now.map(|now| smoothed(old.and_then(|old| old.cpu), now, weight));
        thread.settled = true;
        let switches = thread.lane.switches.checked_sub(old.map_or(0, |old| old.lane.switches));
        thread.switch_rate = switches.map(|switches| switches as f64 / seconds);
        thread.top = top(&grown, old.and_then(|old| old.top));
        if process_of(snapshot, &thread.lane).state != ProcessState::Running {
            (thread.cpu, thread.switch_rate) = (None, None);
        }
    }
    threads
}

/// The threads of a process that has just ended: shares are over its whole life, and rates are
/// unknown.
pub(super) fn end(snapshot: &Snapshot, seconds: f64) -> Vec<Thread> {
    let mut threads = life(snapshot, &[], seconds);
    for thread in &mut threads {
        thread.switch_rate = None;
    }
    threads
}

/// The process of a thread: one of several, or the only one.
pub fn process_of<'a>(snapshot: &'a Snapshot, lane: &Lane) -> &'a Process {
    snapshot.member(lane.process).unwrap_or(&snapshot.process)
}

/// The name of a thread without its process. If there are several processes, a lane's name begins
/// with the process.
pub fn own_name<'a>(snapshot: &Snapshot, lane: &'a Lane) -> &'a str {
    let process = snapshot.member(lane.process).map(|process| format!("{process} "));
    process.and_then(|process| lane.name.strip_prefix(&*process)).unwrap_or(&lane.name)
}

/// The state of a thread in a word. No thread outlives its process, whatever its lane says.
pub fn state_word(snapshot: &Snapshot, lane: &Lane) -> &'static str {
    match (lane.kind, process_of(snapshot, lane).state) {
        (LaneKind::Overflow, _) => "shared",
        (LaneKind::Live, ProcessState::Crashed) => "crashed",
        (LaneKind::Live, ProcessState::Running) => "live",
        (LaneKind::Live, ProcessState::Exited | ProcessState::Ended) | (LaneKind::Ended, _) => {
            "ended"
        }
    }
}

/// The threads of a snapshot, with the loads and rates of the previous one: nothing has happened
/// since, or it is unknown what each thread did.
pub(super) fn keep(snapshot: &Snapshot, old: &[Thread]) -> Vec<Thread> {
    let (mut threads, _) = sums(snapshot, None, &[]);
    for thread in &mut threads {
        if let Some(old) = find(old, thread.lane.id) {
            thread.go_on(old);
        }
    }
    threads
}

/// A thread by its lane; `threads` is in the order of lanes.
pub fn find(threads: &[Thread], lane: u32) -> Option<&Thread> {
    let place = threads.binary_search_by_key(&lane, |thread| thread.lane.id).ok()?;
    Some(&threads[place])
}

/// The points of a lane, the greatest exclusive time first.
pub fn parts(snapshot: &Snapshot, lane: u32) -> Vec<ThreadPoint> {
    let of_lane = snapshot.cells.iter().filter(|cell| cell.lane == lane);
    let mut parts: Vec<ThreadPoint> = of_lane
        .map(|cell| ThreadPoint { point: cell.point, total: cell.total(), allocs: cell.allocs })
        .filter(|part| part.total.count > 0)
        .collect();
    parts.sort_by_key(|part| (std::cmp::Reverse(part.total.exclusive), part.point));
    parts
}

/// The threads without loads and rates, and the growth of each lane's sums since `before`, or since
/// the process began. Both snapshots have their cells in the same order, so one pass suffices: a
/// look-up of each cell would be a cache miss.
fn sums(
    snapshot: &Snapshot,
    before: Option<&Snapshot>,
    old: &[Thread],
) -> (Vec<Thread>, Vec<Grown>) {
    let thread = |lane: &Lane| Thread { lane: lane.clone(), ..Thread::default() };
    let mut threads: Vec<Thread> = snapshot.lanes.iter().map(thread).collect();
    let mut grown = vec![Grown::default(); snapshot.lanes.len()];
    let tops: Vec<Option<u32>> = snapshot.lanes.iter().map(|lane| top_of(old, lane.id)).collect();
    let mut cells = before.map_or(&[][..], |before| &before.cells).iter().peekable();
    // Both are in the order of the points.
    let mut points = snapshot.points.iter().peekable();
    for cell in &snapshot.cells {
        while points.next_if(|point| point.id < cell.point).is_some() {}
        // A device's time is not a thread's time.
        if points.peek().is_some_and(|point| point.id == cell.point && point.device) {
            continue;
        }
        let now = exclusive(cell);
        let place = place(snapshot, cell.lane);
        if let Some(place) = place {
            let thread = &mut threads[place];
            thread.points += usize::from(cell.stats.count > 0 || cell.retired.count > 0);
            thread.exclusive = thread.exclusive.saturating_add(now);
        }
        // Both snapshots share unchanged cells, and most are unchanged.
        if cells.next_if(|old| Arc::ptr_eq(old, cell)).is_some() {
            continue;
        }
        while cells.next_if(|old| old.key() < cell.key()).is_some() {}
        let same = cells.next_if(|old| old.key() == cell.key());
        if same.is_some_and(|same| Arc::ptr_eq(same, cell)) {
            continue;
        }
        let Some(place) = place else { continue };
        // A decrease means a reset; the value is then the time since the reset.
        let added = now.checked_sub(same.map_or(0, |same| exclusive(same))).unwrap_or(now);
        let point = points.peek().filter(|point| before.is_none() && point.id == cell.point);
        let added = point.map_or(added, |point| in_life(snapshot, point, added));
        let grown = &mut grown[place];
        grown.exclusive = grown.exclusive.saturating_add(added);
        if tops[place] == Some(cell.point) {
            grown.top = added;
        }
        if added > grown.most.map_or(0, |(_, most)| most) {
            grown.most = Some((cell.point, added));
        }
    }
    (threads, grown)
}

/// A point's time extrapolated to the process's whole life, at its rate since its figures began.
fn in_life(snapshot: &Snapshot, point: &Point, exclusive: u64) -> u64 {
    match Length::collected(snapshot, point).map(|length| length.ticks) {
        Some(ticks) if ticks < snapshot.elapsed_ticks as f64 => {
            (exclusive as f64 * (snapshot.elapsed_ticks as f64 / ticks)) as u64
        }
        _ => exclusive,
    }
}

/// The point that was the top one of a lane.
fn top_of(old: &[Thread], lane: u32) -> Option<u32> {
    find(old, lane).and_then(|old| old.top).map(|top| top.point)
}

impl Grown {
    /// Adds the growth of a point's open regions.
    fn add_open(&mut self, point: u32, ticks: f64, top: Option<u32>) {
        let add = |to: u64| (to as f64 + ticks).max(0.0) as u64;
        self.exclusive = add(self.exclusive);
        if top == Some(point) {
            self.top = add(self.top);
        }
        match self.most {
            Some((most, before)) if most == point => self.most = Some((most, add(before))),
            Some((_, most)) if most >= add(0) => {}
            _ if ticks >= 1.0 => self.most = Some((point, add(0))),
            _ => {}
        }
    }
}

fn top(grown: &Grown, old: Option<Top>) -> Option<Top> {
    let Some((point, most)) = grown.most else {
        return old;
    };
    let share = |ticks: u64| ticks as f64 / grown.exclusive as f64;
    match old {
        Some(old) if most as f64 <= grown.top as f64 * TAKES_OVER => {
            Some(Top { point: old.point, share: share(grown.top) })
        }
        _ => Some(Top { point, share: share(most) }),
    }
}

fn exclusive(cell: &Cell) -> u64 {
    cell.stats.exclusive.saturating_add(cell.retired.exclusive)
}

fn place(snapshot: &Snapshot, lane: u32) -> Option<usize> {
    let lanes = &snapshot.lanes;
    // A lane's index is nearly always its id.
    if lanes.get(lane as usize).is_some_and(|found| found.id == lane) {
        return Some(lane as usize);
    }
    lanes.binary_search_by_key(&lane, |lane| lane.id).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::{Synthetic, cell};

    /// Two snapshots a thousand ticks apart, of one thread. In each, points 1 and 2 have these
    /// exclusive ticks.
    fn apart(first: [u64; 2], second: [u64; 2]) -> (Snapshot, Snapshot) {
        let mut snapshot = Synthetic::new().poll().unwrap();
        snapshot.lanes.truncate(1);
        let with = |exclusive: [u64; 2], elapsed: u64| {
            let mut snapshot = snapshot.clone();
            snapshot.elapsed_ticks = elapsed;
            snapshot.lanes[0].switches = elapsed / 100;
            let [one, two] = exclusive;
            snapshot.cells = vec![cell(1, 0, [1, one, 0]), cell(2, 0, [1, two, 0])];
            snapshot
        };
        (with(first, 1000), with(second, 2000))
    }

    fn folded(first: [u64; 2], second: [u64; 2]) -> Model {
        let mut model = Model::default();
        let (first, second) = apart(first, second);
        model.fold(first);
        model.fold(second);
        model
    }

    #[test]
    fn a_share_is_the_sum_over_all_points() {
        let model = folded([100, 0], [300, 260]);
        let thread = &model.thread_figures()[0];
        assert_eq!(thread.load, Some(0.46));
        assert_eq!((thread.points, thread.exclusive), (2, 560));
        let top = thread.top.unwrap();
        assert_eq!(top.point, 2);
        assert!((top.share - 260.0 / 460.0).abs() < 1e-9);
    }

    #[test]
    fn the_kernels_share_is_smoothed_and_is_of_one_thread() {
        let (mut now, _) = apart([0, 0], [0, 0]);
        let mut model = Model::new(2.0);
        let mut share = |now: &mut Snapshot, cpu_ns: Option<u64>| {
            now.elapsed_ticks += now.clock.ticks_per_second as u64;
            now.lanes[0].cpu_ns = cpu_ns;
            model.fold(now.clone());
            model.thread_figures()[0].cpu
        };
        assert_eq!(share(&mut now, Some(5_000_000_000)), None, "since when is not known");
        assert_eq!(share(&mut now, Some(5_400_000_000)), Some(0.4));
        assert_eq!(share(&mut now, Some(6_200_000_000)), Some(0.4 + 0.5 * (0.8 - 0.4)));
        now.lanes[0].tid += 1;
        assert_eq!(share(&mut now, Some(7_000_000_000)), None, "another thread");
        assert_eq!(share(&mut now, None), None);
    }

    #[test]
    fn time_outside_all_points_is_never_negative() {
        let mut thread = folded([100, 0], [300, 260]).thread_figures()[0].clone();
        assert_eq!(thread.outside(), None, "the kernel's share is not known");
        thread.cpu = Some(0.5);
        assert!((thread.outside().unwrap() - 0.04).abs() < 1e-9);
        thread.cpu = Some(0.4);
        assert_eq!(thread.outside(), Some(0.0));
    }

    #[test]
    fn a_process_that_has_ended_leaves_its_threads_no_rates() {
        let (first, mut second) = apart([100, 0], [300, 260]);
        second.process.state = ProcessState::Crashed;
        let mut model = Model::default();
        model.fold(first.clone());
        let mut between = first;
        between.elapsed_ticks += 500;
        model.fold(between);
        assert!(model.thread_figures()[0].switch_rate.is_some());
        model.fold(second.clone());
        let thread = &model.thread_figures()[0];
        assert_eq!((thread.switch_rate, thread.cpu), (None, None));
        assert_eq!(thread.load, Some(0.28), "over all its life");
        assert_eq!(state_word(&second, &thread.lane), "crashed");
    }

    #[test]
    fn a_reset_is_no_negative_share() {
        let model = folded([900, 100], [50, 200]);
        let thread = &model.thread_figures()[0];
        assert_eq!(thread.load, Some(0.15));
        assert_eq!(thread.top.map(|top| top.point), Some(2));
    }

    #[test]
    fn the_top_point_is_only_replaced_by_one_that_has_clearly_more() {
        let grown = |top, most| Grown { exclusive: 1000, most: Some((2, most)), top };
        let old = Some(Top { point: 1, share: 0.5 });
        assert_eq!(super::top(&grown(400, 490), old).unwrap().point, 1);
        assert_eq!(super::top(&grown(400, 510), old).unwrap().point, 2);
        assert_eq!(super::top(&grown(0, 1), old).unwrap().point, 2);
        assert_eq!(super::top(&Grown::default(), old), old);
    }

    #[test]
    fn another_thread_on_the_lane_starts_without_the_past() {
        let (first, mut second) = apart([0, 0], [500, 0]);
        let mut third = second.clone();
        third.elapsed_ticks += 1000;
        third.lanes[0].tid += 1;
        third.lanes[0].switches = 7;
        second.lanes[0].switches = 50;
        let mut model = Model::default();
        for snapshot in [first, second, third] {
            model.fold(snapshot);
        }
        // The new thread's load does not start from the previous thread's load.
        assert_eq!(model.thread_figures()[0].load, Some(0.0));
    }

    #[test]
    fn cells_of_lanes_that_are_not_there_do_no_harm() {
        let (mut first, mut second) = apart([1, 2], [u64::MAX, u64::MAX]);
        for snapshot in [&mut first, &mut second] {
            let stray = Cell { point: 3, lane: 4000, ..Cell::default() };
            snapshot.cells.push(Arc::new(stray));
        }
        let mut model = Model::default();
        model.fold(first);
        model.fold(second);
        assert_eq!(model.thread_figures().len(), 1);
        assert_eq!(model.thread_figures()[0].exclusive, u64::MAX);
        let parts = parts(model.snapshot().unwrap(), 0);
        assert_eq!(parts.iter().map(|part| part.point).collect::<Vec<_>>(), [1, 2]);
    }
}
