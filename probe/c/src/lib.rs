//! libpfp: the C interface. `include/pfp.h` is its documentation; what stands here
//! is how.
//!
//! ```text
//! original:  points by number, in the manner of the original component
//! hooks:     tasks and interrupts of a user-level scheduler, by handle
//! named:     points by name: scopes, begin and end by hand
//! metered:     points by name whose regions carry amounts
//! program:   the program, its threads, the clock
//! timer:     a wall clock and the time on the CPU beside it
//! functions: every function of a program that was built for it
//! ```
//!
//! Nothing here trusts its caller more than C makes it: numbers, weights and null
//! pointers are checked, and what is refused is returned as a [`Status`].

// As in the probe.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

mod arena;
mod functions;
mod hooks;
mod lock;
mod metered;
mod named;
mod original;
mod places;
mod program;
mod stats;
mod status;
mod text;
mod timer;
mod trie;
