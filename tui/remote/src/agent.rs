//! The other end of `--via`: shows the processes of this place to a viewer elsewhere.
//!
//! The viewer's command starts the agent. The agent reads requests from standard input and answers
//! each on standard output, in order: see `via/wire.rs`.
//!
//! ```text
//! input  -> requests -> sessions, restored here -> replies -> output
//! signal ------^              written parts of a reply <------'
//! ```
//!
//! Input and output together are the line to the viewer. The line counts as lost if the input ends
//! without a goodbye, or if the viewer is silent for longer than it announced. When the line is
//! lost or a signal ends the agent, the agent restores points that were toggled over the line. A
//! separate thread writes replies: if the viewer stops reading, a blocked write must not hide the
//! end of the input.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufReader, Read, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use crate::via::wire::{self, Answer, Ask, Failure, Packer, Reply, Request};
use pfp_read::session::Session;
use pfp_read::snapshot::{PointState, Snapshot};
use pfp_read::source::{Acted, Change, ChangeAnswer, Finder, Refusal, Source};

/// Size of the parts in which a reply is written. Each written part shows that the line works.
const PART: usize = 16 << 10;
/// Maximum number of requests that wait until a reply is written. The number is large, since a
/// viewer may switch many points at once.
const WAITING: usize = 1 << 18;
/// How long the agent continues to write replies after the input has ended.
const LAST: Duration = Duration::from_secs(1);
/// How long the agent waits for another agent to answer a change.
const ANSWER: Duration = Duration::from_secs(1);
/// Time between two looks whether that answer has arrived.
const LOOK: Duration = Duration::from_millis(2);

/// Maximum number of queued events; senders block beyond that.
const UNSEEN: usize = 64;

/// Events of the agent's main loop.
enum AgentEvent {
    Request(Request),
    /// The input has ended.
    End,
    /// A signal asks the agent to end.
    Signal,
    /// A part of a reply was written.
    Part,
    /// A reply was written completely.
    Written,
    /// The line broke.
    Broken(anyhow::Error),
}

/// Answers requests until the viewer says goodbye or the line ends.
///
/// # Errors
///
/// If the line breaks, or carries something that is not a request.
pub fn run(
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
    finder: &mut dyn Finder,
    until_signal: impl FnOnce() + Send + 'static,
) -> Result<()> {
    let (events, happens) = mpsc::sync_channel(UNSEEN);
    let signals = events.clone();
    thread::spawn(move || {
        until_signal();
        signals.send(AgentEvent::Signal)
    });
    let requests = events.clone();
    thread::spawn(move || read(input, &requests));
    let (replies, to_write) = mpsc::channel();
    thread::spawn(move || {
        if let Err(error) = write(output, &to_write, &events) {
            let _ = events.send(AgentEvent::Broken(error.into()));
        }
    });
    // However this function ends, dropping the agent restores toggled points.
    let mut agent = AgentServer { finder, watched: HashMap::new(), keep: false, within: None };
    agent.serve(&happens, &replies)
}

fn read(input: impl Read, requests: &SyncSender<AgentEvent>) {
    let mut input = BufReader::new(input);
    let mut is_more = true;
    while is_more {
        let event = match wire::read(&mut input) {
            Ok(Some((request, _))) => AgentEvent::Request(request),
            Ok(None) => AgentEvent::End,
            Err(error) => AgentEvent::Broken(error),
        };
        is_more = matches!(event, AgentEvent::Request(_));
        is_more &= requests.send(event).is_ok();
    }
}

fn write(
    mut output: impl Write,
    replies: &Receiver<Vec<u8>>,
    events: &SyncSender<AgentEvent>,
) -> io::Result<()> {
    output.write_all(&wire::MAGIC)?;
    output.flush()?;
    for reply in replies {
        for part in reply.chunks(PART) {
            output.write_all(part)?;
            output.flush()?;
            let _ = events.send(AgentEvent::Part);
        }
        let _ = events.send(AgentEvent::Written);
    }
    Ok(())
}

struct AgentServer<'a> {
    finder: &'a mut dyn Finder,
    watched: HashMap<u32, WatchedProcess>,
    /// Whether toggled points stay toggled if the line is lost.
    keep: bool,
    /// The longest silence before the line counts as lost.
    within: Option<Duration>,
}

/// A process that the viewer watches.
struct WatchedProcess {
    session: Session,
    packer: Packer,
    /// The last picture that was sent.
    last: Option<Snapshot>,
}

impl AgentServer<'_> {
    fn serve(&mut self, happens: &Receiver<AgentEvent>, replies: &Sender<Vec<u8>>) -> Result<()> {
        let mut waiting: VecDeque<Request> = VecDeque::new();
        let mut is_writing = false;
        let mut heard = Instant::now();
        // Deadline for writing the last replies.
        let mut end: Option<Instant> = None;
        loop {
            if end.is_some_and(|end| end <= Instant::now()) {
                self.leave(waiting);
                return Ok(());
            }
            if !is_writing {
                match waiting.pop_front() {
                    Some(Request { ask: Ask::Goodbye, .. }) => {
                        self.watched.values_mut().for_each(|watched| watched.session.leave_as_is());
                        return Ok(());
                    }
                    Some(request) => {
                        let reply = self.reply(request)?;
                        is_writing = true;
                        let _ = replies.send(reply);
                        heard = Instant::now();
                        continue;
                    }
                    None if end.is_some() => return Ok(()),
                    None => {}
                }
            }
            let until = end.or(self.within.and_then(|within| heard.checked_add(within)));
            let event = match until {
                Some(until) => {
                    happens.recv_timeout(until.saturating_duration_since(Instant::now()))
                }
                None => happens.recv().map_err(Into::into),
            };
            match event {
                Ok(AgentEvent::Request(_)) if waiting.len() == WAITING => bail!(
                    "expected a viewer that reads its answers, found {WAITING} requests waiting \
                     behind an unread answer"
                ),
                Ok(AgentEvent::Request(request)) => {
                    waiting.push_back(request);
                    heard = Instant::now();
                }
                Ok(AgentEvent::Part) => heard = Instant::now(),
                Ok(AgentEvent::Written) => is_writing = false,
                Ok(AgentEvent::End) => end = Some(Instant::now() + LAST),
                Ok(AgentEvent::Broken(error)) => return Err(error),
                Ok(AgentEvent::Signal) => return Ok(()),
                Err(_) if end.is_some() => {}
                Err(RecvTimeoutError::Timeout) => {
                    self.watched.values_mut().for_each(|watched| watched.session.restore());
                    self.within = None;
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    /// Handles a goodbye among the waiting requests: the viewer reads no more replies. Makes the
    /// changes that still wait, and leaves all points as they are. Without a goodbye, does nothing.
    fn leave(&mut self, waiting: VecDeque<Request>) {
        if !waiting.iter().any(|request| matches!(request.ask, Ask::Goodbye)) {
            return;
        }
        for Request { ask, .. } in waiting {
            if matches!(ask, Ask::Act { .. }) {
                let _ = self.answer(ask);
            }
        }
        self.watched.values_mut().for_each(|watched| watched.session.leave_as_is());
    }

    /// The reply to a request.
    fn reply(&mut self, Request { number, ask }: Request) -> Result<Vec<u8>> {
        let (answer, rest) = self
            .answer(ask)
            .unwrap_or_else(|error| (Answer::Failed(Failure::of(&error)), Vec::new()));
        Ok(wire::message(&Reply { number, answer }, &rest)?)
    }

    fn answer(&mut self, ask: Ask) -> Result<(Answer, Vec<u8>)> {
        let answer = match ask {
            Ask::Hello { keep } => {
                self.keep = keep;
                let program = env!("CARGO_PKG_VERSION").to_owned();
                Answer::Hello { version: wire::VERSION, program }
            }
            Ask::Discover => {
                let mut discovery = self.finder.discover()?;
                if discovery.candidates.is_empty() {
                    discovery.instead = Some(discovery.nothing_here());
                }
                Answer::Found(discovery)
            }
            Ask::Attach { source, segment_id } => {
                let found = self.finder.discover()?.candidates;
                let candidate = found.iter().find(|it| it.segment_id == segment_id);
                let candidate = candidate
                    .ok_or_else(|| anyhow!(Refusal::NoTarget("the process has ended".into())))?;
                let attached = self.finder.attach(candidate)?;
                self.watch(source, attached)?
            }
            Ask::AttachGroup { source, group } => {
                let attached = self.finder.attach_group(&group, None)?;
                self.watch(source, attached)?
            }
            Ask::Detach { source } => {
                // The viewer's own session has restored its toggled points, unless they are to
                // stay.
                if let Some(mut watched) = self.watched.remove(&source) {
                    watched.session.leave_as_is();
                }
                Answer::Done
            }
            Ask::Picture { source, within_s, waits } => {
                self.within = within_s.map(Duration::from_secs);
                let within = self.within;
                let watched = self.watched(source)?;
                watched.session.source.set_interval(within);
                watched.session.source.need_waits(waits);
                let is_key = watched.last.is_none();
                return Ok((Answer::Picture { is_key }, watched.picture()?));
            }
            Ask::NewRecords { source, from } => {
                let watched = self.watched(source)?;
                let last = watched.last.as_ref().context("there is no picture yet")?;
                let from: HashMap<u32, u64> = from.into_iter().collect();
                let first = |lane| from.get(&lane).copied().unwrap_or(u64::MAX);
                let lanes = watched.session.source.new_records(last, &first);
                return Ok((Answer::Records, Packer::pack_list(&lanes)?));
            }
            Ask::Act { source, changes } => {
                let results = self.watched(source)?.act(&changes).into_iter();
                let results = results.map(|result| result.map_err(|error| Failure::of(&error)));
                Answer::Changed { results: results.collect() }
            }
            Ask::Goodbye => Answer::Done,
        };
        Ok((answer, Vec::new()))
    }

    fn watch(&mut self, source: u32, attached: Box<dyn Source>) -> Result<Answer> {
        let session = Session::new(attached, self.keep);
        let read_only = session.source.read_only().map(str::to_owned);
        let watched = WatchedProcess { session, packer: Packer::new()?, last: None };
        self.watched.insert(source, watched);
        Ok(Answer::Attached { read_only })
    }

    fn watched(&mut self, source: u32) -> Result<&mut WatchedProcess> {
        self.watched.get_mut(&source).context("nothing is watched under this number")
    }
}

impl WatchedProcess {
    /// The next picture. The first one is complete; each further one has the differences from the
    /// one before.
    fn picture(&mut self) -> Result<Vec<u8>> {
        let snapshot = self.session.poll()?;
        let has_died = self.session.source.has_died();
        let packed = self.packer.pack(&snapshot, self.last.as_ref(), has_died)?;
        self.last = Some(snapshot);
        Ok(packed)
    }

    fn act(&mut self, changes: &[Change]) -> Vec<Result<Option<PointState>>> {
        // Late answers to earlier changes must not count for these.
        self.session.answers();
        let acted: Vec<_> = changes.iter().map(|change| self.act_once(*change)).collect();
        let requested = acted.iter().zip(changes);
        let requested = requested.filter(|(it, _)| matches!(it, Ok(Acted::Requested)));
        let mut answers = self.wait_for_answers(requested.map(|(_, change)| *change).collect());
        let mut answer_to =
            |change: &Change| match answers.iter().position(|answer| answer.change == *change) {
                Some(place) => answers.remove(place).result,
                None => Err(anyhow!("the change is not confirmed after {} s", ANSWER.as_secs())),
            };
        let result = |(acted, change): (Result<Acted>, &Change)| match acted? {
            Acted::Made(found) => Ok(found),
            Acted::Requested => answer_to(change),
        };
        acted.into_iter().zip(changes).map(result).collect()
    }

    fn act_once(&mut self, change: Change) -> Result<Acted> {
        let state = |id: u32| Some(self.last.as_ref()?.point(id)?.state);
        match change {
            Change::Enable(id) | Change::Disable(id) => {
                let on = matches!(change, Change::Enable(_));
                let found = state(id).unwrap_or(PointState::Off);
                self.session.switch(id, found, on)
            }
            other => self.session.act(other),
        }
    }

    /// Waits for the answers to these changes by another agent, which runs in another room of this
    /// machine. Returns without the answers that take too long.
    fn wait_for_answers(&mut self, mut requested: Vec<Change>) -> Vec<ChangeAnswer> {
        let start = Instant::now();
        let mut answers = Vec::new();
        while !requested.is_empty() && start.elapsed() < ANSWER {
            for answer in self.session.answers() {
                if let Some(place) = requested.iter().position(|it| *it == answer.change) {
                    requested.swap_remove(place);
                    answers.push(answer);
                }
            }
            if !requested.is_empty() {
                thread::sleep(LOOK);
            }
        }
        answers
    }
}
