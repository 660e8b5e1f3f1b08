//! A thread's ring: where the next record goes, and how it gets there.

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::calls::CallSums;
use pfp_shm_layout::cell::{Held, Measurement};
use pfp_shm_layout::geometry::{PAGE, RING_SLOTS};
use pfp_shm_layout::ring::{self, Slot, What};

use super::{Entry, Thread};
use crate::engine::{fold, process, process::Process};
use crate::mark;
use crate::word;

/// Bytes of a slot.
const SLOT: u64 = size_of::<Slot>() as u64;
/// Slots of a ring in a page.
pub(in crate::engine) const SLOTS_PER_PAGE: usize = PAGE / size_of::<Slot>();
const _: () = assert!(RING_SLOTS / SLOTS_PER_PAGE <= 64);
/// Whether a record is the first of its page.
#[inline(always)]
pub(in crate::engine) fn begins_page(number: u64) -> bool {
    (number as usize).is_multiple_of(SLOTS_PER_PAGE)
}

/// Bytes of all records before the next one; or how many latched parts wait in the current context,
/// which the next end must look for.
#[derive(Clone, Copy)]
pub(crate) struct Position(u64);

impl Position {
    /// In what is no count of bytes.
    const NONE: u64 = 1 << 62;
    /// One latched part that waits. The bits below it are 0, as those of a [`mark`].
    const WAITING: u64 = mark::NO_MARK + 1;

    /// Whether nothing is under way, and nothing waits.
    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 < Self::NONE
    }

    /// Whether it is also not the first one of its page: one test of the lowest bits.
    #[inline(always)]
    pub(crate) fn is_in_page(self) -> bool {
        const { assert!(PAGE as u64 == mark::NO_MARK + 1) };
        self.0 & mark::NO_MARK != 0
    }
}

impl Thread {
    #[inline(always)]
    pub(crate) fn position(&self) -> Position {
        Position(self.position.load(Relaxed))
    }

    /// Where it is while nothing is under way.
    fn position_at_rest(&self) -> Position {
        match self.regions().waiting() {
            0 => Position(self.written().wrapping_mul(SLOT)),
            waiting => Position(Position::NONE + waiting * Position::WAITING),
        }
    }

    /// Says where it is, unless something is under way that will say so.
    pub(in crate::engine) fn rest(&self) {
        let position = self.position();
        let waits = self.regions().waiting() != 0;
        if mark::is_mark(position.0) || position.is_free() && !waits {
            return;
        }
        // Marked, so that a handler does not move it meanwhile.
        let mut mark = mark::new();
        mark::set(&mut mark, &self.position);
        self.done();
    }

    /// Marks the thread, if its position still is that one.
    #[inline(always)]
    pub(crate) fn mark_at(&self, position: Position, mark: u64) -> bool {
        word::exchange::<Self, { offset_of!(Self, position) }>(self, position.0, mark)
    }

    /// Announces that a record is complete, and takes the mark of the caller away.
    #[inline(always)]
    pub(in crate::engine) fn publish(&self, position: Position) {
        let next = position.0.wrapping_add(SLOT);
        // Not one more than what is there: a forked child may have come first.
        ring::publish(&self.tally().written, next / SLOT);
        compiler_fence(SeqCst);
        self.position.store(next, Relaxed);
    }

    /// Takes the mark of the caller away.
    pub(in crate::engine) fn done(&self) {
        compiler_fence(SeqCst);
        self.position.store(self.position_at_rest().0, Relaxed);
    }

    /// Has room for the next record, which is the first of its page, and folds the others; false
    /// where the page has no memory.
    pub(in crate::engine) fn turn_page(&self) -> bool {
        let turned = self.busy(|| {
            fold::fold(self);
            self.back_page(self.written())
        });
        turned == Some(true)
    }

    /// Records a measurement that no record of the ring can hold: one that was off the CPU, or
    /// has amounts, or is long. It goes into its cell, after those of the ring, and into the
    /// ring for the flight recorder. `times` are its start, the ticks until its end, and what
    /// else the record says.
    #[inline(never)]
    pub(in crate::engine) fn record_counted(
        &self,
        entry: &Entry,
        measured: Measurement,
        (start, elapsed, what): (u64, u64, What),
        amounts: Option<&Amounts>,
    ) {
        fold::fold(self);
        let Some(cell) = entry.cell() else { return };
        let off_cpu = measured.away.map_or(0, |away| away.off_cpu);
        let kept_cpu = off_cpu == 0;
        let exclusive = measured.exclusive;
        let credible = match kept_cpu {
            true => exclusive,
            false => cell.credible(exclusive, self.clock.error(off_cpu)),
        };
        let bucket = self.bucket_for(cell, credible).map(Held::new);
        let sums = amounts.and_then(|amounts| Some((self.sums(cell)?, amounts)));
        let (staged, written) = (cell.staged(), self.written());
        // As late as that: a child that a signal handler has forked writes nothing; or, from here on,
        // what its parent writes.
        if !self.is_still_alive() {
            return;
        }
        cell.record_as(staged, measured, (credible, kept_cpu), bucket, sums, written);
        self.count_call(what, measured, written);
        if begins_page(written) && !self.back_page(written) {
            return self.count(|tally| &tally.unrecorded);
        }
        self.slot(written).fill_counted(start, elapsed, exclusive, what);
        ring::publish(&self.tally().written, written.wrapping_add(1));
        // So that the next one has nothing to fold.
        fold::announce(self, written.wrapping_add(1));
    }

    /// Adds a measurement to its edge that its cell has already.
    fn count_call(&self, what: What, measured: Measurement, folded: u64) {
        let Measurement { exclusive, inclusive, .. } = measured;
        let one = CallSums { count: 1, exclusive, inclusive };
        self.add_call(what.caller(), what.point(), one, folded);
    }

    /// Gives the page of a record memory, if it has none; false if there is none.
    fn back_page(&self, number: u64) -> bool {
        let page = number as usize % RING_SLOTS / SLOTS_PER_PAGE;
        let backed = self.ring_backed.load(Relaxed);
        if backed & 1 << page != 0 {
            return true;
        }
        let ring = self.ring.load(Relaxed).addr() - self.segment.load(Relaxed).addr();
        let back = |process: &Process| process.back(ring + page * PAGE, PAGE);
        let is_backed = process::current().and_then(back).is_some();
        if is_backed {
            self.ring_backed.fetch_or(1 << page, Relaxed);
        }
        is_backed
    }

    /// The slot of a record, which may be written over from now on.
    #[inline(always)]
    pub(in crate::engine) fn slot(&self, number: u64) -> &Slot {
        self.slot_after(number.wrapping_mul(SLOT))
    }

    /// The slot at a position, which may be written over from now on.
    #[inline(always)]
    pub(in crate::engine) fn slot_at(&self, position: Position) -> &Slot {
        self.slot_after(position.0)
    }

    /// The slot behind so many bytes of records.
    #[inline(always)]
    fn slot_after(&self, bytes: u64) -> &Slot {
        ring::reuse();
        let bytes = bytes % (RING_SLOTS as u64 * SLOT);
        let slot = word::plus::<Self, { offset_of!(Self, ring) }>(self, bytes);
        // SAFETY: a thread that has cells has a ring of so many slots, in the
        // segment.
        unsafe { &*ptr::with_exposed_provenance::<Slot>(slot as usize) }
    }

    /// The slots of some records of one page.
    pub(in crate::engine) fn slots(&self, from: u64, end: u64) -> &[Slot] {
        // SAFETY: as in `slot`; the slots of a page lie one after the other.
        unsafe { std::slice::from_raw_parts(self.slot(from), (end - from) as usize) }
    }

    /// The whole ring, if the thread has one.
    pub(crate) fn ring(&self) -> Option<&[Slot]> {
        let ring = self.ring.load(Relaxed);
        // SAFETY: as in `slot`; all of it has the same owner.
        (!ring.is_null()).then(|| unsafe { std::slice::from_raw_parts(ring, RING_SLOTS) })
    }

    /// Records that were written so far.
    #[inline(always)]
    pub(in crate::engine) fn written(&self) -> u64 {
        self.tally().written.load(Relaxed)
    }

    /// Exclusive ticks of the last record.
    pub(in crate::engine) fn last_exclusive(&self) -> u64 {
        self.slot(self.written().wrapping_sub(1)).copy().exclusive
    }
}
