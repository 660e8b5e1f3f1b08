//! A call tree: call paths merged from one of their ends.
//!
//! ```text
//! paths                main > parse > lex 6, main > lex 2
//! Direction::Callees   main 8 [parse 6 [lex 6], lex 2]
//! Direction::Callers   lex 8 [parse 6 [main 6], main 2]
//! ```

use std::cmp::Ordering;
use std::collections::HashMap;

use pfp_read::snapshot::{Lane, LaneKind, ProcessState, Snapshot};
use pfp_read::waits::SampledStack;

/// One step of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Frame {
    /// A thread, by its lane.
    Thread(u32),
    /// A point, by its id.
    Point(u32),
    /// Unknown callers.
    Others,
    /// What a thread waited for in the region around it: see [`crate::Model::reason`].
    Wait(u32),
}

/// The end of the paths at which the roots are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Roots are the outermost frames; children are what they call.
    #[default]
    Callees,
    /// Roots are the frames that spent the time; children are their callers.
    Callers,
}

/// Call paths merged from one end.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    direction: Direction,
    nodes: Vec<Node>,
    roots: Vec<u32>,
    known: HashMap<(Option<u32>, Frame), u32>,
    total: u64,
}

/// One frame at the end of one path.
#[derive(Clone, Debug)]
pub struct Node {
    /// The frame.
    pub frame: Frame,
    /// Number of the parent node. `None` for a root.
    pub parent: Option<u32>,
    /// Numbers of the child nodes, the heaviest first once the tree is sorted.
    pub children: Vec<u32>,
    /// Weight of all paths through it.
    pub inclusive: u64,
    /// Weight of the frame itself. In a tree of callers, all weight belongs to the root's frame.
    pub exclusive: u64,
    /// Calls of the frame; in a tree of callers, calls of the root's frame.
    pub count: u64,
    /// Whether the frame is its own ancestor.
    pub is_recursive: bool,
}

/// A line of the tree: a node whose ancestors are all unfolded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeRow {
    /// Number of the node.
    pub node: u32,
    /// Number of ancestors.
    pub depth: usize,
    /// Whether its children are shown.
    pub is_open: bool,
}

impl Tree {
    /// An empty tree.
    pub fn new(direction: Direction) -> Self {
        Self { direction, ..Self::default() }
    }

    /// Adds the weight at the end of a path; `path` begins with the outermost frame.
    pub fn add(&mut self, path: &[Frame], weight: u64, count: u64) {
        self.total = self.total.saturating_add(weight);
        let mut parent = None;
        let last = path.len().saturating_sub(1);
        for place in 0..path.len() {
            let frame = match self.direction {
                Direction::Callees => path[place],
                Direction::Callers => path[last - place],
            };
            let id = self.node_of(parent, frame);
            let node = &mut self.nodes[id as usize];
            node.inclusive = node.inclusive.saturating_add(weight);
            if place == last || self.direction == Direction::Callers {
                node.exclusive = node.exclusive.saturating_add(weight);
                node.count = node.count.saturating_add(count);
            }
            parent = Some(id);
        }
    }

    /// The child of a node with this frame, or the root with this frame; added if it is missing.
    pub(super) fn node_of(&mut self, parent: Option<u32>, frame: Frame) -> u32 {
        if let Some(id) = self.known.get(&(parent, frame)) {
            return *id;
        }
        let id = self.nodes.len() as u32;
        let is_recursive = self.ancestors(parent).any(|node| self.node(node).frame == frame);
        self.nodes.push(Node {
            frame,
            parent,
            children: Vec::new(),
            inclusive: 0,
            exclusive: 0,
            count: 0,
            is_recursive,
        });
        match parent {
            Some(parent) => self.nodes[parent as usize].children.push(id),
            None => self.roots.push(id),
        }
        self.known.insert((parent, frame), id);
        id
    }

    /// Sorts each level, the heaviest first.
    pub fn sort(&mut self) {
        let weights: Vec<_> =
            self.nodes.iter().map(|node| (node.inclusive, node.count, node.frame)).collect();
        self.sort_by(|a, b| {
            let [a, b] = [a, b].map(|id| weights[id as usize]);
            (b.0, b.1).cmp(&(a.0, a.1)).then(a.2.cmp(&b.2))
        });
    }

    /// Sorts the nodes of each level; equal ones keep their order.
    pub fn sort_by(&mut self, order: impl Fn(u32, u32) -> Ordering) {
        for node in &mut self.nodes {
            node.children.sort_by(|a, b| order(*a, *b));
        }
        self.roots.sort_by(|a, b| order(*a, *b));
    }

    /// All nodes, by their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The end of the paths at which the roots are.
    pub fn direction(&self) -> Direction {
        self.direction
    }

    /// Weight of all paths.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// A node by its number.
    ///
    /// The number must come from this tree.
    pub fn node(&self, id: u32) -> &Node {
        &self.nodes[id as usize]
    }

    /// The outermost nodes.
    pub fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// A node and its ancestors, from the inside out; empty without a node.
    pub fn ancestors(&self, node: Option<u32>) -> impl Iterator<Item = u32> {
        std::iter::successors(node, |node| self.node(*node).parent)
    }

    /// The frames from the root to a node.
    pub fn path(&self, node: u32) -> Vec<Frame> {
        let mut path: Vec<_> =
            self.ancestors(Some(node)).map(|node| self.node(node).frame).collect();
        path.reverse();
        path
    }

    /// The node at the end of a path from a root.
    pub fn find(&self, path: &[Frame]) -> Option<u32> {
        let mut found = None;
        for frame in path {
            found = Some(*self.known.get(&(found, *frame))?);
        }
        found
    }

    /// The lines of a node, or of all roots, and of the descendants whose ancestors are open.
    pub fn rows(&self, below: Option<u32>, is_open: impl Fn(u32) -> bool) -> Vec<TreeRow> {
        let mut rows = Vec::new();
        let roots = below.as_ref().map_or(self.roots.as_slice(), std::slice::from_ref);
        let mut next: Vec<(u32, usize)> = roots.iter().rev().map(|root| (*root, 0)).collect();
        while let Some((node, depth)) = next.pop() {
            let children = &self.node(node).children;
            let is_open = !children.is_empty() && is_open(node);
            rows.push(TreeRow { node, depth, is_open });
            if is_open {
                next.extend(children.iter().rev().map(|child| (*child, depth + 1)));
            }
        }
        rows
    }
}

/// Stacks of open regions, sampled at many moments.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    stacks: HashMap<Vec<Frame>, u64>,
    taken: u64,
    outside: u64,
}

impl Samples {
    /// Counts sampled stacks. `number` returns the number of a reason. A thread without a stack is
    /// outside all regions.
    pub fn take<'a>(
        &mut self,
        stacks: impl IntoIterator<Item = &'a SampledStack>,
        mut number: impl FnMut(&str) -> u32,
    ) {
        for stack in stacks {
            self.taken = self.taken.saturating_add(stack.count);
            if stack.points.is_empty() {
                self.outside = self.outside.saturating_add(stack.count);
                continue;
            }
            let points = stack.points.iter().map(|point| Frame::Point(*point));
            let wait = stack.reason.as_deref().map(|reason| Frame::Wait(number(reason)));
            let path = std::iter::once(Frame::Thread(stack.lane)).chain(points).chain(wait);
            let count = self.stacks.entry(path.collect()).or_default();
            *count = count.saturating_add(stack.count);
        }
    }

    /// Counts the stack of each live thread of a snapshot, whether it runs or waits.
    pub fn take_snapshot(&mut self, snapshot: &Snapshot) {
        if snapshot.process.state != ProcessState::Running {
            return;
        }
        let stack = |lane: &Lane| SampledStack {
            lane: lane.id,
            points: lane.open.iter().map(|open| open.point).collect(),
            reason: None,
            count: 1,
        };
        let lanes = snapshot.lanes.iter().filter(|lane| lane.kind == LaneKind::Live);
        self.take(&lanes.map(stack).collect::<Vec<_>>(), |_| 0);
    }

    /// Number of samples, each of one thread at one moment.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Number of samples without an open region.
    pub fn outside(&self) -> u64 {
        self.outside
    }

    /// The sampled stacks, with their counts.
    pub fn stacks(&self) -> impl Iterator<Item = (&[Frame], u64)> {
        self.stacks.iter().map(|(path, count)| (path.as_slice(), *count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    const MAIN: Frame = Frame::Point(1);
    const PARSE: Frame = Frame::Point(2);
    const LEX: Frame = Frame::Point(3);

    fn tree(direction: Direction) -> Tree {
        let mut tree = Tree::new(direction);
        tree.add(&[MAIN, LEX], 2, 1);
        tree.add(&[MAIN, PARSE, LEX], 6, 3);
        tree.add(&[MAIN], 1, 1);
        tree.sort();
        tree
    }

    fn visible_rows(tree: &Tree, is_open: impl Fn(u32) -> bool) -> Vec<(usize, Frame, [u64; 3])> {
        let of_row = |row: TreeRow| {
            let node = tree.node(row.node);
            (row.depth, node.frame, [node.inclusive, node.exclusive, node.count])
        };
        tree.rows(None, is_open).into_iter().map(of_row).collect()
    }

    #[test]
    fn paths_are_merged_from_their_outer_end() {
        let tree = tree(Direction::Callees);
        let expected =
            [(0, MAIN, [9, 1, 1]), (1, PARSE, [6, 0, 0]), (2, LEX, [6, 6, 3]), (1, LEX, [2, 2, 1])];
        assert_eq!(visible_rows(&tree, |_| true), expected);
        assert_eq!(visible_rows(&tree, |_| false), expected[..1]);
        assert_eq!(tree.total(), 9);
        let inner = tree.find(&[MAIN, PARSE, LEX]).unwrap();
        assert_eq!(tree.path(inner), [MAIN, PARSE, LEX]);
        assert_eq!(tree.find(&[PARSE]), None);
    }

    #[test]
    fn paths_are_merged_from_their_inner_end() {
        let tree = tree(Direction::Callers);
        let expected = [
            (0, LEX, [8, 8, 4]),
            (1, PARSE, [6, 6, 3]),
            (2, MAIN, [6, 6, 3]),
            (1, MAIN, [2, 2, 1]),
            (0, MAIN, [1, 1, 1]),
        ];
        assert_eq!(visible_rows(&tree, |_| true), expected);
    }

    #[test]
    fn a_frame_inside_itself_is_recursive() {
        let mut tree = Tree::new(Direction::Callees);
        tree.add(&[MAIN, PARSE, MAIN], 1, 1);
        let recursive = |path: &[Frame]| tree.node(tree.find(path).unwrap()).is_recursive;
        assert!(recursive(&[MAIN, PARSE, MAIN]));
        assert!(!recursive(&[MAIN]) && !recursive(&[MAIN, PARSE]));
    }

    #[test]
    fn samples_with_waits_end_in_what_the_thread_waited_for() {
        let stack = |points: &[u32], reason: Option<&str>, count| SampledStack {
            lane: 4,
            points: points.to_vec(),
            reason: reason.map(str::to_owned),
            count,
        };
        let mut model = crate::Model::default();
        let mut samples = Samples::default();
        let stacks = [
            stack(&[1, 2], Some("lock JOBS"), 7),
            stack(&[1], Some("sleep"), 2),
            stack(&[1, 2], None, 1),
            stack(&[], Some("lock JOBS"), 5),
        ];
        samples.take(&stacks, |reason| model.reason_number(reason));
        samples.take(&stacks[..1], |reason| model.reason_number(reason));
        assert_eq!((samples.taken(), samples.outside()), (22, 5));
        let thread = Frame::Thread(4);
        let found: HashMap<&[Frame], u64> = samples.stacks().collect();
        let wait = |reason| {
            let number =
                (0..9).find(|number| model.reason(*number) == reason).expect("it is known");
            Frame::Wait(number)
        };
        let expected = [
            (vec![thread, MAIN, PARSE, wait("lock JOBS")], 14),
            (vec![thread, MAIN, wait("sleep")], 2),
            (vec![thread, MAIN, PARSE], 1),
        ];
        assert_eq!(found, expected.iter().map(|(path, count)| (&path[..], *count)).collect());
    }

    #[test]
    fn samples_count_open_stacks_of_running_threads() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        let live = snapshot.lanes.iter().filter(|lane| lane.kind == LaneKind::Live).count() as u64;
        for lane in &mut snapshot.lanes {
            lane.open.clear();
        }
        let open = pfp_read::snapshot::Open { point: 1, ..Default::default() };
        snapshot.lanes[0].open = vec![open, pfp_read::snapshot::Open { point: 2, ..open }];
        let mut samples = Samples::default();
        samples.take_snapshot(&snapshot);
        samples.take_snapshot(&snapshot);
        snapshot.process.state = ProcessState::Crashed;
        samples.take_snapshot(&snapshot);
        assert_eq!((samples.taken(), samples.outside()), (2 * live, 2 * (live - 1)));
        let path = [Frame::Thread(0), MAIN, PARSE];
        assert_eq!(samples.stacks().collect::<Vec<_>>(), [(&path[..], 2)]);
    }
}
