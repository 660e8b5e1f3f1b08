//! A clock that a test advances by hand, per thread. Other threads read the machine's clocks.

use std::cell::Cell;

use super::{arch, shared, thread};

thread_local! {
    static NOW: Cell<Option<u64>> = const { Cell::new(None) };
    static CPU_NS: Cell<u64> = const { Cell::new(0) };
}

/// Starts the mock clock for the calling thread. One nanosecond of its CPU time is one tick.
pub(crate) fn start() {
    NOW.set(Some(1_000_000));
    CPU_NS.set(1_000_000);
}

/// Advances the clock by time on the CPU.
pub(crate) fn run(ticks: u64) {
    NOW.set(NOW.get().map(|now| now + ticks));
    CPU_NS.set(CPU_NS.get() + ticks);
}

/// Advances the clock by time off the CPU.
pub(crate) fn sleep(ticks: u64) {
    NOW.set(NOW.get().map(|now| now + ticks));
}

pub(crate) fn ticks() -> u64 {
    NOW.get().unwrap_or_else(arch::ticks)
}

pub(crate) fn cpu_time_ns() -> Option<u64> {
    if NOW.get().is_some() { Some(CPU_NS.get()) } else { arch::cpu_time_ns() }
}

pub(crate) fn ticks_per_ns_fixed() -> u64 {
    if NOW.get().is_some() { 1 << 32 } else { shared::ticks_per_ns_fixed() }
}

pub(crate) fn can_be_due(elapsed: u64) -> bool {
    elapsed > stale_after() || NOW.get().is_none()
}

/// With the mock, the limit is so high that the clock never becomes stale. Then only the clock
/// source decides which paths a test takes. A disturbed clock still counts as stale, because bit 63
/// of its last reading is set.
pub(crate) fn stale_after() -> u64 {
    if NOW.get().is_some() { 1 << 62 } else { thread::stale_after() }
}
