//! Starts an agent, sends requests to it, and receives its replies.

use std::collections::{HashSet, VecDeque};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail};

use super::copy;
use super::way::AgentCommand;
use super::wire::{self, Answer, Ask, Reply, Request};
use pfp_read::source::Refusal;
use pfp_read::text::clean;

/// How long the screen waits for an answer before it continues without it.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_millis(100);
/// Time without an answer after which a picture counts as late.
pub(super) const SILENT: Duration = Duration::from_secs(3);
/// How long a command may take until its agent answers: the user may have to type a password.
pub(super) const TO_OPEN: Duration = Duration::from_secs(120);
/// Interval at which the start of an agent checks whether its caller has given up.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of unread replies; the agent's writes block beyond that.
const UNREAD: usize = 2;
/// Maximum number of bytes of a line on standard error that are stored.
const LINE: u64 = 4096;
/// How long to wait for the end of standard error, which a child of the command may keep open.
const TO_BE_SAID: Duration = Duration::from_millis(500);
/// How long a command may take to end after its input is closed, and again after a signal.
const TO_END: Duration = Duration::from_secs(1);
/// How long the screen waits for a command to end after a goodbye.
const TO_SAY_GOODBYE: Duration = Duration::from_millis(300);

/// Lets a caller give up the start of an agent. If the command runs already, it gets SIGTERM.
#[derive(Clone, Debug, Default)]
pub(super) struct StartHandle(Arc<Mutex<Start>>);

/// The state of an agent's start.
#[derive(Debug, Default)]
enum Start {
    #[default]
    ToCome,
    /// The command was started and has not been reaped, so this id is still its own.
    Running(libc::pid_t),
    /// The agent has answered, or the command has failed.
    Done,
    GivenUp,
}

impl StartHandle {
    fn lock(&self) -> MutexGuard<'_, Start> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives up the start. If the command runs already, it gets SIGTERM.
    pub(super) fn give_up(&self) {
        let mut start = self.lock();
        if let Start::Running(command) = *start {
            terminate_all(command);
        }
        if !matches!(*start, Start::Done) {
            *start = Start::GivenUp;
        }
    }

    /// Starts the command, unless the caller has given up.
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut start = self.lock();
        if matches!(*start, Start::GivenUp) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = command.spawn()?;
        *start = Start::Running(id_of(&child));
        Ok(child)
    }

    /// Marks the start as over: the agent has answered, or the command has failed. From here on
    /// [`Self::give_up`] leaves the command alone, and the command may be reaped.
    fn mark_done(&self) {
        let mut start = self.lock();
        if matches!(*start, Start::Running(_)) {
            *start = Start::Done;
        }
    }

    fn is_over(&self) -> bool {
        matches!(*self.lock(), Start::GivenUp)
    }
}

fn id_of(child: &Child) -> libc::pid_t {
    libc::pid_t::try_from(child.id()).unwrap_or(libc::pid_t::MAX)
}

/// Ends a command and its children. The command is a shell, and it is not known yet whether the
/// shell or a child is the agent. The command must not have been reaped yet.
fn terminate_all(command: libc::pid_t) {
    let children = fs::read_to_string(format!("/proc/{command}/task/{command}/children"));
    let children = children.unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    // A command that may not ask for a password leads a process group, whose id is negative here.
    for process in children.chain([-command, command]) {
        // SAFETY: `kill` touches no memory. Only this program reaps the shell, and only the shell
        // reaps its children, so an id is reused only if the shell reaps a child right now.
        unsafe { libc::kill(process, libc::SIGTERM) };
    }
}

/// A running agent.
pub(super) struct AgentProcess {
    pub(super) child: Child,
    /// Whether this program was sent to the place, to run there as the agent.
    pub(super) copies: bool,
    /// Requests for the thread that writes them to the agent's standard input, since a stalled line
    /// blocks writes. `None` once no more follow; the thread then closes the input.
    pub(super) requests: Option<Sender<Vec<u8>>>,
    /// Disconnected once that thread has ended.
    pub(super) all_written: Receiver<()>,
    pub(super) replies: Receiver<Result<(Reply, Vec<u8>)>>,
    /// Numbers of the requests without an answer yet whose answers [`Self::wait`] will return.
    pub(super) asked: HashSet<u32>,
    /// Answers that arrived while [`Self::wait`] waited for another one.
    pub(super) early: VecDeque<(Reply, Vec<u8>)>,
    /// Moment of the last reply.
    pub(super) heard: Instant,
    /// Moment since which the agent has sent nothing although an answer is due. `None` if no answer
    /// is due.
    pub(super) silent_since: Option<Instant>,
    /// Whether the agent has possibly not read all requests. If so, the line is closed without a
    /// goodbye, and the agent restores toggled points.
    pub(super) is_cut: bool,
    /// The last line that the command wrote to its standard error.
    pub(super) said: Arc<Mutex<String>>,
    /// Disconnected once standard error has been read to its end.
    pub(super) all_said: Receiver<()>,
    /// Number of the next request.
    pub(super) next: u32,
}

/// The result of waiting for a reply.
pub(super) enum ReplyKind {
    /// No reply arrived in time.
    Nothing,
    /// A reply to a request in `asked` arrived; the reply is in `early` now.
    Answer,
    /// Another reply arrived and was dropped.
    Other,
}

impl AgentProcess {
    /// Starts an agent and checks that its version fits. While the screen may be shown, the command
    /// must not ask for a password.
    pub(super) fn open(
        way: &AgentCommand,
        keep: bool,
        may_ask: bool,
        waiting: &StartHandle,
    ) -> Result<Self> {
        let via = way.name.as_str();
        let mut command = way.command().with_context(|| via.to_owned())?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if !may_ask {
            // SAFETY: `setsid` is async-signal-safe and touches no memory, so the child may call it
            // before `exec`.
            unsafe {
                command.pre_exec(|| {
                    libc::setsid();
                    Ok(())
                });
            }
        }
        let mut child = waiting
            .spawn(&mut command)
            .map_err(|error| anyhow!("{via}: expected to start an agent, found: {error}"))?;
        let mut input = child.stdin.take();
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
        let copied = match &mut input {
            Some(input) if way.copies => bring(input, &heard),
            _ => Ok(()),
        };
        let (requests, to_write) = mpsc::channel::<Vec<u8>>();
        let (until_written, all_written) = mpsc::sync_channel(0);
        thread::spawn(move || {
            let _until_written: SyncSender<()> = until_written;
            let Some(mut input) = input else { return };
            for request in to_write {
                if input.write_all(&request).is_err() {
                    return;
                }
            }
        });
        let mut line = Self {
            child,
            copies: way.copies,
            requests: Some(requests),
            all_written,
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
            waiting.mark_done();
            return Err(line.why_not(via, &error));
        }
        // Ignore a failure to write here: the error of the read below also has what the command
        // printed.
        let asked = line.next;
        let _ = line.ask(Ask::Hello { keep });
        line.asked.insert(asked);
        let start = Instant::now();
        let answer = loop {
            let is_over = waiting.is_over() || start.elapsed() >= TO_OPEN;
            match line.wait(asked, start.elapsed() + LOOK) {
                Ok(None) if !is_over => {}
                answer => break answer,
            }
        };
        waiting.mark_done();
        match answer {
            Ok(Some((Answer::Hello { version: wire::VERSION, .. }, _))) => Ok(line),
            Ok(Some((Answer::Hello { version, program }, _))) => bail!(Refusal::Version(format!(
                "{via}: expected an agent that speaks version {} as pfp-top {} does, found version \
                 {version} of pfp-top {program}; install the same one at both ends",
                wire::VERSION,
                env!("CARGO_PKG_VERSION"),
                program = clean(&program),
            ))),
            Ok(Some(_)) => bail!("{via}: expected a greeting, found another message"),
            Ok(None) => {
                terminate_all(line.id());
                Err(line.why_not(via, &anyhow!("expected an agent, found silence")))
            }
            Err(error) => Err(line.why_not(via, &error)),
        }
    }

    /// Explains to the user why no agent answers.
    pub(super) fn why_not(&mut self, via: &str, error: &anyhow::Error) -> anyhow::Error {
        let code = self.end().and_then(|status| status.code());
        let said = self.said();
        if code == Some(127) || says_missing(&said) {
            return anyhow!(Refusal::NoTarget(format!(
                "{via}: pfp-top is not on the path there{said}; install it, or send this one with \
                 --via-copy"
            )));
        }
        match (code, self.copies) {
            (Some(126), true) => anyhow!(
                "{via}: {error:#}{said}; if programs in the temporary folder there cannot be run, \
                 name another, such as --via 'ssh node1 TMPDIR=/var/tmp'"
            ),
            (Some(126), false) => anyhow!(
                "{via}: the pfp-top there cannot be run{said}; install it, or send this one with \
                 --via-copy"
            ),
            _ => anyhow!("{via}: {error:#}{said}"),
        }
    }

    /// The last line that the command wrote to standard error, in parentheses; empty without one.
    pub(super) fn said(&self) -> String {
        let said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        match said.trim() {
            "" => String::new(),
            said => format!(" ({})", clean(said)),
        }
    }

    /// Sends a request whose answer will be dropped. Returns the request's number.
    pub(super) fn send(&mut self, ask: Ask) -> Result<u32> {
        let number = self.next;
        self.next += 1;
        let request = wire::message(&Request { number, ask }, &[])?;
        let sent = self.requests.as_ref().map(|requests| requests.send(request));
        if !matches!(sent, Some(Ok(()))) {
            bail!("it has ended");
        }
        self.silent_since.get_or_insert_with(Instant::now);
        Ok(number)
    }

    /// Sends a request whose answer [`Self::wait`] will return. Returns the request's number.
    pub(super) fn ask(&mut self, ask: Ask) -> Result<u32> {
        let number = self.send(ask)?;
        self.asked.insert(number);
        Ok(number)
    }

    /// Drops the answer to this request, now or when it arrives.
    pub(super) fn forget(&mut self, number: u32) {
        self.asked.remove(&number);
        self.early.retain(|(reply, _)| reply.number != number);
    }

    /// Waits for the answer to a request. `None` if the answer does not arrive in time.
    pub(super) fn wait(
        &mut self,
        number: u32,
        timeout: Duration,
    ) -> Result<Option<(Answer, Vec<u8>)>> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(place) = self.early.iter().position(|(reply, _)| reply.number == number) {
                let found = self.early.remove(place);
                return Ok(found.map(|(reply, rest)| (reply.answer, rest)));
            }
            let silent = self.silent_since.map(|since| since.elapsed()).unwrap_or_default();
            let left = until.saturating_duration_since(Instant::now());
            let left = left.min(timeout.saturating_sub(silent));
            match self.hear(left)? {
                ReplyKind::Nothing => return Ok(None),
                // The agent may flood the line with other replies, so the deadline ends the loop,
                // too.
                ReplyKind::Other if left.is_zero() => return Ok(None),
                ReplyKind::Other | ReplyKind::Answer => {}
            }
        }
    }

    /// Whether the answer to a request has arrived; [`Self::wait`] then returns it at once.
    pub(super) fn has_answered(&mut self, number: u32) -> Result<bool> {
        loop {
            if self.early.iter().any(|(reply, _)| reply.number == number) {
                return Ok(true);
            }
            if matches!(self.hear(Duration::ZERO)?, ReplyKind::Nothing) {
                return Ok(false);
            }
        }
    }

    /// Waits for one reply and stores it in `early` if `asked` contains its number.
    pub(super) fn hear(&mut self, timeout: Duration) -> Result<ReplyKind> {
        let (reply, rest) = match self.replies.recv_timeout(timeout) {
            Ok(reply) => reply?,
            Err(RecvTimeoutError::Timeout) => return Ok(ReplyKind::Nothing),
            Err(RecvTimeoutError::Disconnected) => bail!("it has ended"),
        };
        let owes_more = reply.number.wrapping_add(1) != self.next;
        self.heard = Instant::now();
        self.silent_since = owes_more.then_some(self.heard);
        if !self.asked.remove(&reply.number) {
            return Ok(ReplyKind::Other);
        }
        self.early.push_back((reply, rest));
        Ok(ReplyKind::Answer)
    }

    /// Whether an answer is overdue, so that it is useless to wait.
    pub(super) fn is_late(&mut self) -> Result<bool> {
        for _ in 0..=UNREAD {
            if matches!(self.hear(Duration::ZERO)?, ReplyKind::Nothing) {
                break;
            }
        }
        Ok(self.silent_since.is_some_and(|since| since.elapsed() >= ANSWER_TIMEOUT))
    }

    /// Closes the command's input; that should end the command. If the command still runs after
    /// [`TO_END`], sends SIGTERM and waits as long again. Returns `None` if the command runs even
    /// then, for instance because a signal has stopped it. Once the command continues, the agent
    /// restores toggled points and ends.
    pub(super) fn end(&mut self) -> Option<ExitStatus> {
        self.requests = None;
        if let Some(status) = self.wait_for_end(TO_END) {
            // The command's last lines may still be in the pipe.
            let _ = self.all_said.recv_timeout(TO_BE_SAID);
            return Some(status);
        }
        self.terminate();
        self.wait_for_end(TO_END)
    }

    pub(super) fn wait_for_end(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let start = Instant::now();
        while start.elapsed() < timeout {
            if let Some(status) = self.child.try_wait().ok()? {
                return Some(status);
            }
            thread::sleep(Duration::from_millis(5));
        }
        None
    }

    pub(super) fn id(&self) -> libc::pid_t {
        id_of(&self.child)
    }

    pub(super) fn terminate(&self) {
        // SAFETY: `kill` touches no memory. The child was not reaped, so the id is still its own.
        unsafe { libc::kill(self.id(), libc::SIGTERM) };
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let mut is_late = false;
        if self.requests.is_some() {
            is_late = self.is_late().unwrap_or(false);
            if !self.is_cut {
                let _ = self.send(Ask::Goodbye);
            }
            self.requests = None;
            if !self.is_cut {
                let _ = self.all_written.recv_timeout(TO_SAY_GOODBYE);
            }
            if !self.is_cut && !is_late {
                self.wait_for_end(TO_SAY_GOODBYE);
            }
        }
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Do not signal a late agent that got a goodbye: it will read the goodbye and end.
        if self.is_cut || !is_late {
            self.terminate();
        }
        let id = self.id();
        // SAFETY: the status pointer may be null. No other code waits for this child.
        thread::spawn(move || unsafe { libc::waitpid(id, std::ptr::null_mut(), 0) });
    }
}

/// Sends the script of [`copy`] to the shell at the place, and this program to the script. Returns
/// once the script starts the program.
pub(super) fn bring(to: &mut ChildStdin, heard: &Receiver<Result<Option<String>>>) -> Result<()> {
    let program = copy::ProgramCopy::load()?;
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

/// Whether a line on standard error says that pfp-top is missing, in the words of `sudo`, `docker`
/// and `kubectl`. The exit status of these commands does not always show that.
pub(super) fn says_missing(said: &str) -> bool {
    said.contains("pfp-top") && (said.contains("not found") || said.contains("No such file"))
}

pub(super) fn keep_last_line(errors: impl Read, said: &Mutex<String>) {
    // A line may have any length, so each read is limited.
    let mut errors = BufReader::new(errors);
    let mut line = Vec::new();
    while let Ok(1..) = errors.by_ref().take(LINE).read_until(b'\n', &mut line) {
        let text = String::from_utf8_lossy(&line);
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        // Some commands print an exit status after the message that pfp-top is missing. Keep the
        // message.
        if !text.trim().is_empty() && !says_missing(&said) {
            *said = text.into_owned();
        }
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    /// After the caller has given up, the command does not run, whether or not it had been started.
    #[test]
    fn a_command_that_is_given_up_ends_or_never_starts() {
        let sleeps = || {
            let mut command = Command::new("sleep");
            command.arg("1000");
            command
        };
        let waiting = StartHandle::default();
        let mut child = waiting.spawn(&mut sleeps()).unwrap();
        waiting.give_up();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGTERM));
        assert!(waiting.is_over() && waiting.spawn(&mut sleeps()).is_err());

        // After the agent has answered, giving up does not end it.
        let waiting = StartHandle::default();
        let mut child = waiting.spawn(&mut sleeps()).unwrap();
        waiting.mark_done();
        waiting.give_up();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
