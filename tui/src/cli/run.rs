//! `pfp-top run -- CMD`: starts a program and watches it.
//!
//! The program's output goes to a file, since two programs cannot share a screen. The viewer's exit
//! status is the program's. A program outlives the viewer unless the user asks to end it.

pub(super) mod allocs;
pub(super) mod inject;
mod log;
pub(super) mod places;
pub(super) mod preload;
mod program;
mod stubs;
mod unseen;

use std::cell::{OnceCell, RefCell};
use std::ffi::OsString;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use super::headless::Printer;
use super::options::ShowArgs;
use super::output::{check_new, overwrite, written};
use super::show;
use crate::app::App;
use crate::interrupt::Interrupt;
use pfp_model::Model;
use pfp_model::compare::Baseline;
use pfp_read::files::json;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{
    self, Candidate, Collecting, Discovery, Finder, ProcessGroup, Selector, Source, Wanted,
};
use pfp_read::text::warn;
use pfp_remote as remote;

use inject::{InjectArgs, Note};
use log::LogFile;
use program::{Output, RunningProgram};

/// The time for the program to reach its first region. After this time, the screen opens and
/// explains why there is no process yet.
const FIRST_LOOK: Duration = Duration::from_secs(1);
/// Interval between two checks for a first segment. It is short, since the segment of a short
/// program disappears when the program ends.
const LOOK: Duration = Duration::from_millis(2);
/// Interval between two checks for a first segment while a screen is up. It is longer than
/// [`LOOK`], since the screen is drawn after each check.
const LOOK_ON_SCREEN: Duration = Duration::from_millis(50);
/// Without a screen, the interval between two checks for another process to join.
const JOIN: Duration = Duration::from_millis(50);
/// Number of lines of a failed program's output that are shown.
const TAIL: usize = 10;

/// The program to start, and how to watch it.
#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    #[command(flatten)]
    pub(super) show: ShowArgs,
    /// Write a snapshot to this file at the end.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the snapshot file if it exists.
    #[arg(long, requires = "output")]
    force: bool,
    /// Write the program's output to this file; the default is a file in $XDG_STATE_HOME/pfp.
    #[arg(long, value_name = "FILE", conflicts_with = "inherit")]
    log: Option<PathBuf>,
    /// Report which variables were set for the program.
    #[arg(short, long)]
    verbose: bool,
    /// Let the program write to this terminal (only without a screen).
    #[arg(long)]
    inherit: bool,
    /// Watch all processes that it starts as one.
    #[arg(long)]
    all: bool,
    /// Like --all, but sum points of the same name (MPI ranks, workers).
    #[arg(long)]
    sum: bool,
    /// Switch points on from the start, by name: 'parse*,io_?'. Functions that the compiler
    /// instruments have their linker names: in C++, write '*parse*'.
    #[arg(long, value_name = "NAMES")]
    enable: Option<OsString>,
    /// Preload this libpfp.so, even if only libraries of the program are built with
    /// -finstrument-functions.
    #[arg(long, value_name = "FILE")]
    preload: Option<PathBuf>,
    /// Count what the regions of all points allocate. Preloads libpfp_alloc.so, which counts the
    /// calls of malloc and its relatives.
    #[arg(long)]
    alloc: bool,
    #[command(flatten)]
    inject: InjectArgs,
    /// The program and its arguments.
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

impl RunArgs {
    fn group(&self) -> Option<ProcessGroup> {
        let all = ProcessGroup { members: Selector::All(String::new()), sum: self.sum };
        (self.all || self.sum).then_some(all)
    }

    /// Attaches to this process, or to all processes that belong to the program.
    fn attach(&self, family: &mut ProgramFinder, candidate: &Candidate) -> Result<Box<dyn Source>> {
        match self.group() {
            Some(group) => family.attach_group(&group, None),
            None => family.attach(candidate),
        }
    }
}

pub(super) fn run(run: &RunArgs) -> Result<u8> {
    let headless = run.show.is_headless();
    if run.inherit && !headless {
        bail!("--inherit would let the program write across the screen: add --once");
    }
    if let Some(path) = &run.output {
        check_new(path, run.force)?;
    }
    let baseline = run.show.baseline()?;
    // Fail on bad output options before the program has done its work.
    drop(headless.then(|| Printer::new(&run.show, baseline.as_ref())).transpose()?);
    // Take over signals before the program starts. A signal must not end this process without the
    // message that the program still runs.
    let interrupt = match headless {
        true => Interrupt::install_without_time_limit()?,
        false => Interrupt::install()?,
    };
    let log = match run.inherit {
        true => None,
        false => Some(LogFile::create(run.log.as_deref(), &run.command[0])?),
    };
    // Preserve segments from now on: the program's processes may end before the first check.
    let collecting = Some(Rc::new(Collecting::start()));
    let seen = source::announced();
    let name = &run.command[0];
    let hooks = preload::library(name, run.preload.as_deref(), warn)?;
    let openmp = run.inject.openmp_runtime(name)?;
    let mut notes = Vec::new();
    let mut environment = run.inject.environment(|note| notes.push(note))?;
    notes.extend(run.inject.replaced_runtime().map(Note::Fine));
    notes.retain(|note| run.verbose || matches!(note, Note::Lacking(_)));
    if headless {
        notes.iter().map(Note::text).for_each(warn);
    }
    let allocs = run.alloc.then(|| allocs::library(name)).transpose()?;
    if allocs.is_some() {
        environment.extend(allocs::environment());
    }
    let libraries: Vec<_> = hooks.into_iter().chain(openmp).chain(allocs).collect();
    if !libraries.is_empty() {
        environment.extend(preload::preloading(&libraries));
    }
    let id = RandomState::new().hash_one(std::process::id()).max(1);
    environment.push(("PFP_RUN", format!("{id:x}").into()));
    environment.extend(run.enable.clone().map(|names| ("PFP_ENABLE", names)));
    let printed = log.as_ref().map(|log| anyhow::Ok((log.file()?, log.path().to_owned())));
    let output = Output { log: printed.transpose()?, own_group: !headless };
    let program = match RunningProgram::start(&run.command, &environment, id, output) {
        Ok(program) => program,
        Err((status, why)) => {
            drop(log.map(LogFile::tidy));
            // Shells and `env` use the same status for this failure.
            warn(&format!("{why:#}"));
            return Ok(status);
        }
    };
    let program = Rc::new(RefCell::new(program));
    let family = ProgramFinder {
        program: Rc::clone(&program),
        seen,
        collecting,
        is_of_group: false,
        log: log.as_ref().map(|log| log.path().to_owned()),
        unseen: Rc::default(),
    };
    // After an error or a panic the program continues to run, and dropping `program` prints a
    // message about that.
    let watched = match headless {
        true => print(run, family, baseline.as_ref(), &interrupt),
        false => on_screen(run, family, baseline, &notes, &interrupt),
    }?;
    if matches!(&watched, WatchedSource::App(app) if app.ends_program) {
        program.borrow_mut().end()?;
    }
    let snapshot = watched.last();
    report(run, &mut program.borrow_mut(), log, snapshot)
}

/// The source that was watched. It is polled once more after the program has ended.
enum WatchedSource {
    Nothing,
    Source(Box<dyn Source>),
    App(Box<App>),
}

impl WatchedSource {
    fn last(self) -> Option<Snapshot> {
        match self {
            Self::Nothing => None,
            Self::Source(mut source) => {
                let mut snapshot = source.poll().ok()?;
                source.add_records(&mut snapshot);
                Some(snapshot)
            }
            Self::App(mut app) => app.last_snapshot(),
        }
    }
}

fn on_screen(
    run: &RunArgs,
    mut family: ProgramFinder,
    baseline: Option<Baseline>,
    notes: &[Note],
    interrupt: &Interrupt,
) -> Result<WatchedSource> {
    let log = family.log.clone();
    let first = family.wait(Some(FIRST_LOOK), interrupt)?;
    let mut options = run.show.options(Wanted::default());
    options.look_every = Some(LOOK_ON_SCREEN);
    options.group = run.group();
    // If attaching fails here, the screen tries again.
    let first = first.and_then(|candidate| run.attach(&mut family, &candidate).ok());
    let now = Instant::now();
    let mut app = Box::new(App::new(options, Box::new(family), now));
    if let Some(baseline) = baseline {
        app.compare_with(baseline);
    }
    if let Some(source) = first {
        app.watch(source, now);
    }
    for note in notes {
        app.note(note.text(), matches!(note, Note::Lacking(_)));
    }
    let printed = log.map(|path| format!("the program's output goes to {}", path.display()));
    let messages: Vec<_> = run.inject.replaced_runtime().into_iter().chain(printed).collect();
    if !messages.is_empty() {
        app.common.say(messages.join("; "));
    }
    show::on_screen(&mut app, &run.show, interrupt)?;
    Ok(WatchedSource::App(app))
}

/// Waits for the program to end and prints its table. If the user asked for a number of tables,
/// prints them one interval apart and then ends the program.
fn print(
    run: &RunArgs,
    mut family: ProgramFinder,
    baseline: Option<&Baseline>,
    interrupt: &Interrupt,
) -> Result<WatchedSource> {
    let Some(candidate) = family.wait(None, interrupt)? else {
        family.obey(interrupt)?;
        return Ok(WatchedSource::Nothing);
    };
    let mut source = run.attach(&mut family, &candidate)?;
    let mut printer = Printer::new(&run.show, baseline)?;
    let mut model = Model::new(run.show.tau.as_secs_f64());
    if run.show.tables().is_some() {
        // Rates are over the time between two polls.
        model.fold(source.poll()?);
    }
    let (mut tables, mut is_read) = (0, true);
    let mut table_due = Instant::now() + run.show.interval;
    let pause = if run.group().is_some() { JOIN } else { run.show.interval };
    let mut due = Instant::now();
    while family.program.borrow_mut().status().is_none() {
        // A failed poll is tried again: returning the error would stop watching the program.
        if Instant::now() >= due {
            due = Instant::now() + pause;
            // The program may have called `exec` or left the work to a child. A group finds such
            // processes by itself.
            if !source.poll().is_ok_and(|snapshot| snapshot.runs())
                && run.group().is_none()
                && let Ok(discovery) = family.discover()
                && let Some(next) = discovery.candidates.iter().find(|candidate| candidate.runs())
                && let Ok(next) = source::attach(next)
            {
                source = next;
            }
        }
        if run.show.tables().is_some() && Instant::now() >= table_due {
            table_due += run.show.interval;
            if let Ok(snapshot) = source.poll() {
                model.fold(snapshot);
            }
            tables += 1;
            // If the reader has closed the output, the program continues, and this loop waits for
            // its status.
            is_read = is_read && printer.print(&model)?;
            if run.show.tables() == Some(tables) {
                family.program.borrow_mut().end()?;
                return Ok(WatchedSource::Source(source));
            }
        }
        if !interrupt.sleep(LOOK * 5) {
            break;
        }
    }
    family.obey(interrupt)?;
    model.fold(source.poll()?);
    if is_read {
        printer.print(&model)?;
    }
    Ok(WatchedSource::Source(source))
}

/// Reports how the program ended and which files it has left. Returns the program's exit status; 0
/// if it still runs.
fn report(
    run: &RunArgs,
    program: &mut RunningProgram,
    log: Option<LogFile>,
    snapshot: Option<Snapshot>,
) -> Result<u8> {
    let name = Path::new(&run.command[0]).display();
    let ended = program.status();
    if let Some(status) = ended {
        let is_failure = !status.success() && !program.was_asked();
        if is_failure {
            warn(&format!("{name} ended with {}", program::in_words(status)));
        }
        if let Some(log) = log {
            let tail = if is_failure { log.tail(TAIL).unwrap_or_default() } else { Vec::new() };
            if let Some(path) = log.tidy() {
                warn(&format!("what {name} printed is in {}", path.display()));
                tail.iter().for_each(|line| warn(&format!("  | {line}")));
            }
        }
        if snapshot.is_none() {
            warn(&unseen::why(&run.command[0]));
        }
    }
    if let (Some(path), Some(snapshot)) = (&run.output, snapshot) {
        written(json::write(&snapshot, path, overwrite(run.force)), path)?;
    }
    Ok(ended.map_or(0, program::exit_code))
}

/// Finds the processes of the started program: itself and its descendants.
#[derive(Clone)]
struct ProgramFinder {
    program: Rc<RefCell<RunningProgram>>,
    /// Beacons that existed before the program started. Until further beacons appear, the program
    /// has not announced a segment.
    seen: std::collections::BTreeSet<PathBuf>,
    /// Preserves segments of ended processes until the first process is watched; for a group, all
    /// the time.
    collecting: Option<Rc<Collecting>>,
    /// Whether this finder looks for the members of a group.
    is_of_group: bool,
    log: Option<PathBuf>,
    /// Why the program recorded nothing. Cached, since finding out takes long.
    unseen: Rc<OnceCell<String>>,
}

impl ProgramFinder {
    /// Waits until there is a process to watch. `None` if the program ends first, time runs out or
    /// a signal arrives.
    fn wait(
        &mut self,
        timeout: Option<Duration>,
        interrupt: &Interrupt,
    ) -> Result<Option<Candidate>> {
        let start = Instant::now();
        loop {
            // Read the status first, so that a process that appeared before the program's end is
            // not missed.
            let ended = self.program.borrow_mut().status().is_some();
            if let Some(candidate) = self.discover()?.candidates.into_iter().next() {
                return Ok(Some(candidate));
            }
            if ended
                || timeout.is_some_and(|timeout| start.elapsed() >= timeout)
                || !interrupt.sleep(LOOK)
            {
                return Ok(None);
            }
        }
    }

    /// If this process has received a signal, ends the program or lets it end.
    fn obey(&self, interrupt: &Interrupt) -> Result<()> {
        let mut program = self.program.borrow_mut();
        match interrupt.signal() {
            None => {}
            // If the terminal is gone, the program has received SIGHUP as well. A program that
            // ignores SIGHUP continues to run.
            Some(libc::SIGHUP) => program.may_end(),
            // The terminal has sent Ctrl-C to the program as well. Any other signal was sent to
            // this process only, and is passed on.
            Some(_) => drop(program.end()?),
        }
        Ok(())
    }

    fn why_none(&mut self) -> String {
        let mut program = self.program.borrow_mut();
        let mut text = match program.status() {
            None => {
                format!(
                    "{} [{}] runs and has not reached a point yet",
                    program.name(),
                    program.id()
                )
            }
            Some(status) if status.success() => {
                self.unseen.get_or_init(|| unseen::why(program.command())).clone()
            }
            Some(status) => format!(
                "{} ended with {} before it reached a point",
                program.name(),
                program::in_words(status)
            ),
        };
        if let Some(log) = &self.log {
            text.push_str(&format!("; its output goes to {}", log.display()));
        }
        text
    }
}

impl Finder for ProgramFinder {
    fn program(&mut self) -> Option<String> {
        let mut program = self.program.borrow_mut();
        let runs = program.status().is_none();
        runs.then(|| format!("{} [{}]", program.name(), program.id()))
    }

    fn discover(&mut self) -> Result<Discovery> {
        // Opening segments costs more than listing the names of beacons, so discover only if there
        // are new names.
        let mut discovery = match source::announced() == self.seen {
            true => Discovery::default(),
            false => source::discover()?,
        };
        {
            let mut program = self.program.borrow_mut();
            if let Some(collecting) = &self.collecting {
                collecting.note(&mut discovery);
            }
            discovery.candidates.retain(|candidate| {
                let owns = program.owns(candidate);
                if let Some(collecting) = self.collecting.as_ref().filter(|_| !owns)
                    && candidate.awaited
                {
                    collecting.let_go(&candidate.segment_id);
                }
                owns
            });
            discovery.refused.retain(|refused| refused.pid == Some(program.id()));
        }
        discovery.instead = Some(self.why_none());
        discovery.is_over = self.program.borrow_mut().status().is_some();
        Ok(discovery)
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        let source = source::attach(candidate)?;
        if !self.is_of_group {
            self.collecting = None;
        }
        Ok(source)
    }

    fn attach_group(
        &mut self,
        group: &ProcessGroup,
        interval: Option<Duration>,
    ) -> Result<Box<dyn Source>> {
        let family = Self { is_of_group: true, ..self.clone() };
        let source = remote::attach_group_by(Box::new(family), group, interval)?;
        self.collecting = None;
        Ok(source)
    }

    fn let_go(&mut self, segment_id: &str) {
        if let Some(collecting) = &self.collecting {
            collecting.let_go(segment_id);
        }
    }
}
