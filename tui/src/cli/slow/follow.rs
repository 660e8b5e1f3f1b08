//! `pfp-top slow --follow`: prints slow calls when the process keeps them, and runs a command for
//! them.

use std::collections::{HashMap, HashSet};
use std::io::{BufWriter, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tempfile::{Builder, NamedTempFile};

use super::{SlowArgs, heading, line};
use crate::cli::missing::Missing;
use crate::cli::output::print;
use crate::interrupt::Interrupt;
use pfp_model::slow;
use pfp_read::snapshot::{ProcessState, SlowCall, Snapshot};
use pfp_read::text::warn;
use pfp_read::waits::WaitNeeds;

/// Time between two polls. A process holds 8 calls and replaces the oldest, so a slower poll would
/// miss calls.
pub(in crate::cli) const BETWEEN_POLLS: Duration = Duration::from_millis(250);
/// Minimum time between two starts of a command.
const BETWEEN_STARTS: Duration = Duration::from_secs(10);

/// Maximum time for which a call is held back until a report of waits says what it waited for.
const HELD_BACK: Duration = Duration::from_secs(2);

/// Prints the calls that are there, oldest first, and then the further ones.
pub(super) fn follow(asked: &SlowArgs) -> Result<u8> {
    let interrupt = Interrupt::install()?;
    let mut source = asked.target.resolve()?;
    source.need_waits(WaitNeeds::Reasons);
    let mut command = asked.exec.as_deref().map(CallCommand::new);
    let mut followed = Followed::default();
    let mut missing = Missing::default();
    let mut last = None;
    let mut is_read = print(&heading())?;
    while is_read {
        if let Some(command) = &mut command {
            command.look()?;
        }
        let (snapshot, is_over) = match source.poll() {
            Ok(snapshot) => (snapshot, interrupt.raised()),
            Err(_) if source.has_died() || interrupt.raised() => match last.take() {
                Some(last) => (last, true),
                None => break,
            },
            Err(error) => {
                missing.lose(error, source.as_ref(), || ())?;
                interrupt.sleep(BETWEEN_POLLS);
                continue;
            }
        };
        missing.line_is_back();
        missing.look(source.as_ref(), || ());
        let is_last = is_over || snapshot.process.state != ProcessState::Running;
        for (call, is_further) in followed.due(&snapshot, is_last) {
            is_read = is_read && print(&line(&call, &snapshot))?;
            if let Some(command) = command.as_mut().filter(|_| is_further) {
                command.run(&call, &snapshot);
            }
        }
        if is_last {
            break;
        }
        last = Some(snapshot);
        interrupt.sleep(BETWEEN_POLLS);
    }
    if let Some(command) = command {
        command.end()?;
    }
    Ok(missing.status())
}

/// The calls that are followed.
#[derive(Default)]
struct Followed {
    /// The keys of the calls of the last snapshot. `None` before the first.
    known: Option<HashSet<(u32, u64)>>,
    /// The calls that are not printed yet, oldest first.
    waiting: Vec<Waiting>,
}

/// A call that is not printed yet.
struct Waiting {
    call: Arc<SlowCall>,
    since: Instant,
    /// Whether it was kept after the first snapshot.
    is_further: bool,
}

impl Followed {
    /// The calls to print now, oldest first, and whether they were kept after the first snapshot.
    fn due(&mut self, snapshot: &Snapshot, is_last: bool) -> Vec<(Arc<SlowCall>, bool)> {
        let now: HashMap<_, _> = snapshot.slow.iter().map(|call| (call.key(), call)).collect();
        for waiting in &mut self.waiting {
            if let Some(call) = now.get(&waiting.call.key()) {
                waiting.call = Arc::clone(call);
            }
        }
        let known = self.known.replace(now.keys().copied().collect());
        let is_new = |call: &&Arc<SlowCall>| !known.iter().any(|it| it.contains(&call.key()));
        let mut new: Vec<_> = snapshot.slow.iter().filter(is_new).map(Arc::clone).collect();
        new.sort_by_key(|call| (call.unix_ms, call.number));
        let (since, is_further) = (Instant::now(), known.is_some());
        self.waiting.extend(new.into_iter().map(|call| Waiting { call, since, is_further }));
        let is_due = |waiting: &&Waiting| {
            let call = &waiting.call;
            let may_be_explained = slow::lacks_reason(call, snapshot.clock.ticks_per_second)
                && now.contains_key(&call.key())
                && waiting.is_further
                && waiting.since.elapsed() < HELD_BACK;
            is_last || !may_be_explained
        };
        let due = self.waiting.iter().take_while(is_due).count();
        self.waiting.drain(..due).map(|waiting| (waiting.call, waiting.is_further)).collect()
    }
}

/// A command that is run for slow calls.
struct CallCommand<'a> {
    words: &'a str,
    /// The command that runs now, and its file.
    running: Option<(Child, NamedTempFile)>,
    /// When the last one was started.
    started: Option<Instant>,
    /// Calls for which the command was not run.
    missed: u64,
}

impl<'a> CallCommand<'a> {
    fn new(words: &'a str) -> Self {
        Self { words, running: None, started: None, missed: 0 }
    }

    /// Runs the command for a call, unless it still runs or was started a short time ago.
    fn run(&mut self, call: &SlowCall, snapshot: &Snapshot) {
        let is_soon = self.started.is_some_and(|then| then.elapsed() < BETWEEN_STARTS);
        if is_soon || self.running.is_some() {
            self.missed += 1;
            return;
        }
        match self.start(call, snapshot) {
            Ok(running) => (self.running, self.started) = (Some(running), Some(Instant::now())),
            Err(error) => {
                warn(&format!("cannot run the command of --exec: {error:#}"));
                self.missed += 1;
            }
        }
    }

    fn start(&self, call: &SlowCall, snapshot: &Snapshot) -> Result<(Child, NamedTempFile)> {
        let named = Builder::new().prefix("pfp-slow-").suffix(".json").tempfile();
        let mut file = named.context("cannot create its snapshot file")?;
        let slow = vec![Arc::new(call.clone())];
        let moment = Snapshot { slow, ..slow::moment(call, snapshot) };
        let mut out = BufWriter::new(&mut file);
        serde_json::to_writer(&mut out, &moment).context("cannot write its snapshot file")?;
        out.flush().context("cannot write its snapshot file")?;
        drop(out);
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &format!("{} \"$1\"", self.words), "sh"]).arg(file.path());
        let child = shell.stdin(Stdio::null()).spawn();
        Ok((child.context("expected a shell, found no /bin/sh")?, file))
    }

    /// Finds out whether the command has ended.
    fn look(&mut self) -> Result<()> {
        if let Some((child, _)) = &mut self.running
            && let Some(status) = child.try_wait()?
        {
            self.ended(status);
        }
        Ok(())
    }

    /// Waits for the command.
    fn end(mut self) -> Result<()> {
        if let Some((child, _)) = &mut self.running {
            let status = child.wait()?;
            self.ended(status);
        }
        if self.missed > 0 {
            warn(&format!("the command of --exec was not run for {} calls", self.missed));
        }
        Ok(())
    }

    fn ended(&mut self, status: ExitStatus) {
        // This removes the file, unless the command has moved it.
        self.running = None;
        if !status.success() {
            warn(&format!("the command of --exec ended with {status}"));
        }
    }
}
