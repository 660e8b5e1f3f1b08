//! Regions of a thread that annotations have begun and not ended.
//!
//! Systems nest them in each domain for itself, so domains may overlap: a region that ends
//! around one of another domain ends when that one does.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;

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
    /// Ends it as it is dropped.
    _guard: Running,
}

impl Running {
    #[inline]
    fn begin(named: &'static Named, amount: u64) -> Self {
        match &named.measured {
            Measured::Point(point) => Self::Plain(point.measure()),
            Measured::Timed(timed) => Self::WithAmount(timed.measure([amount])),
        }
    }
}

enum Running {
    Plain(#[expect(dead_code, reason = "it ends as it is dropped")] Guard),
    WithAmount(#[expect(dead_code, reason = "it ends as it is dropped")] TimedGuard),
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
    STACK.try_with(|own| work(own.get(Stack::new))).ok()
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
        let guard = Running::begin(named, amount);
        // SAFETY: the slot is the calling thread's, and nothing is in it.
        unsafe { (*slot.get()).write(Open { owner, level, has_ended: false, _guard: guard }) };
        stack.depth.set(depth + 1);
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
            drop(unsafe { open.assume_init_read() });
            stack.depth.set(last);
        }
        Some(level)
    })
    .flatten()
}

/// A region that ends as it begins: it counts, and has an amount if the name has such.
pub(crate) fn mark(named: &'static Named, amount: u64) {
    drop(Running::begin(named, amount));
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
