//! The line to a place: it is opened in the background, and reopened after a loss.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::agent::{AgentProcess, SILENT, StartHandle};
use super::way::AgentCommand;
use super::wire::{Answer, Ask};

/// Time between two attempts to reopen a line.
const REOPEN_INTERVAL: Duration = Duration::from_secs(5);

/// An agent that is being started in the background. Dropping this gives up the start.
pub(super) struct Connecting {
    opened: Receiver<Result<AgentProcess>>,
    waiting: StartHandle,
}

impl Connecting {
    pub(super) fn start(way: &AgentCommand, keep: bool, may_ask: bool) -> Self {
        let (sender, opened) = mpsc::channel();
        let (way, waiting) = (way.clone(), StartHandle::default());
        let until = waiting.clone();
        thread::spawn(move || sender.send(AgentProcess::open(&way, keep, may_ask, &until)).ok());
        Self { opened, waiting }
    }

    /// Waits for the agent, or for the reason why it failed to start.
    pub(super) fn wait(&self, timeout: Duration) -> Option<Result<AgentProcess>> {
        self.opened.recv_timeout(timeout).ok()
    }

    pub(super) fn give_up(&self) {
        self.waiting.give_up();
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        // The command must not outlive this program.
        self.give_up();
    }
}

/// The line to an agent, which is reopened after a loss.
pub(super) struct Connection {
    pub(super) way: AgentCommand,
    pub(super) keep: bool,
    pub(super) state: ConnectionState,
    /// Number of times that the line was opened. A request over an earlier line gets no answer.
    pub(super) opened: u32,
    /// While the line is down: the moment of the last reply, or of the first attempt to open it.
    pub(super) down_since: Instant,
    /// Number that the next [`RemoteSource`](super::remote::RemoteSource) gets.
    pub(super) next: u32,
}

pub(super) enum ConnectionState {
    Up(AgentProcess),
    /// The line is being opened. After a loss, the text is the reason for the loss.
    Opening(Connecting, Option<String>),
    /// The line is down, for the reason `why`. It is reopened from `until` on.
    Lost {
        why: String,
        until: Instant,
    },
}

impl Connection {
    /// The line to an agent. If the agent's start failed, another agent is started after a while.
    pub(super) fn of(way: AgentCommand, keep: bool, agent: Result<AgentProcess>) -> Self {
        let (state, opened) = match agent {
            Ok(agent) => (ConnectionState::Up(agent), 1),
            Err(error) => {
                let until = Instant::now() + REOPEN_INTERVAL;
                (ConnectionState::Lost { why: format!("{error:#}"), until }, 0)
            }
        };
        Self { way, keep, state, opened, down_since: Instant::now(), next: 0 }
    }

    /// Starts an agent, and returns the line that will lead to it.
    pub(super) fn opening(way: AgentCommand, keep: bool) -> Self {
        let state = ConnectionState::Opening(Connecting::start(&way, keep, false), None);
        Self { way, keep, state, opened: 0, down_since: Instant::now(), next: 0 }
    }

    /// Waits until the line is open, or has failed to open.
    pub(super) fn wait_until_open(&mut self, timeout: Duration) {
        if let ConnectionState::Opening(opening, _) = &self.state
            && let Some(opened) = opening.wait(timeout)
        {
            self.take(opened);
        }
    }

    pub(super) fn take(&mut self, opened: Result<AgentProcess>) {
        match opened {
            Ok(line) => {
                self.state = ConnectionState::Up(line);
                self.opened += 1;
            }
            Err(error) => self.lose(&format!("{error:#}")),
        }
    }

    /// The agent, if the line is up. Otherwise opens the line in the background and returns an
    /// error.
    pub(super) fn line(&mut self) -> Result<&mut AgentProcess> {
        if let ConnectionState::Lost { why, until } = &mut self.state
            && *until <= Instant::now()
        {
            let why = std::mem::take(why);
            self.state =
                ConnectionState::Opening(Connecting::start(&self.way, self.keep, false), Some(why));
        }
        self.wait_until_open(Duration::ZERO);
        match &mut self.state {
            ConnectionState::Up(line) => Ok(line),
            ConnectionState::Opening(_, None) => {
                bail!("{}: expected an agent, found none yet", self.way.name)
            }
            ConnectionState::Opening(_, Some(why)) | ConnectionState::Lost { why, .. } => {
                bail!("{why}; trying again")
            }
        }
    }

    pub(super) fn lose(&mut self, why: &str) {
        self.state =
            ConnectionState::Lost { why: why.to_owned(), until: Instant::now() + REOPEN_INTERVAL };
    }

    /// Calls `work` with the agent. If `work` fails, the line counts as lost.
    pub(super) fn with<T>(
        &mut self,
        work: impl FnOnce(&mut AgentProcess) -> Result<T>,
    ) -> Result<T> {
        let line = self.line()?;
        let error = match work(line) {
            Ok(result) => return Ok(result),
            Err(error) => error,
        };
        let heard = line.heard;
        line.end();
        let said = line.said();
        self.down_since = heard;
        let why = format!("{}: the connection was lost: {error:#}{said}", self.way.name);
        self.lose(&why);
        bail!("{why}; trying again")
    }

    /// Sends a request without waiting for the answer.
    pub(super) fn ask(&mut self, ask: Ask) -> Result<PendingRequest> {
        let number = self.with(|line| line.ask(ask))?;
        Ok(PendingRequest { number, opened: self.opened, since: Instant::now() })
    }

    /// Waits for the answer to a request. `None` if the answer does not arrive in time; this alone
    /// does not mean that the line is lost.
    pub(super) fn answer(
        &mut self,
        asked: PendingRequest,
        timeout: Duration,
    ) -> Result<Option<(Answer, Vec<u8>)>> {
        self.line()?;
        if asked.opened != self.opened {
            bail!("{}: the connection was lost before it answered", self.way.name);
        }
        match self.with(|line| line.wait(asked.number, timeout))? {
            Some((Answer::Failed(failure), _)) => {
                Err(failure.into_error().context(self.way.name.clone()))
            }
            answer => Ok(answer),
        }
    }

    /// Whether the answer to a request is still on its way. False if the line is down, so that the
    /// answer never comes.
    pub(super) fn awaits(&mut self, asked: PendingRequest) -> bool {
        asked.opened == self.opened
            && matches!(self.state, ConnectionState::Up(_))
            && self.with(|line| line.has_answered(asked.number)).is_ok_and(|has| !has)
    }

    /// The error that says how long a request has had no answer.
    pub(super) fn silence(&self, asked: PendingRequest) -> anyhow::Error {
        let silent = asked.since.elapsed().as_secs();
        anyhow!("{}: expected an answer, found none for {silent} s", self.way.name)
    }

    pub(super) fn forget(&mut self, asked: PendingRequest) {
        if let ConnectionState::Up(line) = &mut self.state
            && asked.opened == self.opened
        {
            line.forget(asked.number);
        }
    }

    pub(super) fn is_late(&mut self) -> bool {
        self.with(AgentProcess::is_late).unwrap_or(true)
    }

    /// The moment since which nothing new has arrived, and the reason if known. `None` if the line
    /// works.
    pub(super) fn bad(&mut self) -> Option<(Instant, Option<String>)> {
        self.is_late();
        let name = format!("{}: ", self.way.name);
        let why = |why: &String| why.strip_prefix(&name).unwrap_or(why).to_owned();
        let (since, why) = match &self.state {
            ConnectionState::Up(line) => (line.silent_since?, None),
            ConnectionState::Opening(_, found) => (self.down_since, found.as_ref().map(why)),
            ConnectionState::Lost { why: found, .. } => (self.down_since, Some(why(found))),
        };
        // A line into a room (a container or user of this machine) is lost when the room's last
        // process ends, and the room is removed a moment later. The loss of such a line is
        // therefore not reported at once.
        let is_certain = why.is_some() && !self.way.is_here();
        (is_certain || since.elapsed() >= SILENT).then_some((since, why))
    }
}

/// A request that was sent and whose answer has not been returned yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest {
    pub(super) number: u32,
    /// The value of [`Connection::opened`] when the request was sent.
    pub(super) opened: u32,
    pub(super) since: Instant,
}
