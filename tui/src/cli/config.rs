//! The settings file: defaults of the user, used where the command line and the environment set
//! nothing.
//!
//! Its values become the defaults of the command line's options, so the precedence is: option,
//! variable, file, built-in default. A mistake in the file is reported and skipped; the other
//! settings apply.

mod entry;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{env, io};

use anyhow::{Context, Result};
use clap::{Command, ValueEnum};
use serde::{Deserialize, Deserializer, de::Error};
use toml::Spanned;
use toml::de::DeTable;

use self::entry::SettingEntry;
use super::words::{SortColumn, UnitName};
use crate::common::ChosenKeys;
use crate::screens::Screens;
use crate::styles::{ChosenColors, ThemeName};
use crate::variables;
use pfp_model::columns::Column;
use pfp_read::files;
use pfp_read::files::input;

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 64 << 10;

/// The content of the file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    #[serde(deserialize_with = "interval")]
    interval: Option<Duration>,
    #[serde(deserialize_with = "interval")]
    tau: Option<Duration>,
    #[serde(deserialize_with = "columns")]
    columns: Option<Vec<Column>>,
    #[serde(deserialize_with = "word")]
    sort: Option<SortColumn>,
    #[serde(deserialize_with = "word")]
    theme: Option<ThemeName>,
    #[serde(deserialize_with = "word")]
    unit: Option<UnitName>,
    mouse: Option<bool>,
    ascii: Option<bool>,
    keep: Option<bool>,
    #[serde(deserialize_with = "keys")]
    keys: ChosenKeys,
    colors: ChosenColors,
}

/// Settings that are not an option of the command line.
#[derive(Clone, Debug, Default)]
pub(super) struct ScreenSettings {
    pub(super) keys: ChosenKeys,
    pub(super) colors: ChosenColors,
}

impl Config {
    /// The sections of the file: tables of settings.
    const SECTIONS: [&str; 2] = ["keys", "colors"];

    /// Loads the file that a variable names, or `$XDG_CONFIG_HOME/pfp-top/config.toml`. If there is
    /// no file, the settings are empty.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub(super) fn load() -> Result<(Self, Vec<String>)> {
        let named = env::var_os(variables::TOP_CONFIG);
        let path = match &named {
            Some(path) if path.is_empty() => return Ok(Default::default()),
            Some(path) => files::with_home(path),
            None => match files::folder("XDG_CONFIG_HOME", ".config") {
                Some(folder) => folder.join("pfp-top/config.toml"),
                None => return Ok(Default::default()),
            },
        };
        match input::read(&path, MAX_BYTES) {
            Ok(text) => Ok(Self::read(&String::from_utf8_lossy(&text), &path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => {
                Ok(Default::default())
            }
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Parses the settings. Returns the valid ones, and a message for each of the others.
    fn read(text: &str, path: &Path) -> (Self, Vec<String>) {
        let mut wrong = Vec::new();
        let text = without_wrong_lines(text, &mut wrong);
        let settings = DeTable::parse(&text).map_or_else(|_| DeTable::new(), Spanned::into_inner);
        let mut entries = SettingEntry::all(settings);
        let config = loop {
            match SettingEntry::read(&entries) {
                Ok(config) => break config,
                Err(_) if entries.is_empty() => break Self::default(),
                Err(error) => wrong.push(SettingEntry::drop_wrong(&mut entries, &error)),
            }
        };
        wrong.sort();
        let describe = |(at, message): (usize, String)| {
            let line = text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() + 1;
            // Some messages have several lines.
            format!("{}:{line}: {}", path.display(), message.replace('\n', "; "))
        };
        (config, wrong.into_iter().map(describe).collect())
    }

    /// The settings that have no option on the command line: keys and colours.
    pub(super) fn chosen(&self) -> ScreenSettings {
        ScreenSettings { keys: self.keys.clone(), colors: self.colors }
    }

    /// Makes the settings the defaults of a command line.
    pub(super) fn into_defaults_of(self, command: Command) -> Command {
        let defaults = self.defaults();
        let with = |command: Command| {
            command.mut_args(|arg| match defaults.iter().find(|(id, _)| arg.get_id() == *id) {
                Some((_, value)) => arg.default_value(value.clone()),
                None => arg,
            })
        };
        with(command).mut_subcommands(with)
    }

    /// Ids of arguments, and their defaults.
    fn defaults(&self) -> Vec<(&'static str, String)> {
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        let flag = |value: bool| value.to_string();
        let columns = |columns: &Vec<Column>| {
            columns.iter().map(|column| column.word()).collect::<Vec<_>>().join(",")
        };
        [
            ("interval", self.interval.map(seconds)),
            ("tau", self.tau.map(seconds)),
            ("columns", self.columns.as_ref().map(columns)),
            ("sort", self.sort.map(|column| column.0.word().to_owned())),
            ("theme", self.theme.as_ref().and_then(spelt)),
            ("unit", self.unit.as_ref().and_then(spelt)),
            ("no_mouse", self.mouse.map(|mouse| flag(!mouse))),
            ("ascii", self.ascii.map(flag)),
            ("keep", self.keep.map(flag)),
        ]
        .into_iter()
        .filter_map(|(id, value)| Some((id, value?)))
        .collect()
    }
}

/// Replaces lines that are not valid TOML by blanks, so that the offsets of the other lines stay
/// the same. Adds the offset and the error of each such line to `wrong`.
fn without_wrong_lines(text: &str, wrong: &mut Vec<(usize, String)>) -> String {
    let mut text = text.to_owned();
    while let Err(error) = DeTable::parse(&text) {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        // An error at the end of the text is reported for the last line.
        let end = text.trim_end().len();
        let begin = text[..at.min(end)].rfind('\n').map_or(0, |newline| newline + 1);
        let end = text[begin..].find('\n').map_or(text.len(), |length| begin + length);
        if text[begin..end].trim().is_empty() {
            break;
        }
        wrong.push((begin, error.message().to_owned()));
        text.replace_range(begin..end, &" ".repeat(end - begin));
    }
    text
}

fn spelt<T: ValueEnum>(value: &T) -> Option<String> {
    Some(value.to_possible_value()?.get_name().to_owned())
}

/// A time as on the command line, or a number of seconds.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a time in quotes, or a number of seconds")]
enum TimeSetting {
    Seconds(f64),
    Text(String),
}

fn interval<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Duration>, D::Error> {
    let text = match TimeSetting::deserialize(input)? {
        TimeSetting::Seconds(number) => number.to_string(),
        TimeSetting::Text(text) => text,
    };
    super::arguments::interval(&text).map(Some).map_err(D::Error::custom)
}

fn word<'de, T: ValueEnum, D: Deserializer<'de>>(input: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(input)?;
    T::from_str(&text, false).map(Some).map_err(|_| {
        let all: Vec<_> = T::value_variants().iter().filter_map(spelt).collect();
        D::Error::custom(format!("expected one of {}, found {text}", all.join(", ")))
    })
}

fn columns<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Vec<Column>>, D::Error> {
    let words = Vec::<String>::deserialize(input)?;
    let columns: Result<_, _> = words.iter().map(|word| Column::of_word(word)).collect();
    columns.map(Some).map_err(D::Error::custom)
}

/// One key, or a list of keys.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a key in quotes, or a list of keys")]
enum Names {
    One(String),
    All(Vec<String>),
}

fn keys<'de, D: Deserializer<'de>>(input: D) -> Result<ChosenKeys, D::Error> {
    let words = BTreeMap::<String, Names>::deserialize(input)?;
    let words = words.into_iter().map(|(action, names)| match names {
        Names::One(name) => (action, vec![name]),
        Names::All(names) => (action, names),
    });
    ChosenKeys::new(&words.collect(), &Screens::key_maps()).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::command_line::{Cli, Command as Asked, parse_from};
    use crate::styles::Theme;
    use pfp_model::columns::Available;
    use ratatui::style::Color;

    fn read(text: &str) -> (Config, Vec<String>) {
        Config::read(text, Path::new("c.toml"))
    }

    const ALL: &str = "
        interval = 0.5
        tau = 2
        columns = [\"name\", \"load\", \"trend\", \"thr\"]
        sort = \"p99\"
        theme = \"16\"
        mouse = false
        ascii = true
        unit = \"cycles\"
        keep = true
        [keys]
        toggle = \"Y\"
        bottom = [\"B\", \"GG\"]
        [colors]
        bar = \"#ff8700\"
        selected = \"white on blue bold\"
        heat = [\"green\", \"yellow\", \"red\"]
    ";

    #[test]
    fn options_override_the_settings_file() {
        let options = |arguments: &[&str]| {
            let all = std::iter::once(&"pfp-top").chain(arguments);
            let cli: Cli = parse_from(read(ALL).0, all).unwrap();
            let show = match &cli.command {
                Some(Asked::Demo { show }) => show,
                _ => &cli.show,
            };
            let bar = show.chosen.colors.over(Theme::color()).bar.fg;
            assert_eq!(bar, Some(Color::Rgb(0xff, 0x87, 0)));
            (show.options(Default::default()), show.ascii, show.theme)
        };
        for arguments in [&[][..], &["demo"]] {
            let (found, ascii, theme) = options(arguments);
            assert_eq!(found.interval, Duration::from_millis(500));
            assert_eq!(found.tau, Duration::from_secs(2));
            let own = [Column::On, Column::Name, Column::Load, Column::Trend, Column::Threads];
            assert_eq!(Column::shown(&found.columns, Available::default()), own);
            assert_eq!((found.sorting.column, found.unit), (Column::P99, UnitName::Cycles.into()));
            assert!(!found.mouse && ascii && found.keep);
            assert_eq!(theme, ThemeName::Sixteen);
            assert_ne!(found.keys, ChosenKeys::default());
        }
        let (found, _, _) = options(&["-i", "3", "--sort", "avg", "--columns", "name,avg"]);
        assert_eq!(found.interval, Duration::from_secs(3));
        assert_eq!(found.sorting.column, Column::Avg);
        assert_eq!(found.columns, [Column::On, Column::Process, Column::Name, Column::Avg]);
    }

    #[test]
    fn errors_in_the_settings_file_name_line_and_expected_value() {
        for (text, said) in [
            ("intervall = 1", "c.toml:1: unknown field `intervall`, expected one of `interval`"),
            ("\ninterval = 0", "c.toml:2: expected a time from 50ms to 1d"),
            ("tau = 5\ntheme = \"pink\"", "c.toml:2: expected one of auto, dark, light, 16, mono"),
            (
                "columns = [\"name\", \"lod\"]",
                "c.toml:1: expected columns among on, id, process, host, name",
            ),
            ("mouse = \"no\"", "c.toml:1: invalid type: string \"no\", expected a boolean"),
            ("tau = 5\n\nmouse", "c.toml:3:"),
            ("tau = 5\ntau = 6", "c.toml:2: duplicate key"),
            ("columns = [\n\"name\",\n\"lod\"\n]", "c.toml:3: expected columns among on, id"),
            ("[colors]\nbar = \"red\"\nheat = [\"red\"]", "c.toml:3: invalid length 1"),
            ("[keys]\ntoggle = 5", "c.toml:2: expected a key in quotes, or a list of keys"),
            ("\n[keys]\ntoggle = \"r\"", "c.toml:3: r would mean toggle and reset on"),
            ("[colors]\nbar = \"pinkish\"", "c.toml:2: expected a colour such as red,"),
            (
                "[colors]\nbars = \"red\"",
                "c.toml:2: unknown field `bars`, expected one of `header`",
            ),
        ] {
            let (_, wrong) = read(text);
            assert!(matches!(&wrong[..], [one] if one.starts_with(said)), "{text}: {wrong:?}");
        }
    }

    #[test]
    fn valid_settings_apply_beside_invalid_ones() {
        let text = "
            interval = \"soon\"
            tau = 2
            sort = \"p98\"
            unit = \"cycles\"
            colour = \"red\"
            [keys]
            toggle = \"Y\"
            jump = \"j\"
            bottom = \"B\"
            reset = \"B\"
            [colors]
            bar = \"pinkish\"
            selected = \"white on blue bold\"
        ";
        let (config, wrong) = read(text);
        let lines: Vec<&str> = wrong.iter().filter_map(|text| text.split(':').nth(1)).collect();
        assert_eq!(lines, ["2", "4", "6", "9", "11", "13"], "{wrong:#?}");
        let right = "tau = 2\nunit = \"cycles\"\n[keys]\ntoggle = \"Y\"\nbottom = \"B\"\n\
                     [colors]\nselected = \"white on blue bold\"";
        let (expected, none) = read(right);
        assert_eq!(none, [""; 0]);
        assert_eq!(config.defaults(), expected.defaults());
        assert_eq!((config.keys, config.colors), (expected.keys, expected.colors));

        // Each of these settings alone would use a key that is taken; together they swap two keys.
        assert_eq!(read("[keys]\ntoggle = \"r\"\nreset = \"e\"").1, [""; 0]);
        // A line without a value is reported, and the other lines apply.
        let (config, wrong) = read("tau = 2\nmouse\nunit = \"cycles\"");
        assert!(matches!(&wrong[..], [one] if one.starts_with("c.toml:2: ")), "{wrong:?}");
        assert_eq!(config.defaults(), read("tau = 2\nunit = \"cycles\"").0.defaults());
    }
}
