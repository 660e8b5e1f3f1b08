//! How a point is entered into the process's table and list.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pfp_shm_layout::control::Control;
use pfp_shm_layout::ring::POINT_SHIFT;

use super::facts::REFUSED;
use super::lease::NotAcquired;
use super::process::Process;
use super::process::entries::NotEntered;
use super::state::{State, UNLISTED};
use super::{cold, common};
use crate::point::Point;

/// The points of this process, a list through [`State::next`].
static POINTS: AtomicPtr<State> = AtomicPtr::new(ptr::null_mut());

/// The inherited points that a forked child has not entered into its table yet. There is one
/// position in the list for points, and one for tuples, which follow their metered points. A
/// position is null if nothing is left.
static INHERITED: [AtomicPtr<State>; 2] = [const { AtomicPtr::new(ptr::null_mut()) }; 2];

/// Number of points that are entered in one section, which delays signals by some 30 us.
const AT_ONCE: usize = 64;

/// Prepares a new process to enter the points of the parent that it was forked from.
pub(super) fn inherit() {
    let first = POINTS.load(Acquire);
    INHERITED.iter().for_each(|rest| rest.store(first, Release));
}

/// Enters some of the points that this process has inherited. They keep their numbers. False if
/// nothing is left. Regions of a point that is not entered yet are measured all the same; only
/// viewers do not see the point yet.
pub(super) fn enter_inherited(process: &'static Process) -> bool {
    let is_left = |rest: &&AtomicPtr<State>| !rest.load(Relaxed).is_null();
    let Some(rest) = INHERITED.iter().find(is_left) else { return false };
    let are_tuples = ptr::eq(rest, &raw const INHERITED[1]);
    cold::section(|| {
        // Pairs with the stores here and in `inherit`.
        let first = rest.load(Acquire);
        let mut points = from(first);
        let some = points.by_ref().take(AT_ONCE);
        some.filter(|point| point.is_tuple() == are_tuples)
            .for_each(|point| point.enter_again(process));
        let next = points.next().map_or(ptr::null(), |point| &raw const point.state);
        // The exchange fails if another thread has entered these points, too.
        let _ = rest.compare_exchange(first, next.cast_mut(), Release, Relaxed);
    });
    true
}

/// All points of this process.
pub(super) fn all() -> impl Iterator<Item = &'static Point> {
    from(POINTS.load(Acquire))
}

/// A point of the list, and all points after it.
fn from(first: *mut State) -> impl Iterator<Item = &'static Point> {
    // SAFETY: the list holds only statics, each of which consists of its state; a point's link is
    // set before the point is published in the list.
    let at = |point: *mut State| unsafe { point.cast::<Point>().as_ref() };
    std::iter::successors(at(first), move |point| at(point.state.next.load(Acquire)))
}

/// The program's own points in the list.
pub(crate) fn listed() -> impl Iterator<Item = &'static Point> {
    all().filter(|point| point.is_listed())
}

impl Point {
    /// Enters the point, unless another thread has entered it. False if this is not possible now.
    /// `tid` is the calling thread's kernel id.
    pub(super) fn register_under_lease(&'static self, process: &'static Process, tid: u32) -> bool {
        // A thread that has used up its budget for waiting registers the point, too. Then one of
        // the two reserved numbers stays unused.
        let _lease = match self.state.registering.acquire_as(tid) {
            Ok(lease) => Some(lease),
            Err(NotAcquired::Done) => return true,
            Err(NotAcquired::HeldByOther) => None,
            Err(NotAcquired::HeldByCaller) => return false,
        };
        let found = self.state.control.load(Relaxed);
        let entered = self.enter(process, None);
        // If memory runs out, the next begin tries again, and this one is counted as missed. In a
        // child that was forked in between, this registration has no effect.
        if matches!(entered, Err(NotEntered::NoMemory)) || !self.lead_to(process, entered, found) {
            return false;
        }
        self.publish();
        self.state.registering.set_done();
        true
    }

    /// Enters a registered point into the table of a forked child.
    fn enter_again(&'static self, process: &'static Process) {
        // The point's word still has the parent's value, which the new entry inherits. A point that
        // the parent refused has no word, so it is entered like a new point.
        let found = self.state.control.load(Relaxed);
        let refused = ptr::eq(found, &raw const REFUSED);
        let entered = self.enter(process, (!refused).then(|| self.control()));
        if let (Err(_), false, Some((metered, _))) = (&entered, refused, self.tuple_of()) {
            metered.point().refuse();
        }
        self.lead_to(process, entered, found);
    }

    pub(super) fn enter(
        &'static self,
        process: &'static Process,
        inherited: Option<Control>,
    ) -> Result<&'static AtomicU64, NotEntered> {
        match self.tuple_of() {
            None => process.enter(self, inherited),
            Some((metered, place)) => metered.enter_tuple(process, place),
        }
    }

    /// Makes the point's pointer lead to its word, or to the word of refused points. A refusal
    /// replaces only the pointer `found`, because another thread may have entered the point since
    /// `found` was read. False in a child that was forked in between.
    pub(super) fn lead_to(
        &self,
        process: &'static Process,
        entered: Result<&'static AtomicU64, NotEntered>,
        found: *mut AtomicU64,
    ) -> bool {
        if !process.is_current() {
            return false;
        }
        let control = &self.state.control;
        match entered {
            Ok(word) => control.store(ptr::from_ref(word).cast_mut(), Release),
            Err(_) => {
                let refused = (&raw const REFUSED).cast_mut();
                let _ = control.compare_exchange(found, refused, Release, Relaxed);
            }
        }
        self.lead_follower();
        true
    }

    /// Stores the pointer to this point's control word in a follower's point, too, if this point
    /// was declared for one.
    pub(super) fn lead_follower(&self) {
        let other = self.state.other.load(Acquire).cast::<AtomicPtr<AtomicU64>>();
        // SAFETY: the pointer is null, or leads to part of a static of an object that is not
        // unloaded.
        let Some(other) = (unsafe { other.as_ref() }) else { return };
        let mut word = self.state.control.load(Acquire);
        // If another thread changes the pointer in between, the new pointer is stored, too.
        for _ in 0..2 {
            other.store(word, Release);
            match self.state.control.load(Acquire) {
                same if same == word => return,
                other => word = other,
            }
        }
    }

    /// Gives the point the reserved number, unless another thread has given it one. Returns the
    /// point's number.
    pub(crate) fn decide_number(&self, reserved: u32) -> u32 {
        common::note_point(reserved);
        let offset = reserved << POINT_SHIFT;
        match self.state.offset.compare_exchange(0, offset, Relaxed, Relaxed) {
            Ok(_) => reserved,
            Err(found) => found >> POINT_SHIFT,
        }
    }

    /// Links the point into the process's list, if it is not there. Two threads may do this at
    /// once, if one has taken the lease over from the other.
    ///
    /// Takes one step for each point that was linked since the call began, however long the list
    /// is.
    pub(super) fn publish(&'static self) {
        let me = (&raw const self.state).cast_mut();
        loop {
            let next = self.state.next.load(Acquire);
            // Read before the list is searched: another thread can link the point in front of
            // `next` only as long as `next` is the head.
            let head = POINTS.load(Acquire);
            // `next` is in the list already, so a linked point is in front of it.
            let is_linked = next != UNLISTED
                && from(head)
                    .take_while(|point| !ptr::eq(&raw const point.state, next))
                    .any(|point| ptr::eq(point, self));
            if is_linked {
                return;
            }
            if next == head || self.state.next.compare_exchange(next, head, AcqRel, Relaxed).is_ok()
            {
                let linked = POINTS.compare_exchange(head, me, Release, Relaxed);
                if linked.is_ok() {
                    return;
                }
            }
        }
    }
}
