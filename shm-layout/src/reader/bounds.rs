//! Upper bounds of what is read, whatever a segment claims.

/// Maximum number of attempts to copy a part of a segment while its thread writes to it. If all
/// fail, the next poll tries again.
pub(crate) const COPY_ATTEMPTS: usize = 64;
/// Longest name that is read, in bytes.
pub(crate) const LONGEST_TEXT: u32 = 4096;
/// Maximum number of points that are read; further points count as refused.
pub(crate) const MAX_POINTS: usize = 1 << 20;
/// Maximum number of bytes of text that are read.
pub(crate) const MAX_TEXT: usize = 64 << 20;
/// Maximum number of lanes, and of blocks, whatever a segment claims.
pub(crate) const MAX_LANES: usize = 1 << 16;
pub(crate) const MAX_BLOCKS: usize = 1 << 22;
