//! Sums for a remote viewer: the figures in the table of points, in a hundredth of the bytes.
//!
//! ```text
//! all     a cell for each point and thread, a histogram in each; edges
//! summed  a cell for each point and process, with a histogram or three quantiles;
//!         the exclusive time of open regions
//! ```
//!
//! A point that a screen shows by itself keeps all its parts. A point that does not pass the filter
//! keeps only the figures for its load, since the lines above the table are about all points.
//! Points with amounts and parallel regions keep their cells, since the table shows more of them
//! than sums.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::model::{BUCKETS_AT_ONCE, PointRow, histogram, open_regions};
use crate::snapshot::{
    Cell, Edge, Extent, LaneKind, OPENMP, Point, Snapshot, Stats, Summed, total,
};

/// The parts of a snapshot that a viewer needs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SnapshotScope {
    /// The figures that are needed of each point that passes `filter`.
    pub extent: Extent,
    /// The points that are needed in this extent. For other points, the figures for their loads
    /// suffice.
    pub filter: Filter,
    /// Whether the figures of these points are needed thread by thread.
    pub by_thread: bool,
    /// Ids of points that are needed whole, whether they pass the filter or not.
    pub whole: BTreeSet<u32>,
}

/// The extent of a point in a snapshot of sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PointExtent {
    #[default]
    Load,
    Sum {
        histogram: bool,
    },
    Threads {
        histogram: bool,
    },
    Whole,
}

/// Makes sums of successive snapshots.
#[derive(Default)]
pub(crate) struct Summing {
    known: HashMap<u32, PointSums>,
    /// The first point whose quantiles are computed next time.
    next: u32,
}

/// The sums of a point's cells.
#[derive(Default)]
struct PointSums {
    /// The cells that were summed. If the next snapshot has the same ones, the sums are reused.
    from: Vec<Arc<Cell>>,
    shown: PointExtent,
    sums: Vec<Arc<Cell>>,
    quantiles: Option<[u64; 3]>,
    /// Whether the quantiles are from an earlier snapshot.
    is_late: bool,
}

impl SnapshotScope {
    fn shows(&self, row: PointRow) -> PointExtent {
        let histogram = self.extent == Extent::Histograms;
        let tells_more = row.point.domain() == Some(OPENMP)
            || row.cells.iter().any(|cell| !cell.tuples.is_empty());
        match self.extent {
            _ if self.whole.contains(&row.point.id) => PointExtent::Whole,
            Extent::All => PointExtent::Whole,
            Extent::Loads => PointExtent::Load,
            _ if self.filter.is_on() && !self.filter.admits_row(row) => PointExtent::Load,
            Extent::Threads => PointExtent::Threads { histogram: false },
            _ if self.by_thread || tells_more => PointExtent::Threads { histogram },
            Extent::Histograms | Extent::Sums => PointExtent::Sum { histogram },
        }
    }
}

impl Summing {
    /// Makes a snapshot with the parts in `sight`. If many points change at once, some keep the
    /// quantiles of the previous snapshot until a later one.
    pub(crate) fn sum(&mut self, snapshot: &Snapshot, sight: &SnapshotScope) -> Snapshot {
        let mut cells = Vec::new();
        let mut rest = snapshot.cells.as_slice();
        self.known.retain(|id, _| snapshot.point(*id).is_some());
        for point in &snapshot.points {
            let before = rest.partition_point(|cell| cell.point < point.id);
            let of_point = rest[before..].partition_point(|cell| cell.point == point.id);
            let (own, behind) = rest[before..].split_at(of_point);
            rest = behind;
            let known = self.known.entry(point.id).or_default();
            let shown = sight.shows(PointRow { snapshot, point, cells: own });
            let is_same = known.from.len() == own.len()
                && known.from.iter().zip(own).all(|(old, new)| Arc::ptr_eq(old, new));
            if !is_same {
                known.from = own.to_vec();
                known.is_late = true;
            }
            if !is_same || shown != known.shown {
                known.shown = shown;
                known.sums = sums(snapshot, point, own, shown);
            }
            cells.extend(known.sums.iter().cloned());
        }
        if sight.extent == Extent::Sums {
            self.work_out_quantiles(&snapshot.points);
        }
        let ids = |is_it: fn(PointExtent) -> bool| -> BTreeSet<u32> {
            self.known.iter().filter(|(_, known)| is_it(known.shown)).map(|(id, _)| *id).collect()
        };
        let has_quantiles =
            |known: &PointSums| sight.extent == Extent::Sums && known.shown != PointExtent::Load;
        let quantiles = self.known.iter().filter(|(_, known)| has_quantiles(known));
        let mut open: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for region in open_regions(snapshot) {
            open.entry(region.lane).or_default().push(region.told());
        }
        let whole = ids(|shown| shown == PointExtent::Whole);
        let is_looked_at = |edge: &&Edge| {
            whole.contains(&edge.point) || edge.caller.is_some_and(|it| whole.contains(&it))
        };
        let edges = snapshot.edges.iter().filter(is_looked_at).copied().collect();
        let summed = Summed {
            has_rows: matches!(sight.extent, Extent::Sums | Extent::Histograms),
            quantiles: quantiles.filter_map(|(id, known)| Some((*id, known.quantiles?))).collect(),
            open,
            by_thread: ids(|shown| {
                matches!(shown, PointExtent::Threads { .. } | PointExtent::Whole)
            }),
            whole,
            left_out: ids(|shown| shown == PointExtent::Load),
        };
        Snapshot { cells, edges, summed: Some(Arc::new(summed)), ..snapshot.without_measurements() }
    }

    /// Computes the quantiles of as many points as a few milliseconds allow, in rotation.
    fn work_out_quantiles(&mut self, points: &[Point]) {
        let first = points.partition_point(|point| point.id < self.next);
        let mut left = BUCKETS_AT_ONCE;
        for point in points[first..].iter().chain(&points[..first]) {
            let Some(known) = self.known.get_mut(&point.id) else { continue };
            if !known.is_late || known.shown == PointExtent::Load {
                continue;
            };
            if left == 0 {
                self.next = point.id;
                return;
            }
            let buckets = || known.from.iter().flat_map(|cell| &cell.histogram);
            left = left.saturating_sub(buckets().count());
            let total = total(&known.from);
            known.quantiles =
                histogram::quantiles(buckets(), (total.min, total.max), [0.5, 0.9, 0.99]);
            known.is_late = false;
        }
    }
}

/// The cells of a point, with only what `shown` asks for: all, no histograms, or sums.
fn sums(
    snapshot: &Snapshot,
    point: &Point,
    cells: &[Arc<Cell>],
    shown: PointExtent,
) -> Vec<Arc<Cell>> {
    let lane = |cell: &Cell| snapshot.lane(cell.lane);
    let histogram = match shown {
        PointExtent::Whole | PointExtent::Threads { histogram: true } => return cells.to_vec(),
        PointExtent::Threads { histogram: false } => {
            let without =
                |cell: &Arc<Cell>| Arc::new(Cell { histogram: Vec::new(), ..Cell::clone(cell) });
            return cells.iter().map(without).collect();
        }
        PointExtent::Sum { histogram } => histogram,
        PointExtent::Load => false,
    };
    let mut of_processes: BTreeMap<Option<u32>, Vec<&Arc<Cell>>> = BTreeMap::new();
    for cell in cells {
        let process = lane(cell).and_then(|lane| lane.process);
        of_processes.entry(process).or_default().push(cell);
    }
    let sum = |cells: Vec<&Arc<Cell>>| {
        // The table marks points that were measured on a shared lane.
        let is_shared =
            |cell: &&&Arc<Cell>| lane(cell).is_some_and(|lane| lane.kind == LaneKind::Overflow);
        let lane = cells.iter().find(is_shared).or(cells.first()).map_or(0, |cell| cell.lane);
        let histogram = match histogram {
            true => histogram::merge(cells.iter().map(|cell| cell.histogram.as_slice())),
            false => Vec::new(),
        };
        let (mut stats, point) = (total(cells), point.id);
        if shown == PointExtent::Load {
            let Stats { count, exclusive, .. } = stats;
            stats = Stats { count, exclusive, ..Stats::default() };
        }
        Arc::new(Cell { point, lane, stats, histogram, ..Cell::default() })
    };
    let mut sums: Vec<_> = of_processes.into_values().map(sum).collect();
    sums.sort_by_key(|cell| cell.lane);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Model;
    use crate::snapshot::Stats;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    /// The figures in a row of the table: sums, quantiles, rate and load.
    type Row = (u32, Stats, Option<[u64; 3]>, [Option<f64>; 2]);

    fn shown(model: &Model) -> Vec<Row> {
        let of_point = |figures: &crate::model::Figures| {
            let quantiles = figures.quantiles().map(|it| [it.p50, it.p90, it.p99]);
            (figures.id(), figures.total().clone(), quantiles, [figures.rate(), figures.load()])
        };
        model.points().iter().map(of_point).collect()
    }

    #[test]
    fn the_table_is_the_same() {
        let (mut source, mut summing) = (Synthetic::new(), Summing::default());
        let (mut all, mut of_sums) = (Model::default(), Model::default());
        for poll in 0..6 {
            let snapshot = source.poll().unwrap();
            let has_histograms = poll > 2;
            let extent = if has_histograms { Extent::Histograms } else { Extent::Sums };
            let summed =
                summing.sum(&snapshot, &SnapshotScope { extent, ..SnapshotScope::default() });
            let quantiles = &summed.summed.as_ref().unwrap().quantiles;
            assert_eq!(quantiles.is_empty(), has_histograms);
            let empty = |cell: &&Arc<Cell>| cell.histogram.is_empty() && cell.stats.count > 0;
            assert_eq!(summed.cells.iter().filter(empty).count() == 0, has_histograms);
            assert!(summed.edges.is_empty() && summed.cells.len() <= snapshot.points.len());
            assert!(summed.cells.is_sorted_by_key(|cell| cell.key()));
            all.fold(snapshot);
            of_sums.fold(summed);
            assert_eq!(shown(&all), shown(&of_sums), "poll {poll}");
            assert_eq!(all.open_regions(), of_sums.open_regions());
        }
    }

    #[test]
    fn threads_go_on_when_all_is_there_again() {
        let (mut source, mut summing) = (Synthetic::new(), Summing::default());
        let (mut all, mut at_times) = (Model::default(), Model::default());
        for poll in 0..6 {
            let snapshot = source.poll().unwrap();
            let is_summed = (2..4).contains(&poll);
            at_times.fold(if is_summed {
                summing.sum(
                    &snapshot,
                    &SnapshotScope { extent: Extent::Sums, ..SnapshotScope::default() },
                )
            } else {
                snapshot.clone()
            });
            all.fold(snapshot);
            assert_eq!(shown(&all), shown(&at_times), "poll {poll}");
            let loads = |model: &Model| -> Vec<Option<f64>> {
                model.thread_figures().iter().map(|thread| thread.load).collect()
            };
            let most = |model: &Model| loads(model).into_iter().flatten().fold(0.0, f64::max);
            assert!(
                most(&at_times) <= 1.5 * most(&all),
                "{:?} {:?}",
                loads(&at_times),
                loads(&all)
            );
        }
    }
}
