//! pfp segment.
