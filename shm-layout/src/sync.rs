//! The atomics of the protocols, which the model checker replaces by its own.
//!
//! The protocol modules (such as [`crate::layout::cell`], [`crate::layout::ring`],
//! [`crate::layout::lane`], and the barrier of groups in `pfp-timing`) name each ordering with
//! `ord!("site", Order)` and each fence with `fence_at!("site", Order)`. Here the site is only a
//! name, which the comment at the partner repeats. The model checker compiles the very same files
//! against its own version of this module, in which a site can be weakened: `tests/loom/` shows
//! that every site is needed.

pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// The memory ordering of a named site.
#[doc(hidden)]
#[macro_export]
macro_rules! ord {
    ($site:literal, $order:ident) => {
        $crate::sync::Ordering::$order
    };
}

/// The fence of a named site.
#[doc(hidden)]
#[macro_export]
macro_rules! fence_at {
    ($site:literal, $order:ident) => {
        $crate::sync::fence($crate::sync::Ordering::$order)
    };
}

pub use {fence_at, ord};
