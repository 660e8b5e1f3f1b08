//! pfp probe.
