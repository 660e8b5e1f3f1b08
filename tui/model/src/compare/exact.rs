//! Compares the exact figures of a program's runs: calls, calls by caller, and allocations. A
//! program that does the same work has the same numbers in every run, so no test is needed:
//!
//! ```text
//! baseline  5 5 5   now  5 5   equal
//! baseline  5 5 5   now  6 6   a difference, and so is 5 6
//! baseline  5 7 5   now  6 6   not judged: the number varies between runs of the same program
//! ```
//!
//! Points are matched by name, as by the gate ([`super::gate`]), and figures of one name are added
//! up. A point or a pair of caller and callee that a run does not have counts as 0 calls.

pub mod report;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::gate::ProgramRun;
use crate::lost;
use pfp_read::snapshot::{Allocs, Edge, Lane, Loss, Snapshot};
use pfp_read::text::{counted, first_names};

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CountOf {
    /// Calls of the point.
    Calls,
    /// Calls of the point by one caller.
    CallsByCaller,
    /// Calls of the point that counted their allocations.
    CallsWithAllocs,
    /// Allocations of the point, exclusive.
    Allocs,
    /// Bytes that the point allocated, exclusive.
    AllocBytes,
}

/// A figure of one point in all runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactRow {
    /// The point.
    pub point: String,
    /// What the figure counts.
    pub of: CountOf,
    /// The caller, of [`CountOf::CallsByCaller`]. `None` for calls without a caller.
    pub caller: Option<String>,
    /// The number in each baseline run.
    pub before: Vec<u64>,
    /// The number in each new run.
    pub now: Vec<u64>,
    /// Calls that counted allocations, before and now: the divisors of allocations per call. `None`
    /// for other figures, and if the calls vary between the runs of a side.
    pub calls: Option<[u64; 2]>,
    /// Where there are more calls or allocations than before: the names of the points on the call
    /// path, the outermost first. Empty if unknown.
    pub path: Vec<String>,
}

impl ExactRow {
    /// The number of all runs of a side. `None` if they differ.
    fn number(runs: &[u64]) -> Option<u64> {
        let first = *runs.first()?;
        runs.iter().all(|number| *number == first).then_some(first)
    }

    /// The number in the baseline runs, and the one of the new runs that is furthest above it. If
    /// none is above it, the one that is furthest below.
    fn extremes(&self) -> (u64, u64) {
        let before = self.before.iter().copied().max().unwrap_or(0);
        let most = self.now.iter().copied().max().unwrap_or(0);
        let least = self.now.iter().copied().min().unwrap_or(0);
        (before, if most > before { most } else { least })
    }

    /// Whether a new run has more than the baseline.
    fn grew(&self) -> bool {
        let (before, now) = self.extremes();
        now > before
    }

    /// The order of differences: growth before decline, then the greatest relative change first.
    fn rank(&self) -> (bool, f64, u64) {
        let (before, now) = self.extremes();
        (now < before, -(now as f64 / before as f64).ln().abs(), u64::MAX - now.max(before))
    }
}

/// The result of an exact comparison.
#[derive(Clone, Debug, Default)]
pub struct ExactComparison {
    /// Number of baseline runs.
    pub runs_before: usize,
    /// Number of new runs.
    pub runs_now: usize,
    /// Number of points that have figures.
    pub points: usize,
    /// Number of figures that are the same in all runs.
    pub equal: usize,
    /// Figures that are the same in all baseline runs, and other in a new run; the worst first.
    pub differences: Vec<ExactRow>,
    /// Figures that vary between the baseline runs. They are not judged.
    pub varying: Vec<ExactRow>,
    /// What is not compared, or may be inexact; one sentence each.
    pub notes: Vec<String>,
}

impl ExactComparison {
    /// Whether no figure differs.
    pub fn passed(&self) -> bool {
        self.differences.is_empty()
    }

    /// Whether no figure was judged.
    pub fn is_empty(&self) -> bool {
        self.equal == 0 && self.differences.is_empty()
    }
}

/// Compares the points that `admits` accepts by name, and the calls of these points by each caller.
pub fn compare(
    before: &[ProgramRun],
    now: &[ProgramRun],
    admits: impl Fn(&str) -> bool,
) -> ExactComparison {
    let sides =
        [before, now].map(|runs| runs.iter().map(|run| Numbers::of(run, &admits)).collect());
    let mut result = ExactComparison {
        runs_before: before.len(),
        runs_now: now.len(),
        notes: losses(&sides),
        ..ExactComparison::default()
    };
    let mut only: [Vec<String>; 2] = [const { Vec::new() }; 2];
    for name in names(&sides) {
        let rows = rows(name, &sides, &mut only);
        result.points += usize::from(!rows.is_empty());
        for row in rows {
            match ExactRow::number(&row.before) {
                None => result.varying.push(row),
                before if before == ExactRow::number(&row.now) => result.equal += 1,
                Some(_) => result.differences.push(row),
            }
        }
    }
    result.notes.extend(uncounted(&sides, only));
    for row in result.differences.iter_mut().filter(|row| row.grew()) {
        row.path = path(row, &sides);
    }
    result.differences.sort_by(|a, b| {
        let ((falls, change, size), (other_falls, other_change, other_size)) = (a.rank(), b.rank());
        falls
            .cmp(&other_falls)
            .then(change.total_cmp(&other_change))
            .then(size.cmp(&other_size))
            .then_with(|| (&a.point, a.of, &a.caller).cmp(&(&b.point, b.of, &b.caller)))
    });
    result
}

/// The runs of both sides: the baseline and the new runs.
type Sides = [Vec<Numbers>; 2];

/// The calls of points by their callers, by the name of the point and of the caller.
type Edges = BTreeMap<String, BTreeMap<Option<String>, Edge>>;

/// A figure of an edge.
type EdgeFigure = fn(&Edge) -> u64;

/// The exact figures of one run, by the names of points.
#[derive(Default)]
struct Numbers {
    points: BTreeMap<String, (u64, Allocs)>,
    /// The callers of admitted points.
    edges: Edges,
    /// The callers of all points, for call paths.
    all_edges: Edges,
    losses: Vec<(Loss, u64)>,
    /// Calls whose caller is unknown, because a lane had no room for it.
    unplaced: u64,
}

impl Numbers {
    fn of(run: &ProgramRun, admits: &impl Fn(&str) -> bool) -> Self {
        let snapshot = run.whole();
        let mut numbers = Self::default();
        let names = names_of(&snapshot);
        for cell in &snapshot.cells {
            let Some(name) = names.get(&cell.point).filter(|name| admits(name)) else { continue };
            let (calls, allocs) = numbers.points.entry(name.clone()).or_default();
            *calls = calls.saturating_add(cell.total().count);
            *allocs = allocs.plus(&cell.allocs);
        }
        for edge in &snapshot.edges {
            let Some(name) = names.get(&edge.point) else { continue };
            let caller = edge.caller.and_then(|caller| names.get(&caller).cloned());
            let callers = numbers.all_edges.entry(name.clone()).or_default();
            let sum = callers.entry(caller).or_default();
            *sum = sum.combined(edge, u64::saturating_add);
        }
        let admitted = numbers.all_edges.iter().filter(|(name, _)| admits(name));
        numbers.edges = admitted.map(|(name, callers)| (name.clone(), callers.clone())).collect();
        numbers.losses = snapshot.losses.iter().filter(|(kind, _)| makes_inexact(*kind)).collect();
        let unplaced = |lane: &Lane| lane.unplaced;
        numbers.unplaced = snapshot.lanes.iter().map(unplaced).fold(0, u64::saturating_add);
        numbers
    }

    fn calls(&self, name: &str) -> u64 {
        self.points.get(name).map_or(0, |(calls, _)| *calls)
    }

    fn calls_by(&self, name: &str, caller: &Option<String>) -> u64 {
        self.edges.get(name).and_then(|callers| callers.get(caller)).map_or(0, |edge| edge.count)
    }

    fn allocs(&self, name: &str) -> Allocs {
        self.points.get(name).map_or(Allocs::default(), |(_, allocs)| *allocs)
    }
}

/// The names of the points by their ids, without the calibration.
fn names_of(snapshot: &Snapshot) -> HashMap<u32, String> {
    let points = snapshot.points.iter().filter(|point| point.number.unwrap_or(point.id) != 0);
    points.map(|point| (point.id, point.shown_name())).collect()
}

/// Whether losses of this kind make numbers of calls or allocations inexact. The threads of the
/// overflow lane count calls, but no allocations.
fn makes_inexact(kind: Loss) -> bool {
    matches!(
        kind,
        Loss::PointsRefused
            | Loss::SpaceRefused
            | Loss::MismatchedEnds
            | Loss::BeginsRefused
            | Loss::BeginsMissed
            | Loss::LanesOverflowed
    )
}

/// The names of the points that any run has.
fn names(sides: &Sides) -> BTreeSet<&String> {
    let runs = sides.iter().flatten();
    runs.flat_map(|run| run.points.keys().chain(run.edges.keys())).collect()
}

/// The figures of a point that are not 0 in all runs. A figure is left out if it is the number of
/// the point's calls in every run, since it says the same: the calls by the only caller. The
/// allocations are left out if only one side has counted them; `only` then gets the name.
fn rows(name: &str, sides: &Sides, only: &mut [Vec<String>; 2]) -> Vec<ExactRow> {
    let numbers = |of: &dyn Fn(&Numbers) -> u64| {
        sides.each_ref().map(|runs| runs.iter().map(of).collect::<Vec<u64>>())
    };
    let row = |of, caller: Option<&str>, [before, now]: [Vec<u64>; 2], calls| ExactRow {
        point: name.to_owned(),
        of,
        caller: caller.map(str::to_owned),
        before,
        now,
        calls,
        path: Vec::new(),
    };
    let is_any = |runs: &[u64]| runs.iter().any(|number| *number > 0);
    let mut rows = Vec::new();
    let calls = numbers(&|run| run.calls(name));
    if calls.iter().any(|runs| is_any(runs)) {
        rows.push(row(CountOf::Calls, None, calls.clone(), None));
    }
    let callers = sides.iter().flatten().filter_map(|run| run.edges.get(name));
    for caller in callers.flat_map(BTreeMap::keys).collect::<BTreeSet<_>>() {
        let edge = numbers(&|run| run.calls_by(name, caller));
        if edge.iter().any(|runs| is_any(runs)) && edge != calls {
            rows.push(row(CountOf::CallsByCaller, caller.as_deref(), edge, None));
        }
    }
    let counting = numbers(&|run| run.allocs(name).calls);
    match counting.each_ref().map(|runs| is_any(runs)) {
        [true, true] => {
            let [before, now] = counting.each_ref().map(|runs| ExactRow::number(runs));
            let each = before.zip(now).map(|(before, now)| [before, now]);
            if counting != calls {
                rows.push(row(CountOf::CallsWithAllocs, None, counting, None));
            }
            let allocs = numbers(&|run| run.allocs(name).allocs);
            rows.push(row(CountOf::Allocs, None, allocs, each));
            let bytes = numbers(&|run| run.allocs(name).bytes);
            rows.push(row(CountOf::AllocBytes, None, bytes, each));
        }
        // A point that one side has not called allocates nothing there.
        [is_before, is_now] if is_before != is_now && calls.iter().all(|runs| is_any(runs)) => {
            only[usize::from(is_now)].push(name.to_owned());
        }
        _ => {}
    }
    rows
}

/// The names of the sides in sentences.
const SIDES: [&str; 2] = ["the baseline runs", "the new runs"];

/// A sentence about points whose allocations only one side has counted.
fn uncounted(sides: &Sides, only: [Vec<String>; 2]) -> Vec<String> {
    let counts = |runs: &[Numbers]| runs.iter().any(|run| run.points.values().any(has_allocs));
    let others = [SIDES[1], SIDES[0]];
    let mut notes = Vec::new();
    for (side, names) in only.iter().enumerate().filter(|(_, names)| !names.is_empty()) {
        notes.push(match counts(&sides[1 - side]) {
            false => {
                format!("{} did not count allocations, so these are not compared", others[side])
            }
            true => format!(
                "only {} counted the allocations of {}, so these are not compared",
                SIDES[side],
                first_names(names)
            ),
        });
    }
    notes
}

fn has_allocs((_, allocs): &(u64, Allocs)) -> bool {
    allocs.calls > 0
}

/// A sentence for each side that lacks calls or allocations.
fn losses(sides: &Sides) -> Vec<String> {
    let mut notes = Vec::new();
    for (runs, side) in sides.iter().zip(SIDES) {
        let sum = |of: Loss| {
            let counts = runs.iter().flat_map(|run| &run.losses).filter(|(kind, _)| *kind == of);
            counts.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
        };
        let lost = Loss::ALL.into_iter().map(|kind| (kind, sum(kind))).filter(|(_, n)| *n > 0);
        let mut lost: Vec<String> =
            lost.map(|(kind, count)| format!("{count} {}", lost::words(kind, count))).collect();
        let unplaced = runs.iter().map(|run| run.unplaced).fold(0, u64::saturating_add);
        if unplaced > 0 {
            lost.push(counted(unplaced as usize, "call") + " without a known caller");
        }
        if !lost.is_empty() {
            notes.push(format!("{side} may lack calls or allocations: {}", lost.join(", ")));
        }
    }
    notes
}

/// The path to what a row counts, by the runs of each side that have most of it: from each point to
/// the caller whose part grew most or, if no call grew, to the caller with most calls. Empty if the
/// path is no longer than the row's own names, and if the row counts allocations of which no caller
/// is known to have more.
fn path(row: &ExactRow, sides: &Sides) -> Vec<String> {
    let point = row.point.as_str();
    let [before, now] = [(&row.before, &sides[0]), (&row.now, &sides[1])].map(|(numbers, runs)| {
        let of_each = numbers.iter().zip(runs);
        of_each.max_by_key(|(number, _)| **number).map(|(_, run)| &run.all_edges)
    });
    let edge_before = |point: &str, caller: &Option<String>| {
        before.and_then(|edges| edges.get(point)?.get(caller)).copied().unwrap_or_default()
    };
    // The caller to name, and how much its part grew; no caller in `known`, as in a recursion.
    let caller_of = |point: &str, known: &[&str], of: EdgeFigure| {
        let callers = now.and_then(|edges| edges.get(point)).into_iter().flatten();
        let others =
            callers.filter(|(name, _)| name.as_deref().is_none_or(|it| !known.contains(&it)));
        let grown = others.map(|(name, edge)| {
            let grown = of(edge).saturating_sub(of(&edge_before(point, name)));
            ((grown, edge.count), name.as_deref())
        });
        grown.max_by_key(|(grown, _)| *grown)
    };
    // Further out, allocations of nested regions count, too.
    let (first, outer): (EdgeFigure, EdgeFigure) = match row.of {
        CountOf::Calls | CountOf::CallsByCaller => (|edge| edge.count, |edge| edge.count),
        CountOf::Allocs => (|edge| edge.allocs, |edge| edge.alloc_bytes_inclusive),
        CountOf::AllocBytes => (|edge| edge.alloc_bytes, |edge| edge.alloc_bytes_inclusive),
        CountOf::CallsWithAllocs => return Vec::new(),
    };
    let found = caller_of(point, &[point], first);
    let (mut next, own) = match (row.of, found) {
        (CountOf::CallsByCaller, _) => (row.caller.as_deref(), 2),
        (CountOf::Calls, found) => (found.and_then(|(_, name)| name), 1),
        (_, Some(((grown, _), name))) if grown > 0 => (name, 1),
        _ => return Vec::new(),
    };
    let mut names = vec![point];
    while let Some(caller) = next {
        names.push(caller);
        next = caller_of(caller, &names, outer).and_then(|(_, name)| name);
    }
    if names.len() <= own {
        return Vec::new();
    }
    names.iter().rev().map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests;
