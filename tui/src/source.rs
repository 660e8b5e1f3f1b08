//! Where snapshots come from: a process that runs, one that has ended, a file.
//!
//! A [`Source`] yields one [`Snapshot`] after the other and passes on what the user changes.
//! Nothing above this module knows which kind of source it watches, and nothing below it is
//! trusted. [`discover`], [`attach`] and [`open()`] are the only ways in; all that comes through
//! them has been put in order and made fit to show (see [`crate::text`]).

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

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub use choice::{Choice, Wanted, choose};
pub use collecting::Collecting;
pub use file::FileSource;
pub use group::{ProcessGroup, Selector};
pub use live::{Lost, announced, attach, discover, gc};
pub(crate) use namespaces::{effective_user, is_own};
use newcomers::Newcomers;
pub use residents::{Whereabouts, whereabouts};
use rooms::Rooms;
pub use rooms::enter;
pub use via::{IN_TIME_FOR_COMMANDS, IN_TIME_FOR_SCREENS, Route};
use via::{Places, Via};
pub use which::Which;

pub use crate::files::Refusal;
use crate::files::json::Existing;
pub use crate::files::recording::{Moment, Recording};
pub use crate::snapshot::BadPlace;
use crate::snapshot::{Drained, End, PointState, Snapshot};
use crate::summing::Sight;
pub use discovery::{Candidate, Discovery, Refused};
pub use open::{Span, open, open_at, open_group, read, read_parts, read_steps, read_sum};

/// A watched process, or what is left of one.
pub trait Source {
    /// Takes the next snapshot, as it comes: [`Self::poll`] puts it in order.
    ///
    /// A process that has ended is no error: its last figures come with the
    /// state that says so, as often as asked.
    fn picture(&mut self) -> Result<Snapshot>;

    /// Takes the next snapshot. Whatever the source yields, it keeps the promises of
    /// [`crate::snapshot`].
    fn poll(&mut self) -> Result<Snapshot> {
        let mut snapshot = self.picture()?;
        guard::clean_snapshot(&mut snapshot);
        Ok(snapshot)
    }

    /// Says what is looked at from now on, so that a remote source sends only that. A source that
    /// is never told sends everything.
    fn look_at(&mut self, _looking: Looking) {}

    /// Prepares the next poll. It is called for all sources of several before the first is polled.
    fn prepare(&mut self) {}

    /// Whether the process has certainly ended although no snapshot says so, since its segment
    /// cannot be read. Asked when [`Self::poll`] has failed.
    fn has_died(&self) -> bool {
        false
    }

    /// How the process ended, if that is known. Asked when [`Self::has_died`] says so.
    fn end(&self) -> Option<End> {
        None
    }

    /// Whether its first snapshot is still to come: asked when [`Self::poll`] has failed.
    fn is_coming(&self) -> bool {
        false
    }

    /// Whether the picture that the last [`Self::poll`] asked for is still to come, over a slow line.
    fn is_pending(&self) -> bool {
        false
    }

    /// Adds the last finished measurements to a snapshot of this source, as they were then. They
    /// are many, and only files want them.
    fn add_records(&mut self, _snapshot: &mut Snapshot) {}

    /// The stacks of open points, outermost first, by the lane's id, for each thread in any region.
    /// None where only [`Self::poll`] can say. It takes microseconds, and may be asked many times
    /// between two polls.
    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        None
    }

    /// The records that the rings hold from a number on, up to the moment of a snapshot that this
    /// source has just yielded. `from` maps a lane's id to that number. Lanes without new records
    /// are left out.
    fn new_records(&mut self, _snapshot: &Snapshot, _from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        Vec::new()
    }

    /// The recording, if this is one.
    fn recording(&mut self) -> Option<&mut Recording> {
        None
    }

    /// Copies the process's segment to a file, whole or not at all; compressed if the name ends in
    /// `.zst`.
    fn save_raw(&mut self, _path: &Path, _existing: Existing) -> io::Result<()> {
        let why = "expected one process, which has a segment to copy; found a file, or several \
                   processes: choose one with -p PID";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Carries out a change in the process. Returns the state to put back of a point that was
    /// switched, where it is known. An error says in words for the user why it failed.
    fn act(&mut self, _change: Change) -> Result<Option<PointState>> {
        bail!("{}", self.read_only().unwrap_or("nothing can be changed here"))
    }

    /// Whether this is a process, running or ended, and not a file.
    fn is_process(&self) -> bool {
        true
    }

    /// Why the process can be watched but not changed; none where it can be changed.
    fn read_only(&self) -> Option<&str> {
        None
    }

    /// The line to another place over which its pictures come; none for this machine.
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
    /// The parts of each snapshot that are enough.
    pub sight: Sight,
    /// The lanes whose records are looked at; none for all.
    pub lanes: Option<Vec<u32>>,
    /// The next poll comes within this time; none where that is unknown.
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
    /// The greatest age that the last picture may have.
    pub age: Duration,
}

/// Something the user wants changed in the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Let this point measure; an invalid one becomes valid.
    Enable(u32),
    /// Stop this point from measuring.
    Disable(u32),
    /// Start this point's figures afresh.
    Reset(u32),
    /// Set alpha of this point's EWMA, in (0, 1]; none switches it off.
    SetAlpha(u32, Option<f64>),
    /// Have this point's stamps wait for the work before them, or stop that.
    Fence(u32, bool),
}

/// Finds processes and attaches to them. The viewer asks one of these rather
/// than the machine, so that it can be tested without processes.
pub trait Finder {
    /// Looks for processes.
    fn discover(&mut self) -> Result<Discovery>;
    /// Attaches to one of those found.
    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>>;
    /// Attaches to several, as one. A group's own finder is not asked for this.
    fn attach_group(&mut self, _group: &ProcessGroup) -> Result<Box<dyn Source>> {
        bail!("expected one process to watch, found several")
    }
    /// The names of the places that it looks in, where there are several.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }
    /// Places that cannot be asked now, where there are several.
    fn bad_places(&mut self) -> Vec<BadPlace> {
        Vec::new()
    }
    /// Name and id of the program that was started for this viewer, while it runs.
    fn program(&mut self) -> Option<String> {
        None
    }
    /// Gives up the segment of a process that has ended and that nobody will ask for again.
    fn let_go(&mut self, _segment_id: &str) {}
}

/// Finds the processes of this machine that this user may watch: their own and, where they have the
/// right, processes of other users and in containers.
#[derive(Clone, Default)]
pub struct Machine {
    /// None where only this user's own processes are wanted.
    rooms: Option<Rooms>,
    /// Keeps processes that end between two looks; none once something is watched.
    collecting: Option<Rc<Collecting>>,
}

impl Machine {
    /// Finds all processes that may be watched. With `keep`, points toggled in another user's
    /// process stay as they are when that agent is lost.
    #[must_use]
    pub fn all(keep: bool) -> Self {
        Self { rooms: Some(Rooms::new(keep)), collecting: None }
    }

    /// Finds all processes from now on, including those that end between two looks; `keep` as for
    /// [`Self::all`].
    #[must_use]
    pub fn from_now_on(keep: bool) -> Self {
        Self { collecting: Some(Rc::new(Collecting::start())), ..Self::all(keep) }
    }

    fn watch(&self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let elsewhere = self.rooms.as_ref().and_then(|rooms| rooms.attach(candidate));
        elsewhere.unwrap_or_else(|| attach(candidate))
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
        if let Some(collecting) = &self.collecting {
            collecting.note(&mut discovery);
        }
        Ok(discovery)
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        self.collecting = None;
        self.watch(candidate)
    }

    fn bad_places(&mut self) -> Vec<BadPlace> {
        self.rooms.as_ref().map(Rooms::bad_places).unwrap_or_default()
    }

    fn attach_group(&mut self, group: &ProcessGroup) -> Result<Box<dyn Source>> {
        let collecting = || self.collecting.clone().unwrap_or_else(|| Rc::new(Collecting::start()));
        let collecting = group.is_open().then(collecting);
        let finder = Newcomers::new(Self { collecting, ..self.clone() });
        let group = attach_group_by(Box::new(finder), group)?;
        self.collecting = None;
        Ok(group)
    }

    fn let_go(&mut self, segment_id: &str) {
        if let Some(collecting) = &self.collecting {
            collecting.let_go(segment_id);
        }
    }
}

/// Finds the processes of this machine, or of the places that commands lead to. With `keep`, points
/// toggled there stay as they are when the line is lost. Of several places, those that do not open
/// in time are opened in the background.
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

/// A finder of this machine's processes that is cheap to ask again and again: it finds nothing
/// until a new process has announced itself.
pub fn newcomers() -> Box<dyn Finder> {
    Box::new(Newcomers::new(Machine::all(false)))
}

/// Attaches to several of the processes that this finder finds, as one.
pub fn attach_group_by(finder: Box<dyn Finder>, group: &ProcessGroup) -> Result<Box<dyn Source>> {
    Ok(Box::new(group::Group::new(group.clone(), finder)?))
}

/// Changes one thing after the other. A change that only some processes follow does not stop the
/// next.
///
/// # Errors
///
/// The first change that no process follows, else the first that only some follow.
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
