//! Sums over threads: what the table of points shows, in a hundredth of the bytes.
//!
//! ```text
//! all     a cell for each point and thread, a histogram in each; edges
//! summed  a cell for each point and process, with a histogram or three quantiles;
//!         what open regions have of their own
//! ```
//!
//! Points with amounts and parallel regions keep their cells, since the table shows more of them
//! than sums.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::open::open_regions;
use super::{BUCKETS_AT_ONCE, histogram, total};
use crate::snapshot::{Cell, Extent, LaneKind, OPENMP, Point, Snapshot, Summed};

/// Makes sums of one snapshot after the other.
#[derive(Default)]
pub(crate) struct Summing {
    known: HashMap<u32, Known>,
    extent: Extent,
    /// The points whose quantiles are worked out first next time, from this id on.
    next: u32,
}

/// What was made of a point's cells.
#[derive(Default)]
struct Known {
    from: Vec<Arc<Cell>>,
    sums: Vec<Arc<Cell>>,
    quantiles: Option<[u64; 3]>,
    /// The quantiles are from an earlier snapshot.
    is_late: bool,
}

impl Summing {
    /// Makes a snapshot of sums to this extent. Where many points change at once, some keep the
    /// quantiles of the snapshot before, and get theirs with the next.
    pub(crate) fn sum(&mut self, snapshot: &Snapshot, extent: Extent) -> Snapshot {
        if self.extent != extent {
            *self = Self { extent, ..Self::default() };
        }
        let mut cells = Vec::new();
        let mut rest = snapshot.cells.as_slice();
        self.known
            .retain(|id, _| snapshot.points.binary_search_by_key(id, |point| point.id).is_ok());
        for point in &snapshot.points {
            let before = rest.partition_point(|cell| cell.point < point.id);
            let of_point = rest[before..].partition_point(|cell| cell.point == point.id);
            let (own, behind) = rest[before..].split_at(of_point);
            rest = behind;
            let known = self.known.entry(point.id).or_default();
            let is_same = known.from.len() == own.len()
                && known.from.iter().zip(own).all(|(old, new)| Arc::ptr_eq(old, new));
            if !is_same {
                known.from = own.to_vec();
                known.sums = sums(snapshot, point, own, extent);
                known.is_late = true;
            }
            cells.extend(known.sums.iter().cloned());
        }
        if extent == Extent::Sums {
            self.work_out_quantiles(&snapshot.points);
        }
        let quantiles: BTreeMap<_, _> =
            self.known.iter().filter_map(|(id, known)| Some((*id, known.quantiles?))).collect();
        let mut open: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for region in open_regions(snapshot) {
            open.entry(region.lane).or_default().push(region.told());
        }
        Snapshot {
            cells,
            edges: Vec::new(),
            records: Vec::new(),
            summed: Some(Arc::new(Summed { quantiles, open })),
            format: snapshot.format.clone(),
            version: snapshot.version,
            taken_unix_ns: snapshot.taken_unix_ns,
            elapsed_ticks: snapshot.elapsed_ticks,
            process: snapshot.process.clone(),
            clock: snapshot.clock.clone(),
            points: snapshot.points.clone(),
            lanes: snapshot.lanes.clone(),
            losses: snapshot.losses.clone(),
            usage: snapshot.usage,
        }
    }

    /// Works out the quantiles of as many points as a few milliseconds allow, in turn.
    fn work_out_quantiles(&mut self, points: &[Point]) {
        let first = points.partition_point(|point| point.id < self.next);
        let mut left = BUCKETS_AT_ONCE;
        for point in points[first..].iter().chain(&points[..first]) {
            let Some(known) = self.known.get_mut(&point.id).filter(|known| known.is_late) else {
                continue;
            };
            if left == 0 {
                self.next = point.id;
                return;
            }
            let buckets = || known.from.iter().flat_map(|cell| &cell.histogram);
            left = left.saturating_sub(buckets().count());
            let total = total(known.from.iter().map(Arc::as_ref));
            known.quantiles =
                histogram::quantiles(buckets(), (total.min, total.max), [0.5, 0.9, 0.99]);
            known.is_late = false;
        }
    }
}

/// The cells of a point, summed over the threads of each process.
fn sums(snapshot: &Snapshot, point: &Point, cells: &[Arc<Cell>], extent: Extent) -> Vec<Arc<Cell>> {
    let has_histograms = extent == Extent::Histograms;
    let lane = |cell: &Cell| {
        let place = snapshot.lanes.binary_search_by_key(&cell.lane, |lane| lane.id).ok()?;
        Some(&snapshot.lanes[place])
    };
    let tells_more =
        point.domain() == Some(OPENMP) || cells.iter().any(|cell| !cell.variants.is_empty());
    if tells_more && has_histograms {
        return cells.to_vec();
    }
    if tells_more {
        let without =
            |cell: &Arc<Cell>| Arc::new(Cell { histogram: Vec::new(), ..Cell::clone(cell) });
        return cells.iter().map(without).collect();
    }
    let mut of_processes: BTreeMap<Option<u32>, Vec<&Cell>> = BTreeMap::new();
    for cell in cells {
        let process = lane(cell).and_then(|lane| lane.process);
        of_processes.entry(process).or_default().push(cell);
    }
    let sum = |cells: Vec<&Cell>| {
        // The table marks points that were on a shared lane.
        let is_shared =
            |cell: &&&Cell| lane(cell).is_some_and(|lane| lane.kind == LaneKind::Overflow);
        let lane = cells.iter().find(is_shared).or(cells.first()).map_or(0, |cell| cell.lane);
        let histogram = match has_histograms {
            true => histogram::merge(cells.iter().map(|cell| cell.histogram.as_slice())),
            false => Vec::new(),
        };
        let (stats, point) = (total(cells.into_iter()), point.id);
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

    /// What the table shows of a point: sums, quantiles, rate and load.
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
            let summed = summing.sum(&snapshot, extent);
            let quantiles = &summed.summed.as_ref().unwrap().quantiles;
            assert_eq!(quantiles.is_empty(), has_histograms);
            let empty = |cell: &&Arc<Cell>| cell.histogram.is_empty() && cell.stats.count > 0;
            assert_eq!(summed.cells.iter().filter(empty).count() == 0, has_histograms);
            assert!(summed.edges.is_empty() && summed.cells.len() <= snapshot.points.len());
            assert!(summed.cells.is_sorted_by_key(|cell| (cell.point, cell.lane)));
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
                summing.sum(&snapshot, Extent::Sums)
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
