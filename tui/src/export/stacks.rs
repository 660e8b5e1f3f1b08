//! Exclusive time by call path.
//!
//! The cells know how long each point took on each thread, and not who called it;
//! the rings know that, of the last moments. So the exclusive time of a point on a
//! thread is that of its cell, to the nanosecond, shared out among the paths that
//! the ring holds for it, as the exclusive times of the records on them are to each
//! other. What the paths do not hold, or have lost the beginning of, is called from
//! [`Frame::Unknown`].
//!
//! ```text
//! cells      parse 900 ns         ring    a > parse 10 + 20, b > parse 10
//! stacks     a > parse 675 ns, b > parse 225 ns
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::Subject;
use crate::model::total;
use crate::snapshot::{Cell, Record};

/// The paths of all threads.
#[derive(Debug, Default)]
pub(super) struct Stacks {
    nodes: Vec<Node>,
    /// Nodes with the exclusive nanoseconds of what they end with.
    pub(super) weights: Vec<(u32, u64)>,
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
    /// A caller, or several, that the ring does not hold.
    Unknown,
}

impl Stacks {
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let snapshot = subject.snapshot();
        let mut records: BTreeMap<u32, Vec<&Record>> = BTreeMap::new();
        for record in &snapshot.records {
            records.entry(record.lane).or_default().push(record);
        }
        let mut cells: Vec<&Arc<Cell>> =
            subject.points().iter().flat_map(|shown| subject.cells(shown)).collect();
        cells.sort_by_key(|cell| (cell.lane, cell.point));
        let mut stacks = Self::default();
        for cells in cells.chunk_by(|one, next| one.lane == next.lane) {
            let records = records.remove(&cells[0].lane).unwrap_or_default();
            stacks.add_thread(subject, cells, records);
        }
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

    fn add_thread(&mut self, subject: &Subject<'_>, cells: &[&Arc<Cell>], records: Vec<&Record>) {
        let mut known = HashMap::new();
        let root = self.node(&mut known, None, Frame::Thread(cells[0].lane));
        let held = self.paths(&mut known, root, records);
        for cell in cells {
            let exclusive = total(std::iter::once(cell.as_ref())).exclusive;
            let exclusive_ns = subject.whole_ns(exclusive);
            match held.get(&cell.point) {
                Some(paths) => self.share_out(exclusive_ns, paths),
                None => {
                    let caller = self.node(&mut known, Some(root), Frame::Unknown);
                    let node = self.node(&mut known, Some(caller), Frame::Point(cell.point));
                    self.add(node, exclusive_ns);
                }
            }
        }
    }

    /// The paths that end with each point, with the ticks recorded on them.
    fn paths(
        &mut self,
        known: &mut HashMap<(Option<u32>, Frame), u32>,
        root: u32,
        mut records: Vec<&Record>,
    ) -> BTreeMap<u32, BTreeMap<u32, u64>> {
        let mut held: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        // What is around a region begins before it, or with it at a lower level.
        records.sort_by_key(|r| (r.context, r.start, r.depth, std::cmp::Reverse(r.span)));
        let mut open: Vec<(&Record, u32)> = Vec::new();
        for record in records {
            while open.last().is_some_and(|(outer, _)| !encloses(outer, record)) {
                open.pop();
            }
            let caller = match open.last() {
                Some((outer, node)) if outer.depth.checked_add(1) == Some(record.depth) => *node,
                None if record.depth == 0 => root,
                around => {
                    let around = around.map_or(root, |(_, node)| *node);
                    self.node(known, Some(around), Frame::Unknown)
                }
            };
            let node = self.node(known, Some(caller), Frame::Point(record.point));
            let ticks = held.entry(record.point).or_default().entry(node).or_default();
            *ticks = ticks.saturating_add(record.exclusive);
            open.push((record, node));
        }
        held
    }

    fn node(
        &mut self,
        known: &mut HashMap<(Option<u32>, Frame), u32>,
        parent: Option<u32>,
        frame: Frame,
    ) -> u32 {
        *known.entry((parent, frame)).or_insert_with(|| {
            self.nodes.push(Node { parent, frame });
            (self.nodes.len() - 1) as u32
        })
    }

    /// Gives each path its share, in whole nanoseconds that add up.
    fn share_out(&mut self, exclusive_ns: u64, paths: &BTreeMap<u32, u64>) {
        let recorded: u128 = paths.values().map(|ticks| u128::from(*ticks)).sum();
        // Where no record took any time, one path is as good as another.
        let share = |ticks: u64| if recorded > 0 { u128::from(ticks) } else { 1 };
        let all = if recorded > 0 { recorded } else { paths.len() as u128 };
        // The records of a damaged file may add up to more than can be multiplied.
        let too_long = u64::BITS.saturating_sub(all.leading_zeros());
        let (mut so_far, mut given) = (0, 0);
        for (node, ticks) in paths {
            so_far += share(*ticks);
            let up_to = u128::from(exclusive_ns) * (so_far >> too_long) / (all >> too_long);
            let up_to = up_to as u64;
            self.add(*node, up_to - given);
            given = up_to;
        }
    }

    fn add(&mut self, node: u32, exclusive_ns: u64) {
        if exclusive_ns > 0 {
            self.weights.push((node, exclusive_ns));
        }
    }
}

/// Whether `inner` lies in `outer`, in one context and at a lower level.
fn encloses(outer: &Record, inner: &Record) -> bool {
    let end = |record: &Record| record.start.saturating_add(record.span);
    outer.context == inner.context
        && outer.depth < inner.depth
        && outer.start <= inner.start
        && end(inner) <= end(outer)
}
