//! The layout of a segment, and the writer's and the reader's half of each protocol.

pub mod allocs;
pub mod amounts;
pub mod black_box;
pub mod calls;
pub mod cell;
pub(crate) mod chain;
pub mod control;
pub mod geometry;
pub mod header;
pub mod histogram;
pub mod lane;
pub mod point;
pub mod ring;
pub mod segment;
pub mod shared_cell;
pub mod switch;
mod used;
