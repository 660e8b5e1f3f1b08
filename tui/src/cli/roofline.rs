//! `pfp-top roofline`: what this machine can do at most, measured.

use std::io::{IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use super::commands::say;
use crate::export::svg_roofline;
use crate::export::whole::{self, Overwrite, WriteError};
use crate::roofline::{self, Ceilings, Roof};
use crate::units;

/// What to measure, and where to write it.
#[derive(Args, Clone, Debug)]
pub struct Roofline {
    /// Threads that work at once; without it, one for each processor.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Draw the picture into this SVG file, whole or not at all.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
    /// Print JSON instead of a table.
    #[arg(long)]
    json: bool,
}

pub(super) fn run(asked: &Roofline) -> Result<u8> {
    if let Some(path) = &asked.output
        && !asked.force
        && path.symlink_metadata().is_ok()
    {
        bail!("{} exists already: give another name, or --force", path.display());
    }
    let threads = match asked.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
    };
    let shows_progress = std::io::stderr().is_terminal();
    let ceilings = roofline::measure(threads, |what| {
        if shows_progress {
            let _ = write!(std::io::stderr(), "\r\x1b[Kmeasuring {what}");
        }
    });
    if shows_progress {
        let _ = write!(std::io::stderr(), "\r\x1b[K");
    }
    if let Some(path) = Ceilings::usual_place()
        && let Err(error) = ceilings.save(&path)
    {
        let path = path.display();
        let _ = writeln!(
            std::io::stderr(),
            "pfp-top: {path} cannot be written, so the screen will measure again: {error}"
        );
    }
    match asked.json {
        true => say(&(serde_json::to_string_pretty(&ceilings)? + "\n"))?,
        false => say(&table(&ceilings))?,
    }
    if let Some(path) = &asked.output {
        let overwrite = if asked.force { Overwrite::Yes } else { Overwrite::No };
        let drawn =
            whole::write(path, overwrite, |out| svg_roofline::write(&ceilings, &[], None, out));
        match drawn {
            Ok(()) => {}
            Err(WriteError::Exists) => {
                bail!("{} exists already: give another name, or --force", path.display())
            }
            Err(WriteError::Io(error)) => bail!("{} was not written: {error}", path.display()),
        }
    }
    Ok(0)
}

/// The ceilings, a line each.
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
        line(&alone.kind, "flop/s", alone.per_second, together.per_second);
    }
    text += &format!(
        "\nFrom {:.1} operations a byte on memory holds one thread back no more.\n",
        alone.ridge()
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ceilings_stand_in_columns() {
        let mut ceilings = crate::roofline::tests::ceilings();
        let expected = "a processor\n\
            \n\
            ceiling           1 thread     4 threads\n\
            L1                 200GB/s       800GB/s\n\
            memory            20.0GB/s      40.0GB/s\n\
            scalar         5.00Gflop/s   20.0Gflop/s\n\
            AVX2 FMA       50.0Gflop/s    200Gflop/s\n\
            \n\
            From 2.5 operations a byte on memory holds one thread back no more.\n";
        assert_eq!(table(&ceilings), expected);
        ceilings.together = ceilings.alone.clone();
        assert!(table(&ceilings).contains("\nL1                 200GB/s\n"));
    }
}
