//! Regions of a thread that annotations have begun and not ended.
//!
//! Systems nest them in each domain for itself, so domains may overlap: a region that ends
//! around one of another domain ends when that one does.

use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

use pfp::{Guard, TimedGuard};

use crate::names::{Measured, Named};
use crate::own::Own;

/// Regions that can be open on a thread; one more is not measured, and that is counted.
const DEPTH: usize = 256;

struct Open {
    /// Whose it is: an address.
    owner: usize,
    /// Regions of this owner around it.
    level: u32,
    has_ended: bool,
    has_amount: bool,
    guard: Running,
}

/// A guard, which begins and ends where it stays: a copy would wait for the clock.
union Running {
    plain: ManuallyDrop<Guard>,
    with_amount: ManuallyDrop<TimedGuard>,
}

impl Open {
    fn new(owner: usize, level: u32) -> Self {
        let guard = Running { plain: ManuallyDrop::new(Guard::empty()) };
        Self { owner, level, has_ended: false, has_amount: false, guard }
    }

    #[inline]
    fn begin(&mut self, named: &'static Named, amount: u64) {
        match &named.measured {
            // SAFETY: this one is there, from `new` on.
            Measured::Point(point) => point.measure_in(unsafe { &mut self.guard.plain }),
            Measured::Timed(timed) => {
                self.has_amount = true;
                let guard = ManuallyDrop::new(TimedGuard::empty());
                self.guard = Running { with_amount: guard };
                // SAFETY: it was put there just now.
                timed.measure_in([amount], unsafe { &mut self.guard.with_amount });
            }
        }
    }
}

impl Drop for Open {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: `has_amount` says which one is there, and nobody uses it again.
        unsafe {
            match self.has_amount {
                false => ManuallyDrop::drop(&mut self.guard.plain),
                true => ManuallyDrop::drop(&mut self.guard.with_amount),
            }
        }
    }
}

struct Stack {
    depth: Cell<usize>,
    /// Regions that were begun beyond the depth and not ended.
    beyond: Cell<u32>,
    open: [UnsafeCell<MaybeUninit<Open>>; DEPTH],
}

thread_local! {
    static STACK: Own<Stack> = const { Own::new() };
}

/// Does something with the calling thread's; nothing when it ends.
#[inline]
fn with<R>(work: impl FnOnce(&Stack) -> R) -> Option<R> {
    // SAFETY: of the calling thread, which uses it before it ends.
    let own = STACK.with(|own| unsafe { &*ptr::from_ref(own) });
    own.get(Stack::new).map(work)
}

/// Begins a region of an owner, with an amount if the name has such. The result is how many of
/// this owner are around it; none when the thread ends.
#[inline]
pub(crate) fn push(owner: usize, named: &'static Named, amount: u64) -> Option<u32> {
    with(|stack| {
        let depth = stack.depth.get();
        let level = stack.around(owner).map_or(0, |around| around.level + 1);
        let Some(slot) = stack.open.get(depth) else {
            stack.beyond.set(stack.beyond.get() + 1);
            pfp::c::count_refusal();
            return level + stack.beyond.get() - 1;
        };
        // SAFETY: the slot is the calling thread's, and nothing is in it.
        let open = unsafe { (*slot.get()).write(Open::new(owner, level)) };
        stack.depth.set(depth + 1);
        open.begin(named, amount);
        level
    })
}

/// Ends the owner's last region. The result is how many of this owner were around it; none if
/// it has no region.
#[inline]
pub(crate) fn pop(owner: usize) -> Option<u32> {
    with(|stack| {
        let beyond = stack.beyond.get();
        if beyond > 0 {
            stack.beyond.set(beyond - 1);
            return Some(stack.around(owner).map_or(0, |around| around.level + 1) + beyond - 1);
        }
        let open = stack.around(owner)?;
        open.has_ended = true;
        let level = open.level;
        while let Some(last) = stack.depth.get().checked_sub(1) {
            // SAFETY: below the depth, and the calling thread's.
            let open = unsafe { &mut *stack.open[last].get() };
            // SAFETY: as above: it is filled.
            if !unsafe { open.assume_init_ref() }.has_ended {
                break;
            }
            // First: what a handler begins as this ends comes behind it.
            // SAFETY: as above, and nobody reads it again.
            unsafe { open.assume_init_drop() };
            stack.depth.set(last);
        }
        Some(level)
    })
    .flatten()
}

/// A region that ends as it begins: it counts, and has an amount if the name has such.
pub(crate) fn mark(named: &'static Named, amount: u64) {
    Open::new(0, 0).begin(named, amount);
}

impl Stack {
    fn new() -> Box<Self> {
        Box::new(Self {
            depth: Cell::new(0),
            beyond: Cell::new(0),
            open: [const { UnsafeCell::new(MaybeUninit::uninit()) }; DEPTH],
        })
    }

    /// The owner's last region that has not ended.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "one at a time, of the calling thread's own")]
    fn around(&self, owner: usize) -> Option<&mut Open> {
        self.open[..self.depth.get()].iter().rev().find_map(|slot| {
            // SAFETY: below the depth: filled, and the calling thread's.
            let open = unsafe { (*slot.get()).assume_init_mut() };
            (open.owner == owner && !open.has_ended).then_some(open)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::{Domain, Kind, Text, named};

    fn point(name: &str) -> &'static Named {
        crate::get_ready();
        named(Domain::of("test", "stack"), Text::of(name.as_bytes()), Kind::Region).unwrap()
    }

    fn count(named: &'static Named) -> u64 {
        let Measured::Point(point) = &named.measured else { unreachable!("it has no amount") };
        point.stats().map_or(0, |stats| stats.count)
    }

    #[test]
    fn owners_nest_for_themselves_and_may_overlap() {
        let [one, other] = ["one", "other"].map(point);
        assert_eq!(pop(1), None);
        assert_eq!([push(1, one, 0), push(2, other, 0), push(1, one, 0)], [0, 0, 1].map(Some));
        // The inner one of the first owner, then its outer one, which the other is still in.
        assert_eq!([pop(1), pop(1)], [1, 0].map(Some));
        assert_eq!((count(one), count(other)), (1, 0));
        assert_eq!(pop(1), None);
        // Both end now.
        assert_eq!(pop(2), Some(0));
        assert_eq!((count(one), count(other)), (2, 1));
        assert_eq!(pop(2), None);
    }

    #[test]
    fn what_is_too_deep_is_not_measured_and_the_rest_is() {
        let deep = point("deep");
        let all = DEPTH as u32 + 50;
        for level in 0..all {
            assert_eq!(push(3, deep, 0), Some(level));
        }
        for level in (0..all).rev() {
            assert_eq!(pop(3), Some(level));
        }
        assert_eq!((pop(3), count(deep)), (None, DEPTH as u64));
    }

    #[test]
    fn a_mark_counts() {
        let marked = point("marked");
        mark(marked, 0);
        assert_eq!((pop(0), count(marked)), (None, 1));
    }
}
