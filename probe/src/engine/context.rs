//! Contexts that the program names: execution objects of its own, such as the
//! tasks of a user-level scheduler.
//!
//! While a context is put aside its clock does not run: when it resumes, on
//! whatever thread, the clock's offset is set so that it reads on from where it
//! stopped. So a switch by the kernel and a switch by the program's own scheduler
//! are one mechanism.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::regions::Regions;
use super::thread::{self, LEVELS, SALT, SALTS, Thread};
use crate::clock::ticks;

/// A context that the program names.
#[derive(Debug)]
pub(crate) struct Shared {
    number: AtomicU32,
    pub(super) regions: Regions,
    /// Kernel id of the thread on which it is current, 0 for none.
    current_on: AtomicU32,
    /// The context that an interrupt put aside, for [`leave`].
    interrupted: AtomicPtr<Shared>,
}

/// Contexts made so far; 0 stands for a thread's own.
static CONTEXTS: AtomicU32 = AtomicU32::new(0);

impl Shared {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            number: AtomicU32::new(next_number()),
            regions: Regions::new(),
            current_on: AtomicU32::new(0),
            interrupted: AtomicPtr::default(),
        })
    }

    pub(crate) fn number(&self) -> u32 {
        self.number.load(Relaxed)
    }

    /// Whether it is current on the calling thread.
    pub(crate) fn is_current(&self) -> bool {
        thread::current()
            .is_some_and(|thread| thread.is_alive() && ptr::eq(thread.current.load(Relaxed), self))
    }

    /// Makes it the context of another execution object: nothing is open in it.
    /// False if it is current.
    pub(crate) fn renew(&self) -> bool {
        // Meets `Release` in `put_aside`, and taken so that no thread makes it
        // current meanwhile.
        if self.current_on.compare_exchange(0, u32::MAX, Acquire, Relaxed).is_err() {
            return false;
        }
        self.number.store(next_number(), Relaxed);
        self.regions.clear();
        for word in [
            &self.regions.paused.clock,
            &self.regions.paused.switches,
            &self.regions.paused.child,
            &self.regions.paused.place,
        ] {
            word.store(0, Relaxed);
        }
        // Meets the exchange in `switch`.
        self.current_on.store(0, Release);
        true
    }
}

fn next_number() -> u32 {
    CONTEXTS.fetch_add(1, Relaxed).wrapping_add(1).max(1)
}

/// Puts the thread's current context aside and makes another one current; false
/// if that one is current somewhere else.
pub(crate) fn switch(to: Option<&Arc<Shared>>) -> bool {
    let Some(thread) = thread::get() else { return false };
    let from = thread.current.load(Relaxed);
    if let Some(to) = to {
        if ptr::eq(from, Arc::as_ptr(to)) {
            return true;
        }
        // Meets `Release` in `put_aside`: what another thread left in it.
        if to.current_on.compare_exchange(0, thread::tid(), AcqRel, Acquire).is_err() {
            thread.count(|tally| &tally.mismatched);
            return false;
        }
    } else if from.is_null() {
        return true;
    }
    let now = thread.stamp();
    let to = to.map_or(ptr::null(), |to| Arc::into_raw(Arc::clone(to)));
    put_aside(thread, now);
    thread.current.store(to.cast_mut(), Relaxed);
    // SAFETY: null, or just made from an `Arc` that stays counted while it is
    // current.
    let number = unsafe { to.as_ref() }.map_or(0, |context| context.number());
    thread.context.store(u64::from(number) << 32, Relaxed);
    let regions = thread.regions();
    thread.clock.set_off(now.wrapping_sub(regions.paused.clock.load(Relaxed)));
    thread.clock.set_switches(regions.paused.switches.load(Relaxed));
    thread.child.store(regions.paused.child.load(Relaxed), Relaxed);
    let salt = thread.place.load(Relaxed).wrapping_add(SALT) & SALTS;
    thread.place.store(salt, Relaxed);
    thread.set_level(regions.paused.place.load(Relaxed));
    thread.set_waiting(regions.detour());
    true
}

fn put_aside(thread: &Thread, now: u64) {
    let regions = thread.regions();
    regions.paused.clock.store(now.wrapping_sub(thread.clock.off()), Relaxed);
    regions.paused.switches.store(thread.clock.switches(), Relaxed);
    regions.paused.child.store(thread.child.load(Relaxed), Relaxed);
    regions.paused.place.store(thread.place.load(Relaxed) & LEVELS, Relaxed);
    let from = thread.current.swap(ptr::null_mut(), Relaxed);
    if !from.is_null() {
        // SAFETY: `switch` has made the pointer from an `Arc` and left it
        // counted.
        let from = unsafe { Arc::from_raw(from) };
        from.current_on.store(0, Release);
    }
}

/// Puts the current context aside for an interrupt's; [`leave`] resumes it.
pub(crate) fn enter(to: &Arc<Shared>) -> bool {
    let Some(thread) = thread::get() else { return false };
    let from = thread.current.load(Relaxed);
    // An interrupt inside itself would forget what the outer one interrupted.
    if ptr::eq(from, Arc::as_ptr(to)) {
        thread.count(|tally| &tally.mismatched);
        return false;
    }
    if !from.is_null() {
        // SAFETY: it is current, so it is alive; the count taken here is given
        // back by `leave`.
        unsafe { Arc::increment_strong_count(from) };
    }
    let entered = switch(Some(to));
    if entered {
        to.interrupted.store(from, Relaxed);
    } else if !from.is_null() {
        // SAFETY: taken just above.
        unsafe { Arc::decrement_strong_count(from) };
    }
    entered
}

/// Resumes what [`enter`] put aside; false if the context is not current here.
pub(crate) fn leave(from: &Arc<Shared>) -> bool {
    let interrupted = from.interrupted.swap(ptr::null_mut(), Relaxed);
    // SAFETY: `enter` took a count for this pointer.
    let interrupted = (!interrupted.is_null()).then(|| unsafe { Arc::from_raw(interrupted) });
    if !from.is_current() {
        count_mismatch();
        return false;
    }
    switch(interrupted.as_ref())
}

/// Counts a hook that does not fit what is current on the calling thread.
pub(crate) fn count_mismatch() {
    if let Some(thread) = thread::get() {
        thread.count(|tally| &tally.mismatched);
    }
}

/// The thread ends: a context that is current on it can go on elsewhere.
pub(crate) fn leave_all(thread: &Thread) {
    if !thread.current.load(Relaxed).is_null() {
        put_aside(thread, ticks());
    }
}
