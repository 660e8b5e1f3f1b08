//! Where snapshots come from: a process that runs, one that has ended, a file.
//!
//! A [`Source`] yields one [`Snapshot`] after the other and passes on what the
//! user changes. Nothing above this module knows which kind it watches, and
//! nothing below it is trusted: [`discover`], [`attach`] and [`open`] are the
//! only ways in, and all that comes through them has been made fit to show
//! (see [`crate::text`]) and put in order.

mod choice;
mod collecting;
mod file;
mod group;
mod guard;
mod live;
mod namespaces;
mod newcomers;
mod place;
mod recording;
mod refusal;
mod rooms;
mod symbol;
pub mod synthetic;
mod usage;
pub(crate) mod via;
mod which;

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub use choice::{Choice, Wanted, choose};
pub use collecting::{Collecting, EveryProcess};
pub use file::FileSource;
pub use group::{Members, Together};
pub use guard::guarded;
pub use recording::{Moment, Recording};
pub use refusal::{Refusal, change_each};
use rooms::Rooms;
pub use rooms::{Whereabouts, enter, whereabouts};
pub use via::{IN_TIME_FOR_COMMANDS, IN_TIME_FOR_SCREENS, Route};
use via::{Places, Via};
pub use which::Which;

use crate::export::json::{Overwrite, WriteError, unreadable};
use crate::input::Input;
use crate::model::{Sight, between};
use crate::recording::MAGIC;
use crate::snapshot::{Drained, ProcessState, Snapshot};

/// A watched process, or what is left of one.
pub trait Source {
    /// Takes the next snapshot.
    ///
    /// A process that has ended is no error: its last figures come with the
    /// state that says so, as often as asked.
    fn poll(&mut self) -> Result<Snapshot>;

    /// Says what is looked at from now on, to a source that sends for its snapshots. Whoever is
    /// not told sends for everything.
    fn look_at(&mut self, _looking: Looking) {}

    /// Does what a poll can do ahead: called for all of several before the first is polled.
    fn prepare(&mut self) {}

    /// Whether the process is known to run no more although there is no snapshot that
    /// says so: what it left cannot be read. Asked when [`Self::poll`] has failed.
    fn has_died(&self) -> bool {
        false
    }

    /// Whether its first snapshot is still to come: asked when [`Self::poll`] has failed.
    fn is_coming(&self) -> bool {
        false
    }

    /// Puts the last finished measurements into a snapshot that this source has
    /// yielded, as they were then. They are many, and only files want them.
    fn add_records(&mut self, _snapshot: &mut Snapshot) {}

    /// The points of the regions that are open on each thread that is in any, outermost first,
    /// by the lane's id; none where only [`Self::poll`] tells. It takes microseconds, and may be
    /// asked many times between two polls.
    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        None
    }

    /// What the rings brought since a record of each lane, which `from` tells by the
    /// lane's id, up to the moment of a snapshot that this source has just yielded.
    /// Lanes that brought nothing are left out.
    fn new_records(&mut self, _snapshot: &Snapshot, _from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        Vec::new()
    }

    /// The recording that this is; none of everything that has but one moment.
    fn recording(&mut self) -> Option<&mut Recording> {
        None
    }

    /// Copies the process's segment itself to a file, whole or not at all; with a
    /// name that ends in `.zst`, compressed.
    fn save_raw(&mut self, _path: &Path, _overwrite: Overwrite) -> Result<(), WriteError> {
        let why = "expected one process, which has a segment to copy; found a file, or several \
                   processes: choose one with -p PID";
        Err(WriteError::Io(io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    /// Carries out a change in the process. An error says why not, in words
    /// for the user.
    fn act(&mut self, change: Change) -> Result<()>;

    /// Whether this is a process, be it running or ended, and not a file.
    fn is_process(&self) -> bool;

    /// Why the process can only be watched and not changed; none where it can
    /// be changed.
    fn read_only(&self) -> Option<&str> {
        None
    }

    /// The line to another place that its pictures come over; none for this machine.
    fn line(&self) -> Option<Line> {
        None
    }

    /// The places that show nothing new, where it is watched at several.
    fn bad_places(&self) -> Vec<BadPlace> {
        Vec::new()
    }
}

/// What a viewer looks at.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Looking {
    /// What is enough of each snapshot.
    pub sight: Sight,
    /// The lanes whose records are looked at; none where all are.
    pub lanes: Option<Vec<u32>>,
    /// The next poll comes within this time; none where nothing is promised.
    pub within: Option<Duration>,
}

/// A line to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// The command that leads there.
    pub via: String,
    /// How long ago the last picture came, if another one should have come since.
    pub late: Option<Duration>,
    /// Why no picture comes, where known.
    pub why: Option<String>,
    /// How old the last picture is at most.
    pub age: Duration,
}

/// A place that is late, or has no line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPlace {
    /// What it is called beside others.
    pub name: String,
    /// For how long.
    pub age: Duration,
    /// Why there is no line; none where it is late.
    pub why: Option<String>,
}

/// Something the user wants changed in the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Let this point measure; an invalid one becomes valid.
    Enable(u32),
    /// Let this point measure no more.
    Disable(u32),
    /// Start this point's figures afresh.
    Reset(u32),
    /// Set the weight of a new value in this point's exponential average, in
    /// (0, 1]; none switches averaging off.
    SetAlpha(u32, Option<f64>),
    /// Have this point's stamps wait for the work before them, or not.
    Fence(u32, bool),
}

/// A process that could be watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// The name the program gave itself, else its executable's file name.
    pub name: String,
    /// Path of the executable.
    pub exe: String,
    /// Process id, as the process itself knows it.
    pub pid: u32,
    /// Its id here, if it has a pid namespace of its own.
    pub pid_here: Option<u32>,
    /// Random id of the segment, 32 hex digits.
    pub segment_id: String,
    /// Whether it still runs.
    pub state: ProcessState,
    /// When its segment was created, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Points it has registered so far.
    pub points: u32,
    /// Which `pfp-top run` started it or an ancestor of it; 0 for none.
    pub run: u64,
    /// It has ended while [`Collecting`] waited for it.
    pub awaited: bool,
}

impl Candidate {
    /// Whether the process still runs.
    pub fn runs(&self) -> bool {
        self.state == ProcessState::Running
    }

    /// The process id that `ps` shows here, as far as that is known.
    pub fn visible_pid(&self) -> u32 {
        self.pid_here.unwrap_or(self.pid)
    }

    /// Its name and program, and its id inside a container.
    pub fn label(&self) -> String {
        let Self { name, exe, pid, .. } = self;
        match self.pid_here {
            Some(_) => format!("{name}  {exe}  (pid {pid} in its namespace)"),
            None => format!("{name}  {exe}"),
        }
    }
}

/// What looking for processes brought.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Discovery {
    /// What can be watched, in no particular order.
    pub candidates: Vec<Candidate>,
    /// Where it was looked for.
    pub searched: Vec<PathBuf>,
    /// Segments of processes that have ended, which [`gc`] would remove.
    pub stale: usize,
    /// Segments that could not be used, and why.
    pub refused: Vec<Refused>,
    /// Segments of other users here that this one has no right to see.
    #[serde(default)]
    pub unseen: usize,
    /// What to say where nothing is found, if the finder knows better than that
    /// there is nothing.
    pub instead: Option<String>,
    /// Whether nothing will come any more.
    pub is_over: bool,
    /// The command that leads to the place where it was looked; none for this machine.
    pub via: Option<String>,
}

/// A segment that was found but cannot be watched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Process id of its owner, where that is known.
    pub pid: Option<u32>,
    /// Why not.
    pub why: Refusal,
}

/// Processes that are named where the one that was asked for is not found.
const OTHERS: usize = 3;

impl Discovery {
    /// Why there is nothing that fits what was asked for.
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
            return Refusal::NoTarget(format!("{why}; `pfp-top doctor` tells why one is missing"));
        }
        let wanted = wanted.describe();
        let others = self.candidates.iter().map(|it| format!("{}[{}]", it.name, it.visible_pid()));
        let others: Vec<String> = others.take(OTHERS).collect();
        let more = self.candidates.len() - others.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        Refusal::NoTarget(format!(
            "no instrumented process with {wanted}, but {}{more}; `pfp-top list` shows them, \
             `pfp-top doctor` tells why one is missing",
            others.join(", ")
        ))
    }

    /// One sentence for a user who has nothing to watch.
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

    /// That there is nothing here, and where it was looked.
    pub(crate) fn nothing_here(&self) -> String {
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

    /// Why each of the others is not among the candidates.
    pub fn not_shown(&self) -> impl Iterator<Item = String> {
        self.refused.iter().map(|refused| refused.why.to_string()).chain(self.unseen())
    }

    /// What there is that this user may not see, and what would let them; none if all is seen.
    pub fn unseen(&self) -> Option<String> {
        let segments = match self.unseen {
            0 => return None,
            1 => "1 segment".into(),
            n => format!("{n} segments"),
        };
        Some(format!("{segments} of other users cannot be seen here: `sudo pfp-top` shows them"))
    }
}

/// Why a process cannot be watched whatever it is: there is none of this id, or
/// it is another user's. None for one of this user's.
fn foreign(pid: u32) -> Option<Refusal> {
    let Ok(process) = std::fs::metadata(format!("/proc/{pid}")) else {
        return Some(Refusal::NoTarget(format!("there is no process {pid}")));
    };
    // SAFETY: geteuid has no preconditions and cannot fail.
    let (owner, own) = (process.uid(), unsafe { libc::geteuid() });
    (owner != own).then(|| {
        Refusal::Permission(format!(
            "process {pid} belongs to uid {owner}, and this is uid {own}; a process shows its \
             figures to its own user and to root: try `sudo pfp-top -p {pid}`"
        ))
    })
}

/// Finds processes and attaches to them. The viewer asks one of these rather
/// than the machine, so that it can be tested without processes.
pub trait Finder {
    /// Looks for processes.
    fn discover(&mut self) -> Result<Discovery>;
    /// Attaches to one of those found.
    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>>;
    /// Attaches to several, as one.
    fn attach_together(&mut self, together: &Together) -> Result<Box<dyn Source>>;
    /// What the places are called that it looks in, where there are several.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }
    /// Places that cannot be asked now, where there are several.
    fn bad_places(&mut self) -> Vec<BadPlace> {
        Vec::new()
    }
    /// Nobody will ask for this segment any more, whose process has ended.
    fn let_go(&mut self, _segment_id: &str) {}
}

/// The finder of the processes of this machine that this user may watch: their own, and where
/// they have the right, those of other users and in containers.
#[derive(Clone, Default)]
pub struct Machine {
    /// None where only this user's own are looked for.
    rooms: Option<Rooms>,
}

impl Machine {
    /// All that may be watched. With `keep`, points that were toggled in another user's process
    /// stay as they are when that agent is lost.
    #[must_use]
    pub fn all(keep: bool) -> Self {
        Self { rooms: Some(Rooms::new(keep)) }
    }

    fn add_rooms(&self, discovery: &mut Discovery) {
        if let Some(rooms) = &self.rooms {
            rooms.add_to(discovery);
        }
    }
}

impl Finder for Machine {
    fn discover(&mut self) -> Result<Discovery> {
        let mut discovery = discover()?;
        self.add_rooms(&mut discovery);
        Ok(discovery)
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let elsewhere = self.rooms.as_ref().and_then(|rooms| rooms.attach(candidate));
        elsewhere.unwrap_or_else(|| attach(candidate))
    }

    fn bad_places(&mut self) -> Vec<BadPlace> {
        self.rooms.as_ref().map(Rooms::bad_places).unwrap_or_default()
    }

    fn attach_together(&mut self, together: &Together) -> Result<Box<dyn Source>> {
        EveryProcess::of(self.clone()).attach_together(together)
    }
}

/// The finder of the processes of this machine, or of the places that commands lead to. With
/// `keep`, points that were toggled there stay as they are when the line to it is lost. Of several
/// places, those that are not open in time are left to be opened in the background.
///
/// # Errors
///
/// If there is no agent behind any of the commands.
pub fn finder(via: &[Route], keep: bool, in_time: Duration) -> Result<Box<dyn Finder>> {
    Ok(match via {
        [] => Box::new(Machine::all(keep)),
        [one] => Box::new(Via::open(one, keep)?),
        several => Box::new(Places::open(several, keep, in_time)?),
    })
}

/// Looks for the processes of this user.
pub fn discover() -> Result<Discovery> {
    let mut discovery = live::discover()?;
    guard::clean_discovery(&mut discovery);
    Ok(discovery)
}

/// The files by which processes tell that they are there. Something new among
/// them is a reason to [`discover`]; listing them costs next to nothing.
pub fn announced() -> BTreeSet<PathBuf> {
    live::announced()
}

/// Attaches to a process that [`discover`] found.
pub fn attach(candidate: &Candidate) -> Result<Box<dyn Source>> {
    Ok(guarded(live::attach(candidate)?))
}

/// A finder of this machine's processes for whoever looks again and again: it finds
/// nothing as long as no new process has announced itself.
pub fn newcomers() -> Box<dyn Finder> {
    Box::new(newcomers::Newcomers::new(Machine::all(false), None))
}

/// Attaches to several of the processes that this finder finds, as one.
pub fn attach_together_by(finder: Box<dyn Finder>, together: &Together) -> Result<Box<dyn Source>> {
    Ok(guarded(Box::new(group::Group::new(together.clone(), finder)?)))
}

/// Opens a snapshot file, a copy of a segment, compressed or not, or a recording at
/// its last moment: what it is its content tells, not its name. `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    let unreadable = |error| unreadable(path, error);
    let input = Input::open(path, file::is_known).map_err(unreadable)?;
    let is_recording = input.start().map_err(unreadable)?.starts_with(&MAGIC);
    match input {
        Input::File(file) if is_recording => Ok(guarded(Box::new(Recording::read(file, path)?))),
        Input::Stdin(_) if is_recording => {
            bail!("expected a file, since a recording is read here and there, found a pipe")
        }
        input => Ok(guarded(Box::new(FileSource::read(&input, path)?))),
    }
}

/// Opens a recording at a moment of it, or a snapshot file where none is asked for.
///
/// # Errors
///
/// Also if a moment is asked for that a recording does not have, or of a file that is
/// none.
pub fn open_at(path: &Path, moment: Option<&Moment>) -> Result<Box<dyn Source>> {
    let mut source = open(path)?;
    let Some(moment) = moment else { return Ok(source) };
    let shown = path.display();
    match source.recording() {
        Some(recording) => {
            let place = recording.find(moment).with_context(|| shown.to_string())?;
            recording.seek(place);
            Ok(source)
        }
        None => bail!(
            "expected a recording to look for {moment} in, found that {shown} is a snapshot, of \
             one moment only; leave the moment out"
        ),
    }
}

/// Opens several files as one, each at its last moment or that which is asked for; with
/// `sum`, points of one name become one.
///
/// # Errors
///
/// As of [`open_at`]; also if two are of one process, or their clocks cannot be summed.
pub fn open_together(
    paths: &[PathBuf],
    sum: bool,
    moment: Option<&Moment>,
) -> Result<Box<dyn Source>> {
    let mut files = group::Files::default();
    for path in paths {
        let mut source = open_at(path, moment)?;
        let mut snapshot = source.poll()?;
        source.add_records(&mut snapshot);
        files.add(path, snapshot)?;
    }
    let together = Together { members: Members::Segments(files.ids()), sum };
    let mut group = group::Group::new(together, Box::new(files))?;
    let mut snapshot = group.poll()?;
    group.add_records(&mut snapshot);
    Ok(guarded(Box::new(FileSource::of(snapshot))))
}

/// Reads several files, each as [`read`] does, and sums them: points of one name become one.
///
/// # Errors
///
/// As of [`read`] and [`open_together`].
pub fn read_sum(paths: &[PathBuf], span: &Span) -> Result<Snapshot> {
    let mut files = group::Files::default();
    for path in paths {
        files.add(path, read(path, span, false)?)?;
    }
    let together = Together { members: Members::Segments(files.ids()), sum: true };
    guarded(Box::new(group::Group::new(together, Box::new(files))?)).poll()
}

/// A part of what a file tells: a recording has many moments, a snapshot but one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// When it begins; without it, when the process did.
    pub from: Option<Moment>,
    /// When it ends; without it, at the last moment.
    pub to: Option<Moment>,
}

/// Reads a file: all that was measured up to a moment, or between two. With the records
/// where they are wanted.
///
/// # Errors
///
/// As of [`open_at`]; also if the span has no time in it.
pub fn read(path: &Path, span: &Span, with_records: bool) -> Result<Snapshot> {
    let mut source = open_at(path, span.to.as_ref())?;
    let mut to = source.poll()?;
    if with_records {
        source.add_records(&mut to);
    }
    let Some(from) = &span.from else { return Ok(to) };
    let first = open_at(path, Some(from))?.poll()?;
    between(&first, to).with_context(|| {
        format!(
            "expected a moment behind {from} to look at what was measured since, found none in {}",
            path.display()
        )
    })
}

/// The moments that a recording is cut at, so that each part is about so long, from one
/// moment to another. What is left behind the last of them is too short.
///
/// # Errors
///
/// As of [`open_at`]; also if it is no recording, or shorter than one part.
pub fn read_parts(path: &Path, span: &Span, long: Duration) -> Result<Vec<Snapshot>> {
    let mut source = open_at(path, span.to.as_ref())?;
    let shown = path.display();
    let Some(recording) = source.recording() else {
        bail!("expected a recording to cut in parts, found that {shown} is a snapshot");
    };
    let last = recording.cursor();
    let first = match &span.from {
        Some(from) => recording.find(from).with_context(|| shown.to_string())?,
        None => 0,
    };
    let places = recording.cut(first, last, long);
    if places.len() < 2 {
        let found = recording.since_first(last).saturating_sub(recording.since_first(first));
        bail!(
            "expected at least {}s of {shown}, found {}s there",
            long.as_secs_f64(),
            found.as_secs_f64()
        );
    }
    let mut at = |place: usize| {
        if let Some(recording) = source.recording() {
            recording.seek(place);
        }
        source.poll()
    };
    places.into_iter().map(&mut at).collect()
}

/// Removes what processes that have ended left behind; returns one line for
/// each thing removed.
pub fn gc() -> Result<Vec<String>> {
    live::gc()
}
