//! Sums that continue across resets of points, for readers that must never see a counter decrease.
//!
//! ```text
//! count in the segment   0 ... 900 | reset | 0 ... 300
//! count here             0 ... 900 |       | 900 ... 1200
//! ```
//!
//! Measurements between the last snapshot and the reset are lost. Extremes cover all measurements;
//! the last value and the average cover the measurements since the reset.

use std::collections::HashMap;
use std::sync::Arc;

use super::histogram;
use pfp_read::snapshot::{Cell, Snapshot};

/// The figures that resets of one process's points have discarded.
#[derive(Debug, Default)]
pub struct Lifetime {
    cells: HashMap<(u32, u32), Life>,
    /// By a point's id: its number of resets in the first snapshot that had the point, and the time
    /// of the last reset before that snapshot. Extended snapshots keep showing these two values.
    first: HashMap<u32, (u32, Option<u64>)>,
    snapshots: u64,
}

/// A cell, and its figures from before resets.
#[derive(Debug)]
struct Life {
    /// Number of resets of its point that `before` accounts for.
    resets: u32,
    /// Number of the snapshot that last had the cell.
    seen: u64,
    last: Arc<Cell>,
    /// The sums from before resets, stored as retired figures. `None` before the first reset.
    before: Option<Box<Cell>>,
}

impl Lifetime {
    /// Adds the figures that resets have discarded since the first call, as if the resets had not
    /// happened. Call this with successive snapshots of one process.
    pub fn extend(&mut self, mut snapshot: Snapshot) -> Snapshot {
        self.snapshots += 1;
        let mut resets = HashMap::new();
        for point in &mut snapshot.points {
            resets.insert(point.id, point.resets);
            let now = (point.resets, point.since_ticks);
            (point.resets, point.since_ticks) = *self.first.entry(point.id).or_insert(now);
        }
        let of = |point: u32| resets.get(&point).copied().unwrap_or(0);
        for cell in &mut snapshot.cells {
            let life = self.cells.entry(cell.key()).or_insert_with(|| Life {
                resets: of(cell.point),
                seen: 0,
                last: Arc::clone(cell),
                before: None,
            });
            life.seen = self.snapshots;
            life.take(cell, of(cell.point));
            *cell = life.whole();
        }
        // A cell that was just reset is empty, and missing from the snapshot.
        for ((point, lane), life) in &mut self.cells {
            if life.seen != self.snapshots {
                life.seen = self.snapshots;
                let empty = Cell { point: *point, lane: *lane, ..Cell::default() };
                life.take(&Arc::new(empty), of(*point));
                snapshot.cells.push(life.whole());
            }
        }
        snapshot.cells.sort_unstable_by_key(|cell| cell.key());
        snapshot
    }
}

impl Life {
    fn take(&mut self, now: &Arc<Cell>, resets: u32) {
        let count = |cell: &Cell| cell.stats.count.saturating_add(cell.retired.count);
        let shrunk = count(now) < count(&self.last);
        if shrunk || resets != self.resets {
            // A reset may happen between reading the points and reading the cells. In that case,
            // the cells show the reset now, and the points show it in the next snapshot, where it
            // must not be counted again.
            let early = shrunk && resets == self.resets;
            self.resets = if early { resets.wrapping_add(1) } else { resets };
            let whole = self.whole();
            let (retired, histogram) = (whole.total(), whole.histogram.clone());
            // No reset clears live memory, so the present cell has it.
            let (allocs, heap) = (whole.allocs, whole.heap.without_live());
            let before = Cell { retired, histogram, allocs, heap, ..Cell::default() };
            self.before = Some(Box::new(before));
        }
        self.last = Arc::clone(now);
    }

    fn whole(&self) -> Arc<Cell> {
        let Some(before) = &self.before else { return Arc::clone(&self.last) };
        Arc::new(Cell {
            retired: [&before.retired, &self.last.retired].into_iter().sum(),
            histogram: histogram::merge([before.histogram.as_slice(), &self.last.histogram]),
            allocs: before.allocs.plus(&self.last.allocs),
            heap: before.heap.plus(&self.last.heap),
            ..Cell::clone(&self.last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::snapshot::total;
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::source::{Change, Source};

    const POINT: u32 = 1;

    fn sums(snapshot: &Snapshot, point: u32) -> [u64; 6] {
        let cells = snapshot.cells_of(point);
        let sum = total(cells);
        let counted = cells.iter().flat_map(|cell| &cell.histogram).map(|b| b.count).sum();
        [sum.count, sum.exclusive, sum.inclusive, sum.off_cpu, sum.switches, counted]
    }

    fn plus(a: [u64; 6], b: [u64; 6]) -> [u64; 6] {
        std::array::from_fn(|place| a[place] + b[place])
    }

    #[test]
    fn sums_continue_across_resets() {
        let (mut source, mut life) = (Synthetic::new(), Lifetime::default());
        let first = source.poll().unwrap();
        assert_eq!(life.extend(first.clone()), first);
        let before = sums(&first, POINT);
        assert!(before[0] > 0 && before[3] > 0);
        source.act(Change::Reset(POINT)).unwrap();
        let second = source.poll().unwrap();
        let extended = life.extend(second.clone());
        let expected = plus(before, sums(&second, POINT));
        assert_eq!(sums(&extended, POINT), expected);
        assert_eq!(extended.points[POINT as usize].resets, 0);
        // Other points are unchanged, and so is a snapshot without new figures.
        assert_eq!(sums(&extended, 2), sums(&second, 2));
        assert_eq!(sums(&life.extend(second.clone()), POINT), expected);
        source.act(Change::Reset(POINT)).unwrap();
        let third = source.poll().unwrap();
        let extended = life.extend(third.clone());
        assert_eq!(sums(&extended, POINT), plus(expected, sums(&third, POINT)));
        assert!(extended.cells.is_sorted_by_key(|cell| (cell.point, cell.lane)));
    }

    #[test]
    fn allocations_continue_across_resets_and_live_memory_counts_once() {
        let (mut source, mut life) = (Synthetic::new(), Lifetime::default());
        let mut polled = |allocs: u64, reset: bool| {
            if reset {
                source.act(Change::Reset(POINT)).unwrap();
            }
            let mut snapshot = source.poll().unwrap();
            let place = snapshot.cells.iter().position(|cell| cell.point == POINT).unwrap();
            let cell = Arc::make_mut(&mut snapshot.cells[place]);
            cell.allocs.allocs = allocs;
            (cell.heap.live_bytes, cell.heap.live_samples) = (700, 2);
            let Cell { allocs, heap, .. } = *life.extend(snapshot).cells_of(POINT)[0];
            (allocs.allocs, heap.live_bytes, heap.live_samples)
        };
        assert_eq!(polled(30, false), (30, 700, 2));
        assert_eq!(polled(4, true), (34, 700, 2));
        assert_eq!(polled(5, false), (35, 700, 2));
        assert_eq!(polled(0, true), (35, 700, 2));
    }

    #[test]
    fn a_reset_while_the_snapshot_is_taken_counts_once() {
        let (mut source, mut life) = (Synthetic::new(), Lifetime::default());
        let first = source.poll().unwrap();
        life.extend(first.clone());
        let before = sums(&first, POINT);
        // The point was read before the reset, its cells after it.
        let mut torn = first.clone();
        torn.cells.retain(|cell| cell.point != POINT);
        assert_eq!(sums(&life.extend(torn), POINT), before);
        source.act(Change::Reset(POINT)).unwrap();
        let second = source.poll().unwrap();
        let extended = life.extend(second.clone());
        assert_eq!(sums(&extended, POINT), plus(before, sums(&second, POINT)));
    }

    #[test]
    fn a_reset_is_recognised_even_if_the_count_grew() {
        let (mut source, mut life) = (Synthetic::new(), Lifetime::default());
        let first = source.poll().unwrap();
        life.extend(first.clone());
        source.act(Change::Reset(POINT)).unwrap();
        for _ in 0..3 {
            source.poll().unwrap();
        }
        let later = source.poll().unwrap();
        assert!(sums(&later, POINT)[0] > sums(&first, POINT)[0]);
        let expected = plus(sums(&first, POINT), sums(&later, POINT));
        assert_eq!(sums(&life.extend(later), POINT), expected);
    }
}
