//! A thread's ring: the position of the next record, and how a record is published.

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

/// The position in the ring: the bytes of all records so far. If latched parts wait in the current
/// context, the position is a flag and the number of parts instead, so that the next end looks for
/// them.
#[derive(Clone, Copy)]
pub(crate) struct Position(u64);

impl Position {
    /// Bit that is set in every value that is not a number of bytes.
    const NONE: u64 = 1 << 62;
    /// One latched part. The bits below are 0, as in a [`marker`].
    const WAITING: u64 = marker::LOW_BITS + 1;

    /// Whether no end or fold is in progress, and no latched part waits.
    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 < Self::NONE
    }

    /// Whether the position is [free](Self::is_free) and not the first one of a page. One test of
    /// the lowest bits suffices, because they are 0 in every value that is not free.
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

    /// The position to store when no end or fold is in progress any more.
    fn position_at_rest(&self) -> Position {
        match self.regions().waiting() {
            0 => Position(self.written().wrapping_mul(SLOT)),
            waiting => Position(Position::NONE + waiting * Position::WAITING),
        }
    }

    /// Updates the position, unless an end or fold is in progress, which will update it.
    pub(in crate::engine) fn rest(&self) {
        let position = self.position();
        let waits = self.regions().waiting() != 0;
        if marker::is_marker(position.0) || position.is_free() && !waits {
            return;
        }
        // The marker keeps signal handlers from moving the position at the same time.
        let mut marker = marker::new();
        marker::set(&mut marker, &self.position);
        self.done();
    }

    /// Replaces the position by a marker, if it is still `position`.
    #[inline(always)]
    pub(crate) fn mark_at(&self, position: Position, marker: u64) -> bool {
        word::exchange::<Self, { offset_of!(Self, position) }>(self, position.0, marker)
    }

    /// Announces that a record is complete, and removes the caller's marker.
    #[inline(always)]
    pub(in crate::engine) fn publish(&self, position: Position) {
        let next = position.0.wrapping_add(SLOT);
        // Stores the number instead of adding one, because a forked child may already have
        // published this record.
        self.counters().written.publish_bytes(next);
        compiler_fence(SeqCst);
        self.position.store(next, Relaxed);
    }

    /// Removes the caller's marker.
    pub(in crate::engine) fn done(&self) {
        compiler_fence(SeqCst);
        self.position.store(self.position_at_rest().0, Relaxed);
    }

    /// The slot of a record. The caller may overwrite it.
    #[inline(always)]
    pub(in crate::engine) fn slot(&self, number: u64) -> &Slot {
        self.slot_after(number.wrapping_mul(SLOT))
    }

    /// The slot at a position. The caller may overwrite it.
    #[inline(always)]
    pub(in crate::engine) fn slot_at(&self, position: Position) -> &Slot {
        self.slot_after(position.0)
    }

    /// The slot after `bytes` bytes of records.
    #[inline(always)]
    fn slot_after(&self, bytes: u64) -> &Slot {
        ring::reuse();
        let bytes = bytes % (RING_SLOTS as u64 * SLOT);
        let slot = word::plus::<Self, { offset_of!(Self, ring) }>(self, bytes);
        // SAFETY: the caller's thread has cells, so it has a ring of `RING_SLOTS` slots in the
        // segment, and `bytes` is less than the ring's size.
        unsafe { &*ptr::with_exposed_provenance::<Slot>(slot as usize) }
    }

    /// The slots of the records from `from` to `end`, which are on one page.
    pub(in crate::engine) fn slots(&self, from: u64, end: u64) -> &[Slot] {
        // SAFETY: `slot` returns the slot of `from` in the thread's ring. The slots of a page are
        // adjacent in the ring.
        unsafe { std::slice::from_raw_parts(self.slot(from), (end - from) as usize) }
    }

    /// The whole ring, if the thread has one.
    pub(crate) fn ring(&self) -> Option<&[Slot]> {
        let ring = self.ring.load(Relaxed);
        // SAFETY: the pointer is not null, so it leads to `RING_SLOTS` slots in the segment, which
        // belong to this thread.
        (!ring.is_null()).then(|| unsafe { std::slice::from_raw_parts(ring, RING_SLOTS) })
    }

    /// Number of records that were written so far.
    #[inline(always)]
    pub(in crate::engine) fn written(&self) -> u64 {
        self.counters().written.now()
    }

    /// Exclusive ticks of the last record.
    pub(in crate::engine) fn last_exclusive(&self) -> u64 {
        self.slot(self.written().wrapping_sub(1)).copy().exclusive
    }
}
