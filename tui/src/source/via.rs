//! Processes of another place, through an agent that runs there.
//!
//! ```text
//! RemoteFinder, RemoteSource -- requests --> `ssh node1 pfp-top agent` -- source --> process
//!                            <-- replies --
//! ```
//!
//! A command of the user's starts the agent ([`way`]); requests and replies use its standard input
//! and output ([`agent`], [`wire`]). A picture is requested only after the last one has arrived, so
//! a slow line delivers fewer pictures, and none queue up. The viewer waits only briefly for an
//! answer; it takes a late answer later. A lost line is opened again ([`far`]), and until then the
//! last figures stay ([`remote`]). Data from a line is not trusted, like the content of a file.

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

pub(super) use self::finder::RemoteFinder;
pub(super) use self::places::PlacesFinder;
pub(super) use self::way::AgentCommand;
pub use self::way::Route;

/// How long a command waits for several places to open.
pub const IN_TIME_FOR_COMMANDS: Duration = Duration::from_secs(10);
/// How long a screen waits for them.
pub const IN_TIME_FOR_SCREENS: Duration = Duration::from_secs(3);
