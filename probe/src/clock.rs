//! The clock: a thread's on-CPU time at the price of reading the tick counter.
//!
//! A thread's on-CPU clock is `ticks - off`, where `off` is the time that the thread has spent off
//! the CPU. `off` changes only when the kernel switches the thread out, so it is kept in the
//! thread's private memory and updated only after a switch. A **clock source** is a way to notice a
//! switch. The sources form a ladder, best first. Each source has one word that the thread watches:
//!
//! | clock source | the word | noticed because |
//! |---|---|---|
//! | rseq | `rseq_cs` of the thread's restartable-sequence area | the kernel clears it when the thread was switched out or took a signal |
//! | perf | `lock` of a self-monitoring perf event's page | the kernel changes it at every switch |
//! | cputime | a word that never has the expected value | the CPU time is read at every stamp |
//! | wall | a word that always has the expected value | not noticed: figures are wall-clock time |
//!
//! So the hot path is the same for all sources: it reads the counter, loads the word, and compares
//! it with the expected value. The counter is read *before* the word, so that a switch between the
//! two is noticed.
//!
//! If the counter is unreliable, the system's clock replaces it ([`counter`]). Then the word never
//! has the expected value either, so every stamp takes the slow path.

mod arch;
pub(crate) mod calibrate;
pub(crate) mod counter;
mod ladder;
#[cfg(test)]
#[cfg_attr(miri, allow(dead_code, reason = "what winds it asks the system for more"))]
pub(crate) mod mock;
mod perf;
mod rseq;
mod shared;
mod thread;

/// The counter and the CPU time, which a thread's clock reads. Unit tests use [`mock`] instead.
#[cfg(not(test))]
mod source {
    pub(crate) use super::arch::{cpu_time_ns, ticks};
    pub(super) use super::shared::ticks_per_ns_fixed;
    pub(super) use super::thread::can_be_due;
    pub(crate) use super::thread::stale_after;
}
#[cfg(test)]
use mock as source;
pub(crate) use source::stale_after;

pub(crate) use arch::{fenced_ticks, has_thread_pointer, is_forbidden, wall_ns};
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
pub(crate) use arch::{read_by, thread_pointer};
pub(crate) use counter::{follow, ticks_or_stamp};
pub(crate) use ladder::{choose, doubt, look_up};
pub(crate) use shared::kind;
pub(crate) use source::{cpu_time_ns, ticks};
pub(crate) use thread::{Stamps, ThreadClock, switches_between};
