//! `pfp-top export FORMAT`: writes the figures of a snapshot file or a process in a form that other
//! programs read.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};

use super::missing::missing;
use super::output::{check_new, print_by, write_file};
use super::target::{LIVE, TargetArgs};
use crate::interrupt::{INTERRUPTED, Interrupt};
use pfp_export::{AllocsAt, Format, Subject};
use pfp_model::filter::Filter;
use pfp_model::span::Span;
use pfp_model::{Figures, Model, WeighedBy};
use pfp_model::{slow, span};
use pfp_read::files::input::STDIN;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Moment, Source};

/// Maximum number of moments at which a trace shows allocations.
const MOMENTS: usize = 2000;

/// What to export, and where to.
#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The format.
    #[arg(value_enum)]
    format: Format,
    /// A snapshot file or a recording; without it, a running process is polled once.
    #[arg(conflicts_with_all = LIVE)]
    file: Option<PathBuf>,
    /// The moment of a recording: 12:03:41, +34s after its first snapshot, or #34; the default is
    /// the last snapshot.
    #[arg(
        long,
        value_name = "MOMENT",
        value_parser = Moment::parse,
        conflicts_with_all = ["from", "to"],
        conflicts_with_all = LIVE
    )]
    at: Option<Moment>,
    /// Only what was measured after this moment of a recording.
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse, conflicts_with_all = LIVE)]
    from: Option<Moment>,
    /// Only what was measured up to this moment of a recording.
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse, conflicts_with_all = LIVE)]
    to: Option<Moment>,
    #[command(flatten)]
    target: TargetArgs,
    /// Write to this file, completely or not at all; `-` is standard output.
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Only the points that pass this filter: a part of the name, a regular expression,
    /// `thread:NAME` or `file:NAME`, as `/` on the screen.
    #[arg(long, value_name = "FILTER", default_value = "", value_parser = Filter::new, hide_default_value = true)]
    filter: Filter,
    /// Export each thread separately (csv and openmetrics only).
    #[arg(long)]
    per_thread: bool,
    /// Export the records around the slow call with this number, of its thread and of the others.
    /// `pfp-top slow` prints the numbers (chrome, perfetto, speedscope and svg-trace only).
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["at", "from", "to"])]
    slow: Option<u64>,
    /// Weigh stacks by allocated bytes, not by time (folded only).
    #[arg(long)]
    alloc: bool,
}

pub(super) fn run(export: &ExportArgs) -> Result<u8> {
    let to_stdout = export.output == Path::new("-");
    if export.per_thread && !export.format.has_per_thread() {
        bail!(
            "--per-thread works with csv and openmetrics only; {} has no figures by thread",
            word(export.format)
        );
    }
    if export.alloc && export.format != Format::Folded {
        bail!("--alloc works with folded only; csv and openmetrics have allocations without it");
    }
    if export.slow.is_some() && !export.format.has_records() {
        bail!(
            "--slow works with chrome, perfetto, speedscope and svg-trace only; {} has no single calls",
            word(export.format)
        );
    }
    if to_stdout && export.format.is_binary() && io::stdout().is_terminal() {
        bail!("{} is not text for a terminal: give -o FILE, or a pipe", word(export.format));
    }
    if !to_stdout {
        check_new(&export.output, export.force)?;
    }
    if export.file.is_none() && export.at.or(export.from).or(export.to).is_some() {
        bail!("expected a recording to look for a moment in, found no file: name it");
    }
    // Until writing begins, a signal ends the process at once.
    let mut moments = Vec::new();
    let (snapshot, status) = match (&export.file, export.slow) {
        (file, Some(number)) => {
            let mut source = match file {
                Some(file) => source::open(file)?,
                None => export.target.resolve()?,
            };
            (moment_of(number, source.as_mut())?, missing(source.as_ref()))
        }
        (Some(file), None) => {
            let span = Span { from: export.from, to: export.to.or(export.at) };
            // Standard input cannot be read twice.
            if export.format == Format::Perfetto && file != Path::new(STDIN) {
                moments = span::read_steps(file, &span, MOMENTS, |step| AllocsAt::of(&step))?;
            }
            (span::read(file, &span, true)?, 0)
        }
        (None, None) => {
            let mut source = export.target.resolve()?;
            let mut snapshot = source.poll()?;
            source.add_records(&mut snapshot);
            (snapshot, missing(source.as_ref()))
        }
    };
    let model = Model::of(snapshot);
    let passes = |figures: &Figures| export.filter.admits(figures);
    let mut subject =
        Subject::new(&model, passes, export.per_thread).context("the process has no figures")?;
    subject.moments = moments;
    if export.alloc {
        subject.weighed_by = WeighedBy::AllocBytes;
        if model.points().iter().all(|figures| figures.allocs().is_none()) {
            bail!(
                "expected a point that has counted allocations, found none: see `pfp-top run \
                 --alloc`, or pfp::Alloc"
            );
        }
    }
    if export.filter.is_on() && subject.points().is_empty() {
        bail!(
            "no point passes the filter {:?}: `pfp-top --once` shows their names",
            export.filter.text()
        );
    }
    let interrupt = Interrupt::install()?;
    let write = |out: &mut dyn Write| export.format.write(&subject, out);
    match to_stdout {
        true => drop(print_by(write).context("standard output cannot be written to")?),
        false => write_file(&export.output, export.force, write)?,
    }
    Ok(if interrupt.raised() { INTERRUPTED } else { status })
}

/// The moment of the slow call with this number.
fn moment_of(number: u64, source: &mut dyn Source) -> Result<Snapshot> {
    let mut by_lane = BTreeMap::new();
    slow::each(source, |call, snapshot| {
        if call.number == number {
            by_lane.insert(call.lane, slow::moment(call, snapshot));
        }
    })?;
    let moment = by_lane.pop_first();
    if !by_lane.is_empty() {
        bail!("expected one slow call {number}, found one in each of several processes");
    }
    let absent = || {
        format!("expected the number of a slow call, as `pfp-top slow` prints it, found {number}")
    };
    Ok(moment.with_context(absent)?.1)
}

/// The name of a format on the command line.
fn word(format: Format) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
