//! The private state of a thread, which leads to its lane.
//!
//! ```text
//!  thread-local pointer --> Thread (private pages, one per lane, reused)
//!                           | clock, open regions, ring, space | --> ring in the segment
//!                           | table: an entry for each point   | --> cells in the segment
//! ```
//!
//! The fast path requires that the thread's table has the control word of the point. The table's
//! pages read zero in a forked child, so the child cannot write to its parent's lane, however it
//! was forked. This also holds for a child that a signal handler forks in the middle of a region:
//! the covered ticks read zero, too, and are checked before anything is written. An entry of zeros
//! also means a point without a cell, or a thread without a lane. All these cases take the same
//! slow path, [`super::prepare::point`].

pub(super) mod allocs;
pub(super) mod calls;
pub(crate) mod given;
pub(crate) mod lane;
pub(crate) mod record;
pub(crate) mod ring;
mod space;
pub(crate) mod stack;
pub(super) mod usage;

use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::amounts::SumWords;
use pfp_shm_layout::calls::Calls;
use pfp_shm_layout::cell::Cell;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::geometry::{CHUNK, PAGE};
use pfp_shm_layout::histogram;
use pfp_shm_layout::lane::LaneCounters;
use pfp_shm_layout::ring::{POINT_SHIFT, Slot};
use pfp_shm_layout::segment::Chunk;

use self::allocs::ThreadAllocs;
use self::usage::UsageNotes;
use super::facts::Offset;
use super::region::{CONTEXT, GENERATION, GENERATIONS, IS_PLACE, LEVELS, RUN, RUNS, Region};
use super::regions::{Regions, Shared};
use crate::clock::ThreadClock;
use crate::point::Point;
use crate::word;

/// The private state of a thread. Its words are atomic because a signal handler of the same thread
/// may run in between. They need no ordering, because no other thread uses them, except `table`,
/// which [`crate::stats`] reads, too.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Thread {
    // Fields that begin and end use.
    /// The first field, so that a pointer to it is also one to the thread.
    pub(crate) clock: ThreadClock,
    /// A [`Position`](ring::Position), or the [marker](crate::marker) of an end or fold that is in
    /// progress: a signal handler must not start another one.
    pub(crate) position: AtomicU64,
    ring: AtomicPtr<Slot>,
    /// The thread's published calls, in the segment; null on the overflow lane.
    pub(super) calls: AtomicPtr<Calls>,
    /// The stack of the current context, and the bytes of the regions that it has room for.
    stack: AtomicPtr<Region>,
    limit: AtomicU64,
    counters: AtomicPtr<LaneCounters>,
    pub(super) segment: AtomicPtr<u8>,
    first_chunk: AtomicU64,
    chunk_count: AtomicU64,
    /// Number of the ring's records that are in the cells.
    pub(super) folded: AtomicU64,
    /// Number of entries in the table.
    pub(super) points: AtomicU64,

    // Fields that only the cold paths use.
    /// The marker in [`Thread::position`], if a context set it that is suspended now; 0 otherwise.
    pub(super) suspended: AtomicU64,
    /// The counter when the lane was claimed.
    pub(super) claimed: AtomicU64,
    /// Kernel id of the thread.
    pub(super) tid: AtomicU64,
    lane: AtomicU64,
    generation: AtomicU64,
    /// One bit for each page of the ring that is backed.
    ring_backed: AtomicU64,
    cell_block: AtomicU64,
    cells_used: AtomicU64,
    /// Position of the next chunk: block times `PER_BLOCK` plus chunks used. It is one word, so
    /// that a signal handler cannot get the same chunk.
    chunks: AtomicU64,
    /// Size of this mapping in bytes.
    bytes: AtomicU64,
    /// The lane's owner: the thread's kernel id in the lower half, its generation in the upper
    /// half. 0 without an owner. See `reap_dead` in `lane`.
    holder: AtomicU64,
    /// Pages of the stack on which the thread runs outside of signal handlers; see
    /// [`Thread::has_room`].
    pub(super) roomy_pages: [AtomicU64; 2],
    /// Start and end of the last stack for signal handlers on which the thread was found.
    pub(super) signal_stack: [AtomicU64; 2],
    pub(super) allocs: ThreadAllocs,
    pub(super) usage: UsageNotes,
    /// Regions of the thread's own context.
    pub(crate) own: Regions,
    /// The current context, null for the thread's own; see [`Thread::set_current`].
    pub(crate) current: AtomicPtr<Shared>,
    /// Regions of the current context.
    pub(super) regions: AtomicPtr<Regions>,

    // The fields below read zero in a forked child, and start on a page of their own. The child
    // keeps the fields above, so that it finds no null pointer if it was forked in the middle of a
    // begin or end.
    wiped: WipedFromHere,
    /// Ticks of all ended regions of the current context, nested regions counted once, with the
    /// overhead of measuring them. Never zero.
    covered: AtomicU64,
    /// The [tag](super::region) of the next region.
    pub(crate) place: AtomicU64,
    /// Zero in a wiped copy of the page.
    alive: AtomicU64,
    spare: AtomicU64,
    /// An entry for each point, by number. The mapping has more entries beyond this page. See
    /// [`Thread::entry`].
    table: [Entry; FIRST],
}

/// A thread's state of a point.
#[repr(C, align(32))]
#[derive(Debug)]
pub(crate) struct Entry {
    /// The value of the point's control word when the cell was last made ready for it; 0 without a
    /// cell. A begin that finds another value in the segment takes the slow path.
    follows: AtomicU64,
    /// Inclusive ticks of the ended regions, recursion counted once. A region stores the total when
    /// it begins. Ticks that are added to the total before it ends were measured inside it.
    total: AtomicU64,
    cell: AtomicPtr<Cell>,
    /// During a fold, the offset in bytes of the point's last batch from the first batch of all;
    /// else 0.
    pub(super) batch: AtomicU32,
    /// The offset in bytes, from the start of the calls, of the edge to which the point's last call
    /// was added in the epoch of `follows`; 0 without one.
    pub(super) edge: AtomicU32,
}

impl Entry {
    /// The value of the point's control word when the cell was last made ready for it.
    #[inline(always)]
    pub(crate) fn follows(&self) -> Control {
        Control(self.follows.load(Relaxed))
    }

    /// Inclusive ticks of the ended regions.
    #[inline(always)]
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The thread's cell of the point. `None` if [`super::prepare::point`] has to make it ready
    /// first.
    #[inline(always)]
    pub(crate) fn cell(&self) -> Option<&Cell> {
        let cell = self.cell.load(Relaxed);
        // SAFETY: the pointer is null, or leads to a cell in the segment, which is never unmapped.
        unsafe { cell.as_ref() }
    }

    fn set_cell(&self, cell: &Cell) {
        // Pairs with the load in `Thread::cell_of_any`, which then finds the cell prepared.
        self.cell.store((&raw const *cell).cast_mut(), Release);
    }
}

/// The entries of a thread.
#[derive(Clone, Copy)]
pub(super) struct EntryTable<'a> {
    first: usize,
    bytes: u64,
    of: PhantomData<&'a Entry>,
}

impl<'a> EntryTable<'a> {
    /// The entry of the point that a record names, see [`What`](pfp_shm_layout::ring::What).
    #[inline(always)]
    pub(super) fn entry_named(self, names: u64) -> Option<&'a Entry> {
        self.entry(u64::from(names as u32) & !(size_of::<Entry>() as u64 - 1))
    }

    /// The entry at an offset, a multiple of the size of an entry. `None` beyond the table.
    #[inline(always)]
    fn entry(self, offset: u64) -> Option<&'a Entry> {
        let entry = ptr::with_exposed_provenance::<Entry>(self.first + offset as usize);
        // SAFETY: the mapping has `bytes` bytes of entries from `first` on.
        (offset < self.bytes).then(|| unsafe { &*entry })
    }
}

/// Aligns the fields after it to a page, which the kernel wipes in a forked child.
#[repr(align(4096))]
#[derive(Debug)]
struct WipedFromHere;

/// The generation after the one in `place`.
fn next_generation(place: u64) -> u64 {
    place.wrapping_add(GENERATION) & GENERATIONS
}

/// Bytes of a [`Thread`] that a forked child keeps.
const KEPT: usize = offset_of!(Thread, wiped);
const _: () = assert!(KEPT == PAGE && PAGE == align_of::<WipedFromHere>());
/// Offset of the table.
const TABLE: usize = offset_of!(Thread, table);
/// Number of entries that fill the rest of the page. Without them the struct would end with
/// padding, which must not be written through a reference to it.
const FIRST: usize = (PAGE - 4 * size_of::<u64>()) / size_of::<Entry>();
const _: () = assert!(size_of::<Entry>() == 1 << POINT_SHIFT);
const _: () = assert!(TABLE + FIRST * size_of::<Entry>() == size_of::<Thread>());
impl Thread {
    /// The calling thread's cell of a point. `None` if [`super::prepare::point`] has to make it
    /// ready first.
    pub(crate) fn cell(&self, point: &Point) -> Option<&Cell> {
        self.entry(point).cell()
    }

    /// The thread's cell of a point. Other threads may call this, too.
    pub(crate) fn cell_of_any(&self, point: &Point) -> Option<&Cell> {
        // Pairs with the store in `Entry::set_cell`, which makes the prepared cell visible.
        let cell = self.entry(point).cell.load(Acquire);
        // SAFETY: the pointer is null, or leads to a cell in the segment, which is never unmapped.
        unsafe { cell.as_ref() }
    }

    /// A point's entry of the table.
    #[inline(always)]
    pub(crate) fn entry(&self, point: &Point) -> &Entry {
        self.entry_at(point.offset())
    }

    /// The entry of a number from a record or an edge, where another process may have written any
    /// number. `None` beyond the table.
    #[inline(always)]
    pub(crate) fn entry_of(&self, number: u32) -> Option<&Entry> {
        self.table().entry(u64::from(number) << POINT_SHIFT)
    }

    /// The thread's table of entries.
    #[inline(always)]
    pub(super) fn table(&self) -> EntryTable<'_> {
        let first = ptr::from_ref(self).addr() + TABLE;
        let bytes = self.points.load(Relaxed) << POINT_SHIFT;
        EntryTable { first, bytes, of: PhantomData }
    }

    /// The entries of all points below `number`.
    pub(super) fn entries(&self, number: u64) -> impl Iterator<Item = (u32, &Entry)> {
        let numbers = 0..u32::try_from(number).unwrap_or(u32::MAX);
        numbers.map_while(|number| Some((number, self.entry_of(number)?)))
    }

    /// The address of the end of the table, where the index of the edges begins.
    pub(super) fn behind_table(&self) -> *mut u8 {
        let points = self.points.load(Relaxed) as usize;
        let behind = ptr::from_ref(self).addr() + TABLE + points * size_of::<Entry>();
        // `map_pages` has exposed the address, as for `entry_at`.
        ptr::with_exposed_provenance_mut(behind)
    }

    /// The entry at a point's offset. The table continues beyond this struct in the mapping. A
    /// reference to this struct does not reach that far, so the entry is found by the address that
    /// `map_pages` has exposed.
    #[inline(always)]
    pub(crate) fn entry_at(&self, offset: Offset) -> &Entry {
        let table = ptr::from_ref(self).addr() + TABLE;
        let table = ptr::with_exposed_provenance::<Entry>(table);
        // SAFETY: the mapping has an entry for every point's offset: see `Offset`.
        unsafe { &*table.byte_add(offset.bytes() as usize) }
    }

    /// Whether the entry at a point's offset has a cell that follows a control word.
    #[inline(always)]
    pub(crate) fn follows(&self, offset: Offset, control: Control) -> bool {
        const FOLLOWS: usize = TABLE + offset_of!(Entry, follows);
        word::is_further::<Self, FOLLOWS>(self, u64::from(offset.bytes()), control.0)
    }

    /// Adds to the inclusive total of a point, in one instruction as [`Thread::cover`] does.
    #[inline(always)]
    pub(crate) fn add_to_total(&self, offset: Offset, ticks: u64) {
        const TOTAL: usize = TABLE + offset_of!(Entry, total);
        word::add_further::<Self, TOTAL>(self, u64::from(offset.bytes()), ticks);
    }

    /// The inclusive total that a region stored, minus the current total of the point.
    #[inline(always)]
    pub(crate) fn less_total(&self, offset: Offset, noted: u64) -> u64 {
        const TOTAL: usize = TABLE + offset_of!(Entry, total);
        word::minus_further::<Self, TOTAL>(self, u64::from(offset.bytes()), noted)
    }

    /// The covered ticks; 0 in a forked child.
    #[inline(always)]
    pub(crate) fn covered(&self) -> u64 {
        self.covered.load(Relaxed)
    }

    /// Adds to the covered ticks, in one instruction, so that no ticks are lost that a signal
    /// handler adds.
    #[inline(always)]
    pub(crate) fn cover(&self, ticks: u64) {
        word::add::<Self, { offset_of!(Thread, covered) }>(self, ticks);
    }

    /// Whether the covered ticks still have this value: false in a forked child.
    #[inline(always)]
    pub(crate) fn has_covered(&self, covered: u64) -> bool {
        word::is::<Self, { offset_of!(Thread, covered) }>(self, covered)
    }

    /// Sets the covered ticks to the ticks of a context that becomes current.
    pub(super) fn set_covered(&self, covered: u64) {
        self.covered.store(covered, Relaxed);
    }

    /// Makes the ends of the open regions take the slow path, which reads the clock. Called before
    /// the clock changes, so that a jump out of the change cannot skip it.
    pub(crate) fn outdate(&self) {
        self.note_clock();
        self.outdate_by(next_generation);
    }

    /// [`Self::outdate`] with a function that returns the next generation. A signal handler may run
    /// between the load of the place and the exchange, and call `outdate`, too.
    fn outdate_by(&self, next: impl Fn(u64) -> u64) {
        let outdated = |place| (place & IS_PLACE != 0).then(|| place & !GENERATIONS | next(place));
        let _ = self.place.fetch_update(Relaxed, Relaxed, outdated);
    }

    /// Begins a run of a context with `level` open regions, in units of
    /// [`LEVEL`](super::region::LEVEL). The place is stored at once, because a signal handler that
    /// found the wrong level would overwrite an open region.
    pub(super) fn begin_run(&self, run: u64, context: u32, level: u64) {
        let generation = next_generation(self.place.load(Relaxed));
        let run = run << RUN & RUNS;
        let place = IS_PLACE | run | generation | level & LEVELS | u64::from(context) & CONTEXT;
        self.place.store(place, Relaxed);
    }

    /// The parts of the place that a context keeps while it is suspended: its run and its level.
    pub(super) fn kept_place(&self) -> (u64, u64) {
        let place = self.place.load(Relaxed);
        ((place & RUNS) >> RUN, place & LEVELS)
    }

    /// The counter of the histogram bucket of a duration. `None` if the cell has no chunk for it
    /// yet, or the duration is beyond the histogram.
    #[inline(always)]
    pub(crate) fn bucket(&self, cell: &Cell, ticks: u64) -> Option<&AtomicU64> {
        if ticks >= histogram::LIMIT {
            return None;
        }
        let (part, bucket) = histogram::locate(ticks);
        self.chunk(cell.part(part)).map(|chunk| &chunk.0[bucket])
    }

    /// A chunk of the segment; `None` for a number beyond its chunks.
    #[inline(always)]
    pub(super) fn chunk(&self, number: u32) -> Option<&Chunk> {
        let number = u64::from(number);
        // Catches 0 (no chunk yet), and a number that another process has forged.
        if word::minus::<Self, { offset_of!(Thread, first_chunk) }>(self, number)
            >= self.chunk_count.load(Relaxed)
        {
            return None;
        }
        let segment = self.segment.load(Relaxed);
        // SAFETY: a chunk number within the pool implies that there is a segment.
        unsafe { std::hint::assert_unchecked(!segment.is_null()) };
        // SAFETY: the chunk is within the pool of the segment, as just tested.
        Some(unsafe { &*segment.add(number as usize * CHUNK).cast::<Chunk>() })
    }

    /// The sums of amounts of a cell; `None` if the cell has none.
    #[inline(always)]
    pub(crate) fn sums(&self, cell: &Cell) -> Option<&SumWords> {
        let chunk = u64::from(cell.amounts());
        // This test catches 0 and forged numbers, as in `chunk`.
        if chunk.wrapping_sub(self.first_chunk.load(Relaxed)) >= self.chunk_count.load(Relaxed) {
            return None;
        }
        // SAFETY: a chunk number within the pool, as just tested, implies that there is a segment;
        // the sums are shorter than a chunk.
        Some(unsafe { &*self.segment.load(Relaxed).add(chunk as usize * CHUNK).cast() })
    }

    /// The counters of the lane.
    #[inline(always)]
    pub(crate) fn counters(&self) -> &LaneCounters {
        // SAFETY: the pointer was set when the lane was claimed, to an address in the segment.
        unsafe { &*self.counters.load(Relaxed) }
    }

    /// The number of the thread's lane.
    pub(super) fn lane_number(&self) -> u64 {
        self.lane.load(Relaxed)
    }

    /// Kernel id of the thread.
    pub(crate) fn kernel_id(&self) -> u32 {
        self.tid.load(Relaxed) as u32
    }

    /// Whether these are the pages of this process, not a wiped copy.
    #[inline(always)]
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Relaxed) != 0
    }

    /// Like [`Self::is_alive`], for a thread that was alive so far. Compares the word in memory, so
    /// it takes no register.
    #[inline(always)]
    pub(super) fn is_still_alive(&self) -> bool {
        word::is_constant::<Self, { offset_of!(Thread, alive) }, 1>(self)
    }

    /// Whether the thread found no lane and shares the overflow lane.
    pub(crate) fn overflows(&self) -> bool {
        self.ring.load(Relaxed).is_null()
    }

    /// Publishes the clock's count of switches for readers.
    pub(crate) fn publish_switches(&self) {
        if !self.overflows() && self.is_alive() {
            self.counters().switches.store(self.clock.all_switches(), Relaxed);
        }
    }

    /// The regions of the context that is current on this thread.
    #[inline(always)]
    pub(super) fn regions(&self) -> &Regions {
        // SAFETY: the regions are the thread's own, or a context's that stays alive while it is
        // current.
        unsafe { &*self.regions.load(Relaxed) }
    }

    /// Increments a counter of the lane, even if several threads share the lane.
    pub(crate) fn count(&self, word: fn(&LaneCounters) -> &AtomicU64) {
        // A forked child must not count for its parent.
        if !self.is_alive() {
            return;
        }
        word(self.counters()).fetch_add(1, Relaxed);
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::engine::prepare;

    /// If a handler reads the clock between the load and the exchange of another reading, only the
    /// generation changes.
    #[test]
    fn looks_at_the_clock_change_nothing_else() {
        let _one = crate::engine::oracle::one_at_a_time();
        let thread = prepare::thread().expect("there is a lane");
        let rest = || thread.place.load(Relaxed) & !GENERATIONS;
        let before = rest();
        // More readings than there are generations.
        for look in 0..10_000 {
            let is_interrupted = Cell::new(true);
            thread.outdate_by(|place| {
                if is_interrupted.replace(false) {
                    thread.outdate();
                }
                next_generation(place)
            });
            assert_eq!(rest(), before, "look {look}");
        }
    }
}
