//! Processes of another place, through an agent there.
//!
//! ```text
//! Via, Remote -- requests --> `ssh node1 pfp-top agent` -- source --> process
//!             <-- replies --
//! ```
//!
//! The agent is started by a command of the user's, and spoken with over its standard input
//! and output ([`wire`]). A request for a picture is made only after the one before came, so a
//! slow line gets fewer pictures, and nothing piles up. No answer is waited for long: one that is
//! late is taken later. A line that is lost is tried again; the last figures stay meanwhile. What comes over it is trusted no more than a file.

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
use super::rooms::Entrance;
use super::{
    BadPlace, Candidate, Change, Discovery, Finder, Line, Looking, Refusal, Source, Together,
    guarded,
};
use crate::export::json::{Overwrite, WriteError};
use crate::snapshot::{Drained, Snapshot};
use crate::text::clean;

/// How long a line may owe an answer before the screen goes on without it.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long whoever has no screen waits for a picture that is not the first.
const PATIENCE_OF_READERS: Duration = Duration::from_secs(2);
/// How long a key waits for what it asked for, over a line that owes nothing else.
const MORE_PATIENCE: Duration = Duration::from_secs(1);
/// How long a first look for processes waits for each place.
const TO_FIND: Duration = Duration::from_secs(3);
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
/// How long a command may take to end when nobody needs it, and then when it is told to.
const TO_END: Duration = Duration::from_secs(1);
/// How long the screen waits for a command that nobody needs any more.
const TO_SAY_GOODBYE: Duration = Duration::from_millis(300);

/// A running agent.
struct Agent {
    child: Child,
    /// Whether this program was to go along.
    copies: bool,
    /// None once it was said goodbye to.
    requests: Option<ChildStdin>,
    replies: Receiver<Result<(Reply, Vec<u8>)>>,
    /// Numbers of the requests whose answers somebody will ask for.
    asked: HashSet<u32>,
    /// Answers to those that came while another one was waited for.
    early: VecDeque<(Reply, Vec<u8>)>,
    /// When it spoke last.
    heard: Instant,
    /// Since when an answer is owed and none has come; none while nothing is owed.
    silent_since: Option<Instant>,
    /// It may not have read all requests: when it ends, the line is cut without a goodbye, and
    /// the agent puts back what was switched.
    is_cut: bool,
    /// The last line that the command wrote to its standard error.
    said: Arc<Mutex<String>>,
    /// Disconnected once all of that was read.
    all_said: Receiver<()>,
    /// Number of the next request.
    next: u32,
}

/// What a line brought.
enum Heard {
    Nothing,
    /// An answer that somebody will take.
    Answer,
    /// What nobody asked for, or waits for any more.
    Other,
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
    /// The room that it leads into, if it is one of this machine.
    room: Option<Entrance>,
}

impl Way {
    /// Through a command.
    fn through(Route { command, copies }: &Route) -> Self {
        let agent = if *copies { "sh" } else { "pfp-top agent" };
        let arguments = vec!["-c".to_owned(), format!("{command} {agent}")];
        let (variables, copies) = (Vec::new(), *copies);
        let name = command.clone();
        Self { name, program: "sh", arguments, variables, copies, room: None }
    }

    /// Into a room of this machine.
    pub(super) fn into_room(
        name: String,
        room: Entrance,
        variables: Vec<(&'static str, Option<OsString>)>,
    ) -> Self {
        let arguments = ["agent", "--enter"].map(str::to_owned).into();
        Self { name, program: THIS, arguments, variables, copies: false, room: Some(room) }
    }

    /// Whether it leads to another room of this machine.
    fn is_here(&self) -> bool {
        self.room.is_some()
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(self.program);
        command.args(&self.arguments);
        if let Some(room) = &self.room {
            command.arg(room.resident()?.to_string());
        }
        for (name, value) in &self.variables {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Ok(command)
    }
}

impl Agent {
    /// Starts an agent, and makes sure that it speaks as this program does. Where the screen is
    /// shown, the command may not ask for a password.
    fn open(way: &Way, keep: bool, may_ask: bool) -> Result<Self> {
        let via = way.name.as_str();
        let mut command = way.command().with_context(|| via.to_owned())?;
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
        let mut line = Self {
            child,
            copies: way.copies,
            requests,
            replies,
            asked: HashSet::new(),
            early: VecDeque::new(),
            heard: Instant::now(),
            silent_since: None,
            is_cut: false,
            said,
            all_said,
            next: 0,
        };
        if let Err(error) = copied {
            return Err(line.why_not(via, &error));
        }
        // Where nobody reads it, what was written instead of an answer tells why.
        let asked = line.next;
        let _ = line.ask(Ask::Hello { keep });
        line.asked.insert(asked);
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
        let code = self.end().and_then(|status| status.code());
        let said = self.said();
        if code == Some(127) || says_missing(&said) {
            return anyhow!(Refusal::NoTarget(format!(
                "{via}: expected pfp-top on the path there, found none{said}; install it there, or \
                 --via-copy takes this one along"
            )));
        }
        match (code, self.copies) {
            (Some(126), true) => anyhow!(
                "{via}: {error:#}{said}; where it may not run what is in its temporary folder, \
                 TMPDIR names another, as --via 'ssh node1 TMPDIR=/var/tmp'"
            ),
            (Some(126), false) => anyhow!(
                "{via}: expected a pfp-top there that may be run, found none{said}; install it \
                 there, or --via-copy takes this one along"
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

    /// Asks for what nobody waits for.
    fn send(&mut self, ask: Ask) -> Result<u32> {
        let number = self.next;
        self.next += 1;
        let requests = self.requests.as_mut().ok_or_else(|| anyhow!("it has ended"))?;
        match wire::write(requests, &Request { number, ask }, &[]) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => bail!("it has ended"),
            result => result?,
        }
        self.silent_since.get_or_insert_with(Instant::now);
        Ok(number)
    }

    /// Asks for what somebody will take.
    fn ask(&mut self, ask: Ask) -> Result<u32> {
        let number = self.send(ask)?;
        self.asked.insert(number);
        Ok(number)
    }

    /// Nobody will take the answer to this request.
    fn forget(&mut self, number: u32) {
        self.asked.remove(&number);
        self.early.retain(|(reply, _)| reply.number != number);
    }

    /// The answer to a request; none if the line gives no answer for so long.
    fn wait(&mut self, number: u32, patience: Duration) -> Result<Option<(Answer, Vec<u8>)>> {
        let until = Instant::now() + patience;
        loop {
            if let Some(place) = self.early.iter().position(|(reply, _)| reply.number == number) {
                let found = self.early.remove(place);
                return Ok(found.map(|(reply, rest)| (reply.answer, rest)));
            }
            let silent = self.silent_since.map(|since| since.elapsed()).unwrap_or_default();
            let left = until.saturating_duration_since(Instant::now());
            let left = left.min(patience.saturating_sub(silent));
            match self.hear(left)? {
                // One that floods the line with what nobody asked for gets nobody to wait.
                Heard::Nothing => return Ok(None),
                Heard::Other if left.is_zero() => return Ok(None),
                Heard::Other | Heard::Answer => {}
            }
        }
    }

    /// Takes one reply in, if it comes in time.
    fn hear(&mut self, patience: Duration) -> Result<Heard> {
        let (reply, rest) = match self.replies.recv_timeout(patience) {
            Ok(reply) => reply?,
            Err(RecvTimeoutError::Timeout) => return Ok(Heard::Nothing),
            Err(RecvTimeoutError::Disconnected) => bail!("it has ended"),
        };
        let owes_more = reply.number.wrapping_add(1) != self.next;
        self.heard = Instant::now();
        self.silent_since = owes_more.then_some(self.heard);
        if !self.asked.remove(&reply.number) {
            return Ok(Heard::Other);
        }
        self.early.push_back((reply, rest));
        Ok(Heard::Answer)
    }

    /// Whether it owes an answer for so long that nobody should wait for it.
    fn is_late(&mut self) -> Result<bool> {
        for _ in 0..=UNREAD {
            if matches!(self.hear(Duration::ZERO)?, Heard::Nothing) {
                break;
            }
        }
        Ok(self.silent_since.is_some_and(|since| since.elapsed() >= PATIENCE))
    }

    /// Ends the command: by itself, or if it does not, by a signal. One that is stopped puts
    /// back what was switched when it goes on, and is not waited for.
    fn end(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        if let Some(status) = self.wait_for_end(TO_END) {
            // What it complained about last may still be on its way.
            let _ = self.all_said.recv_timeout(TO_BE_SAID);
            return Some(status);
        }
        self.terminate();
        self.wait_for_end(TO_END)
    }

    fn wait_for_end(&mut self, patience: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < patience {
            if let Some(status) = self.child.try_wait().ok()? {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    fn id(&self) -> libc::pid_t {
        libc::pid_t::try_from(self.child.id()).unwrap_or(libc::pid_t::MAX)
    }

    fn terminate(&self) {
        // SAFETY: to send a signal touches no memory; nobody has waited for the child.
        unsafe { libc::kill(self.id(), libc::SIGTERM) };
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let mut is_late = false;
        if self.requests.is_some() {
            is_late = self.is_late().unwrap_or(false);
            if !self.is_cut {
                let _ = self.send(Ask::Goodbye);
            }
            self.requests = None;
            if !self.is_cut && !is_late {
                self.wait_for_end(TO_SAY_GOODBYE);
            }
        }
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Nobody waits for one that is late: it hears of its end when it goes on.
        if self.is_cut || !is_late {
            self.terminate();
        }
        let id = self.id();
        // SAFETY: a child that nobody else waits for, and no place for its status.
        thread::spawn(move || unsafe { libc::waitpid(id, std::ptr::null_mut(), 0) });
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

/// Whether a complaint is that there is no pfp-top, as `sudo`, `docker` and `kubectl` have it,
/// whose exit status need not tell.
fn says_missing(said: &str) -> bool {
    said.contains("pfp-top") && (said.contains("not found") || said.contains("No such file"))
}

fn keep_last_line(errors: impl Read, said: &Mutex<String>) {
    // However long a line is.
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while let Ok(1..) = errors.by_ref().take(LINE).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        // Some say in a last line with which status that ended.
        if !text.trim().is_empty() && !says_missing(&said) {
            *said = text.into_owned();
        }
        line.clear();
    }
}

/// Starts an agent in the background.
fn open_later(way: &Way, keep: bool) -> Receiver<Result<Agent>> {
    let (sender, opened) = mpsc::channel();
    let way = way.clone();
    thread::spawn(move || sender.send(Agent::open(&way, keep, false)).ok());
    opened
}

/// The line to an agent, which is opened again when it is lost.
struct Far {
    way: Way,
    keep: bool,
    state: State,
    /// How often it was opened.
    opened: u32,
    /// While it is not up, when it spoke last, or was to be opened first.
    down_since: Instant,
    /// Number of the next source.
    next: u32,
}

enum State {
    Up(Agent),
    /// It is being opened, again if there is a reason for that.
    Opening(Receiver<Result<Agent>>, Option<String>),
    Lost {
        why: String,
        until: Instant,
    },
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
        Self { way, keep, state, opened, down_since: Instant::now(), next: 0 }
    }

    /// The line by an agent that is being started.
    fn opening(way: Way, keep: bool) -> Self {
        let state = State::Opening(open_later(&way, keep), None);
        Self { way, keep, state, opened: 0, down_since: Instant::now(), next: 0 }
    }

    /// Waits until it is open, or is known not to be.
    fn wait_until_open(&mut self, patience: Duration) {
        if let State::Opening(opening, _) = &self.state
            && let Ok(opened) = opening.recv_timeout(patience)
        {
            self.take(opened);
        }
    }

    fn take(&mut self, opened: Result<Agent>) {
        match opened {
            Ok(line) => {
                self.state = State::Up(line);
                self.opened += 1;
            }
            Err(error) => self.lose(&format!("{error:#}")),
        }
    }

    /// The line, if it is up. If not, it is opened in the background.
    fn line(&mut self) -> Result<&mut Agent> {
        if let State::Lost { why, until } = &mut self.state
            && *until <= Instant::now()
        {
            let why = std::mem::take(why);
            self.state = State::Opening(open_later(&self.way, self.keep), Some(why));
        }
        self.wait_until_open(Duration::ZERO);
        match &mut self.state {
            State::Up(line) => Ok(line),
            State::Opening(_, None) => {
                bail!("{}: expected an agent, found none yet", self.way.name)
            }
            State::Opening(_, Some(why)) | State::Lost { why, .. } => bail!("{why}; trying again"),
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
        let heard = line.heard;
        line.end();
        let said = line.said();
        self.down_since = heard;
        let why = format!("{}: the line was lost: {error:#}{said}", self.way.name);
        self.lose(&why);
        bail!("{why}; trying again")
    }

    /// Asks, and waits for no answer.
    fn ask(&mut self, ask: Ask) -> Result<Asked> {
        let number = self.with(|line| line.ask(ask))?;
        Ok(Asked { number, opened: self.opened, since: Instant::now() })
    }

    /// The answer to what was asked; none if the line gives no answer for so long. A line that
    /// is late is not lost.
    fn answer(&mut self, asked: Asked, patience: Duration) -> Result<Option<(Answer, Vec<u8>)>> {
        self.line()?;
        if asked.opened != self.opened {
            bail!("{}: the line was lost before it answered", self.way.name);
        }
        match self.with(|line| line.wait(asked.number, patience))? {
            Some((Answer::Failed(failure), _)) => {
                Err(failure.into_error().context(self.way.name.clone()))
            }
            answer => Ok(answer),
        }
    }

    /// Why there is no answer to what was asked.
    fn silence(&self, asked: Asked) -> anyhow::Error {
        let silent = asked.since.elapsed().as_secs();
        anyhow!("{}: expected an answer, found none for {silent} s", self.way.name)
    }

    fn forget(&mut self, asked: Asked) {
        if let State::Up(line) = &mut self.state
            && asked.opened == self.opened
        {
            line.forget(asked.number);
        }
    }

    fn is_late(&mut self) -> bool {
        self.with(Agent::is_late).unwrap_or(true)
    }

    /// Since when it has nothing new, and why if that is known; none while all is well.
    fn bad(&mut self) -> Option<(Instant, Option<String>)> {
        self.is_late();
        let name = format!("{}: ", self.way.name);
        let why = |why: &String| why.strip_prefix(&name).unwrap_or(why).to_owned();
        let (since, why) = match &self.state {
            State::Up(line) => (line.silent_since?, None),
            State::Opening(_, found) => (self.down_since, found.as_ref().map(why)),
            State::Lost { why: found, .. } => (self.down_since, Some(why(found))),
        };
        // A room whose last process has just ended is none a moment later.
        (since.elapsed() >= SILENT).then_some((since, why))
    }
}

/// A request that is to be answered.
#[derive(Clone, Copy, Debug)]
struct Asked {
    number: u32,
    /// Which opening of the line it was asked over.
    opened: u32,
    since: Instant,
}

/// The finder of the processes of another place.
pub(super) struct Via {
    far: Rc<RefCell<Far>>,
    /// What it is called beside others; none where it is the only place.
    place: Option<String>,
    /// Whether its clock is another one than that of the places beside it.
    is_elsewhere: bool,
    /// A look for processes that is to be answered.
    asked: Option<Asked>,
    /// What the last one brought.
    found: Option<Discovery>,
    /// Until when the first is waited for.
    until: Instant,
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

    /// Starts an agent in another room of this machine, without waiting for it. What it finds is
    /// called by the way's name. The first look may wait.
    pub(super) fn of_room(way: Way, keep: bool, may_wait: bool) -> Self {
        let name = way.name.clone();
        let mut via = Self::of(Far::opening(way, keep), Some(name), false);
        if !may_wait {
            via.until = Instant::now();
        }
        via
    }

    fn of(far: Far, place: Option<String>, is_elsewhere: bool) -> Self {
        let far = Rc::new(RefCell::new(far));
        let until = Instant::now() + TO_FIND;
        Self { far, place, is_elsewhere, asked: None, found: None, until }
    }

    /// This place, if it cannot be asked now.
    pub(super) fn bad_place(&self) -> Option<BadPlace> {
        let mut far = self.far.borrow_mut();
        let (since, why) = far.bad()?;
        let name = self.place.clone().unwrap_or_else(|| far.way.name.clone());
        Some(BadPlace { name, since, why })
    }

    /// Whether something is watched there.
    pub(super) fn is_in_use(&self) -> bool {
        Rc::strong_count(&self.far) > 1
    }

    /// Asks for what is there, unless an answer is still to come.
    fn ask(&mut self) -> Result<Asked> {
        let mut far = self.far.borrow_mut();
        // The answer to what was asked over a line that was lost never comes.
        let asked = match self.asked.filter(|asked| asked.opened == far.opened) {
            Some(asked) => asked,
            None => far.ask(Ask::Discover)?,
        };
        Ok(*self.asked.insert(asked))
    }

    /// What is there; none if the answer is still to come. Only the first is waited for.
    pub(super) fn look(&mut self) -> Result<Option<Discovery>> {
        let left = |until: Instant| until.saturating_duration_since(Instant::now());
        {
            let mut far = self.far.borrow_mut();
            far.wait_until_open(left(self.until));
            if matches!(far.state, State::Opening(_, None)) {
                return Ok(None);
            }
        }
        let asked = self.ask()?;
        let patience = if self.found.is_none() { left(self.until) } else { Duration::ZERO };
        self.take(asked, patience)
    }

    /// What is there, if the answer comes in time.
    fn take(&mut self, asked: Asked, patience: Duration) -> Result<Option<Discovery>> {
        let mut far = self.far.borrow_mut();
        let mut discovery = match far.answer(asked, patience) {
            Ok(None) if asked.since.elapsed() >= SILENT => return Err(far.silence(asked)),
            Ok(None) => return Ok(None),
            Ok(Some((Answer::Found(discovery), _))) => discovery,
            other => {
                self.asked = None;
                other?;
                bail!("{}: expected what was found, found another message", far.way.name);
            }
        };
        self.asked = None;
        discovery.via = Some(far.way.name.clone());
        if let Some(place) = &self.place {
            for candidate in &mut discovery.candidates {
                candidate.name = places::at(&candidate.name, place);
            }
        }
        clean_discovery(&mut discovery);
        self.found = Some(discovery.clone());
        Ok(Some(discovery))
    }

    /// Watches it; whether that can be done is told by the first poll.
    fn watch(&self, what: What) -> Result<Remote> {
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
            attaching: None,
            asked: None,
            asked_for_records: None,
            acts: Vec::new(),
            last: None,
            is_base: false,
            came: Instant::now(),
            read_only: None,
            has_died: false,
        };
        remote.attach()?;
        Ok(remote)
    }

    /// Watches a process, without waiting for the line.
    pub(super) fn watch_later(&self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let remote = self.watch(What::One(candidate.segment_id.clone()))?;
        Ok(guarded(Box::new(remote)))
    }

    fn watch_now(&self, what: What) -> Result<Box<dyn Source>> {
        let mut remote = self.watch(what)?;
        remote.wait_until_attached()?;
        Ok(guarded(Box::new(remote)))
    }
}

impl Finder for Via {
    fn discover(&mut self) -> Result<Discovery> {
        let asked = self.ask()?;
        let patience = if self.found.is_none() { TO_FIND } else { PATIENCE };
        match (self.take(asked, patience)?, &self.found) {
            (Some(found), _) => Ok(found),
            (None, Some(last)) => Ok(last.clone()),
            (None, None) => Err(self.far.borrow().silence(asked)),
        }
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        self.watch_now(What::One(candidate.segment_id.clone()))
    }

    fn attach_together(&mut self, together: &Together) -> Result<Box<dyn Source>> {
        self.watch_now(What::Several(together.clone()))
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
    /// The agent has yet to say whether it is attached.
    attaching: Option<Asked>,
    /// The picture that is to come.
    asked: Option<Asked>,
    /// The records that are to come.
    asked_for_records: Option<Asked>,
    /// Changes that were not waited for.
    acts: Vec<Asked>,
    /// The last picture.
    last: Option<Snapshot>,
    /// The next one is told from it.
    is_base: bool,
    /// When it came.
    came: Instant,
    read_only: Option<String>,
    has_died: bool,
}

impl Remote {
    /// Attaches by the line as it is now, unless that was done, without waiting for it.
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
        self.unpacker = Unpacker::new()?;
        self.attaching = Some(far.ask(ask)?);
        self.opened = far.opened;
        (self.asked, self.asked_for_records, self.is_base) = (None, None, false);
        self.acts.clear();
        Ok(())
    }

    /// Whether it is attached, or the answer does not come in time.
    fn is_attached(&mut self, patience: Duration) -> Result<bool> {
        let Some(asked) = self.attaching else { return Ok(true) };
        let mut far = self.far.borrow_mut();
        match far.answer(asked, patience) {
            Ok(None) => return Ok(false),
            Ok(Some((Answer::Attached { read_only }, _))) => self.read_only = read_only,
            other => {
                // It is asked again.
                (self.attaching, self.opened) = (None, 0);
                other?;
                bail!("{}: expected to be attached, found another message", far.way.name);
            }
        }
        self.attaching = None;
        Ok(true)
    }

    fn wait_until_attached(&mut self) -> Result<()> {
        let asked = self.attaching;
        match (self.is_attached(MOST_PATIENCE)?, asked) {
            (false, Some(asked)) => Err(self.far.borrow().silence(asked)),
            _ => Ok(()),
        }
    }

    /// How long to wait for a picture.
    fn patience(&self) -> Duration {
        match (&self.last, self.looking.within) {
            (None, None) => MOST_PATIENCE,
            // No screen stands still meanwhile; once is enough, where a line is silent.
            (Some(_), None) if self.missed <= 1 => PATIENCE_OF_READERS,
            _ => PATIENCE,
        }
    }

    /// The next picture, if it comes in time.
    fn next(&mut self) -> Result<Option<Snapshot>> {
        let patience = self.patience();
        let asked = match self.asked {
            Some(asked) => asked,
            None => self.ask_for_picture()?,
        };
        let far = Rc::clone(&self.far);
        let mut far = far.borrow_mut();
        let Some((answer, packed)) = far.answer(asked, patience).inspect_err(|_| {
            self.asked = None;
        })?
        else {
            return Ok(None);
        };
        self.asked = None;
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

    fn ask_for_picture(&mut self) -> Result<Asked> {
        let Looking { extent, within } = self.looking;
        let within_s = within.map(|within| (within + FORGIVEN).as_secs());
        let ask = Ask::Picture { source: self.id, extent, within_s };
        Ok(*self.asked.insert(self.far.borrow_mut().ask(ask)?))
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

    /// How long to wait for what belongs to the picture that came, or for what a key asked for.
    fn more_patience(&self) -> Duration {
        match self.looking.within {
            None => MOST_PATIENCE,
            Some(_) if self.far.borrow_mut().is_late() => Duration::ZERO,
            Some(_) => MORE_PATIENCE,
        }
    }

    /// Records that the agent sends for this; none if they are still to come.
    fn records<T: DeserializeOwned>(&mut self, ask: Ask) -> Result<Option<T>> {
        self.attach()?;
        let patience = self.more_patience();
        let mut far = self.far.borrow_mut();
        let asked = match self.asked_for_records {
            Some(asked) => asked,
            None => far.ask(ask)?,
        };
        self.asked_for_records = None;
        match far.answer(asked, patience)? {
            Some((Answer::Records, packed)) => Unpacker::unpack_one(&packed).map(Some),
            Some(_) => bail!("expected records, found another message"),
            None => {
                self.asked_for_records = Some(asked);
                Ok(None)
            }
        }
    }

    /// Looks at the answers to changes that were not waited for.
    fn look_after_acts(&mut self) -> Result<()> {
        let mut far = self.far.borrow_mut();
        while let Some(&asked) = self.acts.first() {
            let answer = far.answer(asked, Duration::ZERO);
            if !matches!(answer, Ok(None)) {
                self.acts.remove(0);
            }
            if answer?.is_none() {
                break;
            }
        }
        Ok(())
    }
}

impl Source for Remote {
    fn prepare(&mut self) {
        let is_ready = self.attaching.is_none() && self.asked.is_none();
        let opened = self.far.borrow().opened;
        if is_ready && self.opened == opened {
            // A line that is lost is told of by the poll.
            let _ = self.ask_for_picture();
        }
    }

    fn look_at(&mut self, looking: Looking) {
        self.looking = looking;
    }

    fn poll(&mut self) -> Result<Snapshot> {
        self.attach()?;
        self.missed += 1;
        if self.is_attached(self.patience())? {
            self.look_after_acts()?;
            if let Some(snapshot) = self.next()? {
                self.last = Some(snapshot);
                self.came = Instant::now();
                self.missed = 0;
            }
        }
        // Late or not, it is the last that is known.
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

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        if let Ok(Some(records)) = self.records(Ask::Records { source: self.id }) {
            snapshot.records = records;
            if let Some(scale) = self.scale {
                scale.records(&mut snapshot.records);
            }
        }
    }

    fn new_records(&mut self, snapshot: &Snapshot, from: &dyn Fn(u32) -> u64) -> Vec<Drained> {
        let from = snapshot.lanes.iter().map(|lane| (lane.id, from(lane.id))).collect();
        let ask = Ask::NewRecords { source: self.id, from };
        let lanes: Result<Option<Vec<Drained>>> = self.records(ask);
        let mut lanes = lanes.ok().flatten().unwrap_or_default();
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
        self.attach()?;
        let patience = self.more_patience();
        if !self.is_attached(patience)? {
            bail!("{}: the line is late; nothing was changed", self.far.borrow().way.name);
        }
        let mut far = self.far.borrow_mut();
        let asked = far.ask(Ask::Act { source: self.id, change })?;
        match far.answer(asked, patience)? {
            Some(_) => Ok(()),
            None if self.looking.within.is_none() => Err(far.silence(asked)),
            // It is done when the line speaks again.
            None => {
                self.acts.push(asked);
                Ok(())
            }
        }
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
            State::Opening(_, why) => why.clone(),
            State::Lost { why, .. } => Some(why.clone()),
        };
        let owed = self.attaching.or(self.asked);
        let silent = owed.map(|asked| asked.since.elapsed()).unwrap_or_default();
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
        if self.opened != far.opened {
            return;
        }
        // A screen that is left while the line is late cannot know what is switched there.
        let cuts = self.looking.within.is_some() && far.is_late();
        let owed = [self.attaching, self.asked, self.asked_for_records];
        for asked in owed.into_iter().flatten().chain(self.acts.drain(..)) {
            far.forget(asked);
        }
        if let State::Up(line) = &mut far.state {
            match cuts {
                true => line.is_cut = true,
                // The answer is nobody's, and a line that is lost needs none.
                false => drop(line.send(Ask::Detach { source: self.id })),
            }
        }
    }
}
