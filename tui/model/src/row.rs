//! A point of a snapshot, with its threads and processes, for filters.

use std::sync::Arc;

use pfp_read::snapshot::{Cell, Lane, Point, Process, Snapshot};

/// A point of a snapshot, and its cells.
#[derive(Clone, Copy)]
pub(crate) struct PointRow<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) point: &'a Point,
    pub(crate) cells: &'a [Arc<Cell>],
}

impl<'a> PointRow<'a> {
    /// Process of the point, or all processes over which the point is summed.
    pub(crate) fn processes(self) -> impl Iterator<Item = &'a Process> {
        let own = self.snapshot.member(self.point.process);
        own.map_or_else(|| self.snapshot.processes(), std::slice::from_ref).iter()
    }

    /// The threads that were in it.
    pub(crate) fn lanes(self) -> impl Iterator<Item = &'a Lane> {
        self.cells.iter().filter_map(move |cell| self.snapshot.lane(cell.lane))
    }
}
