//! A source of pictures of one or several processes at another place.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use pfp_shm_layout::geometry::RING_SLOTS;

use super::agent::{ANSWER_TIMEOUT, SILENT};
use super::far::{Connection, ConnectionState, PendingRequest};
use super::scale::ClockScale;
use super::way::at;
use super::wire::{Answer, Ask, Failure, Unpacker};
use pfp_read::snapshot::{Drained, Lane, PointState, Record, Snapshot};
use pfp_read::source::{Acted, Change, ChangeAnswer, LineStatus, ProcessGroup, RawCopy, Source};
use pfp_read::waits::WaitNeeds;

/// How long a subcommand without a screen waits for a picture other than the first.
const READER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a screen waits for records, if no other answer is overdue: too short for a user to
/// notice after pressing a key.
const FOR_RECORDS: Duration = Duration::from_millis(40);
/// How long to wait until attached; and how long a subcommand without a screen waits for its first
/// picture, for records and for changes.
const MAX_TIMEOUT: Duration = Duration::from_secs(20);
/// How much later than announced the next request may reach the agent, for slow lines.
const FORGIVEN: Duration = Duration::from_secs(30);

/// The processes to attach to, and to attach to again after a loss of the line. `One` has a segment
/// id.
pub(super) enum Target {
    One(String),
    Several(ProcessGroup),
}

/// A process of another place, or several.
pub(super) struct RemoteSource {
    pub(super) far: Rc<RefCell<Connection>>,
    /// The name of the machine, container or user where the process was found. `None` if the viewer
    /// searches only one place.
    pub(super) place: Option<String>,
    /// Whether the place is one of several to which commands lead. The clocks of several places may
    /// differ, so ticks are converted to nanoseconds.
    pub(super) is_elsewhere: bool,
    pub(super) unpacker: Unpacker,
    /// Maximum time until the next poll. `None` for a command, which has no screen.
    pub(super) interval: Option<Duration>,
    /// What is needed of the waits.
    pub(super) waits: WaitNeeds,
    /// Records of the rings, lane by lane.
    pub(super) rings: HashMap<u32, Ring>,
    /// The conversion of ticks, for a place with another clock. `None` before the first picture.
    pub(super) scale: Option<ClockScale>,
    /// Number of polls since the last picture arrived.
    pub(super) missed: u32,
    pub(super) id: u32,
    pub(super) target: Target,
    /// The value of [`Connection::opened`] when this source attached; 0 while it is not attached.
    pub(super) opened: u32,
    /// The pending request to attach.
    pub(super) attaching: Option<PendingRequest>,
    /// The pending request for a picture.
    pub(super) asked: Option<PendingRequest>,
    /// The pending request for records.
    pub(super) asked_for_records: Option<PendingRequest>,
    /// Changes that the next [`Source::prepare`] sends.
    pub(super) unsent: Vec<Change>,
    /// Changes that were sent together and whose answer has not arrived yet, the oldest first.
    /// Without a request, the line was lost before.
    pub(super) acts: VecDeque<(Vec<Change>, Option<PendingRequest>)>,
    /// The last picture, unconverted.
    pub(super) last: Option<Snapshot>,
    /// Whether the next picture will have only the differences from `last`.
    pub(super) is_base: bool,
    /// Moment at which `last` arrived.
    pub(super) came: Instant,
    /// Moment at which `last` was requested, so its figures are not older than this.
    pub(super) pictured: Instant,
    pub(super) read_only: Option<String>,
    pub(super) has_died: bool,
}

/// The last records of a lane's ring.
#[derive(Default)]
pub(super) struct Ring {
    /// The records, in the order in which they were written.
    records: Vec<Record>,
    /// Number that the next record of the lane has: the number of records written so far.
    next: u64,
}

impl Ring {
    fn add(&mut self, drained: Drained) {
        // The ring has overwritten its earlier records.
        if drained.lost > 0 || drained.from != self.next {
            self.records.clear();
        }
        self.next = drained.next();
        self.records.extend(drained.records);
        let too_many = self.records.len().saturating_sub(RING_SLOTS);
        self.records.drain(..too_many);
    }
}

impl RemoteSource {
    /// Requests to attach, unless that was done over the current line. Does not wait for the
    /// answer.
    pub(super) fn attach(&mut self) -> Result<()> {
        let mut far = self.far.borrow_mut();
        far.line()?;
        if self.opened == far.opened {
            return Ok(());
        }
        let source = self.id;
        let ask = match &self.target {
            Target::One(segment_id) => Ask::Attach { source, segment_id: segment_id.clone() },
            Target::Several(group) => Ask::AttachGroup { source, group: group.clone() },
        };
        self.unpacker = Unpacker::new()?;
        self.attaching = Some(far.ask(ask)?);
        self.opened = far.opened;
        (self.asked, self.asked_for_records, self.is_base) = (None, None, false);
        // If this source is a group, another agent may give the lanes other ids.
        self.rings.clear();
        Ok(())
    }

    /// Whether the source is attached; false if the answer does not arrive in time.
    pub(super) fn is_attached(&mut self, timeout: Duration) -> Result<bool> {
        let Some(asked) = self.attaching else { return Ok(true) };
        let mut far = self.far.borrow_mut();
        match far.answer(asked, timeout) {
            Ok(None) => return Ok(false),
            Ok(Some((Answer::Attached { read_only }, _))) => self.read_only = read_only,
            other => {
                // Attach again.
                (self.attaching, self.opened) = (None, 0);
                other?;
                bail!("{}: expected to be attached, found another message", far.way.name);
            }
        }
        self.attaching = None;
        Ok(true)
    }

    pub(super) fn wait_until_attached(&mut self) -> Result<()> {
        let asked = self.attaching;
        match (self.is_attached(MAX_TIMEOUT)?, asked) {
            (false, Some(asked)) => Err(self.far.borrow().silence(asked)),
            _ => Ok(()),
        }
    }

    /// How long to wait for a picture. A screen never waits.
    pub(super) fn picture_timeout(&self) -> Duration {
        match (&self.last, self.interval) {
            (_, Some(_)) => Duration::ZERO,
            (None, None) => MAX_TIMEOUT,
            // Without a screen, a longer wait does no harm; but wait so long only once while the
            // line is silent.
            (Some(_), None) if self.missed <= 1 => READER_TIMEOUT,
            _ => ANSWER_TIMEOUT,
        }
    }

    /// The next picture, if it arrives in time.
    pub(super) fn next(&mut self) -> Result<Option<Snapshot>> {
        let timeout = self.picture_timeout();
        let asked = match self.asked {
            Some(asked) => asked,
            None => self.ask_for_picture()?,
        };
        let far = Rc::clone(&self.far);
        let mut far = far.borrow_mut();
        let Some((answer, packed)) = far.answer(asked, timeout).inspect_err(|_| {
            self.asked = None;
        })?
        else {
            return Ok(None);
        };
        self.asked = None;
        self.pictured = asked.since;
        let unpacked = far.with(|_| {
            let Answer::Picture { is_key } = answer else {
                bail!("expected a picture, found another message");
            };
            let base = self.last.as_ref().filter(|_| self.is_base);
            let unpacked = self.unpacker.unpack(&packed, base, is_key);
            unpacked.context("expected a picture, found other data")
        });
        let (snapshot, has_died) = unpacked?;
        (self.has_died, self.is_base) = (has_died, true);
        Ok(Some(snapshot))
    }

    pub(super) fn ask_for_picture(&mut self) -> Result<PendingRequest> {
        let within_s = self.interval.map(|within| (within + FORGIVEN).as_secs());
        let ask = Ask::Picture { source: self.id, within_s, waits: self.waits };
        Ok(*self.asked.insert(self.far.borrow_mut().ask(ask)?))
    }

    /// Prepares a picture for display beside other places' pictures: converts the ticks, and adds
    /// the place to the names of processes.
    pub(super) fn shown(&mut self, mut snapshot: Snapshot) -> Snapshot {
        let Some(place) = &self.place else { return snapshot };
        if self.is_elsewhere {
            let scale = ClockScale::follow(self.scale, snapshot.clock.ticks_per_second);
            self.scale = Some(scale);
            scale.snapshot(&mut snapshot);
        }
        let process = &mut snapshot.process;
        for member in &mut process.members {
            member.name = at(&member.name, place);
        }
        process.name = at(&process.name, place);
        snapshot
    }

    /// Requests records. `None` if the records have not arrived yet. The next call waits for the
    /// same records, whatever it asks for.
    pub(super) fn records(&mut self, ask: Ask) -> Result<Option<Vec<Drained>>> {
        self.attach()?;
        let timeout = match self.interval {
            None => MAX_TIMEOUT,
            Some(_) if self.far.borrow_mut().is_late() => Duration::ZERO,
            Some(_) => FOR_RECORDS,
        };
        let mut far = self.far.borrow_mut();
        let asked = match self.asked_for_records {
            Some(asked) => asked,
            None => far.ask(ask)?,
        };
        self.asked_for_records = None;
        match far.answer(asked, timeout)? {
            Some((Answer::Records, packed)) => {
                let mut lanes: Vec<Drained> = Unpacker::unpack_one(&packed)?;
                lanes.iter_mut().for_each(Drained::own);
                if let Some(scale) = self.scale {
                    scale.drained(&mut lanes);
                }
                Ok(Some(lanes))
            }
            Some(_) => bail!("expected records, found another message"),
            None => {
                self.asked_for_records = Some(asked);
                Ok(None)
            }
        }
    }

    /// Sends the changes that wait to be sent.
    fn send_changes(&mut self) {
        if !self.unsent.is_empty() {
            let changes = std::mem::take(&mut self.unsent);
            let ask = Ask::Act { source: self.id, changes: changes.clone() };
            let asked = self.far.borrow_mut().ask(ask).ok();
            self.acts.push_back((changes, asked));
        }
    }

    /// The results of changes that were sent together. `None` if the answer does not arrive in
    /// time.
    fn results(
        &self,
        changes: &[Change],
        asked: Option<PendingRequest>,
        timeout: Duration,
    ) -> Option<Vec<Result<Option<PointState>>>> {
        let mut far = self.far.borrow_mut();
        let answer = asked.map(|asked| far.answer(asked, timeout));
        let is_same_line = asked.is_some_and(|asked| asked.opened == far.opened);
        let is_up = is_same_line && matches!(far.state, ConnectionState::Up(_));
        let name = &far.way.name;
        let why = match answer {
            Some(Ok(None)) => return None,
            Some(Ok(Some((Answer::Changed { results }, _)))) if results.len() == changes.len() => {
                let error = |why: Failure| why.into_error().context(name.clone());
                return Some(results.into_iter().map(|result| result.map_err(error)).collect());
            }
            Some(Ok(Some(_))) => format!("{name}: expected results of changes, found other data"),
            Some(Err(error)) if is_up => format!("{error:#}"),
            // The reason for the loss is reported first.
            _ if self.interval.is_some() && !matches!(far.state, ConnectionState::Up(_)) => {
                return None;
            }
            Some(Err(_)) => format!(
                "{name}: the connection was lost before the last change was confirmed; check \
                 whether it was made, and repeat it if not"
            ),
            None => format!(
                "{name}: the connection was lost before the change was sent; nothing was changed"
            ),
        };
        Some(changes.iter().map(|_| Err(anyhow!(why.clone()))).collect())
    }
}

impl Source for RemoteSource {
    fn prepare(&mut self) {
        // The picture that is requested next shows the changes.
        self.send_changes();
        // If the connection is lost, the poll reports it and attaches again. The attach request may
        // still be pending here: the agent answers in order.
        let is_attached = self.opened == self.far.borrow().opened;
        if is_attached && self.asked.is_none() {
            let _ = self.ask_for_picture();
        }
    }

    fn awaits(&mut self) -> bool {
        let last_act = self.acts.back().and_then(|(_, asked)| *asked);
        let asked = [self.attaching, self.asked, last_act];
        let mut far = self.far.borrow_mut();
        asked.into_iter().flatten().any(|asked| far.awaits(asked))
    }

    fn set_interval(&mut self, within: Option<Duration>) {
        self.interval = within;
    }

    fn need_waits(&mut self, needs: WaitNeeds) {
        self.waits = needs;
    }

    fn picture(&mut self) -> Result<Snapshot> {
        self.attach()?;
        self.missed += 1;
        if self.is_attached(self.picture_timeout())?
            && let Some(snapshot) = self.next()?
        {
            self.last = Some(snapshot);
            self.came = Instant::now();
            self.missed = 0;
        }
        // If no new picture has arrived, return the last one.
        match self.last.clone() {
            Some(last) => Ok(self.shown(last)),
            None => bail!("{}: expected a picture, found silence", self.far.borrow().way.name),
        }
    }

    fn is_coming(&self) -> bool {
        self.last.is_none() && (self.attaching.is_some() || self.asked.is_some())
    }

    fn has_died(&self) -> bool {
        self.has_died
    }

    /// Requests new records only.
    fn add_records(&mut self, snapshot: &mut Snapshot) {
        // The agent at the other end of a reopened line has sent no picture yet.
        if self.opened != self.far.borrow().opened {
            return;
        }
        let next = |lane: &Lane| self.rings.get(&lane.id).map_or(0, |ring| ring.next);
        let lanes = snapshot.lanes.iter();
        let from: Vec<(u32, u64)> = lanes
            .map(|lane| (lane.id, next(lane), lane.records_written))
            .filter(|(_, next, written)| next < written)
            .map(|(lane, next, _)| (lane, next))
            .collect();
        if !from.is_empty() {
            let new = self.records(Ask::NewRecords { source: self.id, from });
            for drained in new.ok().flatten().unwrap_or_default() {
                self.rings.entry(drained.lane).or_default().add(drained);
            }
            self.rings.retain(|lane, _| snapshot.lane(*lane).is_some());
        }
        let ended = |record: &&Record| record.end() <= snapshot.elapsed_ticks;
        let known = snapshot.lanes.iter().filter_map(|lane| self.rings.get(&lane.id));
        snapshot.records = known.flat_map(|ring| &ring.records).filter(ended).cloned().collect();
    }

    fn awaits_records(&self, snapshot: &Snapshot) -> bool {
        // If the answer to an earlier request lacks the last records, the next call requests them.
        let next = |lane: &Lane| self.rings.get(&lane.id).map_or(0, |ring| ring.next);
        let is_up = self.opened == self.far.borrow().opened;
        is_up && snapshot.lanes.iter().any(|lane| next(lane) < lane.records_written)
    }

    fn new_records(&mut self, snapshot: &Snapshot, from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        let from = snapshot.lanes.iter().map(|lane| (lane.id, from(lane.id))).collect();
        let new = self.records(Ask::NewRecords { source: self.id, from });
        new.ok().flatten().unwrap_or_default()
    }

    fn copy_raw(&mut self) -> io::Result<RawCopy> {
        let why = "expected a process of this machine, whose segment can be copied; found one \
                   behind --via: run `pfp-top save-raw` there";
        Err(io::Error::new(io::ErrorKind::Unsupported, why))
    }

    /// For a screen, many changes become one request: an answer to each would take as many polls.
    fn act(&mut self, change: Change) -> Result<Acted> {
        self.attach()?;
        if self.interval.is_some() {
            self.unsent.push(change);
            return Ok(Acted::Requested);
        }
        self.wait_until_attached()?;
        let asked =
            self.far.borrow_mut().ask(Ask::Act { source: self.id, changes: vec![change] })?;
        match self.results(&[change], Some(asked), MAX_TIMEOUT).and_then(|mut all| all.pop()) {
            Some(result) => result.map(Acted::Made),
            None => Err(self.far.borrow().silence(asked)),
        }
    }

    fn answers(&mut self) -> Vec<ChangeAnswer> {
        self.send_changes();
        let mut answers = Vec::new();
        while let Some((changes, asked)) = self.acts.front()
            && let Some(results) = self.results(changes, *asked, Duration::ZERO)
        {
            let answer = |(change, result)| ChangeAnswer { change, result };
            let changes = self.acts.pop_front().map(|(changes, _)| changes).unwrap_or_default();
            answers.extend(changes.into_iter().zip(results).map(answer));
        }
        answers
    }

    fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    fn line(&self) -> Option<LineStatus> {
        let far = self.far.borrow();
        let why = match &far.state {
            ConnectionState::Up(_) => None,
            ConnectionState::Opening(_, why) => why.clone(),
            ConnectionState::Lost { why, .. } => Some(why.clone()),
        };
        let owed = self.attaching.or(self.asked);
        let silent = owed.map(|asked| asked.since.elapsed()).unwrap_or_default();
        let is_late = why.is_some() || (silent >= SILENT && self.missed > 1);
        let late = is_late.then(|| self.came.elapsed());
        // A room of this machine counts as local, unless it is late.
        let via = || far.way.name.clone();
        let age = self.pictured.elapsed();
        (late.is_some() || !far.way.is_here()).then(|| LineStatus { via: via(), late, why, age })
    }
}

impl Drop for RemoteSource {
    fn drop(&mut self) {
        self.send_changes();
        let mut far = self.far.borrow_mut();
        if self.opened != far.opened {
            return;
        }
        // If the line is late when the user leaves the screen, it is unknown which points are still
        // toggled there. Cutting the line makes the agent restore them.
        let cuts = self.interval.is_some() && far.is_late();
        let owed = [self.attaching, self.asked, self.asked_for_records];
        let acts = self.acts.drain(..).filter_map(|(_, asked)| asked);
        for asked in owed.into_iter().flatten().chain(acts) {
            far.forget(asked);
        }
        if let ConnectionState::Up(line) = &mut far.state {
            match cuts {
                true => line.is_cut = true,
                // The answer is not needed. If the line is lost, there is nothing to detach.
                false => drop(line.send(Ask::Detach { source: self.id })),
            }
        }
    }
}
