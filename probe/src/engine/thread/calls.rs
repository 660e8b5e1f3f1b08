//! Calls: the open regions that a thread shows, and which point ran inside which.

use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

use pfp_shm_layout::calls::{
    self, CallAllocs, CallSums, Calls, ELSEWHERE, Edge, MAX_EDGES, OpenRegion,
};
use pfp_shm_layout::cell;
use pfp_shm_layout::geometry::PAGE;
use pfp_shm_layout::ring::{DEPTH_SHIFT, What};
use pfp_shm_layout::segment::Segment;

use super::{Entry, Thread};
use crate::engine::process;
use crate::engine::region::{CONTEXT, LEVEL};
use crate::word;

/// Index of a thread's edges: a hash table of edge numbers plus one.
#[derive(Debug)]
pub(in crate::engine) struct EdgeIndex([AtomicU16; INDEXED]);

/// Size of the table: at most a third of it is used.
const INDEXED: usize = 2048;
const _: () = assert!(INDEXED >= 3 * MAX_EDGES && INDEXED.is_power_of_two());

impl EdgeIndex {
    /// The places where a key may be, the most likely one first.
    fn places(&self, key: u64) -> impl Iterator<Item = &AtomicU16> {
        // Fibonacci hashing: the upper bits of a product with 2^64 / phi.
        const SHIFT: u32 = u64::BITS - INDEXED.trailing_zeros();
        let first = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> SHIFT) as usize;
        (first..first + INDEXED).map(|at| &self.0[at % INDEXED])
    }
}

/// Size of the entries that precede the entry of a tag's region. The tag's bits between context and
/// level are 0. There are 256 entries: deeper regions use the entries of outer ones again.
#[inline(always)]
fn open_bytes(tag: u64) -> u64 {
    const BYTES: u32 = size_of::<OpenRegion>() as u32;
    const { assert!(calls::MAX_OPEN.trailing_zeros() == u32::BITS - DEPTH_SHIFT) };
    const { assert!(BYTES.is_power_of_two() && LEVEL / BYTES as u64 == CONTEXT + 1) };
    u64::from(tag as u32 >> (DEPTH_SHIFT - BYTES.trailing_zeros()))
}

/// For an open region: the address of the calls, plus the size of the entries that precede the
/// region's entry. The entries of the region and of the one that encloses it are at constant
/// distances from this address, so one register suffices for both.
#[derive(Clone, Copy)]
pub(crate) struct OpenAt(usize);

impl OpenAt {
    /// The entry of the open region.
    #[inline(always)]
    pub(crate) fn region(self) -> &'static OpenRegion {
        // SAFETY: a thread with cells has calls, in the segment, with an entry for each level.
        unsafe { &*ptr::with_exposed_provenance::<OpenRegion>(self.0 + Calls::OPEN_OFFSET) }
    }

    /// The names of a record: `point`, and the point of the enclosing region, which is in the
    /// preceding entry. The root's entry precedes the entry of level 0.
    #[inline(always)]
    pub(crate) fn names(self, point: u32) -> u64 {
        let calls = ptr::with_exposed_provenance::<Calls>(self.0);
        word::or_halves::<Calls, { Calls::CALLER_OFFSET }>(calls, u64::from(point))
    }
}

impl Thread {
    /// The entry of a region that begins at a place. The thread has a lane.
    #[inline(always)]
    pub(crate) fn open_region(&self, place: u64) -> &OpenRegion {
        self.open_at(place).region()
    }

    /// The address from which both [`Self::open_region`] and the enclosing region's entry are
    /// reached.
    #[inline(always)]
    pub(crate) fn open_at(&self, place: u64) -> OpenAt {
        self.open_behind(open_bytes(place))
    }

    /// The entry at a distance of `bytes` bytes from the first one.
    #[inline(always)]
    fn open_behind(&self, bytes: u64) -> OpenAt {
        OpenAt(word::plus::<Self, { offset_of!(Self, calls) }>(self, bytes) as usize)
    }

    /// The point of the region that encloses a place, as an offset. Without one, the number
    /// [`ROOT`](calls::ROOT) as an offset.
    #[inline(always)]
    pub(crate) fn caller(&self, place: u64) -> u32 {
        (self.open_at(place).names(0) >> u32::BITS) as u32
    }

    /// The calls of a thread that has a lane.
    pub(in crate::engine) fn calls(&self) -> Option<&Calls> {
        // SAFETY: the pointer is null, or leads to calls in the segment.
        unsafe { self.calls.load(Relaxed).as_ref() }
    }

    /// Shows readers that the innermost region has ended, even if it has written no record.
    pub(in crate::engine) fn show_end(&self, now: u64) {
        if let Some(calls) = self.calls().filter(|_| self.is_alive()) {
            let level = self.level();
            calls.open(level as usize).end();
            calls.resume(now, level);
        }
    }

    /// Adds measurements that have the same [names](What) to their edge; `entry` belongs to the
    /// point. The edge then holds the lane's records below `folded`. False in a child that a
    /// signal handler has forked during the call.
    #[inline(always)]
    pub(in crate::engine) fn add_call(
        &self,
        entry: &Entry,
        names: u64,
        more: CallSums,
        folded: u64,
    ) -> bool {
        match self.known_edge(entry).filter(|edge| edge.key() == names) {
            Some(edge) => self.add_to_edge(edge, None, more, folded),
            None => {
                let CallSums { count, exclusive, inclusive } = more;
                self.add_other_call(names, count, exclusive, inclusive, folded)
            }
        }
    }

    /// Like [`Self::add_call`], for another caller than last time. It takes its arguments in
    /// registers, so that a function that ends with this call needs no stack.
    #[inline(never)]
    fn add_other_call(
        &self,
        names: u64,
        count: u64,
        own: u64,
        inclusive: u64,
        folded: u64,
    ) -> bool {
        if (What { names, place: 0 }).caller() == ELSEWHERE {
            return true;
        }
        let more = CallSums { count, exclusive: own, inclusive };
        if let (Some(entry), Some(edge)) = (self.table().entry_named(names), self.find_edge(names))
        {
            let is_added = self.add_to_edge(edge, Some(entry.follows().epoch()), more, folded);
            let calls = self.calls.load(Relaxed).addr();
            entry.edge.store((ptr::from_ref(edge).addr() - calls) as u32, Relaxed);
            return is_added;
        }
        if self.is_still_alive() {
            // A plain addition, because only folds count here, and no handler folds at the same
            // time.
            cell::add(&self.counters().unplaced, count);
        }
        self.is_alive()
    }

    #[inline(always)]
    fn add_to_edge(&self, edge: &Edge, epoch: Option<u32>, more: CallSums, folded: u64) -> bool {
        let staged = edge.stage();
        // Checked as late as possible: a child that a signal handler has forked must write nothing.
        if !self.is_still_alive() {
            return false;
        }
        edge.add(staged, epoch, more, folded);
        true
    }

    /// Adds allocations of a reset epoch to the edge of `names`; `entry` belongs to the point. Adds
    /// nothing if no edge is left, or if memory runs out. Not inlined, so that the end of a region
    /// that has allocated nothing needs no registers for it.
    #[inline(never)]
    pub(in crate::engine) fn add_call_allocs(
        &self,
        entry: &Entry,
        names: u64,
        epoch: u32,
        more: CallAllocs,
    ) {
        let known = self.known_edge(entry).filter(|edge| edge.key() == names);
        let Some(edge) = known.or_else(|| self.find_edge(names)) else { return };
        let first = self.calls.load(Relaxed).addr() + Calls::edge_offset(0);
        let number = (ptr::from_ref(edge).addr() - first) / size_of::<Edge>();
        let known = self.allocs.of_edge(number);
        if let Some(allocs) = known.or_else(|| self.new_edge_allocs(number)) {
            let additions = allocs.folded() + 1;
            self.add_to_edge(allocs, Some(epoch), more.to_sums(), additions);
        }
    }

    #[cold]
    #[inline(never)]
    fn new_edge_allocs(&self, number: usize) -> Option<&Edge> {
        let process = process::current().filter(|_| self.is_alive())?;
        self.allocs.back_edges(process, self.counters(), number)?;
        self.allocs.of_edge(number)
    }

    /// Whether the edge of `names` exists and lacks the record of this number.
    pub(in crate::engine) fn lacks_call(&self, names: u64, number: u64) -> bool {
        self.find_edge(names).is_some_and(|edge| edge.folded() <= number)
    }

    /// The edge that the last call of a point was added to.
    #[inline(always)]
    fn known_edge(&self, entry: &Entry) -> Option<&Edge> {
        let offset = entry.edge.load(Relaxed) as usize;
        // SAFETY: `add_other_call` wrote the offset of an edge of these calls.
        (offset != 0).then(|| unsafe { &*self.calls.load(Relaxed).byte_add(offset).cast() })
    }

    /// Finds the edge of a record's names, or makes it. `None` if no edge is left.
    #[inline(never)]
    fn find_edge(&self, key: u64) -> Option<&Edge> {
        let calls = self.calls().filter(|_| self.is_alive())?;
        // SAFETY: the index belongs to the thread. It follows the table, and was mapped as zeros.
        let index = unsafe { &*self.behind_table().cast::<EdgeIndex>() };
        for place in index.places(key) {
            let found = usize::from(place.load(Relaxed));
            if found == 0 {
                let number = self.counters().edges.load(Relaxed) as usize;
                let edge = calls.edge(number).filter(|_| self.back_edge(number))?;
                edge.set_key(key);
                place.store(number as u16 + 1, Relaxed);
                calls::announce(&self.counters().edges, number as u64 + 1);
                return Some(edge);
            }
            if let Some(edge) = calls.edge(found - 1).filter(|edge| edge.key() == key) {
                return Some(edge);
            }
        }
        None
    }

    /// Backs the page of an edge, if the edge is the first one of its page; false if memory runs
    /// out.
    fn back_edge(&self, number: usize) -> bool {
        let offset = Calls::edge_offset(number);
        if offset < Calls::NEEDED || !offset.is_multiple_of(PAGE) {
            return true;
        }
        let at = self.calls.load(Relaxed).addr() - self.segment.load(Relaxed).addr() + offset;
        let ask = |segment: &Segment| segment.back_or_count(at, PAGE).ok();
        process::current().and_then(|process| process.ask_for_space(ask)).is_some()
    }
}
