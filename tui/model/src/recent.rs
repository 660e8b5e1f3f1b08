//! The recent measurements of all points of a process.
//!
//! A window begins at a stored snapshot. Besides the snapshot that the user has marked, at most two
//! are stored, since a snapshot of a large program takes much memory. So the window of recent
//! measurements is 10 to 20 seconds long, and shorter at first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Model;
use super::between::between;
use super::open::{OpenRegion, grown};
use pfp_read::snapshot::{Cell, Snapshot};

/// Seconds between two snapshots that are stored.
const STEP_SECONDS: f64 = 10.0;

/// The stored snapshots of one process at which windows begin.
#[derive(Debug, Default)]
pub struct Recent {
    kept: VecDeque<RecentSnapshot>,
    mark: Option<RecentSnapshot>,
}

#[derive(Debug)]
struct RecentSnapshot {
    snapshot: Snapshot,
    open: Vec<OpenRegion>,
}

/// The measurements in a window.
#[derive(Debug)]
pub struct RecentWindow {
    /// The sums and edges, without histograms and records.
    pub snapshot: Snapshot,
    /// The regions that are open now. `exclusive` of a region is the growth of its exclusive time
    /// within the window.
    pub open: Vec<OpenRegion>,
    /// Length of the window.
    pub seconds: f64,
}

impl Recent {
    /// Stores the model's snapshot, if the last one was stored at least `STEP_SECONDS` ago.
    pub fn see(&mut self, model: &Model) {
        let Some(now) = model.snapshot() else { return };
        let is_other = |moment: &RecentSnapshot| {
            moment.snapshot.process.segment_id != now.process.segment_id
                || moment.snapshot.elapsed_ticks > now.elapsed_ticks
        };
        if self.kept.front().is_some_and(is_other) {
            *self = Self::default();
        }
        let step = STEP_SECONDS * now.clock.ticks_per_second;
        let is_due = |last: &RecentSnapshot| {
            now.elapsed_ticks.saturating_sub(last.snapshot.elapsed_ticks) as f64 >= step
        };
        if self.kept.back().is_none_or(is_due) {
            self.kept.extend(RecentSnapshot::of(model));
            while self.kept.len() > 2 {
                self.kept.pop_front();
            }
        }
    }

    /// Starts the marked window now.
    pub fn mark(&mut self, model: &Model) {
        self.mark = RecentSnapshot::of(model);
    }

    /// Whether the user has marked a moment.
    pub fn is_marked(&self) -> bool {
        self.mark.is_some()
    }

    /// The measurements since the mark, or in the last 10 to 20 seconds. `None` without an earlier
    /// snapshot.
    pub fn window(&self, model: &Model, since_mark: bool) -> Option<RecentWindow> {
        let from = if since_mark { self.mark.as_ref() } else { self.kept.front() }?;
        let now = RecentSnapshot::of(model)?;
        let snapshot = between(&from.snapshot, now.snapshot)?;
        let grown = grown(&from.open, &now.open, snapshot.elapsed_ticks);
        let mut open = now.open;
        for region in &mut open {
            let place = (region.lane, region.point);
            let known = grown.binary_search_by_key(&place, |(place, _)| *place).ok();
            region.exclusive = known.map(|place| grown[place].1.max(0.0) as u64);
        }
        // If a point is open twice on a thread, count its growth once.
        let mut seen = std::collections::HashSet::new();
        for region in open.iter_mut().rev() {
            if !seen.insert((region.lane, region.point)) {
                region.exclusive = None;
            }
        }
        let seconds = snapshot.elapsed_ticks as f64 / snapshot.clock.ticks_per_second;
        Some(RecentWindow { snapshot, open, seconds })
    }
}

impl RecentSnapshot {
    /// The model's snapshot, without histograms and records. `None` if the model has no snapshot.
    fn of(model: &Model) -> Option<Self> {
        let whole = model.snapshot()?;
        let lean = |cell: &Arc<Cell>| {
            Arc::new(Cell {
                point: cell.point,
                lane: cell.lane,
                stats: cell.stats.clone(),
                retired: cell.retired.clone(),
                allocs: cell.allocs,
                heap: cell.heap,
                ..Cell::default()
            })
        };
        let snapshot = Snapshot {
            cells: whole.cells.iter().map(lean).collect(),
            edges: whole.edges.clone(),
            ..whole.without_measurements()
        };
        Some(Self { snapshot, open: model.open_regions().to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::synthetic::{Synthetic, cell, edge};

    /// A model of a process of this age, with this number of calls of point 1.
    fn model_at(seconds: f64, calls: u64) -> Model {
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.elapsed_ticks = (seconds * snapshot.clock.ticks_per_second) as u64;
        let sums = [calls, 7 * calls, 7 * calls];
        snapshot.cells = vec![cell(1, 0, sums)];
        Arc::make_mut(&mut snapshot.cells[0]).allocs.bytes = 9 * calls;
        snapshot.edges = vec![edge(1, None, 0, sums)];
        let mut model = Model::default();
        model.fold(snapshot);
        model
    }

    fn window(recent: &Recent, model: &Model, since_mark: bool) -> Option<(u64, u64, f64)> {
        let window = recent.window(model, since_mark)?;
        let cell = &window.snapshot.cells[0];
        assert_eq!(cell.allocs.bytes, 9 * cell.stats.count);
        let cells = window.snapshot.cells.iter().map(|cell| cell.stats.count).sum();
        Some((cells, window.snapshot.edges.iter().map(|edge| edge.count).sum(), window.seconds))
    }

    #[test]
    fn the_window_is_ten_to_twenty_seconds_long() {
        let mut recent = Recent::default();
        let mut lengths = Vec::new();
        for second in 0..60 {
            let model = model_at(f64::from(second) + 100.0, 10 * second as u64);
            recent.see(&model);
            if let Some((cells, edges, seconds)) = window(&recent, &model, false) {
                assert_eq!((cells, edges), ((10.0 * seconds) as u64, (10.0 * seconds) as u64));
                lengths.push(seconds);
            }
        }
        assert_eq!(lengths[..3], [1.0, 2.0, 3.0], "none at first");
        assert!(lengths[20..].iter().all(|seconds| (10.0..20.0).contains(seconds)), "{lengths:?}");
    }

    #[test]
    fn a_mark_stays_where_it_was_set() {
        let mut recent = Recent::default();
        assert!(!recent.is_marked());
        recent.mark(&model_at(100.0, 5));
        assert_eq!(window(&recent, &model_at(200.0, 8), true), Some((3, 3, 100.0)));
        assert_eq!(window(&recent, &model_at(100.0, 5), true), None, "no time has passed");
    }

    #[test]
    fn another_process_starts_afresh() {
        let mut recent = Recent::default();
        recent.see(&model_at(100.0, 5));
        let mut other = model_at(200.0, 6).snapshot().unwrap().clone();
        other.process.segment_id = "another".into();
        let mut model = Model::default();
        model.fold(other);
        recent.see(&model);
        assert_eq!(window(&recent, &model, false), None);
        assert_eq!(window(&recent, &model_at(201.0, 6), false), None);
    }
}
