//! Files, read and written: whole or not at all, compressed where the name says so, and never more
//! than fits into memory. This floor knows snapshots and nothing above them.

pub mod atomic_file;
pub mod input;
pub mod json;
pub mod recording;
mod refusal;
pub mod zstd_file;

pub use refusal::Refusal;
