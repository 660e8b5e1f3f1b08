//! Sources of snapshots: running processes, ended processes, and files.
//!
//! A [`Source`] yields successive [`Snapshot`]s and passes on the user's changes. The modules above
//! this one do not depend on the kind of source, and data from below is not trusted. [`discover`],
//! [`attach`] and [`open()`] are the only entry points; everything that they return is validated
//! and safe to show (see [`pfp_read::text`]).

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
pub use live::{LostSegment, announced, attach, discover, gc};
pub(crate) use namespaces::{effective_user, is_own};
use newcomers::Newcomers;
pub use residents::{Whereabouts, whereabouts};
use rooms::Rooms;
pub use rooms::enter;
pub use via::{IN_TIME_FOR_COMMANDS, IN_TIME_FOR_SCREENS, Route};
use via::{PlacesFinder, RemoteFinder};
pub use which::Which;

pub use pfp_read::files::Refusal;
use pfp_read::files::json::Existing;
pub use pfp_read::files::recording::{Moment, Recording};
pub use pfp_read::snapshot::BadPlace;
use pfp_read::snapshot::{Drained, End, PointState, Snapshot};
pub use discovery::{Candidate, Discovery, Refused};
pub use open::{Span, open, open_at, open_group, read, read_parts, read_steps, read_sum};

/// A watched process, or what is left of one after its end.
pub trait Source {
    /// Takes the next snapshot, not yet validated: use [`Self::poll`].
    ///
    /// The end of a process is not an error: every later call returns its last figures, with a
    /// state that shows the end.
    fn picture(&mut self) -> Result<Snapshot>;

    /// Takes the next snapshot, and corrects whatever violates the guarantees that
    /// [`pfp_read::snapshot`] states.
    fn poll(&mut self) -> Result<Snapshot> {
        let mut snapshot = self.picture()?;
        guard::clean_snapshot(&mut snapshot);
        Ok(snapshot)
    }

    /// Sets the maximum time until the next poll. `None`, as without a call, is for a command: it
    /// has no screen that a long wait would block.
    fn set_interval(&mut self, _within: Option<Duration>) {}

    /// Requests the next picture, if the source is remote, so that its poll need not wait as long.
    /// With several sources, this is called for all of them before the first is polled.
    fn prepare(&mut self) {}

    /// Whether the process has certainly ended, but no snapshot shows that, because its segment
    /// cannot be read. To be called when [`Self::poll`] has failed.
    fn has_died(&self) -> bool {
        false
    }

    /// How the process ended, if known. To be called when [`Self::has_died`] returns true.
    fn end(&self) -> Option<End> {
        None
    }

    /// Whether the source has yielded no snapshot yet, but is expected to. To be called when
    /// [`Self::poll`] has failed.
    fn is_coming(&self) -> bool {
        false
    }

    /// Adds the last finished measurements to a snapshot of this source, as they were at its
    /// moment. They are many, and only files and the timeline need them.
    fn add_records(&mut self, _snapshot: &mut Snapshot) {}

    /// The stacks of open points, outermost first, by the lane's id, for each thread in any region.
    /// `None` if only [`Self::poll`] can read them. A call takes microseconds and may be made many
    /// times between two polls.
    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        None
    }

    /// The records of the rings from a number on, up to the moment of a snapshot that this source
    /// has just yielded. `from` maps a lane's id to that number. Lanes without new records are left
    /// out.
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

    /// Makes a change in the process. If it switched a point, returns the state to restore later,
    /// if known. An error explains to the user why it failed.
    fn act(&mut self, _change: Change) -> Result<Option<PointState>> {
        bail!("{}", self.read_only().unwrap_or("nothing can be changed here"))
    }

    /// Whether the source is a process, running or ended, and not a file.
    fn is_process(&self) -> bool {
        true
    }

    /// Why the process can be watched but not changed. `None` if it can be changed.
    fn read_only(&self) -> Option<&str> {
        None
    }

    /// The line over which its pictures come from another place, such as another machine. `None`
    /// for this machine.
    fn line(&self) -> Option<LineStatus> {
        None
    }

    /// The places that deliver no new pictures, if the source has processes at several places.
    fn bad_places(&self) -> Vec<BadPlace> {
        Vec::new()
    }
}

/// A line to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineStatus {
    /// The command that leads there.
    pub via: String,
    /// Age of the last picture, if the next one is overdue.
    pub late: Option<Duration>,
    /// Why no picture arrives, if known.
    pub why: Option<String>,
    /// Maximum age of the last picture.
    pub age: Duration,
}

/// A change in the process.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Change {
    /// Switch this point on; an invalid one becomes valid.
    Enable(u32),
    /// Switch this point off.
    Disable(u32),
    /// Reset this point's figures.
    Reset(u32),
    /// Set alpha of this point's EWMA, in (0, 1]. `None` switches the EWMA off.
    SetAlpha(u32, Option<f64>),
    /// Make this point's begins and ends wait until the instructions before them have finished, or
    /// not any more.
    Fence(u32, bool),
}

/// Finds processes and attaches to them. The viewer uses this interface and not the machine itself,
/// so that it can be tested without processes.
pub trait Finder {
    /// Looks for processes.
    fn discover(&mut self) -> Result<Discovery>;
    /// Attaches to a process that was found.
    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>>;
    /// Attaches to several processes as one. A finder that only a group uses needs no
    /// implementation, since a group attaches to its members one by one.
    fn attach_group(&mut self, _group: &ProcessGroup) -> Result<Box<dyn Source>> {
        bail!("expected one process to watch, found several")
    }
    /// The names of the places that it searches, if there are several.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }
    /// Places that cannot be reached now, if there are several.
    fn bad_places(&mut self) -> Vec<BadPlace> {
        Vec::new()
    }
    /// Name and id of the program that was started for this viewer, while it runs.
    fn program(&mut self) -> Option<String> {
        None
    }
    /// Allows the finder to remove the segment of an ended process, which has been read for the
    /// last time.
    fn let_go(&mut self, _segment_id: &str) {}
}

/// Finds the processes of this machine that this user may watch: the user's own and, with
/// sufficient rights, those of other users and in containers.
#[derive(Clone, Default)]
pub struct Machine {
    /// The agents for other users and containers of this machine (see [`rooms`]). `None` to find
    /// only this user's own processes.
    rooms: Option<Rooms>,
    /// Makes processes that end between two searches leave their segments. `None` once a process is
    /// watched.
    collecting: Option<Rc<Collecting>>,
}

impl Machine {
    /// Finds all processes that may be watched. With `keep`, points toggled in another user's
    /// process stay toggled if the connection to that user's agent is lost.
    #[must_use]
    pub fn all(keep: bool) -> Self {
        Self { rooms: Some(Rooms::new(keep)), collecting: None }
    }

    /// Finds all processes from now on, including those that end between two searches. `keep` has
    /// the same meaning as in [`Self::all`].
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

/// A finder of the processes of this machine, or of the places that commands lead to. With `keep`,
/// points toggled there stay toggled if the line is lost. With several places, this returns after
/// `in_time`, and the lines to places that have not answered continue to open in the background.
///
/// # Errors
///
/// If none of the commands leads to an agent.
pub fn finder(via: &[Route], keep: bool, in_time: Duration) -> Result<Box<dyn Finder>> {
    Ok(match via {
        [] => Box::new(Machine::all(keep)),
        [one] => Box::new(RemoteFinder::open(one, keep)?),
        several => Box::new(PlacesFinder::open(several, keep, in_time)?),
    })
}

/// A finder of this machine's processes that is cheap to call repeatedly: it finds nothing until a
/// new process has announced itself.
pub fn newcomers() -> Box<dyn Finder> {
    Box::new(Newcomers::new(Machine::all(false)))
}

/// Attaches to several of the processes that this finder finds, as one.
pub fn attach_group_by(finder: Box<dyn Finder>, group: &ProcessGroup) -> Result<Box<dyn Source>> {
    Ok(Box::new(group::GroupSource::new(group.clone(), finder)?))
}

/// Makes several changes. A change that only some processes carry out does not stop the next.
///
/// # Errors
///
/// The first error of a change that no process carried out, else the first of one that only some
/// carried out.
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
