//! Effect sizes of a comparison, with intervals that contain the true value in 95 of 100 cases.
//!
//! The intervals cover the chance within two runs. They cannot cover how much the program differs
//! from run to run; [`super::gate`] does.
//!
//! - Mean: the variance over the count, on the logarithm (delta method).
//! - Quantile: the quantiles at `q -+ sqrt(q (1 - q) / n)` are one standard error away (R. S.
//!   Woodruff, J. Am. Stat. Assoc. 47, 1952). The variance of the unknown position of the quantile
//!   within its bucket is added.
//! - Probability of superiority: the variance of the placements of each side in the other (E.
//!   DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44, 1988).

use super::{DiffRow, NINETY_FIVE, side_by_side};
use crate::PointWindow;
use crate::histogram::edges_of;

/// Minimum number of measurements in a window for estimating the error.
pub(crate) const FEWEST: f64 = 20.0;

/// The interval that contains the true value in 95 of 100 cases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConfidenceInterval {
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

impl DiffRow {
    /// The interval of the relative change of the mean.
    pub fn mean_interval(&self) -> Option<ConfidenceInterval> {
        let change = self.mean_change()?;
        self.interval(change, mean_variance)
    }

    /// The interval of the relative change of a quantile.
    pub fn quantile_interval(&self, share: f64) -> Option<ConfidenceInterval> {
        let change = self.quantile_change(share)?;
        self.interval(change, |window| {
            quantile_variance(window, share) + quantile_resolution(window, share)
        })
    }

    /// The interval of [`Self::superiority`].
    pub fn superiority_interval(&self) -> Option<ConfidenceInterval> {
        let superiority = self.superiority?;
        let counts = side_by_side(&self.before, &self.since);
        let (n, m) = counts.iter().fold((0.0, 0.0), |(n, m), (a, b)| (n + a, m + b));
        // For each measurement, the share of the other side that it exceeds.
        let (mut below_a, mut below_b) = (0.0, 0.0);
        let (mut of_a, mut of_b) = (0.0, 0.0);
        for (a, b) in counts {
            let placed_a = 1.0 - (below_b + b / 2.0) / m - superiority;
            let placed_b = (below_a + a / 2.0) / n - superiority;
            of_a += a * placed_a * placed_a;
            of_b += b * placed_b * placed_b;
            (below_a, below_b) = (below_a + a, below_b + b);
        }
        let reach = NINETY_FIVE * (of_a / (n * n) + of_b / (m * m)).sqrt();
        let low = (superiority - reach).max(0.0);
        Some(ConfidenceInterval { low, high: (superiority + reach).min(1.0) })
    }

    fn interval(
        &self,
        change: f64,
        variance: impl Fn(&PointWindow) -> f64,
    ) -> Option<ConfidenceInterval> {
        let sides = [&self.before, &self.since];
        if sides.iter().any(|window| window.in_buckets() < FEWEST) {
            return None;
        }
        let reach = NINETY_FIVE * sides.map(variance).iter().sum::<f64>().sqrt();
        let change = change.ln_1p();
        (change.is_finite() && reach.is_finite()).then(|| ConfidenceInterval {
            low: (change - reach).exp_m1(),
            high: (change + reach).exp_m1(),
        })
    }
}

/// Relative variance of a mean, computed from the buckets.
pub(crate) fn mean_variance(window: &PointWindow) -> f64 {
    let middle = |number: u64| {
        let (low, high) = edges_of(number);
        (low + high) / 2.0
    };
    let n = window.in_buckets();
    let sum = |of: &dyn Fn(f64) -> f64| {
        window.spread.iter().map(|(number, count)| count * of(middle(*number))).sum::<f64>() / n
    };
    let mean = sum(&|value| value);
    let variance = sum(&|value| (value - mean) * (value - mean));
    if mean > 0.0 { variance / (mean * mean) / n } else { 0.0 }
}

/// Relative variance of a quantile due to chance.
pub(crate) fn quantile_variance(window: &PointWindow, share: f64) -> f64 {
    let reach = (share * (1.0 - share) / window.in_buckets()).sqrt();
    let at = |share: f64| window.quantile(share.clamp(0.0, 1.0)).unwrap_or(0.0);
    let error = (at(share + reach) - at(share - reach)) / 2.0 / at(share);
    error * error
}

/// Relative variance of a quantile's position in its bucket. If all measurements are in one bucket,
/// the position is unknown; if they are in many buckets, the position is nearly certain.
pub(crate) fn quantile_resolution(window: &PointWindow, share: f64) -> f64 {
    let Some(value) = window.quantile(share).filter(|value| *value > 0.0) else { return 0.0 };
    let inside = window.spread.iter().find_map(|(number, count)| {
        let (low, high) = edges_of(*number);
        (low..=high).contains(&value).then_some((high - low, *count))
    });
    inside.map_or(0.0, |(width, count)| {
        let error = width / value * count / window.in_buckets();
        error * error / 12.0
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{row, window_of};
    use crate::histogram::number_of;

    fn with(superiority: Option<f64>, before: PointWindow, since: PointWindow) -> DiffRow {
        DiffRow { superiority, ..row(before, since) }
    }

    /// A uniform distribution has standard errors in closed form.
    #[test]
    fn errors_are_those_of_the_textbook() {
        let uniform = || window_of((0..10_000).map(|i| 10_000 + i));
        let (n, mean) = (10_000.0_f64, 15_000.0);
        let relative = |variance: f64| variance.sqrt();
        let expected = 10_000.0 / 12_f64.sqrt() / n.sqrt() / mean;
        assert!((relative(mean_variance(&uniform())) / expected - 1.0).abs() < 0.01);
        // Standard error of a quantile: sqrt(q (1 - q) / n) / density. The density is 1 / 10,000.
        for share in [0.5_f64, 0.9] {
            let at = 10_000.0 + share * 10_000.0;
            let expected = (share * (1.0 - share) / n).sqrt() * 10_000.0 / at;
            let found = relative(quantile_variance(&uniform(), share));
            assert!((found / expected - 1.0).abs() < 0.02, "{share}: {found} {expected}");
        }
    }

    #[test]
    fn intervals_hold_the_change_and_narrow_with_the_count() {
        let uniform = |n: u64, more: u64| window_of((0..n).map(|i| 10_000 + more + i * 10_000 / n));
        let narrow = |n: u64| {
            let row = with(Some(0.57125), uniform(n, 0), uniform(n, 750));
            let all = [row.mean_interval(), row.quantile_interval(0.5), row.superiority_interval()];
            let all = all.map(Option::unwrap);
            let changes = [
                row.mean_change().unwrap(),
                row.quantile_change(0.5).unwrap(),
                row.superiority.unwrap(),
            ];
            for (interval, change) in all.iter().zip(changes) {
                assert!(interval.low < change && change < interval.high, "{interval:?} {change}");
            }
            all.map(|interval| interval.high - interval.low)
        };
        let (few, many) = (narrow(400), narrow(40_000));
        for (few, many) in [(few[0], many[0]), (few[2], many[2])] {
            assert!((few / many / 10.0 - 1.0).abs() < 0.05, "a tenth: {few} {many}");
        }
        assert!(few[1] > 4.0 * many[1], "a bucket's width remains: {few:?} {many:?}");
        // All measurements are in one bucket, so the median is known only to the width of the
        // bucket.
        let (low, high) = edges_of(number_of(10_000));
        let one = || window_of(std::iter::repeat_n(10_000, 1_000_000));
        let interval = row(one(), one()).quantile_interval(0.5).unwrap();
        assert!(interval.high > (high - low) / 10_000.0 / 2.0, "{interval:?}");
        assert_eq!(row(uniform(19, 0), one()).mean_interval(), None);
    }
}
