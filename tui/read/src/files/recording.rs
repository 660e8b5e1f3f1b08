//! The format of recordings: many snapshots of one target as frames of one file.
//!
//! ```text
//! file header | key frame | frame | frame | ... | key frame | frame | ...
//! ```
//!
//! A frame has a header of fixed size with checksums and lengths. So a reader can find all frames
//! by their headers alone, and if the file ends in the middle of a frame, all earlier frames are
//! valid. A key frame is a snapshot; every other frame has the differences from the last key frame
//! before it. So a snapshot is read from at most two frames, and a damaged frame affects other
//! frames only if it is a key frame. docs/recording-format.md describes every byte.

mod delta;
mod format;
mod frames;
mod reader;
mod writer;

pub use delta::{grown_buckets, merged_buckets};
pub use format::{FILE_HEADER, FRAME_HEADER, MAGIC};
pub use format::{read_text, write_text};
pub use frames::{Frames, Growth};
pub use reader::{Moment, ReadingJob, Recording};
pub use writer::Writer;
