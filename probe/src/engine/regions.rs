//! What a context keeps: the regions that were begun by hand (a guard keeps its
//! own), the parts of latched regions, and, while it is not current, its clock.
//!
//! All words are the thread's on which the context is current; they are atomic
//! because a signal handler of that thread may come in between.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};

use super::region::{Notes, RegionStart};
use crate::point::Point;

/// Covered ticks of a context in which no region has ended.
pub(super) const NOTHING_COVERED: u64 = 1;

/// Regions begun by hand that can be open in one context.
const REGIONS: usize = 32;
/// Points whose latched parts can wait in one context.
const LATCHED: usize = 8;
/// Open regions that a context which is put aside keeps, to show them again.
const SHOWN: usize = REGIONS;

/// Regions that were begun by hand, and latched parts.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Regions {
    pub(super) slots: [Slot; REGIONS],
    pub(super) open: AtomicU64,
    waiting: AtomicU64,
    latched: [Latched; LATCHED],
    /// What the thread holds while the context is current.
    pub(super) paused: Paused,
}

/// A context that the program names.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) number: AtomicU32,
    pub(super) regions: Regions,
    /// Kernel id of the thread whose it is, 0 for none, or a number that is no thread's.
    pub(super) held_by: AtomicU32,
    /// Whether it has put something aside, as an interrupt does.
    pub(super) entered: AtomicBool,
    /// That: null for the thread's own context.
    pub(super) interrupted: AtomicPtr<Shared>,
    /// The process that it last ran in: a forked child has copies.
    pub(super) process: AtomicPtr<c_void>,
    /// Lets go of it: another copy of pfp may have another allocator.
    pub(super) drop: unsafe extern "C" fn(*const Shared),
}

/// A region that was begun by hand.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) point: AtomicPtr<Point>,
    /// The tag of a guard that has it: its [`super::thread::Thread::place`], and whether its point
    /// is fenced. Without [`super::thread::IS_PLACE`] if it ends on the long way in any case.
    pub(super) place: AtomicU64,
    // As in `RegionStart`.
    pub(super) start: AtomicU64,
    pub(super) covered: AtomicU64,
    off: AtomicU64,
    switches: AtomicU64,
    pub(super) inclusive: AtomicU64,
    /// For a point with amounts, the control word at the begin. For others, while the context is
    /// not current, what was added to the inclusive total since the region began.
    pub(super) kept: AtomicU64,
}

/// What was measured of a point and waits for more.
#[repr(C)]
#[derive(Debug)]
struct Latched {
    point: AtomicPtr<Point>,
    own: AtomicU64,
    inclusive: AtomicU64,
    off: AtomicU64,
    switches: AtomicU64,
    /// Of a point with amounts.
    amounts: [AtomicU64; MAX_AMOUNTS],
}

/// A context that is not current.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Paused {
    /// What its clock reads.
    pub(super) clock: AtomicU64,
    /// Switches that it has seen.
    pub(super) switches: AtomicU64,
    /// As [`super::thread::Thread::covered`].
    pub(super) covered: AtomicU64,
    pub(super) place: AtomicU64,
    /// The run that the regions note, if the context is a thread's own.
    pub(super) run: AtomicU64,
    /// What its outermost regions show.
    pub(super) open: [[AtomicU64; 3]; SHOWN],
    /// Its [`crate::mark`]s, as it may have been interrupted in the middle of something.
    pub(super) at_work: AtomicU64,
    pub(super) refreshing: AtomicU64,
}

/// A latched part, or the sum of several.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
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
            open: zero(),
            slots: [const {
                Slot {
                    point: AtomicPtr::new(ptr::null_mut()),
                    place: zero(),
                    start: zero(),
                    covered: zero(),
                    off: zero(),
                    switches: zero(),
                    inclusive: zero(),
                    kept: zero(),
                }
            }; REGIONS],
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
                clock: zero(),
                switches: zero(),
                covered: AtomicU64::new(NOTHING_COVERED),
                place: zero(),
                run: zero(),
                open: [const { [const { AtomicU64::new(0) }; 3] }; SHOWN],
                at_work: zero(),
                refreshing: zero(),
            },
        }
    }

    /// Forgets everything: a new thread takes the state over.
    pub(crate) fn clear(&self) {
        self.open.store(0, Relaxed);
        self.waiting.store(0, Relaxed);
    }

    #[inline(always)]
    pub(super) fn open(&self) -> usize {
        (self.open.load(Relaxed) as usize).min(REGIONS)
    }

    /// Place of the innermost open region of a point.
    #[inline(always)]
    pub(super) fn innermost(&self, point: &Point) -> Option<usize> {
        (0..self.open()).rev().find(|&at| self.slots[at].has(point))
    }

    /// Index of the open region of a point that began at `start`.
    pub(super) fn begun_at(&self, point: &Point, start: u64) -> Option<usize> {
        (0..self.open()).rev().find(|&at| self.slots[at].is_of(point, start))
    }

    /// Whether a point is open around the region of a slot.
    pub(super) fn is_around(&self, at: usize, point: &Point) -> bool {
        self.slots[..at].iter().any(|slot| slot.has(point))
    }

    /// The slots of open regions, and the next one: a begin that was interrupted may have filled it.
    pub(super) fn noted(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().take(self.open() + 1)
    }

    /// Gives up the regions from a place on.
    pub(super) fn give_up(&self, from: usize) {
        self.open.store(from as u64, Relaxed);
    }

    /// Adds to what waits for a point, its amounts too if it has any; false if there
    /// is no room.
    pub(super) fn latch(&self, point: &'static Point, sum: Sum, amounts: Option<&Amounts>) -> bool {
        let waiting = self.waiting.load(Relaxed) as usize;
        let of = |point: *const Point| {
            move |&at: &usize| ptr::eq(self.latched[at].point.load(Relaxed), point)
        };
        let known = (0..waiting).find(of(point));
        let at = known.or_else(|| (0..waiting).find(of(ptr::null()))).unwrap_or(waiting);
        let Some(latched) = self.latched.get(at) else { return false };
        let before = if known.is_some() { latched.sum() } else { Sum::default() };
        latched.own.store(before.own.wrapping_add(sum.own), Relaxed);
        latched.inclusive.store(before.inclusive.wrapping_add(sum.inclusive), Relaxed);
        latched.off.store(before.off.wrapping_add(sum.off), Relaxed);
        latched.switches.store(before.switches.wrapping_add(sum.switches), Relaxed);
        for (at, kept) in latched.amounts.iter().enumerate() {
            let before = if known.is_some() { kept.load(Relaxed) } else { 0 };
            let more = amounts.map_or(0, |amounts| amounts[at]);
            kept.store(before.saturating_add(more), Relaxed);
        }
        // Last, so that who jumps out before has left nothing for another point.
        latched.point.store(ptr::from_ref(point).cast_mut(), Relaxed);
        self.waiting.store(waiting.max(at + 1) as u64, Relaxed);
        true
    }

    /// Takes out what waits for a point, and adds the amounts of that to some.
    pub(super) fn unlatch(&self, point: &Point, amounts: Option<&mut Amounts>) -> Sum {
        let waiting = self.waiting.load(Relaxed) as usize;
        let Some(at) = (0..waiting.min(LATCHED))
            .find(|&at| ptr::eq(self.latched[at].point.load(Relaxed), point))
        else {
            return Sum::default();
        };
        let sum = self.latched[at].sum();
        if let Some(amounts) = amounts {
            for (amount, kept) in amounts.iter_mut().zip(&self.latched[at].amounts) {
                *amount = amount.saturating_add(kept.load(Relaxed));
            }
        }
        // One store takes it out, so that a jump out of a handler loses none of another's.
        self.latched[at].point.store(ptr::null_mut(), Relaxed);
        let is_free = |at: &usize| self.latched[*at].point.load(Relaxed).is_null();
        let free = (0..waiting.min(LATCHED)).rev().take_while(is_free).count();
        self.waiting.store((waiting - free) as u64, Relaxed);
        sum
    }

    /// How many latched parts wait.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }
}

impl Sum {
    #[inline]
    pub(super) fn add(&mut self, more: Self) {
        self.own = self.own.wrapping_add(more.own);
        self.inclusive = self.inclusive.wrapping_add(more.inclusive);
        self.off = self.off.wrapping_add(more.off);
        self.switches = self.switches.wrapping_add(more.switches);
    }
}

impl Latched {
    fn sum(&self) -> Sum {
        Sum {
            own: self.own.load(Relaxed),
            inclusive: self.inclusive.load(Relaxed),
            off: self.off.load(Relaxed),
            switches: self.switches.load(Relaxed),
        }
    }
}

impl Slot {
    /// Whether it has a region of a point.
    #[inline(always)]
    pub(super) fn has(&self, point: &Point) -> bool {
        ptr::eq(self.point.load(Relaxed), point)
    }

    /// Whether it still has the region that was begun then.
    pub(super) fn is_of(&self, point: &Point, start: u64) -> bool {
        self.has(point) && self.start.load(Relaxed) == start
    }

    #[inline]
    pub(super) fn begun(&self) -> RegionStart {
        RegionStart {
            start: self.start.load(Relaxed),
            covered: self.covered.load(Relaxed),
            off: self.off.load(Relaxed),
            switches: self.switches.load(Relaxed),
            inclusive: self.inclusive.load(Relaxed),
        }
    }

    /// What was added to the inclusive total of its point since the region began; now it is that.
    pub(super) fn added(&self, total: u64) -> u64 {
        total.wrapping_sub(self.inclusive.load(Relaxed))
    }

    /// Puts a region into it.
    pub(super) fn fill(&self, point: &'static Point, place: u64, begun: &RegionStart) {
        let &RegionStart { start, covered, off, switches, inclusive } = begun;
        let mut slot = self;
        slot.point(point);
        slot.covered(covered);
        slot.clock(off, switches);
        slot.inclusive(inclusive);
        slot.whole(start, place);
    }

    /// Leaves out ticks that were covered since it began but not inside, and ticks that were added
    /// to the inclusive total of its point.
    pub(super) fn leave_out(&self, covered: u64, added: u64) {
        self.covered.store(self.covered.load(Relaxed).wrapping_add(covered), Relaxed);
        self.inclusive.store(self.inclusive.load(Relaxed).wrapping_add(added), Relaxed);
    }
}

impl Notes for &Slot {
    #[inline(always)]
    fn point(&mut self, point: &'static Point) {
        self.point.store(ptr::from_ref(point).cast_mut(), Relaxed);
    }

    #[inline(always)]
    fn covered(&mut self, ticks: u64) {
        self.covered.store(ticks, Relaxed);
    }

    #[inline(always)]
    fn clock(&mut self, off: u64, switches: u64) {
        self.off.store(off, Relaxed);
        self.switches.store(switches, Relaxed);
    }

    #[inline(always)]
    fn inclusive(&mut self, ticks: u64) {
        self.inclusive.store(ticks, Relaxed);
    }

    #[inline(always)]
    fn whole(&mut self, start: u64, tag: u64) {
        self.start.store(start, Relaxed);
        self.place.store(tag, Relaxed);
    }
}
