//! What the rows of the table are sorted by.

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
        Self { column, descending: column.greatest_first() }
    }

    /// The ids of these points in order. Equals keep the order of their ids, but
    /// those of one process are told apart by what they burn.
    pub fn order<'a>(self, points: impl IntoIterator<Item = &'a Figures>) -> Vec<u32> {
        self.order_by(points.into_iter().collect(), Figures::quantiles)
    }

    /// The same within the time of a frame, however many threads have measured
    /// these points: where there is too much to work all quantiles out anew, those
    /// that are oldest are, and the others are the last known ones.
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
            // What burns now stands above what has ended.
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
