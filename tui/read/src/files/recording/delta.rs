//! The differences of a snapshot from an earlier one of the same recording.
//!
//! Points, lanes, cells and edges are lists in the order of their ids. A delta has the entries that
//! are new or changed, and the ids of removed ones. If a cell's histogram has only grown, the delta
//! has only the buckets that grew.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::snapshot::{
    Bucket, Cell, Clock, Edge, Heap, Lane, Losses, Point, Process, SlowCall, Snapshot,
};
use crate::waits::WaitsReport;

/// The changes from one snapshot to a later one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Delta {
    taken_unix_ns: u64,
    elapsed_ticks: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<Process>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    ages: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    clock: Option<Clock>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    losses: Option<Losses>,
    #[serde(default, skip_serializing_if = "ListDelta::is_nothing")]
    points: ListDelta<Point, u32>,
    #[serde(default, skip_serializing_if = "ListDelta::is_nothing")]
    lanes: ListDelta<Lane, u32>,
    #[serde(default, skip_serializing_if = "ListDelta::is_nothing")]
    cells: CellChanges,
    /// Cells with their present figures; their histograms lack unchanged buckets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    grown: Vec<Cell>,
    #[serde(default, skip_serializing_if = "ListDelta::is_nothing")]
    edges: ListDelta<Edge, (u32, Option<u32>, u32)>,
    /// The present report. `None` if it is the key's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    waits: Option<Arc<WaitsReport>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heap: Option<Heap>,
    #[serde(default, skip_serializing_if = "ListDelta::is_nothing")]
    slow: ListDelta<Arc<SlowCall>, (u32, u64)>,
    #[serde(default)]
    slow_dropped: u64,
    /// Whether only the key has a report.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    has_no_waits: bool,
}

/// Changes of the cells, by point and lane.
type CellChanges = ListDelta<Arc<Cell>, (u32, u32)>;

/// The changes of a list.
#[derive(Debug, Serialize, Deserialize)]
struct ListDelta<T, K> {
    /// New and changed entries, with their present values.
    now: Vec<T>,
    /// Ids of removed entries.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    gone: Vec<K>,
}

impl<T, K> Default for ListDelta<T, K> {
    fn default() -> Self {
        Self { now: Vec::new(), gone: Vec::new() }
    }
}

impl<T: Clone, K: Ord + Hash + Copy> ListDelta<T, K> {
    /// The differences of two lists, both in the order of `key`.
    fn between(old: &[T], new: &[T], key: impl Fn(&T) -> K, same: impl Fn(&T, &T) -> bool) -> Self {
        let mut changes = Self::default();
        let mut old = old.iter().peekable();
        for item in new {
            while let Some(gone) = old.next_if(|old| key(old) < key(item)) {
                changes.gone.push(key(gone));
            }
            if old.next_if(|old| key(old) == key(item)).is_none_or(|old| !same(old, item)) {
                changes.now.push(item.clone());
            }
        }
        changes.gone.extend(old.map(key));
        changes
    }

    /// The list after the changes, in the order of `key`.
    fn apply(self, old: &[T], key: impl Fn(&T) -> K) -> Vec<T> {
        let replaced = self.now.iter().map(&key);
        let without: HashSet<K> = self.gone.into_iter().chain(replaced).collect();
        let kept = old.iter().filter(|item| !without.contains(&key(item))).cloned();
        let mut list: Vec<T> = kept.chain(self.now).collect();
        list.sort_by_key(key);
        list
    }
}

impl<T, K> ListDelta<T, K> {
    fn is_nothing(&self) -> bool {
        self.now.is_empty() && self.gone.is_empty()
    }
}

impl Delta {
    /// The differences of `now` from `key`, without the records.
    pub(super) fn between(key: &Snapshot, now: &Snapshot) -> Self {
        let (cells, grown) = changed_cells(key, &now.cells);
        Self {
            taken_unix_ns: now.taken_unix_ns,
            elapsed_ticks: now.elapsed_ticks,
            process: (key.process != now.process).then(|| now.process.clone()),
            ages: now.ages.clone(),
            clock: (key.clock != now.clock).then(|| now.clock.clone()),
            losses: (key.losses != now.losses).then(|| now.losses.clone()),
            points: ListDelta::between(&key.points, &now.points, |point| point.id, Point::eq),
            lanes: ListDelta::between(&key.lanes, &now.lanes, |lane| lane.id, Lane::eq),
            cells,
            grown,
            edges: ListDelta::between(&key.edges, &now.edges, Edge::key, Edge::eq),
            waits: now
                .waits
                .clone()
                .filter(|now| key.waits.as_ref().is_none_or(|it| !it.is_same(now))),
            heap: now.heap,
            slow_dropped: now.slow_dropped,
            slow: ListDelta::between(
                &key.slow,
                &now.slow,
                |call| call.key(),
                |old, new| Arc::ptr_eq(old, new) || old == new,
            ),
            has_no_waits: key.waits.is_some() && now.waits.is_none(),
        }
    }

    /// Applies the delta to the key, which restores the original snapshot.
    pub(super) fn apply(self, key: &Snapshot) -> Snapshot {
        let mut cells = self.cells;
        for mut cell in self.grown {
            if let Some(before) = key.cell(cell.point, cell.lane) {
                cell.histogram = merged_buckets(&before.histogram, &cell.histogram);
            }
            cells.now.push(Arc::new(cell));
        }
        Snapshot {
            format: key.format.clone(),
            version: key.version,
            taken_unix_ns: self.taken_unix_ns,
            elapsed_ticks: self.elapsed_ticks,
            process: self.process.unwrap_or_else(|| key.process.clone()),
            ages: self.ages,
            clock: self.clock.unwrap_or_else(|| key.clock.clone()),
            points: self.points.apply(&key.points, |point| point.id),
            lanes: self.lanes.apply(&key.lanes, |lane| lane.id),
            cells: cells.apply(&key.cells, |cell| cell.key()),
            edges: self.edges.apply(&key.edges, Edge::key),
            losses: self.losses.unwrap_or_else(|| key.losses.clone()),
            waits: self.waits.or_else(|| key.waits.clone()).filter(|_| !self.has_no_waits),
            heap: self.heap,
            slow_dropped: self.slow_dropped,
            slow: self.slow.apply(&key.slow, |call| call.key()),
            ..Snapshot::default()
        }
    }
}

/// The changed cells: whole cells and the ids of removed ones, and cells that have only grown.
fn changed_cells(old: &Snapshot, new: &[Arc<Cell>]) -> (CellChanges, Vec<Cell>) {
    // Both snapshots share unchanged cells, and most are unchanged.
    let same = |old: &Arc<Cell>, new: &Arc<Cell>| Arc::ptr_eq(old, new) || old == new;
    let mut changes = ListDelta::between(&old.cells, new, |cell| cell.key(), same);
    let mut grown = Vec::new();
    changes.now.retain(|cell| {
        let before = old.cell(cell.point, cell.lane);
        let histogram = before.and_then(|it| grown_buckets(&it.histogram, &cell.histogram));
        let Some(histogram) = histogram else { return true };
        grown.push(Cell {
            point: cell.point,
            lane: cell.lane,
            stats: cell.stats.clone(),
            retired: cell.retired.clone(),
            histogram,
            tuples: cell.tuples.clone(),
            allocs: cell.allocs,
            heap: cell.heap,
        });
        false
    });
    (changes, grown)
}

/// The buckets that are new or have grown. `None` if a bucket has disappeared, as after a reset.
pub fn grown_buckets(old: &[Bucket], new: &[Bucket]) -> Option<Vec<Bucket>> {
    let mut old = old.iter().peekable();
    let mut grown = Vec::new();
    for bucket in new {
        match old.next_if(|old| old.low <= bucket.low) {
            Some(before) if before.low < bucket.low => return None,
            Some(before) if before == bucket => {}
            _ => grown.push(*bucket),
        }
    }
    old.peek().is_none().then_some(grown)
}

/// The buckets of `old` and `grown` together. If both have a bucket with the same least value, the
/// bucket of `grown` is used.
pub fn merged_buckets(old: &[Bucket], grown: &[Bucket]) -> Vec<Bucket> {
    let replaced = |bucket: &&Bucket| grown.binary_search_by_key(&bucket.low, |b| b.low).is_err();
    let mut all: Vec<Bucket> = old.iter().filter(replaced).chain(grown).copied().collect();
    all.sort_by_key(|bucket| bucket.low);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    #[test]
    fn a_report_of_waits_is_written_once_and_can_be_missing() {
        let report = |number| Some(Arc::new(WaitsReport { number, ..WaitsReport::default() }));
        let mut source = Synthetic::new();
        let [mut key, mut now] = [(); 2].map(|()| source.poll().expect("it can be read"));
        now.records.clear();
        for (first, second, is_written) in [
            (report(1), report(1), false),
            (report(1), report(2), true),
            (None, report(1), true),
            (report(1), None, false),
            (None, None, false),
        ] {
            (key.waits, now.waits) = (first, second);
            let text = serde_json::to_string(&Delta::between(&key, &now)).expect("it has text");
            assert_eq!(text.contains("\"waits\":"), is_written, "{text}");
            let delta: Delta = serde_json::from_str(&text).expect("it is a delta");
            assert_eq!(delta.apply(&key).waits, now.waits);
        }
    }
}
