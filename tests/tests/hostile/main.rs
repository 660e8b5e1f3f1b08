//! Hostile segments, files, viewers and other users.

mod any_bytes;
mod control;
mod permissions;
mod rewriting;
mod segment;
