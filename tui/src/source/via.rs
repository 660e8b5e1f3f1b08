//! Processes of another place, through an agent there.
//!
//! ```text
//! Via, Remote -- requests --> `ssh node1 pfp-top agent` -- source --> process
//!             <-- replies --
//! ```
//!
//! The agent is started by a command of the user's ([`way`]), and spoken with over its standard
//! input and output ([`agent`], [`wire`]). A request for a picture is made only after the one before
//! came, so a slow line gets fewer pictures, and nothing piles up. No answer is waited for long: one
//! that is late is taken later. A line that is lost is tried again ([`far`]); the last figures stay
//! meanwhile ([`remote`]). What comes over it is trusted no more than a file.

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

/// How long a command waits for several places to open.
pub const IN_TIME_FOR_COMMANDS: Duration = Duration::from_secs(10);
/// How long a screen does.
pub const IN_TIME_FOR_SCREENS: Duration = Duration::from_secs(3);
