//! The calling thread's lane.

use super::local;
use super::thread::Thread;

/// State of the calling thread's lane, which may be a wiped copy of a parent's. `None` before the
/// thread's first region.
#[inline(always)]
pub(crate) fn thread() -> Option<&'static Thread> {
    near().or_else(far)
}

/// [`thread`] by two loads, for the fast paths of begins and ends. Also `None` if the state is only
/// found by a call, or the processor's counter must not be read: slow paths use [`thread`].
#[inline(always)]
pub(crate) fn near() -> Option<&'static Thread> {
    // SAFETY: null, or the pages of a lane of this process or of the parent it
    // was forked from; those are never unmapped while a thread refers to them.
    unsafe { local::thread().as_ref() }
}

fn far() -> Option<&'static Thread> {
    // SAFETY: null, or the pages of a lane, which are never unmapped while a thread refers to them.
    unsafe { local::find().as_ref() }
}
