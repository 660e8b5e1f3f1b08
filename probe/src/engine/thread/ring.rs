//! A thread's ring: where the next record goes, and how it gets there.

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::geometry::{PAGE, RING_SLOTS};
use pfp_shm_layout::ring::{self, Slot};

use super::Thread;
use crate::marker;
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
    /// One latched part that waits. The bits below it are 0, as those of a [`marker`].
    const WAITING: u64 = marker::LOW_BITS + 1;

    /// Whether nothing is under way, and nothing waits.
    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 < Self::NONE
    }

    /// Whether it is also not the first one of its page: one test of the lowest bits.
    #[inline(always)]
    pub(crate) fn is_in_page(self) -> bool {
        const { assert!(PAGE as u64 == marker::LOW_BITS + 1) };
        self.0 & marker::LOW_BITS != 0
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
        if marker::is_marker(position.0) || position.is_free() && !waits {
            return;
        }
        // Marked, so that no handler moves the position at the same time.
        let mut marker = marker::new();
        marker::set(&mut marker, &self.position);
        self.done();
    }

    /// Stores a marker in place of the position, if that is still `position`.
    #[inline(always)]
    pub(crate) fn mark_at(&self, position: Position, marker: u64) -> bool {
        word::exchange::<Self, { offset_of!(Self, position) }>(self, position.0, marker)
    }

    /// Announces that a record is complete, and removes the caller's marker.
    #[inline(always)]
    pub(in crate::engine) fn publish(&self, position: Position) {
        let next = position.0.wrapping_add(SLOT);
        // Not one more than what is there: a forked child may have come first.
        self.counters().written.publish_bytes(next);
        compiler_fence(SeqCst);
        self.position.store(next, Relaxed);
    }

    /// Removes the caller's marker.
    pub(in crate::engine) fn done(&self) {
        compiler_fence(SeqCst);
        self.position.store(self.position_at_rest().0, Relaxed);
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
        self.counters().written.now()
    }

    /// Exclusive ticks of the last record.
    pub(in crate::engine) fn last_exclusive(&self) -> u64 {
        self.slot(self.written().wrapping_sub(1)).copy().exclusive
    }
}
