//! The amounts of one point: their sums and rates, and the measurements with the same amounts.

use std::sync::Arc;

use super::Figures;
use pfp_read::snapshot::{AMOUNTS, Cell, Stats};

/// Name of the amount that is shown as bytes per second.
pub const BYTES: &str = "bytes";
/// Name of the amount that is shown as floating-point operations per second.
pub const FLOPS: &str = "flops";

/// One amount of a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Amount<'a> {
    /// Name of the amount, such as `bytes`.
    pub name: &'a str,
    /// Sum of the amount over all measurements since the last reset.
    pub sum: u128,
    /// The sum divided by the exclusive time of these measurements in seconds.
    pub per_cpu_second: Option<f64>,
    /// Growth of the sum per second of the wall clock, like [`Figures::rate`].
    pub per_second: Option<f64>,
}

/// The measurements of a point with the same amounts.
#[derive(Clone, Debug, PartialEq)]
pub struct TupleFigures {
    /// The amounts of each measurement. Empty for the remaining measurements, whose amounts differ.
    pub each: Vec<u64>,
    /// Sums of the amounts.
    pub sums: [u128; AMOUNTS],
    /// Amounts per second of exclusive time.
    pub rates: [Option<f64>; AMOUNTS],
    /// Figures of these measurements.
    pub total: Stats,
}

/// Floating-point operations for each byte. `None` without bytes.
pub fn intensity(flops: u128, bytes: u128) -> Option<f64> {
    (bytes > 0).then(|| flops as f64 / bytes as f64)
}

/// The sum of each amount over these cells.
pub fn amounts(cells: &[Arc<Cell>]) -> [u128; AMOUNTS] {
    let mut sums = [0_u128; AMOUNTS];
    for tuple in cells.iter().flat_map(|cell| &cell.tuples) {
        for (place, sum) in sums.iter_mut().enumerate() {
            *sum = sum.saturating_add(tuple.sum(place));
        }
    }
    sums
}

impl Figures {
    /// The point's amounts, in the order of [`pfp_read::snapshot::Point::amounts`].
    pub fn amounts(&self) -> impl Iterator<Item = Amount<'_>> {
        let names = self.point().amounts.iter().take(AMOUNTS).enumerate();
        names.map(|(place, name)| Amount {
            name,
            sum: self.amounts[place],
            per_cpu_second: self.per_cpu_second(self.amounts[place], self.total.exclusive),
            per_second: self.rates.amounts[place],
        })
    }

    /// The amount with this name.
    pub fn amount(&self, name: &str) -> Option<Amount<'_>> {
        self.amounts().find(|amount| amount.name == name)
    }

    /// The first amount that the program defines itself: one other than bytes and floating-point
    /// operations.
    pub fn own_amount(&self) -> Option<Amount<'_>> {
        self.amounts().find(|amount| ![BYTES, FLOPS].contains(&amount.name))
    }

    /// Floating-point operations for each byte. `None` without bytes.
    pub fn intensity(&self) -> Option<f64> {
        intensity(self.amount(FLOPS)?.sum, self.amount(BYTES)?.sum)
    }

    /// Exclusive ticks for each unit of [`Self::own_amount`].
    pub fn per_item(&self) -> Option<f64> {
        let items = self.own_amount()?.sum;
        (items > 0).then(|| self.total.exclusive as f64 / items as f64)
    }

    /// A sum per second of the exclusive time of its measurements. `exclusive` is that time in
    /// ticks.
    fn per_cpu_second(&self, sum: u128, exclusive: u64) -> Option<f64> {
        let seconds = exclusive as f64 / self.snapshot.clock.ticks_per_second;
        (seconds > 0.0 && seconds.is_finite()).then(|| sum as f64 / seconds)
    }

    /// The point's measurements grouped by their amounts, over all lanes. The most frequent amounts
    /// come first, and the group of all remaining measurements last.
    pub fn tuples(&self) -> Vec<TupleFigures> {
        let mut found: Vec<TupleFigures> = Vec::new();
        for tuple in self.cells().iter().flat_map(|cell| &cell.tuples) {
            let known = found.iter().position(|known| known.each == tuple.each);
            let at = known.unwrap_or_else(|| {
                let (each, total) = (tuple.each.clone(), Stats::default());
                found.push(TupleFigures {
                    each,
                    sums: [0; AMOUNTS],
                    rates: [None; AMOUNTS],
                    total,
                });
                found.len() - 1
            });
            found[at].total = [&found[at].total, &tuple.stats].into_iter().sum();
            for (place, sum) in found[at].sums.iter_mut().enumerate() {
                *sum = sum.saturating_add(tuple.sum(place));
            }
        }
        for tuple in &mut found {
            tuple.rates = tuple.sums.map(|sum| self.per_cpu_second(sum, tuple.total.exclusive));
        }
        found.sort_by_key(|one| (one.each.is_empty(), std::cmp::Reverse(one.total.count)));
        found
    }
}
