//! The command that starts an agent: a command of the user's, or this program in another room of
//! this machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::residents::RoomEntrance;

/// A command of the user's that leads to another place, such as `ssh node1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The command that leads there; the program to run is appended.
    pub command: String,
    /// Whether to run this program there, and not an installed pfp-top.
    pub copies: bool,
}

/// This program, even if its file has been removed.
pub(super) const THIS: &str = "/proc/self/exe";

/// PATH with this program's folder at its end, so that a command that stays on this machine finds
/// this program if pfp-top is not installed.
fn path_with_this() -> Option<OsString> {
    let this = std::env::current_exe().ok().filter(|this| this.ends_with("pfp-top"))?;
    let path = std::env::var_os("PATH")?;
    let folders = std::env::split_paths(&path).chain(this.parent().map(Path::to_owned));
    std::env::join_paths(folders).ok()
}

/// A command that starts an agent.
#[derive(Clone, Debug)]
pub(crate) struct AgentCommand {
    /// The user's command or the room's name, for messages.
    pub(super) name: String,
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    /// Variables that are set or removed.
    pub(super) variables: Vec<(&'static str, Option<OsString>)>,
    /// Whether this program is sent to the place first, to run there as the agent.
    pub(super) copies: bool,
    /// The room of this machine to enter. `None` for a command of the user's.
    pub(super) room: Option<RoomEntrance>,
}

impl AgentCommand {
    /// An agent that a command of the user's starts.
    pub(super) fn through(Route { command, copies }: &Route) -> Self {
        let agent = if *copies { "sh" } else { "pfp-top agent" };
        let arguments = vec!["-c".to_owned(), format!("{command} {agent}")];
        let path = path_with_this().map(|path| ("PATH", Some(path)));
        let (variables, copies) = (path.into_iter().collect(), *copies);
        let name = command.clone();
        Self { name, program: "sh", arguments, variables, copies, room: None }
    }

    /// An agent that enters a room of this machine.
    pub(crate) fn into_room(
        name: String,
        room: RoomEntrance,
        variables: Vec<(&'static str, Option<OsString>)>,
    ) -> Self {
        let arguments = ["agent", "--enter"].map(str::to_owned).into();
        Self { name, program: THIS, arguments, variables, copies: false, room: Some(room) }
    }

    /// Whether the command leads to another room of this machine.
    pub(super) fn is_here(&self) -> bool {
        self.room.is_some()
    }

    pub(super) fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.program);
        command.args(&self.arguments);
        if let Some(room) = &self.room {
            command.arg(room.resident()?.to_string());
        }
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Ok(command)
    }
}

/// The name of a process at a place, as in `worker@node1`.
pub(super) fn at(name: &str, place: &str) -> String {
    format!("{name}@{place}")
}
