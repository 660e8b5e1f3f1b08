//! Sums over measurements, and how they are added up.

use std::iter::Sum;
use std::ops::RangeInclusive;

pub use super::figures::Sums;
use super::record::Away;
use crate::layout::control::{ALPHA_BITS, Control};

/// Fraction bits of the exponential average as a cell stores it.
pub const AVERAGE_FRACTION_BITS: u32 = 16;

/// The figures of all parts together. Two figures have no exact sum: the average is the mean of the
/// averages, weighted by their counts, and `last` is taken from the part with most measurements.
impl<'a> Sum<&'a Self> for Sums {
    fn sum<I: Iterator<Item = &'a Self>>(parts: I) -> Self {
        let mut sum = Self::default();
        let (mut most, mut weighted) = (0, 0_u128);
        for part in parts.filter(|part| part.count > 0) {
            sum.merge_saturating(part);
            let weight = u128::from(part.average) * u128::from(part.count);
            weighted = weighted.saturating_add(weight);
            if part.count >= most {
                most = part.count;
                sum.take_latest(part);
            }
        }
        sum.average = (weighted / u128::from(sum.count.max(1))) as u64;
        sum
    }
}

impl Sums {
    /// The sums of one measurement that kept the CPU, without an average.
    #[inline(always)]
    #[must_use]
    pub fn one(exclusive: u64, inclusive: u64) -> Self {
        let mut one = Self::default();
        one.add(Control(0), exclusive, inclusive);
        one
    }

    /// Adds measurements that came later.
    #[inline(always)]
    pub fn append(&mut self, later: &Self) {
        self.merge(later);
        self.take_latest(later);
    }

    /// The growth since `then`. `None` if a sum fell, which happens if threads' figures were lost.
    /// The extremes, the last value and the average are the present ones.
    #[must_use]
    pub fn since(&self, then: &Self) -> Option<Self> {
        let fell = self.count < then.count
            || self.exclusive < then.exclusive
            || self.squares < then.squares;
        (!fell).then(|| self.less(then))
    }

    /// Adds the time off the CPU of a measurement, and its time by the clock.
    pub(crate) fn add_away(&mut self, Away { off_cpu, switches, elapsed }: Away) {
        self.off_cpu = self.off_cpu.wrapping_add(off_cpu);
        self.switches = self.switches.wrapping_add(switches);
        self.longest = self.longest.max(elapsed);
    }

    /// The figures of one measurement, except those that [`Away`] has and the average, which are
    /// 0.
    #[inline(always)]
    #[must_use]
    pub fn of(exclusive: u64, inclusive: u64) -> Self {
        Self {
            count: 1,
            exclusive,
            inclusive,
            off_cpu: 0,
            switches: 0,
            longest: 0,
            min: exclusive,
            max: exclusive,
            last: exclusive,
            // Exact integers instead of Welford's recurrence, whose division would be the longest
            // dependency chain here.
            squares: u128::from(exclusive) * u128::from(exclusive),
            average: 0,
        }
    }

    /// Adds a measurement under a control word, without its time off the CPU.
    #[inline(always)]
    pub fn add(&mut self, control: Control, exclusive: u64, inclusive: u64) {
        self.take_into_average(control, self.count == 0, exclusive);
        let average = self.average;
        self.append(&Self { average, ..Self::of(exclusive, inclusive) });
    }

    /// Lowers a minimum above the mean to the mean. The minimum leaves out measurements that are in
    /// the sum, see [`Cell::credible`](super::Cell::credible).
    #[inline(always)]
    pub fn bound_minimum(&mut self) {
        if let Some(mean) = self.exclusive.checked_div(self.count) {
            self.min = self.min.min(mean);
        }
    }

    /// Moves the average by a measurement; the first part of [`Self::add`]. The first measurement
    /// sets the average.
    #[inline(always)]
    pub fn take_into_average(&mut self, control: Control, is_first: bool, exclusive: u64) {
        let alpha = i64::from(control.alpha_fixed());
        if alpha != 0 {
            // The average starts at the first measurement instead of climbing up from zero.
            let before = (!is_first).then_some(self.average);
            self.average = averaged(before, exclusive, alpha);
        }
    }

    /// Mean exclusive ticks; `None` without a measurement.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.exclusive as f64 / self.count as f64)
    }

    /// The exponential average in ticks, 0 while averaging is off.
    #[must_use]
    pub fn average_ticks(&self) -> f64 {
        average_ticks(self.average)
    }

    /// Sample standard deviation of exclusive ticks; `None` like [`Self::variance`].
    #[must_use]
    pub fn deviation(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// Share of the span between begin and end in which the thread did not run; `None` without a
    /// span.
    #[must_use]
    pub fn off_share(&self) -> Option<f64> {
        let span = self.off_cpu as f64 + self.inclusive as f64;
        (span > 0.0).then(|| self.off_cpu as f64 / span)
    }

    /// Sample variance of exclusive ticks; see [`variance`].
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        variance(self.count, self.exclusive, self.squares, self.min..=self.max)
    }
}

/// Variance of a sample, `(S2 - S1^2 / n) / (n - 1)`, of `count` measurements with these sums;
/// `None` for fewer than two measurements, or if the sums do not belong together.
///
/// The sums are exact integers, so the difference loses nothing. The sums include ticks that the
/// extremes leave out as not credible (see [`Cell::credible`](super::Cell::credible)). So the
/// result is limited to the largest variance of a sample with these extremes, which is
/// `n (max - min)^2 / 4 (n - 1)` (Popoviciu's inequality).
#[must_use]
pub fn variance(count: u64, sum: u64, squares: u128, extremes: RangeInclusive<u64>) -> Option<f64> {
    if count < 2 {
        return None;
    }
    let (n, sum) = (u128::from(count), u128::from(sum));
    let (whole, rest) = (sum * sum / n, sum * sum % n);
    let about_mean = squares.checked_sub(whole)? as f64 - rest as f64 / n as f64;
    let range = extremes.end().saturating_sub(*extremes.start()) as f64;
    let most = n as f64 * range * range / 4.0;
    Some(about_mean.clamp(0.0, most) / (n - 1) as f64)
}

/// Converts an exponential average to ticks.
#[must_use]
pub fn average_ticks(average: u64) -> f64 {
    average as f64 / f64::from(1u32 << AVERAGE_FRACTION_BITS)
}

/// Converts ticks to an exponential average.
#[must_use]
pub fn average_of(ticks: f64) -> u64 {
    (ticks * f64::from(1u32 << AVERAGE_FRACTION_BITS)).round() as u64
}

/// The exponential average after a measurement of `ticks`; see [`AVERAGE_FRACTION_BITS`]. `alpha`
/// is in 2^-[`ALPHA_BITS`].
pub(crate) fn averaged(before: Option<u64>, ticks: u64, alpha: i64) -> u64 {
    // Another process may have written an alpha above 1.
    let alpha = alpha.min(1 << ALPHA_BITS);
    let fixed = (ticks << AVERAGE_FRACTION_BITS) as i64;
    let average = before.map_or(fixed, |before| before as i64);
    let step = (i128::from(fixed.wrapping_sub(average)) * i128::from(alpha)) >> ALPHA_BITS;
    average.wrapping_add(step as i64) as u64
}
