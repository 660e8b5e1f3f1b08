//! A bounded history of a point's load: every poll of the last minutes, and coarser steps for older
//! times.
//!
//! ```text
//! oldest  [ 4 polls ][ 4 polls ] ... [ 2 ][ 2 ][ 2 ] ... [1][1][1][1]  newest
//!         |------- tier 2 ------|    |--- tier 1 ---|    |- tier 0 -|
//! ```
//!
//! When a tier is full, its two oldest buckets become one of the next tier, with their mean and
//! their greatest poll. So nine tiers of 160 buckets reach back over more than 80,000 polls, most
//! of a day at one a second. For any `n` from 100 on, the last `n` polls have 100 buckets or more.

use std::collections::VecDeque;

/// Number of buckets of a tier.
const KEPT: usize = 160;
/// Number of tiers; a bucket covers twice as much time as one of the previous tier.
const TIERS: usize = 9;

/// The load over one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// End of the interval, ticks since the segment was created.
    pub at_ticks: u64,
    /// Share of one CPU. `None` if unknown: after a reset, or a pause of the viewer.
    pub load: Option<f64>,
}

/// The load over a part of the time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadSlice {
    /// The mean of its known parts.
    pub mean: f64,
    /// The greatest load between two polls.
    pub peak: f64,
}

/// One or more adjacent intervals.
#[derive(Clone, Copy, Debug)]
struct LoadBucket {
    /// End of the last interval; the bucket begins at the end of the previous bucket.
    until: u64,
    /// NaN where the load is unknown. Known and unknown time never share a bucket.
    mean: f32,
    peak: f32,
}

/// The loads of one point.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Begin of the oldest bucket.
    from: u64,
    /// The tiers, the finest first. Only the first one may be empty.
    tiers: Vec<VecDeque<LoadBucket>>,
}

impl History {
    /// Adds the newest sample, of the interval that began at `from`.
    pub(super) fn push(&mut self, from: u64, sample: Sample) {
        if self.is_empty() {
            self.from = from;
        }
        let load = sample.load.map_or(f32::NAN, |load| load as f32);
        let mut bucket = LoadBucket { until: sample.at_ticks, mean: load, peak: load };
        for tier in 0..TIERS {
            if tier == self.tiers.len() {
                self.tiers.push(VecDeque::new());
            }
            let buckets = &mut self.tiers[tier];
            buckets.push_back(bucket);
            if buckets.len() <= KEPT {
                return;
            }
            match self.oldest_of(tier) {
                Some(oldest) => bucket = oldest,
                None => return,
            }
        }
        // Drop the bucket: the last tier is full.
        self.from = bucket.until;
    }

    /// Removes the oldest bucket of a tier and merges it with the next one if possible. `None` if
    /// the bucket only marks a gap and covers no time.
    fn oldest_of(&mut self, tier: usize) -> Option<LoadBucket> {
        let coarser = self.tiers.get(tier + 1).and_then(|coarser| coarser.back());
        let from = coarser.map_or(self.from, |coarser| coarser.until);
        let buckets = &mut self.tiers[tier];
        let oldest = buckets.pop_front()?;
        if !oldest.is_known() && oldest.until <= from {
            return None;
        }
        let is_last = tier + 1 == TIERS;
        let joins = |next: &&LoadBucket| !is_last && next.is_known() == oldest.is_known();
        let Some(next) = buckets.front().filter(joins).copied() else {
            return Some(oldest);
        };
        buckets.pop_front();
        let (first, second) =
            (oldest.until.saturating_sub(from), next.until.saturating_sub(oldest.until));
        let share = match first as f64 + second as f64 {
            0.0 => 1.0,
            both => second as f64 / both,
        };
        let mean = f64::from(oldest.mean) * (1.0 - share) + f64::from(next.mean) * share;
        let peak = oldest.peak.max(next.peak);
        Some(LoadBucket { until: next.until, mean: mean as f32, peak })
    }

    /// The last `n` samples of the finest tier, which are single polls, oldest first.
    pub fn last(&self, n: usize) -> impl Iterator<Item = Sample> {
        let finest = self.tiers.first().into_iter();
        let samples = finest.flat_map(move |t| t.range(t.len().saturating_sub(n)..));
        samples.map(|bucket| Sample {
            at_ticks: bucket.until,
            load: bucket.is_known().then_some(f64::from(bucket.mean)),
        })
    }

    /// Begin of the history, ticks since the segment was created. `None` before the first sample.
    pub fn from(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.from)
    }

    /// The load in each of `columns` adjacent parts of the time, each `ticks` long. The first part
    /// begins at `from`; that moment may be before the segment was created. A part is `None` if its
    /// load is unknown.
    pub fn columns(&self, from: i128, ticks: u64, columns: usize) -> Vec<Option<LoadSlice>> {
        let mut slices = vec![BucketSums::default(); columns];
        let ticks = i128::from(ticks.max(1));
        let end = from + ticks * columns as i128;
        let mut begin = i128::from(self.from);
        for bucket in self.tiers.iter().rev().flatten() {
            let (start, until) = (begin.max(from), i128::from(bucket.until).min(end));
            begin = begin.max(i128::from(bucket.until));
            if start >= until || !bucket.is_known() {
                continue;
            }
            let (first, last) = ((start - from) / ticks, (until - 1 - from) / ticks);
            for place in first..=last {
                let column = from + place * ticks;
                let known = until.min(column + ticks) - start.max(column);
                slices[place as usize].add(bucket, known as f64);
            }
        }
        slices.into_iter().map(BucketSums::slice).collect()
    }

    /// The moment since which the load has been at least `load`, ticks. `None` if the load is less
    /// now.
    pub fn since(&self, load: f64) -> Option<u64> {
        let newest_first = || self.tiers.iter().flat_map(|tier| tier.iter().rev());
        let reaches = |bucket: &&LoadBucket| f64::from(bucket.mean) >= load;
        let burning = newest_first().take_while(reaches).count();
        let before = newest_first().nth(burning).map_or(self.from, |bucket| bucket.until);
        (burning > 0).then_some(before)
    }

    /// Number of buckets.
    pub fn len(&self) -> usize {
        self.tiers.iter().map(VecDeque::len).sum()
    }

    /// Whether the history is still empty.
    pub fn is_empty(&self) -> bool {
        self.tiers.iter().all(VecDeque::is_empty)
    }
}

impl LoadBucket {
    fn is_known(&self) -> bool {
        !self.mean.is_nan()
    }
}

/// Sums of the buckets in a column.
#[derive(Clone, Default)]
struct BucketSums {
    known: f64,
    load: f64,
    peak: f64,
}

impl BucketSums {
    fn add(&mut self, bucket: &LoadBucket, known: f64) {
        self.known += known;
        self.load += f64::from(bucket.mean) * known;
        self.peak = self.peak.max(f64::from(bucket.peak));
    }

    fn slice(self) -> Option<LoadSlice> {
        (self.known > 0.0).then(|| LoadSlice { mean: self.load / self.known, peak: self.peak })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Polls ten ticks apart, with these loads.
    fn history(loads: impl IntoIterator<Item = Option<f64>>) -> History {
        let mut history = History::default();
        for (poll, load) in (0..).zip(loads) {
            history.push(poll * 10, Sample { at_ticks: (poll + 1) * 10, load });
        }
        history
    }

    #[test]
    fn the_last_samples_are_kept_one_by_one() {
        assert!(History::default().is_empty());
        let history = history((0..1000).map(|poll| Some(f64::from(poll))));
        let last: Vec<_> = history.last(2).map(|s| (s.at_ticks, s.load)).collect();
        assert_eq!(last, [(9990, Some(998.0)), (10_000, Some(999.0))]);
        assert_eq!(history.last(100).count(), 100);
    }

    #[test]
    fn a_history_reaches_far_back_and_stays_bounded() {
        let polls = 300_000;
        let history = history((0..polls).map(|_| Some(0.5)));
        assert!(history.len() <= TIERS * KEPT);
        let reach = polls * 10 - history.from().unwrap();
        assert!((75_000 * 10..85_000 * 10).contains(&reach), "{reach}");
        // The bound also holds if no bucket can be merged with its neighbour.
        let unlike = (0..polls).map(|poll| (poll % 2 == 0).then_some(0.5));
        assert!(super::tests::history(unlike).len() <= TIERS * KEPT);
    }

    #[test]
    fn old_loads_keep_their_sum_and_maximum() {
        // One poll in a thousand is a hundred times as high as the others.
        let load = |poll: u64| if poll % 1000 == 500 { 1.0 } else { 0.01 };
        let polls = 20_000;
        let history = history((0..polls).map(|poll| Some(load(poll))));
        assert_eq!(history.from(), Some(0));
        let columns = history.columns(0, 10 * 1000, 20);
        for column in columns {
            let column = column.expect("all of it is known");
            assert_eq!(column.peak, 1.0);
            assert!((column.mean - (0.01 + 0.99 / 1000.0)).abs() < 0.001, "{column:?}");
        }
        let all = history.columns(0, 10 * polls, 1)[0].unwrap();
        assert!((all.mean - (0.01 + 0.99 / 1000.0)).abs() < 1e-6, "{all:?}");
    }

    #[test]
    fn columns_are_means_over_time_and_gaps_stay_gaps() {
        let history = history([Some(0.2), Some(0.4), None, Some(0.8)]);
        let mean = |slice: &Option<LoadSlice>| slice.map(|s| (s.mean * 100.0).round() as u32);
        let means = |from, ticks, columns| -> Vec<Option<u32>> {
            history.columns(from, ticks, columns).iter().map(mean).collect()
        };
        assert_eq!(means(0, 10, 5), [Some(20), Some(40), None, Some(80), None]);
        assert_eq!(means(-20, 20, 3), [None, Some(30), Some(80)]);
        // Columns narrower than a poll, and across the ends of polls.
        assert_eq!(means(5, 5, 4), [Some(20), Some(40), Some(40), None]);
        assert_eq!(means(5, 10, 1), [Some(30)]);
        let wide = history.columns(-100, 1000, 1)[0].unwrap();
        assert_eq!((mean(&Some(wide)), (wide.peak * 100.0).round()), (Some(47), 80.0));
    }

    #[test]
    fn old_gaps_are_kept_as_long_as_they_were() {
        let mut history = History::default();
        let mut at = 0;
        let mut push = |ticks: u64, load: Option<f64>| {
            history.push(at, Sample { at_ticks: at + ticks, load });
            at += ticks;
        };
        push(10, Some(0.5));
        push(0, None);
        push(1000, None);
        for _ in 0..1000 {
            push(10, Some(0.5));
        }
        let columns = history.columns(0, 10, 102);
        assert!(columns[0].is_some() && columns[101].is_some());
        assert!(columns[1..101].iter().all(Option::is_none));
    }
}
