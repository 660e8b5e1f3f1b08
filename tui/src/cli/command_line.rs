//! The commands and how they are parsed.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use clap::builder::Resettable;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::config::Config;
use super::control::{self, PointCommand, PointsArgs, SwitchArgs, WatchArgs};
use super::diff::DiffArgs;
use super::doctor;
use super::export::ExportArgs;
use super::gate::GateArgs;
use super::options::ShowArgs;
#[cfg(feature = "otlp")]
use super::push::PushArgs;
use super::record::RecordArgs;
use super::roofline::RooflineArgs;
use super::run::RunArgs;
use super::serve::ServeArgs;
use super::slow::SlowArgs;
use super::target::{TargetArgs, ViaArgs};
use super::waits::WaitsArgs;
use crate::variables;
use pfp_read::files::input;
use pfp_read::source::{Moment, Which};
use pfp_read::text::{clean_lines, warn};

/// Parses the command line, with the user's settings as defaults. If the command line asks for help
/// or has an error, ends the process.
pub fn parse() -> Cli {
    // The viewer starts even if some of its settings are wrong.
    let config = match Config::load() {
        Ok((config, wrong)) => {
            wrong.iter().for_each(|why| warn(&format!("{why}; ignoring this setting")));
            config
        }
        Err(error) => {
            warn(&format!("{error:#}; ignoring this file"));
            Config::default()
        }
    };
    parse_from(config, std::env::args_os()).unwrap_or_else(|error| leave(&error))
}

pub(super) fn parse_from<T: Into<OsString> + Clone>(
    config: Config,
    arguments: impl IntoIterator<Item = T>,
) -> Result<Cli, clap::Error> {
    let chosen = config.chosen();
    let command = without_empty_variables(config.into_defaults_of(Cli::command()));
    let matches = command.try_get_matches_from(with_pid(arguments))?;
    let mut cli = Cli::from_arg_matches(&matches)?;
    cli.show_mut().chosen = chosen;
    Ok(cli)
}

/// `pfp-top 4711` is `pfp-top -p 4711`.
fn with_pid<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> Vec<OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().map(Into::into).collect();
    let is_process =
        |first: &OsString| first.to_str().is_some_and(|first| first.parse::<Which>().is_ok());
    if arguments.get(1).is_some_and(is_process) {
        arguments.insert(1, "--pid".into());
    }
    arguments
}

/// Prints an error of the command line, or the help or version, and ends the process.
fn leave(error: &clap::Error) -> ! {
    let variables = std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| name.starts_with(variables::OF_THE_VIEWER))
    });
    let mut given = std::env::args_os().chain(variables.map(|(_, value)| value));
    let is_fit = |text: OsString| text.to_str().is_some_and(|it| clean_lines(it) == it);
    if given.all(is_fit) {
        error.exit();
    }
    // The text quotes arguments that may contain escape sequences. Rendered without colours, all
    // escapes are from arguments and can be removed.
    let words = clean_lines(&error.render().to_string());
    // Ignore an error: the reader may have closed the output, and the exit status stays the same.
    let _ = match error.use_stderr() {
        true => std::io::stderr().write_all(words.as_bytes()),
        false => std::io::stdout().write_all(words.as_bytes()),
    };
    std::process::exit(error.exit_code())
}

/// Ignores variables that are set to an empty text, as NO_COLOR and XDG specify.
fn without_empty_variables(command: clap::Command) -> clap::Command {
    fn without(command: clap::Command) -> clap::Command {
        command.mut_args(|arg| {
            let value = arg.get_env().and_then(std::env::var_os);
            match value.is_some_and(|value| value.is_empty()) {
                true => arg.env(Resettable::Reset),
                false => arg,
            }
        })
    }
    without(command).mut_subcommands(without)
}

/// Shows the profile points of a running program, live.
///
/// Without a command, it attaches to the instrumented process of this user; if there are several,
/// it offers a choice, and if there is none, it waits for one.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = after_help())]
pub struct Cli {
    #[command(flatten)]
    pub(super) target: TargetArgs,
    #[command(flatten)]
    pub(super) show: ShowArgs,
    /// What to do instead of watching.
    #[command(subcommand)]
    pub command: Option<Command>,
}

fn after_help() -> String {
    let [text, copy] = [input::MAX_BYTES, pfp_shm_layout::copy::MAX_BYTES as u64].map(|n| n >> 20);
    format!(
        "{EXIT_CODES}\n\nInput files must be regular files, or - for standard input. Limits: \
         {text} MiB for a snapshot, also when unpacked; {copy} MiB for a copy of a segment, not \
         counting zeros.\n\n{}",
        variables::help()
    )
}

const EXIT_CODES: &str = "Settings: $XDG_CONFIG_HOME/pfp-top/config.toml, or the file in \
                          PFP_TOP_CONFIG, sets defaults (interval, tau, columns, sort, theme, \
                          unit, mouse, ascii, keep), [keys] and [colors].\n\nExit status: 0 \
                          success; 1 a gate failed, a point is slower than --fail-over allows, or \
                          `doctor` found a problem; 2 wrong usage or another error; 3 no such \
                          process, point, place or file; 4 no permission; 5 a layout or format \
                          version that this pfp-top cannot read; 6 `waits` found a \
                          deadlock. `run` exits with the status of \
                          the program.";

/// What to save, and where.
#[derive(clap::Args, Debug)]
pub struct Saving {
    /// Which process.
    #[command(flatten)]
    pub(super) target: TargetArgs,
    /// The file to write; compressed if its name ends in .zst.
    #[arg(short, long, value_name = "FILE")]
    pub(super) output: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    pub(super) force: bool,
}

/// What to do instead of watching.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run and watch a built-in demo program.
    Demo {
        /// How to show it.
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Start a program and watch it; it may outlive the viewer.
    Run(RunArgs),
    /// Show a snapshot file, a copy of a segment or a recording on the same screens.
    Open {
        /// The file, compressed or not; several are shown as one.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Sum points of the same name in several files.
        #[arg(long)]
        sum: bool,
        /// The moment of a recording to show: 12:03:41, +34s after its first snapshot, or #34, its
        /// 34th snapshot. The default is the last snapshot, or the first with -n or -b.
        #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
        at: Option<Moment>,
        /// How to show it.
        #[command(flatten)]
        show: ShowArgs,
    },
    /// Write a snapshot of a process to a file.
    Snapshot(Saving),
    /// Copy the raw segment of a process to a file, even after a crash.
    SaveRaw(Saving),
    /// Record a process: append a snapshot to a file at every interval.
    Record(RecordArgs),
    /// Compare snapshots: what became significantly slower or faster.
    ///
    /// `diff BEFORE NOW` compares two files; if both are of the same process, NOW counts only from
    /// BEFORE on. Several files on a side, as in `diff now-*.json --baseline before-*.json`, are
    /// summed by the names of points. `diff BEFORE -p PID` compares a process with files, which are
    /// all the baseline.
    Diff(DiffArgs),
    /// Export the figures of a snapshot file or a process in a format that other programs read.
    Export(ExportArgs),
    /// Serve the figures of local processes over HTTP, as OpenMetrics, for Prometheus.
    Serve(ServeArgs),
    /// Push the figures of local processes to an OpenTelemetry collector.
    #[cfg(feature = "otlp")]
    Push(PushArgs),
    /// Fail (exit status 1) if a program significantly regressed beyond a limit; for CI.
    ///
    /// Runs of the same program vary: give several on each side, made in turn (old, new, old, new)
    /// on the same machine. A change of up to half the limit passes; one of the full limit fails as
    /// soon as there are enough runs to be sure of it.
    Gate(GateArgs),
    /// Switch points on.
    Enable(SwitchArgs),
    /// Switch points off.
    Disable(SwitchArgs),
    /// Reset the figures of points.
    Reset(PointsArgs),
    /// Set alpha, the smoothing factor of the exponential average of points (EWMA).
    Alpha {
        /// Alpha: a number above 0 and up to 1, a period over a time constant such as 100ms/500ms,
        /// or off.
        #[arg(value_parser = control::alpha)]
        weight: PointCommand,
        /// Of which points.
        #[command(flatten)]
        points: PointsArgs,
    },
    /// List the processes that can be watched.
    List {
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
        /// Where they run.
        #[command(flatten)]
        via: ViaArgs,
    },
    /// Remove leftovers of processes that have ended.
    Gc,
    /// Diagnose the setup and suggest fixes.
    Doctor {
        /// Check only this, in more detail: clocks, or the process with this id.
        #[arg(value_name = "clocks|PID")]
        part: Option<doctor::DoctorTarget>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure this machine's ceilings (peak bandwidth and FLOP/s), and how close the points of a
    /// program come to them.
    Roofline(RooflineArgs),
    /// Show what the threads of a process wait for: locks and who holds them, files, peers, sleeps,
    /// the run queue. The process need not be instrumented.
    ///
    /// Samples the process from outside, without stopping it. The exit status is 6 if some of its
    /// threads are in a deadlock.
    Waits(WaitsArgs),
    /// Show the slow calls that a process has kept, and why they were slow. `watch` sets the
    /// limits; docs/slow.md says more.
    Slow(SlowArgs),
    /// Set a limit: calls of these points that take at least that long are kept for `slow`.
    Watch(WatchArgs),
    /// Print a completion script for a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, for `man -l -`; with a folder, write a page for each command into it.
    Man {
        /// The folder to write into.
        folder: Option<PathBuf>,
    },
    /// Serve the processes of this place to the viewer that started this command by --via, over
    /// standard input and output.
    #[command(hide = true)]
    Agent {
        /// Serve as the user of the process with this id, in its container.
        #[arg(long, value_name = "PID")]
        enter: Option<u32>,
    },
    /// The program that `demo` watches.
    #[command(hide = true)]
    DemoWorkload {
        /// Measure once and wait, to try out whether programs can be watched.
        #[arg(long)]
        trial: bool,
    },
}

impl Cli {
    /// The screen options, for every command that shows a screen.
    fn show_mut(&mut self) -> &mut ShowArgs {
        match &mut self.command {
            Some(Command::Demo { show } | Command::Open { show, .. }) => show,
            Some(Command::Run(run)) => &mut run.show,
            _ => &mut self.show,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::words::SortColumn;
    use pfp_model::columns::Column;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// The help of every command, as at the width of a wide terminal.
    #[test]
    #[cfg(feature = "otlp")]
    fn the_help_of_each_command() {
        fn add(command: &mut clap::Command, name: &str, all: &mut String) {
            *all += &format!("$ {name} --help\n{}\n", command.render_long_help());
            let shown = command.get_subcommands_mut().filter(|command| !command.is_hide_set());
            shown.for_each(|command| add(command, &format!("{name} {}", command.get_name()), all));
        }
        // A value in the environment would be part of the help.
        let plain = |command: clap::Command| command.mut_args(|arg| arg.hide_env_values(true));
        let mut command = plain(Cli::command()).mut_subcommands(plain).term_width(100);
        command.build();
        let mut all = String::new();
        add(&mut command, "pfp-top", &mut all);
        insta::assert_snapshot!("help", all);
    }

    #[test]
    fn options_and_commands_are_understood() {
        let cli = Cli::try_parse_from(["pfp-top", "-p", "7", "--once", "--sort", "p99"]).unwrap();
        assert_eq!(
            (cli.target.pid, cli.show.once, cli.show.sort),
            (vec![Which::Pid(7)], true, Some(SortColumn(Column::P99)))
        );
        assert!(Cli::try_parse_from(["pfp-top", "snapshot", "-p", "7"]).is_err());
        assert!(Cli::try_parse_from(["pfp-top", "open", "a.json", "--once"]).is_ok());
    }
}
