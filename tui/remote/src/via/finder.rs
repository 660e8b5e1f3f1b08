//! Finds the processes of another place.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::agent::{ANSWER_TIMEOUT, AgentProcess, SILENT, StartHandle};
use super::far::{Connection, ConnectionState, PendingRequest};
use super::remote::{RemoteSource, Target};
use super::way::{AgentCommand, Route, at};
use super::wire::{Answer, Ask, Unpacker};
use pfp_read::source::guard::{clean_discovery, clean_places};
use pfp_read::source::{BadPlace, Candidate, Discovery, Finder, ProcessGroup, Refusal, Source};
use pfp_read::waits::WaitNeeds;

/// How long the first search for processes waits for each place.
const TO_FIND: Duration = Duration::from_secs(3);
/// Maximum length of each list in a place's [`Discovery`].
const MAX_FOUND: usize = 4096;

/// Finds the processes of another place.
pub(crate) struct RemoteFinder {
    far: Rc<RefCell<Connection>>,
    /// The place's name. `None` if it is the only place.
    pub(super) place: Option<String>,
    /// Whether the place is one of several to which commands lead. The clocks of several places may
    /// differ, so ticks are converted to nanoseconds.
    is_elsewhere: bool,
    /// A pending request for the processes.
    asked: Option<PendingRequest>,
    /// The last answer.
    found: Option<Discovery>,
    /// Deadline for waiting for the first answer.
    pub(super) until: Instant,
    /// Whether there is a screen, which waits for no answer.
    never_waits: bool,
}

impl RemoteFinder {
    /// Starts an agent by this command, and waits for it. With `keep`, toggled points stay toggled
    /// if the line is lost.
    ///
    /// # Errors
    ///
    /// If there is no agent of this version.
    pub(crate) fn open(route: &Route, keep: bool) -> Result<Self> {
        let way = AgentCommand::through(route);
        let agent = AgentProcess::open(&way, keep, true, &StartHandle::default())?;
        Ok(Self::of(Connection::of(way, keep, Ok(agent)), None, false))
    }

    /// Starts an agent in another room of this machine, without waiting for it. The room's name is
    /// added to the names of its processes. With `may_wait`, the first search waits for the answer.
    pub(crate) fn of_room(way: AgentCommand, keep: bool, may_wait: bool) -> Self {
        let name = way.name.clone();
        let mut via = Self::of(Connection::opening(way, keep), Some(name), false);
        if !may_wait {
            via.until = Instant::now();
        }
        via
    }

    pub(super) fn of(far: Connection, place: Option<String>, is_elsewhere: bool) -> Self {
        let far = Rc::new(RefCell::new(far));
        let until = Instant::now() + TO_FIND;
        let never_waits = false;
        Self { far, place, is_elsewhere, asked: None, found: None, until, never_waits }
    }

    /// This place, if it cannot be reached now.
    pub(crate) fn bad_place(&self) -> Option<BadPlace> {
        let mut far = self.far.borrow_mut();
        let (since, why) = far.bad()?;
        let name = self.place.clone().unwrap_or_else(|| far.way.name.clone());
        clean_places(vec![BadPlace { name, age: since.elapsed(), why }]).pop()
    }

    /// A message while its agent has not answered yet. `None` afterwards.
    pub(super) fn still_opening(&self) -> Option<String> {
        let far = self.far.borrow();
        let is_opening = matches!(far.state, ConnectionState::Opening(_, None));
        is_opening.then(|| {
            let late = far.down_since.elapsed().as_secs();
            format!("{}: expected an agent, found none for {late} s", far.way.name)
        })
    }

    /// Whether a process at the place is watched.
    pub(crate) fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.far) > 1
    }

    /// Requests the processes there, unless a request for them is pending.
    pub(super) fn ask(&mut self) -> Result<PendingRequest> {
        let mut far = self.far.borrow_mut();
        // An answer over a lost line never arrives.
        let asked = match self.asked.filter(|asked| asked.opened == far.opened) {
            Some(asked) => asked,
            None => far.ask(Ask::Discover)?,
        };
        Ok(*self.asked.insert(asked))
    }

    /// Requests the processes there and returns them, or `None` if the answer has not arrived yet.
    /// Waits only for the first answer.
    pub(crate) fn look(&mut self) -> Result<Option<Discovery>> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        {
            let mut far = self.far.borrow_mut();
            far.wait_until_open(left(self.until));
            if matches!(far.state, ConnectionState::Opening(_, None)) {
                return Ok(None);
            }
        }
        let asked = self.ask()?;
        let timeout = if self.found.is_none() { left(self.until) } else { Duration::ZERO };
        self.take(asked, timeout)
    }

    /// The processes there, if the answer arrives in time.
    fn take(&mut self, asked: PendingRequest, timeout: Duration) -> Result<Option<Discovery>> {
        let mut far = self.far.borrow_mut();
        let mut discovery = match far.answer(asked, timeout) {
            Ok(None) if asked.since.elapsed() >= SILENT => return Err(far.silence(asked)),
            Ok(None) => return Ok(None),
            Ok(Some((Answer::Found(discovery), _))) => discovery,
            other => {
                self.asked = None;
                other?;
                bail!("{}: expected a list of processes, found another message", far.way.name);
            }
        };
        self.asked = None;
        discovery.via = Some(far.way.name.clone());
        for candidate in &mut discovery.candidates {
            candidate.place.clone_from(&self.place);
            if let Some(place) = &self.place {
                candidate.name = at(&candidate.name, place);
            }
        }
        bound(&mut discovery);
        clean_discovery(&mut discovery);
        self.found = Some(discovery.clone());
        Ok(Some(discovery))
    }

    /// Watches a process or several, without waiting for the answer. If the agent refuses, the
    /// first poll returns the error.
    fn watch(&self, target: Target) -> Result<RemoteSource> {
        let far = Rc::clone(&self.far);
        let id = far.borrow().next;
        far.borrow_mut().next += 1;
        let mut remote = RemoteSource {
            far,
            place: self.place.clone(),
            is_elsewhere: self.is_elsewhere,
            unpacker: Unpacker::new()?,
            interval: None,
            waits: WaitNeeds::Nothing,
            rings: HashMap::new(),
            scale: None,
            missed: 0,
            id,
            target,
            opened: 0,
            attaching: None,
            asked: None,
            asked_for_records: None,
            unsent: Vec::new(),
            acts: VecDeque::new(),
            last: None,
            is_base: false,
            came: Instant::now(),
            pictured: Instant::now(),
            read_only: None,
            has_died: false,
        };
        remote.attach()?;
        Ok(remote)
    }

    /// Watches a process, without waiting for the line.
    pub(crate) fn watch_later(&self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        Ok(Box::new(self.watch(Target::One(candidate.segment_id.clone()))?))
    }

    fn watch_in_time(&self, target: Target) -> Result<Box<dyn Source>> {
        let mut remote = self.watch(target)?;
        if !self.never_waits {
            remote.wait_until_attached()?;
        }
        Ok(Box::new(remote))
    }
}

/// Limits the length of an answer's lists.
fn bound(discovery: &mut Discovery) {
    let found = discovery.candidates.len();
    discovery.candidates.truncate(MAX_FOUND);
    discovery.searched.truncate(MAX_FOUND);
    discovery.refused.truncate(MAX_FOUND);
    if found > MAX_FOUND {
        let why =
            format!("expected at most {MAX_FOUND} processes, found {found}: the rest is left out");
        discovery.refuse(None, Refusal::NoTarget(why));
    }
}

impl Finder for RemoteFinder {
    fn discover(&mut self) -> Result<Discovery> {
        let asked = self.ask()?;
        let timeout = match (self.never_waits, &self.found) {
            (true, _) => Duration::ZERO,
            (false, None) => TO_FIND,
            (false, Some(_)) => ANSWER_TIMEOUT,
        };
        match (self.take(asked, timeout)?, &self.found) {
            (Some(found), _) => Ok(found),
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => Err(self.far.borrow().silence(asked)),
        }
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        self.watch_in_time(Target::One(candidate.segment_id.clone()))
    }

    fn attach_group(
        &mut self,
        group: &ProcessGroup,
        _: Option<Duration>,
    ) -> Result<Box<dyn Source>> {
        self.watch_in_time(Target::Several(group.clone()))
    }

    fn ready_for_screen(&mut self) {
        // If the search fails, the screen's own searches report the error.
        let _ = self.discover();
        self.never_waits = true;
    }
}
