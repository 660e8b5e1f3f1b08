//! The stack of open regions; see [`super::super::region`].

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};
use pfp_shm_layout::geometry::PAGE;
use pfp_shm_layout::ring::DEPTH_SHIFT;

use super::Thread;
use super::allocs::AtBegin;
use crate::engine::process::memory;
use crate::engine::region::{ALLOCS, AMOUNTS, BY_HAND, IS_PLACE, LEVEL, LEVELS, Region, level_of};
use crate::engine::regions::{Regions, Shared};
use crate::point::Point;
use crate::word;

/// Maximum number of open regions in a thread's own context, and in a context that the program
/// made.
const OWN_LEVELS: u64 = LEVELS / LEVEL;
const LEVELS_OF_CONTEXT: u64 = 1024;

type KeptAmounts = [AtomicU64; MAX_AMOUNTS];

/// Bytes of a stack and its amounts.
const fn bytes(levels: u64) -> usize {
    levels as usize * (size_of::<Region>() + size_of::<KeptAmounts>())
}
/// Bytes of what the counting regions of a stack store.
const fn bytes_of_allocs(levels: u64) -> usize {
    levels as usize * size_of::<AtBegin>()
}
/// Bytes of the pages for the stack of a thread's own context.
pub(super) const STACK: usize = bytes(OWN_LEVELS).next_multiple_of(PAGE);

const PLACE: usize = offset_of!(Thread, place);
/// Bytes of a region.
const REGION: u64 = size_of::<Region>() as u64;

/// Bytes of the regions below the region of this tag on the stack.
#[inline(always)]
fn bytes_below(tag: u64) -> u64 {
    const SCALED: u32 = DEPTH_SHIFT - REGION.trailing_zeros();
    const { assert!(REGION.is_power_of_two()) };
    tag >> SCALED & LEVELS >> SCALED
}

impl Regions {
    /// Sets the stack of a thread's own context to the pages for it.
    pub(super) fn furnish(&self, pages: *mut u8) {
        self.limit.store(OWN_LEVELS, Relaxed);
        self.stack.store(pages.cast(), Relaxed);
    }

    /// The stack, and the bytes of its regions. The bytes are 0 without a stack, even if a signal
    /// handler maps one between the loads.
    fn stack(&self) -> (*mut Region, u64) {
        let stack = self.stack.load(Relaxed);
        compiler_fence(SeqCst);
        let levels = if stack.is_null() { 0 } else { self.limit.load(Relaxed) };
        (stack, levels * REGION)
    }

    /// Maps a stack for a context that the program names; false if memory runs out.
    #[cold]
    fn map_stack(&self) -> bool {
        let Some(pages) = memory::pages(bytes(LEVELS_OF_CONTEXT)) else { return false };
        self.limit.store(LEVELS_OF_CONTEXT, Relaxed);
        // The limit is stored first, because `stack` loads it second.
        compiler_fence(SeqCst);
        let none = ptr::null_mut();
        if self.stack.compare_exchange(none, pages.cast(), Relaxed, Relaxed).is_err() {
            // A signal handler was faster.
            // SAFETY: the pages were mapped just now, and no other code has their address.
            unsafe { libc::munmap(pages.cast(), bytes(LEVELS_OF_CONTEXT)) };
        }
        true
    }

    /// Maps memory for what counting regions store at their begin, unless memory runs out.
    #[cold]
    fn map_allocs(&self) {
        let bytes = bytes_of_allocs(self.limit.load(Relaxed));
        let Some(pages) = memory::pages(bytes) else { return };
        let none = ptr::null_mut();
        if self.allocs.compare_exchange(none, pages.cast(), Relaxed, Relaxed).is_err() {
            // A signal handler was faster.
            // SAFETY: the pages were mapped just now, and no other code has their address.
            unsafe { libc::munmap(pages.cast(), bytes) };
        }
    }
}

impl Drop for Regions {
    /// Unmaps the stack of a context. A thread's own regions are never dropped.
    fn drop(&mut self) {
        let stack = *self.stack.get_mut();
        if !stack.is_null() {
            // SAFETY: the pages are from `map_stack`, and no thread uses the context any more.
            unsafe { libc::munmap(stack.cast(), bytes(LEVELS_OF_CONTEXT)) };
        }
        let allocs = *self.allocs.get_mut();
        if !allocs.is_null() {
            // SAFETY: as above, from `map_allocs`.
            unsafe { libc::munmap(allocs.cast(), bytes_of_allocs(LEVELS_OF_CONTEXT)) };
        }
    }
}

impl Thread {
    /// The thread's pages: the stack of its own context comes first.
    pub(super) fn pages(&self) -> *mut u8 {
        ptr::with_exposed_provenance_mut(ptr::from_ref(self).addr() - STACK)
    }

    /// Makes `context` current, null for the thread's own. Returns the context that was current.
    /// `current` is stored first: a fault handler that then switches contexts restores `context`.
    pub(in crate::engine) fn set_current(&self, context: *mut Shared) -> *mut Shared {
        let before = self.current.swap(context, Relaxed);
        compiler_fence(SeqCst);
        // SAFETY: the pointer is null, or leads to a context that the caller keeps alive while it
        // is current.
        let regions = unsafe { context.as_ref() }.map_or(&self.own, |context| &context.regions);
        self.regions.store(ptr::from_ref(regions).cast_mut(), Relaxed);
        self.use_stack_of(regions);
        before
    }

    /// Replaces the stack and its limit. If a signal handler begins a region in between, it finds
    /// the limit 0, and replaces both itself.
    fn use_stack_of(&self, regions: &Regions) {
        self.limit.store(0, Relaxed);
        compiler_fence(SeqCst);
        let (stack, limit) = regions.stack();
        self.stack.store(stack, Relaxed);
        compiler_fence(SeqCst);
        self.limit.store(limit, Relaxed);
    }

    /// Whether the thread uses the stack of a context, and its limit.
    fn uses_stack_of(&self, regions: &Regions) -> bool {
        (self.stack.load(Relaxed), self.limit.load(Relaxed)) == regions.stack()
    }

    /// See [`Thread::place`].
    #[inline(always)]
    pub(crate) fn place(&self) -> u64 {
        self.place.load(Relaxed)
    }

    /// Number of open regions.
    #[inline(always)]
    pub(in crate::engine) fn level(&self) -> u64 {
        level_of(self.place())
    }

    /// Number of open regions that are on the current stack. While contexts are switched, a signal
    /// handler may find the stack of the next context and the level of the previous one.
    #[inline(always)]
    pub(in crate::engine) fn open_levels(&self) -> u64 {
        self.level().min(self.limit.load(Relaxed) / REGION)
    }

    /// The tag of the innermost open region, unless that region must end on the slow path or the
    /// clock was read on the slow path since the region began.
    #[inline(always)]
    pub(crate) fn inner_place(&self) -> u64 {
        self.place().wrapping_sub(LEVEL)
    }

    /// [`Self::inner_place`]. `None` in a forked child, whose place is wiped.
    pub(in crate::engine) fn last_place(&self) -> Option<u64> {
        let place = self.place();
        (place & IS_PLACE != 0).then(|| place.wrapping_sub(LEVEL))
    }

    /// Whether the stack has no room for a region with this tag.
    #[inline(always)]
    pub(in crate::engine) fn is_full(&self, tag: u64) -> bool {
        !word::is_above::<Self, { offset_of!(Self, limit) }>(self, bytes_below(tag))
    }

    /// Makes room for one more region; false if memory runs out. A full stack usually holds regions
    /// that were left by jumps, not regions that are still running, so all are abandoned.
    #[cold]
    pub(in crate::engine) fn make_room(&self) -> bool {
        let regions = self.regions();
        if regions.stack.load(Relaxed).is_null() && !regions.map_stack() {
            return false;
        }
        if !self.uses_stack_of(regions) {
            self.use_stack_of(regions);
            return true;
        }
        self.count(|counters| &counters.mismatched);
        self.abandon_from(0);
        true
    }

    /// The region of a tag. The stack must have the tag's level.
    #[inline(always)]
    pub(in crate::engine) fn region(&self, tag: u64) -> &'static Region {
        self.region_behind(bytes_below(tag))
    }

    /// The region of a level, which the stack must have.
    pub(in crate::engine) fn region_at(&self, level: u64) -> &'static Region {
        self.region_behind(level * REGION)
    }

    #[inline(always)]
    fn region_behind(&self, bytes: u64) -> &'static Region {
        let region = word::plus::<Self, { offset_of!(Self, stack) }>(self, bytes);
        // SAFETY: the caller has checked with `is_full` that the current context's stack has the
        // level. A stack stays mapped while its context is current.
        unsafe { &*ptr::with_exposed_provenance::<Region>(region as usize) }
    }

    /// The region of a tag, if it is still open.
    pub(in crate::engine) fn find(&self, tag: u64) -> Option<&'static Region> {
        let level = level_of(tag);
        if level >= self.open_levels() {
            return None;
        }
        Some(self.region_at(level)).filter(|region| region.tag() & !BY_HAND == tag)
    }

    /// The innermost region by hand of a point.
    #[inline(always)]
    pub(in crate::engine) fn innermost(&self, point: &Point) -> Option<&'static Region> {
        let outwards = (0..self.open_levels()).rev().map(|level| self.region_at(level));
        outwards.into_iter().find(|region| region.is_by_hand_of(point))
    }

    /// The amounts of the region of a tag.
    fn amounts(&self, tag: u64) -> &KeptAmounts {
        let levels = self.limit.load(Relaxed) / REGION;
        let behind = self.stack.load(Relaxed).wrapping_add(levels as usize);
        // SAFETY: the stack has the level of the tag, and its regions are followed by one entry of
        // amounts for each level.
        unsafe { &*behind.cast::<KeptAmounts>().add(level_of(tag) as usize) }
    }

    /// What the region of a tag has stored to count its allocations. `None` if no region of the
    /// context has counted any.
    #[inline(always)]
    pub(in crate::engine) fn allocs_at_begin(&self, tag: u64) -> Option<&AtBegin> {
        let regions = self.regions();
        let first = regions.allocs.load(Relaxed);
        let level = level_of(tag);
        if first.is_null() || level >= regions.limit.load(Relaxed) {
            return None;
        }
        // SAFETY: `map_allocs` has mapped one of these for each level of the context.
        Some(unsafe { &*first.add(level as usize) })
    }

    /// Like [`Self::allocs_at_begin`], for a region that begins to count: maps the memory for the
    /// context's first one. `None` if memory runs out.
    #[inline(always)]
    pub(in crate::engine) fn allocs_to_begin(&self, tag: u64) -> Option<&AtBegin> {
        self.allocs_at_begin(tag).or_else(|| {
            self.regions().map_allocs();
            self.allocs_at_begin(tag)
        })
    }

    /// Gives the largest allocation of each counting region from a level on back to the enclosing
    /// region. Called for regions that will not end.
    pub(in crate::engine) fn restore_largest_from(&self, first: u64) {
        let counting = |region: &&Region| region.tag() & ALLOCS != 0;
        let inwards = (first..self.open_levels()).map(|level| self.region_at(level));
        for region in inwards.rev().filter(|region| counting(&&**region)) {
            if let (Some(numbers), Some(at_begin)) =
                (self.allocs.known(), self.allocs_at_begin(region.tag()))
            {
                at_begin.restore_largest(numbers);
            }
        }
    }

    /// The amounts of the region of a tag, if the stack has them.
    pub(in crate::engine) fn amounts_of(&self, tag: u64) -> Option<Amounts> {
        (tag & AMOUNTS != 0).then(|| self.amounts(tag).each_ref().map(|word| word.load(Relaxed)))
    }

    /// Stores the amounts of an open region. Returns its new tag.
    pub(in crate::engine) fn keep_amounts(&self, tag: u64, amounts: &Amounts) -> u64 {
        let Some(region) = self.find(tag) else { return tag };
        for (kept, amount) in self.amounts(tag).iter().zip(amounts) {
            kept.store(*amount, Relaxed);
        }
        compiler_fence(SeqCst);
        region.mark(AMOUNTS);
        tag | AMOUNTS
    }

    /// Pushes a region, in one instruction, so that nothing is lost if a signal handler pushes
    /// regions and leaves them open.
    #[inline(always)]
    pub(crate) fn push(&self) {
        word::add_constant::<Self, PLACE, { LEVEL as i32 }>(self);
    }

    /// Pops the innermost region.
    #[inline(always)]
    pub(crate) fn pop(&self) {
        word::add_constant::<Self, PLACE, { -(LEVEL as i32) }>(self);
    }

    /// Sets the number of open regions, in units of [`LEVEL`]. Does nothing in a forked child,
    /// whose place is wiped.
    pub(in crate::engine) fn set_level(&self, level: u64) {
        let with_level =
            |place| (place & IS_PLACE != 0).then_some(place & !LEVELS | level & LEVELS);
        let _ = self.place.fetch_update(Relaxed, Relaxed, with_level);
    }

    /// Stores the clock in the open regions, since it is about to change. The outermost region
    /// comes first. So if a region is noted, all enclosing regions are noted, too, even if a
    /// handler has jumped out of this function.
    pub(in crate::engine) fn note_clock(&self) {
        let levels = self.open_levels();
        // Search by halves, since jumps may have left thousands of regions.
        let (mut first, mut end) = (0, levels);
        while first < end {
            let middle = u64::midpoint(first, end);
            match self.region_at(middle).is_noted() {
                true => first = middle + 1,
                false => end = middle,
            }
        }
        (first..levels).for_each(|level| self.region_at(level).note_clock(&self.clock));
    }

    /// Abandons the open regions from a level on, so that their tags match no region.
    pub(in crate::engine) fn abandon_from(&self, first: u64) {
        self.restore_largest_from(first);
        for level in first..self.open_levels() {
            self.region_at(level).close();
        }
        self.outdate();
        self.set_level(first * LEVEL);
    }

    /// Whether the region of a tag is the innermost one, and the thread has the same run,
    /// generation and context as when it began.
    #[inline(always)]
    pub(crate) fn is_in(&self, tag: u64) -> bool {
        word::is::<Self, PLACE>(self, tag.wrapping_add(LEVEL))
    }
}
