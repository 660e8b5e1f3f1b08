//! The bytes of pfp's shared-memory segment: writer and reader halves side by
//! side.
//!
//! One process writes the statistics of its points into a segment; any number of other processes
//! read it, at any time, without a lock. This crate knows no clock, no policy and no terminal. It
//! has three parts:
//!
//! | part | what it knows | modules |
//! |---|---|---|
//! | `layout/` | where each part is ([`segment`]), and how it is written and read at the same time | [`allocs`], [`amounts`], [`black_box`], [`calls`], [`cell`], [`control`], [`header`], [`histogram`], [`lane`], [`point`], [`ring`] |
//! | `reader/` | how a whole picture is taken ([`reader`]), and a copy for a file ([`copy`]) | [`truncation`] |
//! | `discovery/` | how segments are made and found ([`object`], [`find`]) | [`beacon`], [`collector`], [`directory`], [`end`], [`failure`], [`group_file`], [`liveness`], [`share`], [`switched`], [`time_namespace`] |
//!
//! ```text
//!  thread --> lane: ring, folded into cells --> reader --> Picture
//!  viewer --> control words --> begin
//! ```

// Code that runs inside the host, the measured program, allocates only by `heap`: see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod atomic_file;
pub mod descriptors;
mod discovery;
pub mod environment;
#[allow(clippy::disallowed_methods, reason = "it reserves the memory first")]
pub mod heap;
mod layout;
pub mod reader;
#[doc(hidden)]
pub mod sync;

pub use discovery::{
    beacon, collector, directory, end, failure, find, group_file, liveness, name, object, share,
    switched, time_namespace,
};
pub use layout::{
    allocs, amounts, black_box, calls, cell, control, geometry, header, histogram, lane, point,
    ring, segment, shared_cell, switch,
};
pub use reader::{copy, truncation};
