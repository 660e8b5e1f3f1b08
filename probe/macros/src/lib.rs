//! pfp macros.
