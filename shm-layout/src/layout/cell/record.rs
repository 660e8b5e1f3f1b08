//! Records measurements that the ring cannot hold.

use super::{Cell, FLIP, KEPT_CPU, Staged, get, put};
use crate::layout::amounts::{self, Amounts, SumWords};
use crate::sync::{AtomicU64, Ordering};

/// One finished measurement, in ticks.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    /// Ticks of the region itself.
    pub exclusive: u64,
    /// Ticks with nested regions, less what nested regions of the point have added.
    pub inclusive: u64,
    /// Time off the CPU between begin and end, if it was noticed.
    pub away: Option<Away>,
}

/// Time off the CPU.
#[derive(Clone, Copy, Debug, Default)]
pub struct Away {
    /// Ticks.
    pub off_cpu: u64,
    /// Switches noticed.
    pub switches: u64,
}

/// A bucket of a histogram, and what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    bucket: &'a AtomicU64,
    count: u64,
}

impl<'a> Held<'a> {
    /// What a bucket holds now.
    #[must_use]
    pub fn new(bucket: &'a AtomicU64) -> Self {
        Self { bucket, count: bucket.load(Ordering::Relaxed) }
    }
}

impl Cell {
    /// The ticks by which a region of so many exclusive ones counts in the extremes and the
    /// histogram if it was off the CPU, and how long that was is known no better than `error`.
    ///
    /// Some of the time off the CPU is learnt late, too, so such a region may be told as nothing
    /// at all. Sums are right, since another region has that time too much. What is told as
    /// nothing, or as so little less than the shortest region that kept the CPU, counts as that.
    #[must_use]
    pub fn credible(&self, exclusive: u64, error: u64) -> u64 {
        if self.point.load(Ordering::Relaxed) & KEPT_CPU == 0 {
            return exclusive;
        }
        let live = self.in_force(self.seq.load(Ordering::Relaxed)).live;
        let least = get(&live.words.min);
        let is_near = (exclusive..=exclusive.saturating_add(error)).contains(&least);
        if is_near || exclusive == 0 { least } else { exclusive }
    }

    /// The least ticks so far of regions that kept the CPU, where one comes that did: from the first
    /// one on, the minimum is of such.
    #[inline(always)]
    pub(super) fn least(&self, min: u64) -> u64 {
        let point = self.point.load(Ordering::Relaxed);
        if point & KEPT_CPU == 0 {
            self.point.store(point | KEPT_CPU, Ordering::Relaxed);
            return u64::MAX;
        }
        min
    }

    /// Records one measurement, in its bucket too if it has one; the lane's records up to
    /// `folded` are in the cell, then. The cell has no sums of amounts.
    pub fn record(&self, measured: Measurement, bucket: Option<&AtomicU64>, folded: u64) {
        self.record_amounts(measured, bucket, None, folded);
    }

    /// Records one measurement in a cell that may have sums of amounts, with the region's amounts.
    pub fn record_amounts(
        &self,
        measured: Measurement,
        bucket: Option<&AtomicU64>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        let bucket = bucket.map(Held::new);
        self.record_as(self.staged(), measured, (measured.exclusive, false), bucket, sums, folded);
    }

    /// Records a measurement that may count by other ticks in the extremes and the histogram than
    /// it was told; and whether it kept the CPU, which makes the minimum one of such. A forked child
    /// that repeats this from the same start writes the same words.
    pub fn record_as(
        &self,
        Staged { seq }: Staged,
        measured: Measurement,
        (credible, kept_cpu): (u64, bool),
        bucket: Option<Held<'_>>,
        sums: Option<(&SumWords, &Amounts)>,
        folded: u64,
    ) {
        self.mark_staged(seq);
        let mut live = self.in_force(seq).sums();
        if kept_cpu {
            live.min = self.least(live.min);
        }
        // Sums have what was told; extremes, last and average what can be believed.
        let (min, max) = (live.min.min(credible), live.max.max(credible));
        let mut believed = live.clone();
        believed.take_into_average(self.control(), live.count == 0, credible);
        live.add(self.control(), measured.exclusive, measured.inclusive);
        (live.min, live.max, live.last) = (min, max, credible);
        live.average = believed.average;
        if let Some(away) = measured.away {
            live.off_cpu = live.off_cpu.wrapping_add(away.off_cpu);
            live.switches = live.switches.wrapping_add(away.switches);
        }
        if let Some((sums, amounts)) = sums {
            amounts::add(sums, seq / FLIP, amounts);
        }
        // Before the bucket, for `mend`.
        put(&self.in_force(seq.wrapping_add(FLIP)).live.words.last, live.last);
        if let Some(Held { bucket, count }) = bucket {
            bucket.store(count.wrapping_add(1), Ordering::Relaxed);
        }
        self.put(seq, &live, folded, self.window(seq));
    }
}
