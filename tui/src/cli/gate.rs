//! `pfp-top gate`: an exit status for whether a program became slower.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use super::commands::{resolve, say};
use super::{Target, percent, seconds};
use crate::app::Filter;
use crate::export::gate as export;
use crate::interrupt::Interrupt;
use crate::model::Model;
use crate::model::gate::{self, Finding, Limit, Run};
use crate::snapshot::Snapshot;
use crate::source::{self, Refusal};

/// Exit status of a gate that failed.
const FAILED: u8 = 1;
/// Exit status of what a signal ended, as shells have it.
const INTERRUPTED: u8 = 130;

/// What is compared, and how much worse it may be.
#[derive(Args, Clone, Debug)]
pub struct Gate {
    /// Snapshots of the runs before; several of one process are one run.
    #[arg(long, value_name = "FILE", num_args = 1.., required = true)]
    baseline: Vec<PathBuf>,
    /// How much worse each point may be: p50, p90, p99 (or another), mean, load, count
    /// by so much more, rate by so much less.
    #[arg(
        long,
        value_name = "METRIC=PERCENT",
        value_delimiter = ',',
        required = true,
        value_parser = Limit::parse
    )]
    max_regress: Vec<Limit>,
    /// Snapshots of the runs now.
    #[arg(value_name = "FILE", required_unless_present = "pid")]
    files: Vec<PathBuf>,
    /// Instead of files, the process with this id: all that it has measured.
    #[arg(short, long, value_name = "PID", conflicts_with = "files")]
    pid: Option<u32>,
    /// What the process measures from now on, in windows of so many seconds.
    #[arg(short = 'd', long, value_name = "SECS", requires = "pid", value_parser = seconds)]
    window: Option<Duration>,
    /// In so many windows.
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
    /// How much runs of the same program differ from each other (standard deviation);
    /// used only where there is one run on each side, which cannot tell.
    #[arg(long, value_name = "PERCENT", default_value = "2", value_parser = percent)]
    deviation: f64,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(gate: &Gate) -> Result<u8> {
    let before = Run::all(read(&gate.baseline)?);
    let now = match gate.pid {
        None => Run::all(read(&gate.files)?),
        Some(pid) => match watch(gate, pid)? {
            Some(run) => vec![run],
            None => return Ok(INTERRUPTED),
        },
    };
    if let Some(run) = now.iter().find(|now| before.iter().any(|then| is_same(now, then))) {
        let process = &run.last().process;
        bail!(
            "expected runs of two processes, but {}[{}] is on both sides; `pfp-top diff` compares \
             two moments of one",
            process.name,
            process.pid
        );
    }
    let admitted: HashSet<String> =
        before.iter().chain(&now).flat_map(|run| admitted(run.last(), &gate.filter)).collect();
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
    say(&match gate.json {
        true => export::json(&judgement)?,
        false => export::render(&judgement),
    })?;
    Ok(if judgement.count(Finding::Failed) > 0 { FAILED } else { 0 })
}

fn is_same(a: &Run, b: &Run) -> bool {
    a.last().process.segment_id == b.last().process.segment_id
}

fn read(files: &[PathBuf]) -> Result<Vec<Snapshot>> {
    let read = |file: &PathBuf| source::open(Path::new(file))?.poll();
    files.iter().map(read).collect()
}

/// What a process measured, or measures from now on; none if a signal came first.
fn watch(gate: &Gate, pid: u32) -> Result<Option<Run>> {
    let mut source = resolve(&Target::of_pid(pid))?;
    let first = source.poll()?;
    let Some(window) = gate.window else {
        return Ok(Run::all(vec![first]).pop());
    };
    let interrupt = Interrupt::install()?;
    let mut steps: Vec<Snapshot> = Vec::new();
    for _ in 0..gate.windows {
        if !interrupt.sleep(window) {
            return Ok(None);
        }
        let next = source.poll()?;
        if steps.last().unwrap_or(&first).elapsed_ticks >= next.elapsed_ticks {
            // It has ended.
            break;
        }
        steps.push(next);
    }
    let ended = || Refusal::NoTarget(format!("process {pid} ended before it could be measured"));
    Run::since(first, steps).map(Some).ok_or_else(|| ended().into())
}

/// Names of the points that pass.
fn admitted(snapshot: &Snapshot, filter: &Filter) -> Vec<String> {
    let mut model = Model::default();
    model.fold(snapshot.clone());
    let points = model.points().iter().filter(|figures| filter.admits(figures));
    points.map(|figures| figures.name()).collect()
}
