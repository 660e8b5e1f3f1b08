//! The figures of a point before this viewer reset it. If the reset is undone, they are added to
//! the point's later figures, in this viewer alone: the program's own figures stay reset.

use std::collections::HashMap;
use std::sync::Arc;

use crate::snapshot::{Cell, Edge, Snapshot};

/// The figures of a point before a reset.
#[derive(Clone, Debug)]
pub struct BeforeReset {
    /// Id of the point.
    pub point: u32,
    resets: u32,
    since_ticks: Option<u64>,
    cells: Vec<Arc<Cell>>,
    edges: Vec<Edge>,
}

impl BeforeReset {
    /// The figures of a point in this snapshot; `None` if the snapshot has no such point. No reset
    /// clears the memory that is not freed yet, so it is left out.
    pub fn of(snapshot: &Snapshot, point: u32) -> Option<Self> {
        let known = snapshot.point(point)?;
        Some(Self {
            point,
            resets: known.resets,
            since_ticks: known.since_ticks,
            cells: snapshot.cells_of(point).iter().map(Cell::without_live).collect(),
            edges: snapshot.edges.iter().filter(|edge| edge.point == point).copied().collect(),
        })
    }

    /// Whether this snapshot shows the point's figures since the reset.
    pub(super) fn is_over(&self, snapshot: &Snapshot) -> bool {
        snapshot.point(self.point).is_some_and(|point| point.resets != self.resets)
    }
}

/// The points whose resets were undone.
#[derive(Debug, Default)]
pub(super) struct Undone {
    figures: HashMap<u32, BroughtBack>,
    /// For each point, how often its figures were brought back. This number is added to the point's
    /// number of resets; otherwise, a comparison of two snapshots would take the figures for new
    /// measurements.
    times: HashMap<u32, u32>,
}

#[derive(Debug)]
struct BroughtBack {
    before: BeforeReset,
    /// The point's resets in the program when its figures were brought back. `None` before the next
    /// snapshot.
    resets: Option<u32>,
}

impl Undone {
    pub(super) fn bring_back(&mut self, before: BeforeReset) {
        *self.times.entry(before.point).or_default() += 1;
        self.figures.insert(before.point, BroughtBack { before, resets: None });
    }

    /// Forgets the figures of a point that this viewer resets again.
    pub(super) fn forget(&mut self, point: u32) {
        self.figures.remove(&point);
    }

    /// Adds the figures from before the resets to a snapshot of the source, except for points that
    /// were reset again. In a sum of processes, another reset is not detected, since the number of
    /// resets also changes when a process joins.
    pub(super) fn add_to(&mut self, snapshot: &mut Snapshot) {
        if self.times.is_empty() {
            return;
        }
        let is_one = snapshot.process.members.is_empty();
        for point in &mut snapshot.points {
            if let Some(brought_back) = self.figures.get_mut(&point.id) {
                if *brought_back.resets.get_or_insert(point.resets) != point.resets && is_one {
                    self.figures.remove(&point.id);
                } else {
                    point.since_ticks = brought_back.before.since_ticks;
                }
            }
            // Another process may have written any number.
            let times = self.times.get(&point.id).copied().unwrap_or(0);
            point.resets = point.resets.wrapping_add(times);
        }
        for BroughtBack { before: figures, .. } in self.figures.values() {
            for before in &figures.cells {
                match snapshot.cells.binary_search_by_key(&before.key(), |cell| cell.key()) {
                    Ok(place) => {
                        let cell = Arc::make_mut(&mut snapshot.cells[place]);
                        *cell = before.with(cell);
                    }
                    Err(place) => snapshot.cells.insert(place, Arc::clone(before)),
                }
            }
            for before in &figures.edges {
                match snapshot.edges.binary_search_by_key(&before.key(), Edge::key) {
                    Ok(place) => snapshot.edges[place].add(before),
                    Err(place) => snapshot.edges.insert(place, *before),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    #[test]
    fn figures_that_are_brought_back_are_those_before_and_those_since() {
        let mut before = Synthetic::new().poll().unwrap();
        let id = before.edges[0].point;
        let place = before.cells.iter().position(|cell| cell.point == id).unwrap();
        let Cell { allocs, heap, .. } = Arc::make_mut(&mut before.cells[place]);
        (allocs.allocs, heap.sizes[3]) = (3, 90);
        (heap.live_bytes, heap.live_samples) = (700, 1);
        let figures = BeforeReset::of(&before, id).unwrap();
        assert!(BeforeReset::of(&before, u32::MAX).is_none());
        // After the reset, the point has measured the same once more.
        let mut after = before.clone();
        let place = after.points.iter().position(|point| point.id == id).unwrap();
        after.points[place].resets += 1;
        after.points[place].since_ticks = Some(after.elapsed_ticks);
        assert!(figures.is_over(&after) && !figures.is_over(&before));
        let mut undone = Undone::default();
        undone.bring_back(figures);
        let mut shown = after.clone();
        undone.add_to(&mut shown);
        assert_eq!(shown.points[place].since_ticks, before.points[place].since_ticks);
        assert_eq!(shown.points[place].resets, after.points[place].resets + 1);
        for (cell, once) in shown.cells.iter().zip(&before.cells) {
            let times = if cell.point == id { 2 } else { 1 };
            assert_eq!(cell.total().count, times * once.total().count);
            assert_eq!(cell.total().exclusive, times * once.total().exclusive);
            assert_eq!(cell.allocs.allocs, times * once.allocs.allocs);
            assert_eq!(cell.heap.sizes[3], times * once.heap.sizes[3]);
            assert_eq!(cell.heap.live_bytes, once.heap.live_bytes, "it is a state, no sum");
            let counts = |cell: &Cell| cell.histogram.iter().map(|it| it.count).sum::<u64>();
            assert_eq!(counts(cell), times * counts(once));
        }
        for (edge, once) in shown.edges.iter().zip(&before.edges) {
            assert_eq!(edge.count, if edge.point == id { 2 } else { 1 } * once.count);
        }
        // A thread that has not measured since the reset has only its figures from before.
        let mut shown = after.clone();
        shown.cells.retain(|cell| cell.point != id);
        undone.add_to(&mut shown);
        let without_live: Vec<_> = before.cells.iter().map(Cell::without_live).collect();
        assert_eq!(shown.cells, without_live);
        // After another reset, by any viewer or the program, only the later figures are shown, and
        // the number of resets changes again.
        after.points[place].resets += 1;
        let mut shown = after.clone();
        undone.add_to(&mut shown);
        assert_eq!(shown.cells, after.cells);
        assert_eq!(shown.points[place].resets, after.points[place].resets + 1);
    }
}
