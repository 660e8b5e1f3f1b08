//! Counters that outlive a process's segment: a forked child continues with its parent's values.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::region::CONTEXT;

/// Number of contexts so far. The number 0 is a thread's own context.
static CONTEXTS: AtomicU32 = AtomicU32::new(0);
/// Number of runs so far. A run begins when a thread claims a lane or resumes a context. A tag
/// contains the number of its run, so that an end knows whether the context was suspended since the
/// begin.
static RUNS: AtomicU64 = AtomicU64::new(0);
/// Whether [`crate::set_enabled`] has switched everything off.
pub(super) static PAUSED: AtomicBool = AtomicBool::new(false);
/// The highest number of a point, in this process or its parents; 0 while there is none.
static LAST_POINT: AtomicU32 = AtomicU32::new(0);

/// A number that no other context has.
pub(crate) fn next_context() -> u32 {
    loop {
        let number = CONTEXTS.fetch_add(1, Relaxed).wrapping_add(1);
        // A place contains only some bits of the number. They must not all be 0, because 0 is the
        // thread's own context.
        if u64::from(number) & CONTEXT != 0 {
            return number;
        }
    }
}

/// The number of a new run.
pub(super) fn next_run() -> u64 {
    RUNS.fetch_add(1, Relaxed).wrapping_add(1)
}

/// Records the number of a point, for [`last_point`].
pub(super) fn note_point(number: u32) {
    LAST_POINT.fetch_max(number, Relaxed);
}

/// The highest number of a point, in this process or its parents.
pub(super) fn last_point() -> Option<u32> {
    Some(LAST_POINT.load(Relaxed)).filter(|&number| number != 0)
}
