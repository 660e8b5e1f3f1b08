//! Sources of snapshots: running processes, ended processes, and files.
//!
//! A [`Source`] yields successive [`Snapshot`]s and passes on the user's changes. Modules that use
//! a source do not depend on its kind. Data from processes and files is not trusted. [`discover`],
//! [`attach`] and [`open()`] are the only entry points; everything that they return is validated
//! and safe to show (see [`crate::text`]).

pub(crate) mod address;
mod choice;
mod collecting;
pub mod discovery;
mod file;
pub mod guard;
mod live;
pub mod namespaces;
mod open;
mod place;
mod process_group;
mod recording;
mod search;
mod symbol;
pub mod synthetic;
mod usage;
mod which;

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

pub use choice::{Choice, Wanted, choose};
pub use collecting::Collecting;
pub use file::FileSource;
pub use live::{LostSegment, RawCopy, announced, attach, discover, gc};
pub use process_group::{ProcessGroup, Selector};
pub use search::Search;
pub use which::Which;

pub use crate::files::Refusal;
pub use crate::files::recording::{Frames, Growth, Moment, ReadingJob, Recording};
pub use crate::snapshot::BadPlace;
use crate::snapshot::{Drained, End, Limit, PointFlag, PointState, Snapshot};
use crate::waits::WaitNeeds;
pub use discovery::{Candidate, Discovery, Refused};
pub use open::{open, open_at};

/// A watched process, or what is left of one after its end.
pub trait Source {
    /// Takes the next snapshot, not yet validated: use [`Self::poll`].
    ///
    /// The end of a process is not an error: every later call returns its last figures, with a
    /// state that shows the end.
    fn picture(&mut self) -> Result<Snapshot>;

    /// Takes the next snapshot, and corrects whatever violates the guarantees that
    /// [`crate::snapshot`] states.
    fn poll(&mut self) -> Result<Snapshot> {
        let mut snapshot = self.picture()?;
        guard::clean_snapshot(&mut snapshot);
        Ok(snapshot)
    }

    /// Sets the maximum time until the next poll. `None`, the default, means that the caller is a
    /// subcommand without a screen, so that a poll may wait longer.
    fn set_interval(&mut self, _within: Option<Duration>) {}

    /// Requests the next picture, if the source is remote, so that the next poll need not wait as
    /// long. With several sources, this is called for all of them before the first is polled.
    fn prepare(&mut self) {}

    /// Takes a snapshot of a moment after this call. Unlike [`Self::poll`], waits for figures that
    /// are on their way, for up to a second. Not for use with a screen.
    fn poll_now(&mut self) -> Result<Snapshot> {
        let mut next = || {
            self.prepare();
            let until = Instant::now() + Duration::from_millis(500);
            while self.awaits() && Instant::now() < until {
                thread::sleep(Duration::from_millis(5));
            }
            self.poll()
        };
        // Figures that were requested before this call are of an earlier moment.
        next().and_then(|_| next())
    }

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

    /// Whether the figures that [`Self::prepare`] has requested are still on their way, so that
    /// [`Self::poll`] would return the last snapshot again, or fail without one; or whether a
    /// requested change has no answer yet. Never waits. False for a source that delivers at once,
    /// and if the connection is lost.
    fn awaits(&mut self) -> bool {
        false
    }

    /// Adds the last finished measurements to a snapshot of this source, as they were at the
    /// snapshot's moment. The measurements are many, and only files and the timeline need them.
    fn add_records(&mut self, _snapshot: &mut Snapshot) {}

    /// Whether [`Self::add_records`] has left out records of this snapshot that are on their way,
    /// so that a later call adds them. Never waits.
    fn awaits_records(&self, _snapshot: &Snapshot) -> bool {
        false
    }

    /// Samples from now on what the threads wait for, as far as `needs` says, for the next
    /// [snapshots](Snapshot::waits). Nothing is sampled before the first call.
    fn need_waits(&mut self, _needs: WaitNeeds) {}

    /// For each thread that is in a region: the id of its lane, and the ids of its open points,
    /// outermost first. `None` if only [`Self::poll`] can read them. A call takes microseconds and
    /// may be made many times between two polls.
    fn open_stacks(&mut self) -> Option<Vec<(u32, Vec<u32>)>> {
        None
    }

    /// Id of the running process in our `/proc`. `None` if it has ended, or has no id there.
    fn pid_here(&self) -> Option<u32> {
        None
    }

    /// For each lane, the records of its ring from a number on, up to the moment of a snapshot that
    /// this source has just yielded. `from` maps the lane's id to that number. Lanes without such
    /// records are left out.
    fn new_records(&mut self, _snapshot: &Snapshot, _from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        Vec::new()
    }

    /// The recording, if the source is one.
    fn recording(&mut self) -> Option<&mut Recording> {
        None
    }

    /// Copies the process's segment.
    fn copy_raw(&mut self) -> io::Result<RawCopy> {
        let why = "expected one process, which has a segment to copy; found a file, or several \
                   processes: choose one with -p PID";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// Makes a change in the process, or requests it from another place. A source with an interval
    /// (see [`Self::set_interval`]) never waits for the answer. An error explains to the user why
    /// the change failed.
    fn act(&mut self, _change: Change) -> Result<Acted> {
        bail!("{}", self.read_only().unwrap_or("nothing can be changed here"))
    }

    /// The answers to requested changes that have arrived since the last call, and the errors of
    /// requests that will never be answered. After a poll that shows a requested change, the answer
    /// is there. Never waits.
    fn answers(&mut self) -> Vec<ChangeAnswer> {
        Vec::new()
    }

    /// Whether the source is a process, running or ended, and not a file.
    fn is_process(&self) -> bool {
        true
    }

    /// Why the process can be watched but not changed. `None` if it can be changed.
    fn read_only(&self) -> Option<&str> {
        None
    }

    /// The state of the connection, if pictures come from another place, such as another machine.
    /// `None` for this machine.
    fn line(&self) -> Option<LineStatus> {
        None
    }

    /// The places that deliver no new pictures, if the source has processes at several places.
    fn bad_places(&self) -> Vec<BadPlace> {
        Vec::new()
    }
}

/// The state of the connection to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineStatus {
    /// The user's command that opens the connection, or a name of the place.
    pub via: String,
    /// Age of the last picture, if the next one is overdue.
    pub late: Option<Duration>,
    /// Why no picture arrives, if known.
    pub why: Option<String>,
    /// Time since the last picture was requested, so its figures are at most this old.
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
    /// Set or clear a flag of this point.
    SetFlag(u32, PointFlag, bool),
    /// Set the time from which on this point's calls are kept, or remove it.
    SetLimit(u32, Option<Limit>),
}

impl Change {
    /// Id of the point that the change is about.
    pub fn point(self) -> u32 {
        let (Self::Enable(id)
        | Self::Disable(id)
        | Self::Reset(id)
        | Self::SetAlpha(id, _)
        | Self::SetFlag(id, ..)
        | Self::SetLimit(id, _)) = self;
        id
    }
}

/// The result of a change that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acted {
    /// The change was made. If it switched a point: the state to restore later, if known.
    Made(Option<PointState>),
    /// The change was requested from another place. [`Source::answers`] will return the answer.
    Requested,
}

/// The answer to a change that was requested from another place.
#[derive(Debug)]
pub struct ChangeAnswer {
    /// The change.
    pub change: Change,
    /// Why the change failed, or the state to restore later as in [`Acted::Made`].
    pub result: Result<Option<PointState>>,
}

/// Finds processes and attaches to them. The viewer uses this interface and not the machine itself,
/// so that it can be tested without processes.
pub trait Finder {
    /// Looks for processes.
    fn discover(&mut self) -> Result<Discovery>;
    /// Attaches to a process that was found.
    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>>;
    /// Attaches to several processes as one. `interval` has the same meaning as in
    /// [`Source::set_interval`]. A finder that only a group uses needs no implementation, since a
    /// group attaches to its members one by one.
    fn attach_group(
        &mut self,
        _group: &ProcessGroup,
        _interval: Option<Duration>,
    ) -> Result<Box<dyn Source>> {
        bail!("expected one process to watch, found several")
    }
    /// The names of the places that the finder searches, if there are several.
    fn places(&self) -> Vec<String> {
        Vec::new()
    }
    /// Searches once, and waits as long as it takes to connect to other places, such as other
    /// machines. From then on, no call waits for a connection. To be called before there is a
    /// screen.
    fn ready_for_screen(&mut self) {}

    /// Begins a search in the background, whose result a later [`Self::discover`] returns. A screen
    /// calls this before each of its searches, and no search waits from then on.
    fn prepare(&mut self) {}

    /// Whether the search that [`Self::prepare`] has begun still runs, so that [`Self::discover`]
    /// would return the last result again. Never waits.
    fn awaits(&mut self) -> bool {
        false
    }

    /// Places that cannot be reached now, if there are several.
    fn bad_places(&mut self) -> Vec<BadPlace> {
        Vec::new()
    }
    /// Name and id of the program that was started for this viewer, while it runs.
    fn program(&mut self) -> Option<String> {
        None
    }
    /// Allows the finder to remove the segment of an ended process, after the segment has been read
    /// for the last time.
    fn let_go(&mut self, _segment_id: &str) {}
}

/// Makes several changes. A change that only some processes carry out does not stop the next.
///
/// # Errors
///
/// The first error of a change that no process carried out. Without such a change, the first error
/// of a change that only some processes carried out.
pub fn change_each<T>(
    each: impl IntoIterator<Item = T>,
    mut change: impl FnMut(T) -> Result<()>,
) -> Result<()> {
    let mut partly = Ok(());
    for one in each {
        match change(one) {
            Err(error) if Refusal::is_partly(&error) => partly = partly.and(Err(error)),
            result => result?,
        }
    }
    partly
}
