//! The guard: a region that lasts as long as a value does.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use pfp_shm_layout::amounts::Amounts;

use super::region::{Door, End, Notes, Region, RegionStart};
use super::thread;
use super::{busy, current};
use crate::point::Point;

/// Measures a region until it is dropped; see [`Point::measure`].
///
/// It belongs to its thread: it cannot be sent to another one.
///
/// Each region has a test and a call inline. What is noted is noted out of line, so a region that
/// is off has no register to save.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
#[repr(C)]
pub struct Guard {
    /// The region's [`thread::Thread::place`]; 0 if it is not measured, [`LONG_WAY`] if
    /// the context keeps it. First, as C's inline functions expect it.
    pub(super) tag: u64,
    /// Undefined if the tag is 0: a region that is off does not even clear it.
    pub(super) point: MaybeUninit<&'static Point>,
    /// Undefined if the tag is 0. With [`LONG_WAY`], when the region began that the context keeps.
    pub(super) begun: MaybeUninit<RegionStart>,
    thread_bound: PhantomData<*const ()>,
}

/// The tag of a region that the context keeps: no place, whose highest bit is 1, and without
/// [`thread::FENCED`].
pub(super) const LONG_WAY: u64 = 4;
/// [`LONG_WAY`] for a guard that also has the amounts of the region.
pub(super) const LONG_WAY_WITH: u64 = 12;

impl Guard {
    /// A guard that has no region.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self {
            tag: 0,
            point: MaybeUninit::uninit(),
            begun: MaybeUninit::uninit(),
            thread_bound: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn of(point: &'static Point, tag: u64, begun: RegionStart) -> Self {
        let (point, begun) = (MaybeUninit::new(point), MaybeUninit::new(begun));
        Self { tag, point, begun, thread_bound: PhantomData }
    }

    /// A guard of a region that the context keeps and that began at `start`.
    pub(super) fn of_kept(point: &'static Point, start: u64) -> Self {
        Self::of(point, LONG_WAY, RegionStart { inclusive: start, ..RegionStart::default() })
    }

    /// [`Self::of_kept`] with the amounts of the region.
    pub(super) fn of_kept_with(point: &'static Point, kept: u64, amounts: &Amounts) -> Self {
        let &[start, covered, off, switches] = amounts;
        let begun = RegionStart { start, covered, off, switches, inclusive: kept };
        Self::of(point, LONG_WAY_WITH, begun)
    }

    /// Puts right what the short way has done, and says when the region ended.
    pub(super) fn end_by(&self, Door { elapsed, covered }: Door, marked: bool) -> End {
        if let Some(thread) = current::thread() {
            busy::take_back(thread, marked);
        }
        End { now: self.start().wrapping_add(elapsed), covered }
    }

    /// From now on it ends as if its point were not fenced.
    pub(super) fn forget_fence(&mut self) {
        self.tag = self.place();
    }

    /// The tag without [`thread::FENCED`].
    pub(crate) fn place(&self) -> u64 {
        self.tag & !thread::FENCED
    }

    /// Leaves out ticks that were covered since it began but not inside, and ticks that were added
    /// to the inclusive total of its point.
    pub(super) fn leave_out(&mut self, covered: u64, added: u64) {
        // SAFETY: asked of a guard that has the tag of a place.
        let begun = unsafe { self.begun.assume_init_mut() };
        begun.covered = begun.covered.wrapping_add(covered);
        begun.inclusive = begun.inclusive.wrapping_add(added);
    }

    /// It begins later.
    pub(super) fn delay(&mut self, ticks: u64) {
        // SAFETY: the caller has a guard with the tag of a place, which is filled.
        let begun = unsafe { self.begun.assume_init_mut() };
        begun.start = begun.start.wrapping_add(ticks);
    }

    /// Whether it ends by a stamp that waits, if it is not kept by the context.
    pub(crate) fn is_fenced(&self) -> bool {
        self.tag & thread::FENCED != 0
    }

    /// What `begin` noted. `None` if the context keeps that, or if no region is open.
    #[inline(always)]
    pub(crate) fn begun(&self) -> Option<&RegionStart> {
        // SAFETY: with the tag of a place it was filled.
        (self.tag & thread::IS_PLACE != 0).then(|| unsafe { self.begun.assume_init_ref() })
    }

    /// When the region began, for a region that the context keeps.
    pub(crate) fn kept_start(&self) -> u64 {
        // SAFETY: the caller has found no place in the tag, which `of_kept` and `of_kept_with` fill.
        unsafe { self.begun.assume_init_ref() }.inclusive
    }

    /// The amounts of a region that the context keeps, if the guard has them.
    pub(crate) fn kept_amounts(&self) -> Option<Amounts> {
        (self.tag == LONG_WAY_WITH).then(|| {
            // SAFETY: filled in `of_kept_with`, with this tag.
            let RegionStart { start, covered, off, switches, .. } =
                unsafe { self.begun.assume_init() };
            [start, covered, off, switches]
        })
    }
}

/// Of a guard that may be uninitialised.
impl Notes for MaybeUninit<Guard> {
    #[inline(always)]
    fn point(&mut self, point: &'static Point) {
        // SAFETY: a word of the guard's.
        unsafe { (*self.as_mut_ptr()).point = MaybeUninit::new(point) };
    }

    #[inline(always)]
    fn covered(&mut self, ticks: u64) {
        // SAFETY: as `begun_of` has it, here and below.
        unsafe { (*begun_of(self)).covered = ticks };
    }

    #[inline(always)]
    fn clock(&mut self, off: u64, switches: u64) {
        let begun = begun_of(self);
        // SAFETY: as above.
        unsafe { ((*begun).off, (*begun).switches) = (off, switches) };
    }

    #[inline(always)]
    fn inclusive(&mut self, ticks: u64) {
        // SAFETY: as above.
        unsafe { (*begun_of(self)).inclusive = ticks };
    }

    #[inline(always)]
    fn whole(&mut self, start: u64, tag: u64) {
        // SAFETY: as above, and a word of the guard's.
        unsafe { ((*begun_of(self)).start, (*self.as_mut_ptr()).tag) = (start, tag) };
    }
}

/// The words of a guard that may be uninitialised, and may be written.
#[inline(always)]
fn begun_of(guard: &mut MaybeUninit<Guard>) -> *mut RegionStart {
    // SAFETY: an address within the guard.
    unsafe { (&raw mut (*guard.as_mut_ptr()).begun).cast() }
}

/// Of a guard that has been filled.
impl Region for Guard {
    #[inline(always)]
    fn tag(&self) -> u64 {
        self.tag
    }

    #[inline(always)]
    fn point(&self) -> &'static Point {
        // SAFETY: filled, here and below.
        unsafe { self.point.assume_init() }
    }

    #[inline(always)]
    fn start(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.begun.assume_init_ref() }.start
    }

    #[inline(always)]
    fn covered(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.begun.assume_init_ref() }.covered
    }

    #[inline(always)]
    fn inclusive(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.begun.assume_init_ref() }.inclusive
    }

    #[inline(always)]
    fn was_read(&mut self) {}
}
