//! A lane's cells: a chain of blocks, each filled front to back.
//!
//! ```text
//!    0 +------------------------------------------+
//!      | next | used | spare                      |  the lane's thread
//!  384 +------------------------------------------+
//!      | cells[25]                                |  see `crate::layout::cell`
//!      +------------------------------------------+
//! ```
//!
//! A cell is prepared, then counted in `used`; a block is full before the next
//! one is linked. Readers know a cell by its place in the chain, so a reader
//! that goes on to the next block must have seen every cell of this one.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `cells-used` store | `cells-used-seen` load | the cells counted are prepared |
//! | `cells-next` store | `cells-next-seen` load | all cells of this block are counted; the first page of the next is backed by memory |

use crate::layout::cell::Cell;
use crate::layout::geometry::{BLOCK, CELLS_PER_BLOCK};
use crate::sync::{AtomicU64, ord};

/// Number of words before the cells.
const HEAD: usize = (BLOCK - CELLS_PER_BLOCK * size_of::<Cell>()) / size_of::<AtomicU64>();

/// A block of cells; see the module for the drawing.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct CellBlock {
    next: AtomicU64,
    used: AtomicU64,
    spare: [AtomicU64; HEAD - 2],
    cells: [Cell; CELLS_PER_BLOCK],
}

impl Default for CellBlock {
    fn default() -> Self {
        Self::new()
    }
}

impl CellBlock {
    /// A block of zeros, like fresh shared memory: no cells, no next block.
    #[must_use]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            next: zero(),
            used: zero(),
            spare: core::array::from_fn(|_| zero()),
            cells: core::array::from_fn(|_| Cell::new()),
        }
    }

    // ---- writer: the lane's own thread ----

    /// The cell of a number below [`CELLS_PER_BLOCK`].
    #[must_use]
    pub fn cell(&self, index: usize) -> &Cell {
        &self.cells[index]
    }

    /// Announces that the first `used` cells are prepared. Pairs with `cells-used-seen`.
    pub fn set_used(&self, used: usize) {
        self.used.store(used as u64, ord!("cells-used", Release));
    }

    /// Links the next block, once this one is full. Pairs with `cells-next-seen`.
    pub fn set_next(&self, block: u64) {
        self.next.store(block, ord!("cells-next", Release));
    }

    // ---- reader: any thread or process ----

    /// The cells in use, and the number of the next block, 0 at the chain's
    /// end.
    #[must_use]
    pub fn read(&self) -> (&[Cell], u64) {
        // The link is read before `used`. In the other order, this block could fill up and be
        // linked between the two reads, and the reader would give the cells of the next block wrong
        // places. Pairs with `cells-next`.
        let next = self.next.load(ord!("cells-next-seen", Acquire));
        // Pairs with `cells-used`.
        let used = self.used.load(ord!("cells-used-seen", Acquire));
        let used = usize::try_from(used).map_or(CELLS_PER_BLOCK, |n| n.min(CELLS_PER_BLOCK));
        (&self.cells[..used], next)
    }
}
