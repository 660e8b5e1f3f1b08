//! Readings of the clock for the public types.

use super::{copies, current, owner, prepare};
pub(crate) use crate::clock::calibrate::core_hz;
pub(crate) use crate::clock::counter::{stamp, stamp_and_cpu};
pub(crate) use crate::clock::wall_ns;
use crate::{clock, errno};

/// The kernel's id of the calling thread.
pub(crate) fn thread_id() -> u32 {
    let known = current::thread().filter(|thread| thread.is_alive()).map(|it| it.kernel_id());
    known.unwrap_or_else(owner::tid)
}

/// Implements [`crate::on_cpu_ticks`].
pub(crate) fn on_cpu_ticks() -> Option<u64> {
    let Some(thread) = current::near().filter(|thread| thread.is_alive()) else {
        return on_cpu_ticks_far();
    };
    Some(thread.stamp_beside_after(clock::ticks()).wrapping_sub(thread.clock.off()))
}

#[cold]
#[inline(never)]
fn on_cpu_ticks_far() -> Option<u64> {
    if let Some(leader) = copies::followed() {
        return Some(leader.on_cpu_ticks()).filter(|&ticks| ticks != 0);
    }
    let thread = current::thread().filter(|thread| thread.is_alive()).or_else(prepare::thread)?;
    Some(thread.stamp_beside().wrapping_sub(thread.clock.off()))
}

/// The thread's on-CPU clock, or the counter if the thread has none. `None` only in `none.rs`, the
/// engine of a build without measuring.
pub(crate) fn now() -> Option<u64> {
    Some(on_cpu_ticks().unwrap_or_else(stamp))
}

/// The calling thread's id and its CPU time in nanoseconds; zeros if that cannot be read.
pub(crate) fn cpu_time() -> (u64, u64) {
    match errno::preserve(clock::cpu_time_ns) {
        Some(ns) => (u64::from(owner::tid()), ns),
        None => (0, 0),
    }
}
