//! What people reach for besides profile points: timers, samples, stamps.
//!
//! Everything here is off the hot path. A name that is given as the program runs
//! becomes a point, once.

#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

/// The examples of the README and of the page in docs/.
#[cfg(all(doctest, feature = "enabled"))]
mod pages {
    #[doc = include_str!("../README.md")]
    struct OfThePackage;
    #[doc = include_str!("../../../docs/timers.md")]
    struct Timers;
}

mod cpu;
#[cfg(all(feature = "enabled", feature = "cuda"))]
mod driver;
#[cfg(feature = "cuda")]
mod gpu;
mod group;
#[cfg(feature = "enabled")]
mod members;
#[cfg(feature = "enabled")]
mod named;
#[cfg(not(feature = "enabled"))]
mod none;
mod sample;
mod stamp;
mod student;

#[cfg(all(not(feature = "enabled"), feature = "cuda"))]
use none::driver;
#[cfg(not(feature = "enabled"))]
use none::{members, named};
// `barrier` names it as `shm-layout/tests/loom` does, which compiles that file against its own.
#[cfg(feature = "enabled")]
use pfp_shm_layout::sync;

pub use cpu::CpuTimer;
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuTimer, NoGpu, Stream};
pub use group::{ProcessGroup, Synced, ThreadGroup};
pub use sample::{Sampled, Settled, sample};
pub use stamp::{CycleCount, CycleStamp, SyncScope, cycle_count, cycle_stamp, synchronize};
