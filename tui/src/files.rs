//! Files, read and written: whole or not at all, compressed if the name says so, and never more
//! than fits into memory. These modules know snapshots and nothing built on them.

pub mod atomic_file;
pub mod input;
pub mod json;
pub mod recording;
mod refusal;
pub mod zstd_file;

pub use refusal::Refusal;
