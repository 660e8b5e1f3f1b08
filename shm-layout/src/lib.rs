//! The bytes of pfp's shared-memory segment: writer and reader halves side by
//! side.
//!
//! One process writes its profile points' statistics into a segment; any number
//! of others read it, at any time, without a lock. This crate knows what lies
//! where ([`segment`]), how each part is written and read at the same time
//! ([`cell`], [`ring`], [`lane`], [`point`], [`control`]), and how a whole
//! picture is taken ([`reader`]). It knows no clock, no policy and no terminal.
//!
//! ```text
//!  thread --> lane: cells (cell, shared_cell, histogram)  --> reader --> Picture
//!                   ring  (ring)
//!  viewer --> control words (control) --> begin
//! ```

pub mod amounts;
pub mod beacon;
pub mod cell;
mod chain;
pub mod collector;
pub mod control;
pub mod copy;
pub mod directory;
pub mod environment;
pub mod failure;
pub mod find;
pub mod group;
pub mod header;
pub mod histogram;
pub mod lane;
pub mod liveness;
pub mod object;
pub mod point;
pub mod reader;
pub mod ring;
pub mod segment;
pub mod share;
mod shared_cell;
pub(crate) mod sync;
pub mod truncation;
pub mod whole;
