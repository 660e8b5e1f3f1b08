//! An open region: what its begin notes, what its end reads, and what they measured.
//!
//! The open regions of a context are a stack, an array of [`Region`] that is indexed by the
//! number of regions around. Guards, regions begun by hand, laps, polls and the hooks of compilers
//! all push to it and pop from it. Each of them keeps the *tag* of its region, one word:
//!
//! ```text
//! | is place 1 | fenced 1 | run 14 | generation 12 | level 12 | 0 2 | noted 1 | amounts 1 | by hand 1 | context 19 |
//! ```
//!
//! The thread keeps the tag of the next region in [`place`](super::thread::Thread::place). If that
//! is one level above a tag, the tag's region is open and innermost, and since it began the thread
//! was not found to have been off the CPU and its context was not put aside: one comparison that
//! decides whether the region may end on the fast path. The slow path compares the tag with the
//! tag in the stack.

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

/// In every [`super::thread::Thread::place`], so that none is 0. Cleared in the tag of a region that
/// must end on the slow path.
pub(crate) const IS_PLACE: u64 = 1 << 63;
/// In a tag: the point is fenced.
pub(crate) const FENCED: u64 = 1 << 62;
/// The number of a run of the current context, modulo 2^14. No other recent run of the process has
/// it. For a thread's own context it is the first run, else the present one.
pub(super) const RUN: u32 = 48;
pub(super) const RUNS: u64 = FENCED - (1 << RUN);
/// One look at the clock, or one time that regions were abandoned. Generations repeat after 4,096.
pub(super) const GENERATION: u64 = 1 << 36;
pub(super) const GENERATIONS: u64 = (1 << RUN) - GENERATION;
/// One open region. The lower half of a tag is what a record says of its place, which has the level
/// modulo 256.
pub(crate) const LEVEL: u64 = 1 << DEPTH_SHIFT;
/// The bits that count open regions.
pub(crate) const LEVELS: u64 = GENERATION - LEVEL;
/// In a tag: the stack has the amounts of the region.
pub(crate) const AMOUNTS: u64 = 1 << 20;
/// In the tag on the stack: the clock was about to change for the first time since the region began,
/// and the region has what it was until then; see [`Region::note_clock`].
const NOTED: u64 = 1 << 21;
/// In the tag on the stack: the region was begun by hand.
pub(super) const BY_HAND: u64 = 1 << 19;
/// The number of the context, 0 for the thread's own.
pub(super) const CONTEXT: u64 = BY_HAND - 1;

/// How many regions are open around one with this tag.
#[inline(always)]
pub(super) fn level_of(tag: u64) -> u64 {
    (tag & LEVELS) >> DEPTH_SHIFT
}

/// An open region. Its thread alone uses the words; they are atomic because a signal handler of
/// that thread may come in between.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Region {
    /// Written before the region is pushed, and 0 once it has ended on the slow path or by hand. A begin
    /// adds [`BY_HAND`] last: a handler that looks for a region by hand finds none that is half begun.
    tag: AtomicU64,
    point: AtomicPtr<Point>,
    // As in `Begun`.
    start: AtomicU64,
    covered: AtomicU64,
    inclusive: AtomicU64,
    // Valid if the tag has `NOTED`. Otherwise the clock has not changed since the region began.
    off: AtomicU64,
    switches: AtomicU64,
    /// While the context is put aside, the ticks that were added to the inclusive total since the
    /// region began.
    pub(super) kept: AtomicU64,
}

/// What was at the begin of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The counter.
    pub(crate) start: u64,
    /// What was covered.
    pub(crate) covered: u64,
    /// The clock's offset, to know the time off the CPU.
    pub(crate) off: u64,
    /// Switches until then.
    pub(crate) switches: u64,
}

impl Region {
    #[inline(always)]
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Relaxed) & !NOTED
    }

    /// The region is about to begin, or has begun.
    #[inline(always)]
    pub(super) fn open(&self, tag: u64) {
        self.tag.store(tag, Relaxed);
    }

    /// Adds [`BY_HAND`] to the tag, in one instruction, so that nothing is lost of what a signal handler
    /// adds.
    #[inline(always)]
    pub(super) fn mark_by_hand(&self) {
        word::add_constant::<Self, { offset_of!(Self, tag) }, { BY_HAND as i32 }>(self);
    }

    /// Adds to the tag of an open region.
    pub(super) fn mark(&self, with: u64) {
        self.tag.fetch_or(with, Relaxed);
    }

    /// Notes the clock of the context, if it has not changed since the region began. Called before it
    /// changes. The tag comes last, so that a jump in between leaves nothing half noted.
    pub(super) fn note_clock(&self, clock: &ThreadClock) {
        // A signal handler or another fibre that changes the clock notes it as well. If it runs before the
        // test, the test finds the region noted; if it runs after it, it stores the same values.
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

    /// No end finds the region any more.
    #[inline(always)]
    pub(super) fn close(&self) {
        self.tag.store(0, Relaxed);
        compiler_fence(SeqCst);
    }

    /// The point. `None` in a stack that was never used at this level.
    pub(super) fn point(&self) -> Option<&'static Point> {
        // SAFETY: null, or a point, which is a static or never freed.
        unsafe { self.point.load(Relaxed).as_ref() }
    }

    /// [`Self::point`] of a region that has begun.
    ///
    /// # Safety
    ///
    /// [`Self::set_point`] was called.
    #[inline(always)]
    pub(super) unsafe fn point_of_open(&self) -> &'static Point {
        // SAFETY: by the caller's promise a point, which is a static or never freed.
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

    /// Ticks plus what was covered at the begin.
    #[inline(always)]
    pub(super) fn plus_covered(&self, ticks: u64) -> u64 {
        word::plus::<Self, { offset_of!(Self, covered) }>(self, ticks)
    }

    #[inline(always)]
    pub(super) fn set_covered(&self, ticks: u64) {
        self.covered.store(ticks, Relaxed);
    }

    /// The clock's offset when the region began, if the clock has changed since.
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

    /// Whether it has this tag, was begun by hand, and the clock has not changed since.
    #[inline(always)]
    pub(super) fn is_by_hand(&self, tag: u64) -> bool {
        word::is::<Self, { offset_of!(Self, tag) }>(self, tag | BY_HAND)
    }

    /// Whether it is of a point.
    #[inline(always)]
    pub(super) fn is_of(&self, point: &Point) -> bool {
        word::is::<Self, { offset_of!(Self, point) }>(self, ptr::from_ref(point).addr() as u64)
    }

    /// Whether a region of a point that was begun by hand is open here.
    #[inline(always)]
    pub(super) fn is_by_hand_of(&self, point: &Point) -> bool {
        self.tag() & BY_HAND != 0 && ptr::eq(self.point.load(Relaxed), point)
    }

    /// What was at its begin. `off` and `switches` are the clock's at a later moment.
    pub(super) fn begun(&self, off: u64, switches: u64) -> Begun {
        let (off, switches) = match self.is_noted() {
            true => (self.off(), self.switches.load(Relaxed)),
            false => (off, switches),
        };
        Begun { start: self.start(), covered: self.covered(), off, switches }
    }

    /// Leaves out ticks that were covered since it began but not inside, and ticks that were added
    /// to the inclusive total of its point.
    pub(super) fn leave_out(&self, covered: u64, added: u64) {
        self.set_covered(self.covered().wrapping_add(covered));
        self.set_inclusive(self.inclusive().wrapping_add(added));
    }

    /// It begins later.
    pub(super) fn delay(&self, ticks: u64) {
        self.set_start(self.start().wrapping_add(ticks));
    }
}

/// What an end reads first.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The counter.
    pub(crate) now: u64,
    /// What was covered before that.
    pub(crate) covered: u64,
}

/// A difference of two stamps, or 0 if it is negative: what calibration takes
/// out may be a tick more than a short region took.
#[inline(always)]
pub(super) fn not_below_zero(ticks: u64) -> u64 {
    (ticks as i64).max(0) as u64
}

/// What one begin and end measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RegionPart {
    /// On-CPU ticks from begin to end, less what measuring costs: below zero where that is more.
    pub(crate) net: u64,
    /// Ticks of the regions inside.
    pub(crate) child: u64,
    /// Ticks off the CPU.
    pub(crate) off: u64,
    /// Switches.
    pub(crate) switches: u64,
}

impl RegionPart {
    /// Exclusive ticks. Never negative: what calibration takes out may be a
    /// tick more than a short region took.
    #[inline(always)]
    pub(crate) fn own(&self) -> u64 {
        not_below_zero(self.net.wrapping_sub(self.child))
    }

    /// Ticks with those of the regions inside.
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        not_below_zero(self.net)
    }
}

/// Whether this many ticks from begin to end say that the counter ran backwards,
/// not only that a region that a lap or a hook began was left at once.
pub(crate) fn ran_backwards(elapsed: u64) -> bool {
    let late = overhead().hooks_inside.load(Relaxed) + overhead().fence_inside.load(Relaxed);
    let late = late.max(overhead().late());
    (elapsed as i64) < -(late as i64)
}
