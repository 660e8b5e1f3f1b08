//! Processes of another place, through an agent there.
//!
//! ```text
//! Via, Remote -- requests --> `ssh node1 pfp-top agent` -- source --> process
//!             <-- replies --
//! ```
//!
//! The agent is started by a command of the user's, and spoken with over its standard input
//! and output ([`wire`]). A request for a picture is made only after the one before came, so a
//! slow line gets fewer pictures, and nothing piles up. A line that is lost is tried again; the
//! last figures stay meanwhile. What comes over it is trusted no more than a file.

mod copy;
mod places;
pub(crate) mod wire;

use std::cell::RefCell;
use std::collections::{HashSet, VecDeque};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};
use serde::de::DeserializeOwned;

pub(super) use self::places::Places;
use self::places::Scale;
use self::wire::{Answer, Ask, Reply, Request, Unpacker};
use super::guard::clean_discovery;
use super::{
    Candidate, Change, Discovery, Finder, Line, Looking, Refusal, Source, Together, guarded,
};
use crate::export::json::{Overwrite, WriteError};
use crate::snapshot::{Drained, Snapshot};
use crate::text::clean;

/// How long the screen waits for a picture before it shows the last one again.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a key waits for what it asked for.
const MORE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a command waits, before there is a screen and for what takes long.
const MOST_PATIENCE: Duration = Duration::from_secs(20);
/// How long a command may take until the agent answers: somebody may have to type a password.
const TO_OPEN: Duration = Duration::from_secs(120);
/// After so long, a picture is late.
const SILENT: Duration = Duration::from_secs(3);
/// How much later than promised a request may reach the agent, as over a slow line.
const FORGIVEN: Duration = Duration::from_secs(30);
/// Time between two tries to open a line again.
const AGAIN: Duration = Duration::from_secs(5);
/// Replies that nobody has looked at yet; the agent waits with more.
const UNREAD: usize = 2;
/// Bytes of a line of complaint that are kept.
const LINE: u64 = 4096;
/// How long its last words may take, which a child of its may keep from ending.
const TO_BE_SAID: Duration = Duration::from_millis(500);
/// How long a command may take to end when nobody needs it.
const TO_END: Duration = Duration::from_secs(1);

/// A running agent.
struct Agent {
    child: Child,
    /// None once it was said goodbye to.
    requests: Option<ChildStdin>,
    replies: Receiver<Result<(Reply, Vec<u8>)>>,
    /// Numbers of the requests for pictures that are not answered yet.
    asked: HashSet<u32>,
    /// Answers to those that came while another one was waited for.
    early: VecDeque<(Reply, Vec<u8>)>,
    /// The last line that the command wrote to its standard error.
    said: Arc<Mutex<String>>,
    /// Disconnected once all of that was read.
    all_said: Receiver<()>,
    /// Number of the next request.
    next: u32,
}

/// A way to another place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The command that leads there, which is given what is to be run.
    pub command: String,
    /// Whether it is to run this program, and not the pfp-top that it finds there.
    pub copies: bool,
}

/// This program, whatever became of its file.
const THIS: &str = "/proc/self/exe";

/// How an agent is started.
#[derive(Clone, Debug)]
pub(super) struct Way {
    /// What messages call it.
    name: String,
    program: &'static str,
    arguments: Vec<String>,
    /// Variables that are set, or taken away.
    variables: Vec<(&'static str, Option<OsString>)>,
    /// Whether this program goes along.
    copies: bool,
}

impl Way {
    /// Through a command.
    fn through(Route { command, copies }: &Route) -> Self {
        let agent = if *copies { "sh" } else { "pfp-top agent" };
        let arguments = vec!["-c".to_owned(), format!("{command} {agent}")];
        let (variables, copies) = (Vec::new(), *copies);
        Self { name: command.clone(), program: "sh", arguments, variables, copies }
    }

    /// Into the room of a process of this machine.
    pub(super) fn into_room(
        name: String,
        pid: u32,
        variables: Vec<(&'static str, Option<OsString>)>,
    ) -> Self {
        let arguments = ["agent", "--enter", &pid.to_string()].map(str::to_owned);
        Self { name, program: THIS, arguments: arguments.into(), variables, copies: false }
    }

    /// Whether it leads to another room of this machine.
    fn is_here(&self) -> bool {
        self.program == THIS
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program);
        command.args(&self.arguments);
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

impl Agent {
    /// Starts an agent, and makes sure that it speaks as this program does. Where the screen is
    /// shown, the command may not ask for a password.
    fn open(way: &Way, keep: bool, may_ask: bool) -> Result<Self> {
        let via = way.name.as_str();
        let mut command = way.command();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !may_ask {
            // SAFETY: setsid may be called between fork and exec, and touches no memory.
            unsafe {
                command.pre_exec(|| {
                    libc::setsid();
                    Ok(())
                });
            }
        }
        let mut child = command
            .spawn()
            .map_err(|error| anyhow!("{via}: expected to start an agent, found: {error}"))?;
        let mut requests = child.stdin.take();
        let said = Arc::new(Mutex::new(String::new()));
        let (until_all, all_said) = mpsc::sync_channel(0);
        if let Some(errors) = child.stderr.take() {
            let said = Arc::clone(&said);
            thread::spawn(move || {
                keep_last_line(errors, &said);
                drop(until_all);
            });
        }
        let (sender, replies) = mpsc::sync_channel(UNREAD);
        let (hearing, heard) = mpsc::channel();
        if let Some(output) = child.stdout.take() {
            let copies = way.copies;
            thread::spawn(move || {
                let mut output = BufReader::new(output);
                let hear = |output: &mut _| {
                    let said = copy::hear(output);
                    let is_more = matches!(said, Ok(Some(_)));
                    hearing.send(said).is_ok() && is_more
                };
                if copies {
                    while hear(&mut output) {}
                }
                let mut found = wire::skip_to_magic(&mut output);
                loop {
                    let reply = found.and_then(|()| match wire::read(&mut output)? {
                        Some(reply) => Ok(reply),
                        None => bail!("it has ended"),
                    });
                    found = Ok(());
                    let is_last = reply.is_err();
                    if sender.send(reply).is_err() || is_last {
                        return;
                    }
                }
            });
        }
        let copied = match &mut requests {
            Some(requests) if way.copies => bring(requests, &heard),
            _ => Ok(()),
        };
        let (asked, early) = (HashSet::new(), VecDeque::new());
        let mut line = Self { child, requests, replies, asked, early, said, all_said, next: 0 };
        if let Err(error) = copied {
            return Err(line.why_not(via, &error));
        }
        // Where nobody reads it, what was written instead of an answer tells why.
        let asked = line.send(Ask::Hello { keep }).unwrap_or_default();
        match line.wait(asked, TO_OPEN) {
            Ok(Some((Answer::Hello { version: wire::VERSION, .. }, _))) => Ok(line),
            Ok(Some((Answer::Hello { version, program }, _))) => bail!(Refusal::Version(format!(
                "{via}: expected an agent that speaks version {} as pfp-top {} does, found version \
                 {version} of pfp-top {program}; install the same one at both ends",
                wire::VERSION,
                env!("CARGO_PKG_VERSION"),
                program = clean(&program),
            ))),
            Ok(Some(_)) => bail!("{via}: expected a greeting, found another message"),
            Ok(None) => Err(line.why_not(via, &anyhow!("expected an agent, found silence"))),
            Err(error) => Err(line.why_not(via, &error)),
        }
    }

    /// Why no agent answers, in words for the user.
    fn why_not(&mut self, via: &str, error: &anyhow::Error) -> anyhow::Error {
        let status = self.end();
        let said = self.said();
        match status.and_then(|status| status.code()) {
            Some(127) => Refusal::NoTarget(format!(
                "{via}: expected pfp-top on the path there, found none{said}; install it there, or \
                 --via-copy takes this one along"
            ))
            .into(),
            Some(126) => anyhow!(
                "{via}: {error:#}{said}; where it may not run what is in its temporary folder, \
                 TMPDIR names another, as --via 'ssh node1 TMPDIR=/var/tmp'"
            ),
            _ => anyhow!("{via}: {error:#}{said}"),
        }
    }

    /// What the command complained about last.
    fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match said.trim() {
            "" => String::new(),
            said => format!(" ({})", clean(said)),
        }
    }

    fn send(&mut self, ask: Ask) -> Result<u32> {
        let number = self.next;
        self.next += 1;
        let requests = self.requests.as_mut().ok_or_else(|| anyhow!("it has ended"))?;
        match wire::write(requests, &Request { number, ask }, &[]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => bail!("it has ended"),
            result => result.map(|()| number).map_err(Into::into),
        }
    }

    /// Asks for a picture.
    fn send_for_picture(&mut self, source: u32, looking: Looking) -> Result<u32> {
        let Looking { extent, within } = looking;
        let within_s = within.map(|within| (within + FORGIVEN).as_secs());
        let number = self.send(Ask::Picture { source, extent, within_s })?;
        self.asked.insert(number);
        Ok(number)
    }

    /// Watches a source no more, of which a picture may still be to come.
    fn detach(&mut self, source: u32, asked: Option<u32>) {
        if let Some(number) = asked {
            self.asked.remove(&number);
            self.early.retain(|(reply, _)| reply.number != number);
        }
        // The answer is nobody's, and a line that is lost needs none.
        let _ = self.send(Ask::Detach { source });
    }

    /// The answer to a request; none if it does not come in time.
    fn wait(&mut self, number: u32, patience: Duration) -> Result<Option<(Answer, Vec<u8>)>> {
        let until = Instant::now() + patience;
        if let Some(place) = self.early.iter().position(|(reply, _)| reply.number == number) {
            let found = self.early.remove(place);
            return Ok(found.map(|(reply, rest)| (reply.answer, rest)));
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let (reply, rest) = match self.replies.recv_timeout(left) {
                Ok(reply) => reply?,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => bail!("it has ended"),
            };
            let is_for_picture = self.asked.remove(&reply.number);
            if reply.number == number {
                return Ok(Some((reply.answer, rest)));
            }
            // Nobody waits any more for any other.
            if is_for_picture {
                self.early.push_back((reply, rest));
            } else if left.is_zero() {
                return Ok(None);
            }
        }
    }

    /// The answer to a request, and what stands behind its head.
    fn call(&mut self, ask: Ask, patience: Duration) -> Result<(Answer, Vec<u8>)> {
        let number = self.send(ask)?;
        match self.wait(number, patience)? {
            Some(answer) => Ok(answer),
            None => bail!("expected an answer, found none for {} s", patience.as_secs()),
        }
    }

    /// Ends the command: by itself, or if it does not, by force.
    fn end(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        let start = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(None) if start.elapsed() < TO_END => thread::sleep(Duration::from_millis(5)),
                Ok(Some(status)) => {
                    // What it complained about last may still be on its way.
                    let _ = self.all_said.recv_timeout(TO_BE_SAID);
                    return Some(status);
                }
                _ => break,
            }
        }
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if self.requests.is_some() {
            let _ = self.send(Ask::Goodbye);
            self.end();
        }
    }
}

/// Gives this program to the shell that the script is heard from.
fn bring(to: &mut ChildStdin, heard: &Receiver<Result<Option<String>>>) -> Result<()> {
    let program = copy::Program::load()?;
    to.write_all(program.script().as_bytes()).map_err(|_| anyhow!("it has ended"))?;
    let hear = || match heard.recv_timeout(TO_OPEN) {
        Ok(said) => said,
        Err(_) => bail!("expected a shell, found silence"),
    };
    if let Some(there) = hear()? {
        program.send(&clean(&there), to)?;
        hear()?;
    }
    Ok(())
}

fn keep_last_line(errors: impl Read, said: &Mutex<String>) {
    // However long a line is.
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while let Ok(1..) = errors.by_ref().take(LINE).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        if !text.trim().is_empty() {
            *said.lock().unwrap_or_else(PoisonError::into_inner) = text.into_owned();
        }
        line.clear();
    }
}

/// The line to an agent, which is opened again when it is lost.
struct Far {
    way: Way,
    keep: bool,
    state: State,
    /// How often it was opened.
    opened: u32,
    /// Number of the next source.
    next: u32,
}

enum State {
    Up(Agent),
    Opening(Receiver<Result<Agent>>, String),
    Lost { why: String, until: Instant },
}

impl Far {
    /// The line by an agent; where there is none, another one is started after a while.
    fn of(way: Way, keep: bool, agent: Result<Agent>) -> Self {
        let (state, opened) = match agent {
            Ok(agent) => (State::Up(agent), 1),
            Err(error) => {
                let until = Instant::now() + AGAIN;
                (State::Lost { why: format!("{error:#}"), until }, 0)
            }
        };
        Self { way, keep, state, opened, next: 0 }
    }

    /// The line, if it is up. If not, it is opened in the background.
    fn line(&mut self) -> Result<&mut Agent> {
        if let State::Lost { why, until } = &mut self.state
            && *until <= Instant::now()
        {
            let (sender, opened) = mpsc::channel();
            let (way, keep) = (self.way.clone(), self.keep);
            thread::spawn(move || sender.send(Agent::open(&way, keep, false)).ok());
            self.state = State::Opening(opened, std::mem::take(why));
        }
        if let State::Opening(opened, _) = &self.state {
            match opened.try_recv() {
                Ok(Ok(line)) => {
                    self.state = State::Up(line);
                    self.opened += 1;
                }
                Ok(Err(error)) => self.lose(&format!("{error:#}")),
                Err(_) => {}
            }
        }
        match &mut self.state {
            State::Up(line) => Ok(line),
            State::Opening(_, why) | State::Lost { why, .. } => bail!("{why}; trying again"),
        }
    }

    fn lose(&mut self, why: &str) {
        self.state = State::Lost { why: why.to_owned(), until: Instant::now() + AGAIN };
    }

    /// Does something with the line, which is lost if that fails.
    fn with<T>(&mut self, work: impl FnOnce(&mut Agent) -> Result<T>) -> Result<T> {
        let line = self.line()?;
        let error = match work(line) {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        line.end();
        let said = line.said();
        let why = format!("{}: the line was lost: {error:#}{said}", self.way.name);
        self.lose(&why);
        bail!("{why}; trying again")
    }

    fn call(&mut self, ask: Ask, patience: Duration) -> Result<(Answer, Vec<u8>)> {
        match self.with(|line| line.call(ask, patience))? {
            (Answer::Failed(failure), _) => {
                Err(failure.into_error().context(self.way.name.clone()))
            }
            answer => Ok(answer),
        }
    }
}

/// The finder of the processes of another place.
pub(super) struct Via {
    far: Rc<RefCell<Far>>,
    /// What it is called beside others; none where it is the only place.
    place: Option<String>,
    /// Whether its clock is another one than that of the places beside it.
    is_elsewhere: bool,
}

impl Via {
    /// Starts an agent by this command. With `keep`, toggled points stay as they are when the
    /// line is lost.
    ///
    /// # Errors
    ///
    /// If there is no agent, or none of this version.
    pub(super) fn open(route: &Route, keep: bool) -> Result<Self> {
        let way = Way::through(route);
        let agent = Agent::open(&way, keep, true)?;
        Ok(Self::of(Far::of(way, keep, Ok(agent)), None, false))
    }

    /// Starts an agent in another room of this machine. What it finds is called by the way's
    /// name.
    pub(super) fn of_room(way: Way, keep: bool) -> Self {
        let agent = Agent::open(&way, keep, false);
        let name = way.name.clone();
        Self::of(Far::of(way, keep, agent), Some(name), false)
    }

    fn of(far: Far, place: Option<String>, is_elsewhere: bool) -> Self {
        Self { far: Rc::new(RefCell::new(far)), place, is_elsewhere }
    }

    /// Whether something is watched there.
    pub(super) fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.far) > 1
    }

    fn watch(&self, what: What) -> Result<Box<dyn Source>> {
        let far = Rc::clone(&self.far);
        let id = far.borrow().next;
        far.borrow_mut().next += 1;
        let mut remote = Remote {
            far,
            place: self.place.clone(),
            is_elsewhere: self.is_elsewhere,
            unpacker: Unpacker::new()?,
            looking: Looking::default(),
            scale: None,
            missed: 0,
            id,
            what,
            opened: 0,
            asked: None,
            last: None,
            came: Instant::now(),
            read_only: None,
            has_died: false,
        };
        remote.attach()?;
        Ok(guarded(Box::new(remote)))
    }
}

impl Finder for Via {
    fn discover(&mut self) -> Result<Discovery> {
        let mut far = self.far.borrow_mut();
        match far.call(Ask::Discover, MORE_PATIENCE)? {
            (Answer::Found(mut discovery), _) => {
                discovery.via = Some(far.way.name.clone());
                if let Some(place) = &self.place {
                    for candidate in &mut discovery.candidates {
                        candidate.name = places::at(&candidate.name, place);
                    }
                }
                clean_discovery(&mut discovery);
                Ok(discovery)
            }
            _ => bail!("{}: expected what was found, found another message", far.way.name),
        }
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        self.watch(What::One(candidate.segment_id.clone()))
    }

    fn attach_together(&mut self, together: &Together) -> Result<Box<dyn Source>> {
        self.watch(What::Several(together.clone()))
    }
}

/// One process or several, as they are attached again when a line is lost.
enum What {
    One(String),
    Several(Together),
}

/// A process of another place, or several.
struct Remote {
    far: Rc<RefCell<Far>>,
    /// What it is called beside others; none where it is the only place.
    place: Option<String>,
    /// Whether its clock is another one than that of the places beside it.
    is_elsewhere: bool,
    unpacker: Unpacker,
    looking: Looking,
    /// Where it is elsewhere, what its ticks are; none before the first picture.
    scale: Option<Scale>,
    /// Polls since the last picture came.
    missed: u32,
    id: u32,
    what: What,
    /// Which opening of the line it is attached by.
    opened: u32,
    /// The picture that is to come, and since when.
    asked: Option<(u32, Instant)>,
    /// The last picture, which the next one is told from.
    last: Option<Snapshot>,
    /// When it came.
    came: Instant,
    read_only: Option<String>,
    has_died: bool,
}

impl Remote {
    /// Attaches by the line as it is now, unless that was done.
    fn attach(&mut self) -> Result<()> {
        let mut far = self.far.borrow_mut();
        far.line()?;
        if self.opened == far.opened {
            return Ok(());
        }
        let source = self.id;
        let ask = match &self.what {
            What::One(segment_id) => Ask::Attach { source, segment_id: segment_id.clone() },
            What::Several(together) => Ask::AttachTogether { source, together: together.clone() },
        };
        let patience = if self.opened == 0 { MOST_PATIENCE } else { MORE_PATIENCE };
        match far.call(ask, patience)? {
            (Answer::Attached { read_only }, _) => self.read_only = read_only,
            _ => bail!("{}: expected to be attached, found another message", far.way.name),
        }
        self.unpacker = Unpacker::new()?;
        (self.opened, self.asked, self.last) = (far.opened, None, None);
        Ok(())
    }

    /// The next picture, if it comes in time.
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let source = self.id;
        let far = Rc::clone(&self.far);
        let mut far = far.borrow_mut();
        let patience = match &self.last {
            // A line that is late already keeps nobody from the others.
            Some(_) if self.missed > 1 => Duration::ZERO,
            Some(_) => PATIENCE,
            None if far.opened == 1 => MOST_PATIENCE,
            None => MORE_PATIENCE,
        };
        let answer = far.with(|line| {
            let (number, _) = match self.asked {
                Some(asked) => asked,
                None => {
                    let asked = (line.send_for_picture(source, self.looking)?, Instant::now());
                    *self.asked.insert(asked)
                }
            };
            let (is_key, packed) = match line.wait(number, patience)? {
                None => return Ok(None),
                Some((Answer::Picture { is_key }, packed)) => (is_key, packed),
                Some((Answer::Failed(failure), _)) => {
                    self.asked = None;
                    return Ok(Some(Err(failure)));
                }
                Some(_) => bail!("expected a picture, found another message"),
            };
            self.asked = None;
            let unpacked = self.unpacker.unpack(&packed, self.last.as_ref(), is_key);
            let (snapshot, has_died) = unpacked.context("expected a picture, found other data")?;
            self.has_died = has_died;
            Ok(Some(Ok(snapshot)))
        })?;
        match answer {
            Some(Err(failure)) => Err(failure.into_error().context(far.way.name.clone())),
            Some(Ok(snapshot)) => Ok(Some(snapshot)),
            None => Ok(None),
        }
    }

    /// A picture as it is shown: beside those of other places, if there are any.
    fn shown(&mut self, mut snapshot: Snapshot) -> Snapshot {
        let Some(place) = &self.place else { return snapshot };
        if self.is_elsewhere {
            // A rate that is refined later must not move what was measured before.
            let rate = snapshot.clock.ticks_per_second;
            self.scale.get_or_insert_with(|| Scale::of(rate)).snapshot(&mut snapshot);
        }
        let process = &mut snapshot.process;
        for member in &mut process.members {
            member.name = places::at(&member.name, place);
        }
        process.name = places::at(&process.name, place);
        snapshot
    }

    fn call(&mut self, ask: Ask, patience: Duration) -> Result<(Answer, Vec<u8>)> {
        self.attach()?;
        self.far.borrow_mut().call(ask, patience)
    }

    fn records<T: DeserializeOwned>(&mut self, ask: Ask) -> Result<T> {
        match self.call(ask, MOST_PATIENCE)? {
            (Answer::Records, packed) => Unpacker::unpack_one(&packed),
            _ => bail!("expected records, found another message"),
        }
    }
}

impl Source for Remote {
    fn prepare(&mut self) {
        let mut far = self.far.borrow_mut();
        if self.opened == far.opened && self.asked.is_none() {
            // A line that is lost is told of by the poll.
            let number = far.with(|line| line.send_for_picture(self.id, self.looking)).ok();
            self.asked = number.map(|number| (number, Instant::now()));
        }
    }

    fn look_at(&mut self, looking: Looking) {
        self.looking = looking;
    }

    fn poll(&mut self) -> Result<Snapshot> {
        self.attach()?;
        self.missed += 1;
        if let Some(snapshot) = self.next()? {
            self.last = Some(snapshot);
            self.came = Instant::now();
            self.missed = 0;
        }
        // Late or not, it is the last that is known.
        match self.last.clone() {
            Some(last) => Ok(self.shown(last)),
            None => bail!("{}: expected a picture, found silence", self.far.borrow().way.name),
        }
    }

    fn has_died(&self) -> bool {
        self.has_died
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        if let Ok(records) = self.records(Ask::Records { source: self.id }) {
            snapshot.records = records;
            if let Some(scale) = self.scale {
                scale.records(&mut snapshot.records);
            }
        }
    }

    fn new_records(&mut self, snapshot: &Snapshot, from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        let from = snapshot.lanes.iter().map(|lane| (lane.id, from(lane.id))).collect();
        let ask = Ask::NewRecords { source: self.id, from };
        let mut lanes: Vec<Drained> = self.records(ask).unwrap_or_default();
        lanes.iter_mut().for_each(Drained::own);
        if let Some(scale) = self.scale {
            scale.drained(&mut lanes);
        }
        lanes
    }

    fn save_raw(&mut self, _path: &Path, _overwrite: Overwrite) -> Result<(), WriteError> {
        let why = "expected a process of this machine, whose segment can be copied; found one \
                   behind --via: run `pfp-top save-raw` there";
        Err(WriteError::Io(io::Error::new(io::ErrorKind::Unsupported, why)))
    }

    fn act(&mut self, change: Change) -> Result<()> {
        self.call(Ask::Act { source: self.id, change }, MORE_PATIENCE).map(drop)
    }

    fn is_process(&self) -> bool {
        true
    }

    fn read_only(&self) -> Option<&str> {
        self.read_only.as_deref()
    }

    fn line(&self) -> Option<Line> {
        let far = self.far.borrow();
        let why = match &far.state {
            State::Up(_) => None,
            State::Opening(_, why) | State::Lost { why, .. } => Some(why.clone()),
        };
        let silent = self.asked.map(|(_, since)| since.elapsed()).unwrap_or_default();
        let is_late = why.is_some() || (silent >= SILENT && self.missed > 1);
        let late = is_late.then(|| self.came.elapsed());
        // A room of this machine is as near as any process, as long as all is well.
        let via = || far.way.name.clone();
        (late.is_some() || !far.way.is_here()).then(|| Line { via: via(), late, why })
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        let mut far = self.far.borrow_mut();
        if self.opened == far.opened
            && let State::Up(line) = &mut far.state
        {
            line.detach(self.id, self.asked.map(|(number, _)| number));
        }
    }
}
