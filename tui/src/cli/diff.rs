//! `pfp-top diff`: compares files, or a process, with files.

use std::path::{Path, PathBuf};
use std::slice;

use anyhow::{Result, bail};
use clap::Args;

use super::arguments::percent;
use super::missing::missing;
use super::output::print;
use super::target::TargetArgs;
use pfp_model::compare::{Baseline, Comparison, report};
use pfp_model::span;
use pfp_model::span::Span;
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{self, Moment};
use pfp_remote as remote;

/// Exit status of a comparison beyond the allowed limit.
const SLOWER: u8 = 1;
/// Maximum number of snapshots taken from a recording to find out how much its figures vary.
const MOMENTS: usize = 32;

/// The two sides of a comparison.
#[derive(Args, Clone, Debug)]
pub struct DiffArgs {
    /// The baseline and the file to compare with it; with --baseline, the files to compare.
    #[arg(
        value_name = "FILE",
        required_unless_present_any = ["pid", "name", "all", "sum", "via", "via_file"]
    )]
    files: Vec<PathBuf>,
    /// Which process is compared, in place of files.
    #[command(flatten)]
    target: TargetArgs,
    /// The files of the baseline, up to the next option.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    baseline: Vec<PathBuf>,
    /// Start of the compared part of a recording; if both sides are the same recording, the
    /// baseline ends there.
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    from: Option<Moment>,
    /// End of the compared part; the default is the last snapshot.
    #[arg(long, visible_alias = "at", value_name = "MOMENT", value_parser = Moment::parse)]
    to: Option<Moment>,
    /// Start of the baseline in a recording; the default is the start of its process.
    #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
    baseline_from: Option<Moment>,
    /// End of the baseline in a recording.
    #[arg(long, visible_alias = "baseline-at", value_name = "MOMENT", value_parser = Moment::parse)]
    baseline_to: Option<Moment>,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Print Markdown, for a pull request.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// Fail (exit status 1) if a point became slower by more than this.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_over: Option<f64>,
}

impl DiffArgs {
    /// Prints the comparison of the baseline with the last of these snapshots; the earlier ones
    /// show how much the figures vary. Returns the exit status.
    fn print(
        &self,
        baseline: &Baseline,
        moments: &[Snapshot],
        (before, now): (&str, &str),
    ) -> Result<u8> {
        let mut comparison = None;
        for moment in moments {
            comparison = Comparison::renewed(baseline, moment, comparison);
        }
        let Some(comparison) = comparison else {
            bail!(
                "{now} is of the same process as {before} and not later: name the later one second"
            );
        };
        print(&match (self.json, self.markdown) {
            (true, _) => report::json(baseline, &comparison)?,
            (_, true) => report::markdown(baseline, &comparison),
            _ => report::render(baseline, &comparison),
        })?;
        let fails = self.fail_over.is_some_and(|percent| {
            report::slower_than(&comparison, percent / 100.0).next().is_some()
        });
        Ok(if fails { SLOWER } else { 0 })
    }
}

pub(super) fn run(diff: &DiffArgs) -> Result<u8> {
    let then = Span { from: diff.baseline_from, to: diff.baseline_to };
    let now = Span { from: diff.from, to: diff.to };
    if diff.target.is_given() {
        let files = [diff.baseline.as_slice(), &diff.files].concat();
        if files.is_empty() {
            bail!("name a file to compare the process with");
        }
        if now.from.or(now.to).is_some() {
            bail!("--from and --to select moments of recordings, not of a process");
        }
        return process(diff, &files, then);
    }
    let (before, after) = match (diff.baseline.as_slice(), diff.files.as_slice()) {
        ([], [before, now]) => (slice::from_ref(before), slice::from_ref(now)),
        ([], files) => bail!(
            "expected two files, or --baseline with those to compare with, found {}",
            files.len()
        ),
        sides => sides,
    };
    let (baseline, new) = match (before, after) {
        ([before], [after]) => {
            let (old, new) = sides((before, then), (after, now))?;
            (Baseline::of_file(before, old), new)
        }
        _ => {
            let (baseline, new) = sums((before, then), (after, now))?;
            (baseline, vec![new])
        }
    };
    diff.print(&baseline, &new, (&shown(before), &shown(after)))
}

/// Compares a process with files.
fn process(diff: &DiffArgs, files: &[PathBuf], span: Span) -> Result<u8> {
    let old = match files {
        [file] => span::read(file, &span, false)?,
        files => remote::read_sum(files, &span)?,
    };
    let baseline = baseline(files, old);
    let mut source = diff.target.resolve()?;
    let new = source.poll()?;
    let status = missing(source.as_ref());
    let (olds, news) = (ids(baseline.until()), ids(&new));
    let is_one = olds.len() == 1 && olds == news;
    if !is_one && news.iter().any(|id| olds.contains(id)) {
        bail!(
            "expected other processes than in {}, found one of them, whose measurements would be \
             on both sides",
            shown(files)
        );
    }
    Ok(diff.print(&baseline, &[new], (&shown(files), "the process"))?.max(status))
}

/// The files of one side, for a message.
fn shown(files: &[PathBuf]) -> String {
    files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// The ids of a snapshot's segments.
fn ids(snapshot: &Snapshot) -> Vec<String> {
    let process = &snapshot.process;
    match process.members.as_slice() {
        [] => vec![process.segment_id.clone()],
        members => members.iter().map(|member| member.segment_id.clone()).collect(),
    }
}

/// Sums the files of each side.
fn sums(before: (&[PathBuf], Span), now: (&[PathBuf], Span)) -> Result<(Baseline, Snapshot)> {
    let old = remote::read_sum(before.0, &before.1)?;
    let new = remote::read_sum(now.0, &now.1)?;
    let olds = ids(&old);
    if ids(&new).iter().any(|id| olds.contains(id)) {
        bail!(
            "expected other processes in {} than in {}, found one in both, whose measurements \
             would be on both sides",
            shown(now.0),
            shown(before.0)
        );
    }
    Ok((baseline(before.0, old), new))
}

/// A baseline with the name of its file, or the number of its files.
fn baseline(files: &[PathBuf], old: Snapshot) -> Baseline {
    match files {
        [file] => Baseline::of_file(file, old),
        files => Baseline::of(old, Some(format!("{} files", files.len()))),
    }
}

/// Reads the two sides of the comparison. The second side is a list of snapshots, which ends with
/// the one to compare.
///
/// Files of two processes are read independently, each over its span. If both files are of the same
/// process, the second side contains the baseline, and the comparison is of the growth since the
/// baseline. But if the baseline has a start, or the second side does not start where the baseline
/// ends, both sides are windows, which must not overlap.
fn sides(before: (&Path, Span), now: (&Path, Span)) -> Result<(Snapshot, Vec<Snapshot>)> {
    let (mut first, mut last) = (before.1, now.1);
    let steps = |file: &Path, span: &Span| span::read_steps(file, span, MOMENTS, |window| window);
    let id = |file| Ok::<_, anyhow::Error>(source::open(file)?.poll()?.process.segment_id);
    if first.from.or(first.to).or(last.from).is_none() || id(before.0)? != id(now.0)? {
        return Ok((span::read(before.0, &first, false)?, steps(now.0, &last)?));
    }
    first.to = first.to.or(last.from);
    let until = span::read(before.0, &Span { from: None, to: first.to }, false)?;
    if first.from.is_none() && (last.from.is_none() || last.from == first.to) {
        return Ok((until, steps(now.0, &Span { from: None, to: last.to })?));
    }
    last.from = last.from.or(first.to);
    let since = match &last.from {
        Some(from) => source::open_at(now.0, Some(from))?.poll()?.elapsed_ticks,
        None => 0,
    };
    if since < until.elapsed_ticks {
        bail!(
            "expected a window that begins after the baseline has ended, found that they overlap"
        );
    }
    let mut old = span::read(before.0, &first, false)?;
    let new = steps(now.0, &last)?;
    // Clear the id: two windows compare like two runs, in which neither contains the other.
    old.process.segment_id.clear();
    Ok((old, new))
}
