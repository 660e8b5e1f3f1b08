//! Exclusive time by call path.
//!
//! The cells know how long each point took on each thread, and the edges how much of that it
//! took inside each of its callers: both exactly. Who called the callers is known in the same
//! way, and not which of their calls called what. So a path's last two frames are exact, and
//! what is further out shares them out as the callers' inclusive times are to each other, as if
//! a point did the same whoever called it. The stack of regions that are open is whole.
//!
//! ```text
//! edges      a > parse 30, b > parse 10, parse > lex 8
//! stacks     a > parse > lex 6, b > parse > lex 2
//! ```
//!
//! A point that calls itself is in a path at most twice: as what the path ends with, and once
//! further out. What no edge tells is called from [`Frame::Others`], and so is what has less
//! than a hundredth of an edge.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Subject;
use crate::model::{OpenRegion, total};
use crate::snapshot::{Cell, Edge, Lane};

/// Frames of a path at most, below its thread.
const DEEPEST: usize = 128;
/// Which part of an edge a path has at least.
const LEAST: u64 = 100;

/// The paths of all threads.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    nodes: Vec<Node>,
    /// Nodes with the exclusive nanoseconds of what they end with.
    pub(super) weights: Vec<(u32, u64)>,
    known: HashMap<(Option<u32>, Frame), u32>,
}

#[derive(Debug)]
struct Node {
    parent: Option<u32>,
    frame: Frame,
}

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Frame {
    /// A thread, by its lane.
    Thread(u32),
    /// A point, by its id.
    Point(u32),
    /// Callers that no edge tells.
    Others,
}

/// The calls of one thread.
#[derive(Default)]
struct Thread<'a> {
    /// By the point inside.
    edges: HashMap<u32, Vec<&'a Edge>>,
    /// The regions that are open, each with what is around it and how long it is open.
    open: Vec<(Option<u32>, u32, u64)>,
    /// Inclusive ticks of points.
    inclusive: HashMap<u32, u64>,
}

impl Stacks {
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let snapshot = subject.snapshot();
        let mut threads: HashMap<u32, Thread<'_>> = HashMap::new();
        for edge in &snapshot.edges {
            let thread = threads.entry(edge.lane).or_default();
            thread.edges.entry(edge.point).or_default().push(edge);
        }
        for lane in snapshot.lanes.iter().filter(|lane| !lane.open.is_empty()) {
            threads.entry(lane.id).or_default().see_open(lane, snapshot.elapsed_ticks);
        }
        for cell in &snapshot.cells {
            if let Some(thread) = threads.get_mut(&cell.lane) {
                let inclusive = total(std::iter::once(cell.as_ref())).inclusive;
                thread.inclusive.insert(cell.point, inclusive);
            }
        }
        let mut cells: Vec<&Arc<Cell>> =
            subject.points().iter().flat_map(|shown| subject.cells(shown)).collect();
        cells.sort_by_key(|cell| (cell.lane, cell.point));
        let mut open = subject.model().open_regions().chunk_by(|a, b| a.lane == b.lane).peekable();
        let mut stacks = Self::default();
        for cells in cells.chunk_by(|one, next| one.lane == next.lane) {
            let lane = cells[0].lane;
            while let Some(open) = open.next_if(|open| open[0].lane < lane) {
                stacks.add_open(subject, open);
            }
            let thread = threads.remove(&lane).unwrap_or_default();
            stacks.add_thread(subject, cells, &thread);
            if let Some(open) = open.next_if(|open| open[0].lane == lane) {
                stacks.add_open(subject, open);
            }
        }
        open.for_each(|open| stacks.add_open(subject, open));
        stacks
    }

    /// The path to a node, from the thread on.
    pub(super) fn path(&self, node: u32) -> Vec<Frame> {
        let mut path = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next {
            let node = &self.nodes[node as usize];
            path.push(node.frame);
            next = node.parent;
        }
        path.reverse();
        path
    }

    fn add_thread(&mut self, subject: &Subject<'_>, cells: &[&Arc<Cell>], thread: &Thread<'_>) {
        for cell in cells {
            let exclusive = total(std::iter::once(cell.as_ref())).exclusive;
            let edges = thread.edges.get(&cell.point).map_or(&[][..], Vec::as_slice);
            let mut paths = Paths { thread, found: Vec::new() };
            for edge in edges {
                paths.extend(&mut vec![cell.point], edge.caller, edge.exclusive, edge.exclusive);
            }
            let told = edges.iter().fold(0_u64, |sum, edge| sum.saturating_add(edge.exclusive));
            let rest = exclusive.saturating_sub(told);
            if rest > 0 || paths.found.is_empty() {
                paths.found.push((vec![cell.point], true, rest));
            }
            let mut ticks: BTreeMap<u32, u64> = BTreeMap::new();
            for (points, has_others, of_path) in &paths.found {
                let others = has_others.then_some(Frame::Others);
                let points = points.iter().rev().map(|point| Frame::Point(*point));
                let node = self.node_of(cell.lane, others.into_iter().chain(points));
                let ticks = ticks.entry(node).or_default();
                *ticks = ticks.saturating_add(*of_path);
            }
            let weights: Vec<u64> = ticks.values().copied().collect();
            let parts = share_out(subject.whole_ns(exclusive), &weights);
            for (node, part) in ticks.keys().zip(parts) {
                self.add(*node, part);
            }
        }
    }

    /// Adds what the open regions of a thread have come to, where that is known.
    fn add_open(&mut self, subject: &Subject<'_>, open: &[OpenRegion]) {
        for (level, region) in open.iter().enumerate() {
            let is_shown = subject.point(region.point).is_some();
            if let Some(exclusive) = region.exclusive.filter(|_| is_shown) {
                let points = open[..=level].iter().map(|region| Frame::Point(region.point));
                let node = self.node_of(region.lane, points);
                self.add(node, subject.whole_ns(exclusive));
            }
        }
    }

    /// The node of a path on a thread.
    fn node_of(&mut self, lane: u32, frames: impl Iterator<Item = Frame>) -> u32 {
        let root = self.node(None, Frame::Thread(lane));
        frames.fold(root, |node, frame| self.node(Some(node), frame))
    }

    fn node(&mut self, parent: Option<u32>, frame: Frame) -> u32 {
        *self.known.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push(Node { parent, frame });
            (self.nodes.len() - 1) as u32
        })
    }

    fn add(&mut self, node: u32, exclusive_ns: u64) {
        if exclusive_ns > 0 {
            self.weights.push((node, exclusive_ns));
        }
    }
}

impl Thread<'_> {
    fn see_open(&mut self, lane: &Lane, now: u64) {
        let mut caller = None;
        for open in &lane.open {
            let span = now.saturating_sub(open.start);
            // One that has just begun may have called something all the same.
            self.open.push((caller, open.point, open.on_cpu.unwrap_or(span).max(1)));
            caller = Some(open.point);
        }
    }

    /// Those that call a point, with the inclusive ticks or, where there are none, the calls of
    /// it; and the same of those that are not known.
    fn callers(&self, point: u32) -> (Vec<(Option<u32>, u64)>, u64) {
        let edges = self.edges.get(&point).map_or(&[][..], Vec::as_slice);
        let open = self.open.iter().filter(|(_, inside, _)| *inside == point);
        let open = open.map(|(caller, _, ticks)| (*caller, *ticks));
        let inclusive = edges.iter().map(|edge| (edge.caller, edge.inclusive));
        let told = edges.iter().fold(0_u64, |sum, edge| sum.saturating_add(edge.inclusive));
        let others = self.inclusive.get(&point).map_or(0, |all| all.saturating_sub(told));
        let callers: Vec<_> = inclusive.chain(open).collect();
        if others == 0 && callers.iter().all(|(_, ticks)| *ticks == 0) {
            return (edges.iter().map(|edge| (edge.caller, edge.count)).collect(), 0);
        }
        (callers, others)
    }
}

/// The paths of an edge or of several, from the inside out.
struct Paths<'a> {
    thread: &'a Thread<'a>,
    /// Each with whether others are around it, and its ticks.
    found: Vec<(Vec<u32>, bool, u64)>,
}

impl Paths<'_> {
    /// Goes on outwards from a path of points, of which so many ticks were called by `caller`;
    /// the edge that it ends with has `all`.
    fn extend(&mut self, path: &mut Vec<u32>, caller: Option<u32>, ticks: u64, all: u64) {
        let Some(caller) = caller else {
            return self.found.push((path.clone(), false, ticks));
        };
        path.push(caller);
        let (mut callers, others) = self.thread.callers(caller);
        callers.retain(|(caller, _)| caller.is_none_or(|caller| !path[1..].contains(&caller)));
        let mut weights: Vec<u64> = callers.iter().map(|(_, weight)| *weight).collect();
        weights.push(others);
        let mut parts = share_out(ticks, &weights);
        let mut others = parts.pop().unwrap_or(0);
        if callers.is_empty() || path.len() >= DEEPEST {
            (others, callers) = (ticks, Vec::new());
        }
        for ((caller, _), part) in callers.into_iter().zip(parts) {
            match caller {
                Some(_) if part <= all / LEAST => others += part,
                _ if part > 0 => self.extend(path, caller, part, all),
                _ => {}
            }
        }
        if others > 0 {
            self.found.push((path.clone(), true, others));
        }
        path.pop();
    }
}

/// Shares out a number as others are to each other, in whole parts that add up to it.
fn share_out(number: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    // Where none has any, one is as good as another.
    let share = |weight: u64| if sum > 0 { u128::from(weight) } else { 1 };
    let all = if sum > 0 { sum } else { weights.len() as u128 };
    // A damaged file's may add up to more than can be multiplied.
    let too_long = u64::BITS.saturating_sub(all.leading_zeros());
    let (mut so_far, mut given) = (0, 0);
    let part = |weight: &u64| {
        so_far += share(*weight);
        let up_to = (u128::from(number) * (so_far >> too_long) / (all >> too_long)) as u64;
        let part = up_to - given;
        given = up_to;
        part
    };
    weights.iter().map(part).collect()
}
