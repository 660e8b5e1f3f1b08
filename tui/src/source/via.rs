//! Processes of another place, through an agent there.
//!
//! ```text
//! Via, Remote -- requests --> `ssh node1 pfp-top agent` -- source --> process
//!             <-- replies --
//! ```
//!
//! A command of the user's starts the agent ([`way`]); requests and replies go over its standard
//! input and output ([`agent`], [`wire`]). A picture is requested only after the last one came, so
//! a slow line gets fewer pictures, and nothing piles up. No answer is waited for long: a late one
//! is taken later. A lost line is tried again ([`far`]); the last figures stay meanwhile
//! ([`remote`]). What comes over a line is trusted no more than a file.

mod agent;
mod copy;
mod far;
mod finder;
mod places;
mod remote;
mod scale;
mod way;
pub(crate) mod wire;

use std::time::Duration;

pub(super) use self::finder::Via;
pub(super) use self::places::Places;
pub use self::way::Route;
pub(super) use self::way::Way;

/// The time a command waits for several places to open.
pub const IN_TIME_FOR_COMMANDS: Duration = Duration::from_secs(10);
/// The time a screen waits for them.
pub const IN_TIME_FOR_SCREENS: Duration = Duration::from_secs(3);
