//! The columns of a comparison with a baseline: what they show, for the screen and
//! the text export alike.

use crate::local_time::time_of_day;
use crate::model::compare::{Baseline, Comparison, Row, Verdict};
use crate::units::{self, NONE, Scale};

/// Heading of the verdicts.
pub const VERDICT: &str = "Verdict";
/// Room for the longest verdict.
pub const VERDICT_WIDTH: usize = 13;

/// A column, all of whose cells are aligned to the right.
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// Columns on the screen.
    pub width: usize,
    /// Those with the greatest rank give way first.
    pub rank: u8,
    /// What it shows of a point.
    pub cell: fn(&Row, &Scale) -> String,
    /// The verdicts that this figure is the reason for, and gets their colour.
    pub stresses: &'static [Verdict],
}

const SHIFTED: &[Verdict] = &[Verdict::Slower, Verdict::Faster];
const TAIL: &[Verdict] = &[Verdict::SlowerTail, Verdict::FasterTail];

const fn column(
    title: &'static str,
    width: usize,
    rank: u8,
    cell: fn(&Row, &Scale) -> String,
) -> Column {
    Column { title, width, rank, cell, stresses: &[] }
}

/// The columns, in their order.
pub const COLUMNS: &[Column] = &[
    column("Load%", 5, 4, |row, _| share(row.before.load())),
    column("now", 5, 4, |row, _| share(row.since.load())),
    column("dLoad", 6, 1, |row, _| points(row.load_change())),
    column("Mean", 7, 5, |row, scale| ticks(row.before.mean(), scale)),
    column("now", 7, 5, |row, scale| ticks(row.since.mean(), scale)),
    Column { stresses: SHIFTED, ..column("dMean", 6, 2, |row, _| change(row.mean_change())) },
    Column { stresses: SHIFTED, ..column("dp50", 6, 6, |row, _| change(row.quantile_change(0.5))) },
    column("dp90", 6, 7, |row, _| change(row.quantile_change(0.9))),
    column("p99", 7, 8, |row, scale| ticks(row.before.quantile(0.99), scale)),
    column("now", 7, 8, |row, scale| ticks(row.since.quantile(0.99), scale)),
    Column { stresses: TAIL, ..column("dp99", 6, 3, |row, _| change(row.quantile_change(0.99))) },
    column("/s", 5, 10, |row, _| rate(row.before.rate())),
    column("now", 5, 10, |row, _| rate(row.since.rate())),
    column("d/s", 6, 9, |row, _| change(row.rate_change())),
    column("A", 4, 11, |row, _| row.superiority.map_or(NONE.into(), |a| format!("{a:.2}"))),
    column("Count", 5, 12, |row, _| units::count(row.before.count)),
    column("now", 5, 12, |row, _| units::count(row.since.count)),
];

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
                change(Some(common))
            )
        }
        None => format!("{text}; {test}"),
    }
}

fn share(share: Option<f64>) -> String {
    share.map_or(NONE.into(), units::percent)
}

fn ticks(ticks: Option<f64>, scale: &Scale) -> String {
    ticks.map_or(NONE.into(), |ticks| scale.single(ticks))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or(NONE.into(), units::si)
}

/// Points of a percentage, with their sign, in at most six columns.
fn points(change: Option<f64>) -> String {
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
fn change(change: Option<f64>) -> String {
    let Some(change) = change.filter(|share| share.is_finite()) else {
        return NONE.into();
    };
    match change.abs() {
        ..0.0005 => "0.0%".into(),
        0.0005..0.0995 => format!("{:+.1}%", change * 100.0),
        0.0..9.995 => format!("{:+.0}%", change * 100.0),
        9.995..9999.0 => format!("x{:.0}", change + 1.0),
        _ => ">x9999".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_change_bursts_its_column() {
        for sign in [1.0, -1.0] {
            let mut size = 1e-6;
            while size < 1e9 {
                assert!(points(Some(sign * size)).len() <= 6, "{}", points(Some(sign * size)));
                let share = (sign * size).max(-1.0);
                assert!(change(Some(share)).len() <= 6, "{}", change(Some(share)));
                size *= 1.07;
            }
        }
        assert_eq!(change(Some(0.25)), "+25%");
        assert_eq!(change(Some(-0.031)), "-3.1%");
        assert_eq!(change(Some(11.0)), "x12");
        assert_eq!(points(Some(-0.1234)), "-12.3");
        assert_eq!((change(None), points(Some(f64::NAN))), (NONE.into(), NONE.into()));
    }
}
