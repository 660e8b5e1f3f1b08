//! Sums over measurements, and how they are added up.

use std::ops::RangeInclusive;

use crate::layout::control::{ALPHA_BITS, Control};

/// Fraction bits of the exponential average as kept in a cell.
pub const AVERAGE_FRACTION_BITS: u32 = 16;

/// Sums over measurements; ticks where not said otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sums {
    /// Finished measurements.
    pub count: u64,
    /// Ticks of the regions themselves.
    pub exclusive: u64,
    /// Ticks with nested regions, recursion counted once.
    pub inclusive: u64,
    /// Ticks between begin and end off the CPU.
    pub off_cpu: u64,
    /// Switches noticed between begin and end.
    pub switches: u64,
    /// Least exclusive ticks, `u64::MAX` while there is no measurement.
    pub min: u64,
    /// Most exclusive ticks.
    pub max: u64,
    /// Exclusive ticks of the last measurement.
    pub last: u64,
    /// Sum of the squares of exclusive ticks.
    pub squares: u128,
    /// Exponential average, in 2^-[`AVERAGE_FRACTION_BITS`] ticks.
    pub average_fixed: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self {
            count: 0,
            exclusive: 0,
            inclusive: 0,
            off_cpu: 0,
            switches: 0,
            min: u64::MAX,
            max: 0,
            last: 0,
            squares: 0,
            average_fixed: 0,
        }
    }
}

impl Sums {
    /// Adds what is added up, and keeps the extremes.
    #[inline(always)]
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.wrapping_add(other.count);
        self.exclusive = self.exclusive.wrapping_add(other.exclusive);
        self.inclusive = self.inclusive.wrapping_add(other.inclusive);
        self.off_cpu = self.off_cpu.wrapping_add(other.off_cpu);
        self.switches = self.switches.wrapping_add(other.switches);
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.squares = self.squares.wrapping_add(other.squares);
    }

    /// Adds a measurement under a control word, without its time off the CPU.
    #[inline(always)]
    pub fn add(&mut self, control: Control, exclusive: u64, inclusive: u64) {
        self.take_into_average(control, self.count == 0, exclusive);
        self.count = self.count.wrapping_add(1);
        self.exclusive = self.exclusive.wrapping_add(exclusive);
        self.inclusive = self.inclusive.wrapping_add(inclusive);
        self.min = self.min.min(exclusive);
        self.max = self.max.max(exclusive);
        self.last = exclusive;
        // Exact integers instead of Welford's recurrence, whose division would
        // be the longest chain of all.
        let square = u128::from(exclusive) * u128::from(exclusive);
        self.squares = self.squares.wrapping_add(square);
    }

    /// Takes a minimum that is above the mean down to that: it leaves out measurements that are in
    /// the sum, see [`Cell::credible`](super::Cell::credible).
    #[inline(always)]
    pub fn bound_minimum(&mut self) {
        if let Some(mean) = self.exclusive.checked_div(self.count) {
            self.min = self.min.min(mean);
        }
    }

    /// Moves the average by a measurement, the first one or not; the first part of
    /// [`Self::add`].
    #[inline(always)]
    pub fn take_into_average(&mut self, control: Control, is_first: bool, exclusive: u64) {
        let alpha = i64::from(control.alpha_fixed());
        if alpha != 0 {
            // The average starts at the first measurement instead of climbing up from zero.
            let before = (!is_first).then_some(self.average_fixed);
            self.average_fixed = averaged(before, exclusive, alpha);
        }
    }

    /// Mean exclusive ticks; none without a measurement.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.exclusive as f64 / self.count as f64)
    }

    /// The exponential average in ticks, 0 while averaging is off.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.average_fixed as f64 / f64::from(1u32 << AVERAGE_FRACTION_BITS)
    }

    /// Variance of exclusive ticks, of a sample; see [`variance`].
    #[must_use]
    pub fn variance(&self) -> Option<f64> {
        variance(self.count, self.exclusive, self.squares, self.min..=self.max)
    }
}

/// Variance of a sample, `(S2 - S1^2 / n) / (n - 1)`, of so many measurements with these sums;
/// none below two, or if the sums do not belong together.
///
/// The sums are exact integers, so the difference loses nothing. What is in the sums and not
/// believed (see [`Cell::credible`](super::Cell::credible)) is not in the extremes, and a sample
/// with these has a variance of at most `n (max - min)^2 / 4 (n - 1)` (Popoviciu's inequality).
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

/// The exponential average after a measurement of `ticks`; see [`AVERAGE_FRACTION_BITS`]. `alpha`
/// is in 2^-[`ALPHA_BITS`].
fn averaged(before: Option<u64>, ticks: u64, alpha: i64) -> u64 {
    // Another process may have written more than 1.
    let alpha = alpha.min(1 << ALPHA_BITS);
    let fixed = (ticks << AVERAGE_FRACTION_BITS) as i64;
    let average = before.map_or(fixed, |before| before as i64);
    let step = (i128::from(fixed.wrapping_sub(average)) * i128::from(alpha)) >> ALPHA_BITS;
    average.wrapping_add(step as i64) as u64
}
