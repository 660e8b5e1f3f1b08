//! What all copies of pfp in one process have in common, besides the clock.

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::region::CONTEXT;

/// What all copies of pfp in one process have in common.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Common {
    /// Contexts made so far; 0 stands for a thread's own.
    contexts: AtomicU32,
    /// Times that a context was resumed, by any thread. A thread's clock notes it, so
    /// that a region knows whether its context has run without a break.
    runs: AtomicU64,
    /// Whether [`crate::set_enabled`] has switched everything off.
    pub(super) paused: AtomicBool,
    /// The highest number of a point, in this process or its parents; 0 while there is none.
    last_point: AtomicU32,
}

/// This copy's own.
pub(super) static OWN: Common = Common {
    contexts: AtomicU32::new(0),
    runs: AtomicU64::new(0),
    paused: AtomicBool::new(false),
    last_point: AtomicU32::new(0),
};
/// The state in force: another copy's, once this one follows that.
static IN_FORCE: AtomicPtr<Common> = AtomicPtr::new((&raw const OWN).cast_mut());

fn common() -> &'static Common {
    // Meets the store in `follow`.
    // SAFETY: in this copy, or in one whose object is not unloaded any more.
    unsafe { &*IN_FORCE.load(Acquire) }
}

/// Uses another copy's from now on.
pub(super) fn follow(common: &'static Common) {
    // Meets the load in `common`.
    IN_FORCE.store(ptr::from_ref(common).cast_mut(), Release);
}

/// A number that no context has yet.
pub(crate) fn next_context() -> u32 {
    loop {
        let number = common().contexts.fetch_add(1, Relaxed).wrapping_add(1);
        // What a place has of it is not 0, which is the thread's own.
        if u64::from(number) & CONTEXT != 0 {
            return number;
        }
    }
}

/// A number that no run of a context has yet.
pub(super) fn next_run() -> u64 {
    common().runs.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Whether everything is switched off.
pub(super) fn paused() -> &'static AtomicBool {
    &common().paused
}

/// Notes the number of a point, for [`last_point`].
pub(super) fn note_point(number: u32) {
    common().last_point.fetch_max(number, Relaxed);
}

/// The highest number of a point, in this process or its parents.
pub(super) fn last_point() -> Option<u32> {
    Some(common().last_point.load(Relaxed)).filter(|&number| number != 0)
}
