//! libpfp: the C interface. `include/pfp.h` documents the functions; the comments here explain the
//! implementation.
//!
//! ```text
//! original:  points by number, as in the original interface
//! hooks:     tasks and interrupts of a user-level scheduler, by handle
//! named:     points by name: scopes, begin and end by hand
//! metered:   points by name whose regions carry amounts
//! program:   the program, its threads, the clock
//! timer:     a wall clock and an on-CPU clock
//! functions: every function of a program built with `-finstrument-functions`
//! ```
//!
//! Functions check the numbers, weights and null pointers that they are passed, and return a
//! [`Status`] for invalid ones. They trust all other pointers.

// As in the probe, no function may end its host when memory runs out; see clippy.toml.
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
