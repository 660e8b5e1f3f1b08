//! Callers and callees of a point.
//!
//! A snapshot has an edge for each caller and callee on each lane. An edge counts every call since
//! the callee's last reset. The callers of measurements that no edge counts are unknown; see
//! [`Edge`].

use std::collections::BTreeMap;

use super::figures::Figures;
use pfp_read::snapshot::Edge;

/// The callers and callees of a point.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The callers, the longest time first.
    pub callers: Vec<Related>,
    /// The callees, the longest time first.
    pub callees: Vec<Related>,
}

/// The calls between a point and one of its callers or callees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Related {
    /// The caller or callee.
    pub who: CallEnd,
    /// Number of calls.
    pub count: u64,
    /// Exclusive ticks of the callee.
    pub exclusive: u64,
    /// Inclusive ticks of the callee; recursion counted once.
    pub inclusive: u64,
    /// Allocations of the callee, without nested regions that count theirs.
    pub allocs: u64,
    /// Allocated bytes of the callee, the same.
    pub alloc_bytes: u64,
}

/// A caller or callee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEnd {
    /// A point, by its id.
    Point(u32),
    /// No caller: an outermost call.
    Top,
    /// Unknown callers.
    Others,
}

impl Calls {
    /// The calls of one point, over all lanes.
    pub fn of(figures: &Figures) -> Self {
        let (point, edges) = (figures.id(), &figures.snapshot.edges);
        let own = figures.snapshot.edges_of(point).iter();
        let mut callers =
            sum_up(own.map(|edge| (edge.caller.map_or(CallEnd::Top, CallEnd::Point), edge)));
        let total = figures.total();
        let allocs = figures.allocs().copied().unwrap_or_default();
        let rest = |all: u64, of: fn(&Related) -> u64| {
            callers.iter().fold(all, |rest, caller| rest.saturating_sub(of(caller)))
        };
        let others = Related {
            who: CallEnd::Others,
            count: rest(total.count, |caller| caller.count),
            exclusive: rest(total.exclusive, |caller| caller.exclusive),
            inclusive: rest(total.inclusive, |caller| caller.inclusive),
            allocs: rest(allocs.allocs, |caller| caller.allocs),
            alloc_bytes: rest(allocs.bytes, |caller| caller.alloc_bytes),
        };
        // If all lanes had room for all edges, a few calls without an edge only mean that the edges
        // and the cells were not read at the same moment, and do not count as calls by unknown
        // callers.
        let is_late = !callers.is_empty()
            && others.count <= total.count / 100
            && figures.snapshot.lanes.iter().all(|lane| lane.unplaced == 0);
        // A device has neither callers nor callees.
        if others.count > 0 && !is_late && !figures.point().device {
            callers.push(others);
        }
        let inside = edges.iter().filter(|edge| edge.caller == Some(point));
        let callees = sum_up(inside.map(|edge| (CallEnd::Point(edge.point), edge)));
        Self { callers, callees }
    }
}

fn sum_up<'a>(edges: impl Iterator<Item = (CallEnd, &'a Edge)>) -> Vec<Related> {
    let mut sums = BTreeMap::new();
    for (who, edge) in edges {
        let sum: &mut Edge = sums.entry(who).or_default();
        sum.add(edge);
    }
    let related = |(who, sum): (CallEnd, Edge)| {
        let Edge { count, exclusive, inclusive, allocs, alloc_bytes, .. } = sum;
        Related { who, count, exclusive, inclusive, allocs, alloc_bytes }
    };
    let mut sums: Vec<_> = sums.into_iter().map(related).collect();
    sums.sort_by_key(|sum| std::cmp::Reverse((sum.inclusive, sum.count)));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Model;
    use pfp_read::source::synthetic::{Synthetic, cell, edge};

    /// A model with edges on lane 0, whose points have these totals.
    fn model(edges: &[Edge], totals: &[(u32, [u64; 3])]) -> Model {
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.edges = edges.to_vec();
        snapshot.edges.sort_by_key(Edge::key);
        snapshot.cells = totals.iter().map(|(point, sums)| cell(*point, 0, *sums)).collect();
        let mut model = Model::default();
        model.fold(snapshot);
        model
    }

    fn related(who: CallEnd, [count, exclusive, inclusive]: [u64; 3]) -> Related {
        Related { who, count, exclusive, inclusive, allocs: 0, alloc_bytes: 0 }
    }

    #[test]
    fn lanes_are_added_up_and_the_rest_is_others() {
        let edges = [
            edge(2, Some(1), 0, [3, 30, 40]),
            edge(2, Some(1), 1, [1, 5, 5]),
            edge(2, None, 1, [2, 20, 100]),
            edge(3, Some(2), 0, [7, 9, 9]),
            edge(3, Some(1), 0, [1, 1, 1]),
        ];
        let model = model(&edges, &[(2, [10, 75, 200]), (3, [8, 10, 10])]);
        let two = Calls::of(model.point(2).unwrap());
        let expected = [
            related(CallEnd::Top, [2, 20, 100]),
            related(CallEnd::Point(1), [4, 35, 45]),
            related(CallEnd::Others, [4, 20, 55]),
        ];
        assert_eq!(two.callers, expected);
        assert_eq!(two.callees, [related(CallEnd::Point(3), [7, 9, 9])]);
        let one = Calls::of(model.point(1).unwrap());
        assert_eq!(one.callers, []);
        let callees =
            [related(CallEnd::Point(2), [4, 35, 45]), related(CallEnd::Point(3), [1, 1, 1])];
        assert_eq!(one.callees, callees);
        assert_eq!(Calls::of(model.point(3).unwrap()).callers.len(), 2, "nothing is left");
    }

    #[test]
    fn recursion_is_its_own_caller() {
        let edges = [edge(1, Some(1), 0, [2, 20, 30]), edge(1, None, 0, [1, 10, 0])];
        let model = model(&edges, &[(1, [3, 30, 30])]);
        let calls = Calls::of(model.point(1).unwrap());
        assert_eq!(calls.callees, [related(CallEnd::Point(1), [2, 20, 30])]);
        let callers = [related(CallEnd::Point(1), [2, 20, 30]), related(CallEnd::Top, [1, 10, 0])];
        assert_eq!(calls.callers, callers);
    }

    #[test]
    fn device_measurements_have_no_caller() {
        let mut snapshot = model(&[], &[(1, [3, 30, 30])]).snapshot().unwrap().clone();
        snapshot.points[1].device = true;
        let mut model = Model::default();
        model.fold(snapshot);
        assert_eq!(Calls::of(model.point(1).unwrap()), Calls::default());
    }
}
