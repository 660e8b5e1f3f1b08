//! Space in the segment for a thread's cells and their histograms. Only cold paths call this.

use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::allocs::AllocWords;
use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::{self, Control};
use pfp_shm_layout::geometry::{ALLOC_CHUNKS, BLOCK, CELLS_PER_BLOCK, CHUNK, PAGE};
use pfp_shm_layout::histogram;
use pfp_shm_layout::segment::{Chunk, Segment};
use pfp_shm_layout::shared_cell::Entered;

use super::{Entry, Thread};
use crate::clock::calibrate::shared_ns;
use crate::engine::process::memory::clear_chunk;
use crate::engine::process::{self, Process};
use crate::engine::{cold, fold};
use crate::point::Point;

/// Chunks in a block.
const PER_BLOCK: u64 = (BLOCK / CHUNK) as u64;

/// Attempts to find a shared cell.
const SHARED_CELL_ATTEMPTS: u32 = 8;
/// For this time after a reset, a shared cell is not cleared while a thread is still in it.
const DRAIN_NS: u64 = 1_000_000_000;

/// Chunks that a shared cell takes: a power of two, so that they are in one page.
const SHARED_CELL: u64 = size_of::<Cell>().div_ceil(CHUNK).next_power_of_two() as u64;

impl Thread {
    /// Makes the calling thread's cell of a point ready to follow `control`.
    pub(in crate::engine) fn ready_cell(
        &self,
        process: &'static Process,
        point: &Point,
        control: Control,
    ) -> Option<&Entry> {
        let index = point.index();
        let owner = self.generation.load(Relaxed) as u32;
        let entry = self.entry(point);
        let limited_before = entry.follows().limit().is_some();
        if let Some(cell) = entry.cell() {
            // The records in the ring belong to the window that ends now, so they are folded first.
            fold::fold(self);
            let sums = process.segment.sums(cell.amounts());
            let clear = |chunk| clear_chunk(&process.segment, chunk);
            cell.follow_with(control, owner, sums, clear);
            entry.edge.store(0, Relaxed);
            entry.follows.store(control.0, Relaxed);
            if limited_before || control.limit().is_some() {
                self.follow_limits();
            }
            return Some(entry);
        }
        let cell = self.new_cell(process)?;
        if point.has_amounts() {
            cell.set_amounts(self.new_chunks(process, 1)?);
        }
        cell.prepare(index as u32, control, owner);
        self.commit_cell(process);
        entry.set_cell(cell);
        entry.follows.store(control.0, Relaxed);
        if control.limit().is_some() {
            self.follow_limits();
        }
        self.publish_switches();
        Some(entry)
    }

    /// The sums of allocations of a cell, added if they are missing. `None` if memory runs out.
    #[inline(always)]
    pub(in crate::engine) fn allocs_for(&self, cell: &Cell) -> Option<&AllocWords> {
        self.allocs_in(cell.allocs()).or_else(|| self.new_allocs(cell))
    }

    #[cold]
    #[inline(never)]
    fn new_allocs(&self, cell: &Cell) -> Option<&AllocWords> {
        if cell.allocs() == 0 {
            let chunks = ALLOC_CHUNKS as u64;
            cell.set_allocs(self.new_chunks(process::current()?, chunks)?);
        }
        self.allocs_in(cell.allocs())
    }

    /// The sums of allocations from a chunk on; `None` if another process has forged the number.
    #[inline(always)]
    fn allocs_in(&self, chunk: u32) -> Option<&AllocWords> {
        let first = self.chunk(chunk)?;
        self.chunk(chunk.wrapping_add(ALLOC_CHUNKS as u32 - 1))?;
        const { assert!(size_of::<AllocWords>() <= ALLOC_CHUNKS * CHUNK) };
        const { assert!(align_of::<AllocWords>() <= CHUNK) };
        // SAFETY: all chunks of the words are in the pool, as just tested. Chunks have the words'
        // alignment, and both consist of atomics. The address was exposed with the segment's.
        Some(unsafe { &*ptr::from_ref(first).cast::<AllocWords>() })
    }

    /// Takes the lane's next cell, which readers do not see yet.
    fn new_cell<'a>(&self, process: &'a Process) -> Option<&'a Cell> {
        let segment = &process.segment;
        if self.cell_block.load(Relaxed) == 0
            || self.cells_used.load(Relaxed) as usize == CELLS_PER_BLOCK
        {
            let block = process.take_block()?;
            // The first page has the link to the next block, which readers follow.
            if process.back(segment.block_offset(block)?, PAGE).is_none() {
                process.release_block(block);
                return None;
            }
            match segment.cell_block(self.cell_block.load(Relaxed)) {
                Some(last) => last.set_next(block),
                None => segment.lane(self.lane.load(Relaxed) as usize)?.set_cells_block(block),
            }
            self.cell_block.store(block, Relaxed);
            self.cells_used.store(0, Relaxed);
        }
        let block = segment.cell_block(self.cell_block.load(Relaxed))?;
        let cell = block.cell(self.cells_used.load(Relaxed) as usize);
        let offset = (&raw const *cell).addr() - segment.base().addr();
        // Only the last page of the cell may be new.
        let last = offset + size_of::<Cell>() - 1;
        if last / PAGE != (offset - 1) / PAGE {
            process.back(last / PAGE * PAGE, PAGE)?;
        }
        Some(cell)
    }

    /// Publishes the cell that was taken last.
    fn commit_cell(&self, process: &Process) {
        let used = self.cells_used.load(Relaxed) + 1;
        self.cells_used.store(used, Relaxed);
        if let Some(block) = process.segment.cell_block(self.cell_block.load(Relaxed)) {
            block.set_used(used as usize);
        }
    }

    /// The bucket of a measurement; `None` if its part of the histogram gets no memory.
    pub(crate) fn bucket_for(&self, cell: &Cell, ticks: u64) -> Option<&AtomicU64> {
        let ticks = ticks.min(histogram::LIMIT - 1);
        let (part, bucket) = histogram::locate(ticks);
        self.part_for(cell, part).map(|chunk| &chunk.0[bucket])
    }

    /// The counters of a histogram part, which this adds if it is missing; `None` if memory runs
    /// out.
    #[inline(always)]
    pub(in crate::engine) fn part_for(&self, cell: &Cell, part: usize) -> Option<&Chunk> {
        self.chunk(cell.part(part)).or_else(|| self.new_part(cell, part))
    }

    #[cold]
    #[inline(never)]
    fn new_part(&self, cell: &Cell, part: usize) -> Option<&Chunk> {
        if cell.part(part) == 0 {
            cell.set_part(part, self.new_chunks(process::current()?, 1)?);
        }
        self.chunk(cell.part(part))
    }

    /// The next chunks of the lane, `count` in a row and aligned to their number, a power of two up
    /// to the chunks of a page. A signal handler may call this while it interrupts such a call.
    fn new_chunks(&self, process: &Process, count: u64) -> Option<u32> {
        let segment = &process.segment;
        let mut next = self.chunks.load(Relaxed);
        loop {
            let mut first = next.next_multiple_of(count);
            let mut block = None;
            if next == 0 || next.is_multiple_of(PER_BLOCK) || first.is_multiple_of(PER_BLOCK) {
                // The position after a full block is the start of the next block, which is not the
                // lane's.
                let taken = process.take_block()?;
                block = Some(taken);
                first = taken * PER_BLOCK;
            }
            let in_block = (first % PER_BLOCK) as usize * CHUNK;
            let offset = segment.block_offset(first / PER_BLOCK)? + in_block;
            let backed = !offset.is_multiple_of(PAGE) || process.back(offset, PAGE).is_some();
            if backed {
                match self.chunks.compare_exchange(next, first + count, Relaxed, Relaxed) {
                    Ok(_) => return Some((offset / CHUNK) as u32),
                    Err(found) => next = found,
                }
            }
            if let Some(block) = block {
                process.release_block(block);
            }
            if !backed {
                return None;
            }
        }
    }

    /// The shared cell of a point, on the overflow lane. No thread clears the cell until the
    /// returned value is dropped.
    pub(crate) fn shared_cell(&self, point: &'static Point) -> Option<Entered<'static>> {
        let (index, control) = (point.index(), point.control());
        let process = process::current()?;
        let control = control.sanitized();
        let segment = &process.segment;
        let entry = segment.entry(index)?;
        // Repeated, because another thread may be clearing a cell, or may add a missing one first.
        for _ in 0..SHARED_CELL_ATTEMPTS {
            let cells = entry.shared_cells().map(|offset| segment.shared_cell(offset));
            let restart = |newest: &Cell, other: &Cell| {
                // If a jump leaves this closure in the middle, the next thread clears the cell once
                // more.
                let lease = &process.clearing;
                let clear = |chunk| clear_chunk(segment, chunk);
                let waited_for = is_recent(segment, point);
                let restart = |_guard| other.restart_shared(newest, control, waited_for, clear);
                !lease.is_held() && cold::section(|| lease.acquire_exclusive().is_ok_and(restart))
            };
            let place = match Cell::shared_for(cells, control, restart) {
                Ok(cell) => match cell.enter_shared() {
                    Some(entered) => return Some(entered),
                    None => continue,
                },
                Err(place) => place,
            };
            let taken = u64::from(self.new_chunks(process, SHARED_CELL)?) * CHUNK as u64;
            let cell = segment.shared_cell(taken)?;
            cell.prepare(index as u32, control, 0);
            if point.has_amounts() {
                cell.set_amounts(self.new_chunks(process, 1)?);
            }
            entry.set_shared_cell(place == 1, taken);
        }
        None
    }

    /// Adds a measurement to a shared cell, which has no records in a ring.
    pub(in crate::engine) fn record_shared(
        &self,
        cell: &Cell,
        measured: Measurement,
        amounts: Option<&Amounts>,
    ) {
        let bucket = self.shared_bucket(cell, measured.exclusive);
        let sums = amounts.and_then(|amounts| Some((self.sums(cell)?, amounts)));
        // Checked as late as possible: a child that a signal handler has forked must write nothing.
        if !self.is_alive() {
            return;
        }
        if let Some((sums, amounts)) = sums {
            Cell::add_amounts_shared(sums, amounts);
        }
        cell.record_shared(measured, bucket);
        self.count(|counters| &counters.unrecorded);
    }

    /// The bucket's counter in a shared cell; `None` if memory runs out.
    fn shared_bucket(&self, cell: &Cell, ticks: u64) -> Option<&AtomicU64> {
        let ticks = ticks.min(histogram::LIMIT - 1);
        let (part, _) = histogram::locate(ticks);
        if cell.part(part) == 0 {
            let chunk = self.new_chunks(process::current()?, 1)?;
            cell.set_part_shared(part, chunk);
        }
        self.bucket(cell, ticks)
    }
}

/// Whether a point was reset less than [`DRAIN_NS`] ago. A thread that entered a shared cell before
/// the reset may still be in it. If a thread stays in it for longer, it has jumped out.
fn is_recent(segment: &Segment, point: &'static Point) -> bool {
    // A tuple is reset with its metered point.
    let number = point.tuple_of().map_or(point, |(metered, _)| metered.point()).index();
    let reset = segment.reset_time(number).map_or(0, |time| time.load(Relaxed));
    let since = |reset| shared_ns().saturating_sub(reset);
    // If the time belongs to no reset that is complete, a reset is being made now.
    reset != 0 && control::reset_ns(point.control(), reset).is_none_or(|ns| since(ns) < DRAIN_NS)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::MeteredPoint;

    /// After a reset of a metered point, the shared cells of its tuples are also not cleared while
    /// threads are in them.
    #[test]
    fn a_reset_is_recent_for_tuples_too() {
        static METERED: MeteredPoint = MeteredPoint::new("metered", &["items"]);
        let _one = crate::engine::oracle::one_at_a_time();
        drop(METERED.measure([1]));
        let tuple = METERED.find(&[1, 0, 0, 0]).expect("it has measured");
        assert!(tuple.index() != METERED.point().index());
        let process = process::current().expect("it has measured");
        let is_recent = || [METERED.point(), tuple].map(|point| is_recent(&process.segment, point));
        assert_eq!(is_recent(), [false; 2]);
        METERED.point().reset();
        assert_eq!(is_recent(), [true; 2]);
    }
}
