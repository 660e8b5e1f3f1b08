//! Timers, samples and stamps, for use beside profile points.
//!
//! Nothing here is on the hot path. The first use of a name creates its point. If memory runs out,
//! a name gets no point and its measurements are not recorded, but the program continues.

// As in the probe, no function may end its host when memory runs out; see ../clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

/// Compiles the examples of the README and of the page in docs/.
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
use none::{heap, members, named};
#[cfg(feature = "enabled")]
use pfp_shm_layout::heap;
// `barrier` uses this path, because `shm-layout/tests/loom` compiles the file against a `sync` of
// its own.
#[cfg(feature = "enabled")]
use pfp_shm_layout::sync;

pub use cpu::CpuTimer;
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuTimer, NoGpu, Stream};
pub use group::{ProcessGroup, Synced, ThreadGroup};
pub use sample::{Sampled, Settled, sample};
pub use stamp::{CycleCount, CycleStamp, SyncScope, cycle_count, cycle_stamp, synchronize};
