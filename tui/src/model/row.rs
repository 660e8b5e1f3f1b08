//! A point of a snapshot, whose threads and processes a filter asks for.

use std::sync::Arc;

use crate::snapshot::{Cell, Lane, Point, Process, Snapshot};

/// A point of a snapshot, and its cells.
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) point: &'a Point,
    pub(crate) cells: &'a [Arc<Cell>],
}

impl<'a> Row<'a> {
    /// The processes that it is of: its own, or all that it is summed over.
    pub(crate) fn processes(self) -> impl Iterator<Item = &'a Process> {
        let whole = &self.snapshot.process;
        let own = self.point.process.and_then(|place| whole.members.get(place as usize));
        let (one, several) = match own {
            None if whole.members.is_empty() => (Some(whole), &[][..]),
            None => (None, whole.members.as_slice()),
            one => (one, &[][..]),
        };
        one.into_iter().chain(several)
    }

    /// The threads that were in it, where they are known.
    pub(crate) fn lanes(self) -> impl Iterator<Item = &'a Lane> {
        let cells = if self.snapshot.has_threads_of(self.point.id) { self.cells } else { &[] };
        cells.iter().filter_map(move |cell| self.snapshot.lane(cell.lane))
    }
}
