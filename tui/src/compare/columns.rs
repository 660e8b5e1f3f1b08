//! The columns of a comparison with a baseline, for the screen and the text export.

use super::{Baseline, Comparison, Row, Verdict};
use crate::grid::{Table, table};
use crate::local_time::time_of_day;
use crate::units::{self, Scale};

/// Keys of the columns that a screen colours.
pub(crate) const NAME: &str = "name";
pub(crate) const VERDICT: &str = "verdict";
/// The first sorting of the rows.
pub(crate) const LOAD_CHANGE: &str = "dload";

const SHIFTED: &[Verdict] = &[Verdict::Slower, Verdict::Faster];
const TAIL: &[Verdict] = &[Verdict::SlowerTail, Verdict::FasterTail];

/// The verdicts that a column's figure explains; it gets their colour.
pub(crate) fn stresses(key: &str) -> &'static [Verdict] {
    match key {
        "dmean" | "dp50" => SHIFTED,
        "dp99" => TAIL,
        _ => &[],
    }
}

/// The columns, in their order.
pub(crate) static TABLE: Table<Row, Scale> = table! {
    Row, Scale;
    NAME, "Name", 8, Text(|row, _| row.name.clone()).left(32).stays(), "its name";
    VERDICT, "Verdict", 13, Text(|row, _| row.verdict.words().into()).stays(), "what can be said";
    "load", "Load%", 5, Share(|row, _| row.before.load()).rank(4), "share of a CPU in the baseline";
    "load-now", "now", 5, Share(|row, _| row.since.load()).rank(4), "share of a CPU since";
    LOAD_CHANGE, "dLoad", 6, Points(|row, _| row.load_change()).rank(1), "change of the load, in points";
    "mean", "Mean", 7, Time(|row, _| row.before.mean()).rank(5), "mean in the baseline";
    "mean-now", "now", 7, Time(|row, _| row.since.mean()).rank(5), "mean since";
    "dmean", "dMean", 6, Change(|row, _| row.mean_change()).rank(2), "change of the mean";
    "dp50", "dp50", 6, Change(|row, _| row.quantile_change(0.5)).rank(6), "change of the median";
    "dp90", "dp90", 6, Change(|row, _| row.quantile_change(0.9)).rank(7),
        "change of the 90th percentile";
    "p99", "p99", 7, Time(|row, _| row.before.quantile(0.99)).rank(8),
        "99th percentile in the baseline";
    "p99-now", "now", 7, Time(|row, _| row.since.quantile(0.99)).rank(8), "99th percentile since";
    "dp99", "dp99", 6, Change(|row, _| row.quantile_change(0.99)).rank(3),
        "change of the 99th percentile";
    "rate", "/s", 5, Rate(|row, _| row.before.rate()).rank(10), "calls a second in the baseline";
    "rate-now", "now", 5, Rate(|row, _| row.since.rate()).rank(10), "calls a second since";
    "drate", "d/s", 6, Change(|row, _| row.rate_change()).rank(9), "change of that";
    "a", "A", 4, Odds(|row, _| row.superiority).rank(11),
        "how likely a call now takes longer; 0.5: even";
    "count", "Count", 5, Count(|row, _| Some(row.before.count as f64)).rank(12),
        "calls in the baseline";
    "count-now", "now", 5, Count(|row, _| Some(row.since.count as f64)).rank(12), "calls since";
};

/// The two sides of the comparison, and how a difference is judged.
pub(crate) fn caption(baseline: &Baseline, comparison: Option<&Comparison>, test: &str) -> String {
    let until = baseline.until();
    let mut text = match baseline.file() {
        Some(file) => format!("{file}: {}", until.process),
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
        // The common move must be read.
        Some(common) => {
            format!(
                "most points {} at once: the machine; verdicts are against that; {text}",
                units::change(common)
            )
        }
        None => format!("{text}; {test}"),
    }
}
