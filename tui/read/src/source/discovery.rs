//! The result of looking for processes, and explanations of missing ones.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::namespaces::effective_user;
use super::{Refusal, Wanted, Which};
use crate::snapshot::{End, ProcessState, state};

/// A process that could be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The name that the program gave itself, or else its executable's file name.
    pub name: String,
    /// Path of the executable.
    pub exe: String,
    /// Process id in the process's own pid namespace.
    pub pid: u32,
    /// The process's id in the viewer's pid namespace, if its own pid namespace is a different one.
    pub pid_here: Option<u32>,
    /// Random id of the segment, 32 hex digits.
    pub segment_id: String,
    /// Whether it still runs.
    pub state: ProcessState,
    /// Whether a signal has stopped it.
    #[serde(default)]
    pub stopped: bool,
    /// How it ended, if known.
    #[serde(default)]
    pub end: Option<End>,
    /// Creation of its segment, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Number of points that it has registered so far.
    pub points: u32,
    /// Id of the `pfp-top run` that started it or an ancestor of it; 0 for none.
    pub run: u64,
    /// Whether the process has ended since [`super::Collecting`] was started.
    pub awaited: bool,
    /// The process's place, if there are several places: process ids are unique only within one
    /// place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
}

impl Candidate {
    /// Whether the process still runs.
    pub fn runs(&self) -> bool {
        self.state == ProcessState::Running
    }

    /// The process id that `ps` shows here or, if unknown, the id in the process's own pid
    /// namespace.
    pub fn visible_pid(&self) -> u32 {
        self.pid_here.unwrap_or(self.pid)
    }

    /// The word for the process's state, or `stopped` if a signal has stopped the process.
    pub fn state_word(&self) -> &'static str {
        if self.stopped { "stopped" } else { self.state.word() }
    }

    /// The process's name, its program, its id inside a container, and how it ended.
    pub fn label(&self) -> String {
        let Self { name, exe, pid, .. } = self;
        let mut label = format!("{name}  {exe}");
        if self.pid_here.is_some() {
            label += &format!("  (pid {pid} in its namespace)");
        }
        if let Some(how) = state::ended(self.state, self.end.as_ref()) {
            label += &format!("  ({how})");
        }
        label
    }
}

/// The result of looking for processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovery {
    /// Processes that can be watched, in no particular order.
    pub candidates: Vec<Candidate>,
    /// The folders that were searched.
    pub searched: Vec<PathBuf>,
    /// Number of segments of ended processes, which [`super::gc`] would remove.
    pub stale: usize,
    /// Segments that could not be used, and why.
    pub refused: Vec<Refused>,
    /// Number of segments of other users that this user may not see.
    #[serde(default)]
    pub unseen: usize,
    /// A message for the case that nothing is found, if the finder knows a reason.
    pub instead: Option<String>,
    /// Whether no process can appear any more, since the only program to watch has ended.
    pub is_over: bool,
    /// The command that leads to the searched place. `None` for this machine.
    pub via: Option<String>,
}

/// A segment that was found but cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Process id of its owner, if known.
    pub pid: Option<u32>,
    /// The reason.
    pub why: Refusal,
}

/// Maximum number of other processes that a message names when the requested one is not found.
pub(super) const OTHERS: usize = 3;

impl Discovery {
    /// Adds a segment that cannot be used, with the reason.
    pub fn refuse(&mut self, pid: Option<u32>, why: Refusal) {
        self.refused.push(Refused { pid, why });
    }

    /// Whether this process was found.
    pub fn has(&self, candidate: &Candidate) -> bool {
        self.candidates.iter().any(|known| known.segment_id == candidate.segment_id)
    }

    /// Adds the result of another search, without processes that are present already.
    pub fn add(&mut self, other: &Self) {
        let known: HashSet<&str> =
            self.candidates.iter().map(|it| it.segment_id.as_str()).collect();
        let new = other.candidates.iter().filter(|it| !known.contains(it.segment_id.as_str()));
        let new: Vec<Candidate> = new.cloned().collect();
        self.candidates.extend(new);
        self.refused.extend(other.refused.iter().cloned());
    }

    /// Why no process matches the request.
    pub fn why_none(&self, wanted: &Wanted) -> Refusal {
        let asked = match wanted.which {
            Some(Which::Pid(pid)) => Some(pid),
            _ => None,
        };
        let concerns = |refused: &&Refused| match wanted.which {
            Some(_) => asked.is_some() && refused.pid == asked,
            None => true,
        };
        if let Some(refused) = self.refused.iter().find(concerns) {
            return refused.why.clone();
        }
        if let Some(pid) = asked.filter(|_| self.via.is_none())
            && let Some(why) = foreign(pid)
        {
            return why;
        }
        if wanted.is_any() {
            return Refusal::NoTarget(self.nothing_found());
        }
        if self.candidates.is_empty() {
            let why = self.nothing_found();
            return Refusal::NoTarget(format!(
                "{why}; `pfp-top doctor PID` explains why one is missing"
            ));
        }
        let wanted = wanted.describe();
        let others = self.candidates.iter().map(|it| format!("{}[{}]", it.name, it.visible_pid()));
        let others: Vec<String> = others.take(OTHERS).collect();
        let more = self.candidates.len() - others.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Refusal::NoTarget(format!(
            "no instrumented process with {wanted}, but {}{more}; `pfp-top list` shows them, \
             `pfp-top doctor PID` explains why one is missing",
            others.join(", ")
        ))
    }

    /// A sentence for a user who has no process to watch.
    pub fn nothing_found(&self) -> String {
        let mut text = match (&self.instead, &self.via) {
            (Some(instead), Some(via)) => format!("{via}: {instead}"),
            (Some(instead), None) => instead.clone(),
            (None, Some(via)) => format!("{via}: no instrumented process"),
            (None, None) => self.nothing_here(),
        };
        for why in self.not_shown() {
            text.push_str(&format!("; {why}"));
        }
        text
    }

    /// The message that no process was found here, with the folders that were searched.
    pub fn nothing_here(&self) -> String {
        // SAFETY: getuid has no preconditions and cannot fail.
        let uid = unsafe { libc::getuid() };
        let mut text = format!("no instrumented process for uid {uid}");
        match self.stale {
            0 => {}
            1 => text.push_str("; 1 stale segment (`pfp-top gc`)"),
            n => text.push_str(&format!("; {n} stale segments (`pfp-top gc`)")),
        }
        if !self.searched.is_empty() {
            let places: Vec<_> = self.searched.iter().map(|p| p.display().to_string()).collect();
            text.push_str(&format!("; looked in {}", places.join(", ")));
        }
        text
    }

    /// Why other processes are not among the candidates.
    pub fn not_shown(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|refused| refused.why.to_string()).chain(self.unseen())
    }

    /// A message about the segments of other users that this user may not see, with advice. `None`
    /// if there are none.
    pub fn unseen(&self) -> Option<String> {
        let segments = match self.unseen {
            0 => return None,
            1 => "1 segment".into(),
            n => format!("{n} segments"),
        };
        // Root searches every user's folder, except with `PFP_DIR`.
        let advice = match effective_user() {
            0 => "their beacons are in other folders: `pfp-top list` without PFP_DIR shows them",
            _ => "`sudo pfp-top` shows them",
        };
        Some(format!("{segments} of other users cannot be seen here: {advice}"))
    }
}

/// Why a process can certainly not be watched: it does not exist, or it is another user's. `None`
/// for this user's processes, and for root.
pub fn foreign(pid: u32) -> Option<Refusal> {
    let Ok(process) = std::fs::metadata(format!("/proc/{pid}")) else {
        return Some(Refusal::NoTarget(format!("there is no process {pid}")));
    };
    let (owner, own) = (process.uid(), effective_user());
    (owner != own && own != 0).then(|| {
        Refusal::Permission(format!(
            "process {pid} belongs to uid {owner}, and this is uid {own}; a process shows its \
             figures to its own user and to root: try `sudo pfp-top -p {pid}`"
        ))
    })
}
