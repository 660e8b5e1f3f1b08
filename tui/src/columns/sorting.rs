//! The order of the table's rows.

use std::cmp::Reverse;

use super::{Column, by};
use crate::model::{BUCKETS_AT_ONCE, Figures, Quantiles};

/// What the table is sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorting {
    /// The column.
    pub column: Column,
    /// Greatest first.
    pub descending: bool,
}

impl Sorting {
    /// By a column in its natural direction.
    pub fn by(column: Column) -> Self {
        Self { column, descending: column.spec().heading.sorts == Some(true) }
    }

    /// The ids of these points in order. Equal points keep the order of their ids, but within a
    /// process they are sorted by load.
    pub fn order<'a>(self, points: impl IntoIterator<Item = &'a Figures>) -> Vec<u32> {
        self.order_by(points.into_iter().collect(), Figures::quantiles)
    }

    /// Sorts within the time of a frame, however many threads have measured these points. If there
    /// is too much to compute all quantiles anew, the oldest are computed, and the others stay.
    pub fn order_at_once<'a>(self, points: impl IntoIterator<Item = &'a Figures>) -> Vec<u32> {
        self.order_within(BUCKETS_AT_ONCE, points.into_iter().collect())
    }

    pub(super) fn order_within(self, mut buckets: usize, points: Vec<&Figures>) -> Vec<u32> {
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
        self.order_by(points, Figures::quantiles_lately)
    }

    fn order_by(
        self,
        mut sorted: Vec<&Figures>,
        quantiles: fn(&Figures) -> Option<Quantiles>,
    ) -> Vec<u32> {
        let (column, with) = (self.column.spec(), by(quantiles));
        sorted.sort_by(|a, b| {
            let order = column.compare(a, b, &with);
            let order = if self.descending { order.reverse() } else { order };
            // Live points come before ended ones.
            let order = match self.column {
                Column::Load | Column::Rate => a.is_ended().cmp(&b.is_ended()).then(order),
                _ => order,
            };
            match self.column {
                Column::Process => order.then_with(|| Column::Load.compare(b, a)),
                _ => order,
            }
        });
        sorted.into_iter().map(Figures::id).collect()
    }
}
