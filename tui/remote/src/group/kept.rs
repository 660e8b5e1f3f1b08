//! The last picture of a process that has died; the group keeps it in place of its source.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};

use super::merge::renumbered;
use super::{ENDED, GroupMember};
use pfp_read::snapshot::{Cell, Edge, Snapshot};
use pfp_read::source::Source;

/// Replaces the source of a process that has died. The group itself holds the last picture.
pub(super) struct DeadSource;

impl Source for DeadSource {
    fn picture(&mut self) -> Result<Snapshot> {
        bail!(ENDED)
    }

    fn is_process(&self) -> bool {
        false
    }
}

impl GroupMember {
    /// Drops the source, and renumbers the last picture with the group's ids. So the group passes
    /// on the picture's own cells, without renumbered copies. In a sum of processes, the memory of
    /// this one no longer counts as alive.
    pub(super) fn keep(&mut self, is_of_sum: bool) {
        self.source = Box::new(DeadSource);
        self.is_kept = true;
        let Self { last, points, lanes, cells, .. } = self;
        if is_of_sum {
            last.cells.iter_mut().for_each(|cell| *cell = cell.without_live());
        }
        let is_known = last.points.iter().all(|point| points.contains_key(&point.id))
            && last.lanes.iter().all(|lane| lanes.contains_key(&lane.id));
        // If the picture was never merged, the group has no ids for its points and lanes.
        if !is_known {
            return;
        }
        let slow = last.slow.iter().filter_map(|call| renumbered(call, [points, lanes], 0));
        last.slow = slow.map(Arc::new).collect();
        for point in &mut last.points {
            point.number.get_or_insert(point.id);
            point.id = points[&point.id];
        }
        for lane in &mut last.lanes {
            lane.id = lanes[&lane.id];
            lane.open.retain_mut(|open| renumber(points, &mut open.point));
        }
        last.edges.retain_mut(|edge| {
            renumber(points, &mut edge.point)
                && renumber(lanes, &mut edge.lane)
                && edge.caller.as_mut().is_none_or(|caller| renumber(points, caller))
        });
        last.records.retain_mut(|record| {
            renumber(points, &mut record.point) && renumber(lanes, &mut record.lane)
        });
        last.cells.retain_mut(|cell| {
            let (Some(point), Some(lane)) = (points.get(&cell.point), lanes.get(&cell.lane)) else {
                return false;
            };
            let passed = cells.remove(&(*point, *lane)).filter(|it| Arc::ptr_eq(&it[0], cell));
            *cell = match passed {
                Some([_, passed]) => passed,
                None => Arc::new(Cell { point: *point, lane: *lane, ..Cell::clone(cell) }),
            };
            true
        });
        last.points.sort_by_key(|point| point.id);
        last.lanes.sort_by_key(|lane| lane.id);
        last.cells.sort_by_key(|cell| cell.key());
        last.edges.sort_by_key(Edge::key);
        let same = |ids: &HashMap<u32, u32>| ids.values().map(|id| (*id, *id)).collect();
        (*points, *lanes) = (same(points), same(lanes));
        cells.clear();
        self.names = HashMap::new();
    }
}

/// Replaces an id by the group's; returns false if the group does not know it.
fn renumber(ids: &HashMap<u32, u32>, id: &mut u32) -> bool {
    ids.get(id).map(|known| *id = *known).is_some()
}
