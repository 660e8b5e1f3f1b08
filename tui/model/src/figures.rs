//! The figures of one point, and how they are computed.

mod amounts;

use std::cell::OnceCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub use self::amounts::{Amount, BYTES, FLOPS, TupleFigures, amounts, intensity};
use super::histogram::{self, Quantiles};
use super::history::{History, Sample};
use super::interval::{Interval, smoothed};
use super::open::OpenNow;
use super::row::PointRow;
use super::threads::state_word;
use super::window::Length;
use pfp_read::snapshot::{
    AMOUNTS, Allocs, Bucket, Cell, HeapSamples, Lane, LaneKind, OPENMP, Point, PointFlag,
    PointState, Process, ProcessState, Snapshot, Stats, total,
};
use pfp_read::waits::{PointReport, RUN_QUEUE, WaitTotals};

/// One point, all lanes together.
#[derive(Debug)]
pub struct Figures {
    pub(super) snapshot: Arc<Snapshot>,
    index: usize,
    cells: Range<usize>,
    total: Stats,
    pub(super) state: PointState,
    /// The point's flags, in the order of [`PointFlag::ALL`].
    pub(super) flags: [bool; PointFlag::ALL.len()],
    pub(super) open: Option<OpenNow>,
    /// The sum of each amount over all measurements.
    amounts: [u128; AMOUNTS],
    /// What its regions have allocated.
    allocs: Allocs,
    /// The estimates by samples of these allocations.
    heap: HeapSamples,
    /// The elapsed ticks and the live bytes from which their growth counts.
    first_live: Option<(u64, f64)>,
    rates: Rates,
    history: History,
    quantiles: OnceCell<Option<Quantiles>>,
    /// Quantiles of an earlier snapshot, and how many snapshots ago that was.
    earlier: Option<(Option<Quantiles>, u32)>,
    /// Index of the point in the snapshot's report of waits.
    waits: Option<usize>,
    /// Time waited, and time in the run queue, since the threads were first sampled; nanoseconds.
    waited: [u64; 2],
}

/// The figures of the last interval.
#[derive(Debug, Default)]
struct Rates {
    rate: Option<f64>,
    load: Option<f64>,
    /// Whether `load` is the load of recent intervals, and not of a whole life or from before a
    /// gap. Smoothing continues only from a load of recent intervals.
    settled: bool,
    /// Amounts per second.
    amounts: [Option<f64>; AMOUNTS],
    /// Exclusive allocations per second.
    allocs: Option<f64>,
    /// The pace of each process if the point is a sum over processes, else empty.
    paces: Vec<Pace>,
}

/// Length of the slices in which loads are compared, seconds.
const SLICE: f64 = 5.0;
/// Minimum change of a load that is marked: a share of a CPU, and a factor.
const MUCH: f64 = 0.05;
const TIMES: f64 = 1.5;

/// One point on one lane.
#[derive(Clone, Debug)]
pub struct LaneFigures<'a> {
    /// The lane. `None` if the snapshot names a lane that it does not have.
    pub lane: Option<&'a Lane>,
    /// Id of the lane.
    pub id: u32,
    /// The lane's threads, past and present, together.
    pub total: Stats,
    /// What the regions on the lane have allocated.
    pub allocs: Allocs,
}

/// A summed point's figures in one of its processes.
#[derive(Clone, Copy, Debug, Default)]
struct ProcessSums {
    count: u64,
    exclusive: u64,
    allocs: u64,
    amounts: [u128; AMOUNTS],
}

impl ProcessSums {
    fn add(&mut self, cell: &Arc<Cell>) {
        for stats in [&cell.stats, &cell.retired] {
            self.count = self.count.saturating_add(stats.count);
            self.exclusive = self.exclusive.saturating_add(stats.exclusive);
        }
        self.allocs = self.allocs.saturating_add(cell.allocs.allocs);
        for (sum, more) in self.amounts.iter_mut().zip(amounts(std::slice::from_ref(cell))) {
            *sum = sum.saturating_add(more);
        }
    }
}

/// The growth of a summed point's figures in one of its processes, per tick.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    count: f64,
    exclusive: f64,
    allocs: f64,
    amounts: [f64; AMOUNTS],
}

impl Pace {
    fn between(then: &ProcessSums, now: &ProcessSums, ticks: u64) -> Self {
        let pace = |then: u64, now: u64| now.saturating_sub(then) as f64 / ticks as f64;
        Self {
            count: pace(then.count, now.count),
            exclusive: pace(then.exclusive, now.exclusive),
            allocs: pace(then.allocs, now.allocs),
            amounts: std::array::from_fn(|place| {
                now.amounts[place].saturating_sub(then.amounts[place]) as f64 / ticks as f64
            }),
        }
    }
}

/// What these cells' regions have allocated.
pub fn allocs(cells: &[Arc<Cell>]) -> Allocs {
    cells.iter().fold(Allocs::default(), |sum, cell| sum.plus(&cell.allocs))
}

/// The estimates by samples of the allocations of these cells' regions.
pub fn heap_samples(cells: &[Arc<Cell>]) -> HeapSamples {
    cells.iter().fold(HeapSamples::default(), |sum, cell| sum.plus(&cell.heap))
}

impl Figures {
    /// The figures of every point in a snapshot, without rates and history.
    pub(super) fn all(snapshot: &Arc<Snapshot>) -> Vec<Self> {
        let mut first = 0;
        let cells = &snapshot.cells;
        let reports = snapshot.waits.iter().flat_map(|waits| waits.points.iter().enumerate());
        let waits: HashMap<u32, usize> =
            reports.filter_map(|(place, report)| Some((report.id?, place))).collect();
        let mut waited: HashMap<u32, [u64; 2]> = HashMap::new();
        for total in WaitTotals::of(snapshot).iter().flat_map(|totals| &totals.waits) {
            let Some(id) = total.point else { continue };
            let sums = waited.entry(id).or_default();
            let sum = &mut sums[usize::from(total.reason == RUN_QUEUE)];
            *sum = sum.saturating_add(total.ns);
        }
        let of_point = |(index, point): (usize, &Point)| {
            // Points and cells have the same order, so walk both side by side: a search would
            // access distant cells.
            let behind = |cells: &[Arc<Cell>], is_passed: &dyn Fn(u32) -> bool| {
                cells.iter().position(|cell| !is_passed(cell.point)).unwrap_or(cells.len())
            };
            first += behind(&cells[first..], &|id| id < point.id);
            let end = first + behind(&cells[first..], &|id| id == point.id);
            let range = first..end;
            first = end;
            Self {
                snapshot: Arc::clone(snapshot),
                index,
                total: total(&cells[range.clone()]),
                cells: range.clone(),
                state: point.state,
                flags: PointFlag::ALL.map(|flag| point.has(flag)),
                open: None,
                amounts: amounts(&cells[range.clone()]),
                allocs: allocs(&cells[range.clone()]),
                heap: heap_samples(&cells[range.clone()]),
                first_live: None,
                rates: Rates::default(),
                history: History::default(),
                quantiles: OnceCell::new(),
                earlier: None,
                waits: waits.get(&point.id).copied(),
                waited: waited.get(&point.id).copied().unwrap_or_default(),
            }
        };
        snapshot.points.iter().enumerate().map(of_point).collect()
    }

    /// Computes rates over all the time since the figures began.
    pub(super) fn take_life(&mut self) {
        let Some(Length { ticks, seconds }) = Length::collected(&self.snapshot, self.point())
        else {
            return;
        };
        self.rates.rate = Some(self.total.count as f64 / seconds);
        self.rates.amounts = self.amounts.map(|sum| Some(sum as f64 / seconds));
        self.rates.allocs = Some(self.allocs.allocs as f64 / seconds);
        if self.has_load() {
            let open = self.open.and_then(|open| open.exclusive).unwrap_or(0);
            self.rates.load = Some(self.total.exclusive.saturating_add(open) as f64 / ticks);
        }
    }

    /// Computes rates over the interval since `old`, which is `None` for a point that appeared
    /// within the interval. `open` is the growth of the point's open regions in ticks, or `None` if
    /// a reset hides it. `own` has the length of the interval for each of several processes, if
    /// known. After a reset within the interval, the rates are over the time since the reset.
    pub(super) fn take_interval(
        &mut self,
        old: Option<Self>,
        open: Option<f64>,
        own: &[Option<u64>],
        Interval { ticks, seconds, weight }: Interval,
    ) {
        let began = self.snapshot.elapsed_ticks.saturating_sub(ticks);
        let is_same = old.as_ref().is_some_and(|old| old.point().resets == self.point().resets);
        let since = self.point().since_ticks.filter(|since| *since >= began && !is_same);
        // The part of the interval that the figures cover.
        let share = since.map_or(1.0, |since| {
            self.snapshot.elapsed_ticks.saturating_sub(since) as f64 / ticks as f64
        });
        let (seconds, weight) = (seconds * share, weight * share);
        let before = match &old {
            Some(old) if is_same => Some((old.amounts, old.total.count, old.total.exclusive)),
            Some(_) if since.is_none() => None,
            _ => Some(([0; AMOUNTS], 0, 0)),
        };
        let before = before.filter(|_| share > 0.0);
        let same = old.as_ref().filter(|_| is_same);
        let paces = same.and_then(|old| self.paces(old, own)).unwrap_or_default();
        let of_interval = |of: &dyn Fn(&Pace) -> f64| {
            (!paces.is_empty()).then(|| paces.iter().map(of).sum::<f64>() * ticks as f64)
        };
        let amounts = std::array::from_fn(|place| {
            let (amounts_before, ..) = before?;
            let more = match of_interval(&|pace| pace.amounts[place]) {
                Some(more) => more,
                None => self.amounts[place].checked_sub(amounts_before[place])? as f64,
            };
            Some(more / seconds)
        });
        let grown = |now: u64, before: Option<u64>| Some(now.checked_sub(before?)? as f64);
        let allocs_before = before.map(|_| same.map_or(0, |old| old.allocs.allocs));
        let allocs = of_interval(&|pace| pace.allocs)
            .or_else(|| grown(self.allocs.allocs, allocs_before))
            .map(|more| more / seconds);
        let (count_before, exclusive_before) =
            before.map(|(_, count, exclusive)| (count, exclusive)).unzip();
        let count =
            of_interval(&|pace| pace.count).or_else(|| grown(self.total.count, count_before));
        let exclusive = of_interval(&|pace| pace.exclusive)
            .or_else(|| grown(self.total.exclusive, exclusive_before));
        let rate = count.map(|count| count / seconds);
        let load = exclusive
            .filter(|_| self.has_load())
            // When a region ends, its time moves from the open regions into the sums.
            .and_then(|n| Some((n + open?).max(0.0) / (ticks as f64 * share)));
        // The load of a point that is off drops to zero at once, instead of fading out.
        let is_at_rest = self.point().state != PointState::On && load == Some(0.0);
        let smooth = old.as_ref().map(|old| &old.rates).filter(|it| it.settled && !is_at_rest);
        let smooth = load.map(|now| smoothed(smooth.and_then(|it| it.load), now, weight));
        let settled = load.is_some();
        self.rates = Rates { rate, load: smooth, settled, amounts, allocs, paces };
        self.first_live = self.first_live(old.as_ref(), began);
        if let Some(old) = old {
            if old.total == self.total {
                self.quantiles = old.quantiles;
            } else if old.point().resets == self.point().resets {
                self.earlier = match old.quantiles.get() {
                    Some(quantiles) => Some((*quantiles, 1)),
                    None => old.earlier.map(|(quantiles, ago)| (quantiles, ago + 1)),
                };
            }
            self.history = old.history;
        }
        let at_ticks = self.snapshot.elapsed_ticks;
        self.history.push(at_ticks.saturating_sub(ticks), Sample { at_ticks, load });
    }

    /// The moment from which the growth of live memory counts, and the live bytes then: the first
    /// snapshot, the first one after a reset, or the mark. A point that appeared after `began` had
    /// none. In a sum, the growth counts from now if a process has joined, with memory of any age,
    /// or has ended.
    fn first_live(&self, old: Option<&Self>, began: u64) -> Option<(u64, f64)> {
        let running = |figures: &Self| {
            let members = figures.snapshot.process.members.iter();
            members.filter(|member| member.state == ProcessState::Running).count()
        };
        let is_same = |old: &Self| {
            old.point().resets == self.point().resets
                && (!self.is_of_sum() || running(old) == running(self))
        };
        Some(match old {
            Some(old) if is_same(old) => old.first_live.unwrap_or_else(|| old.live_now()),
            None if !self.is_of_sum() => (began, 0.0),
            _ => self.live_now(),
        })
    }

    /// The elapsed ticks, and the live bytes.
    fn live_now(&self) -> (u64, f64) {
        (self.snapshot.elapsed_ticks, self.heap.live_bytes as f64)
    }

    /// From now on, counts the growth of live memory from this moment.
    pub(super) fn mark_live(&mut self) {
        self.first_live = Some(self.live_now());
    }

    /// The pace of each process of a sum since `old`. A process that was not read again keeps its
    /// pace; a late process, or one that had ended, has the pace zero. `None` if the point is not a
    /// sum, or the age of a process is unknown.
    fn paces(&self, old: &Self, own: &[Option<u64>]) -> Option<Vec<Pace>> {
        if !self.is_of_sum() {
            return None;
        }
        let (before, now) = (old.of_each()?, self.of_each()?);
        let members = self.snapshot.process.members.iter().enumerate();
        let known = &old.snapshot.process.members;
        let pace = |(place, process): (usize, &Process)| {
            let ticks = (*own.get(place)?)?;
            let is_same = |known: &Process| known.segment_id == process.segment_id;
            // Nearly always, each process has the place that it had before.
            let was = match known.get(place).is_some_and(is_same) {
                true => Some(place),
                false => known.iter().position(is_same),
            };
            let had_ended = was.is_some_and(|was| known[was].state != ProcessState::Running);
            let then = was.and_then(|was| before.get(was)).copied().unwrap_or_default();
            Some(match ticks {
                _ if process.late_since_unix_ns.is_some() => Pace::default(),
                // A sum may add the figures of other ended processes to a process that has ended.
                _ if had_ended => Pace::default(),
                0 if process.state != ProcessState::Running => Pace::default(),
                0 => was.and_then(|was| old.rates.paces.get(was)).copied().unwrap_or_default(),
                ticks => Pace::between(&then, &now[place], ticks),
            })
        };
        members.map(pace).collect()
    }

    /// The sums of each process of a sum. `None` if a cell's process is unknown.
    fn of_each(&self) -> Option<Vec<ProcessSums>> {
        let mut of_each = vec![ProcessSums::default(); self.snapshot.process.members.len()];
        for cell in self.cells() {
            let place = self.lane(cell.lane)?.process?;
            of_each.get_mut(place as usize)?.add(cell);
        }
        Some(of_each)
    }

    /// Handles the end of the process: the load is over its whole life, and there are no rates any
    /// more.
    pub(super) fn take_end(&mut self) {
        let life = Length::collected(&self.snapshot, self.point()).filter(|_| self.has_load());
        let load = life.map(|life| self.total.exclusive as f64 / life.ticks);
        self.rates = Rates { load, ..Rates::default() };
    }

    /// Whether the point has a load. A device's time has none. The load of wall-clock spans may
    /// exceed 1, since they overlap; no sum of loads includes it.
    fn has_load(&self) -> bool {
        !self.point().device || self.point().wall
    }

    /// Whether the point's process has ended.
    pub fn is_ended(&self) -> bool {
        let process = self.process().unwrap_or(&self.snapshot.process);
        process.state != ProcessState::Running
    }

    /// Whether newer figures of the point's process are overdue.
    pub(super) fn is_late(&self) -> bool {
        self.process().is_some_and(|process| process.late_since_unix_ns.is_some())
    }

    /// Handles an interval for which nothing is known.
    pub(super) fn take_gap(&mut self) {
        self.rates = Rates::default();
        self.mark_gap();
    }

    /// The state of a thread of the point's process, in a word.
    pub fn state_of(&self, lane: &Lane) -> &'static str {
        state_word(&self.snapshot, lane)
    }

    /// Takes over the rates and the history of `old`, since nothing happened in between.
    pub(super) fn keep(&mut self, old: Option<Self>) {
        if let Some(old) = old {
            self.rates = old.rates;
            self.history = old.history;
            self.first_live = old.first_live;
        }
    }

    /// Marks that the next sample is not adjacent to the last one.
    pub(super) fn mark_gap(&mut self) {
        let at_ticks = self.snapshot.elapsed_ticks;
        self.history.push(at_ticks, Sample { at_ticks, load: None });
        self.rates.settled = false;
    }

    /// The point itself. For its state, use [`Self::state`].
    #[inline]
    pub fn point(&self) -> &Point {
        &self.snapshot.points[self.index]
    }

    /// Id of the point.
    #[inline]
    pub fn id(&self) -> u32 {
        self.point().id
    }

    /// Ticks per second of its times.
    pub fn ticks_per_second(&self) -> f64 {
        self.snapshot.clock.ticks_per_second
    }

    /// Name of the point, or its id as in `#5` if the point has no name.
    pub fn name(&self) -> String {
        self.point().shown_name()
    }

    /// Id of the point in its own process.
    pub fn number(&self) -> u32 {
        self.point().number.unwrap_or(self.point().id)
    }

    /// Process of the point, if there are several processes.
    pub fn process(&self) -> Option<&Process> {
        self.snapshot.member(self.point().process)
    }

    /// Process of the point, or all processes over which the point is summed.
    pub fn processes(&self) -> impl Iterator<Item = &Process> {
        self.row().processes()
    }

    /// The row for testing a filter.
    pub(crate) fn row(&self) -> PointRow<'_> {
        PointRow { snapshot: &self.snapshot, point: self.point(), cells: self.cells() }
    }

    /// The point's state, including changes that the user has just made.
    pub fn state(&self) -> PointState {
        self.state
    }

    /// Whether the point has a flag, including changes that the user has just made.
    pub fn has(&self, flag: PointFlag) -> bool {
        self.flags[flag as usize]
    }

    /// Sums over all lanes and threads.
    pub fn total(&self) -> &Stats {
        &self.total
    }

    /// Whether the point has a measurement since its last reset.
    pub fn is_used(&self) -> bool {
        self.total.count > 0
    }

    /// Measurements per second.
    pub fn rate(&self) -> Option<f64> {
        self.rates.rate
    }

    /// What the point's regions have allocated. `None` if they do not count it and have not done so
    /// since the last reset.
    pub fn allocs(&self) -> Option<&Allocs> {
        (self.allocs.is_any() || self.heap.is_any()).then_some(&self.allocs)
    }

    /// A figure of the allocations for each region that has counted them.
    pub fn allocs_per_call(&self, of: fn(&Allocs) -> u64) -> Option<f64> {
        let allocs = self.allocs().filter(|allocs| allocs.calls > 0)?;
        Some(of(allocs) as f64 / allocs.calls as f64)
    }

    /// Bytes that the point's regions have allocated and that are not freed yet, estimated by
    /// samples. `None` if nothing was counted.
    pub fn live_bytes(&self) -> Option<f64> {
        self.allocs().map(|_| self.heap.live_bytes as f64)
    }

    /// The estimates by samples of these allocations.
    pub fn heap(&self) -> &HeapSamples {
        &self.heap
    }

    /// Mean age of the [live bytes](Self::live_bytes), ticks. Samples have their times in whole
    /// seconds. `None` without live bytes.
    pub fn live_age(&self) -> Option<f64> {
        let HeapSamples { live_samples, live_births, .. } = self.heap;
        let born = (live_samples > 0).then(|| live_births as f64 / live_samples as f64)?;
        let seconds = (self.snapshot.taken_unix_ns as f64 / 1e9 - born).max(0.0);
        Some(seconds * self.snapshot.clock.ticks_per_second)
    }

    /// Standard error of [`Self::live_bytes`], as a share of it.
    pub fn live_error(&self) -> Option<f64> {
        let samples = self.heap.live_samples;
        (samples > 0).then(|| 1.0 / (samples as f64).sqrt())
    }

    /// Growth of [`Self::live_bytes`] since the first snapshot of the process or, if that is later,
    /// the point's last reset or the mark.
    pub fn live_grown(&self) -> Option<f64> {
        let (_, bytes) = self.first_live?;
        Some(self.live_bytes()? - bytes)
    }

    /// [`Self::live_grown`] per second.
    pub fn live_growth(&self) -> Option<f64> {
        let (ticks, _) = self.first_live?;
        let ticks = self.snapshot.elapsed_ticks.checked_sub(ticks).filter(|ticks| *ticks > 0)?;
        let seconds = ticks as f64 / self.snapshot.clock.ticks_per_second;
        Some(self.live_grown()? / seconds)
    }

    /// Exclusive allocations per second.
    pub fn alloc_rate(&self) -> Option<f64> {
        self.rates.allocs.filter(|_| self.allocs().is_some())
    }

    /// What the point's threads waited for in the last seconds. `None` if that is not sampled.
    pub fn waits(&self) -> Option<&PointReport> {
        self.snapshot.waits.as_ref()?.points.get(self.waits?)
    }

    /// Time that the point's threads have waited since they were first sampled, ticks. `None` if
    /// they are not sampled.
    pub fn waited(&self) -> Option<f64> {
        self.ticks_of(self.waited[0])
    }

    /// Time that the point's threads were in the run queue since they were first sampled, ticks.
    /// `None` if they are not sampled.
    pub fn queued(&self) -> Option<f64> {
        self.ticks_of(self.waited[1])
    }

    fn ticks_of(&self, ns: u64) -> Option<f64> {
        WaitTotals::of(&self.snapshot)?;
        Some(ns as f64 / 1e9 * self.snapshot.clock.ticks_per_second)
    }

    /// The open regions of the point, if any.
    pub fn open(&self) -> Option<&OpenNow> {
        self.open.as_ref()
    }

    /// Smoothed load, as a share of one CPU. The load may exceed 1, since several threads can be in
    /// the point at once. Open regions count if their time is known.
    pub fn load(&self) -> Option<f64> {
        self.rates.load
    }

    /// Whether the point is a sum over several processes.
    pub fn is_of_sum(&self) -> bool {
        self.snapshot.process.members.len() > 1 && self.point().process.is_none()
    }

    /// The load imbalance of a parallel region, or of a point that is summed over several
    /// processes: the greatest exclusive time of a process or thread over the mean. The imbalance
    /// is 1 if all have the same time. If one process or thread does all the work, the imbalance is
    /// the number of processes or threads. Processes that never reached the point count, too. In a
    /// parallel region only the work counts, not the wait.
    pub fn imbalance(&self) -> Option<f64> {
        let of_each: Vec<u128> = match self.point() {
            _ if self.is_of_sum() => {
                self.of_each()?.iter().map(|sums| u128::from(sums.exclusive)).collect()
            }
            point if point.domain() == Some(OPENMP) && point.name.ends_with(" busy") => {
                let totals = self.lanes().map(|part| part.total);
                let used = totals.filter(|total| total.count > 0);
                used.map(|total| u128::from(total.exclusive)).collect()
            }
            _ => return None,
        };
        let most = of_each.iter().copied().max()?;
        let all: u128 = of_each.iter().sum();
        (all > 0).then(|| most as f64 / (all as f64 / of_each.len() as f64))
    }

    /// Loads of the last intervals.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Whether the point's load has changed much within the last minute, and if so, whether the
    /// load has increased.
    pub fn rises(&self) -> Option<bool> {
        let rate = self.snapshot.clock.ticks_per_second;
        let (now, slice) = (i128::from(self.snapshot.elapsed_ticks), (SLICE * rate) as u64);
        let slices = self.history.columns(now - i128::from(slice) * 12, slice, 12);
        // The newest load and the oldest known one of the minute.
        let last = slices.last()?.as_ref()?.mean;
        let first = slices[..9].iter().flatten().next()?.mean;
        let (less, more) = (last.min(first), last.max(first));
        (!self.is_ended() && more - less >= MUCH && more >= TIMES * less).then_some(last > first)
    }

    /// Mean exclusive ticks.
    pub fn mean(&self) -> Option<f64> {
        self.total.mean()
    }

    /// Standard deviation of exclusive ticks.
    pub fn deviation(&self) -> Option<f64> {
        self.total.deviation()
    }

    /// Ticks by the clock from the begins to the ends. Time off the CPU counts at each level of a
    /// recursion.
    pub fn time(&self) -> Option<f64> {
        self.is_used().then_some(self.total.inclusive as f64 + self.total.off_cpu as f64)
    }

    /// Mean ticks by the clock from begin to end.
    pub fn mean_time(&self) -> Option<f64> {
        self.time().map(|ticks| ticks / self.total.count as f64)
    }

    /// Most ticks by the clock from begin to end; up to now for a region that is open. A region
    /// that kept the CPU, and was shorter than about a millisecond, counts with its exclusive
    /// ticks, or with the mean if that is longer.
    pub fn longest_time(&self) -> Option<f64> {
        let longest = self.total.longest.max(self.total.max) as f64;
        let ended = self.mean_time().map(|mean| mean.max(longest));
        let open = self.open.map(|open| open.span as f64);
        ended.into_iter().chain(open).reduce(f64::max)
    }

    /// Share of the time between begins and ends in which the threads did not run.
    pub fn off_share(&self) -> Option<f64> {
        self.total.off_share()
    }

    /// The quantiles that the table shows. They are computed on first use, so only rows on the
    /// screen cost time.
    pub fn quantiles(&self) -> Option<Quantiles> {
        *self.quantiles.get_or_init(|| {
            let [p50, p90, p99] = self.quantiles_at([0.5, 0.9, 0.99])?;
            Some(Quantiles { p50, p90, p99 })
        })
    }

    /// This snapshot's quantiles if they are computed, else an earlier snapshot's.
    pub(crate) fn quantiles_lately(&self) -> Option<Quantiles> {
        match (self.quantiles.get(), self.earlier) {
            (None, Some((earlier, _))) => earlier,
            _ => self.quantiles(),
        }
    }

    /// The age of the known quantiles in snapshots. `None` if they are of this snapshot, or there
    /// are none.
    pub(crate) fn quantiles_ago(&self) -> Option<u32> {
        self.earlier.filter(|_| self.quantiles.get().is_none()).map(|(_, ago)| ago)
    }

    /// Number of buckets that computing its quantiles adds up.
    pub(crate) fn bucket_count(&self) -> usize {
        self.cells().iter().map(|cell| cell.histogram.len()).sum()
    }

    /// Any quantiles of exclusive ticks, computed anew at every call.
    pub fn quantiles_at<const N: usize>(&self, wanted: [f64; N]) -> Option<[u64; N]> {
        let buckets = self.cells().iter().flat_map(|cell| &cell.histogram);
        histogram::quantiles(buckets, (self.total.min, self.total.max), wanted)
    }

    /// The histogram of exclusive ticks over all lanes.
    pub fn buckets(&self) -> Vec<Bucket> {
        histogram::merge(self.cells().iter().map(|cell| cell.histogram.as_slice()))
    }

    /// The point's figures lane by lane.
    pub fn lanes(&self) -> impl Iterator<Item = LaneFigures<'_>> {
        self.cells().iter().map(|cell| LaneFigures {
            lane: self.lane(cell.lane),
            id: cell.lane,
            total: cell.total(),
            allocs: cell.allocs,
        })
    }

    /// Number of lanes on which the point was measured.
    pub fn threads(&self) -> usize {
        self.cells.len()
    }

    /// Whether threads without a lane of their own have measured it on the shared lane.
    pub fn is_shared(&self) -> bool {
        let is_shared = |lane: &Lane| lane.kind == LaneKind::Overflow;
        self.cells().iter().any(|cell| self.lane(cell.lane).is_some_and(is_shared))
    }

    fn lane(&self, id: u32) -> Option<&Lane> {
        self.snapshot.lane(id)
    }

    fn cells(&self) -> &[Arc<Cell>] {
        &self.snapshot.cells[self.cells.clone()]
    }
}
