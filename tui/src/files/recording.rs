//! The format of recordings: many snapshots of one target as frames of one file.
//!
//! ```text
//! file header | key frame | frame | frame | ... | key frame | frame | ...
//! ```
//!
//! A frame has a header of a fixed size with checksums and lengths, so that a file is
//! indexed by its frame headers alone, and one that ends in the middle of a frame is
//! whole up to there. A key frame is a snapshot; any other is what is different from
//! the last key frame before it: two frames at most are read for any moment, and a
//! damaged one takes no other with it, unless it is a key. docs/recording-format.md
//! describes every byte.

mod delta;
mod format;
mod reader;
mod writer;

pub use format::{FILE_HEADER, FRAME_HEADER, MAGIC};
pub(crate) use format::{read_text, write_text};
pub use reader::{Moment, Recording};
pub use writer::Writer;
