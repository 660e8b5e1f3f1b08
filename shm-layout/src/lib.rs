//! The bytes of pfp's shared-memory segment: writer and reader halves side by
//! side.
//!
//! One process writes its profile points' statistics into a segment; any number
//! of others read it, at any time, without a lock. It knows no clock, no policy and no
//! terminal. Three rooms:
//!
//! | room | what it knows | modules |
//! |---|---|---|
//! | `layout/` | where each part is ([`segment`]), and how it is written and read at the same time | [`amounts`], [`calls`], [`cell`], [`control`], [`header`], [`histogram`], [`lane`], [`point`], [`ring`] |
//! | `reader/` | how a whole picture is taken ([`reader`]), and a copy for a file ([`copy`]) | [`truncation`] |
//! | `discovery/` | how segments are made and found ([`object`], [`find`]) | [`beacon`], [`collector`], [`directory`], [`end`], [`failure`], [`group_file`], [`liveness`], [`share`], [`switched`], [`time_namespace`] |
//!
//! ```text
//!  thread --> lane: ring, folded into cells --> reader --> Picture
//!  viewer --> control words --> begin
//! ```

// What runs inside the host takes memory by `heap` alone: see clippy.toml.
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
    amounts, calls, cell, control, geometry, header, histogram, lane, point, ring, segment,
    shared_cell, switch,
};
pub use reader::{copy, truncation};
