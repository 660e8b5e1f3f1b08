//! Finds and watches the processes of this user, of other users, in containers and at other places,
//! and combines several processes into one source.

pub mod agent;
mod group;
mod newcomers;
mod residents;
mod rooms;
mod via;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;
use pfp_read::snapshot::BadPlace;
use pfp_read::source::{
    Candidate, Collecting, Discovery, Finder, ProcessGroup, Search, Source, attach, discover,
};

pub use group::files::{open_group, read_sum};
use newcomers::Newcomers;
pub use residents::{Whereabouts, whereabouts};
use rooms::Rooms;
pub use rooms::enter;
pub use via::{IN_TIME_FOR_COMMANDS, IN_TIME_FOR_SCREENS, Route};
use via::{PlacesFinder, RemoteFinder};

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
    /// The search in the background, for a screen.
    search: Option<Rc<RefCell<Search>>>,
}

impl Machine {
    /// Finds all processes that may be watched. With `keep`, points toggled in another user's
    /// process stay toggled if the connection to that user's agent is lost.
    #[must_use]
    pub fn all(keep: bool) -> Self {
        Self { rooms: Some(Rooms::new(keep)), ..Self::default() }
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

    /// Whether a search is made in the background, so that a screen does not wait for it.
    fn searches_in_background(&self) -> bool {
        self.search.is_some()
    }

    fn add_rooms(&self, discovery: &mut Discovery) {
        if let Some(rooms) = &self.rooms {
            rooms.add_to(discovery);
        }
    }
}

impl Finder for Machine {
    fn discover(&mut self) -> Result<Discovery> {
        let mut discovery = match &self.search {
            Some(search) => search.borrow_mut().found()?,
            None => discover()?,
        };
        self.add_rooms(&mut discovery);
        if let Some(collecting) = &self.collecting {
            collecting.note(&mut discovery);
        }
        Ok(discovery)
    }

    fn prepare(&mut self) {
        self.search.get_or_insert_default().borrow_mut().begin();
    }

    fn awaits(&mut self) -> bool {
        self.search.as_ref().is_some_and(|search| search.borrow_mut().is_under_way())
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        self.collecting = None;
        self.watch(candidate)
    }

    fn bad_places(&mut self) -> Vec<BadPlace> {
        self.rooms.as_ref().map(Rooms::bad_places).unwrap_or_default()
    }

    fn attach_group(
        &mut self,
        group: &ProcessGroup,
        interval: Option<Duration>,
    ) -> Result<Box<dyn Source>> {
        let collecting = || self.collecting.clone().unwrap_or_else(|| Rc::new(Collecting::start()));
        let collecting = group.is_open().then(collecting);
        let finder = Newcomers::new(Self { collecting, ..self.clone() });
        let group = attach_group_by(Box::new(finder), group, interval)?;
        self.collecting = None;
        Ok(group)
    }

    fn ready_for_screen(&mut self) {
        self.add_rooms(&mut Discovery::default());
    }

    fn let_go(&mut self, segment_id: &str) {
        if let Some(collecting) = &self.collecting {
            collecting.let_go(segment_id);
        }
    }
}

/// A finder of the processes of this machine, or of the places that commands lead to. With `keep`,
/// points toggled there stay toggled if the connection is lost. With several places, this waits
/// `in_time` at most, or longer if a command asks for a password. Places that have not answered by
/// then are connected in the background.
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

/// Attaches to several of the processes that this finder finds, as one. `interval` has the same
/// meaning as in [`Source::set_interval`].
pub fn attach_group_by(
    finder: Box<dyn Finder>,
    group: &ProcessGroup,
    interval: Option<Duration>,
) -> Result<Box<dyn Source>> {
    Ok(Box::new(group::GroupSource::new(group.clone(), finder, interval)?))
}
