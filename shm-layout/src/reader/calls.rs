//! A reader's view of a lane's calls: its open regions, and the edges between callers and callees.

use std::cell::RefCell;
use std::collections::HashMap;

use super::backed::Sparse;
use super::bounds::COPY_ATTEMPTS;
use super::keys::CacheKey;
use super::poll::{Reader, or_end, point_of};
use super::reading::CellReading;
use crate::heap::{self, Grow, NoMemory};
use crate::layout::calls::{self, CallAllocs, CallSums, Calls, Edge, EdgePicture, OpenPicture};
use crate::layout::control::Control;
use crate::layout::geometry::RING_BLOCKS;
use crate::layout::ring::{self, Addition, Record, Slot, Written};
use crate::layout::segment::Segment;
use crate::sync::Ordering;

/// The calls of a lane at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneCalls {
    /// Number of the lane.
    pub lane: u32,
    /// The open regions of the lane, outermost first. The regions of an ended thread were open when
    /// it ended.
    pub open: Vec<OpenPicture>,
    /// The thread's CPU time when it claimed the lane, in ns.
    pub cpu: u64,
    /// Whether all records in the ring are of the thread's own context; false without open regions.
    /// Once the thread has run other contexts, the time off the CPU at a region's begin no longer
    /// applies to the thread.
    pub is_own: bool,
    /// The calls by the thread, and by earlier owners of the lane, since the last reset of each
    /// callee.
    pub edges: Vec<Call>,
    /// Records that found no room for an edge.
    pub unplaced: u64,
}

/// Figures of the calls of one point by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Number of the calling point, or [`calls::ROOT`], [`calls::UNKNOWN`] or [`calls::ELSEWHERE`].
    pub caller: u32,
    /// Number of the called point.
    pub callee: u32,
    /// Sums over the calls.
    pub sums: CallSums,
    /// Allocations of the calls.
    pub allocs: CallAllocs,
}

impl<S: std::borrow::Borrow<Segment>> Reader<S> {
    /// Copies the calls of all lanes that have any, for the lanes and points of the last poll.
    #[must_use]
    pub fn calls(&self) -> Vec<LaneCalls> {
        or_end(self.try_calls())
    }

    /// [`Self::calls`] for code that runs inside the host.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn try_calls(&self) -> Result<Vec<LaneCalls>, NoMemory> {
        let segment: &Segment = self.segment.borrow();
        let sparse = Sparse::new(segment, &self.backed);
        // Each lane has blocks of its own, but a damaged directory may name the same block many
        // times.
        let most = segment.geometry().blocks_present() / RING_BLOCKS as usize;
        let lanes = self.picture.lanes.iter().filter_map(|reading| {
            let lane = sparse.lane(reading.id as usize)?;
            Some((reading, lane, sparse.calls(reading.lane.calls_block)?))
        });
        let mut found = Vec::new();
        for (reading, lane, calls) in lanes.take(most) {
            let written = lane.counters.written.enter();
            let slots = sparse.ring(reading.lane.ring_block, written);
            let slots = slots.unwrap_or_default();
            let keys = self.lanes.get(reading.id as usize).map_or(&[][..], |lane| &lane.keys);
            let epochs = Epochs {
                segment: sparse,
                tuples: &self.tuples,
                keys,
                cells: &self.picture.cells,
                visited: RefCell::default(),
            };
            let mut open = open(&lane.counters.written, calls, slots)?;
            let mut edges = Vec::new();
            for _ in 0..COPY_ATTEMPTS {
                let folded = ring::folded(&lane.counters.folded);
                let count = sparse.edges(reading.lane.calls_block, &lane.counters);
                let allocs = sparse.edge_allocs(&lane.counters);
                let read = |edge: &Edge| (0..COPY_ATTEMPTS).find_map(|_| edge.read());
                let allocs_of = |number: usize| {
                    let (allocs, _) = allocs.filter(|(_, count)| number < *count)?;
                    read(allocs.of(number)?)
                };
                let edges_of_lane = (0..count).filter_map(|number| {
                    let mut edge = read(calls.edge(number)?)?;
                    let allocs = allocs_of(number);
                    if let Some(found) = allocs.filter(|it| epochs.has(edge.callee, it.epoch)) {
                        edge.allocs = CallAllocs::of_sums(found.sums);
                    }
                    Some(edge)
                });
                let mut sums = EdgeSums::new(edges_of_lane, &epochs)?;
                let mut added = Ok(());
                let is_whole = slots.is_empty()
                    || ring::visit(&lane.counters.written, slots, folded, |number, addition| {
                        added = added.and_then(|()| sums.add(number, addition, &epochs));
                    })
                    .is_some();
                added?;
                if is_whole {
                    edges = sums.sum_up(|it| epochs.whole(it))?;
                    break;
                }
            }
            // Not computed for a thread without open regions.
            let is_own = !open.is_empty() && is_own(&lane.counters.written, slots)?;
            for region in &mut open {
                region.point = epochs.whole(region.point);
            }
            let unplaced = lane.counters.unplaced.load(Ordering::Relaxed);
            let (lane, cpu) = (reading.id, calls.cpu());
            found.try_push(LaneCalls { lane, open, cpu, is_own, edges, unplaced })?;
        }
        self.backed.close_file();
        Ok(found)
    }

    /// The points of the open regions on each lane that has any, outermost first, for the lanes of
    /// the last poll. This reads little more than the stacks themselves, and so is cheap enough for
    /// many calls between two polls.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "only viewers ask for it")]
    pub fn open_stacks(&self) -> Vec<(u32, Vec<u32>)> {
        let segment: &Segment = self.segment.borrow();
        let sparse = Sparse::new(segment, &self.backed);
        let most = segment.geometry().blocks_present() / RING_BLOCKS as usize;
        let lanes = self.picture.lanes.iter().filter_map(|reading| {
            let lane = sparse.lane(reading.id as usize)?;
            let calls = sparse.calls(reading.lane.calls_block)?;
            let written = lane.counters.written.enter();
            let slots = sparse.ring(reading.lane.ring_block, written).unwrap_or_default();
            let open = or_end(open(&lane.counters.written, calls, slots));
            let points = open
                .iter()
                .map(|region| point_of(&self.tuples, region.point).unwrap_or(region.point));
            (!open.is_empty()).then(|| (reading.id, points.collect()))
        });
        let found = lanes.take(most).collect();
        self.backed.close_file();
        found
    }
}

/// The open regions on a lane, where the point of a region may be a tuple. Empty if a region ended
/// during each try.
fn open(written: &Written, calls: &Calls, slots: &[Slot]) -> Result<Vec<OpenPicture>, NoMemory> {
    for _ in 0..COPY_ATTEMPTS {
        let (seen, last) = last(written, slots)?;
        let open = calls.open_since(last.as_ref())?;
        // Pairs with `ring-publish`: no region has ended in between.
        if written.enter() == seen {
            return Ok(open);
        }
    }
    Ok(Vec::new())
}

/// The number of written records, and the last record of a region that nests on its thread, if the
/// ring has one.
fn last(written: &Written, slots: &[Slot]) -> Result<(u64, Option<Record>), NoMemory> {
    let mut records = Vec::new();
    // In most cases the record is among the last four.
    for kept in [4, slots.len() as u64] {
        records.clear();
        let from = written.now().saturating_sub(kept);
        if slots.is_empty() {
            break;
        }
        let next = ring::drain(written, slots, from, &mut records)?.next;
        let nested = |record: &&Record| record.caller != calls::ELSEWHERE;
        let found = records.iter().rfind(nested);
        if found.is_some() {
            return Ok((next, found.copied()));
        }
    }
    Ok((written.now(), None))
}

/// Whether all records that nest on their thread are of the thread's own context.
fn is_own(written: &Written, slots: &[Slot]) -> Result<bool, NoMemory> {
    let mut records = Vec::new();
    if !slots.is_empty() {
        ring::drain(written, slots, 0, &mut records)?;
    }
    Ok(records.iter().all(|record| record.caller == calls::ELSEWHERE || record.context == 0))
}

/// The reset epochs of points, and the epochs that a lane's cells have reached.
struct Epochs<'a> {
    segment: Sparse<'a>,
    tuples: &'a [(u32, u32)],
    keys: &'a [CacheKey],
    cells: &'a [CellReading],
    /// The results of [`Self::has_followed`] so far, by point.
    visited: RefCell<HashMap<u32, bool>>,
}

impl Epochs<'_> {
    /// The reset epoch of a point, which its tuples share.
    fn now(&self, point: u32) -> Option<u32> {
        let point = self.whole(point);
        Some(Control(self.segment.control_word(point as usize)?).epoch())
    }

    /// Whether an edge's epoch is the present one of its callee.
    fn has(&self, callee: u32, epoch: u32) -> bool {
        self.now(callee).map(calls::short_epoch) == Some(epoch)
    }

    /// The metered point of a tuple, or the point itself.
    fn whole(&self, point: u32) -> u32 {
        point_of(self.tuples, point).unwrap_or(point)
    }

    /// Whether the lane's unfolded records of a point count since the point's last reset: the
    /// lane's cell of the point follows the present epoch, or does not exist.
    fn has_followed(&self, point: u32) -> Result<bool, NoMemory> {
        let mut visited = self.visited.borrow_mut();
        if let Some(&known) = visited.get(&point) {
            return Ok(known);
        }
        let whole = self.whole(point);
        // Searches the lane's cells only for the points that have unfolded records, since these are
        // few, while a lane may have many cells.
        let of_point = |key: &CacheKey| {
            let (place, epoch) = key.epoch_of(whole)?;
            (self.cells.get(place)?.point == point).then_some(epoch)
        };
        let cell = self.keys.iter().find_map(of_point);
        let has_followed = cell.is_none_or(|cell| self.now(point) == Some(cell));
        visited.try_reserve(1)?;
        visited.insert(point, has_followed);
        Ok(has_followed)
    }
}

/// The edges of a lane.
struct EdgeSums(HashMap<(u32, u32), EdgePicture>);

impl EdgeSums {
    fn new(
        edges: impl Iterator<Item = EdgePicture>,
        epochs: &Epochs<'_>,
    ) -> Result<Self, NoMemory> {
        let of = |mut edge: EdgePicture| {
            if !epochs.has(edge.callee, edge.epoch) {
                edge.sums = CallSums::default();
            }
            ((edge.caller, edge.callee), edge)
        };
        let mut sums = HashMap::new();
        for (key, edge) in edges.map(of) {
            sums.try_reserve(1)?;
            sums.insert(key, edge);
        }
        Ok(Self(sums))
    }

    /// Adds a record of the ring, unless its edge holds the record already.
    fn add(
        &mut self,
        number: u64,
        addition: Addition,
        epochs: &Epochs<'_>,
    ) -> Result<(), NoMemory> {
        let Addition { point, caller, exclusive, inclusive } = addition;
        if caller == calls::ELSEWHERE || !epochs.has_followed(point)? {
            return Ok(());
        }
        self.0.try_reserve(1)?;
        let edge = self.0.entry((caller, point)).or_insert_with(|| EdgePicture {
            caller,
            callee: point,
            ..EdgePicture::default()
        });
        if edge.folded <= number {
            edge.sums.add(CallSums { count: 1, exclusive, inclusive });
        }
        Ok(())
    }

    /// The edges with measurements or allocations, by caller and callee. `point` maps a tuple to its
    /// metered point, and any other point to itself.
    fn sum_up(self, point: impl Fn(u32) -> u32) -> Result<Vec<Call>, NoMemory> {
        let mut sums = HashMap::<_, (CallSums, CallAllocs)>::new();
        sums.try_reserve(self.0.len())?;
        let is_any =
            |edge: &EdgePicture| edge.sums.count > 0 || edge.allocs != CallAllocs::default();
        for edge in self.0.into_values().filter(is_any) {
            let (sums, allocs) = sums.entry((point(edge.caller), point(edge.callee))).or_default();
            sums.add(edge.sums);
            allocs.add(edge.allocs);
        }
        let calls = sums.into_iter();
        let calls =
            calls.map(|((caller, callee), (sums, allocs))| Call { caller, callee, sums, allocs });
        let mut calls = heap::collect(calls)?;
        calls.sort_unstable_by_key(|call| (call.caller, call.callee));
        Ok(calls)
    }
}
