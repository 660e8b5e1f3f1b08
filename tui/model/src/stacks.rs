//! Exclusive time and calls by call path, or allocated bytes and allocations.
//!
//! The cells have the exact time of each point on each thread, and the edges divide that time by
//! the direct caller. Nothing divides the time by the callers further out. So the last two frames
//! of a path are exact, and the frames around them are estimated: time is divided in proportion to
//! the callers' inclusive times, as if a point did the same work for every caller. The stack of
//! open regions is exact.
//!
//! ```text
//! edges      a > parse 30, b > parse 10, parse > lex 8
//! stacks     a > parse > lex 6, b > parse > lex 2
//! ```
//!
//! A recursive point is in a path at most twice: at the path's end, and once further out. Calls
//! without an edge are shown below [`Frame::Others`], and so are parts below a hundredth of an
//! edge.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::open::OpenRegion;
use super::tree::{Frame, Tree};
use pfp_read::snapshot::{Cell, Edge, Lane, Snapshot};

/// Maximum number of frames of a path, below its thread.
const DEEPEST: usize = 128;
/// Minimum part of an edge that gets a path of its own, as a divisor.
const MIN_PART: u64 = 100;

/// What the paths are weighed by. Allocations are counted as time is: by points in cells, and by
/// callers in edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeighedBy {
    /// Exclusive ticks, and calls.
    #[default]
    Time,
    /// Allocated bytes, and allocations.
    AllocBytes,
}

impl WeighedBy {
    fn cell(self, cell: &Cell) -> (Share, u64) {
        let (total, allocs) = (cell.total(), &cell.allocs);
        match self {
            Self::Time => {
                (Share { exclusive: total.exclusive, count: total.count }, total.inclusive)
            }
            Self::AllocBytes => {
                (Share { exclusive: allocs.bytes, count: allocs.allocs }, allocs.bytes_inclusive)
            }
        }
    }

    fn edge(self, edge: &Edge) -> (Share, u64) {
        match self {
            Self::Time => (Share { exclusive: edge.exclusive, count: edge.count }, edge.inclusive),
            Self::AllocBytes => (
                Share { exclusive: edge.alloc_bytes, count: edge.allocs },
                edge.alloc_bytes_inclusive,
            ),
        }
    }
}

/// The paths of all threads, with their weights.
#[derive(Debug, Default)]
pub struct Stacks {
    /// The paths, without weights.
    tree: Tree,
    weights: Vec<Weight>,
}

/// A path with the figures of its last frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weight {
    /// The path; see [`Stacks::path`].
    pub node: u32,
    /// Exclusive ticks, or allocated bytes.
    pub exclusive: u64,
    /// Calls that have ended, or allocations.
    pub count: u64,
}

/// The calls of one thread.
#[derive(Default)]
struct ThreadCalls<'a> {
    /// The edges by their callee.
    edges: HashMap<u32, Vec<&'a Edge>>,
    by: WeighedBy,
    /// The open regions, each with its caller and its weight among the callers: its age in ticks, or
    /// a byte.
    open: Vec<(Option<u32>, u32, u64)>,
    /// Inclusive ticks or bytes of points.
    inclusive: HashMap<u32, u64>,
    /// Whether some calls found no room for an edge.
    has_unplaced: bool,
}

impl Stacks {
    /// The paths of a snapshot whose last point satisfies `passes`, including the time of open
    /// regions so far, unless `open` is empty.
    ///
    /// Weights are grouped by thread, and within it by the last point.
    pub fn of(
        snapshot: &Snapshot,
        by: WeighedBy,
        open: &[OpenRegion],
        passes: impl Fn(u32) -> bool,
    ) -> Self {
        let mut threads: HashMap<u32, ThreadCalls<'_>> = HashMap::new();
        let new = || ThreadCalls { by, ..ThreadCalls::default() };
        for edge in &snapshot.edges {
            let thread = threads.entry(edge.lane).or_insert_with(new);
            thread.edges.entry(edge.point).or_default().push(edge);
        }
        for lane in snapshot.lanes.iter().filter(|lane| !lane.open.is_empty() || lane.unplaced > 0)
        {
            let thread = threads.entry(lane.id).or_insert_with(new);
            thread.see_open(lane, snapshot.elapsed_ticks);
            thread.has_unplaced = lane.unplaced > 0;
        }
        for cell in &snapshot.cells {
            if let Some(thread) = threads.get_mut(&cell.lane) {
                thread.inclusive.insert(cell.point, by.cell(cell).1);
            }
        }
        let mut cells: Vec<&Arc<Cell>> =
            snapshot.cells.iter().filter(|cell| passes(cell.point)).collect();
        cells.sort_by_key(|cell| (cell.lane, cell.point));
        let mut open = open.chunk_by(|a, b| a.lane == b.lane).peekable();
        let mut stacks = Self::default();
        for cells in cells.chunk_by(|one, next| one.lane == next.lane) {
            let lane = cells[0].lane;
            while let Some(open) = open.next_if(|open| open[0].lane < lane) {
                stacks.add_open(open, &passes);
            }
            stacks.add_thread(cells, &threads.remove(&lane).unwrap_or_else(new));
            if let Some(open) = open.next_if(|open| open[0].lane == lane) {
                stacks.add_open(open, &passes);
            }
        }
        open.for_each(|open| stacks.add_open(open, &passes));
        stacks
    }

    /// The paths with their times and calls.
    pub fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// The frames of a path, beginning with the thread.
    pub fn path(&self, weight: &Weight) -> Vec<Frame> {
        self.tree.path(weight.node)
    }

    /// Adds the paths that end with the points of a thread.
    fn add_thread(&mut self, cells: &[&Arc<Cell>], thread: &ThreadCalls<'_>) {
        for cell in cells {
            let (all, _) = thread.by.cell(cell);
            let edges = thread.edges.get(&cell.point).map_or(&[][..], Vec::as_slice);
            let mut paths = Paths { thread, found: Vec::new() };
            let mut rest = all;
            for edge in edges {
                let (share, _) = thread.by.edge(edge);
                rest = rest.less(share);
                paths.extend(&mut vec![cell.point], edge.caller, share, share);
            }
            match paths.found.first_mut() {
                // The edges and the cell are read one after the other, so the edges may lack a few
                // of its calls, or have a few more.
                Some((_, _, share)) if !thread.has_unplaced && rest.is_small(all) => {
                    *share = share.more(rest);
                }
                Some(_) if rest == Share::default() => {}
                _ => paths.found.push((vec![cell.point], true, rest)),
            }
            let mut shares: BTreeMap<u32, Share> = BTreeMap::new();
            for (points, has_others, share) in &paths.found {
                let others = has_others.then_some(Frame::Others);
                let points = points.iter().rev().map(|point| Frame::Point(*point));
                let node = self.node_of(cell.lane, others.into_iter().chain(points));
                let sum = shares.entry(node).or_default();
                *sum = sum.more(*share);
            }
            // The edges may exceed the cell, by much in a damaged file. This limits their sums to
            // those of the cell.
            let limited = |all: u64, of: fn(&Share) -> u64| {
                share_out(all, &shares.values().map(of).collect::<Vec<u64>>())
            };
            let exclusive = limited(all.exclusive, |share| share.exclusive);
            let count = limited(all.count, |share| share.count);
            for ((node, exclusive), count) in shares.into_keys().zip(exclusive).zip(count) {
                self.add(Weight { node, exclusive, count });
            }
        }
    }

    /// Adds the time of a thread's open regions so far, if known.
    fn add_open(&mut self, open: &[OpenRegion], passes: &impl Fn(u32) -> bool) {
        for (level, region) in open.iter().enumerate() {
            if let Some(exclusive) = region.exclusive.filter(|_| passes(region.point)) {
                let points = open[..=level].iter().map(|region| Frame::Point(region.point));
                let node = self.node_of(region.lane, points);
                self.add(Weight { node, exclusive, count: 0 });
            }
        }
    }

    /// The node of a path on a thread.
    fn node_of(&mut self, lane: u32, frames: impl Iterator<Item = Frame>) -> u32 {
        let root = self.tree.node_of(None, Frame::Thread(lane));
        frames.fold(root, |node, frame| self.tree.node_of(Some(node), frame))
    }

    fn add(&mut self, weight: Weight) {
        if weight.exclusive > 0 || weight.count > 0 {
            self.weights.push(weight);
        }
    }
}

/// A part of a point's measurements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    exclusive: u64,
    count: u64,
}

impl Share {
    fn more(self, other: Self) -> Self {
        Self {
            exclusive: self.exclusive.saturating_add(other.exclusive),
            count: self.count.saturating_add(other.count),
        }
    }

    fn less(self, other: Self) -> Self {
        Self {
            exclusive: self.exclusive.saturating_sub(other.exclusive),
            count: self.count.saturating_sub(other.count),
        }
    }

    /// Whether this is too small a part of `all` to get a path of its own.
    fn is_small(self, all: Self) -> bool {
        match all.exclusive {
            0 => self.count <= all.count / MIN_PART,
            exclusive => self.exclusive <= exclusive / MIN_PART,
        }
    }

    fn shared_out(self, weights: &[u64]) -> Vec<Self> {
        let counts = share_out(self.count, weights);
        let parts = share_out(self.exclusive, weights).into_iter().zip(counts);
        parts.map(|(exclusive, count)| Self { exclusive, count }).collect()
    }
}

impl ThreadCalls<'_> {
    fn see_open(&mut self, lane: &Lane, now: u64) {
        let mut caller = None;
        for open in &lane.open {
            let span = now.saturating_sub(open.start);
            // Count at least one tick: a region that has just begun may already have callees.
            let weight = match self.by {
                WeighedBy::Time => open.on_cpu.unwrap_or(span).min(span).max(1),
                WeighedBy::AllocBytes => 1,
            };
            self.open.push((caller, open.point, weight));
            caller = Some(open.point);
        }
    }

    /// The callers of a point with the point's inclusive ticks or bytes in each, and in unknown
    /// callers. If all are zero, returns numbers of calls in their place.
    fn callers(&self, point: u32) -> (Vec<(Option<u32>, u64)>, u64) {
        let edges = self.edges.get(&point).map_or(&[][..], Vec::as_slice);
        let open = self.open.iter().filter(|(_, inside, _)| *inside == point);
        let open = open.map(|(caller, _, ticks)| (*caller, *ticks));
        let inclusive = edges.iter().map(|edge| (edge.caller, self.by.edge(edge).1));
        let known = inclusive.clone().fold(0_u64, |sum, (_, more)| sum.saturating_add(more));
        let all = self.inclusive.get(&point).copied().unwrap_or(0);
        let others = all.saturating_sub(known);
        // As in `add_thread`, the edges may lack a few of the latest calls.
        let is_late = !self.has_unplaced && !edges.is_empty() && others <= all / MIN_PART;
        let others = if is_late { 0 } else { others };
        let callers: Vec<_> = inclusive.chain(open).collect();
        if others == 0 && callers.iter().all(|(_, ticks)| *ticks == 0) {
            return (edges.iter().map(|edge| (edge.caller, edge.count)).collect(), 0);
        }
        (callers, others)
    }
}

/// The paths that end with one point, from the innermost frame out.
struct Paths<'a> {
    thread: &'a ThreadCalls<'a>,
    /// The points of each path; whether unknown callers enclose it; and its part of the
    /// measurements.
    found: Vec<(Vec<u32>, bool, Share)>,
}

impl Paths<'_> {
    /// Extends a path outwards. `all` is the edge at the path's inner end. `share` is the part of
    /// that edge that belongs to calls from `caller` to the path's outermost point.
    fn extend(&mut self, path: &mut Vec<u32>, caller: Option<u32>, share: Share, all: Share) {
        let Some(caller) = caller else {
            return self.found.push((path.clone(), false, share));
        };
        path.push(caller);
        let (mut callers, others) = self.thread.callers(caller);
        callers.retain(|(caller, _)| caller.is_none_or(|caller| !path[1..].contains(&caller)));
        let mut weights: Vec<u64> = callers.iter().map(|(_, weight)| *weight).collect();
        weights.push(others);
        let mut parts = share.shared_out(&weights);
        let mut others = parts.pop().unwrap_or_default();
        if callers.is_empty() || path.len() >= DEEPEST {
            (others, callers) = (share, Vec::new());
        }
        for ((caller, _), part) in callers.into_iter().zip(parts) {
            match caller {
                Some(_) if part.is_small(all) => others = others.more(part),
                _ if part != Share::default() => self.extend(path, caller, part, all),
                _ => {}
            }
        }
        if others != Share::default() {
            self.found.push((path.clone(), true, others));
        }
        path.pop();
    }
}

/// Divides a number in proportion to weights, into integers that add up to it.
pub fn share_out(number: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    // If all weights are zero, all parts are equal.
    let share = |weight: u64| if sum > 0 { u128::from(weight) } else { 1 };
    let all = if sum > 0 { sum } else { weights.len() as u128 };
    // The weights of a damaged file may be too large to multiply.
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

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::snapshot::Open;
    use pfp_read::source::synthetic::{Synthetic, cell, edge};

    #[test]
    fn edges_that_are_a_little_late_have_no_other_callers() {
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.lanes.iter_mut().for_each(|lane| lane.open.clear());
        snapshot.edges = vec![edge(1, None, 0, [1, 10, 995]), edge(2, Some(1), 0, [99, 985, 985])];
        let cells = [(1, [1, 10, 1000]), (2, [100, 990, 990])];
        snapshot.cells = cells.map(|(point, sums)| cell(point, 0, sums)).into();
        let others = |snapshot: &Snapshot| {
            let stacks = Stacks::of(snapshot, WeighedBy::Time, &[], |_| true);
            let all: u64 = stacks.weights().iter().map(|weight| weight.exclusive).sum();
            assert_eq!(all, 1000);
            stacks.weights().iter().any(|weight| stacks.path(weight).contains(&Frame::Others))
        };
        assert!(!others(&snapshot));
        snapshot.lanes[0].unplaced = 1;
        assert!(others(&snapshot), "a call found no room");
        snapshot.lanes[0].unplaced = 0;
        snapshot.edges[1] = edge(2, Some(1), 0, [90, 900, 900]);
        assert!(others(&snapshot), "so late is no edge");
    }

    /// Point 2 allocates 30 bytes for point 1 and 10 for point 3, which counts no allocations. Point
    /// 1 is open.
    #[test]
    fn allocated_bytes_have_the_paths_of_time() {
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.lanes.iter_mut().for_each(|lane| lane.open.clear());
        snapshot.lanes[0].open = vec![Open { point: 1, start: 0, on_cpu: None }];
        let of = |allocs, alloc_bytes, edge: Edge| Edge {
            allocs,
            alloc_bytes,
            alloc_bytes_inclusive: alloc_bytes,
            ..edge
        };
        snapshot.edges = vec![
            of(3, 30, edge(2, Some(1), 0, [1, 5, 5])),
            of(1, 10, edge(2, Some(3), 0, [1, 5, 5])),
            edge(3, None, 0, [1, 5, 10]),
        ];
        snapshot.cells =
            vec![cell(2, 0, [2, 10, 10]), cell(3, 0, [1, 5, 10]), cell(4, 0, [9, 9, 9])];
        let allocs = &mut Arc::make_mut(&mut snapshot.cells[0]).allocs;
        (allocs.allocs, allocs.bytes, allocs.bytes_inclusive) = (4, 40, 40);
        let stacks = Stacks::of(&snapshot, WeighedBy::AllocBytes, &[], |_| true);
        let found: Vec<_> = stacks
            .weights()
            .iter()
            .map(|weight| (stacks.path(weight)[1..].to_vec(), weight.exclusive, weight.count))
            .collect();
        let [one, two, three] = [1, 2, 3].map(Frame::Point);
        assert_eq!(found, [(vec![one, two], 30, 3), (vec![three, two], 10, 1)]);
    }

    #[test]
    fn calls_are_shared_out_as_their_time_is() {
        // Point 3 is called by points 1 and 2, for 30 and 10 ticks. Point 3 calls point 4 twenty
        // times, for 0 ticks.
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.lanes.iter_mut().for_each(|lane| lane.open.clear());
        snapshot.edges = vec![
            edge(1, None, 0, [1, 5, 35]),
            edge(2, None, 0, [1, 5, 15]),
            edge(3, Some(1), 0, [2, 30, 30]),
            edge(3, Some(2), 0, [2, 10, 10]),
            edge(4, Some(3), 0, [20, 0, 0]),
        ];
        let cells = [(1, [1, 5, 35]), (2, [1, 5, 15]), (3, [4, 40, 40]), (4, [20, 0, 0])];
        snapshot.cells = cells.map(|(point, sums)| cell(point, 0, sums)).into();
        let stacks = Stacks::of(&snapshot, WeighedBy::Time, &[], |_| true);
        let mut found: Vec<_> = stacks
            .weights()
            .iter()
            .map(|weight| {
                let points = stacks.path(weight).into_iter().filter_map(|frame| match frame {
                    Frame::Point(id) => Some(id),
                    _ => None,
                });
                (points.collect::<Vec<_>>(), weight.exclusive, weight.count)
            })
            .collect();
        found.sort();
        let expected = [
            (vec![1], 5, 1),
            (vec![1, 3], 30, 2),
            (vec![1, 3, 4], 0, 15),
            (vec![2], 5, 1),
            (vec![2, 3], 10, 2),
            (vec![2, 3, 4], 0, 5),
        ];
        assert_eq!(found, expected);
    }
}
