//! Segments, files, viewers and neighbours that mean ill.

mod any_bytes;
mod control;
mod permissions;
mod rewriting;
mod segment;
