//! Clock readings and records for the timers of `pfp-timing`.

use crate::Point;
use crate::engine::{context, elsewhere, reading};

/// The counter, or the fallback clock, in ticks.
#[must_use]
pub fn stamp() -> u64 {
    reading::stamp()
}

/// [`stamp`], and the CPU on which it was read.
#[must_use]
pub fn stamp_and_cpu() -> (u64, Option<u32>) {
    reading::stamp_and_cpu()
}

/// The wall clock, in nanoseconds.
#[must_use]
pub fn wall_ns() -> u64 {
    reading::wall_ns()
}

/// The kernel's id of the calling thread.
#[must_use]
pub fn thread_id() -> u32 {
    reading::thread_id()
}

/// The calling thread's id and its CPU time in nanoseconds; zeros if the CPU time cannot be read.
#[must_use]
pub fn cpu_time() -> (u64, u64) {
    reading::cpu_time()
}

/// The thread's on-CPU clock. If the thread has none, the counter. `None` if pfp is compiled out.
#[must_use]
pub fn now() -> Option<u64> {
    reading::now()
}

/// The core's actual clock frequency in hertz, computed from the counter's rate. `None` if it
/// cannot be measured.
#[must_use]
pub fn core_hz(ticks_per_second: f64) -> Option<f64> {
    reading::core_hz(ticks_per_second)
}

/// A number for a timer. No context and no other timer has this number.
#[must_use]
pub fn next_number() -> u32 {
    context::next_context()
}

/// Records a measurement of a device, for a point [of a device](of_a_device): `ticks` from `start`
/// on. `number` is the timer's, see [`next_number`].
pub fn record_of_a_device(point: &'static Point, start: u64, ticks: u64, number: u32) {
    elsewhere::record_of_a_device(point, start, ticks, number);
}

/// Marks the point as measuring a device's time, which viewers do not count as a CPU's.
#[cfg(feature = "enabled")]
#[must_use]
pub const fn of_a_device(point: Point) -> Point {
    point.of_a_device()
}

/// Runs `work`, and restores `errno` afterwards.
pub fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(feature = "enabled")]
    return crate::errno::preserve(work);
    #[cfg(not(feature = "enabled"))]
    work()
}

#[cfg(feature = "enabled")]
pub use crate::c::brief_spin;
