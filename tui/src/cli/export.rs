//! `pfp-top export FORMAT`: writes the figures of a snapshot file or a process in a form that other
//! programs read.

use std::collections::{BTreeMap, BTreeSet};
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
use pfp_read::snapshot::{SlowCall, Snapshot};
use pfp_read::source::Moment;

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
    /// The moment of the slow call with this number, as `pfp-top slow` prints it (chrome, perfetto,
    /// speedscope and svg-trace only).
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
        (Some(file), Some(number)) => {
            let mut moments = Moments::default();
            slow::read(file, |call, snapshot| moments.see(number, call, snapshot))?;
            (moments.only(number)?, 0)
        }
        (Some(file), None) => {
            let span = Span { from: export.from, to: export.to.or(export.at) };
            // Standard input cannot be read twice.
            if export.format == Format::Perfetto && file != Path::new(STDIN) {
                moments = span::read_steps(file, &span, MOMENTS, |step| AllocsAt::of(&step))?;
            }
            (span::read(file, &span, true)?, 0)
        }
        (None, slow) => {
            let mut source = export.target.resolve()?;
            let mut snapshot = source.poll()?;
            match slow {
                Some(number) => {
                    let mut moments = Moments::default();
                    snapshot.slow.iter().for_each(|call| moments.see(number, call, &snapshot));
                    snapshot = moments.only(number)?;
                }
                None => source.add_records(&mut snapshot),
            }
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

/// The moments of the slow calls with a number: one, unless several processes have such a call.
#[derive(Default)]
struct Moments {
    /// By lane.
    found: BTreeMap<u32, Snapshot>,
    /// The numbers of all calls.
    numbers: BTreeSet<u64>,
}

impl Moments {
    fn see(&mut self, number: u64, call: &SlowCall, snapshot: &Snapshot) {
        self.numbers.insert(call.number);
        if call.number == number {
            self.found.insert(call.lane, slow::moment(call, snapshot));
        }
    }

    fn only(mut self, number: u64) -> Result<Snapshot> {
        match (self.found.pop_first(), self.found.len()) {
            (Some((_, moment)), 0) => Ok(moment),
            (Some(_), _) => bail!(
                "expected one slow call {number}, found one of several processes: export from one \
                 process, or its recording"
            ),
            (None, _) => {
                let numbers = self.numbers.iter().map(u64::to_string).collect::<Vec<_>>();
                let numbers = numbers.join(", ");
                bail!(
                    "expected the number of a slow call that was kept ({numbers}), found {number}"
                )
            }
        }
    }
}

/// The name of a format on the command line.
fn word(format: Format) -> String {
    format.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
