//! The minimum cost of a measurement, without any library.

use std::hint::black_box;
use std::time::Instant;

use pfp_bench::{Case, case};

use crate::nothing;

/// The first case is the reference for all others.
pub(crate) fn cases() -> [Case; 4] {
    [
        case!("two bare rdtsc", 1, two_rdtsc()),
        case!("two `Instant::now`", 1, two_instants()),
        case!("two `CLOCK_THREAD_CPUTIME_ID`", 1, two_thread_cpu_times()),
        case!("an empty loop", 1, nothing()),
    ]
}

fn two_rdtsc() {
    let first = pfp::ticks();
    nothing();
    black_box(pfp::ticks().wrapping_sub(first));
}

fn two_instants() {
    let first = Instant::now();
    nothing();
    black_box(first.elapsed());
}

fn two_thread_cpu_times() {
    let first = thread_cpu_time();
    nothing();
    black_box(thread_cpu_time().wrapping_sub(first));
}

fn thread_cpu_time() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local variable that the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
