//! The part of `src/layout/segment.rs` that the protocol files use.

/// Marks shared types; the models map no shared bytes.
///
/// # Safety
///
/// No requirement: the models map no shared bytes.
pub(crate) unsafe trait Shared {}
