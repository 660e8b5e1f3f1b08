//! What people reach for besides profile points: timers, samples, stamps.
//!
//! Everything here is off the hot path. A name that is given as the program runs
//! becomes a point, once.

mod cpu;
#[cfg(feature = "cuda")]
mod gpu;
mod group;
mod sample;
mod stamp;
mod student;

pub use cpu::CpuTimer;
#[cfg(feature = "cuda")]
pub use gpu::{Gpu, GpuTimer, NoGpu, Stream};
pub use group::{ProcessGroup, Synced, ThreadGroup};
pub use sample::{Sampled, Settled, sample};
pub use stamp::{CycleCount, CycleStamp, SyncScope, cycle_count, cycle_stamp, synchronize};
