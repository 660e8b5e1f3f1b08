//! The state of a context: the stack of its open regions, the latched parts of regions, and, while
//! it is not current, its clock.
//!
//! Only the thread on which the context is current uses these words. They are atomic because a
//! signal handler of that thread may run in between.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};

use super::region::Region;
use super::thread::allocs::AtBegin;
use crate::point::Point;

/// Covered ticks of a context in which no region has ended yet. They are not 0, because 0 means
/// a forked child.
pub(super) const NOTHING_COVERED: u64 = 1;

/// Maximum number of points that can have latched parts in one context.
const LATCHED: usize = 8;
/// The open regions and latched parts of a context.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Regions {
    /// The stack: up to `limit` regions, followed by the amounts of each. Null until a region of
    /// the context begins. A thread's own context has its stack in the thread's pages.
    pub(super) stack: AtomicPtr<Region>,
    pub(super) limit: AtomicU64,
    /// What counting regions store at their begin, one for each level. Null until a region of the
    /// context counts allocations.
    pub(super) allocs: AtomicPtr<AtBegin>,
    waiting: AtomicU64,
    latched: [Latched; LATCHED],
    /// The thread's values for the context, which are stored here while the context is not current.
    pub(super) paused: Paused,
}

/// A context that the program names.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) number: AtomicU32,
    pub(super) regions: Regions,
    /// Kernel id of the thread that holds the context; 0 if the context is free. While the context
    /// is being reset, this is a number that no thread has as its id.
    pub(super) held_by: AtomicU32,
    /// Whether the context was entered as an interrupt of another one.
    pub(super) entered: AtomicBool,
    /// The context that this one has interrupted; null if that is the thread's own context, or if
    /// this one has interrupted no context.
    pub(super) interrupted: AtomicPtr<Shared>,
    /// The process in which the context last ran. A forked child has copies of its parent's
    /// contexts, and recognizes them by this.
    pub(super) process: AtomicPtr<c_void>,
    /// Drops one handle of the context.
    pub(super) drop: unsafe extern "C" fn(*const Shared),
}

/// A latched part of a point: figures of regions that have ended, which are added to the point's
/// next measurement in this context.
#[repr(C)]
#[derive(Debug)]
struct Latched {
    point: AtomicPtr<Point>,
    own: AtomicU64,
    inclusive: AtomicU64,
    off: AtomicU64,
    switches: AtomicU64,
    /// Sums of the regions' amounts; zeros for a point without amounts.
    amounts: [AtomicU64; MAX_AMOUNTS],
}

/// The clock and markers of a context that is not current.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Paused {
    /// Whether the fields below are valid. A handler of a fault that runs while contexts are
    /// switched may suspend the next context before that context has resumed. The fields are still
    /// valid then, so the handler does not store them again.
    pub(super) is_paused: AtomicBool,
    /// The reading of the context's clock when it was suspended.
    pub(super) clock: AtomicU64,
    /// Switches that the context's clock has noticed.
    pub(super) switches: AtomicU64,
    /// The covered ticks, as in [`super::thread::Thread::covered`].
    pub(super) covered: AtomicU64,
    pub(super) place: AtomicU64,
    /// The number of the run in the tags of its regions, if the context is a thread's own.
    pub(super) run: AtomicU64,
    /// The context's in-progress [markers](crate::marker): it may have been suspended in an end, a
    /// fold, or a refresh of the clock.
    pub(super) at_work: AtomicU64,
    pub(super) refreshing: AtomicU64,
}

/// The ticks and switches of one latched part, or the sum of several.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PartSum {
    pub(super) own: u64,
    pub(super) inclusive: u64,
    pub(super) off: u64,
    pub(super) switches: u64,
}

impl Regions {
    pub(super) const fn new() -> Self {
        const fn zero() -> AtomicU64 {
            AtomicU64::new(0)
        }
        Self {
            stack: AtomicPtr::new(ptr::null_mut()),
            limit: zero(),
            allocs: AtomicPtr::new(ptr::null_mut()),
            waiting: zero(),
            latched: [const {
                Latched {
                    point: AtomicPtr::new(ptr::null_mut()),
                    own: zero(),
                    inclusive: zero(),
                    off: zero(),
                    switches: zero(),
                    amounts: [const { AtomicU64::new(0) }; MAX_AMOUNTS],
                }
            }; LATCHED],
            paused: Paused {
                is_paused: AtomicBool::new(true),
                clock: zero(),
                switches: zero(),
                covered: AtomicU64::new(NOTHING_COVERED),
                place: zero(),
                run: zero(),
                at_work: zero(),
                refreshing: zero(),
            },
        }
    }

    /// Drops the latched parts, because a new thread takes over the state.
    pub(crate) fn clear(&self) {
        self.waiting.store(0, Relaxed);
    }

    /// Adds a part and its amounts to the latched parts of a point; false if there is no room.
    pub(super) fn latch(
        &self,
        point: &'static Point,
        sum: PartSum,
        amounts: Option<&Amounts>,
    ) -> bool {
        let waiting = self.waiting.load(Relaxed) as usize;
        let of = |point: *const Point| {
            move |&at: &usize| ptr::eq(self.latched[at].point.load(Relaxed), point)
        };
        let known = (0..waiting).find(of(point));
        let at = known.or_else(|| (0..waiting).find(of(ptr::null()))).unwrap_or(waiting);
        let Some(latched) = self.latched.get(at) else { return false };
        let before = if known.is_some() { latched.sum() } else { PartSum::default() };
        latched.own.store(before.own.wrapping_add(sum.own), Relaxed);
        latched.inclusive.store(before.inclusive.wrapping_add(sum.inclusive), Relaxed);
        latched.off.store(before.off.wrapping_add(sum.off), Relaxed);
        latched.switches.store(before.switches.wrapping_add(sum.switches), Relaxed);
        for (at, kept) in latched.amounts.iter().enumerate() {
            let before = if known.is_some() { kept.load(Relaxed) } else { 0 };
            let more = amounts.map_or(0, |amounts| amounts[at]);
            kept.store(before.saturating_add(more), Relaxed);
        }
        // The point is stored last. So if a signal handler jumps out before this, the figures do
        // not count for another point.
        latched.point.store(ptr::from_ref(point).cast_mut(), Relaxed);
        self.waiting.store(waiting.max(at + 1) as u64, Relaxed);
        true
    }

    /// Removes the latched parts of a point and returns their sum. Adds their amounts to `amounts`,
    /// if they have any.
    pub(super) fn unlatch(&self, point: &Point, amounts: &mut Option<Amounts>) -> PartSum {
        let waiting = self.waiting.load(Relaxed) as usize;
        let Some(at) = (0..waiting.min(LATCHED))
            .find(|&at| ptr::eq(self.latched[at].point.load(Relaxed), point))
        else {
            return PartSum::default();
        };
        let sum = self.latched[at].sum();
        let kept = self.latched[at].amounts.each_ref().map(|kept| kept.load(Relaxed));
        if kept != Amounts::default() {
            let sums = amounts.get_or_insert_default();
            sums.iter_mut().zip(kept).for_each(|(sum, kept)| *sum = sum.saturating_add(kept));
        }
        // One store removes the parts, so that a jump out of a handler loses no other point's
        // parts.
        self.latched[at].point.store(ptr::null_mut(), Relaxed);
        let is_free = |at: &usize| self.latched[*at].point.load(Relaxed).is_null();
        let free = (0..waiting.min(LATCHED)).rev().take_while(is_free).count();
        self.waiting.store((waiting - free) as u64, Relaxed);
        sum
    }

    /// Number of slots that may have latched parts; 0 if none has.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }
}

impl PartSum {
    #[inline]
    pub(super) fn add(&mut self, more: Self) {
        self.own = self.own.wrapping_add(more.own);
        self.inclusive = self.inclusive.wrapping_add(more.inclusive);
        self.off = self.off.wrapping_add(more.off);
        self.switches = self.switches.wrapping_add(more.switches);
    }
}

impl Latched {
    fn sum(&self) -> PartSum {
        PartSum {
            own: self.own.load(Relaxed),
            inclusive: self.inclusive.load(Relaxed),
            off: self.off.load(Relaxed),
            switches: self.switches.load(Relaxed),
        }
    }
}
