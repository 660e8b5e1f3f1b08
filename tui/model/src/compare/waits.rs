//! How the waits of two windows differ. Waits are sampled, so their changes have no verdict.

use std::collections::BTreeMap;

use super::{Baseline, change};
use crate::grid::{Table, table};
use pfp_read::snapshot::Snapshot;
use pfp_read::units::Scale;
use pfp_read::waits::WaitTotals;

/// Fewer waiting threads than this, on both sides, are not shown.
const FEWEST: f64 = 0.005;

/// The waits of all points for one reason.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitChange {
    /// The reason, as in `lock JOBS` or `run queue`.
    pub name: String,
    /// Number of threads that waited in the baseline, on average.
    pub before: f64,
    /// Number of threads that waited since the baseline, on average.
    pub now: f64,
}

/// The table of the waits, for the text export.
pub(super) static TABLE: Table<WaitChange, Scale> = table! {
    WaitChange, Scale;
    "name", "Waits for", 8, Text(|row, _| row.name.clone()).left(48), "";
    "before", "Threads", 8, Text(|row, _| format!("{:.2}", row.before)).right(), "";
    "now", "now", 8, Text(|row, _| format!("{:.2}", row.now)).right(), "";
    "change", "Change", 7, Change(|row, _| change(Some(row.before), Some(row.now))), "";
};

/// The changes, the greatest first. Empty unless both windows were sampled.
pub(super) fn changes(baseline: &Baseline, now: &Snapshot) -> Vec<WaitChange> {
    let since = match baseline.until.process.segment_id == now.process.segment_id {
        true => WaitTotals::between(&baseline.until, now),
        false => WaitTotals::of(now).cloned(),
    };
    let Some((before, since)) = baseline.waits.as_ref().zip(since) else { return Vec::new() };
    let mut all: BTreeMap<String, [f64; 2]> = BTreeMap::new();
    for (side, totals) in [before, &since].into_iter().enumerate() {
        for (name, threads) in threads(totals) {
            all.entry(name).or_default()[side] += threads;
        }
    }
    let row = |(name, [before, now]): (String, [f64; 2])| WaitChange { name, before, now };
    let mut all: Vec<_> = all.into_iter().map(row).collect();
    all.retain(|row| row.before.max(row.now) >= FEWEST);
    let size = |row: &WaitChange| (row.now - row.before).abs();
    all.sort_by(|a, b| size(b).total_cmp(&size(a)));
    all
}

/// The number of threads that waited in points for each reason, on average.
fn threads(totals: &WaitTotals) -> impl Iterator<Item = (String, f64)> {
    let seconds = totals.seconds;
    let in_points = totals.waits.iter().filter(|total| total.point.is_some());
    in_points.filter(move |_| seconds > 0.0).map(move |total| {
        let name = [total.reason.as_str(), &total.name].join(" ");
        (name.trim_end().to_owned(), total.ns as f64 / 1e9 / seconds)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::compare::{Comparison, report};
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::waits::{WaitTotal, WaitsReport};

    fn waited(snapshot: &mut Snapshot, seconds: f64, waits: &[(Option<u32>, &str, u64)]) {
        let waits = waits.iter().map(|(point, name, ms)| WaitTotal {
            point: *point,
            reason: "lock".into(),
            name: (*name).into(),
            ns: ms * 1_000_000,
        });
        let totals = Some(WaitTotals { since_unix_ns: 1, seconds, waits: waits.collect() });
        snapshot.waits = Some(Arc::new(WaitsReport { totals, ..WaitsReport::default() }));
    }

    #[test]
    fn a_lock_that_more_threads_wait_for_is_first() {
        let mut source = Synthetic::new();
        let [mut first, mut second] = [(); 2].map(|()| source.poll().expect("it can be read"));
        waited(&mut first, 10.0, &[(Some(1), "JOBS", 5_000), (Some(2), "LOG", 2_000)]);
        let of_other = [(Some(1), "JOBS", 12_000), (Some(2), "JOBS", 8_000), (None, "JOBS", 9)];
        waited(&mut second, 10.0, &of_other);
        second.process.segment_id = "f".repeat(32);
        let baseline = Baseline::of(first.clone(), None);
        let comparison = Comparison::new(&baseline, &second).expect("they differ");
        let row = |name: &str, before, now| WaitChange { name: name.into(), before, now };
        assert_eq!(comparison.waits, [row("lock JOBS", 0.5, 2.0), row("lock LOG", 0.2, 0.0)]);
        let text = report::render(&baseline, &comparison);
        assert!(text.contains("\nlock JOBS") && text.contains("+300%"), "{text}");
        let markdown = report::markdown(&baseline, &comparison);
        assert!(markdown.contains("| `lock JOBS` | 0.50 | 2.00 |"), "{markdown}");
        // Of one process, the waits since the baseline count.
        second.process.segment_id = first.process.segment_id;
        waited(&mut second, 12.0, &[(Some(1), "JOBS", 9_000), (Some(2), "LOG", 2_000)]);
        let comparison = Comparison::new(&baseline, &second).expect("it is later");
        assert_eq!(comparison.waits, [row("lock JOBS", 0.5, 2.0), row("lock LOG", 0.2, 0.0)]);
        second.waits = None;
        assert!(Comparison::new(&baseline, &second).expect("it is later").waits.is_empty());
    }
}
