//! The open regions of a thread that another tool's annotations began. Each has an owner.
//!
//! An owner is either a domain, whose regions nest, or a single span. Regions of different owners
//! may overlap: if an owner ends a region that encloses an open region of another owner, the ended
//! region waits on the stack until the inner one has ended, too.

use std::cell::{Cell, UnsafeCell};
use std::mem::{self, MaybeUninit};
use std::ptr;

use crate::engine::polls::{Polls, end_poll};
use crate::own::{self, Own};
use crate::{Amount, Guard, MeteredPoint, Point, c};

/// Maximum number of open regions on a thread. Further ones are not measured, and count as refused.
const DEPTH: usize = 1024;

/// The sum of several regions that count as one measurement, like the polls of a future.
#[derive(Debug, Default)]
pub struct Parts(Polls);

impl Parts {
    /// A sum without parts.
    #[must_use]
    pub const fn new() -> Self {
        Self(Polls::None)
    }

    /// Records the sum as one measurement, if there are any parts.
    #[cold]
    pub fn record(&mut self, point: &'static Point) {
        self.0.record(point, None);
    }
}

/// Finds the [`Parts`] to which an owner's region belongs, and calls `take` with them; false if
/// they cannot be found.
pub type Lend = fn(owner: usize, take: &mut dyn FnMut(&mut Parts)) -> bool;

/// An open region.
pub struct Open {
    /// A number that identifies the region's owner, such as its address.
    owner: usize,
    /// Number of enclosing regions of the same owner.
    level: u32,
    has_ended: bool,
    /// Finds the sum to which the region is added, if the region is only a part of a measurement.
    part_of: Option<Lend>,
    guard: Guard,
}

impl Open {
    fn new(owner: usize, level: u32) -> Self {
        Self { owner, level, has_ended: false, part_of: None, guard: Guard::empty() }
    }

    /// Begins a region of a point, if the point is on. Called at most once.
    #[inline(always)]
    pub fn measure(&mut self, point: &'static Point) {
        self.guard = point.measure();
    }

    /// Like [`Self::measure`], for a region that is only a part of a measurement: its end adds it
    /// to the sum that `lend` finds. Called at most once.
    #[inline]
    pub fn measure_part(&mut self, point: &'static Point, lend: Lend) {
        self.measure(point);
        if self.is_measured() {
            self.part_of = Some(lend);
        }
    }

    /// Whether the region is measured; false if its point was off.
    #[inline(always)]
    #[must_use]
    pub fn is_measured(&self) -> bool {
        self.guard.tag() != 0
    }

    /// Begins a region with amounts, if the point is on. Called at most once.
    #[inline(always)]
    pub fn measure_with<A: Amount, const N: usize>(
        &mut self,
        metered: &'static MeteredPoint,
        amounts: [A; N],
    ) {
        self.guard = metered.measure(amounts);
    }

    /// Closes the region without recording it, as if it had been left by a jump.
    fn abandon(&mut self) {
        mem::forget(mem::replace(&mut self.guard, Guard::empty()));
    }
}

impl Drop for Open {
    #[inline]
    fn drop(&mut self) {
        if let Some(lend) = self.part_of
            && self.is_measured()
            && end_part(self.owner, self.guard.tag(), lend)
        {
            self.abandon();
        }
    }
}

/// Ends a region, and adds it to the sum that `lend` finds; false if there is no such sum.
#[cold]
fn end_part(owner: usize, tag: u64, lend: Lend) -> bool {
    lend(owner, &mut |parts| end_poll(tag, &mut parts.0, false))
}

struct Stack {
    depth: Cell<usize>,
    /// Number of open regions beyond the maximum.
    beyond: Cell<u32>,
    open: [UnsafeCell<MaybeUninit<Open>>; DEPTH],
}

thread_local! {
    static STACK: Own<Stack> = const { Own::new() };
}

/// Calls `work` with the calling thread's stack. Does nothing while the thread ends, or if there is
/// no memory.
#[inline]
fn with<R>(work: impl FnOnce(&Stack) -> R) -> Option<R> {
    // SAFETY: the storage is the calling thread's own. Only this thread uses the reference, and not
    // after its storage is destroyed.
    let own = STACK.with(|own| unsafe { &*ptr::from_ref(own) });
    own.get(Stack::new).map(work)
}

/// Begins a region of an owner. Returns how many open regions of this owner enclose it. `None`
/// while the thread ends, or if there is no memory, which counts as a refusal.
#[inline]
pub fn push(owner: usize, begin: impl FnOnce(&mut Open)) -> Option<u32> {
    let level = with(|stack| {
        let level = stack.around(owner).map_or(0, |around| around.level + 1);
        stack.push(owner, level, begin)
    });
    if level.is_none() {
        c::count_refusal();
    }
    level
}

/// [`push`] for owners that do not need the number of enclosing regions, which saves the search.
#[inline]
pub fn push_one(owner: usize, begin: impl FnOnce(&mut Open)) {
    if with(|stack| stack.push(owner, 0, begin)).is_none() {
        c::count_refusal();
    }
}

/// A region that its owner has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Number of open regions of this owner that enclosed it.
    pub level: u32,
    /// Whether it was the innermost region, so that it ended at once.
    pub was_innermost: bool,
}

/// Ends the owner's last open region. `None` if it has none.
#[inline]
pub fn pop(owner: usize) -> Option<Ended> {
    with(|stack| {
        // The owner's last region is nearly always the innermost one.
        match stack.open_ones().next() {
            Some(open) if open.owner == owner && !open.has_ended && stack.beyond.get() == 0 => {
                open.has_ended = true;
                let level = open.level;
                stack.end_last(stack.depth.get() - 1);
                if stack.open_ones().next().is_some_and(|around| around.has_ended) {
                    stack.close();
                }
                Some(Ended { level, was_innermost: true })
            }
            _ => stack.pop(owner),
        }
    })
    .flatten()
}

/// Begins a region and ends it at once, so that only its count matters.
pub fn mark(begin: impl FnOnce(&mut Open)) {
    begin(&mut Open::new(0, 0));
}

/// The owner of the innermost region that has not ended, if there is any.
#[must_use]
pub fn innermost() -> Option<usize> {
    with(|stack| stack.open_ones().find(|open| !open.has_ended).map(|open| open.owner)).flatten()
}

/// Drops the open regions of owners that are gone, and the ended regions that wait for them,
/// without recording any of them. Returns how many of the dropped regions had not ended.
#[cold]
pub fn forget(is_gone: impl Fn(usize) -> bool) -> usize {
    with(|stack| stack.forget(|open| is_gone(open.owner))).unwrap_or(0)
}

/// Open regions of a suspended coroutine. Dropping them records nothing.
#[derive(Default)]
pub struct Suspended {
    open: Vec<Open>,
    beyond: u32,
}

impl Suspended {
    /// Abandons all regions without recording them. Returns how many had not ended.
    pub fn abandon(&mut self) -> usize {
        let abandoned = self.open.iter().filter(|open| !open.has_ended).count();
        self.open.iter_mut().for_each(Open::abandon);
        self.open.clear();
        self.beyond = 0;
        abandoned
    }
}

impl Drop for Suspended {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Moves the calling thread's open regions to `to`, which must be empty. If memory runs out, the
/// regions are abandoned, and count as mismatches.
pub fn suspend(to: &mut Suspended) {
    with(|stack| stack.suspend(to));
}

/// Moves suspended regions back to the calling thread, which must not have any open regions.
pub fn resume(from: &mut Suspended) {
    with(|stack| stack.resume(from));
}

/// Abandons a region that its owner has ended but that waits for inner regions, and these inner
/// regions. Returns the number of inner regions that had not ended.
#[cold]
pub fn forget_inside(owner: usize) -> usize {
    with(|stack| {
        let waits = |open: &mut Open| open.has_ended && open.owner == owner;
        let Some(mut inside) = stack.open_ones().position(waits) else { return 0 };
        inside -= stack.open_ones().take(inside).filter(|open| open.has_ended).count();
        stack.forget(|_| {
            let is_inside = inside > 0;
            inside -= usize::from(is_inside);
            is_inside
        })
    })
    .unwrap_or(0)
}

impl Stack {
    fn new() -> Option<Box<Self>> {
        // The value is made in the allocation, because a small stack may have no room for it.
        let mut stack = own::room::<Self>()?;
        let words = stack.as_mut_ptr();
        // SAFETY: `words` points to uninitialized memory for a `Stack`. The slots of regions may
        // stay uninitialized.
        unsafe {
            (&raw mut (*words).depth).write(Cell::new(0));
            (&raw mut (*words).beyond).write(Cell::new(0));
            Some(stack.assume_init())
        }
    }

    #[inline(always)]
    fn push(&self, owner: usize, level: u32, begin: impl FnOnce(&mut Open)) -> u32 {
        let depth = self.depth.get();
        let Some(slot) = self.open.get(depth) else { return self.push_beyond(level) };
        // SAFETY: the slot is the calling thread's, and nothing is in it.
        let open = unsafe { (*slot.get()).write(Open::new(owner, level)) };
        self.depth.set(depth + 1);
        begin(open);
        level
    }

    #[cold]
    fn push_beyond(&self, level: u32) -> u32 {
        let beyond = self.beyond.get();
        self.beyond.set(beyond + 1);
        c::count_refusal();
        level + beyond
    }

    #[inline(never)]
    fn pop(&self, owner: usize) -> Option<Ended> {
        let beyond = self.beyond.get();
        if beyond > 0 {
            self.beyond.set(beyond - 1);
            let level = self.around(owner).map_or(0, |around| around.level + 1) + beyond - 1;
            return Some(Ended { level, was_innermost: true });
        }
        let mut inside = 0;
        let is_its = |open: &&mut Open| {
            inside += 1;
            open.owner == owner && !open.has_ended
        };
        let open = self.open_ones().find(is_its)?;
        open.has_ended = true;
        let level = open.level;
        self.close();
        Some(Ended { level, was_innermost: inside == 1 })
    }

    /// The regions on the stack, from the innermost outwards.
    #[inline]
    fn open_ones(&self) -> impl Iterator<Item = &mut Open> {
        // SAFETY: slots below the depth are filled, and only the calling thread uses them.
        let open =
            |slot: &UnsafeCell<MaybeUninit<Open>>| unsafe { (*slot.get()).assume_init_mut() };
        self.open[..self.depth.get()].iter().rev().map(open)
    }

    /// The owner's last region that has not ended.
    #[inline]
    fn around(&self, owner: usize) -> Option<&mut Open> {
        self.open_ones().find(|open| open.owner == owner && !open.has_ended)
    }

    /// Abandons the open regions for which `is_gone` returns true, and the ended regions that wait
    /// for them. Otherwise the time of the former would be charged to the latter.
    fn forget(&self, mut is_gone: impl FnMut(&Open) -> bool) -> usize {
        let mut forgotten = 0;
        for open in self.open_ones() {
            if open.has_ended {
                if forgotten > 0 {
                    open.abandon();
                }
            } else if is_gone(open) {
                open.has_ended = true;
                open.abandon();
                forgotten += 1;
            }
        }
        self.close();
        forgotten
    }

    /// Moves all open regions off the stack.
    fn suspend(&self, to: &mut Suspended) {
        let depth = self.depth.get();
        if to.open.try_reserve(depth).is_err() {
            (0..self.forget(|_| true)).for_each(|_| c::count_mismatch());
        }
        to.beyond = self.beyond.replace(0);
        let depth = self.depth.replace(0);
        // SAFETY: a slot below the depth is filled, and read only here, since the depth is 0 now.
        let open =
            self.open[..depth].iter().map(|slot| unsafe { (*slot.get()).assume_init_read() });
        to.open.extend(open);
    }

    /// Moves regions onto the stack, which is empty.
    fn resume(&self, from: &mut Suspended) {
        self.beyond.set(std::mem::take(&mut from.beyond));
        for (slot, open) in self.open.iter().zip(from.open.drain(..)) {
            // SAFETY: the slot is the calling thread's, and nothing is in it.
            unsafe { (*slot.get()).write(open) };
            self.depth.set(self.depth.get() + 1);
        }
    }

    /// Ends the innermost regions, as long as their owners have ended them.
    #[inline(never)]
    fn close(&self) {
        while self.open_ones().next().is_some_and(|last| last.has_ended) {
            self.end_last(self.depth.get() - 1);
        }
    }

    /// Ends the innermost region. `last` is its index.
    #[inline(always)]
    fn end_last(&self, last: usize) {
        // The region is dropped before the depth is reduced, so that a signal handler that
        // interrupts the drop pushes its regions above this slot.
        // SAFETY: the slot is below the depth, so it is filled. Only the calling thread uses it,
        // and never reads it again.
        unsafe { (*self.open[last].get()).assume_init_drop() };
        self.depth.set(last);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    use crate::engine::oracle::one_at_a_time;

    fn pop(owner: usize) -> Option<u32> {
        super::pop(owner).map(|ended| ended.level)
    }

    fn count(point: &'static Point) -> u64 {
        point.stats().map_or(0, |stats| stats.count)
    }

    #[test]
    fn owners_nest_for_themselves_and_may_overlap() {
        static ONE: Point = Point::new("one");
        static OTHER: Point = Point::new("other");
        let _one = one_at_a_time();
        let push = |owner, point| push(owner, |open| open.measure(point));
        assert_eq!((pop(1), innermost()), (None, None));
        assert_eq!([push(1, &ONE), push(2, &OTHER), push(1, &ONE)], [0, 0, 1].map(Some));
        // Owner 1 ends its inner region, and then its outer one, in which owner 2 still has a
        // region.
        assert_eq!(
            [pop(1), super::pop(1).map(|ended| u32::from(ended.was_innermost))],
            [1, 0].map(Some)
        );
        assert_eq!((count(&ONE), count(&OTHER), innermost()), (1, 0, Some(2)));
        assert_eq!(pop(1), None);
        // Owner 2 ends its region, so both regions end now.
        assert_eq!(pop(2), Some(0));
        assert_eq!((count(&ONE), count(&OTHER), innermost()), (2, 1, None));
        assert_eq!(pop(2), None);
    }

    #[test]
    fn what_is_too_deep_is_not_measured_and_the_rest_is() {
        static DEEP: Point = Point::new("deep");
        let _one = one_at_a_time();
        let all = DEPTH as u32 + 50;
        for level in 0..all {
            assert_eq!(push(3, |open| open.measure(&DEEP)), Some(level));
        }
        for level in (0..all).rev() {
            assert_eq!(pop(3), Some(level));
        }
        assert_eq!((pop(3), count(&DEEP)), (None, DEPTH as u64));
    }

    #[test]
    fn what_is_forgotten_counts_nothing_and_harms_nobody() {
        static LOST: Point = Point::new("lost");
        static KEPT: Point = Point::new("kept");
        static LAST: Point = Point::new("last");
        let _one = one_at_a_time();
        push(4, |open| open.measure(&KEPT));
        push(5, |open| open.measure(&LOST));
        push(6, |open| open.measure(&LAST));
        assert_eq!(forget(|owner| owner == 5), 1);
        assert_eq!([pop(6), pop(5), pop(4)], [Some(0), None, Some(0)]);
        assert_eq!([&KEPT, &LOST, &LAST].map(count), [1, 0, 1]);
        let [kept, last] = [&KEPT, &LAST].map(|point| point.stats().unwrap());
        assert!(kept.inclusive >= last.inclusive, "{kept:?} {last:?}");
    }

    #[test]
    fn what_waits_for_a_forgotten_one_has_none_of_its_time() {
        static TASK: Point = Point::new("task");
        static HELD: Point = Point::new("held");
        static OTHER: Point = Point::new("other task");
        let _one = one_at_a_time();
        let push = |owner, point| push(owner, |open| open.measure(point));
        // A poll of the task ends, but not the region that it entered. Then another task is polled.
        for polls in 1..=3 {
            push(7, &TASK);
            push(8, &HELD);
            assert_eq!([pop(7), push(9, &OTHER), pop(9)], [Some(0); 3]);
            if polls < 3 {
                assert_eq!([super::forget_inside(7), super::forget_inside(7)], [1, 0]);
            } else {
                assert_eq!(forget(|owner| owner == 8), 1);
            }
            assert_eq!([pop(8), pop(7), innermost().map(|_| 0)], [None; 3]);
            assert_eq!([&TASK, &HELD, &OTHER].map(count), [0, 0, polls]);
        }
    }

    #[test]
    fn suspended_regions_go_on_where_they_stopped() {
        static FIRST: Point = Point::new("first coroutine");
        static SECOND: Point = Point::new("second coroutine");
        let _one = one_at_a_time();
        let [mut first, mut second] = <[Suspended; 2]>::default();
        let push = |owner, point| push(owner, |open| open.measure(point));
        push(10, &FIRST);
        suspend(&mut first);
        // The second coroutine has a region of the same owner as the first, and leaves another
        // region open.
        assert_eq!((innermost(), push(10, &SECOND), pop(10)), (None, Some(0), Some(0)));
        push(11, &SECOND);
        suspend(&mut second);
        resume(&mut first);
        assert_eq!((innermost(), pop(11), pop(10)), (Some(10), None, Some(0)));
        assert_eq!((second.abandon(), innermost()), (1, None));
        resume(&mut second);
        assert_eq!((pop(11), [&FIRST, &SECOND].map(count)), (None, [1, 1]));
    }

    #[test]
    fn a_mark_counts() {
        static MARKED: Point = Point::new("marked");
        let _one = one_at_a_time();
        mark(|open| open.measure(&MARKED));
        assert_eq!((pop(0), count(&MARKED)), (None, 1));
    }
}
