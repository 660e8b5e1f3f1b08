//! How much is read at most, whatever a segment says.

/// Tries to copy what its thread writes meanwhile, before it is left for the next
/// poll.
pub(crate) const TRIES: usize = 64;
/// Longest name that is read, in bytes.
pub(crate) const LONGEST_TEXT: u32 = 4096;
/// Most points that are read; those behind them count as refused.
pub(crate) const MAX_POINTS: usize = 1 << 20;
/// Most bytes of text that are read.
pub(crate) const MAX_TEXT: usize = 64 << 20;
/// Most lanes and blocks that a segment is made with, whatever one says.
pub(crate) const MAX_LANES: usize = 1 << 16;
pub(crate) const MAX_BLOCKS: usize = 1 << 22;
