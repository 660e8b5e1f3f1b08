//! Points switched, reset and averaged by scripts.

use anyhow::{Result, bail};
use clap::Args;
use regex_lite::Regex;

use super::Target;
use super::commands::{resolve, say};
use super::missing::missing;
use crate::app::weight;
use crate::model::{Figures, Model};
use crate::snapshot::{PointState, ProcessState};
use crate::source::{Change, Refusal, change_each};

/// Which points of which process.
#[derive(Args, Clone, Debug)]
pub struct Points {
    #[command(flatten)]
    target: Target,
    /// The points, by name: `*` stands for any text, `?` for one character; `#3` is
    /// the point with that number and no name.
    #[arg(value_name = "GLOB", required = true, value_parser = glob)]
    names: Vec<Regex>,
}

/// What to do with them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deed {
    /// Switch them on.
    Enable,
    /// Switch them off.
    Disable,
    /// Start their figures afresh.
    Reset,
    /// The weight of a new value; none for off.
    Average(Option<f64>),
}

/// Reads a weight, as the screen does.
pub(super) fn alpha(text: &str) -> Result<Deed, String> {
    weight::parse(text).map(Deed::Average)
}

/// Does it to all points whose names fit, and says how many changed.
pub(super) fn run(points: &Points, deed: Deed) -> Result<u8> {
    let mut source = resolve(&points.target)?;
    let mut model = Model::default();
    let snapshot = source.poll()?;
    let process = &snapshot.process;
    if process.state != ProcessState::Running {
        bail!(Refusal::NoTarget(format!(
            "expected a process that runs, but {}[{}] has ended; nothing can be changed in it",
            process.name, process.pid
        )));
    }
    model.fold(snapshot);
    let all = model.points().len();
    let fits = |figures: &&Figures| {
        let name = figures.name();
        points.names.iter().any(|glob| glob.is_match(&name))
    };
    let fitting: Vec<&Figures> = model.points().iter().filter(fits).collect();
    if fitting.is_empty() {
        bail!(Refusal::NoTarget(format!(
            "none of {all} points has such a name; `pfp-top --once --columns name` lists them, and \
             quotes keep the shell from reading the `*`"
        )));
    }
    let differs = |figures: &&&Figures| match deed {
        Deed::Enable => figures.state() != PointState::On,
        // One that is invalid does not measure, but is not off either.
        Deed::Disable => figures.state() != PointState::Off,
        Deed::Reset => true,
        Deed::Average(_) => true,
    };
    let changing: Vec<u32> = fitting.iter().filter(differs).map(|figures| figures.id()).collect();
    let is_done = change_each(&changing, |id| {
        source.act(match deed {
            Deed::Enable => Change::Enable(*id),
            Deed::Disable => Change::Disable(*id),
            Deed::Reset => Change::Reset(*id),
            Deed::Average(weight) => Change::SetAlpha(*id, weight),
        })
    });
    if let Err(error) = &is_done
        && !Refusal::is_partly(error)
    {
        return is_done.map(|()| 0);
    }
    let changed = changing.len();
    let (done, rest) = match deed {
        Deed::Enable => ("enabled", "on"),
        Deed::Disable => ("disabled", "off"),
        Deed::Reset => ("reset", ""),
        Deed::Average(_) => ("set alpha of", ""),
    };
    let how = match deed {
        Deed::Average(Some(alpha)) => format!(" to {}", weight::written(alpha)),
        Deed::Average(None) => " to off".into(),
        _ => String::new(),
    };
    let already = match fitting.len() - changed {
        0 => String::new(),
        n => format!(", {n} {} {rest} already", if n == 1 { "was" } else { "were" }),
    };
    say(&format!("{done} {changed} of {all} points{how}{already}\n"))?;
    is_done.map(|()| missing(source.as_ref()))
}

/// A pattern of a whole name, as PFP_ENABLE has them.
fn glob(text: &str) -> Result<Regex, String> {
    if text.is_empty() {
        return Err("expected a name or a pattern such as 'io.*', found nothing".into());
    }
    let mut pattern = String::from("(?s)^");
    for c in text.chars() {
        match c {
            '*' => pattern.push_str(".*"),
            '?' => pattern.push('.'),
            c => pattern.push_str(&regex_lite::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    pattern.push('$');
    Regex::new(&pattern).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_are_of_whole_names_and_nothing_in_them_is_an_expression() {
        for (text, fitting, other) in [
            ("io.*", &["io.", "io.read"][..], &["iox", "my io.read", "Io.read"][..]),
            ("*", &["", "a b", "#3"], &[]),
            ("#3", &["#3"], &["#33", "3"]),
            ("p?rse", &["parse", "pärse"], &["prse", "paarse"]),
            ("a(b|c)[d]$", &["a(b|c)[d]$"], &["abd"]),
            ("*tail*end", &["tailend", "a tail and an end"], &["tail", "tail end."]),
        ] {
            let glob = glob(text).unwrap();
            assert!(fitting.iter().all(|name| glob.is_match(name)), "{text}");
            assert!(!other.iter().any(|name| glob.is_match(name)), "{text}");
        }
        assert!(glob("").is_err());
    }
}
