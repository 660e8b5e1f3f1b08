//! `pfp-top record`: takes a snapshot at every interval, until the process ends, the duration is
//! over, or the user stops it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;

use super::arguments::interval_from;
use super::missing::Missing;
use super::output::{Progress, next_moment, overwrite};
use super::slow::BETWEEN_POLLS;
use super::target::TargetArgs;
use crate::interrupt::Interrupt;
use pfp_model::headline::ended_words;
use pfp_read::files::recording::Writer;
use pfp_read::snapshot::{Drained, ProcessState, Snapshot};
use pfp_read::source::Source;
use pfp_read::text::warn;
use pfp_read::units;
use pfp_read::waits::WaitNeeds;

/// Shortest time between two snapshots.
const SHORTEST: Duration = Duration::from_millis(10);
/// Time between two updates of the progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// What to record, and how.
#[derive(Args, Debug)]
#[command(
    after_help = "Recording stops when the process ends, after -d, or on Ctrl-C. The file is \
                  complete after each snapshot, and `pfp-top open FILE` shows it while it grows."
)]
pub struct RecordArgs {
    /// Which process.
    #[command(flatten)]
    target: TargetArgs,
    /// Time between two snapshots: 1s, 250ms.
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// How long to record: 90s, 10m, 1h30m; the default is until the process ends.
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_duration)]
    duration: Option<Duration>,
    /// The file to write.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Also record single calls, for the timeline, as far as the rings still hold them at each
    /// snapshot. This makes large files.
    #[arg(long)]
    events: bool,
    /// Record only slow calls, without figures: a small file for weeks. The process is polled at
    /// least four times a second; if it keeps more than 4 calls between two polls, some can be
    /// missing. `watch` sets the limits; `pfp-top slow FILE` prints the calls.
    #[arg(long, conflicts_with = "events")]
    slow: bool,
    /// Replace the file if it exists.
    #[arg(long, conflicts_with = "append")]
    force: bool,
    /// Continue the file if it is a recording of the same process.
    #[arg(long)]
    append: bool,
}

fn interval(text: &str) -> Result<Duration, String> {
    interval_from(SHORTEST, text)
}

/// Records a process. Every way of ending is a success.
pub(super) fn run(record: &RecordArgs) -> Result<u8> {
    ignore_file_size_signal();
    let interrupt = Interrupt::install()?;
    let start = Instant::now();
    let mut source = record.target.resolve()?;
    let (next, calls) = (HashMap::new(), record.slow.then(HashMap::new));
    let mut recorder = Recorder { events: record.events, next, calls };
    source.need_waits(WaitNeeds::Summary);
    let interval = if record.slow { record.interval.min(BETWEEN_POLLS) } else { record.interval };
    let mut snapshot = recorder.part(source.poll()?);
    let mut writer = recorder.begin(record, interval, source.as_mut(), &snapshot)?;
    let mut progress = ProgressReport { start, last: None, line: Progress::on_terminal() };
    let mut why = ended(&snapshot);
    let mut missing = Missing::default();
    missing.look(source.as_ref(), || progress.line.clear());
    while why.is_none() {
        let due = next_moment(start, interval);
        let end = record.duration.and_then(|long| start.checked_add(long));
        let until = end.map_or(due, |end| end.min(due));
        if !sleep_until(until, &interrupt, &mut progress, &writer) {
            why = Some("asked to end".into());
        }
        match source.poll() {
            // While the connection is slow, a poll returns the previous snapshot again.
            Ok(same) if is_same(&same, &snapshot) => {}
            Ok(next) => {
                snapshot = recorder.part(next);
                missing.line_is_back();
                let is_empty = record.slow && snapshot.slow.is_empty();
                let is_recorded = !is_empty || ended(&snapshot).is_some();
                let events = recorder.events(source.as_mut(), &snapshot);
                if is_recorded && let Err(error) = writer.append(&snapshot, &events) {
                    progress.line.clear();
                    let (shown, n) = (record.output.display(), writer.frames());
                    return Err(error).with_context(|| {
                        format!(
                            "{shown}: the recording ended early and is whole up to its {n} snapshots"
                        )
                    });
                }
                why = ended(&snapshot).or(why);
            }
            // The recording ends now, even if its last poll fails.
            Err(_) if why.is_some() => {}
            // The process died while the connection was lost.
            Err(_) if source.has_died() => {
                why = Some("the process has ended".into());
            }
            // The recording continues after a lost connection. Any other error ends it.
            Err(error) => missing.lose(error, source.as_ref(), || progress.line.clear())?,
        }
        missing.look(source.as_ref(), || progress.line.clear());
        let is_over = record.duration.is_some_and(|end| start.elapsed() >= end);
        why = why.or(is_over.then_some("the duration is over".into()));
    }
    progress.line.clear();
    let shown = record.output.display();
    writer.finish().with_context(|| format!("{shown} could not be flushed to the disk"))?;
    let (n, bytes) = (writer.frames(), units::bytes(writer.bytes()));
    let why = why.unwrap_or_default();
    warn(&format!("{shown}: {n} snapshots, {bytes}; {why}{}", missing.words()));
    Ok(missing.status())
}

/// Ignores SIGXFSZ, so that a file size limit fails the write, like a full disk, and does not kill
/// the process.
fn ignore_file_size_signal() {
    // SAFETY: `signal` takes two plain numbers; SIG_IGN installs no handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether two snapshots of a running process are the same picture.
fn is_same(one: &Snapshot, other: &Snapshot) -> bool {
    let runs = one.process.state == ProcessState::Running;
    runs && one.taken_unix_ns == other.taken_unix_ns
}

fn ended(snapshot: &Snapshot) -> Option<Cow<'static, str>> {
    Some(match snapshot.process.state {
        ProcessState::Running => return None,
        ProcessState::Crashed => "the process died".into(),
        ProcessState::Exited | ProcessState::Ended => ended_words(&snapshot.process).into(),
    })
}

/// Writes snapshots and the new records of the rings.
struct Recorder {
    events: bool,
    /// By lane, the number of the next record to read.
    next: HashMap<u32, u64>,
    /// The slow calls of the last snapshot, and whether it was known what they waited for. `None` if
    /// figures are recorded.
    calls: Option<HashMap<(u32, u64), bool>>,
}

impl Recorder {
    /// The part of a snapshot to record: all of it or, with `--slow`, the calls that are new or whose
    /// reason has become known.
    fn part(&mut self, snapshot: Snapshot) -> Snapshot {
        let Some(calls) = &mut self.calls else { return snapshot };
        let now = snapshot.slow.iter().map(|call| (call.key(), call.waited_for.is_some()));
        let known = std::mem::replace(calls, now.collect());
        let mut part = Snapshot { waits: None, ..snapshot.without_measurements() };
        part.slow.retain(|call| known.get(&call.key()) != Some(&call.waited_for.is_some()));
        part
    }

    /// Creates or continues the file, with this snapshot in it.
    fn begin(
        &mut self,
        record: &RecordArgs,
        interval: Duration,
        source: &mut dyn Source,
        snapshot: &Snapshot,
    ) -> Result<Writer> {
        let shown = record.output.display();
        if record.append && record.output.exists() {
            let (mut writer, last, torn) = Writer::resume(&record.output)?;
            if last.process.segment_id != snapshot.process.segment_id {
                bail!(
                    "expected a recording of {}, found that {shown} is one of {}, or of another \
                     run; record into another file",
                    snapshot.process,
                    last.process
                );
            }
            if torn > 0 {
                warn(&format!(
                    "{shown}: its last {torn} bytes were no whole snapshot and are gone"
                ));
            }
            // Earlier records are in the file already, or lost.
            self.next = last.lanes.iter().map(|lane| (lane.id, lane.records_written)).collect();
            let events = self.events(source, snapshot);
            let appended = writer.append(snapshot, &events);
            appended.with_context(|| format!("{shown} was not appended to"))?;
            return Ok(writer);
        }
        let events = self.events(source, snapshot);
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        Writer::create(&record.output, overwrite(record.force), interval_ns, snapshot, &events)
    }

    fn events(&mut self, source: &mut dyn Source, snapshot: &Snapshot) -> Vec<Drained> {
        if !self.events {
            return Vec::new();
        }
        let next = &self.next;
        let events = source.new_records(snapshot, &|lane| next.get(&lane).copied().unwrap_or(0));
        self.next.extend(events.iter().map(|drained| (drained.lane, drained.next())));
        events
    }
}

/// Sleeps; returns false if asked to end.
fn sleep_until(
    until: Instant,
    interrupt: &Interrupt,
    progress: &mut ProgressReport,
    writer: &Writer,
) -> bool {
    loop {
        progress.show(writer);
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return !interrupt.raised();
        }
        let nap = if progress.line.shown { left.min(PROGRESS) } else { left };
        if !interrupt.sleep(nap) {
            return false;
        }
    }
}

/// The progress of the recording, on a terminal.
struct ProgressReport {
    start: Instant,
    last: Option<Instant>,
    line: Progress,
}

impl ProgressReport {
    fn show(&mut self, writer: &Writer) {
        if !self.line.shown || self.last.is_some_and(|last| last.elapsed() < PROGRESS) {
            return;
        }
        self.last = Some(Instant::now());
        let elapsed = units::uptime(self.start.elapsed().as_secs_f64());
        let (n, bytes) = (writer.frames(), units::bytes(writer.bytes()));
        self.line.show(&format!("{elapsed}  {n} snapshots  {bytes}  Ctrl-C ends"));
    }
}
