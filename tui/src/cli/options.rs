//! The options of the screen and of the printed table.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::builder::BoolishValueParser;
use clap::{Args, ValueEnum};

use super::arguments::interval;
use super::config::ScreenSettings;
use super::kept::Kept;
use super::words::{SortColumn, UnitName};
use crate::common::Options;
use crate::styles::{Styles, Terminal, Theme, ThemeName};
use pfp_model::columns::Column;
use pfp_model::columns::sorting::Sorting;
use pfp_model::compare::Baseline;
use pfp_model::filter::Filter;
use pfp_model::roofline::Ceilings;
use pfp_read::source::{self, Wanted};

/// The format of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UpdateFormat {
    /// A table as on the screen.
    Table,
    /// One line of JSON per update.
    Json,
    /// One line per point, and a line of headings.
    Csv,
}

/// The options of the screen and of printed tables.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// Print the table once and exit; the default if standard output is not a terminal.
    #[arg(long)]
    pub(super) once: bool,
    /// Print the table repeatedly instead of showing a screen: -n times, or until the process ends.
    #[arg(short, long, conflicts_with = "once")]
    pub(super) batch: bool,
    /// Print a line of JSON for each table.
    #[arg(long, group = "form")]
    pub(super) json: bool,
    /// Print a line of CSV for each point.
    #[arg(long, group = "form")]
    pub(super) csv: bool,
    /// Print a table; the default without a terminal.
    #[arg(long, group = "form")]
    pub(super) table: bool,
    /// Only the points that pass this filter, as `/` on the screen.
    #[arg(long, value_name = "FILTER", value_parser = Filter::new, default_value = "")]
    pub(super) filter: Filter,
    /// Time between two polls: 1s, 250ms.
    #[arg(short, long, env = "PFP_TOP_INTERVAL", value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(super) interval: Duration,
    /// Time constant of the smoothed load.
    #[arg(long, env = "PFP_TOP_TAU", value_name = "TIME", default_value = "5s", value_parser = interval)]
    pub(super) tau: Duration,
    /// Exit after N updates (or tables, without a screen); this also ends the program of `run`.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) updates: Option<u64>,
    /// On exit, leave points as you switched them, instead of switching them back.
    #[arg(long, env = "PFP_TOP_KEEP", value_parser = BoolishValueParser::new())]
    pub(super) keep: bool,
    /// Sort by this column at first; the default is the column last chosen on the screen, or the
    /// load.
    #[arg(long, env = "PFP_TOP_SORT", value_name = "COLUMN", value_enum)]
    pub(super) sort: Option<SortColumn>,
    /// Do not capture the mouse.
    #[arg(long, env = "PFP_TOP_NO_MOUSE", value_parser = BoolishValueParser::new())]
    pub(super) no_mouse: bool,
    /// The columns of the table, from left to right, separated by commas.
    #[arg(
        long,
        env = "PFP_TOP_COLUMNS",
        value_name = "COLUMNS",
        value_delimiter = ',',
        value_parser = Column::of_word
    )]
    pub(super) columns: Vec<Column>,
    /// Show time or cycles at first (key u).
    #[arg(long, env = "PFP_TOP_UNIT", value_name = "UNIT", value_enum, default_value = "time")]
    pub(super) unit: UnitName,
    /// Colour theme; auto follows COLORTERM, TERM and COLORFGBG.
    #[arg(long, env = "PFP_TOP_THEME", value_name = "THEME", value_enum, default_value = "auto")]
    pub(super) theme: ThemeName,
    /// Use colours; auto respects NO_COLOR.
    #[arg(long, value_name = "WHEN", value_enum, default_value = "auto")]
    pub(super) color: When,
    /// The same as --color never.
    #[arg(long, conflicts_with = "color")]
    pub(super) no_color: bool,
    /// Compare with this snapshot file (key 5).
    #[arg(long, value_name = "FILE")]
    pub(super) baseline: Option<PathBuf>,
    /// Draw with ASCII characters only.
    #[arg(long, env = "PFP_TOP_ASCII", value_parser = BoolishValueParser::new())]
    pub(super) ascii: bool,
    /// Settings that have no option on the command line.
    #[arg(skip)]
    pub(super) chosen: ScreenSettings,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// Use colours unless NO_COLOR is set.
    Auto,
    /// Always use colours.
    Always,
    /// Never use colours.
    Never,
}

impl ShowArgs {
    /// Whether the output is printed, not shown on a screen.
    pub(super) fn is_headless(&self) -> bool {
        let is_asked = self.once || self.batch || self.json || self.csv || self.table;
        is_asked || !io::stdout().is_terminal()
    }

    /// The baseline, if there is one.
    pub(super) fn baseline(&self) -> Result<Option<Baseline>> {
        let Some(file) = &self.baseline else { return Ok(None) };
        Ok(Some(Baseline::of_file(file, source::open(file)?.poll()?)))
    }

    /// The number of tables to print. `None` for a single one.
    pub(super) fn tables(&self) -> Option<u64> {
        self.updates.or(self.batch.then_some(u64::MAX))
    }

    pub(super) fn form(&self) -> UpdateFormat {
        match (self.json, self.csv) {
            (true, _) => UpdateFormat::Json,
            (_, true) => UpdateFormat::Csv,
            _ => UpdateFormat::Table,
        }
    }

    /// The order of printed tables.
    pub(super) fn sorting(&self) -> Sorting {
        Sorting::by(self.sort.map_or(Column::Load, |sort| sort.0))
    }

    /// The options for the screen. Columns and sorting that the user does not give are those of the
    /// previous run.
    pub(super) fn options(&self, wanted: Wanted) -> Options {
        let kept = Kept::load();
        let columns = Some(self.columns.clone()).filter(|columns| !columns.is_empty());
        let columns = columns.or_else(|| kept.columns());
        let sorting = self.sort.map(|sort| Sorting::by(sort.0)).or_else(|| kept.sorting());
        Options {
            wanted,
            interval: self.interval,
            tau: self.tau,
            columns: columns.map_or(Column::DEFAULT.to_vec(), |all| Column::table_of(&all)),
            unit: self.unit.into(),
            sorting: sorting.unwrap_or(Sorting::by(Column::Load)),
            filter: self.filter.clone(),
            keep: self.keep,
            mouse: !self.no_mouse,
            updates: self.updates,
            look_every: None,
            group: None,
            ceilings: Ceilings::usual_place(),
            keys: self.chosen.keys.clone(),
        }
    }

    pub(super) fn look(&self) -> Styles {
        let color = match self.color {
            _ if self.no_color => false,
            When::Always => true,
            When::Never => false,
            When::Auto => std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        };
        if color {
            // A colour option overrides NO_COLOR.
            crossterm::style::force_color_output(true);
        }
        let theme = match color {
            true => self.chosen.colors.over(self.theme.theme(Terminal::from_env())),
            false => Theme::monochrome(),
        };
        Styles::with(theme, self.ascii || !locale_has_unicode())
    }
}

/// Whether the locale uses UTF-8. An unset locale counts as UTF-8: many containers set none, and
/// their terminals show UTF-8 all the same.
pub(super) fn locale_has_unicode() -> bool {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
