//! The cells of a lane, in the order in which they were taken.

use super::backed::Sparse;
use super::bounds::MAX_BLOCKS;
use super::near;
use crate::heap::{self, NoMemory};
use crate::layout::cell::Cell;
use crate::layout::geometry::Geometry;

/// The cells of a lane, in the order in which they were taken.
pub(crate) struct LaneCells<'a> {
    segment: Sparse<'a>,
    block: u64,
    cells: std::slice::Iter<'a, Cell>,
    visited: &'a mut Visited,
}

/// The blocks of cells that were read in this poll. A block is in one chain, once. But a damaged
/// chain may form a loop, and the chains of many lanes may lead into one block.
#[derive(Debug)]
pub(crate) struct Visited(Vec<u64>);

impl Visited {
    pub(crate) fn new(geometry: &Geometry) -> Result<Self, NoMemory> {
        let words = geometry.blocks_present().min(MAX_BLOCKS) / 64 + 1;
        Ok(Self(heap::collect(std::iter::repeat_n(0, words))?))
    }

    pub(super) fn forget(&mut self) {
        self.0.fill(0);
    }

    /// Notes a block; false if it was noted already, or is not a valid block.
    fn note(&mut self, block: u64) -> bool {
        let word = usize::try_from(block / 64).ok().and_then(|place| self.0.get_mut(place));
        let Some(word) = word else { return false };
        let is_new = *word >> (block % 64) & 1 == 0;
        *word |= 1 << (block % 64);
        is_new
    }
}

impl<'a> LaneCells<'a> {
    pub(crate) fn new(segment: Sparse<'a>, block: u64, visited: &'a mut Visited) -> Self {
        Self { segment, block, cells: [].iter(), visited }
    }
}

impl<'a> Iterator for LaneCells<'a> {
    type Item = &'a Cell;

    fn next(&mut self) -> Option<&'a Cell> {
        loop {
            if let Some(cell) = self.cells.next() {
                if let Some(ahead) = self.cells.as_slice().get(AHEAD) {
                    near::fetch_start(ahead);
                }
                // Only a damaged chain leads to cells without memory.
                return self.segment.has_cell(cell).then_some(cell);
            }
            let block = self.segment.cell_block(self.block)?;
            if !self.visited.note(self.block) {
                return None;
            }
            let (cells, next) = block.read();
            self.cells = cells.iter();
            self.block = next;
            if let Some(next) = self.segment.cell_block(next) {
                near::fetch_start(next);
                (0..AHEAD).for_each(|ahead| near::fetch_start(next.cell(ahead)));
            }
        }
    }
}

/// Distance, in cells, between the cell that is read and the cell whose first line is prefetched.
const AHEAD: usize = 8;
