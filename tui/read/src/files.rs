//! Reads and writes files. A file is written whole or not at all, and compressed if its name ends
//! in `.zst`. The memory for reading has a fixed limit. These modules know snapshots, but nothing
//! that is built on them.

pub mod atomic_file;
mod home;
pub mod input;
pub mod json;
pub mod recording;
mod refusal;
pub mod zstd_file;

pub use home::{folder, with_home};
pub use refusal::Refusal;
