//! Models of the chain of cells.

use std::sync::Arc;

use loom::thread;

use super::{ON, assert_ready, check, large, make_ready, memory, torn_or_whole};
use crate::chain::CellBlock;
use crate::geometry::CELLS_PER_BLOCK;
use crate::sync::watch;

/// A cell is prepared before the chain counts it.
pub(super) fn chain_cell() {
    check(|| {
        let block = large(CellBlock::new);
        watch(&*block, &["used", "point"]);
        let writer = {
            let block = Arc::clone(&block);
            thread::spawn(move || {
                block.cell(0).prepare(7, ON, 1);
                block.set_used(1);
            })
        };
        if let ([cell], _) = block.read() {
            assert_eq!(torn_or_whole(cell).point, 7);
        }
        writer.join().unwrap();
    });
}

/// A reader that continues to the next block has seen all cells of this block, and finds the next
/// one backed by memory.
pub(super) fn chain_next() {
    check(|| {
        let (block, next) = (large(CellBlock::new), memory());
        watch(&*block, &["used", "next"]);
        let writer = {
            let (block, next) = (Arc::clone(&block), Arc::clone(&next));
            thread::spawn(move || {
                block.set_used(CELLS_PER_BLOCK);
                make_ready(&next);
                block.set_next(5);
            })
        };
        if let (cells, 5) = block.read() {
            assert_eq!(cells.len(), CELLS_PER_BLOCK);
            assert_ready(&next);
        }
        writer.join().unwrap();
    });
}
