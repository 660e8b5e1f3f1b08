//! State that the end hook checks before it searches the frames.

use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};

pub(super) use probe::c::functions as top;

/// Distance of the calling thread's [`probe::c::Functions`] from `fs`: 0 until a function is
/// measured, so that the ends of functions return at once; [`UNKNOWN`] if the distance differs
/// between threads.
pub(super) static DISTANCE: AtomicIsize = AtomicIsize::new(0);

/// With this distance, `Functions::sp` is `fs:[0x20]`, which always reads 0, as
/// `probe/src/engine/local.rs` explains. So each end searches the frames.
const UNKNOWN: isize = 0x18;

/// Makes the end hooks search the frames from now on.
pub(super) fn look_further() {
    if DISTANCE.load(Relaxed) == 0 {
        DISTANCE.store(probe::c::functions_distance().unwrap_or(UNKNOWN), Relaxed);
    }
}
