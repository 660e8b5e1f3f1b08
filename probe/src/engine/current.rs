//! Finds the state of the calling thread's lane.

use super::local;
use super::thread::Thread;

/// State of the calling thread's lane, which may be a wiped copy of a parent's. `None` before the
/// thread's first region.
#[inline(always)]
pub(crate) fn thread() -> Option<&'static Thread> {
    near().or_else(far)
}

/// [`thread`] by two loads, for the fast paths of begins and ends. Also `None` if the state can
/// only be found by a call, or if the processor's counter must not be read. Slow paths use
/// [`thread`].
#[inline(always)]
pub(crate) fn near() -> Option<&'static Thread> {
    // SAFETY: the pointer is null, or leads to the pages of a lane of this process or of its
    // parent. Those are never unmapped while a thread refers to them.
    unsafe { local::thread().as_ref() }
}

fn far() -> Option<&'static Thread> {
    // SAFETY: the pointer is null, or leads to the pages of a lane, which are never unmapped while
    // a thread refers to them.
    unsafe { local::find().as_ref() }
}
