//! A lane's ring of finished measurements: a flight recorder.
//!
//! ```text
//! written: number of records ever written, in the lane
//! slots:   | 0 | 1 | ... | capacity - 1 |      record n is in slot n % capacity
//! slot:    | start | span | exclusive | point 24 bits, depth 8, context 32 |
//! ```
//!
//! The writer overwrites the oldest record and never waits. A reader copies
//! records and then asks `written` again: a copy of record `n` is whole if, with
//! `w` records written by then, `n + capacity > w`, because the writer may
//! already be in the slot of record `w`, which is that of `w - capacity`.
//!
//! | site | meets | makes visible |
//! |---|---|---|
//! | `ring-publish` store | `ring-enter` load | records below `written` are complete |
//! | `ring-reuse` fence | `ring-recheck` fence | a reader that saw any part of record `n` in a copy of an older one sees `written >= n` |

use crate::sync::{AtomicU64, Ordering, fence_at, ord};

/// A place in the ring.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Slot {
    start: AtomicU64,
    span: AtomicU64,
    exclusive: AtomicU64,
    what: AtomicU64,
}

/// One finished measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Begin, as a raw value of the process's tick counter.
    pub start: u64,
    /// Ticks from begin to end, time off the CPU included.
    pub span: u64,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// The point; its lower 24 bits.
    pub point: u32,
    /// How many regions were open around it; modulo 256.
    pub depth: u8,
    /// The context, 0 for the thread's own.
    pub context: u32,
}

impl Record {
    /// Point, depth and context as they stand in a slot.
    #[inline(always)]
    #[must_use]
    pub const fn pack(point: u32, depth: u8, context: u32) -> u64 {
        (point & 0xff_ffff) as u64 | (depth as u64) << 24 | (context as u64) << 32
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

impl Slot {
    /// A slot of zeros.
    #[must_use]
    pub fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self { start: zero(), span: zero(), exclusive: zero(), what: zero() }
    }

    /// Fills the slot of record `n`, where `n` records are published.
    ///
    /// The fence `ring-reuse` must lie between the publication of record
    /// `n - 1` and this; [`crate::cell::Cell::record`] has one at its start,
    /// which serves both, or call [`reuse`].
    #[inline(always)]
    pub fn fill(&self, start: u64, span: u64, exclusive: u64, what: u64) {
        self.start.store(start, Ordering::Relaxed);
        self.span.store(span, Ordering::Relaxed);
        self.exclusive.store(exclusive, Ordering::Relaxed);
        self.what.store(what, Ordering::Relaxed);
    }

    fn copy(&self) -> Record {
        let what = self.what.load(Ordering::Relaxed);
        Record {
            start: self.start.load(Ordering::Relaxed),
            span: self.span.load(Ordering::Relaxed),
            exclusive: self.exclusive.load(Ordering::Relaxed),
            point: what as u32 & 0xff_ffff,
            depth: (what >> 24) as u8,
            context: (what >> 32) as u32,
        }
    }
}

/// The writer's fence before a slot is filled again. Meets `ring-recheck`.
#[inline(always)]
pub fn reuse() {
    fence_at!("ring-reuse", Release);
}

/// Announces that `written` records are complete. Meets `ring-enter`.
#[inline(always)]
pub fn publish(position: &AtomicU64, written: u64) {
    position.store(written, ord!("ring-publish", Release));
}

/// What a reader got out of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Where to go on next time.
    pub next: u64,
    /// Records between the last time and now that were overwritten before they
    /// could be copied.
    pub lost: u64,
}

/// Copies the records from number `from` on, oldest first, and tells how many
/// were too late to copy. `slots` is the whole ring, a power of two of them.
pub fn drain(position: &AtomicU64, slots: &[Slot], from: u64, out: &mut Vec<Record>) -> Drained {
    let capacity = slots.len() as u64;
    // Meets `ring-publish`.
    let written = position.load(ord!("ring-enter", Acquire));
    // A position behind the last one is a new ring in the same place.
    let from = if from > written { 0 } else { from };
    let first = from.max(written.saturating_sub(capacity));
    let kept = out.len();
    for number in first..written {
        out.push(slots[(number % capacity) as usize].copy());
    }
    // Meets `ring-reuse`.
    fence_at!("ring-recheck", Acquire);
    let now = position.load(Ordering::Relaxed);
    let safe = now.saturating_add(1).saturating_sub(capacity).clamp(first, written);
    out.drain(kept..kept + (safe - first) as usize);
    Drained { next: written, lost: safe - from }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rings of many capacities, drained now and then: what is delivered and
    /// what is lost are together what was written, in order, and the oldest are
    /// the ones that are lost.
    #[test]
    fn delivered_and_lost_are_what_was_written() {
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        let mut below = |limit: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % limit
        };
        for _ in 0..if cfg!(miri) { 3 } else { 100 } {
            let capacity = 1 << below(7);
            let slots: Vec<Slot> = (0..capacity).map(|_| Slot::new()).collect();
            let (position, mut written, mut next) = (AtomicU64::new(0), 0, 0);
            for _ in 0..50 {
                for _ in 0..below(2 * capacity + 1) {
                    reuse();
                    let what = Record::pack(7, 3, written as u32);
                    slots[(written % capacity) as usize].fill(written, written + 1, 2, what);
                    written += 1;
                    publish(&position, written);
                }
                let mut records = Vec::new();
                let drained = drain(&position, &slots, next, &mut records);
                // The slot that comes next is in doubt, so the writer's being
                // at rest is worth one record less than the capacity.
                let kept = (written - next).min(capacity - 1);
                assert_eq!(drained, Drained { next: written, lost: written - next - kept });
                let expected = (written - kept..written).map(|n| Record {
                    start: n,
                    span: n + 1,
                    exclusive: 2,
                    point: 7,
                    depth: 3,
                    context: n as u32,
                });
                assert!(records.into_iter().eq(expected));
                next = drained.next;
            }
        }
    }
}
