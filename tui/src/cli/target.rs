//! Options that select a process, and the place where the process runs.

use std::io::ErrorKind;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;

use pfp_read::files::input;
use pfp_read::source::{
    Candidate, Choice, Finder, ProcessGroup, Selector, Source, Wanted, Which, choose,
};
use pfp_remote as remote;
use pfp_remote::Route;

/// The options that select running processes.
pub(super) const LIVE: [&str; 4] = ["pid", "name", "all", "sum"];
/// Maximum size of a file of places, in bytes.
const MAX_VIA_BYTES: u64 = 1 << 20;

/// Which process.
#[derive(Args, Clone, Debug)]
pub struct TargetArgs {
    /// The process with this id, or with this number in `pfp-top list`, such as @3f2a; given
    /// several times, all of them as one. `pfp-top 4711` is short for `pfp-top -p 4711`.
    #[arg(short, long, value_name = "PID")]
    pub(super) pid: Vec<Which>,
    /// The process whose name contains NAME, or matches it as a pattern such as 'work*'.
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    pub(super) name: Option<String>,
    /// All processes as one, including ones that start later; with --name, all that match.
    #[arg(long, conflicts_with = "pid")]
    pub(super) all: bool,
    /// Like --all, but sum points of the same name (MPI ranks, workers); with -p, only of those
    /// processes.
    #[arg(long)]
    pub(super) sum: bool,
    /// Where it runs.
    #[command(flatten)]
    pub(super) via: ViaArgs,
}

/// Which places, if not this one.
#[derive(Args, Clone, Debug, Default)]
pub struct ViaArgs {
    /// Processes elsewhere: COMMAND is a prefix that reaches the machine, container or user, such
    /// as 'ssh node1', 'docker exec -i web' or 'sudo -u svc'. It starts `pfp-top agent` there.
    /// Given several times, all these places as one.
    #[arg(long, value_name = "COMMAND")]
    via: Vec<String>,
    /// One --via per line of this file. A single word means `ssh WORD`; blank lines and lines that
    /// start with # are ignored.
    #[arg(long, value_name = "FILE")]
    via_file: Option<PathBuf>,
    /// Send this pfp-top over and run it there; it leaves no file. Needs a shell there, the same
    /// architecture, and a C library at least as new.
    #[arg(long)]
    via_copy: bool,
}

impl ViaArgs {
    /// Whether no other place was named.
    pub(super) fn is_here(&self) -> bool {
        self.via.is_empty() && self.via_file.is_none() && !self.via_copy
    }

    /// The finder of the processes at these places, for a command.
    pub(super) fn finder(&self) -> Result<Box<dyn Finder>> {
        remote::finder(&self.routes()?, false, remote::IN_TIME_FOR_COMMANDS)
    }

    /// The routes to the places; empty for this machine.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or contains no place.
    pub(super) fn routes(&self) -> Result<Vec<Route>> {
        let mut commands = self.via.clone();
        if let Some(path) = &self.via_file {
            let file = path.display();
            let text = input::read(path, MAX_VIA_BYTES).and_then(|bytes| {
                String::from_utf8(bytes).map_err(|_| ErrorKind::InvalidData.into())
            });
            let text =
                text.with_context(|| format!("--via-file {file}: expected a file of commands"))?;
            let lines = text.lines().map(str::trim);
            let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
            let before = commands.len();
            commands.extend(lines.map(|line| match line.contains(char::is_whitespace) {
                true => line.to_owned(),
                false => format!("ssh {line}"),
            }));
            if commands.len() == before {
                bail!("--via-file {file}: expected a command or host per line, found none");
            }
        }
        if self.via_copy && commands.is_empty() {
            bail!("--via-copy: expected --via COMMAND or --via-file FILE beside it, found neither");
        }
        let copies = self.via_copy;
        Ok(commands.into_iter().map(|command| Route { command, copies }).collect())
    }
}

impl TargetArgs {
    /// Whether the user selected a process, here or elsewhere, for commands that also accept files.
    pub(super) fn is_given(&self) -> bool {
        self.names_any() || !self.via.is_here()
    }

    /// Whether the process runs on this machine.
    pub(super) fn is_here(&self) -> bool {
        self.via.is_here()
    }

    /// Whether any process was named.
    pub(super) fn names_any(&self) -> bool {
        !self.pid.is_empty() || self.name.is_some() || self.all || self.sum
    }

    /// The finder of the processes at these places.
    pub(super) fn finder(&self) -> Result<Box<dyn Finder>> {
        self.via.finder()
    }

    pub(super) fn wanted(&self) -> Wanted {
        Wanted { which: self.pid.first().cloned(), name: self.name.clone() }
    }

    /// The group of processes to watch as one. `None` for a single process.
    pub(super) fn group(&self) -> Option<ProcessGroup> {
        let members = match self.pid.as_slice() {
            [] if self.all || self.sum => Selector::All(self.name.clone().unwrap_or_default()),
            [] | [_] => return None,
            named => Selector::Named(named.to_vec()),
        };
        Some(ProcessGroup { members, sum: self.sum })
    }

    /// The requested process, or why it cannot be watched.
    pub(super) fn resolve(&self) -> Result<Box<dyn Source>> {
        let mut finder = self.finder()?;
        if let Some(group) = self.group() {
            return finder.attach_group(&group, None);
        }
        let (discovery, wanted) = (finder.discover()?, self.wanted());
        match choose(&discovery, &wanted) {
            Choice::One(candidate) => finder.attach(&candidate),
            Choice::Several(several) => {
                let shown = |c: &Candidate| {
                    format!("{} {}[{}]", discovery.number_of(c), c.name, c.visible_pid())
                };
                let first = several.first().map(|c| discovery.number_of(c)).unwrap_or_default();
                bail!(
                    "expected one process, found {}: choose one with -p PID or -p {first}, or \
                     watch all with --all",
                    several.iter().map(shown).collect::<Vec<_>>().join(", ")
                )
            }
            Choice::None => Err(discovery.why_none(&wanted).into()),
        }
    }
}
