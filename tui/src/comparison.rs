//! The columns of a comparison with a baseline: what they show, for the screen and
//! the text export alike.

use crate::grid::{Column, Table, by_figure};
use crate::local_time::time_of_day;
use crate::model::compare::{Baseline, Comparison, Row, Verdict};
use crate::units::{self, NONE, Scale};

/// Keys of the columns that a screen colours.
pub(crate) const NAME: &str = "name";
pub(crate) const VERDICT: &str = "verdict";
/// What the rows are sorted by first.
pub(crate) const LOAD_CHANGE: &str = "dload";

const SHIFTED: &[Verdict] = &[Verdict::Slower, Verdict::Faster];
const TAIL: &[Verdict] = &[Verdict::SlowerTail, Verdict::FasterTail];

/// The verdicts that the figure in a column is the reason for, and gets their colour.
pub(crate) fn stresses(key: &str) -> &'static [Verdict] {
    match key {
        "dmean" | "dp50" => SHIFTED,
        "dp99" => TAIL,
        _ => &[],
    }
}

/// How far something has changed, whichever way.
fn size(change: Option<f64>) -> Option<f64> {
    change.map(f64::abs)
}

type Of = Column<Row, Scale>;

/// A figure: its key, heading, width, meaning, rank, what it is of a row, and how it is written.
macro_rules! figure {
    ($key:expr, $title:literal, $width:literal, $meaning:literal, $rank:literal, $of:expr, $written:expr) => {
        Of::new($key, $title, $width, $meaning, |row: &Row, scale: &Scale| {
            let (of, written): (fn(&Row) -> Option<f64>, fn(Option<f64>, &Scale) -> String) =
                ($of, $written);
            written(of(row), scale)
        })
        .rank($rank)
        .greatest(|a, b| {
            let of: fn(&Row) -> Option<f64> = $of;
            by_figure(of(a), of(b))
        })
    };
}

/// A change; rows are sorted by its size.
macro_rules! change {
    ($key:expr, $title:literal, $meaning:literal, $rank:literal, $of:expr, $written:expr) => {
        figure!($key, $title, 6, $meaning, $rank, $of, $written).greatest(|a, b| {
            let of: fn(&Row) -> Option<f64> = $of;
            by_figure(size(of(a)), size(of(b)))
        })
    };
}

/// The columns, in their order.
pub(crate) static TABLE: Table<Row, Scale> = Table(&[
    Of::new(NAME, "Name", 8, "its name", |row, _| row.name.clone())
        .left(32)
        .stays()
        .least(|a, b| a.name.cmp(&b.name)),
    Of::new(VERDICT, "Verdict", 13, "what can be said", |row, _| row.verdict.words().into())
        .left(13)
        .stays()
        .least(|a, b| a.verdict.words().cmp(b.verdict.words())),
    figure!(
        "load",
        "Load%",
        5,
        "share of a CPU in the baseline",
        4,
        |row| row.before.load(),
        share
    ),
    figure!("load-now", "now", 5, "share of a CPU since", 4, |row| row.since.load(), share),
    change!(LOAD_CHANGE, "dLoad", "change of the load, in points", 1, Row::load_change, points),
    figure!("mean", "Mean", 7, "mean in the baseline", 5, |row| row.before.mean(), ticks),
    figure!("mean-now", "now", 7, "mean since", 5, |row| row.since.mean(), ticks),
    change!("dmean", "dMean", "change of the mean", 2, Row::mean_change, change),
    change!("dp50", "dp50", "change of the median", 6, |row| row.quantile_change(0.5), change),
    change!(
        "dp90",
        "dp90",
        "change of the 90th percentile",
        7,
        |row| row.quantile_change(0.9),
        change
    ),
    figure!(
        "p99",
        "p99",
        7,
        "99th percentile in the baseline",
        8,
        |row| row.before.quantile(0.99),
        ticks
    ),
    figure!("p99-now", "now", 7, "99th percentile since", 8, |row| row.since.quantile(0.99), ticks),
    change!(
        "dp99",
        "dp99",
        "change of the 99th percentile",
        3,
        |row| row.quantile_change(0.99),
        change
    ),
    figure!("rate", "/s", 5, "calls a second in the baseline", 10, |row| row.before.rate(), rate),
    figure!("rate-now", "now", 5, "calls a second since", 10, |row| row.since.rate(), rate),
    change!("drate", "d/s", "change of that", 9, Row::rate_change, change),
    figure!(
        "a",
        "A",
        4,
        "how likely a call now takes longer; 0.5: even",
        11,
        |row| row.superiority,
        odds
    ),
    figure!(
        "count",
        "Count",
        5,
        "calls in the baseline",
        12,
        |row| Some(row.before.count as f64),
        count
    ),
    figure!("count-now", "now", 5, "calls since", 12, |row| Some(row.since.count as f64), count),
]);

/// The two sides of the comparison, and how a difference is judged.
pub fn caption(baseline: &Baseline, comparison: Option<&Comparison>, test: &str) -> String {
    let until = baseline.until();
    let mut text = match baseline.file() {
        Some(file) => format!("{file}: {}[{}]", until.process.name, until.process.pid),
        None => format!("baseline {}", time_of_day(until.taken_unix_ns)),
    };
    text += &format!(", {} long", units::duration(baseline.seconds()));
    if let Some(Comparison { seconds, gone, other, .. }) = comparison {
        let seconds = units::duration(*seconds);
        text += &match other {
            None => format!("; now: {seconds} since"),
            Some(other) => format!("; now: {seconds} of {other}"),
        };
        if *gone > 0 {
            text += &format!("; {gone} points only in the baseline");
        }
    }
    let common = comparison.and_then(|comparison| comparison.common);
    match common {
        // That the rest moved is what has to be read.
        Some(common) => {
            format!(
                "most points {} at once: the machine; verdicts are against that; {text}",
                changed(common)
            )
        }
        None => format!("{text}; {test}"),
    }
}

fn share(share: Option<f64>, _: &Scale) -> String {
    share.map_or(NONE.into(), units::percent)
}

fn ticks(ticks: Option<f64>, scale: &Scale) -> String {
    ticks.map_or(NONE.into(), |ticks| scale.single(ticks))
}

fn rate(rate: Option<f64>, _: &Scale) -> String {
    rate.map_or(NONE.into(), units::si)
}

fn odds(odds: Option<f64>, _: &Scale) -> String {
    odds.map_or(NONE.into(), |odds| format!("{odds:.2}"))
}

fn count(count: Option<f64>, _: &Scale) -> String {
    count.map_or(NONE.into(), |count| units::count(count as u64))
}

/// Points of a percentage, with their sign, in at most six columns.
fn points(change: Option<f64>, _: &Scale) -> String {
    let Some(change) = change.map(|share| share * 100.0).filter(|points| points.is_finite()) else {
        return NONE.into();
    };
    match change.abs() {
        ..0.05 => "0.0".into(),
        0.05..999.95 => format!("{change:+.1}"),
        0.0..99_999.5 => format!("{change:+.0}"),
        _ => if change > 0.0 { ">+99k" } else { "<-99k" }.into(),
    }
}

/// A change as a share of what was before, in at most six columns: `+3.2%`,
/// `-41%`, `x12`.
fn changed(change: f64) -> String {
    if !change.is_finite() {
        return NONE.into();
    }
    match change.abs() {
        ..0.0005 => "0.0%".into(),
        0.0005..0.0995 => format!("{:+.1}%", change * 100.0),
        0.0..9.995 => format!("{:+.0}%", change * 100.0),
        9.995..9999.0 => format!("x{:.0}", change + 1.0),
        _ => ">x9999".into(),
    }
}

fn change(change: Option<f64>, _: &Scale) -> String {
    change.map_or(NONE.into(), changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_bursts_its_column() {
        let scale = Scale { ticks_per_second: 1.0, unit: units::Unit::Time };
        for sign in [1.0, -1.0] {
            let mut size = 1e-6;
            while size < 1e9 {
                assert!(
                    points(Some(sign * size), &scale).len() <= 6,
                    "{}",
                    points(Some(sign * size), &scale)
                );
                let share = (sign * size).max(-1.0);
                assert!(changed(share).len() <= 6, "{}", changed(share));
                size *= 1.07;
            }
        }
        assert_eq!(changed(0.25), "+25%");
        assert_eq!(changed(-0.031), "-3.1%");
        assert_eq!(changed(11.0), "x12");
        assert_eq!(points(Some(-0.1234), &scale), "-12.3");
        assert_eq!(
            (change(None, &scale), points(Some(f64::NAN), &scale)),
            (NONE.into(), NONE.into())
        );
    }
}
