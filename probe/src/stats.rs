//! Statistics of points for the program itself.

use std::time::Duration;

/// Statistics of a point since its last reset, over all threads.
///
/// Fields are in ticks of the [tick counter](crate::ticks), unless they state another unit. Methods
/// return times, converted with the value of [`ticks_per_second`](crate::ticks_per_second) when the
/// statistics were taken.
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
    /// Number of finished measurements.
    pub count: u64,
    /// Exclusive ticks: on a CPU, without nested regions.
    pub exclusive: u64,
    /// Inclusive ticks: on a CPU, with nested regions; recursion counted once.
    pub inclusive: u64,
    /// Ticks between begin and end in which the thread did not run.
    pub off_cpu: u64,
    /// Number of context switches that were noticed between begin and end.
    pub switches: u64,
    /// Most ticks by the clock from begin to end, among the measurements that were off the CPU or
    /// took longer than about a millisecond; 0 if there are none.
    pub longest: u64,
    /// Minimum of the exclusive ticks; 0 without a measurement.
    pub min: u64,
    /// Maximum of the exclusive ticks.
    pub max: u64,
    /// Exclusive ticks of the last measurement. With several threads, the last measurement of one
    /// of them, which need not be the latest.
    pub last: u64,
    /// Exponential average of the exclusive ticks. The averages of several threads are weighted by
    /// their counts. 0 while averaging is off.
    pub average: f64,
    /// The weight of a new value in `average`; 0 while averaging is off.
    pub alpha: f64,
    pub(crate) mean: f64,
    pub(crate) variance: f64,
    /// Ticks per second; 0 if the rate is unknown.
    pub(crate) rate: f64,
    /// The non-empty buckets, in ascending order.
    pub(crate) histogram: Vec<Bucket>,
}

/// A bucket: the number of measurements from `low` to `low + width - 1` exclusive ticks.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bucket {
    pub(crate) low: u64,
    pub(crate) width: u64,
    pub(crate) count: u64,
}

/// Merges the buckets of several histograms into one histogram.
pub(crate) fn merged(mut buckets: Vec<Bucket>) -> Vec<Bucket> {
    buckets.sort_unstable_by_key(|bucket| bucket.low);
    buckets.dedup_by(|next, kept| {
        let is_same = next.low == kept.low;
        kept.count = kept.count.saturating_add(if is_same { next.count } else { 0 });
        is_same
    });
    buckets
}

/// Number of figures in [`Stats`], not counting the histogram.
#[cfg(feature = "enabled")]
pub(crate) const FIGURES: usize = 14;

impl Stats {
    /// Replaces each figure by the result of `pass`, which gets the figure as a word. All copies of
    /// pfp in a process must use the same order, because they exchange figures as an array of
    /// words. The histogram is unchanged.
    #[cfg(feature = "enabled")]
    pub(crate) fn each_figure(&mut self, mut pass: impl FnMut(u64) -> u64) {
        // All fields are named, so that a new figure does not compile until it is added here.
        let Self {
            count,
            exclusive,
            inclusive,
            off_cpu,
            switches,
            longest,
            min,
            max,
            last,
            average,
            alpha,
            mean,
            variance,
            rate,
            histogram: _,
        } = self;
        for figure in [count, exclusive, inclusive, off_cpu, switches, longest, min, max, last] {
            *figure = pass(*figure);
        }
        for figure in [average, alpha, mean, variance, rate] {
            *figure = f64::from_bits(pass(figure.to_bits()));
        }
    }

    /// Adds the statistics of another point, as if one point had all measurements. If regions of
    /// one point are nested in regions of the other, `inclusive` counts their time twice.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        // An empty histogram means that the quantiles are unknown. They stay unknown.
        let is_unknown = |stats: &Self| stats.count > 0 && stats.histogram.is_empty();
        let is_known = !is_unknown(self) && !is_unknown(other);
        let mut histogram = std::mem::take(&mut self.histogram);
        if is_known && histogram.try_reserve(other.histogram.len()).is_ok() {
            histogram.extend_from_slice(&other.histogram);
        } else {
            histogram = Vec::new();
        }
        let histogram = merged(histogram);
        if self.count == 0 {
            *self = Self { histogram, ..*other };
            return;
        }
        // All fields are named, so that a new figure does not compile until it is merged here.
        let Self {
            count,
            exclusive,
            inclusive,
            off_cpu,
            switches,
            longest,
            min,
            max,
            last,
            average,
            alpha: _,
            mean,
            variance,
            rate: _,
            histogram: all_buckets,
        } = self;
        let [ours, theirs] = [*count as f64, other.count as f64];
        let total = ours + theirs;
        let apart = other.mean - *mean;
        let squares = *variance * (ours - 1.0)
            + other.variance * (theirs - 1.0)
            + apart * apart * ours * theirs / total;
        *variance = squares / (total - 1.0);
        *mean += apart * theirs / total;
        *average = (*average * ours + other.average * theirs) / total;
        for (sum, more) in [
            (count, other.count),
            (exclusive, other.exclusive),
            (inclusive, other.inclusive),
            (off_cpu, other.off_cpu),
            (switches, other.switches),
        ] {
            *sum = sum.saturating_add(more);
        }
        *min = (*min).min(other.min);
        *max = (*max).max(other.max);
        *longest = (*longest).max(other.longest);
        *last = other.last;
        *all_buckets = histogram;
    }

    /// Exclusive time: on a CPU, without nested regions.
    #[must_use]
    pub fn exclusive(&self) -> Duration {
        self.time(self.exclusive as f64)
    }

    /// Inclusive time: on a CPU, with nested regions; recursion counted once.
    #[must_use]
    pub fn inclusive(&self) -> Duration {
        self.time(self.inclusive as f64)
    }

    /// Time between begin and end in which the thread did not run.
    #[must_use]
    pub fn off_cpu(&self) -> Duration {
        self.time(self.off_cpu as f64)
    }

    /// Longest time by the clock from begin to end; see the field.
    #[must_use]
    pub fn longest(&self) -> Duration {
        self.time(self.longest as f64)
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

    /// Exclusive time of the last measurement. With several threads, the last measurement of one of
    /// them, which need not be the latest.
    #[must_use]
    pub fn last(&self) -> Duration {
        self.time(self.last as f64)
    }

    /// Mean exclusive time; zero without a measurement.
    #[must_use]
    pub fn mean(&self) -> Duration {
        self.time(self.mean_ticks())
    }

    /// Exponential average of the exclusive time. `None` while averaging is off.
    #[must_use]
    pub fn average(&self) -> Option<Duration> {
        (self.alpha > 0.0).then(|| self.time(self.average))
    }

    /// Sample standard deviation of the exclusive time; zero below two measurements.
    #[must_use]
    pub fn std_dev(&self) -> Duration {
        self.time(self.variance().sqrt())
    }

    /// Quantile of the exclusive time, from the histogram: the time that a share `q` of all
    /// measurements does not exceed. `quantile(0.5)` is the median. `None` without a measurement,
    /// or if `q` is not in [0, 1].
    ///
    /// The result is the middle of a bucket of the histogram, limited to `min` and `max`. So it is
    /// within 1.6 % of the true quantile, and exact below 64 ticks; a `Duration` rounds the result
    /// to a nanosecond. While a point is in use, its histogram may have a few more measurements
    /// than the other figures, because those were read earlier.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let counts = self.histogram.iter().map(|bucket| bucket.count);
        let total = counts.fold(0, u64::saturating_add);
        if total == 0 || !(0.0..=1.0).contains(&q) {
            return None;
        }
        let rank = ((q * total as f64).ceil() as u64).clamp(1, total);
        let mut seen = 0_u64;
        let bucket = self.histogram.iter().find(|bucket| {
            seen = bucket.count.saturating_add(seen);
            seen >= rank
        })?;
        let middle = bucket.low + (bucket.width - 1) / 2;
        Some(self.time(middle.max(self.min).min(self.max) as f64))
    }

    /// Mean exclusive ticks; 0 without a measurement.
    #[must_use]
    pub fn mean_ticks(&self) -> f64 {
        self.mean
    }

    /// Sample variance of exclusive ticks; 0 below two measurements.
    #[must_use]
    pub fn variance(&self) -> f64 {
        self.variance
    }

    fn time(&self, ticks: f64) -> Duration {
        // Without a rate, the quotient is infinite or NaN, and the result is zero.
        Duration::try_from_secs_f64(ticks / self.rate).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statistics of a point with one measurement for each number of ticks.
    fn of(ticks: &[u64]) -> Stats {
        let count = ticks.len() as u64;
        let total = ticks.iter().sum::<u64>();
        let mean = total as f64 / ticks.len().max(1) as f64;
        let squares = ticks.iter().map(|&ticks| (ticks as f64 - mean).powi(2)).sum::<f64>();
        Stats {
            count,
            exclusive: total,
            inclusive: total,
            min: ticks.iter().copied().min().unwrap_or(0),
            max: ticks.iter().copied().max().unwrap_or(0),
            last: ticks.last().copied().unwrap_or(0),
            mean,
            variance: if count > 1 { squares / (count - 1) as f64 } else { 0.0 },
            rate: 1e9,
            histogram: merged(
                ticks.iter().map(|&low| Bucket { low, width: 1, count: 1 }).collect(),
            ),
            ..Stats::default()
        }
    }

    /// Memory for a histogram may run out at one merge, and be available at the next.
    #[test]
    fn quantiles_that_are_unknown_stay_unknown() {
        let unknown = || Stats { histogram: Vec::new(), ..of(&[3, 7]) };
        for (mut one, other) in [(unknown(), of(&[5])), (of(&[5]), unknown())] {
            one.merge(&other);
            assert_eq!((one.count, one.quantile(0.5)), (3, None));
            one.merge(&of(&[6]));
            assert_eq!((one.count, one.quantile(0.5)), (4, None));
        }
    }

    #[test]
    fn two_points_are_as_one_that_measured_all() {
        for [one, other] in
            [[&[3, 7, 7][..], &[40, 7, 1, 9][..]], [&[5], &[6]], [&[], &[2, 4]], [&[2, 4], &[]]]
        {
            let all = of(&[one, other].concat());
            let mut both = of(one);
            both.merge(&of(other));
            assert!((both.mean - all.mean).abs() < 1e-9, "{both:?} {all:?}");
            assert!((both.variance - all.variance).abs() < 1e-9, "{both:?} {all:?}");
            assert_eq!(both.quantile(0.5), all.quantile(0.5));
            assert_eq!(Stats { mean: all.mean, variance: all.variance, ..both }, all);
        }
    }
}
