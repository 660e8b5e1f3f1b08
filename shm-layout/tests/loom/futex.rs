//! A futex whose wait returns at once: a model rereads a word when it wants to.

use crate::sync::AtomicU32;

pub(crate) fn wait(_: &AtomicU32, _: u32, _: std::time::Duration, _: bool) {}

pub(crate) fn wake(_: &AtomicU32, _: bool) {}
