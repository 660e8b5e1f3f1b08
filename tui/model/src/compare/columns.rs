//! The columns of a comparison with a baseline, for the screen and the text export.

use super::volume::Volume;
use super::{Baseline, Comparison, DiffRow, Verdict};
use crate::grid::{Table, table};
use pfp_read::local_time::time_of_day;
use pfp_read::units::{self, Scale};

/// Key of the column of names.
pub const NAME: &str = "name";
/// Key of the column of verdicts.
pub const VERDICT: &str = "verdict";
pub(crate) const CALLS: &str = "calls";
pub(crate) const LOAD: &str = "load-is";
/// Keys of the columns about allocations.
const ALLOCS: [&str; 4] =
    ["allocs-per-call", "allocs-per-call-now", "alloc-bytes-per-call", "alloc-bytes-per-call-now"];
/// The column by which rows are sorted at first.
pub const LOAD_CHANGE: &str = "dload";

const SHIFTED: &[Verdict] = &[Verdict::Slower, Verdict::Faster];
const TAIL: &[Verdict] = &[Verdict::SlowerTail, Verdict::FasterTail];

/// The verdicts that a column's figure explains; the figure gets the colour of the verdict.
pub fn stresses(key: &str) -> &'static [Verdict] {
    match key {
        "dmean" | "dp50" => SHIFTED,
        "dp99" => TAIL,
        _ => &[],
    }
}

/// The verdict on calls or load that gives a column its colour.
pub fn volume(key: &str, row: &DiffRow) -> Option<Volume> {
    match key {
        CALLS | "drate" => Some(row.calls),
        LOAD | LOAD_CHANGE => Some(row.load),
        _ => None,
    }
}

/// The columns, in their order.
pub static TABLE: Table<DiffRow, Scale> = table! {
    DiffRow, Scale;
    NAME, "Name", 8, Text(|row, _| row.name.clone()).left(32).stays(), "its name";
    VERDICT, "Time", 13, Text(|row, _| row.verdict.words().into()).stays(),
        "verdict on the time of a call";
    CALLS, "Calls", 6, Text(|row, _| row.calls.words().into()).rank(2),
        "verdict on calls per second";
    LOAD, "Load", 6, Text(|row, _| row.load.words().into()).rank(3),
        "verdict on the load";
    "load", "Load%", 5, Share(|row, _| row.before.load()).rank(7), "share of a CPU in the baseline";
    "load-now", "now", 5, Share(|row, _| row.since.load()).rank(7),
        "share of a CPU since the baseline";
    LOAD_CHANGE, "dLoad", 6, Points(|row, _| row.load_change()).rank(1), "change of the load, in points";
    "mean", "Mean", 7, Time(|row, _| row.before.mean()).rank(8), "mean in the baseline";
    "mean-now", "now", 7, Time(|row, _| row.since.mean()).rank(8), "mean since the baseline";
    "dmean", "dMean", 6, Change(|row, _| row.mean_change()).rank(4), "change of the mean";
    "dp50", "dp50", 6, Change(|row, _| row.quantile_change(0.5)).rank(9), "change of the median";
    "dp90", "dp90", 6, Change(|row, _| row.quantile_change(0.9)).rank(10),
        "change of the 90th percentile";
    "p99", "p99", 7, Time(|row, _| row.before.quantile(0.99)).rank(11),
        "99th percentile in the baseline";
    "p99-now", "now", 7, Time(|row, _| row.since.quantile(0.99)).rank(11),
        "99th percentile since the baseline";
    "dp99", "dp99", 6, Change(|row, _| row.quantile_change(0.99)).rank(5),
        "change of the 99th percentile";
    "rate", "/s", 5, Rate(|row, _| row.before.rate()).rank(12), "calls per second in the baseline";
    "rate-now", "now", 5, Rate(|row, _| row.since.rate()).rank(12),
        "calls per second since the baseline";
    "drate", "d/s", 6, Change(|row, _| row.rate_change()).rank(6), "change of calls per second";
    "a", "A", 4, Odds(|row, _| row.superiority).rank(13),
        "chance that a call now is slower; 0.5: no change";
    "count", "Count", 5, Count(|row, _| Some(row.before.count as f64)).rank(14),
        "calls in the baseline";
    "count-now", "now", 5, Count(|row, _| Some(row.since.count as f64)).rank(14),
        "calls since the baseline";
    ALLOCS[0], "Alloc/call", 10, Rate(|row, _| row.before.allocs_per_call()).rank(15),
        "allocations per call in the baseline";
    ALLOCS[1], "now", 5, Rate(|row, _| row.since.allocs_per_call()).rank(15),
        "allocations per call since the baseline";
    ALLOCS[2], "B/call", 6, Rate(|row, _| row.before.alloc_bytes_per_call()).rank(16),
        "allocated bytes per call in the baseline";
    ALLOCS[3], "now", 5, Rate(|row, _| row.since.alloc_bytes_per_call()).rank(16),
        "allocated bytes per call since the baseline";
};

/// Whether a column has something to show: those about allocations, if a call has counted them.
pub fn is_offered(key: &str, rows: &[DiffRow]) -> bool {
    let counts = |row: &DiffRow| row.before.allocs.calls > 0 || row.since.allocs.calls > 0;
    !ALLOCS.contains(&key) || rows.iter().any(counts)
}

/// The two sides of the comparison, and how a difference is judged.
pub fn caption(baseline: &Baseline, comparison: Option<&Comparison>, test: &str) -> String {
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
        // The screen may cut off the end of the line, so the common change comes first.
        Some(common) => {
            format!(
                "most points {} together: the machine changed; verdicts are relative to that; \
                 {text}",
                units::change(common)
            )
        }
        None => format!("{text}; {test}"),
    }
}
