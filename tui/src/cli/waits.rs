//! `pfp-top waits`: what the threads of a process wait for.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;

use super::arguments::interval_from;
use super::output::print;
use super::target::{LIVE, TargetArgs};
use crate::interrupt::Interrupt;
use pfp_export::folded;
use pfp_model::grid::{Table, table};
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Refusal, Which};
use pfp_read::text::{clean, counted, warn};
use pfp_read::units::{self, Scale, Unit};
use pfp_read::waits::{LockReport, PointReport, WaitNeeds, WaitsReport, Watch, verdict};

/// Times in the report are seconds.
const SECONDS: Scale = Scale { ticks_per_second: 1.0, unit: Unit::Time };
/// Longest time of samples at another place. A report in a snapshot has the last five seconds.
const LONGEST_ELSEWHERE: Duration = Duration::from_secs(5);
/// How much longer than asked the samples at another place may take.
const LATE: Duration = Duration::from_secs(20);
/// Time between two checks whether the agent has sampled long enough.
const CHECK: Duration = Duration::from_millis(100);
/// Room for the words at the end of a line.
const WORDS: usize = 400;

static POINTS: Table<PointReport, Scale> = table! {
    PointReport, Scale;
    "point", "Point", 8, Text(|point, _| point.name.clone()), "";
    "time", "Time", 8, Sum(|point, _| Some(point.wall_s))
        .text(|point, _| units::duration(point.wall_s)), "";
    "run", "Run%", 7, Text(|point, _| share(point.run_s, point.wall_s)).right(), "";
    "queued", "Queued%", 8, Text(|point, _| share(point.queued_s, point.wall_s)).right(), "";
    "waited", "Waited%", 8, Text(|point, _| share(point.waited_s, point.wall_s)).right(), "";
    "threads", "Threads", 8, Whole(|point, _| Some(point.threads as f64)), "";
    "reasons", "Waits for", WORDS, Text(reasons), "";
};

static LOCKS: Table<LockReport, Scale> = table! {
    LockReport, Scale;
    "lock", "Lock", 8, Text(|lock, _| clean(&lock.words()).into_owned()), "";
    "time", "Time", 8, Sum(|lock, _| Some(lock.total_s))
        .text(|lock, _| units::duration(lock.total_s)), "";
    "longest", "Longest", 8, Sum(|lock, _| Some(lock.longest_s))
        .text(|lock, _| units::duration(lock.longest_s)), "";
    "waits", "Waits", 7, Count(|lock, _| Some(lock.waits as f64)), "";
    "owner", "Held by", NAME, Text(|lock, _| lock.owner_in_words().unwrap_or("?".into())), "";
    "waiters", "Waiting", WORDS, Text(waiting), "";
};

/// Exit status if there is a deadlock.
pub(super) const DEADLOCK: u8 = 6;

/// Maximum number of columns of a name.
const NAME: usize = 32;
/// Maximum number of reasons that the table shows for a point.
const REASONS: usize = 4;

/// What to sample.
#[derive(Args, Clone, Debug)]
pub struct WaitsArgs {
    /// A snapshot file or a recording, whose last snapshot is shown; without it, a running process is
    /// sampled.
    #[arg(value_name = "FILE", conflicts_with_all = LIVE)]
    file: Option<PathBuf>,
    /// Which process.
    #[command(flatten)]
    target: TargetArgs,
    /// How long to sample; at another place at most 5s.
    #[arg(short, long, value_name = "TIME", default_value = "3s", value_parser = duration, conflicts_with = "file")]
    duration: Duration,
    /// Print JSON; docs/waits.schema.json describes it.
    #[arg(long)]
    json: bool,
    /// Print folded stacks, for a flame graph of all time, on and off the CPU.
    #[arg(long, conflicts_with_all = ["json", "file", "via", "via_file"])]
    folded: bool,
}

fn duration(text: &str) -> Result<Duration, String> {
    interval_from(Duration::from_millis(100), text)
}

/// What is printed: the report of a process.
#[derive(Serialize)]
struct Printed {
    process: String,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<String>,
    #[serde(flatten)]
    report: WaitsReport,
}

impl Printed {
    fn new(process: String, pid: u32, report: WaitsReport) -> Self {
        Self { process, pid, verdict: verdict(&report), report }
    }

    /// The report that a snapshot has.
    fn of(snapshot: &Snapshot) -> Option<Self> {
        let report = snapshot.waits.as_deref()?.clone();
        Some(Self::new(snapshot.process.name.clone(), snapshot.process.pid, report))
    }
}

/// Samples a process, and prints where its time went.
pub(super) fn run(asked: &WaitsArgs) -> Result<u8> {
    let printed = match &asked.file {
        Some(file) => Printed::of(&source::open(file)?.poll()?).with_context(|| {
            format!(
                "{}: expected a file with waits, found one without: `w` on the screen and \
                 `pfp-top record` save them",
                file.display()
            )
        })?,
        None if !asked.target.is_here() => sample_elsewhere(asked)?,
        None => {
            let watch = sample_here(asked)?;
            if asked.folded {
                print(&folded(&watch))?;
            }
            Printed::new(watch.name(), watch.pid(), watch.report())
        }
    };
    if asked.json {
        print(&(serde_json::to_string(&printed)? + "\n"))?;
    } else if !asked.folded {
        print(&text(&printed))?;
    }
    let report = printed.report;
    if let Some(limit) = report.limit.as_ref().filter(|_| !asked.json) {
        warn(limit);
    }
    Ok(if report.deadlocks.is_empty() { 0 } else { DEADLOCK })
}

fn sample_here(asked: &WaitsArgs) -> Result<Watch> {
    let mut watch = watch(&asked.target)?;
    watch.need_stacks(asked.folded);
    let interrupt = Interrupt::install()?;
    let end = Instant::now() + asked.duration;
    while let Some(between) = watch.sample()? {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || !interrupt.sleep(between.min(left)) {
            break;
        }
    }
    Ok(watch)
}

/// Lets the agent at another place sample the process.
fn sample_elsewhere(asked: &WaitsArgs) -> Result<Printed> {
    if asked.duration > LONGEST_ELSEWHERE {
        bail!(
            "expected at most {} s for a process at another place, found {}: run `pfp-top waits` \
             there for more",
            LONGEST_ELSEWHERE.as_secs(),
            units::duration(asked.duration.as_secs_f64())
        );
    }
    let mut source = asked.target.resolve()?;
    source.need_waits(WaitNeeds::Reasons);
    let interrupt = Interrupt::install()?;
    let until = Instant::now() + asked.duration + LATE;
    loop {
        let snapshot = source.poll_now()?;
        if !snapshot.process.members.is_empty() {
            bail!("expected one process, found several: choose one with -p PID");
        }
        let is_over = !snapshot.runs() || Instant::now() >= until;
        let Some(printed) = Printed::of(&snapshot) else {
            if is_over || !interrupt.sleep(CHECK) {
                bail!("{}: the process was not sampled", snapshot.process);
            }
            continue;
        };
        let report = &printed.report;
        let is_refused = report.samples == 0 && report.limit.is_some();
        let is_done = report.seconds >= asked.duration.as_secs_f64() || is_refused;
        if is_done || is_over || !interrupt.sleep(CHECK) {
            return Ok(printed);
        }
    }
}

fn watch(target: &TargetArgs) -> Result<Watch> {
    match (target.resolve(), target.wanted().which) {
        (Ok(source), _) => Watch::of(source),
        // A process without points, or whose points cannot be read, has waits, too.
        (Err(error), Some(Which::Pid(pid))) => {
            let watch = Watch::of_any(pid)?;
            if !matches!(error.downcast_ref(), Some(Refusal::NoTarget(_))) {
                warn(&format!("no points: {error:#}"));
            }
            Ok(watch)
        }
        (Err(error), _) => Err(error),
    }
}

/// The stacks, with nanoseconds by the clock.
fn folded(watch: &Watch) -> String {
    let process = watch.name();
    let mut text = String::new();
    for (frames, ns) in watch.named_stacks() {
        text += &folded::line(std::iter::once(&process).chain(&frames).map(String::as_str));
        text += &format!(" {ns}\n");
    }
    text
}

fn text(Printed { process, pid, verdict, report }: &Printed) -> String {
    let mut text = format!(
        "{}[{pid}]: {}, {}, {} samples\n",
        clean(process),
        counted(report.threads, "thread"),
        units::duration(report.seconds),
        units::count(report.samples),
    );
    let mut line = |line: String| {
        text += line.trim_end();
        text.push('\n');
    };
    for cycle in &report.deadlocks {
        line(String::new());
        line("DEADLOCK: none of these threads can continue".into());
        for link in cycle {
            let (thread, point) = (&link.thread, &link.point);
            let owner = link.owner.as_deref().unwrap_or("?");
            line(format!("  {thread} in {point} waits for {}, held by {owner}", link.lock));
        }
    }
    if !report.stuck.is_empty() {
        line(String::new());
        line("These threads have waited for one lock all the time:".into());
        for link in &report.stuck {
            let owner = match &link.owner {
                Some(owner) => format!("held by {owner}"),
                None => "whose owner is not known".into(),
            };
            let (thread, point) = (&link.thread, &link.point);
            line(format!("  {thread} in {point} waits for {}, {owner}", link.lock));
        }
    }
    if !report.deadlocks.is_empty() || !report.stuck.is_empty() {
        line(String::new());
    }
    verdict.iter().cloned().for_each(&mut line);
    line(String::new());
    let mut table = |rows: String| rows.lines().for_each(|row| line(row.to_owned()));
    table(POINTS.text(&report.points, &SECONDS, NAME));
    if !report.locks.is_empty() {
        table("\n".to_owned());
        table(LOCKS.text(&report.locks, &SECONDS, NAME));
    }
    text
}

fn share(part: f64, all: f64) -> String {
    units::percent(if all > 0.0 { part / all } else { 0.0 })
}

/// The reasons with the largest shares, and the number of the others.
fn reasons(point: &PointReport, _: &Scale) -> String {
    let reasons: Vec<_> = point.reasons.iter().filter(|it| it.share >= 0.0005).collect();
    let shown = reasons.iter().take(REASONS);
    let mut words: Vec<_> =
        shown.map(|it| format!("{} {} %", clean(&it.words()), units::percent(it.share))).collect();
    if reasons.len() > REASONS {
        words.push(format!("and {} more", reasons.len() - REASONS));
    }
    words.join(", ")
}

/// For each point, the number of its threads that wait for the lock.
fn waiting(lock: &LockReport, _: &Scale) -> String {
    let mut points: Vec<(&str, usize)> = Vec::new();
    for waiter in &lock.waiters {
        match points.iter_mut().find(|(point, _)| *point == waiter.point) {
            Some((_, threads)) => *threads += 1,
            None => points.push((&waiter.point, 1)),
        }
    }
    let words =
        points.iter().map(|(point, threads)| format!("{} in {point}", counted(*threads, "thread")));
    words.collect::<Vec<_>>().join(", ")
}
