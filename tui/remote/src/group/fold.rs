//! Folds the ended processes of an open sum into one, so that a sum over thousands of short
//! processes takes a bounded amount of memory.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use super::merge::add_point;
use super::{GroupMember, GroupSource};
use pfp_read::snapshot::{Cell, Edge, LaneKind, Point};

/// Maximum number of ended processes with rows of their own.
const APART: usize = 256;
/// Number of the last ended processes that stay apart when older ones are folded. Many are folded
/// at once, since each fold costs about as much as a poll.
const LEFT_APART: usize = 128;

impl GroupSource {
    /// Folds the processes that ended first into the first of them, if there are too many.
    pub(super) fn fold_ended(&mut self) {
        let ended = self.members.iter().filter(|member| member.has_group_ids()).count();
        if !self.wanted.is_open() || !self.wanted.sum || ended <= APART {
            return;
        }
        let mut left = ended - LEFT_APART;
        let (mut folded, mut rest) = (Vec::new(), Vec::new());
        for member in self.members.drain(..) {
            match member.has_group_ids() && left > 0 {
                true => {
                    left -= 1;
                    folded.push(member);
                }
                false => rest.push(member),
            }
        }
        let mut folded = folded.into_iter();
        if let Some(mut whole) = folded.next() {
            if whole.processes == 1 {
                whole.gather();
            }
            for member in folded {
                whole.take_in(&member);
                self.folded.insert(member.segment_id);
            }
            whole.last.cells.sort_by_key(|cell| cell.key());
            whole.last.edges.sort_by_key(Edge::key);
            whole.last.points.sort_by_key(|point| point.id);
            whole.last.process.name = format!("{} ended processes", whole.processes);
            self.members.push(whole);
        }
        self.members.append(&mut rest);
    }
}

impl GroupMember {
    /// Whether the member's process has ended, and its last picture has the ids of the group.
    fn has_group_ids(&self) -> bool {
        let is_same = |point: &Point| self.points.get(&point.id) == Some(&point.id);
        self.is_kept && !self.last.lanes.is_empty() && self.last.points.iter().all(is_same)
    }

    /// Moves all figures of an ended process to the first of its lanes, to which [`Self::take_in`]
    /// adds the figures of other processes.
    fn gather(&mut self) {
        let last = &mut self.last;
        last.lanes.truncate(1);
        last.records.clear();
        self.cells.clear();
        let (cells, edges) = (mem::take(&mut last.cells), mem::take(&mut last.edges));
        if let Some(lane) = last.lanes.first_mut() {
            lane.name = "all threads".to_owned();
            lane.kind = LaneKind::Ended;
            lane.open.clear();
            self.lanes = HashMap::from([(lane.id, lane.id)]);
            self.add_figures(&cells, &edges);
        }
    }

    /// Takes in the figures of another ended process. Both have the ids of the group.
    fn take_in(&mut self, other: &Self) {
        self.processes += other.processes;
        let began = |member: &Self| member.began.unwrap_or_default();
        let later = began(other).saturating_sub(began(self));
        for point in &other.last.points {
            let begin = point.begin_ticks().map(|begin| begin.saturating_add(later));
            match self.last.points.iter_mut().find(|known| known.id == point.id) {
                Some(known) => add_point(known, point, begin, false),
                None => {
                    self.points.insert(point.id, point.id);
                    self.last.points.push(Point { since_ticks: begin, ..point.clone() });
                }
            }
        }
        self.add_figures(&other.last.cells, &other.last.edges);
        self.last.losses.add(&other.last.losses);
        self.last.taken_unix_ns = self.last.taken_unix_ns.max(other.last.taken_unix_ns);
        let age = other.last.elapsed_ticks.saturating_add(later);
        self.last.elapsed_ticks = self.last.elapsed_ticks.max(age);
    }

    fn add_figures(&mut self, cells: &[Arc<Cell>], edges: &[Edge]) {
        let Some(lane) = self.last.lanes.first().map(|lane| lane.id) else { return };
        let mut places: HashMap<u32, usize> =
            self.last.cells.iter().enumerate().map(|(place, cell)| (cell.point, place)).collect();
        for cell in cells {
            let cell = Cell { lane, ..Cell::clone(cell) };
            match places.get(&cell.point) {
                Some(&place) => {
                    let known = &mut self.last.cells[place];
                    *known = Arc::new(known.with(&cell));
                }
                None => {
                    places.insert(cell.point, self.last.cells.len());
                    self.last.cells.push(Arc::new(cell));
                }
            }
        }
        let mut places: HashMap<_, usize> =
            self.last.edges.iter().enumerate().map(|(place, edge)| (edge.key(), place)).collect();
        for edge in edges {
            let edge = Edge { lane, ..*edge };
            match places.get(&edge.key()) {
                Some(&place) => self.last.edges[place].add(&edge),
                None => {
                    places.insert(edge.key(), self.last.edges.len());
                    self.last.edges.push(edge);
                }
            }
        }
    }
}
