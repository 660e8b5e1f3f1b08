//! Numbers of the process that outlive its segment: a forked child goes on with them.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::region::CONTEXT;

/// Contexts made so far. The number 0 means a thread's own.
static CONTEXTS: AtomicU32 = AtomicU32::new(0);
/// Times that a context was resumed, by any thread. A thread's clock notes it, so
/// that a region knows whether its context has run without a break.
static RUNS: AtomicU64 = AtomicU64::new(0);
/// Whether [`crate::set_enabled`] has switched everything off.
pub(super) static PAUSED: AtomicBool = AtomicBool::new(false);
/// The highest number of a point, in this process or its parents; 0 while there is none.
static LAST_POINT: AtomicU32 = AtomicU32::new(0);

/// A number that no context has had yet.
pub(crate) fn next_context() -> u32 {
    loop {
        let number = CONTEXTS.fetch_add(1, Relaxed).wrapping_add(1);
        // What a place has of it is not 0, which is the thread's own.
        if u64::from(number) & CONTEXT != 0 {
            return number;
        }
    }
}

/// A number that no run of a context has had yet.
pub(super) fn next_run() -> u64 {
    RUNS.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Stores the number of a point, for [`last_point`].
pub(super) fn note_point(number: u32) {
    LAST_POINT.fetch_max(number, Relaxed);
}

/// The highest number of a point, in this process or its parents.
pub(super) fn last_point() -> Option<u32> {
    Some(LAST_POINT.load(Relaxed)).filter(|&number| number != 0)
}
