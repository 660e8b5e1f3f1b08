//! An open region: what its begin stores, what its end reads, and what both together measure.
//!
//! The open regions of a context are a stack: an array of [`Region`], indexed by the number of
//! enclosing regions. Guards, regions begun by hand, laps, polls and the hooks of compilers all
//! push to it and pop from it. Each of them stores the *tag* of its region, one word. Its fields,
//! each with its number of bits, are:
//!
//! ```text
//! | is place 1 | fenced 1 | run 14 | generation 12 | level 12 | 0 1 | allocs 1 | noted 1 | amounts 1 | by hand 1 | context 19 |
//! ```
//!
//! The thread stores the tag of the next region in [`place`](super::thread::Thread::place). An end
//! on the fast path makes one comparison: the place must be one level above the tag of the region.
//! Then the region is open and innermost. Since it began, the clock has not noticed time off the
//! CPU, and the context was not suspended, because either would have changed the place. The slow
//! path compares the tag with the tag on the stack.

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::ring::DEPTH_SHIFT;

use super::overhead::overhead;
use crate::clock::ThreadClock;
use crate::point::Point;
use crate::word;

/// Set in every [`super::thread::Thread::place`], so that none is 0. Cleared in the tag of a region
/// that must end on the slow path.
pub(crate) const IS_PLACE: u64 = 1 << 63;
/// In a tag: the point is fenced.
pub(crate) const FENCED: u64 = 1 << 62;
/// Position of the bits for the number of the context's current run, modulo 2^14. A run begins when
/// a thread claims a lane or resumes a context. No other recent run of the process has the same
/// number. A thread's own context keeps the number of its first run.
pub(super) const RUN: u32 = 48;
pub(super) const RUNS: u64 = FENCED - (1 << RUN);
/// One generation. A new one begins when the clock is read on the slow path, or when regions are
/// abandoned, so that older tags do not match. Generations repeat after 4,096.
pub(super) const GENERATION: u64 = 1 << 36;
pub(super) const GENERATIONS: u64 = (1 << RUN) - GENERATION;
/// One open region. A record contains the lower half of a tag as its `place`, with the level modulo
/// 256.
pub(crate) const LEVEL: u64 = 1 << DEPTH_SHIFT;
/// The bits that count open regions.
pub(crate) const LEVELS: u64 = GENERATION - LEVEL;
/// In a tag: the stack holds the amounts of the region.
pub(crate) const AMOUNTS: u64 = 1 << 20;
/// In the tag on the stack: the clock has changed since the region began, and the region holds the
/// clock's state from before the change; see [`Region::note_clock`].
const NOTED: u64 = 1 << 21;
/// In a tag: the region counts what it allocates.
pub(crate) const ALLOCS: u64 = 1 << 22;
/// In the tag on the stack: the region was begun by hand.
pub(super) const BY_HAND: u64 = 1 << 19;
/// The number of the context, 0 for the thread's own.
pub(super) const CONTEXT: u64 = BY_HAND - 1;

/// The number of regions that enclose the region of this tag.
#[inline(always)]
pub(super) fn level_of(tag: u64) -> u64 {
    (tag & LEVELS) >> DEPTH_SHIFT
}

/// An open region. Only its thread uses the words; they are atomic because a signal handler of that
/// thread may run in between.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Region {
    /// Written before the region is pushed, and 0 once it has ended on the slow path or by hand. A
    /// begin adds [`BY_HAND`] last, so that a signal handler never finds a region by hand that is
    /// only half begun.
    tag: AtomicU64,
    point: AtomicPtr<Point>,
    // The state at the begin: see `Begun`. `inclusive` is the point's inclusive total then.
    start: AtomicU64,
    covered: AtomicU64,
    inclusive: AtomicU64,
    // Valid if the tag has `NOTED`. Otherwise the clock has not changed since the region began.
    off: AtomicU64,
    switches: AtomicU64,
    /// Ticks that were added to the point's inclusive total since the region began. Valid while the
    /// context is suspended.
    pub(super) kept: AtomicU64,
}

/// The state when a region began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The counter at the begin.
    pub(crate) start: u64,
    /// The thread's covered ticks at the begin.
    pub(crate) covered: u64,
    /// The clock's offset at the begin, which gives the time off the CPU.
    pub(crate) off: u64,
    /// The clock's switches at the begin.
    pub(crate) switches: u64,
}

impl Region {
    #[inline(always)]
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Relaxed) & !NOTED
    }

    /// Stores the tag of a region that is about to begin, or has begun.
    #[inline(always)]
    pub(super) fn open(&self, tag: u64) {
        self.tag.store(tag, Relaxed);
    }

    /// Adds [`BY_HAND`] to the tag, in one instruction, so that a bit that a signal handler adds is
    /// not lost.
    #[inline(always)]
    pub(super) fn mark_by_hand(&self) {
        word::add_constant::<Self, { offset_of!(Self, tag) }, { BY_HAND as i32 }>(self);
    }

    /// Adds [`ALLOCS`] to the tag, as [`Self::mark_by_hand`] adds its bit.
    #[inline(always)]
    pub(super) fn mark_counting(&self) {
        word::add_constant::<Self, { offset_of!(Self, tag) }, { ALLOCS as i32 }>(self);
    }

    /// Sets bits in the tag of an open region.
    pub(super) fn mark(&self, with: u64) {
        self.tag.fetch_or(with, Relaxed);
    }

    /// Stores the context's clock in the region, if the clock has not changed since the region
    /// began. Called before the clock changes. The tag is written last: if a signal handler jumps
    /// out in between, the region does not count as noted.
    pub(super) fn note_clock(&self, clock: &ThreadClock) {
        // A signal handler or another fibre that changes the clock calls this, too. If it runs
        // before the test, the test finds the region noted. If it runs after the test, it stores
        // the same values.
        let (off, switches) = (clock.off(), clock.switches());
        compiler_fence(SeqCst);
        if !self.is_noted() {
            self.off.store(off, Relaxed);
            self.switches.store(switches, Relaxed);
            compiler_fence(SeqCst);
            self.mark(NOTED);
        }
    }

    /// Whether the clock has changed since the region began.
    pub(super) fn is_noted(&self) -> bool {
        self.tag.load(Relaxed) & NOTED != 0
    }

    /// Clears the tag, so that no end finds the region.
    #[inline(always)]
    pub(super) fn close(&self) {
        self.tag.store(0, Relaxed);
        compiler_fence(SeqCst);
    }

    /// The point. `None` in a stack that was never used at this level.
    pub(super) fn point(&self) -> Option<&'static Point> {
        // SAFETY: the pointer is null, or leads to a point, which is a static or never freed.
        unsafe { self.point.load(Relaxed).as_ref() }
    }

    /// [`Self::point`] of a region that has begun.
    ///
    /// # Safety
    ///
    /// [`Self::set_point`] was called.
    #[inline(always)]
    pub(super) unsafe fn point_of_open(&self) -> &'static Point {
        // SAFETY: the caller promises that `set_point` was called, so the pointer is a point, which
        // is a static or never freed.
        unsafe { &*self.point.load(Relaxed) }
    }

    #[inline(always)]
    pub(super) fn set_point(&self, point: &'static Point) {
        self.point.store(ptr::from_ref(point).cast_mut(), Relaxed);
    }

    #[inline(always)]
    pub(super) fn start(&self) -> u64 {
        self.start.load(Relaxed)
    }

    /// Ticks from the begin until `now`.
    #[inline(always)]
    pub(super) fn elapsed(&self, now: u64) -> u64 {
        word::minus::<Self, { offset_of!(Self, start) }>(self, now)
    }

    #[inline(always)]
    pub(super) fn set_start(&self, ticks: u64) {
        self.start.store(ticks, Relaxed);
    }

    #[inline(always)]
    pub(super) fn covered(&self) -> u64 {
        self.covered.load(Relaxed)
    }

    /// `ticks` plus the covered ticks at the begin.
    #[inline(always)]
    pub(super) fn plus_covered(&self, ticks: u64) -> u64 {
        word::plus::<Self, { offset_of!(Self, covered) }>(self, ticks)
    }

    #[inline(always)]
    pub(super) fn set_covered(&self, ticks: u64) {
        self.covered.store(ticks, Relaxed);
    }

    /// The clock's offset when the region began. Valid only if the clock has changed since.
    pub(super) fn off(&self) -> u64 {
        self.off.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn inclusive(&self) -> u64 {
        self.inclusive.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn set_inclusive(&self, ticks: u64) {
        self.inclusive.store(ticks, Relaxed);
    }

    /// Whether the region has this tag, was begun by hand, and is not [`NOTED`]: the clock's time
    /// off the CPU and its switches are still those of the region's begin.
    #[inline(always)]
    pub(super) fn is_by_hand(&self, tag: u64) -> bool {
        word::is::<Self, { offset_of!(Self, tag) }>(self, tag | BY_HAND)
    }

    /// Whether the region measures `point`.
    #[inline(always)]
    pub(super) fn is_of(&self, point: &Point) -> bool {
        word::is::<Self, { offset_of!(Self, point) }>(self, ptr::from_ref(point).addr() as u64)
    }

    /// Whether the region was begun by hand and measures `point`.
    #[inline(always)]
    pub(super) fn is_by_hand_of(&self, point: &Point) -> bool {
        self.tag() & BY_HAND != 0 && ptr::eq(self.point.load(Relaxed), point)
    }

    /// The state at the begin. `off` and `switches` are the clock's current ones, which are used if
    /// the clock has not changed.
    pub(super) fn begun(&self, off: u64, switches: u64) -> Begun {
        let (off, switches) = match self.is_noted() {
            true => (self.off(), self.switches.load(Relaxed)),
            false => (off, switches),
        };
        Begun { start: self.start(), covered: self.covered(), off, switches }
    }

    /// Excludes from the region `covered` ticks, which were covered after its begin but not inside
    /// it, and `added` ticks, which were added to its point's inclusive total.
    pub(super) fn leave_out(&self, covered: u64, added: u64) {
        self.set_covered(self.covered().wrapping_add(covered));
        self.set_inclusive(self.inclusive().wrapping_add(added));
    }

    /// Moves the begin of the region to a later time.
    pub(super) fn delay(&self, ticks: u64) {
        self.set_start(self.start().wrapping_add(ticks));
    }
}

/// The values that an end reads first.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The counter.
    pub(crate) now: u64,
    /// The covered ticks before this end.
    pub(crate) covered: u64,
}

/// A difference of two stamps, or 0 if it is negative: calibration may subtract a tick more than a
/// short region took.
#[inline(always)]
pub(super) fn not_below_zero(ticks: u64) -> u64 {
    (ticks as i64).max(0) as u64
}

/// The measurement of one begin and end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionPart {
    /// On-CPU ticks from begin to end, minus the overhead; negative if the overhead is larger.
    pub(crate) net: u64,
    /// Ticks of nested regions.
    pub(crate) child: u64,
    /// Ticks off the CPU.
    pub(crate) off: u64,
    /// Context switches.
    pub(crate) switches: u64,
}

impl RegionPart {
    /// Exclusive ticks, at least 0; see [`not_below_zero`].
    #[inline(always)]
    pub(crate) fn own(&self) -> u64 {
        not_below_zero(self.net.wrapping_sub(self.child))
    }

    /// Inclusive ticks, at least 0.
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        not_below_zero(self.net)
    }
}

/// Whether the elapsed ticks are so far below zero that the counter ran backwards. If the overhead
/// of a lap, a hook, a fence or counting has delayed the region's start, and the region ends at once, the
/// elapsed ticks can be a little below zero.
pub(crate) fn ran_backwards(elapsed: u64) -> bool {
    let [flagged, _] = overhead().beyond(FENCED | ALLOCS);
    let late = overhead().hooks_inside.load(Relaxed) + flagged;
    let late = late.max(overhead().late());
    (elapsed as i64) < -(late as i64)
}
