//! A region: what a begin notes, what an end reads, and what they measured.

use std::sync::atomic::Ordering::Relaxed;

use super::overhead::overhead;
use crate::point::Point;

/// What `begin` notes of a region, for `end`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct RegionStart {
    /// The counter.
    pub(crate) start: u64,
    /// What was covered.
    pub(crate) covered: u64,
    /// The clock's offset, to know the time off the CPU.
    pub(crate) off: u64,
    /// Switches until then.
    pub(crate) switches: u64,
    /// The inclusive total; see [`super::thread::Entry`].
    pub(crate) inclusive: u64,
}

impl RegionStart {
    /// With what the hooks of a function cost taken out.
    #[inline(always)]
    pub(super) fn of_a_function(mut self) -> Self {
        self.start = self.start.wrapping_add(overhead().hooks_inside.load(Relaxed));
        self
    }
}

/// Where a begin notes its region word by word, each where it stays as soon as it is known, so
/// that few registers are needed: a guard, or a slot of a context.
pub(super) trait Notes {
    fn point(&mut self, point: &'static Point);
    fn covered(&mut self, ticks: u64);
    fn clock(&mut self, off: u64, switches: u64);
    fn inclusive(&mut self, ticks: u64);
    /// All else is there: when it began, and its tag.
    fn whole(&mut self, start: u64, tag: u64);
}

/// A guard that is returned is noted in registers first.
impl Notes for RegionStart {
    #[inline(always)]
    fn point(&mut self, _point: &'static Point) {}

    #[inline(always)]
    fn covered(&mut self, ticks: u64) {
        self.covered = ticks;
    }

    #[inline(always)]
    fn clock(&mut self, off: u64, switches: u64) {
        (self.off, self.switches) = (off, switches);
    }

    #[inline(always)]
    fn inclusive(&mut self, ticks: u64) {
        self.inclusive = ticks;
    }

    #[inline(always)]
    fn whole(&mut self, start: u64, _tag: u64) {
        self.start = start;
    }
}

/// What an end reads of its region, which was noted; see [`Notes`].
pub(super) trait Region {
    fn tag(&self) -> u64;
    fn point(&self) -> &'static Point;
    fn start(&self) -> u64;
    fn covered(&self) -> u64;
    fn inclusive(&self) -> u64;
    /// All was read of it, and it will be recorded.
    fn was_read(&mut self);
}

/// What the short way of an end leaves to the long one.
#[derive(Clone, Copy)]
pub(super) struct Door {
    /// Ticks since the region began.
    pub(super) elapsed: u64,
    /// What was covered before the counter was read.
    pub(super) covered: u64,
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
pub(crate) struct Part {
    /// On-CPU ticks from begin to end, less what measuring costs: below zero where that is more.
    pub(crate) net: u64,
    /// Ticks of the regions inside.
    pub(crate) child: u64,
    /// Ticks off the CPU.
    pub(crate) off: u64,
    /// Switches.
    pub(crate) switches: u64,
}

impl Part {
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
