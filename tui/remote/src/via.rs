//! Processes of another place, through an agent that runs there. A place is what the user's command
//! leads to (another machine, a container, another user), or a room of this machine.
//!
//! ```text
//! RemoteFinder, RemoteSource -- requests --> `ssh node1 pfp-top agent` -- source --> process
//!                            <-- replies --
//! ```
//!
//! A command starts the agent ([`way`]); the command's standard input and output are the line. The
//! line carries requests and replies ([`agent`], [`wire`]). A picture is requested only after the
//! previous picture has arrived. So a slow line delivers fewer pictures, and no pictures queue up.
//! The viewer waits only briefly for an answer; a later poll takes a late answer. A lost line is
//! opened again ([`far`]), and until then the last figures stay ([`remote`]). Data from a line is
//! not trusted, like the content of a file.

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

/// How long a subcommand without a screen waits until the agents of several places answer.
pub const IN_TIME_FOR_COMMANDS: Duration = Duration::from_secs(10);
/// How long a screen waits until the agents of several places answer.
pub const IN_TIME_FOR_SCREENS: Duration = Duration::from_secs(3);
