//! What the protocol files use of `src/layout/segment.rs`, small.

/// Nothing is laid over shared bytes here.
///
/// # Safety
///
/// None is at stake.
pub(crate) unsafe trait Shared {}
