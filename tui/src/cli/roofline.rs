//! `pfp-top roofline`: measures the machine's limits, and how close the points of a program come to
//! them.

use std::io::Write;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;

use super::missing::missing;
use super::output::{Progress, check_new, print, print_json, write_file};
use super::target::{LIVE, TargetArgs};
use pfp_export::{ExportedPoint, Subject, svg_roofline};
use pfp_model::Model;
use pfp_model::filter::Filter;
use pfp_model::roofline::columns::{TABLE, dot};
use pfp_model::roofline::{self, Ceilings, Dot, Roof};
use pfp_read::source::{self, Source};
use pfp_read::text::warn;
use pfp_read::units;

/// Maximum length of a name; longer ones are cut.
const NAME_MAX: usize = 48;

/// How to measure the ceilings, whose points to compare with them, and where to write the result.
#[derive(Args, Clone, Debug)]
pub struct RooflineArgs {
    /// Snapshot file of a program that ran on this machine; its points are compared with the
    /// ceilings. -p selects a process instead; without either, only the ceilings are shown.
    #[arg(conflicts_with_all = LIVE)]
    file: Option<PathBuf>,
    #[command(flatten)]
    target: TargetArgs,
    /// Only the points that pass this filter, as `/` on the screen.
    #[arg(long, value_name = "FILTER", default_value = "", value_parser = Filter::new, hide_default_value = true)]
    filter: Filter,
    /// Use the ceilings that this command or the screen measured last, instead of measuring.
    #[arg(long, conflicts_with = "threads")]
    kept: bool,
    /// Number of threads that measure at once; the default is one per CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Draw the roofline into this SVG file, completely or not at all.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(asked: &RooflineArgs) -> Result<u8> {
    if let Some(path) = &asked.output {
        check_new(path, asked.force)?;
    }
    // Poll the program first, since the measurement disturbs it.
    let points = asked.points()?;
    let ceilings = if asked.kept { kept()? } else { asked.measure() };
    let dots = points.as_ref().map_or(&[][..], |points| &points.dots);
    match asked.json {
        true => print_json(&as_json(&ceilings, dots))?,
        false => print(&(table(&ceilings) + &points_table(&ceilings.alone, points.as_ref())))?,
    };
    if let Some(path) = &asked.output {
        let whose = points.as_ref().map(|points| points.whose.as_str());
        let draw = |out: &mut dyn Write| svg_roofline::write(&ceilings, dots, whose, out);
        write_file(path, asked.force, draw)?;
    }
    Ok(0)
}

/// The points to show below the roof.
struct RooflinePoints {
    /// The name of their program.
    whose: String,
    dots: Vec<Dot>,
}

impl RooflineArgs {
    /// The points of the requested program, if any.
    fn points(&self) -> Result<Option<RooflinePoints>> {
        let mut source: Box<dyn Source> = match &self.file {
            Some(file) => source::open(file)?,
            None if self.target.names_any() => self.target.resolve()?,
            None => return Ok(None),
        };
        let model = Model::of(source.poll()?);
        let _ = missing(source.as_ref());
        let subject = Subject::new(&model, |figures| self.filter.admits(figures), false)
            .context("the process has no figures")?;
        let labelled = |shown: &ExportedPoint<'_>| {
            let dot = dot(shown.figures, subject.ticks_per_second())?;
            Some(Dot { label: shown.label.clone(), ..dot })
        };
        let mut dots: Vec<Dot> = subject.points().iter().filter_map(labelled).collect();
        dots.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        Ok(Some(RooflinePoints { whose: subject.snapshot().process.to_string(), dots }))
    }

    /// Measures the ceilings, and saves them for the screen.
    fn measure(&self) -> Ceilings {
        let threads = match self.threads {
            Some(threads) => usize::from(threads),
            None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
        };
        let progress = Progress::on_terminal();
        let ceilings =
            roofline::measure(threads, |what| progress.show(&format!("measuring {what}")));
        progress.clear();
        if let Some(path) = Ceilings::usual_place()
            && let Err(error) = ceilings.save(&path)
        {
            let path = path.display();
            warn(&format!("{path} cannot be written, so the screen will measure again: {error}"));
        }
        ceilings
    }
}

/// The ceilings that were measured last.
fn kept() -> Result<Ceilings> {
    let path = Ceilings::usual_place().context("expected HOME or XDG_CACHE_HOME to be set")?;
    Ceilings::load(&path).with_context(|| {
        format!(
            "{} has no ceilings of this processor: leave out --kept, and they are measured",
            path.display()
        )
    })
}

fn as_json(ceilings: &Ceilings, dots: &[Dot]) -> serde_json::Value {
    let point = |dot: &Dot| {
        serde_json::json!({
            "name": dot.label,
            "flops_per_byte": dot.intensity,
            "flops_per_cpu_s": dot.flops_per_second,
            "bytes_per_cpu_s": dot.bytes_per_second(),
            "cpu_seconds": dot.seconds,
            "share_of_roof": dot.share_of(&ceilings.alone),
            "below": dot.limit(&ceilings.alone),
        })
    };
    let points: Vec<_> = dots.iter().map(point).collect();
    serde_json::json!({ "ceilings": ceilings, "points": points })
}

/// A table of the points, those that took the most time first.
fn points_table(roof: &Roof, points: Option<&RooflinePoints>) -> String {
    let Some(RooflinePoints { whose, dots }) = points else { return String::new() };
    if dots.is_empty() {
        return format!(
            "\n{whose}: no points that report bytes and flops: scope!(\"name\", bytes = .., flops = ..)\n"
        );
    }
    let rows: Vec<(u32, Dot)> = (0..).zip(dots.iter().cloned()).collect();
    let text = format!("\n{whose}\n") + &TABLE.text(&rows, &Some(roof.clone()), NAME_MAX);
    text + "\nRoof%: share of what memory allows; more than 100 comes from the caches.\n"
}

/// A table of the ceilings.
fn table(ceilings: &Ceilings) -> String {
    let Ceilings { alone, together, .. } = ceilings;
    let is_more = together.threads > 1;
    let heads = |roof: &Roof| match roof.threads {
        1 => "1 thread".to_owned(),
        n => format!("{n} threads"),
    };
    let mut text = format!("{}\n\n{:<14}{:>12}", ceilings.cpu, "ceiling", heads(alone));
    if is_more {
        text += &format!("{:>14}", heads(together));
    }
    text.push('\n');
    let mut line = |name: &str, unit: &str, alone: f64, together: f64| {
        text += &format!("{name:<14}{:>12}", units::si(alone) + unit);
        if is_more {
            text += &format!("{:>14}", units::si(together) + unit);
        }
        text.push('\n');
    };
    for (alone, together) in alone.bandwidths.iter().zip(&together.bandwidths) {
        line(&alone.level, "B/s", alone.bytes_per_second, together.bytes_per_second);
    }
    for (alone, together) in alone.flops.iter().zip(&together.flops) {
        line(&alone.kind, "FLOP/s", alone.per_second, together.per_second);
    }
    text += &format!(
        "\nAbove {:.1} operations a byte, memory no longer holds one thread back.\n",
        alone.ridge()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_stand_in_columns() {
        let mut ceilings = pfp_model::roofline::made_up_ceilings();
        let expected = "a processor\n\
            \n\
            ceiling           1 thread     4 threads\n\
            L1                 200GB/s       800GB/s\n\
            memory            20.0GB/s      40.0GB/s\n\
            scalar         5.00GFLOP/s   20.0GFLOP/s\n\
            AVX2 FMA       50.0GFLOP/s    200GFLOP/s\n\
            \n\
            Above 2.5 operations a byte, memory no longer holds one thread back.\n";
        assert_eq!(table(&ceilings), expected);
        ceilings.together = ceilings.alone.clone();
        assert!(table(&ceilings).contains("\nL1                 200GB/s\n"));
    }
}
