//! The command line: what can be asked for, and with which words.

mod commands;
mod config;
mod control;
mod demo;
mod diff;
mod doctor;
mod export;
mod gate;
mod headless;
mod kept;
mod manual;
mod missing;
mod output;
#[cfg(feature = "otlp")]
mod push;
mod record;
mod roofline;
mod run;
mod serve;
mod show;
mod target;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, Resettable};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

pub use commands::{exit_status, run};
pub use control::{PointCommand, Points};
pub use diff::Diff;
pub use export::Export;
pub use gate::Gate;
#[cfg(feature = "otlp")]
pub use push::Push;
pub use record::Record;
pub use roofline::Roofline;
pub use run::Run;
pub use serve::Serve;
pub use target::{Target, Via};

use crate::columns::Column;
use crate::columns::sorting::Sorting;
use crate::common::Options;
use crate::compare::Baseline;
use crate::files::input;
use crate::filter::Filter;
use crate::source::{self, Moment, Wanted, Which};
use crate::styles::{Styles, Terminal, Theme, ThemeName};
use crate::text::clean_lines;
use crate::units::{self, Unit};
use crate::variables;

use config::{Chosen, Config};
use headless::Form;
use kept::Kept;

/// Reads the command line, with the user's settings as its defaults. Does not
/// return where it only asks for help, or is wrong.
pub fn parse() -> Cli {
    // A viewer without its settings is better than none.
    let config = Config::load().unwrap_or_else(|error| {
        output::warn(&format!("{error:#}; going on without these settings"));
        Config::default()
    });
    parse_from(config, std::env::args_os()).unwrap_or_else(|error| leave(&error))
}

fn parse_from<T: Into<std::ffi::OsString> + Clone>(
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
fn with_pid<T: Into<std::ffi::OsString>>(
    arguments: impl IntoIterator<Item = T>,
) -> Vec<std::ffi::OsString> {
    let mut arguments: Vec<_> = arguments.into_iter().map(Into::into).collect();
    let is_process = |first: &std::ffi::OsString| {
        first.to_str().is_some_and(|first| first.parse::<Which>().is_ok())
    };
    if arguments.get(1).is_some_and(is_process) {
        arguments.insert(1, "--pid".into());
    }
    arguments
}

/// Says what is wrong with the command line, or what was asked for, and ends the process.
fn leave(error: &clap::Error) -> ! {
    let variables = std::env::vars_os().filter(|(name, _)| {
        name.to_str().is_some_and(|name| name.starts_with(variables::OF_THE_VIEWER))
    });
    let mut given = std::env::args_os().chain(variables.map(|(_, value)| value));
    let is_fit = |text: std::ffi::OsString| text.to_str().is_some_and(|it| clean_lines(it) == it);
    if given.all(is_fit) {
        error.exit();
    }
    // The words quote what was given: without colours, to tell theirs from clap's own.
    let words = clean_lines(&error.render().to_string());
    // Who could read it may have gone; the status stays.
    let _ = match error.use_stderr() {
        true => std::io::stderr().write_all(words.as_bytes()),
        false => std::io::stdout().write_all(words.as_bytes()),
    };
    std::process::exit(error.exit_code())
}

/// A variable that is set to nothing says nothing, as NO_COLOR and XDG have it.
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
/// Without a command it attaches to the one instrumented process of this user,
/// offers a choice where there are several, and waits where there is none.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, after_help = after_help())]
pub struct Cli {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    show: Show,
    /// What to do instead of watching.
    #[command(subcommand)]
    pub command: Option<Command>,
}

fn after_help() -> String {
    let [text, copy] = [input::MAX_BYTES, pfp_shm_layout::copy::MAX_BYTES as u64].map(|n| n >> 20);
    format!(
        "{EXIT_CODES}\n\nFiles that are read are regular ones; - is standard input. A snapshot may \
         have {text} MiB, as text or compressed, a copy of a segment {copy} MiB that are no \
         zeros.\n\n{}",
        variables::help()
    )
}

const EXIT_CODES: &str = "Settings: $XDG_CONFIG_HOME/pfp-top/config.toml, or the file that PFP_TOP_CONFIG names, has \
                          defaults: interval, tau, columns, sort, theme, unit, mouse, ascii, keep; and [keys] and [colors].\n\nExit status: 0 fine, 1 a gate failed, slower than --fail-over allows or `doctor` found a problem, 2 usage or trouble, 3 no process, point or file of that name, \
                          4 no permission, 5 a layout or format version that this pfp-top does not read; of `run` the program's own.";

/// What to save, and where.
#[derive(clap::Args, Debug)]
pub struct Saving {
    /// Which process.
    #[command(flatten)]
    target: Target,
    /// The file to write; compressed if its name ends in .zst.
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
    /// Replace the file if it exists.
    #[arg(long)]
    force: bool,
}

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
    /// Show a snapshot file, a copy of a segment or a recording on the same screen.
    Open {
        /// The file, compressed or not; several are shown as one.
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Points of the same name in several files become one.
        #[arg(long)]
        sum: bool,
        /// The moment of a recording: 12:03:41, +34s behind its first snapshot, or #34.
        /// Without it, the screen shows the last one, as --once does; -n and -b begin at the
        /// first.
        #[arg(long, value_name = "MOMENT", value_parser = Moment::parse)]
        at: Option<Moment>,
        /// How to show it.
        #[command(flatten)]
        show: Show,
    },
    /// Write a snapshot of a process to a file.
    Snapshot(Saving),
    /// Copy the segment of a process itself to a file, also of one that has crashed.
    SaveRaw(Saving),
    /// Record a process: append a snapshot to a file again and again.
    Record(Record),
    /// Compare snapshot files: what became slower or faster, beyond chance.
    ///
    /// `diff BEFORE NOW` compares two; of one process, only what NOW adds. Several on a side, as
    /// `diff now-*.json --baseline before-*.json`, are summed: points of one name are one. `diff
    /// BEFORE -p PID` compares a process with a file, and all files are the baseline.
    Diff(Diff),
    /// Write the figures of a snapshot file or a process in a form that other
    /// programs read.
    Export(Export),
    /// Serve the figures of local processes over HTTP, as OpenMetrics, for Prometheus.
    Serve(Serve),
    /// Push the figures of local processes to an OpenTelemetry collector.
    #[cfg(feature = "otlp")]
    Push(Push),
    /// Exit with 1 if runs of a program became worse than a limit allows, beyond
    /// chance.
    ///
    /// Runs of one program differ from each other: give several on each side, taken
    /// in turn on the same machine. A change of up to half the limit passes; one of the full limit
    /// fails as soon as there are enough runs to be sure of it.
    Gate(Gate),
    /// Switch points on.
    Enable(Points),
    /// Switch points off.
    Disable(Points),
    /// Start the figures of points afresh.
    Reset(Points),
    /// Set the weight of a new value in the exponential average of points.
    Alpha {
        /// The weight: above 0 and up to 1, a period over a time constant as
        /// 100ms/500ms, or off.
        #[arg(value_parser = control::alpha)]
        weight: PointCommand,
        /// Of which points.
        #[command(flatten)]
        points: Points,
    },
    /// List the processes that can be watched.
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// Where they run.
        #[command(flatten)]
        via: Via,
    },
    /// Remove what processes that have ended left behind.
    Gc,
    /// Tell what is found here, what is not and why, and what to do.
    Doctor {
        /// What to look at alone, and more closely: clocks, or the process with this id.
        #[arg(value_name = "clocks|PID")]
        part: Option<doctor::Part>,
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Measure the most bytes and operations per second that this machine can do, and tell how near
    /// the points of a program come to it.
    Roofline(Roofline),
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
    /// Show the processes of this place to the viewer that started this, by --via, over
    /// standard input and output.
    #[command(hide = true)]
    Agent {
        /// As the user of this process, in its container.
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

/// How to show it.
#[derive(Args, Clone, Debug)]
pub struct Show {
    /// Print the table once and leave; the default where standard output is no terminal.
    #[arg(long)]
    once: bool,
    /// Print the table again and again instead of showing a screen: as often as -n
    /// says, else until the process ends.
    #[arg(short, long, conflicts_with = "once")]
    batch: bool,
    /// Print a line of JSON for each table.
    #[arg(long, group = "form")]
    json: bool,
    /// Print a line of CSV for each point.
    #[arg(long, group = "form")]
    csv: bool,
    /// Print a table, as without a terminal.
    #[arg(long, group = "form")]
    table: bool,
    /// Only the points that pass this filter, as `/` on the screen.
    #[arg(long, value_name = "FILTER", value_parser = Filter::new, default_value = "")]
    filter: Filter,
    /// Time between two polls: 1s, 250ms.
    #[arg(short, long, env = "PFP_TOP_INTERVAL", value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,
    /// Time constant of the smoothed load.
    #[arg(long, env = "PFP_TOP_TAU", value_name = "TIME", default_value = "5s", value_parser = interval)]
    tau: Duration,
    /// Leave after this many updates, or tables where there is no screen; the program
    /// of `run` ends with that.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    updates: Option<u64>,
    /// Leave toggled points as they are instead of putting them back.
    #[arg(long, env = "PFP_TOP_KEEP", value_parser = BoolishValueParser::new())]
    keep: bool,
    /// Sort by this column first; the load, unless another one was chosen on the screen.
    #[arg(long, env = "PFP_TOP_SORT", value_name = "COLUMN", value_enum)]
    sort: Option<Column>,
    /// Leave the mouse to the terminal.
    #[arg(long, env = "PFP_TOP_NO_MOUSE", value_parser = BoolishValueParser::new())]
    no_mouse: bool,
    /// The columns of the table, from left to right, with commas between them.
    #[arg(
        long,
        env = "PFP_TOP_COLUMNS",
        value_name = "COLUMNS",
        value_delimiter = ',',
        value_parser = Column::of_word
    )]
    columns: Vec<Column>,
    /// Show time or cycles first.
    #[arg(long, env = "PFP_TOP_UNIT", value_name = "UNIT", value_enum, default_value = "time")]
    unit: Unit,
    /// Which colours; auto is what COLORTERM, TERM and COLORFGBG tell.
    #[arg(long, env = "PFP_TOP_THEME", value_name = "THEME", value_enum, default_value = "auto")]
    theme: ThemeName,
    /// Use colours; auto minds NO_COLOR.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    color: When,
    /// The same as --color never.
    #[arg(long, conflicts_with = "color")]
    no_color: bool,
    /// Compare with this snapshot file (key 5).
    #[arg(long, value_name = "FILE")]
    baseline: Option<PathBuf>,
    /// Draw with ASCII characters only.
    #[arg(long, env = "PFP_TOP_ASCII", value_parser = BoolishValueParser::new())]
    ascii: bool,
    /// What only the settings file says.
    #[arg(skip)]
    chosen: Chosen,
}

/// Where programs keep what is neither settings nor cache.
fn state_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state"))).map_or_else(
        // SAFETY: geteuid has no preconditions and cannot fail.
        || std::env::temp_dir().join(format!("pfp-run-{}", unsafe { libc::geteuid() })),
        |folder| folder.join("pfp"),
    )
}

impl Cli {
    /// What the screen is to be like, whichever command shows it.
    fn show_mut(&mut self) -> &mut Show {
        match &mut self.command {
            Some(Command::Demo { show } | Command::Open { show, .. }) => show,
            Some(Command::Run(run)) => &mut run.show,
            _ => &mut self.show,
        }
    }
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
    /// Whether it is printed and not shown on a screen.
    fn is_headless(&self) -> bool {
        let is_asked = self.once || self.batch || self.json || self.csv || self.table;
        is_asked || !std::io::stdout().is_terminal()
    }

    /// The baseline, if there is one.
    fn baseline(&self) -> anyhow::Result<Option<Baseline>> {
        let Some(file) = &self.baseline else { return Ok(None) };
        Ok(Some(Baseline::of_file(file, source::open(file)?.poll()?)))
    }

    /// How many tables are printed; none where it is the last one, or just one.
    fn tables(&self) -> Option<u64> {
        self.updates.or(self.batch.then_some(u64::MAX))
    }

    fn form(&self) -> Form {
        match (self.json, self.csv) {
            (true, _) => Form::Json,
            (_, true) => Form::Csv,
            _ => Form::Table,
        }
    }

    /// The order of printed tables.
    fn sorting(&self) -> Sorting {
        Sorting::by(self.sort.unwrap_or(Column::Load))
    }

    /// For the screen, which begins as it was left.
    fn options(&self, wanted: Wanted) -> Options {
        let kept = Kept::load();
        let columns = Some(self.columns.clone()).filter(|columns| !columns.is_empty());
        let columns = columns.or_else(|| kept.columns());
        let sorting = self.sort.map(Sorting::by).or_else(|| kept.sorting());
        Options {
            wanted,
            interval: self.interval,
            tau: self.tau,
            columns: columns.map_or(Column::DEFAULT.to_vec(), |all| Column::table_of(&all)),
            unit: self.unit,
            sorting: sorting.unwrap_or(Sorting::by(Column::Load)),
            filter: self.filter.clone(),
            keep: self.keep,
            mouse: !self.no_mouse,
            updates: self.updates,
            look_every: None,
            group: None,
            ceilings: crate::roofline::Ceilings::usual_place(),
            keys: self.chosen.keys.clone(),
        }
    }

    fn look(&self) -> Styles {
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
        let theme = match color {
            true => self.chosen.colors.over(self.theme.theme(Terminal::from_env())),
            false => Theme::monochrome(),
        };
        Styles::with(theme, self.ascii || !locale_has_unicode())
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

/// Reads a time between two looks at a process.
fn interval(text: &str) -> Result<Duration, String> {
    interval_from(Duration::from_millis(50), text)
}

/// Reads an interval that is not shorter than `least`, nor longer than a day.
fn interval_from(least: Duration, text: &str) -> Result<Duration, String> {
    const MAX: Duration = Duration::from_secs(86_400);
    match units::parse_duration(text)? {
        time if (least..=MAX).contains(&time) => Ok(time),
        _ => Err(format!("expected a time from {}ms to 1d", least.as_millis())),
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=1e6).contains(&percent) => Ok(percent),
        _ => Err("expected per cent, such as 10".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn intervals_are_checked() {
        for half in ["0.5", "500ms"] {
            assert_eq!(interval(half), Ok(Duration::from_millis(500)), "{half}");
        }
        for wrong in ["0", "-1", "nan", "x", "1e9", "49ms", "25h"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_and_commands_are_understood() {
        let cli = Cli::try_parse_from(["pfp-top", "-p", "7", "--once", "--sort", "p99"]).unwrap();
        assert_eq!(
            (cli.target.pid, cli.show.once, cli.show.sort),
            (vec![Which::Pid(7)], true, Some(Column::P99))
        );
        assert!(Cli::try_parse_from(["pfp-top", "snapshot", "-p", "7"]).is_err());
        assert!(Cli::try_parse_from(["pfp-top", "open", "a.json", "--once"]).is_ok());
    }
}
