//! The line to a place, which is reopened after a loss.

use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::agent::{Agent, SILENT, Waiting};
use super::way::Way;
use super::wire::{Answer, Ask};

/// Time between two attempts to reopen a line.
const AGAIN: Duration = Duration::from_secs(5);

/// An agent that is being started in the background. Dropping this gives up the start.
pub(super) struct Opening {
    opened: Receiver<Result<Agent>>,
    waiting: Waiting,
}

impl Opening {
    pub(super) fn start(way: &Way, keep: bool, may_ask: bool) -> Self {
        let (sender, opened) = mpsc::channel();
        let (way, waiting) = (way.clone(), Waiting::default());
        let until = waiting.clone();
        thread::spawn(move || sender.send(Agent::open(&way, keep, may_ask, &until)).ok());
        Self { opened, waiting }
    }

    /// Waits for the agent, or for the reason why it failed to start.
    pub(super) fn wait(&self, patience: Duration) -> Option<Result<Agent>> {
        self.opened.recv_timeout(patience).ok()
    }

    pub(super) fn give_up(&self) {
        self.waiting.give_up();
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        // The command must not outlive this program.
        self.give_up();
    }
}

/// The line to an agent, which is reopened after a loss.
pub(super) struct Far {
    pub(super) way: Way,
    pub(super) keep: bool,
    pub(super) state: State,
    /// Number of times that the line was opened.
    pub(super) opened: u32,
    /// While the line is down: the moment of the last reply, or of the first attempt to open it.
    pub(super) down_since: Instant,
    /// Number for the next source.
    pub(super) next: u32,
}

pub(super) enum State {
    Up(Agent),
    /// The line is being opened; with a reason, it is being reopened.
    Opening(Opening, Option<String>),
    Lost {
        why: String,
        until: Instant,
    },
}

impl Far {
    /// The line of an agent. Without an agent, a new one is started after a while.
    pub(super) fn of(way: Way, keep: bool, agent: Result<Agent>) -> Self {
        let (state, opened) = match agent {
            Ok(agent) => (State::Up(agent), 1),
            Err(error) => {
                let until = Instant::now() + AGAIN;
                (State::Lost { why: format!("{error:#}"), until }, 0)
            }
        };
        Self { way, keep, state, opened, down_since: Instant::now(), next: 0 }
    }

    /// The line of an agent that is being started.
    pub(super) fn opening(way: Way, keep: bool) -> Self {
        let state = State::Opening(Opening::start(&way, keep, false), None);
        Self { way, keep, state, opened: 0, down_since: Instant::now(), next: 0 }
    }

    /// Waits until the line is open, or has failed to open.
    pub(super) fn wait_until_open(&mut self, patience: Duration) {
        if let State::Opening(opening, _) = &self.state
            && let Some(opened) = opening.wait(patience)
        {
            self.take(opened);
        }
    }

    pub(super) fn take(&mut self, opened: Result<Agent>) {
        match opened {
            Ok(line) => {
                self.state = State::Up(line);
                self.opened += 1;
            }
            Err(error) => self.lose(&format!("{error:#}")),
        }
    }

    /// The line, if it is up. Otherwise it is opened in the background.
    pub(super) fn line(&mut self) -> Result<&mut Agent> {
        if let State::Lost { why, until } = &mut self.state
            && *until <= Instant::now()
        {
            let why = std::mem::take(why);
            self.state = State::Opening(Opening::start(&self.way, self.keep, false), Some(why));
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

    pub(super) fn lose(&mut self, why: &str) {
        self.state = State::Lost { why: why.to_owned(), until: Instant::now() + AGAIN };
    }

    /// Uses the line; if that fails, the line is lost.
    pub(super) fn with<T>(&mut self, work: impl FnOnce(&mut Agent) -> Result<T>) -> Result<T> {
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
    pub(super) fn ask(&mut self, ask: Ask) -> Result<Asked> {
        let number = self.with(|line| line.ask(ask))?;
        Ok(Asked { number, opened: self.opened, since: Instant::now() })
    }

    /// Waits for the answer to a request. `None` if it does not arrive in time; this alone does not
    /// mean that the line is lost.
    pub(super) fn answer(
        &mut self,
        asked: Asked,
        patience: Duration,
    ) -> Result<Option<(Answer, Vec<u8>)>> {
        self.line()?;
        if asked.opened != self.opened {
            bail!("{}: the connection was lost before it answered", self.way.name);
        }
        match self.with(|line| line.wait(asked.number, patience))? {
            Some((Answer::Failed(failure), _)) => {
                Err(failure.into_error().context(self.way.name.clone()))
            }
            answer => Ok(answer),
        }
    }

    /// The error for a request without an answer.
    pub(super) fn silence(&self, asked: Asked) -> anyhow::Error {
        let silent = asked.since.elapsed().as_secs();
        anyhow!("{}: expected an answer, found none for {silent} s", self.way.name)
    }

    pub(super) fn forget(&mut self, asked: Asked) {
        if let State::Up(line) = &mut self.state
            && asked.opened == self.opened
        {
            line.forget(asked.number);
        }
    }

    pub(super) fn is_late(&mut self) -> bool {
        self.with(Agent::is_late).unwrap_or(true)
    }

    /// The moment since which nothing new has arrived, and the reason if known. `None` if the line
    /// works.
    pub(super) fn bad(&mut self) -> Option<(Instant, Option<String>)> {
        self.is_late();
        let name = format!("{}: ", self.way.name);
        let why = |why: &String| why.strip_prefix(&name).unwrap_or(why).to_owned();
        let (since, why) = match &self.state {
            State::Up(line) => (line.silent_since?, None),
            State::Opening(_, found) => (self.down_since, found.as_ref().map(why)),
            State::Lost { why: found, .. } => (self.down_since, Some(why(found))),
        };
        // A room disappears a moment after its last process has ended.
        let is_certain = why.is_some() && !self.way.is_here();
        (is_certain || since.elapsed() >= SILENT).then_some((since, why))
    }
}

/// A pending request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) number: u32,
    /// Number of the opening of the line over which it was sent.
    pub(super) opened: u32,
    pub(super) since: Instant,
}
