//! pfp-top.
pub mod snapshot;
