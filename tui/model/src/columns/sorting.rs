//! The order of the table's rows.

use std::cmp::{Ordering, Reverse};
use std::collections::HashMap;

use super::{Column, by};
use crate::{BUCKETS_AT_ONCE, Figures, Quantiles};

/// The order of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// The column whose values order the rows.
    pub column: Column,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// A row keeps its place until its load has changed by more than this share of a CPU, or by more
/// than half.
const KEPT_WITHIN: f64 = 0.001;

/// The loads by which the rows are sorted. They follow the points' loads with hysteresis, so that
/// rows with nearly equal loads do not swap places at every poll.
#[derive(Debug, Default)]
pub struct SteadyLoads(HashMap<u32, f64>);

impl SteadyLoads {
    /// The loads of these points.
    pub fn of<'a>(points: impl Iterator<Item = &'a Figures>) -> Self {
        let mut loads = Self::default();
        loads.follow(points.map(|figures| (figures.id(), figures.load())));
        loads
    }

    /// Follows the loads at the last poll.
    pub fn follow(&mut self, loads: impl Iterator<Item = (u32, Option<f64>)>) {
        let before = std::mem::take(&mut self.0);
        let loads = loads.filter_map(|(id, load)| Some((id, load?)));
        self.0.extend(loads.map(|(id, load)| {
            let room = |kept: f64| KEPT_WITHIN.min(kept / 2.0);
            let kept = before.get(&id).filter(|kept| (*kept - load).abs() <= room(**kept));
            (id, kept.copied().unwrap_or(load))
        }));
    }

    /// Compares the loads of the rows with these ids. A row without a load is less than any other.
    pub fn compare(&self, a: u32, b: u32) -> Ordering {
        let load = |id| self.0.get(&id).copied().unwrap_or(f64::NEG_INFINITY);
        load(a).total_cmp(&load(b))
    }
}

impl Sorting {
    /// Sorting by a column in its natural direction.
    pub fn by(column: Column) -> Self {
        Self { column, descending: column.spec().heading.sorts == Some(true) }
    }

    /// The ids of these points in order. Equal points stay in the order given, except that sorting
    /// by process sorts the points of each process by load, the greatest first.
    pub fn order<'a>(self, points: impl IntoIterator<Item = &'a Figures>) -> Vec<u32> {
        let points: Vec<&Figures> = points.into_iter().collect();
        let loads = SteadyLoads::of(points.iter().copied());
        self.order_by(points, Figures::quantiles, &loads)
    }

    /// Sorts within the time of a frame, even if many threads have measured these points. If there
    /// are too many quantiles to compute, only the oldest ones are computed again.
    pub fn order_at_once<'a>(
        self,
        points: impl IntoIterator<Item = &'a Figures>,
        loads: &SteadyLoads,
    ) -> Vec<u32> {
        self.order_within(BUCKETS_AT_ONCE, points.into_iter().collect(), loads)
    }

    pub(super) fn order_within(
        self,
        mut buckets: usize,
        points: Vec<&Figures>,
        loads: &SteadyLoads,
    ) -> Vec<u32> {
        if matches!(self.column, Column::P50 | Column::P90 | Column::P99) {
            let mut old: Vec<(u32, &Figures)> =
                points.iter().filter_map(|f| Some((f.quantiles_ago()?, *f))).collect();
            old.sort_by_key(|(ago, _)| Reverse(*ago));
            for (_, figures) in old {
                if buckets == 0 {
                    break;
                }
                buckets = buckets.saturating_sub(figures.bucket_count());
                figures.quantiles();
            }
        }
        self.order_by(points, Figures::quantiles_lately, loads)
    }

    fn order_by(
        self,
        mut sorted: Vec<&Figures>,
        quantiles: fn(&Figures) -> Option<Quantiles>,
        loads: &SteadyLoads,
    ) -> Vec<u32> {
        let (column, with) = (self.column.spec(), by(quantiles));
        let by_load = |a: &Figures, b: &Figures| loads.compare(a.id(), b.id());
        sorted.sort_by(|a, b| {
            let order = match self.column {
                Column::Load => by_load(a, b),
                _ => column.compare(a, b, &with),
            };
            let order = if self.descending { order.reverse() } else { order };
            // Live points come before ended ones.
            let order = match self.column {
                Column::Load | Column::Rate => a.is_ended().cmp(&b.is_ended()).then(order),
                _ => order,
            };
            match self.column {
                Column::Process => order.then_with(|| by_load(b, a)),
                _ => order,
            }
        });
        sorted.into_iter().map(Figures::id).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The order of the rows after a poll with these loads, in thousandths of a CPU.
    fn order(steady: &mut SteadyLoads, loads: &[f64]) -> Vec<u32> {
        steady.follow((0..).zip(loads.iter().map(|load| Some(load / 1000.0))));
        let mut rows: Vec<u32> = (0..loads.len() as u32).collect();
        rows.sort_by(|a, b| steady.compare(*b, *a));
        rows
    }

    #[test]
    fn rows_of_nearly_equal_loads_keep_their_places() {
        let mut steady = SteadyLoads::default();
        let first = order(&mut steady, &[400.0, 2.0, 1.8, 0.3, 0.28]);
        assert_eq!(first, [0, 1, 2, 3, 4]);
        for poll in 0..20 {
            let noise = if poll % 2 == 0 { 0.8 } else { 1.25 };
            let loads = [400.0, 2.0 * noise, 1.8 / noise, 0.3 * noise, 0.28 / noise];
            assert_eq!(order(&mut steady, &loads), first, "poll {poll}");
        }
        // A visible change moves a row at once.
        assert_eq!(order(&mut steady, &[400.0, 2.0, 3.5, 0.3, 0.7]), [0, 2, 1, 4, 3]);
        assert_eq!(order(&mut steady, &[400.0, 401.5, 3.5, 0.3, 0.7]), [1, 0, 2, 4, 3]);
    }
}
