//! tests

pub mod screen;
