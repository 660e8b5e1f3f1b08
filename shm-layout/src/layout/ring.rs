//! A lane's ring of finished measurements: the source of its cells' figures, and a flight recorder.
//!
//! ```text
//! written: bytes of all records ever written, in the lane
//! folded:  number of records that are in the cells
//! slots:   | 0 | 1 | ... | capacity - 1 |      record n is in slot n % capacity
//! slot:    | start 64 | elapsed 32 | context 24, depth 8 |
//!          | exclusive 32, inclusive 32 | point 32, caller 32 |
//! ```
//!
//! A slot stores points as [offsets](POINT_SHIFT), because an end has them in that form.
//!
//! The writer overwrites the oldest record and never waits. It **folds** its records into the cells
//! of its lane before they can be overwritten, a page of records at a time. A reader copies records
//! and then reads `written` again. With `w` records written by then, a copy of record `n` is whole
//! if `n + capacity > w`, because the writer may already be in the slot of record `w`, which is
//! also the slot of `w - capacity`.
//!
//! A reader of figures reads `folded` first, then the cells. A cell states how many of the lane's
//! records it covers, and covers at least those before `folded`. So the reader adds the point's
//! records from the greater of the two numbers on.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `ring-publish` store | `ring-enter` load | records below `written` are complete |
//! | `ring-reuse` fence | `ring-recheck` fence | a reader that saw any part of record `n` in a copy of an older one sees `written >= n` |
//! | `ring-folded` store | `ring-folded-seen` load | the cells hold the records below `folded` |

use crate::heap::NoMemory;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_at, ord};

/// One slot of the ring.
#[repr(C, align(32))]
#[derive(Debug)]
pub struct Slot {
    start: AtomicU64,
    elapsed: AtomicU32,
    /// See [`What`].
    place: AtomicU32,
    exclusive: AtomicU32,
    /// In a counted record (see `COUNTED`): the number of bits by which its ticks are shifted.
    inclusive: AtomicU32,
    names: AtomicU64,
}

/// A record names a point by its number times 32: the offset of the point's entry in a thread's
/// table.
pub const POINT_SHIFT: u32 = 5;

/// Flag in the word of the elapsed ticks: the measurement is in its cell already, and in the ring
/// only for the flight recorder.
const COUNTED: u32 = 1 << 31;
/// Maximum number of ticks that an end may write by [`Slot::fill`].
pub const MAX_TICKS: u64 = i32::MAX as u64;

/// One finished measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Begin, as a raw value of the process's tick counter.
    pub start: u64,
    /// Ticks from begin to end, time off the CPU included.
    pub span: u64,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// The point; the lower 24 bits of its number.
    pub point: u32,
    /// Number of regions that were open around it, modulo 256.
    pub depth: u8,
    /// The context, 0 for the thread's own; modulo 2^24.
    pub context: u32,
    /// The point of the enclosing region, [`ROOT`](crate::layout::calls::ROOT),
    /// [`UNKNOWN`](crate::layout::calls::UNKNOWN), or
    /// [`ELSEWHERE`](crate::layout::calls::ELSEWHERE).
    pub caller: u32,
}

/// The words of a record besides its ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct What {
    /// The point, as an [offset](POINT_SHIFT), and in the upper half the calling point, as an
    /// offset, too.
    pub names: u64,
    /// The context's number, modulo 2^24, and above it the depth, modulo 256.
    pub place: u32,
}

/// Bit of `place` at which the depth begins.
pub const DEPTH_SHIFT: u32 = 24;
const CONTEXT: u32 = (1 << DEPTH_SHIFT) - 1;

impl What {
    /// Composes the words from numbers. A point's number has 24 bits.
    #[must_use]
    pub const fn new(point: u32, depth: u8, caller: u32, context: u32) -> Self {
        let place = context & CONTEXT | (depth as u32) << DEPTH_SHIFT;
        Self::at(point << POINT_SHIFT, caller << POINT_SHIFT, place)
    }

    /// Composes the words from offsets and a place.
    #[inline(always)]
    #[must_use]
    pub const fn at(point: u32, caller: u32, place: u32) -> Self {
        Self { names: point as u64 | (caller as u64) << u32::BITS, place }
    }

    /// The number of the point.
    #[inline(always)]
    #[must_use]
    pub const fn point(self) -> u32 {
        self.names as u32 >> POINT_SHIFT
    }

    /// The number of the calling point.
    #[inline(always)]
    #[must_use]
    pub const fn caller(self) -> u32 {
        (self.names >> u32::BITS) as u32 >> POINT_SHIFT
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::new()
    }
}

/// The figures that a record adds to the cell of its point, and to an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addition {
    /// Number of the point.
    pub point: u32,
    /// Number of the calling point.
    pub caller: u32,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// Inclusive ticks, less what nested regions of the same point have added.
    pub inclusive: u64,
}

impl Slot {
    /// Offset in a slot of the two signed numbers that [`Slot::added`] returns.
    pub const ADDED: usize = std::mem::offset_of!(Self, exclusive);
    /// Offset in a slot of the word that [`Slot::names`] returns.
    pub const NAMES: usize = std::mem::offset_of!(Self, names);

    /// A slot of zeros.
    #[must_use]
    pub fn new() -> Self {
        let half = || AtomicU32::new(0);
        Self {
            start: AtomicU64::new(0),
            elapsed: half(),
            place: half(),
            exclusive: half(),
            inclusive: half(),
            names: AtomicU64::new(0),
        }
    }

    /// Fills the slot of record `n`, when `n` records are published. `elapsed` is at most
    /// [`MAX_TICKS`].
    ///
    /// The fence `ring-reuse` must be between the publication of record `n - 1` and this call: see
    /// [`reuse`].
    #[inline(always)]
    pub fn fill(&self, start: u64, elapsed: u64, exclusive: u64, inclusive: u64, what: What) {
        self.fill_times(start, elapsed);
        self.fill_figures(exclusive, inclusive);
        self.fill_place(what.place);
        self.fill_names(what.names);
    }

    /// Writes the first part of the slot; see [`Self::fill`].
    #[inline(always)]
    pub fn fill_times(&self, start: u64, elapsed: u64) {
        self.start.store(start, Ordering::Relaxed);
        self.elapsed.store(elapsed as u32, Ordering::Relaxed);
    }

    /// Writes the second part of the slot; see [`Self::fill`].
    #[inline(always)]
    pub fn fill_figures(&self, exclusive: u64, inclusive: u64) {
        self.exclusive.store(exclusive as u32, Ordering::Relaxed);
        self.inclusive.store(inclusive as u32, Ordering::Relaxed);
    }

    /// The third part of [`Self::fill`]; see [`What`].
    #[inline(always)]
    pub fn fill_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }

    /// The fourth part of [`Self::fill`]; see [`What`].
    #[inline(always)]
    pub fn fill_names(&self, names: u64) {
        self.names.store(names, Ordering::Relaxed);
    }

    /// Fills the slot with a measurement of any length that is in its cell already. Ticks of more
    /// than 31 bits lose their lowest bits.
    pub fn fill_counted(&self, start: u64, elapsed: u64, exclusive: u64, what: What) {
        let most = elapsed.max(exclusive);
        let shift = (64 - most.leading_zeros()).saturating_sub(31);
        let elapsed = elapsed >> shift | u64::from(COUNTED);
        self.fill(start, elapsed, exclusive >> shift, u64::from(shift), what);
    }

    /// Copies a slot to this one.
    pub(crate) fn take(&self, from: &Self) {
        let halves = |of: &Self| {
            [&of.elapsed, &of.place, &of.exclusive, &of.inclusive]
                .map(|it| it.load(Ordering::Relaxed))
        };
        let [elapsed, place, exclusive, inclusive] = halves(from);
        self.fill_times(from.start.load(Ordering::Relaxed), u64::from(elapsed));
        self.fill_figures(u64::from(exclusive), u64::from(inclusive));
        self.fill_place(place);
        self.fill_names(from.names());
    }

    /// Clears the slot, and marks it as counted, so that no reader adds it to a cell.
    pub(crate) fn forget(&self) {
        self.fill_counted(0, 0, 0, What::default());
    }

    /// Copies the record. The copy is torn if the writer overwrites the slot at the same time.
    #[must_use]
    pub fn copy(&self) -> Record {
        let elapsed = self.elapsed.load(Ordering::Relaxed);
        let is_counted = elapsed & COUNTED != 0;
        let inclusive = self.inclusive.load(Ordering::Relaxed);
        let shift = if is_counted { inclusive % u64::BITS } else { 0 };
        let what = self.what();
        Record {
            start: self.start.load(Ordering::Relaxed),
            span: u64::from(elapsed & !COUNTED) << shift,
            exclusive: self.added().exclusive() << shift,
            point: what.point(),
            depth: (what.place >> DEPTH_SHIFT) as u8,
            context: what.place & CONTEXT,
            caller: what.caller(),
        }
    }

    /// The point of the record.
    #[inline(always)]
    #[must_use]
    pub fn point(&self) -> u32 {
        What { names: self.names(), place: 0 }.point()
    }

    /// The calling point of the record.
    #[inline(always)]
    #[must_use]
    pub fn caller(&self) -> u32 {
        What { names: self.names(), place: 0 }.caller()
    }

    /// The points that the record names; see [`What`].
    #[inline(always)]
    #[must_use]
    pub fn names(&self) -> u64 {
        self.names.load(Ordering::Relaxed)
    }

    /// The words of the record besides its ticks.
    #[inline(always)]
    #[must_use]
    pub fn what(&self) -> What {
        let names = self.names.load(Ordering::Relaxed);
        What { names, place: self.place.load(Ordering::Relaxed) }
    }

    /// The figures that the record adds to a cell; `None` if it is in the cell already.
    #[inline(always)]
    #[must_use]
    pub fn addition(&self) -> Option<Addition> {
        (!self.is_counted()).then(|| Addition {
            point: self.point(),
            caller: self.caller(),
            exclusive: self.added().exclusive(),
            inclusive: self.added().inclusive(),
        })
    }

    /// Whether the measurement is in its cell already.
    #[inline(always)]
    #[must_use]
    pub fn is_counted(&self) -> bool {
        self.elapsed.load(Ordering::Relaxed) & COUNTED != 0
    }

    /// The figures that an uncounted record adds to a cell.
    #[inline(always)]
    #[must_use]
    pub fn added(&self) -> Added {
        Added {
            exclusive: self.exclusive.load(Ordering::Relaxed),
            inclusive: self.inclusive.load(Ordering::Relaxed),
        }
    }
}

/// The figures that a record adds to the cell of its point, as a slot stores them. Either number
/// may be some ticks below zero, because calibrated overhead is subtracted.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    exclusive: u32,
    inclusive: u32,
}

impl Added {
    /// Exclusive ticks.
    #[inline(always)]
    #[must_use]
    pub fn exclusive(self) -> u64 {
        u64::from((self.exclusive as i32).max(0) as u32)
    }

    /// Inclusive ticks, less what nested regions of the same point have added.
    #[inline(always)]
    #[must_use]
    pub fn inclusive(self) -> u64 {
        i64::from(self.inclusive as i32) as u64
    }
}

/// The writer's fence before a slot is filled again. Pairs with `ring-recheck`.
#[inline(always)]
pub fn reuse() {
    fence_at!("ring-reuse", Release);
}

/// How many records were ever written to a ring, stored as the bytes that they take.
#[repr(transparent)]
#[derive(Debug)]
pub struct Written(AtomicU64);

impl Default for Written {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

impl Written {
    /// Announces that the records in the first `bytes` bytes are complete. Pairs with `ring-enter`.
    #[inline(always)]
    pub fn publish_bytes(&self, bytes: u64) {
        self.0.store(bytes, ord!("ring-publish", Release));
    }

    /// Announces that the first `records` records are complete.
    #[inline(always)]
    pub fn publish(&self, records: u64) {
        self.publish_bytes(records.wrapping_mul(size_of::<Slot>() as u64));
    }

    /// Number of complete records, for a reader that goes on to read them. Pairs with
    /// `ring-publish`.
    #[must_use]
    pub fn enter(&self) -> u64 {
        self.0.load(ord!("ring-enter", Acquire)) / size_of::<Slot>() as u64
    }

    /// Number of complete records.
    #[inline(always)]
    #[must_use]
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / size_of::<Slot>() as u64
    }
}

/// The outcome of copying a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drained {
    /// Number of the record to begin with next time.
    pub next: u64,
    /// Number of requested records that were overwritten before they could be copied.
    pub lost: u64,
}

/// Announces that the records below `folded` are in the cells. Pairs with `ring-folded-seen`.
pub fn announce_folded(position: &AtomicU64, folded: u64) {
    position.store(folded, ord!("ring-folded", Release));
}

/// The number of records that are in the cells, for a reader that goes on to read the cells. Pairs
/// with `ring-folded`.
#[must_use]
pub fn folded(position: &AtomicU64) -> u64 {
    position.load(ord!("ring-folded-seen", Acquire))
}

/// Copies the records from number `from` on, oldest first. `slots` is the whole ring, whose length
/// is a power of two.
///
/// # Errors
///
/// Memory runs out.
pub fn drain(
    written: &Written,
    slots: &[Slot],
    from: u64,
    out: &mut Vec<Record>,
) -> Result<Drained, NoMemory> {
    let capacity = slots.len() as u64;
    let end = written.enter();
    // If `written` has decreased, a new ring has replaced the old one.
    let from = if from > end { 0 } else { from };
    let first = from.max(end.saturating_sub(capacity));
    let kept = out.len();
    out.try_reserve((end - first) as usize)?;
    for number in first..end {
        #[allow(clippy::disallowed_methods, reason = "there is room for it")]
        out.push(slots[(number % capacity) as usize].copy());
    }
    // Pairs with `ring-reuse`.
    fence_at!("ring-recheck", Acquire);
    let safe = written.now().saturating_add(1).saturating_sub(capacity).clamp(first, end);
    out.drain(kept..kept + (safe - first) as usize);
    Ok(Drained { next: end, lost: safe - from })
}

/// Calls `visit` for the uncounted records from number `folded` on, oldest first, and returns the
/// number of written records. `None` if some of the records were overwritten during the visit: the
/// values that `visit` got are then invalid, and the overwritten records are in the cells.
pub fn visit(
    written: &Written,
    slots: &[Slot],
    folded: u64,
    mut visit: impl FnMut(u64, Addition),
) -> Option<u64> {
    let capacity = slots.len() as u64;
    let end = written.enter();
    if end.wrapping_sub(folded) >= capacity {
        return None;
    }
    for number in folded..end {
        if let Some(addition) = slots[(number % capacity) as usize].addition() {
            visit(number, addition);
        }
    }
    // Pairs with `ring-reuse`.
    fence_at!("ring-recheck", Acquire);
    (written.now().wrapping_sub(folded) < capacity).then_some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rings of many capacities, drained now and then: delivered and lost records together are the
    /// written ones, in the order of writing, and the lost ones are the oldest.
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
            let (position, mut written, mut next) = (Written::default(), 0, 0);
            for _ in 0..50 {
                for _ in 0..below(2 * capacity + 1) {
                    reuse();
                    let what = What::new(7, 3, 9, written as u32);
                    slots[(written % capacity) as usize].fill(written, written + 1, 2, 3, what);
                    written += 1;
                    position.publish(written);
                }
                let mut records = Vec::new();
                let drained = drain(&position, &slots, next, &mut records).unwrap();
                // The writer may be filling the next slot, so even an idle ring delivers one record
                // less than its capacity.
                let kept = (written - next).min(capacity - 1);
                assert_eq!(drained, Drained { next: written, lost: written - next - kept });
                let expected = (written - kept..written).map(|n| Record {
                    start: n,
                    span: n + 1,
                    exclusive: 2,
                    point: 7,
                    depth: 3,
                    context: n as u32,
                    caller: 9,
                });
                assert!(records.into_iter().eq(expected));
                next = drained.next;
            }
        }
    }
}
