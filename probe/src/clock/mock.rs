//! A clock that a test winds by hand, per thread.

use std::cell::Cell;

thread_local! {
    static NOW: Cell<Option<u64>> = const { Cell::new(None) };
    static CPU_NS: Cell<u64> = const { Cell::new(0) };
}

/// One nanosecond of the mock's CPU time is one tick.
pub(crate) fn start() {
    NOW.set(Some(1_000_000));
    CPU_NS.set(1_000_000);
}

/// Lets time pass on the CPU.
pub(crate) fn run(ticks: u64) {
    NOW.set(NOW.get().map(|now| now + ticks));
    CPU_NS.set(CPU_NS.get() + ticks);
}

/// Lets time pass off the CPU.
pub(crate) fn sleep(ticks: u64) {
    NOW.set(NOW.get().map(|now| now + ticks));
}

pub(super) fn is_running() -> bool {
    NOW.get().is_some()
}

pub(super) fn ticks() -> Option<u64> {
    NOW.get()
}

pub(super) fn cpu_time_ns() -> Option<u64> {
    NOW.get().map(|_| CPU_NS.get())
}
