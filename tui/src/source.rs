//! Where snapshots come from: a process that runs, one that has ended, a file.
//!
//! A [`Source`] yields one [`Snapshot`] after the other and passes on what the
//! user changes. Nothing above this module knows which kind it watches, and
//! nothing below it is trusted: [`discover`], [`attach`] and [`open()`] are the
//! only ways in, and all that comes through them has been made fit to show
//! (see [`crate::text`]) and put in order.

mod choice;
mod collecting;
mod discovery;
mod file;
mod group;
mod guard;
mod live;
mod namespaces;
mod newcomers;
mod open;
mod place;
mod recording;
mod residents;
mod rooms;
mod symbol;
pub mod synthetic;
mod usage;
pub(crate) mod via;
mod which;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use serde::{Deserialize, Serialize};

pub use choice::{Choice, Wanted, choose};
pub use collecting::{Collecting, EveryProcess};
pub use file::FileSource;
pub use group::{ProcessGroup, Selector};
pub use guard::guarded;
pub use residents::{Whereabouts, whereabouts};
use rooms::Rooms;
pub use rooms::enter;
pub use via::{IN_TIME_FOR_COMMANDS, IN_TIME_FOR_SCREENS, Route};
use via::{Places, Via};
pub use which::Which;

pub use crate::files::Refusal;
use crate::files::json::{Overwrite, WriteError};
pub use crate::files::recording::{Moment, Recording};
pub use crate::snapshot::BadPlace;
use crate::snapshot::{Drained, Snapshot};
use crate::summing::Sight;
pub use discovery::{Candidate, Discovery, Refused};
pub use open::{Span, open, open_at, open_group, read, read_parts, read_sum};

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

/// Finds processes and attaches to them. The viewer asks one of these rather
/// than the machine, so that it can be tested without processes.
pub trait Finder {
    /// Looks for processes.
    fn discover(&mut self) -> Result<Discovery>;
    /// Attaches to one of those found.
    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>>;
    /// Attaches to several, as one.
    fn attach_group(&mut self, group: &ProcessGroup) -> Result<Box<dyn Source>>;
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

    fn attach_group(&mut self, group: &ProcessGroup) -> Result<Box<dyn Source>> {
        EveryProcess::of(self.clone()).attach_group(group)
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
pub fn attach_group_by(finder: Box<dyn Finder>, group: &ProcessGroup) -> Result<Box<dyn Source>> {
    Ok(guarded(Box::new(group::Group::new(group.clone(), finder)?)))
}

/// Changes one thing after the other. One that only some processes follow keeps nobody from the
/// next.
///
/// # Errors
///
/// As the first that is not done at all, and else as the first that only some follow.
pub fn change_each<'a>(
    ids: impl IntoIterator<Item = &'a u32>,
    mut change: impl FnMut(&u32) -> Result<()>,
) -> Result<()> {
    let mut partly = Ok(());
    for id in ids {
        match change(id) {
            Err(error) if Refusal::is_partly(&error) => partly = partly.and(Err(error)),
            result => result?,
        }
    }
    partly
}

/// Removes what processes that have ended left behind; returns one line for
/// each thing removed.
pub fn gc() -> Result<Vec<String>> {
    live::gc()
}
