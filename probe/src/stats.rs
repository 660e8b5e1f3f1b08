//! A program's view of its own points.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::time::Duration;

use pfp_shm_layout::amounts::MOST;
use pfp_shm_layout::cell::{Cell, CellPicture, CellRead, Sums};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::histogram::{self, BUCKETS, PARTS};
use pfp_shm_layout::reader::BucketCount;
use pfp_shm_layout::segment::Segment;

use crate::api;
use crate::engine::process;
use crate::point::Point;

/// Statistics of a point since its last reset, over all threads.
///
/// The fields are ticks of the [tick counter](crate::ticks) where not said otherwise. The
/// methods give times, converted by [`ticks_per_second`](crate::ticks_per_second) as it was
/// when the statistics were taken.
///
/// ```
/// static WORK: pfp::Point = pfp::Point::new("work");
///
/// for _ in 0..100 {
///     let _guard = WORK.measure();
/// }
/// # #[cfg(not(miri))]
/// if let Some(stats) = WORK.stats() {
///     println!("{} calls, {:?} each, 99 % below {:?}", stats.count, stats.mean(), stats.quantile(0.99));
/// }
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Finished measurements.
    pub count: u64,
    /// Ticks of the regions themselves, on a CPU.
    pub exclusive: u64,
    /// Ticks with nested regions, on a CPU; recursion counted once.
    pub inclusive: u64,
    /// Ticks between begin and end in which the thread did not run.
    pub off_cpu: u64,
    /// Switches noticed between begin and end.
    pub switches: u64,
    /// Least exclusive ticks; 0 without a measurement.
    pub min: u64,
    /// Most exclusive ticks.
    pub max: u64,
    /// Exclusive ticks of the last measurement; of several threads, of any.
    pub last: u64,
    /// Exponential average of exclusive ticks, weighted by count over threads;
    /// 0 while averaging is off.
    pub average: f64,
    /// The weight of a new value in that average; 0 while averaging is off.
    pub alpha: f64,
    sums: Sums,
    /// Ticks per second; 0 where there is nothing to convert.
    rate: f64,
    /// The buckets that are not empty, by value.
    histogram: Vec<BucketCount>,
}

impl Stats {
    /// Time of the regions themselves, on a CPU.
    #[must_use]
    pub fn exclusive(&self) -> Duration {
        self.time(self.exclusive as f64)
    }

    /// Time with nested regions, on a CPU; recursion counted once.
    #[must_use]
    pub fn inclusive(&self) -> Duration {
        self.time(self.inclusive as f64)
    }

    /// Time between begin and end in which the thread did not run.
    #[must_use]
    pub fn off_cpu(&self) -> Duration {
        self.time(self.off_cpu as f64)
    }

    /// Shortest exclusive time; zero without a measurement.
    #[must_use]
    pub fn min(&self) -> Duration {
        self.time(self.min as f64)
    }

    /// Longest exclusive time.
    #[must_use]
    pub fn max(&self) -> Duration {
        self.time(self.max as f64)
    }

    /// Exclusive time of the last measurement; of several threads, of any.
    #[must_use]
    pub fn last(&self) -> Duration {
        self.time(self.last as f64)
    }

    /// Mean exclusive time; zero without a measurement.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.time(self.mean_ticks())
    }

    /// Exponential average of exclusive time; none while averaging is off.
    #[must_use]
    pub fn average(&self) -> Option<Duration> {
        (self.alpha > 0.0).then(|| self.time(self.average))
    }

    /// Standard deviation of exclusive time, of a sample; zero below two measurements.
    #[must_use]
    pub fn std_dev(&self) -> Duration {
        self.time(self.variance().sqrt())
    }

    /// The exclusive time that a share `q` of all measurements does not exceed, as the
    /// histogram has it: `quantile(0.5)` is the median. None without a measurement, or if `q`
    /// is not in [0, 1].
    ///
    /// The answer is the middle of a bucket of the histogram, within `min` and `max`. So it
    /// is at most 1.6 % from the true quantile, and exact below 64 ticks; a `Duration` then
    /// rounds it to a nanosecond. Of a point in use, the histogram may be ahead of the other
    /// figures by the measurements that ended while it was read.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let total = self.histogram.iter().map(|bucket| bucket.count).sum::<u64>();
        if total == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0;
        let bucket = self.histogram.iter().find(|bucket| {
            seen += bucket.count;
            seen >= rank
        })?;
        let middle = bucket.low + (bucket.width - 1) / 2;
        Some(self.time(middle.max(self.min).min(self.max) as f64))
    }

    /// Mean exclusive ticks; 0 without a measurement.
    #[must_use]
    pub fn mean_ticks(&self) -> f64 {
        self.sums.mean().unwrap_or(0.0)
    }

    /// Sample variance of exclusive ticks; 0 below two measurements.
    #[must_use]
    pub fn variance(&self) -> f64 {
        self.sums.variance().unwrap_or(0.0)
    }

    fn time(&self, ticks: f64) -> Duration {
        // Without a rate that is no number.
        Duration::try_from_secs_f64(ticks / self.rate).unwrap_or_default()
    }
}

/// Whether a histogram is read beside the figures, which allocates.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Histogram {
    Read,
    LeftOut,
}

pub(crate) fn of_point(point: &'static Point, histogram: Histogram) -> Option<Stats> {
    // None for a refused point too: its number is another one's.
    let (stats, _) = of_points(point.word()?, std::iter::once(point), histogram)?;
    (stats.count > 0).then_some(stats)
}

/// Statistics of points that follow the same control word, all together, and the
/// sums of amounts that their cells have; none without a process.
pub(crate) fn of_points(
    word: &AtomicU64,
    points: impl Iterator<Item = &'static Point>,
    histogram: Histogram,
) -> Option<(Stats, [u128; MOST])> {
    let control = Control(word.load(Relaxed));
    let process = process::current()?;
    let mut all = Collected { epoch: control.epoch(), ..Collected::default() };
    all.histogram = (histogram == Histogram::Read).then(Vec::new);
    for point in points {
        for lane in &process.lanes {
            // SAFETY: null, or pages that stay mapped as long as the process runs.
            let thread = unsafe { lane.load(Acquire).as_ref() };
            if let Some(cell) = thread.and_then(|thread| thread.cell_of_any(point.index())) {
                all.add(&process.segment, cell);
            }
        }
        for offset in process.segment.entry(point.index())?.shared_cells() {
            if let Some(cell) = process.segment.shared_cell(offset) {
                all.add(&process.segment, cell);
            }
        }
    }
    let Collected { sums, weighted, averaged, amounts, histogram, .. } = all;
    let stats = Stats {
        count: sums.count,
        exclusive: sums.exclusive,
        inclusive: sums.inclusive,
        off_cpu: sums.off_cpu,
        switches: sums.switches,
        min: if sums.count > 0 { sums.min } else { 0 },
        max: sums.max,
        last: sums.last,
        average: weighted / averaged.max(1) as f64,
        alpha: control.alpha().unwrap_or(0.0),
        sums,
        // C has no times, and asks in signal handlers.
        rate: histogram.as_ref().map_or(0.0, |_| api::ticks_per_second()),
        histogram: histogram.map_or_else(Vec::new, merged),
    };
    Some((stats, amounts))
}

/// Buckets of several cells as those of one.
fn merged(mut buckets: Vec<BucketCount>) -> Vec<BucketCount> {
    buckets.sort_unstable_by_key(|bucket| bucket.low);
    buckets.dedup_by(|next, kept| {
        let is_same = next.low == kept.low;
        kept.count += if is_same { next.count } else { 0 };
        is_same
    });
    buckets
}

/// What several cells have together.
#[derive(Default)]
struct Collected {
    epoch: u32,
    sums: Sums,
    weighted: f64,
    averaged: u64,
    amounts: [u128; MOST],
    /// Buckets of all cells; none if nobody asks for them.
    histogram: Option<Vec<BucketCount>>,
}

impl Collected {
    fn add(&mut self, segment: &Segment, cell: &Cell) {
        let Some(picture) = read(segment, cell, self.epoch, self.histogram.as_mut()) else {
            return;
        };
        self.weighted += picture.live.average() * picture.live.count as f64;
        self.averaged += picture.live.count;
        self.sums.merge(&picture.live);
        self.sums.merge(&picture.settled);
        if picture.live.count > 0 {
            self.sums.last = picture.live.last;
        }
        for of in [picture.amounts.live, picture.amounts.settled] {
            for (sum, more) in self.amounts.iter_mut().zip(of) {
                *sum += u128::from(more);
            }
        }
    }
}

/// Copies a cell while its thread may write it, and adds the buckets of its histogram; none
/// if it has nothing of this epoch.
fn read(
    segment: &Segment,
    cell: &Cell,
    epoch: u32,
    mut histogram: Option<&mut Vec<BucketCount>>,
) -> Option<CellPicture> {
    let mut picture = CellPicture::default();
    // Bounded, so that a caller on the writing thread itself, in a signal
    // handler, cannot hang.
    for _ in 0..1000 {
        if cell.read_with(&mut picture, |chunk| segment.sums(chunk)) != CellRead::Whole {
            continue;
        }
        if picture.epoch != epoch {
            return None;
        }
        let Some(buckets) = histogram.as_mut() else { return Some(picture) };
        let before = buckets.len();
        add_buckets(segment, &picture, buckets);
        if !cell.restarted_since(picture.restarts) {
            return Some(picture);
        }
        // Of the next window, in part.
        buckets.truncate(before);
    }
    None
}

/// Adds the buckets of a cell's histogram that are not empty.
fn add_buckets(segment: &Segment, picture: &CellPicture, to: &mut Vec<BucketCount>) {
    let bucket = |part, at, count| {
        let (low, width) = histogram::bounds(part, at);
        BucketCount { low, width, count }
    };
    for part in (0..PARTS).filter(|part| picture.parts.0[*part] != 0) {
        let Some(chunk) = segment.chunk(picture.parts.0[part]) else { continue };
        let counts = (0..BUCKETS).map(|at| (at, chunk.0[at].load(Relaxed)));
        to.extend(counts.filter(|(_, count)| *count > 0).map(|(at, n)| bucket(part, at, n)));
    }
    // The last measurement, which the next one counts.
    if let Some(last) = picture.uncounted {
        let (part, at) = histogram::locate(last.min(histogram::LIMIT - 1));
        to.push(bucket(part, at, 1));
    }
}
