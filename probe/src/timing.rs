//! What people reach for besides profile points: timers, samples, stamps.
//!
//! Everything here is off the hot path. A name that is given as the program runs
//! becomes a point in [`named`], once.

mod cpu;
mod named;
mod sample;
mod student;

pub use cpu::CpuTimer;
pub use sample::{Sampled, Settled, sample};
