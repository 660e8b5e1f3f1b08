//! What people reach for besides profile points: timers, samples, stamps.
//!
//! Everything here is off the hot path. A name that is given as the program runs
//! becomes a point, once.

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

pub use cpu::CpuTimer;
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuTimer, NoGpu, Stream};
pub use group::{ProcessGroup, Synced, ThreadGroup};
pub use sample::{Sampled, Settled, sample};
pub use stamp::{CycleCount, CycleStamp, SyncScope, cycle_count, cycle_stamp, synchronize};
