//! Records measurements that the ring cannot hold.

use super::{Cell, FLIP, KEPT_CPU, Staged, get, put};
use crate::layout::amounts::{self, Amounts, SumWords};
use crate::sync::{AtomicU64, Ordering};

/// One finished measurement, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Ticks of the region itself.
    pub exclusive: u64,
    /// Ticks with nested regions, less what nested regions of the same point have added.
    pub inclusive: u64,
    /// Time off the CPU between begin and end, and time by the clock, if known.
    pub away: Option<Away>,
}

/// Time off the CPU, and time by the clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away {
    /// Ticks off the CPU.
    pub off_cpu: u64,
    /// Number of context switches that were noticed.
    pub switches: u64,
    /// Ticks by the clock from begin to end.
    pub elapsed: u64,
}

/// A histogram bucket and its count.
#[derive(Clone, Copy, Debug)]
pub struct CountedBucket<'a> {
    bucket: &'a AtomicU64,
    count: u64,
}

impl<'a> CountedBucket<'a> {
    /// Reads the count of a bucket.
    #[must_use]
    pub fn new(bucket: &'a AtomicU64) -> Self {
        Self { bucket, count: bucket.load(Ordering::Relaxed) }
    }
}

impl Cell {
    /// The ticks that count in the extremes and the histogram for a region of `exclusive` ticks
    /// that was off the CPU for a time known to within `error` ticks.
    ///
    /// Some of the time off the CPU is noticed late and charged to a later region, which is then
    /// too short or has no ticks at all. Sums are right, since another region is too long by the
    /// same time. If the region has no ticks, or at most `error` ticks less than the shortest
    /// region that kept the CPU, it counts as if it were as long as that shortest region.
    #[must_use]
    pub fn credible(&self, exclusive: u64, error: u64) -> u64 {
        if self.point.load(Ordering::Relaxed) & KEPT_CPU == 0 {
            return exclusive;
        }
        let live = self.published_by(self.seq.load(Ordering::Relaxed)).live;
        let least = get(&live.words.min);
        let is_near = (exclusive..=exclusive.saturating_add(error)).contains(&least);
        if is_near || exclusive == 0 { least } else { exclusive }
    }

    /// The minimum so far, for a region that kept the CPU. The first such region gets `u64::MAX`,
    /// which discards the minimum of regions that left the CPU.
    #[inline(always)]
    pub(super) fn least(&self, min: u64) -> u64 {
        let point = self.point.load(Ordering::Relaxed);
        if point & KEPT_CPU == 0 {
            self.point.store(point | KEPT_CPU, Ordering::Relaxed);
            return u64::MAX;
        }
        min
    }

    /// Records one measurement, and counts it in its bucket, if it has one. The cell then holds the
    /// lane's records below `folded`. The cell has no sums of amounts.
    pub fn record(&self, measured: Measurement, bucket: Option<&AtomicU64>, folded: u64) {
        self.record_amounts(measured, bucket, None, folded);
    }

    /// Records one measurement with the region's amounts, in a cell that may have sums of amounts.
    pub fn record_amounts(
        &self,
        measured: Measurement,
        bucket: Option<&AtomicU64>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        let bucket = bucket.map(CountedBucket::new);
        self.record_as(self.staged(), measured, (measured.exclusive, false), bucket, sums, folded);
    }

    /// Records a measurement. `credible` are the ticks that count in the extremes, the last value
    /// and the average. `kept_cpu` says that the region kept the CPU; the first such region
    /// restarts the minimum. A child that a signal handler forks during this call writes the same
    /// words as its parent, because both start from the same `Staged` and `CountedBucket`.
    pub fn record_as(
        &self,
        Staged { seq }: Staged,
        measured: Measurement,
        (credible, kept_cpu): (u64, bool),
        bucket: Option<CountedBucket<'_>>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        self.mark_staged(seq);
        let mut live = self.published_by(seq).sums();
        if kept_cpu {
            live.min = self.least(live.min);
        }
        // Sums count the ticks as measured; extremes, last and average count the credible ticks.
        let (min, max) = (live.min.min(credible), live.max.max(credible));
        let mut believed = live.clone();
        believed.take_into_average(self.control(), live.count == 0, credible);
        live.add(self.control(), measured.exclusive, measured.inclusive);
        (live.min, live.max, live.last) = (min, max, credible);
        live.average = believed.average;
        if let Some(away) = measured.away {
            live.add_away(away);
        }
        if let Some((sums, amounts)) = sums {
            amounts::add(sums, seq / FLIP, amounts);
        }
        // The ticks are stored before the bucket counts them, because `mend` finds the bucket by
        // them.
        put(&self.published_by(seq.wrapping_add(FLIP)).live.words.last, live.last);
        if let Some(CountedBucket { bucket, count }) = bucket {
            bucket.store(count.wrapping_add(1), Ordering::Relaxed);
        }
        self.put(seq, &live, folded, self.window(seq));
    }
}
