//! The reader: takes a picture of a segment while other threads and processes write to it.
//!
//! The segment is treated as hostile. The header was copied and checked when the segment was
//! opened; every offset is checked again where it is used; every loop is bounded by the geometry,
//! and never by a value from the segment. A picture is plain data and holds no reference to shared
//! memory. The reader touches only parts that have memory (`backed`), so reading an object never
//! makes it grow.
//!
//! The cost grows with what has changed: the reader keeps one picture and updates it. It reads a
//! cell again only if the cell's sequence word has changed since the last poll, and allocates
//! nothing for what it knows already. It copies the records of the rings only on request, because
//! few callers want them, and the rings retain the latest ones by themselves.

mod backed;
mod bounds;
mod calls;
mod cells;
mod chain;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "only viewers copy segments"
)]
pub mod copy;
mod histogram;
mod keys;
mod near;
mod pending;
mod picture;
mod poll;
mod reading;
#[allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "only viewers have a handler for it"
)]
pub mod truncation;

pub use calls::{Call, LaneCalls};
pub use histogram::{BucketCount, Histogram};
pub use picture::{
    AmountTuple, ClockPicture, HeapPicture, LaneErrors, LaneReading, Losses, Picture, PointPicture,
};
pub use poll::Reader;
pub use reading::CellReading;
