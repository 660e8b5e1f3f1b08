//! The command line: what can be asked for, and with which words.

mod commands;
mod demo;
mod doctor;
mod headless;
mod manual;
mod run;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use commands::{exit_status, run};
pub use run::Run;

use crate::app::Options;
use crate::columns::{Column, Sorting};
use crate::source::{Members, Together, Wanted};
use crate::view::Look;

/// Shows the profile points of a running program, live.
///
/// Without a command it attaches to the one instrumented process of this user,
/// offers a choice where there are several, and waits where there is none.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    show: Show,
    /// What to do instead of watching.
    #[command(subcommand)]
    pub command: Option<Command>,
}

const EXIT_CODES: &str = "Exit status: 0 fine, 1 `doctor` found a problem, 2 usage or trouble, 3 no process or file to show, \
                          4 no permission, 5 a layout or format version that this pfp-top does not read; \
                          of `run` the program's own.";

/// What to do instead of watching.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Watch a program made to be watched.
    Demo {
        /// How to show it.
        #[command(flatten)]
        show: Show,
    },
    /// Start a program and watch it; it ends with the viewer.
    Run(Run),
    /// Show a snapshot file on the same screen.
    Open {
        /// The file.
        file: PathBuf,
        /// How to show it.
        #[command(flatten)]
        show: Show,
    },
    /// Write a snapshot of a process to a file.
    Snapshot {
        /// Which process.
        #[command(flatten)]
        target: Target,
        /// The file to write.
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// Replace the file if it exists.
        #[arg(long)]
        force: bool,
    },
    /// List the processes that can be watched.
    List,
    /// Remove what processes that have ended left behind.
    Gc,
    /// Tell what is found here, why something is not, and what to do.
    Doctor {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a script that completes this command line in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for `man -l -`; with a folder, write one for each command.
    Man {
        /// The folder to write into.
        folder: Option<PathBuf>,
    },
    /// The program that `demo` watches.
    #[command(hide = true)]
    DemoWorkload,
}

/// Which process.
#[derive(Args, Clone, Debug)]
pub struct Target {
    /// Watch the process with this id; given several times, all of them as one.
    #[arg(short, long, value_name = "PID")]
    pid: Vec<u32>,
    /// Watch a process whose name contains this.
    #[arg(long, value_name = "NAME", conflicts_with = "pid")]
    name: Option<String>,
    /// Watch all processes as one, those to come as well; with --name, all whose
    /// name contains it.
    #[arg(long, conflicts_with = "pid")]
    all: bool,
    /// The same, with points of the same name summed, as for the ranks of a
    /// parallel job.
    #[arg(long)]
    sum: bool,
}

impl Target {
    fn wanted(&self) -> Wanted {
        Wanted { pid: self.pid.first().copied(), name: self.name.clone() }
    }

    /// The processes to watch as one; none where it is just one.
    fn together(&self) -> Option<Together> {
        let members = match self.pid.as_slice() {
            [] if self.all || self.sum => Members::All(self.name.clone().unwrap_or_default()),
            [] | [_] => return None,
            pids => Members::Pids(pids.to_vec()),
        };
        Some(Together { members, sum: self.sum })
    }
}

/// How to show it.
#[derive(Args, Clone, Debug)]
pub struct Show {
    /// Print the table once and leave. So it is when standard output is no
    /// terminal.
    #[arg(long)]
    once: bool,
    /// Seconds between two polls.
    #[arg(short = 'd', long, value_name = "SECS", default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Time constant of the smoothed load, seconds.
    #[arg(long, value_name = "SECS", default_value = "5", value_parser = seconds)]
    tau: Duration,
    /// Leave after this many updates.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    /// Leave toggled points as they are instead of putting them back.
    #[arg(long)]
    keep: bool,
    /// Sort by this column first.
    #[arg(long, value_name = "COLUMN", value_enum, default_value = "load")]
    sort: Column,
    /// Use colours; auto minds NO_COLOR.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    color: When,
    /// The same as --color never.
    #[arg(long, conflicts_with = "color")]
    no_color: bool,
    /// Draw with ASCII characters only.
    #[arg(long)]
    ascii: bool,
}

/// When to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Where it fits.
    Auto,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

impl Show {
    fn options(&self, wanted: Wanted) -> Options {
        Options {
            wanted,
            interval: self.interval,
            tau: self.tau,
            sorting: Sorting::by(self.sort),
            keep: self.keep,
            updates: self.updates,
            look_every: None,
            together: None,
        }
    }

    fn look(&self) -> Look {
        let color = match self.color {
            _ if self.no_color => false,
            When::Always => true,
            When::Never => false,
            When::Auto => std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        if color {
            // Asked for by name, colour wins over NO_COLOR.
            crossterm::style::force_color_output(true);
        }
        Look::new(color, self.ascii || !locale_has_unicode())
    }
}

/// Whether the locale, where one is set, is of the UTF-8 kind. Many
/// containers set none and show UTF-8 all the same.
fn locale_has_unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err("expected seconds between 0.05 and 3600, such as 0.5".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn intervals_are_checked() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "nan", "x", "1e9"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_and_commands_are_understood() {
        let cli = Cli::try_parse_from(["pfp-top", "-p", "7", "--once", "--sort", "p99"]).unwrap();
        assert_eq!((cli.target.pid, cli.show.once, cli.show.sort), (vec![7], true, Column::P99));
        assert!(Cli::try_parse_from(["pfp-top", "snapshot", "-p", "7"]).is_err());
        assert!(Cli::try_parse_from(["pfp-top", "open", "a.json", "--once"]).is_ok());
    }
}
