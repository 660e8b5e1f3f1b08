//! The growth of cells and edges from one picture to the next, in few bytes.
//!
//! Most of a picture consists of cells that have measured since the previous picture, and of edges
//! along which calls were made since. For these, only the differences are sent, as variable-length
//! integers. All other changes are sent in the format of a recording: see
//! [`pfp_read::files::recording`].

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use pfp_read::files::recording::{grown_buckets, merged_buckets};
use pfp_read::snapshot::{Bucket, Cell, Edge, FigureChanges, Snapshot};

/// The cells and edges that have only grown, in the order of the previous picture.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Growth {
    cells: Vec<GrownCell>,
    edges: Vec<GrownEdge>,
}

/// A cell that has measured.
#[derive(Debug, Serialize, Deserialize)]
struct GrownCell {
    /// Number of cells of the previous picture between the previous entry's cell and this one.
    skipped: u32,
    stats: FigureChanges,
    retired: FigureChanges,
    buckets: Vec<GrownBucket>,
}

/// A bucket that has grown.
#[derive(Debug, Serialize, Deserialize)]
struct GrownBucket {
    /// Least value in the bucket, minus the least value in the previous entry's bucket.
    step: u64,
    width: u64,
    count: u64,
}

/// An edge along which calls were made.
#[derive(Debug, Serialize, Deserialize)]
struct GrownEdge {
    /// Number of edges of the previous picture between the previous entry's edge and this one.
    skipped: u32,
    /// Changes of its figures, in the order of [`Edge::figures`].
    changes: [i64; 6],
}

impl Growth {
    /// The growth of `now` since `before`. Also returns `now` without the growth: cells and edges
    /// that have grown are as in `before`.
    pub(super) fn between(before: &Snapshot, now: &Snapshot) -> (Self, Snapshot) {
        let mut growth = Self::default();
        let mut rest = now.without_measurements();
        rest.cells.clone_from(&now.cells);
        rest.edges.clone_from(&now.edges);
        let mut skipped = 0;
        let mut places = rest.cells.iter_mut().peekable();
        for old in &before.cells {
            while places.next_if(|cell| cell.key() < old.key()).is_some() {}
            let same = places.next_if(|cell| cell.key() == old.key());
            let changed = same.filter(|cell| !Arc::ptr_eq(cell, old));
            let grown = changed.and_then(|cell| Some((GrownCell::of(skipped, old, cell)?, cell)));
            match grown {
                Some((grown, cell)) => {
                    growth.cells.push(grown);
                    *cell = Arc::clone(old);
                    skipped = 0;
                }
                None => skipped += 1,
            }
        }
        skipped = 0;
        let mut places = rest.edges.iter_mut().peekable();
        for old in &before.edges {
            while places.next_if(|edge| edge.key() < old.key()).is_some() {}
            match places.next_if(|edge| edge.key() == old.key() && **edge != *old) {
                Some(edge) => {
                    growth.edges.push(GrownEdge { skipped, changes: changes(old, edge) });
                    *edge = *old;
                    skipped = 0;
                }
                None => skipped += 1,
            }
        }
        (growth, rest)
    }

    /// Adds the growth to a snapshot that has all other changes since `before`.
    ///
    /// # Errors
    ///
    /// If the growth names a cell or an edge that one of the two snapshots lacks.
    pub(super) fn add_to(self, snapshot: &mut Snapshot, before: &Snapshot) -> Result<()> {
        let mut place = 0;
        for grown in self.cells {
            let old = nth(&before.cells, &mut place, grown.skipped)?;
            let key = old.key();
            let found = snapshot.cells.binary_search_by_key(&key, |cell| cell.key());
            snapshot.cells[found.ok().context("a cell that is gone has grown")?] =
                Arc::new(grown.cell(old));
        }
        place = 0;
        for grown in self.edges {
            let old = nth(&before.edges, &mut place, grown.skipped)?;
            let found = snapshot.edges.binary_search_by_key(&old.key(), Edge::key);
            let edge = &mut snapshot.edges[found.ok().context("an edge that is gone has grown")?];
            let figures = old.figures();
            *edge = old.with_figures(std::array::from_fn(|at| {
                figures[at].wrapping_add_signed(grown.changes[at])
            }));
        }
        Ok(())
    }
}

/// Skips `skipped` entries from the index `place` on, and returns the next entry. `place` then is
/// the index after that entry.
fn nth<'a, T>(entries: &'a [T], place: &mut usize, skipped: u32) -> Result<&'a T> {
    let at = place.saturating_add(skipped as usize);
    *place = at.saturating_add(1);
    entries.get(at).context("the growth names an entry that does not exist")
}

fn changes(old: &Edge, new: &Edge) -> [i64; 6] {
    new.combined(old, u64::wrapping_sub).figures().map(u64::cast_signed)
}

impl GrownCell {
    /// `None` if the cell has tuples of amounts or other allocations, or if it has lost buckets, as
    /// after a reset.
    fn of(skipped: u32, old: &Cell, new: &Cell) -> Option<Self> {
        let has_tuples = !old.tuples.is_empty() || !new.tuples.is_empty();
        if has_tuples || (old.allocs, old.heap) != (new.allocs, new.heap) {
            return None;
        }
        let mut before = old.histogram.iter().peekable();
        let mut low = 0;
        let buckets = grown_buckets(&old.histogram, &new.histogram)?;
        let grown = buckets.into_iter().map(|bucket| {
            while before.next_if(|old| old.low < bucket.low).is_some() {}
            let known = before.next_if(|old| old.low == bucket.low);
            let step = bucket.low.wrapping_sub(low);
            low = bucket.low;
            let count = bucket.count.wrapping_sub(known.map_or(0, |old| old.count));
            GrownBucket { step, width: bucket.width, count }
        });
        let buckets = grown.collect();
        let stats = FigureChanges::between(&old.stats, &new.stats);
        let retired = FigureChanges::between(&old.retired, &new.retired);
        Some(Self { skipped, stats, retired, buckets })
    }

    fn cell(self, old: &Cell) -> Cell {
        let mut low = 0_u64;
        let grown = self.buckets.into_iter().map(|GrownBucket { step, width, count }| {
            low = low.wrapping_add(step);
            let place = old.histogram.binary_search_by_key(&low, |bucket| bucket.low);
            let before = place.map_or(0, |place| old.histogram[place].count);
            Bucket { low, width, count: before.wrapping_add(count) }
        });
        let grown: Vec<Bucket> = grown.collect();
        Cell {
            stats: self.stats.after(&old.stats),
            retired: self.retired.after(&old.retired),
            histogram: merged_buckets(&old.histogram, &grown),
            ..old.clone()
        }
    }
}
