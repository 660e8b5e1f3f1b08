//! `pfp-top gate`: compares runs of a program, and fails if the program became slower or, with
//! `--exact`, if its calls or allocations changed.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;

use super::arguments::{interval, percent};
use super::missing::Missing;
use super::output::print;
use super::target::{LIVE, TargetArgs};
use crate::interrupt::{INTERRUPTED, Interrupt};
use pfp_model::Model;
use pfp_model::compare::exact::{self, ExactComparison};
use pfp_model::compare::gate::report;
use pfp_model::compare::gate::{self, GateFinding, Limit, ProgramRun};
use pfp_model::filter::Filter;
use pfp_model::headline;
use pfp_model::span;
use pfp_model::span::Span;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Moment, Refusal};
use pfp_read::text::{counted, warn};
use pfp_read::units;

/// Maximum time to wait for new figures over a slow connection.
const MAX_WAIT: Duration = Duration::from_secs(20);
/// Time between two polls while new figures are late.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Exit status of a gate that failed.
const FAILED: u8 = 1;

/// What is compared, and how much worse it may be.
#[derive(Args, Clone, Debug)]
pub struct GateArgs {
    /// Snapshots of the baseline runs; several of the same process are one run. Takes several
    /// files, up to the next option; may be repeated.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    baseline: Vec<PathBuf>,
    /// How much worse each point may become: how far p50, p90, p99 (or another percentile), mean,
    /// load or count may rise, or rate may fall.
    #[arg(
        long,
        value_name = "METRIC=PERCENT",
        value_delimiter = ',',
        required_unless_present = "exact",
        value_parser = Limit::parse
    )]
    max_regress: Vec<Limit>,
    /// In place of limits: compare calls, calls by caller and allocations as numbers, and fail if
    /// one differs. Numbers that vary between the baseline runs are not judged.
    #[arg(long, conflicts_with_all = ["max_regress", "split", "deviation"])]
    exact: bool,
    /// Snapshots of the new runs.
    #[arg(value_name = "FILE", conflicts_with_all = LIVE)]
    files: Vec<PathBuf>,
    /// Start of the new runs in recordings: 12:03:41, +34s after the first snapshot, or #34.
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse, conflicts_with_all = LIVE)]
    from: Option<Moment>,
    /// End of the new runs in recordings; the default is the last snapshot.
    #[arg(
        long,
        visible_alias = "at",
        value_name = "MOMENT",
        value_parser = Moment::parse,
        conflicts_with_all = LIVE
    )]
    to: Option<Moment>,
    /// Start of the baseline runs in recordings.
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    baseline_from: Option<Moment>,
    /// End of the baseline runs in recordings; the default is the last snapshot.
    #[arg(long, visible_alias = "baseline-at", value_name = "MOMENT", value_parser = Moment::parse)]
    baseline_to: Option<Moment>,
    /// Split recordings into parts of about this length, such as 10s or 1m, and treat each part as
    /// a run. Parts of one process vary less than real runs.
    #[arg(long, value_name = "TIME", value_parser = part, conflicts_with_all = LIVE)]
    split: Option<Duration>,
    /// Instead of files: the measurements of running processes. Processes of a job are one run, and
    /// points of the same name are summed.
    #[command(flatten)]
    target: TargetArgs,
    /// Judge only what the processes measure from now on, in windows of this length: 10s.
    #[arg(short = 'd', long, value_name = "TIME", value_parser = interval)]
    window: Option<Duration>,
    /// Number of windows.
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        requires = "window",
        default_value = "5",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    windows: u64,
    /// Only the points that pass this filter, as `/` on the screen.
    #[arg(long, value_name = "FILTER", value_parser = Filter::new, default_value = "")]
    filter: Filter,
    /// Assumed standard deviation between runs of the same program; used only if each side has a
    /// single run.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    deviation: f64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Print Markdown, for a pull request; with --exact.
    #[arg(long, requires = "exact", conflicts_with_all = ["json", "max_regress"])]
    markdown: bool,
}

fn part(text: &str) -> Result<Duration, String> {
    match units::parse_duration(text)? {
        Duration::ZERO => Err("expected more than 0, such as 10s".into()),
        long => Ok(long),
    }
}

pub(super) fn run(gate: &GateArgs) -> Result<u8> {
    let is_live = gate.target.names_any();
    if !is_live && gate.target.is_given() {
        bail!(
            "expected -p PID, --name, --all or --sum with --via, which leads to processes, found \
             files"
        );
    }
    if !is_live && gate.window.is_some() {
        bail!("expected -p PID, --name, --all or --sum with --window, found files");
    }
    let mut missing = 0;
    let (baseline, files) = sides(gate)?;
    let before = read(baseline, &Span { from: gate.baseline_from, to: gate.baseline_to }, gate)?;
    let now = match is_live {
        false => read(files, &Span { from: gate.from, to: gate.to }, gate)?,
        true => match watch(gate)? {
            Some((run, status)) => {
                missing = status;
                vec![run]
            }
            None => return Ok(INTERRUPTED),
        },
    };
    if let Some(run) = now.iter().find(|now| before.iter().any(|then| now.overlaps(then))) {
        bail!(
            "expected runs of two processes, but {} is on both sides; `pfp-top diff` compares two \
             moments of a process, and --baseline-to and --from split a recording into windows \
             that do not overlap",
            run.last().process
        );
    }
    if gate.split.is_some() {
        warn(&format!(
            "{} and {} parts of recordings count as runs: they differ less than runs do, so this \
             says whether the process changed, not whether the program did",
            before.len(),
            now.len()
        ));
    }
    let admitted: HashSet<String> =
        before.iter().chain(&now).flat_map(|run| admitted(run.last(), &gate.filter)).collect();
    if gate.exact {
        let compared = exact::compare(&before, &now, |name| admitted.contains(name));
        return Ok(if print_exact(gate, &compared)? { missing } else { FAILED });
    }
    let judgement = gate::judge(&before, &now, &gate.max_regress, gate.deviation / 100.0, |name| {
        admitted.contains(name)
    });
    if judgement.rows.is_empty() {
        bail!(Refusal::NoTarget(format!(
            "expected a point that both sides measured often enough{}, found none; {} only before, \
             {} only now, {} with too few measurements",
            if gate.filter.is_on() { " and that passes the filter" } else { "" },
            judgement.gone.len(),
            judgement.new.len(),
            judgement.too_few.len()
        )));
    }
    print(&match gate.json {
        true => report::json(&judgement)?,
        false => report::render(&judgement),
    })?;
    Ok(if judgement.count(GateFinding::Failed) > 0 { FAILED } else { missing })
}

/// Prints an exact comparison. Returns whether it passed.
fn print_exact(gate: &GateArgs, compared: &ExactComparison) -> Result<bool> {
    if compared.is_empty() {
        bail!(Refusal::NoTarget(format!(
            "expected a number that is the same in all baseline runs{}, found none; {} in these \
             runs",
            if gate.filter.is_on() { ", of a point that passes the filter" } else { "" },
            match compared.varying.len() {
                0 => "no point was called".to_owned(),
                many => counted(many, "number") + " varied",
            }
        )));
    }
    print(&match () {
        () if gate.json => exact::report::json(compared)?,
        () if gate.markdown => exact::report::markdown(compared),
        () => exact::report::render(compared),
    })?;
    Ok(compared.passed())
}

/// The files of both sides. `--baseline A B` without further files means one file for each side;
/// with more files, the split would be ambiguous.
fn sides(gate: &GateArgs) -> Result<(&[PathBuf], &[PathBuf])> {
    match gate.baseline.as_slice() {
        all if gate.target.names_any() || !gate.files.is_empty() => Ok((all, &gate.files)),
        [before, now] => Ok((std::slice::from_ref(before), std::slice::from_ref(now))),
        [_] => bail!("expected the new runs as well, found only the baseline: name their files"),
        several => bail!(
            "expected the new runs as well, but --baseline takes all {} files: put another option, \
             or --, before the first new run",
            several.len()
        ),
    }
}

/// Reads the runs in these files. With `--split`, each part of a file is a run. With a start, the
/// window of each file is a run. Otherwise, all files of one process are one run.
fn read(files: &[PathBuf], span: &Span, gate: &GateArgs) -> Result<Vec<ProgramRun>> {
    let (mut runs, mut whole) = (Vec::new(), Vec::new());
    for file in files {
        match (gate.split, &span.from) {
            (Some(long), _) => {
                let moments = span::read_parts(file, span, long)?;
                let parts = moments.windows(2);
                runs.extend(
                    parts.filter_map(|two| ProgramRun::since(two[0].clone(), vec![two[1].clone()])),
                );
            }
            (None, Some(from)) => {
                let from = source::open_at(file, Some(from))?.poll()?;
                let to = span::read(file, &Span { from: None, to: span.to }, false)?;
                if from.elapsed_ticks >= to.elapsed_ticks {
                    bail!("{}: expected a window that ends after it begins", file.display());
                }
                runs.extend(ProgramRun::since(from, vec![to]));
            }
            (None, None) => whole.push(span::read(file, span, false)?),
        }
    }
    runs.extend(ProgramRun::all(whole));
    Ok(runs)
}

/// Takes the measurements of running processes: those so far or, with `--window`, those from now
/// on. Also returns the exit status for missing places. `None` if a signal arrived first.
fn watch(gate: &GateArgs) -> Result<Option<(ProgramRun, u8)>> {
    let mut source = gate.target.resolve()?;
    let mut missing = Missing::default();
    let first = source.poll()?;
    missing.look(source.as_ref(), || ());
    let Some(window) = gate.window else {
        return Ok(ProgramRun::all(vec![first]).pop().map(|run| (run, missing.status())));
    };
    let interrupt = Interrupt::install()?;
    let mut steps: Vec<Snapshot> = Vec::new();
    for _ in 0..gate.windows {
        if !interrupt.sleep(window) {
            return Ok(None);
        }
        let last = steps.last().unwrap_or(&first);
        let late = Instant::now() + MAX_WAIT;
        let next = loop {
            let next = source.poll()?;
            missing.look(source.as_ref(), || ());
            // While the connection is slow, a poll returns the previous snapshot again.
            let is_same = next.elapsed_ticks <= last.elapsed_ticks;
            if !is_same || !next.runs() {
                break (!is_same).then_some(next);
            }
            if Instant::now() > late {
                bail!("expected figures, found none for {} s: try again", MAX_WAIT.as_secs());
            }
            if !interrupt.sleep(POLL_INTERVAL) {
                return Ok(None);
            }
        };
        // Stop once all processes have ended.
        let Some(next) = next.filter(|_| last.runs()) else { break };
        steps.push(next);
    }
    let ended = || {
        let process = headline::process(&first.process);
        Refusal::NoTarget(format!("{process} ended before it could be measured"))
    };
    let run = ProgramRun::since(first.clone(), steps).ok_or_else(ended)?;
    Ok(Some((run, missing.status())))
}

/// Names of the points that pass the filter.
fn admitted(snapshot: &Snapshot, filter: &Filter) -> Vec<String> {
    let model = Model::of(snapshot.clone());
    let points = model.points().iter().filter(|figures| filter.admits(figures));
    points.map(|figures| figures.name()).collect()
}
