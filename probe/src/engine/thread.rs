//! The thread: one lane, and the private state that leads to it.
//!
//! ```text
//!  thread-local pointer --> Thread (private pages, one per lane, reused)
//!                           | clock, open regions, ring, space | --> ring in the segment
//!                           | table: an entry for each point   | --> cells in the segment
//! ```
//!
//! The hot path goes on only where the table has the control word of a point. Its pages
//! read zero in a forked child, so the child cannot write to its parent's lane, whatever
//! way it was forked; nor can one that was forked by a signal handler in the middle of a
//! region, since what is covered reads zero too, and that is asked for before anything
//! is written. An entry of zeros is also how a point without a cell and a
//! thread without a lane look. All of these leave by one door, to
//! [`prepare`].

use std::cell::Cell as LocalCell;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::{Amounts, SumWords};
use pfp_shm_layout::calls::{CallSums, Calls};
use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::histogram;
use pfp_shm_layout::lane::Tally;
use pfp_shm_layout::ring::{self, Slot, What};
use pfp_shm_layout::segment::{
    BLOCK, CALLS_BLOCKS, CELLS_PER_BLOCK, CHUNK, Chunk, PAGE, RING_BLOCKS, RING_SLOTS, Segment,
};

use super::calls::EdgeIndex;
use super::cold;
use super::copies;
use super::current;
use super::fold::{self, Sorting};
use super::owner;
use super::process::{self, Process};
use super::regions::Regions;
use crate::clock::counter::stamp;
use crate::clock::{self, ThreadClock};
use crate::errno;
use crate::mark;
use crate::point::Point;

/// Chunks in a block.
const PER_BLOCK: u64 = (BLOCK / CHUNK) as u64;

/// Slots of a ring in a page.
pub(super) const SLOTS_PER_PAGE: usize = PAGE / size_of::<Slot>();
const _: () = assert!(RING_SLOTS / SLOTS_PER_PAGE <= 64);
/// Whether a record is the first of its page.
#[inline(always)]
pub(super) fn begins_page(number: u64) -> bool {
    (number as usize).is_multiple_of(SLOTS_PER_PAGE)
}
/// Chunks that a shared cell takes: a power of two, so that they lie in one page.
const SHARED_CELL: u64 = size_of::<Cell>().div_ceil(CHUNK).next_power_of_two() as u64;

/// The private state of a thread. Everything is atomic because a signal handler
/// of the same thread may come in between. Nothing is ordered, because no other
/// thread takes part, but for `table`, which [`crate::stats`] reads too.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Thread {
    // What begin and end touch.
    /// A [`Position`], or a [`crate::mark`] while something is under way that a signal handler
    /// must not do as well.
    pub(crate) position: AtomicU64,
    pub(crate) clock: ThreadClock,
    ring: AtomicPtr<Slot>,
    /// What the thread shows of its calls, in the segment; null on the overflow lane.
    pub(super) calls: AtomicPtr<Calls>,
    tally: AtomicPtr<Tally>,
    /// Number of the current context, 0 for the thread's own.
    pub(crate) context: AtomicU64,
    pub(super) segment: AtomicPtr<u8>,
    first_chunk: AtomicU64,
    chunk_count: AtomicU64,
    /// Records of the ring that are in the cells.
    pub(super) folded: AtomicU64,
    /// Points that the table has room for.
    pub(super) points: AtomicU64,

    // What only the cold paths touch.
    /// The mark in [`Thread::position`] of a context that was put aside since, until it goes
    /// on; else 0.
    pub(super) suspended: AtomicU64,
    /// Since when and until when the last region ran that ended although regions inside
    /// had not; see [`super::ending`].
    pub(super) gave_up: [AtomicU64; 2],
    /// The counter when the lane was claimed.
    pub(super) claimed: AtomicU64,
    /// Kernel id of the thread.
    pub(super) tid: AtomicU64,
    lane: AtomicU64,
    generation: AtomicU64,
    /// A bit for each page of the ring that is backed.
    ring_backed: AtomicU64,
    cell_block: AtomicU64,
    cells_used: AtomicU64,
    /// Where the next chunk is: block times [`PER_BLOCK`] plus chunks used. One
    /// word, so that a signal handler cannot be given the same.
    chunks: AtomicU64,
    /// Bytes of this mapping.
    bytes: AtomicU64,
    /// Whose the lane is, its kernel id below and its generation above; 0 while it is
    /// nobody's. See [`bury`].
    holder: AtomicU64,
    /// Where copies of pfp that follow this one keep a pointer to this.
    followers: [AtomicPtr<*const Thread>; copies::FOLLOWERS],
    /// Regions of the thread's own context that were begun by hand.
    pub(crate) own: Regions,
    /// The context that is current, null for the thread's own.
    pub(crate) current: AtomicPtr<super::context::Shared>,

    // What reads zero in a forked child, from a page of its own on. All before it is kept,
    // so that a child that goes on in the middle of something meets no null pointer.
    wiped: WipedFromHere,
    /// Ticks of all regions that have ended in the current context, those inside others
    /// counted once, with what measuring them took. Never zero.
    covered: AtomicU64,
    /// How many regions are open in the current context, in units of [`LEVEL`], and above that
    /// a number of the time that has passed since the clock's offset was changed; see
    /// [`GENERATION`]. A region notes it as it begins, and a difference at its end says that
    /// the thread may have been off the CPU, that regions inside were not ended, or that
    /// contexts were switched.
    pub(crate) place: AtomicU64,
    /// Zero in a wiped copy.
    alive: AtomicU64,
    spare: AtomicU64,
    /// An entry for each point, by number: what fits into this page, and more behind it in
    /// the mapping. See [`Thread::entry`].
    table: [Entry; FIRST],
}

/// What a thread knows of a point.
#[repr(C, align(32))]
#[derive(Debug)]
pub(crate) struct Entry {
    /// The control word that the cell follows; 0 while the thread has none.
    follows: AtomicU64,
    /// Inclusive ticks of the regions that have ended, recursion counted once. A region notes
    /// it as it begins; what has been added when it ends was inside.
    total: AtomicU64,
    cell: AtomicPtr<Cell>,
    /// Where the point is among those of a fold that is under way, from 1 on; else 0.
    pub(super) batch: AtomicU32,
    /// One more than the edge that its last call was added to; 0 while there is none.
    pub(super) edge: AtomicU32,
}

impl Entry {
    /// See the field.
    #[inline(always)]
    pub(crate) fn follows(&self) -> Control {
        Control(self.follows.load(Relaxed))
    }

    /// See the field.
    #[inline(always)]
    pub(crate) fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// The thread's cell of the point; none where [`prepare`] must be asked.
    #[inline(always)]
    pub(crate) fn cell(&self) -> Option<&Cell> {
        let cell = self.cell.load(Relaxed);
        // SAFETY: null, or it leads to a cell in the segment, which is never unmapped.
        unsafe { cell.as_ref() }
    }

    /// Has the lines of the cell brought near that a fold touches.
    #[inline(always)]
    pub(super) fn fetch_cell(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let cell = self.cell.load(Relaxed).cast::<i8>();
            for line in 0..FOLDED_LINES {
                // SAFETY: fetching never faults.
                unsafe { _mm_prefetch(cell.wrapping_add(line * 64), _MM_HINT_T0) };
            }
        }
    }
}

/// Lines of a cell up to the histogram parts of short durations.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const FOLDED_LINES: usize = 5;

const PLACE: usize = std::mem::offset_of!(Thread, place);

/// Adds to the word at an offset of a thread's state in one instruction, so that nothing is lost
/// of what a signal handler adds.
#[inline(always)]
fn add_at_once<const WORD: usize>(of: *const Thread, more: u64) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: adds to a word of ours. Not a locked addition: no other thread takes part.
    unsafe {
        std::arch::asm!(
            "add qword ptr [{of} + {word}], {more}",
            of = in(reg) of,
            word = const WORD,
            more = in(reg) more,
            options(nostack)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let word = of.expose_provenance() + WORD;
        // SAFETY: an atomic word at that offset, as the callers say.
        unsafe { &*ptr::with_exposed_provenance::<AtomicU64>(word) }.fetch_add(more, Relaxed);
    }
}

/// Adds a constant as [`add_at_once`] does, without a register for it.
#[inline(always)]
fn add_constant_at_once<const WORD: usize, const MORE: i32>(of: &Thread) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "add qword ptr [{of} + {word}], {more}",
            of = in(reg) ptr::from_ref(of),
            word = const WORD,
            more = const MORE,
            options(nostack)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    add_at_once::<WORD>(of, MORE as u64);
}

/// The start of a page.
#[repr(align(4096))]
#[derive(Debug)]
struct WipedFromHere;

/// Bytes of a [`Thread`] that a forked child keeps.
const KEPT: usize = std::mem::offset_of!(Thread, wiped);
const _: () = assert!(KEPT == PAGE && PAGE == align_of::<WipedFromHere>());
/// Where the table begins.
const TABLE: usize = std::mem::offset_of!(Thread, table);
/// Entries of the table that fill the page: padding must not be written.
const FIRST: usize = (PAGE - 4 * size_of::<u64>()) / size_of::<Entry>();
const _: () = assert!(TABLE + FIRST * size_of::<Entry>() == size_of::<Thread>());
/// [`Thread::covered`] of a context in which no region has ended.
pub(super) const NOTHING_COVERED: u64 = 1;

thread_local! {
    /// True while this thread claims a lane.
    static CLAIMING: LocalCell<bool> = const { LocalCell::new(false) };
    /// What it has claimed until it moves in: one more than the lane, and the generation.
    static CLAIMED: LocalCell<(usize, u32)> = const { LocalCell::new((0, 0)) };
    /// The state that it moves into.
    static MOVING_IN: LocalCell<*const Thread> = const { LocalCell::new(ptr::null()) };
}

/// The calling thread has jumped out of whatever claimed a lane for it.
pub(super) fn forget_claim() {
    CLAIMING.set(false);
    let (lane, generation) = CLAIMED.replace((0, 0));
    let process = process::current().filter(|_| lane != 0);
    if let Some(lane) = process.and_then(|process| process.segment.lane(lane - 1)) {
        lane.release(generation);
    }
}

/// In a forked child, in whose memory a parent's segment is private now: no lane is the
/// calling thread's, and what it was in the middle of watches nothing of the parent's.
pub(super) fn forget() {
    CLAIMED.set((0, 0));
    for wiped in [current::replace(ptr::null()), MOVING_IN.replace(ptr::null())] {
        // SAFETY: as in `current`.
        let Some(thread) = (unsafe { wiped.as_ref() }) else { continue };
        thread.clock.forget_in_child();
    }
}

/// The calling thread's state, which may be a wiped copy of a parent's.
#[inline(always)]
pub(crate) fn current() -> Option<&'static Thread> {
    // SAFETY: null, or the pages of a lane of this process or of the parent it
    // was forked from; those are never unmapped while a thread refers to them.
    unsafe { current::get().as_ref() }
}

/// Kernel id of the calling thread.
pub(crate) fn tid() -> u32 {
    // A filter may refuse even this, and would set `errno`.
    // SAFETY: no preconditions.
    let told = errno::kept(|| unsafe { libc::syscall(libc::SYS_gettid) });
    // What stands for "done" and "failed" is nobody's id.
    if told > 0 { told as u32 } else { owner::library_tid().unwrap_or(1) }
}

/// In every [`Thread::place`], so that none is 0.
pub(crate) const IS_PLACE: u64 = 1;
/// In the tag of a guard, beside its place: the point is fenced.
pub(crate) const FENCED: u64 = 2;
/// One look at the clock, in [`Thread::place`].
const GENERATION: u64 = 1 << 2;
/// The highest bit that counts those: more than a region of the short way can see.
const GENERATIONS: u64 = 1 << 23;
/// One open region, in [`Thread::place`].
pub(crate) const LEVEL: u64 = 1 << 24;
/// The bits that count open regions: where a record has them.
pub(crate) const LEVELS: u64 = 0xff * LEVEL;
/// Above this many bits is the number of the stretch in which the current context runs: no
/// other stretch in the process has it.
const STRETCH: u32 = 32;

/// Where the next record goes, in bytes from the first one that the ring ever had; or how many
/// latched parts wait in the current context, which the next end must look for.
#[derive(Clone, Copy)]
pub(crate) struct Position(u64);

impl Position {
    /// One latched part that waits.
    const WAITING: u64 = 4;
    /// In what is no position.
    const NONE: u64 = 2;

    fn of(number: u64) -> Self {
        Self(number * size_of::<Slot>() as u64)
    }

    /// As it stands in [`Thread::position`].
    #[inline(always)]
    pub(crate) fn word(self) -> u64 {
        self.0
    }

    /// Whether nothing is under way, and nothing waits.
    #[inline(always)]
    pub(crate) fn is_free(self) -> bool {
        self.0 & (mark::IS_MARK | Self::NONE) == 0
    }

    /// Whether it is the first one of its page.
    #[inline(always)]
    pub(crate) fn begins_page(self) -> bool {
        (self.0 as u32).is_multiple_of(PAGE as u32)
    }
}

/// Whether a thread that shares the caller's memory has that kernel id. Asked by a
/// child in its parent's memory, it is about the parent's threads.
pub(crate) fn exists(tid: u32) -> bool {
    errno::kept(|| {
        // SAFETY: signal 0 is not sent, only asked about; getpid has no preconditions.
        let refused = unsafe {
            let process = process::current().map_or_else(|| libc::getpid(), Process::pid);
            libc::syscall(libc::SYS_tgkill, process, tid, 0) != 0
        };
        !refused || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    })
}

/// Why a thread cannot record a measurement into a cell of its own.
pub(crate) enum Unready {
    /// Not now: before there is a process, inside the claiming itself, or when
    /// there is no memory. The region is not measured.
    Never,
    /// The region goes the long way: all lanes are taken, and it is recorded on the
    /// overflow lane; or it is only known at its end where it is recorded.
    Overflow(&'static Thread),
}

impl Thread {
    /// Where another copy of pfp must expect what it uses.
    pub(super) const LAYOUT: [usize; 7] = [
        size_of::<Self>(),
        TABLE,
        std::mem::offset_of!(Self, covered),
        std::mem::offset_of!(Self, alive),
        std::mem::offset_of!(Self, own),
        std::mem::offset_of!(Self, followers),
        size_of::<Regions>(),
    ];

    /// The calling thread's cell of a point; none where [`prepare`] must be
    /// asked.
    pub(crate) fn cell(&self, index: usize) -> Option<&Cell> {
        self.entry(index).cell()
    }

    /// The same for any thread.
    pub(crate) fn cell_of_any(&self, index: usize) -> Option<&Cell> {
        // Meets the store in `set_cell`: the cell is prepared.
        let cell = self.entry(index).cell.load(Acquire);
        // SAFETY: as in `cell`.
        unsafe { cell.as_ref() }
    }

    fn set_cell(&self, index: usize, cell: &Cell) {
        // Meets the load in `cell_of_any`.
        self.entry(index).cell.store((&raw const *cell).cast_mut(), Release);
    }

    /// A point's entry of the table, which goes on behind this in the mapping. It is reached by
    /// the address that `map_pages` has exposed: a reference to this leads no further.
    #[inline(always)]
    pub(crate) fn entry(&self, index: usize) -> &Entry {
        let table = ptr::from_ref(self).addr() + TABLE;
        let table = ptr::with_exposed_provenance::<Entry>(table);
        // SAFETY: a registered point's number is below the number of points of
        // the segment, and the mapping has that many entries; an unregistered
        // one has number 0.
        unsafe { &*table.add(index) }
    }

    /// Where a fold sorts: behind the table, since a signal handler's stack may be small.
    pub(super) fn sorting(&self) -> *mut Sorting {
        let points = self.points.load(Relaxed) as usize;
        let sorting = ptr::from_ref(self).addr() + TABLE + points * size_of::<Entry>();
        // By the address that `map_pages` has exposed, as in `entry`.
        ptr::with_exposed_provenance_mut(sorting)
    }

    /// The numbers of its edges: behind that.
    pub(super) fn edge_index(&self) -> *const EdgeIndex {
        self.sorting().wrapping_add(1).cast()
    }

    /// Adds to the inclusive total of a point, in one instruction as [`Thread::cover`] does.
    #[inline(always)]
    pub(crate) fn add_to_total(&self, index: usize, ticks: u64) {
        const TOTAL: usize = TABLE + std::mem::offset_of!(Entry, total);
        let entry = ptr::from_ref(self).wrapping_byte_add(index * size_of::<Entry>());
        add_at_once::<TOTAL>(entry, ticks);
    }

    /// See the field; 0 in a forked child.
    #[inline(always)]
    pub(crate) fn covered(&self) -> u64 {
        self.covered.load(Relaxed)
    }

    /// Adds to what is covered: in one instruction, so that nothing is lost of what a
    /// signal handler adds.
    #[inline(always)]
    pub(crate) fn cover(&self, ticks: u64) {
        add_at_once::<{ std::mem::offset_of!(Thread, covered) }>(self, ticks);
    }

    /// Sets it to that of a context which becomes current.
    pub(super) fn set_covered(&self, covered: u64) {
        self.covered.store(covered, Relaxed);
    }

    /// The place of the innermost open region.
    #[inline(always)]
    pub(crate) fn inner_place(&self) -> u64 {
        self.place.load(Relaxed).wrapping_sub(LEVEL)
    }

    /// A region more is open.
    #[inline(always)]
    pub(crate) fn deepen(&self) {
        add_constant_at_once::<PLACE, { LEVEL as i32 }>(self);
    }

    /// A region less is open.
    #[inline(always)]
    pub(crate) fn rise(&self) {
        add_constant_at_once::<PLACE, { -(LEVEL as i32) }>(self);
    }

    /// The regions that are open must ask the clock as they end. Said before that changes, so
    /// that whoever jumps out of the change has said it.
    pub(crate) fn outdate(&self) {
        // Never into the bits above.
        let start_again = self.place.load(Relaxed) & GENERATIONS;
        add_at_once::<PLACE>(self, GENERATION.wrapping_sub(start_again));
    }

    /// Begins a stretch of a context in which no region is open.
    pub(super) fn begin_stretch(&self, stretch: u64) {
        self.place.store(stretch << STRETCH | IS_PLACE, Relaxed);
    }

    /// The counter of the histogram bucket of a duration; none where the cell
    /// has no chunk for it yet, or the duration is beyond the histogram.
    #[inline(always)]
    pub(crate) fn bucket(&self, cell: &Cell, ticks: u64) -> Option<&AtomicU64> {
        if ticks >= histogram::LIMIT {
            return None;
        }
        let (part, bucket) = histogram::locate(ticks);
        self.chunk(cell.part(part)).map(|chunk| &chunk.0[bucket])
    }

    /// The counters of a histogram part, which is given some if it has none; none if there is
    /// no space.
    #[inline(always)]
    pub(super) fn part_for(&self, cell: &Cell, part: usize) -> Option<&Chunk> {
        self.chunk(cell.part(part)).or_else(|| self.new_part(cell, part))
    }

    /// A chunk of the segment; none if there is none of that number.
    #[inline(always)]
    fn chunk(&self, number: u32) -> Option<&Chunk> {
        let number = u64::from(number);
        // Catches both "none yet" and a number that somebody else has written.
        if number.wrapping_sub(self.first_chunk.load(Relaxed)) >= self.chunk_count.load(Relaxed) {
            return None;
        }
        let segment = self.segment.load(Relaxed);
        // SAFETY: there are chunks only in a segment.
        unsafe { std::hint::assert_unchecked(!segment.is_null()) };
        // SAFETY: the chunk is within the pool of the segment, as just tested.
        Some(unsafe { &*segment.add(number as usize * CHUNK).cast::<Chunk>() })
    }

    /// The sums of amounts beside a cell; none if it has none.
    #[inline(always)]
    pub(crate) fn sums(&self, cell: &Cell) -> Option<&SumWords> {
        let chunk = u64::from(cell.amounts());
        // As in `bucket`.
        if chunk.wrapping_sub(self.first_chunk.load(Relaxed)) >= self.chunk_count.load(Relaxed) {
            return None;
        }
        // SAFETY: there are chunks only in a segment, the chunk is within its pool,
        // as just tested, and the sums are shorter than a chunk.
        Some(unsafe { &*self.segment.load(Relaxed).add(chunk as usize * CHUNK).cast() })
    }

    /// See the field.
    #[inline(always)]
    pub(crate) fn position(&self) -> Position {
        Position(self.position.load(Relaxed))
    }

    /// Where it is while nothing is under way.
    fn position_at_rest(&self) -> Position {
        match self.regions().waiting() {
            0 => Position::of(self.written()),
            waiting => Position(Position::NONE + waiting * Position::WAITING),
        }
    }

    /// Says where it is, unless something is under way that will say so.
    pub(super) fn rest(&self) {
        let position = self.position();
        let waits = self.regions().waiting() != 0;
        if mark::is_mark(position.0) || position.is_free() && !waits {
            return;
        }
        // Marked, so that a handler does not move it meanwhile.
        let mut mark = mark::new();
        mark::set(&mut mark, &self.position);
        self.done();
    }

    /// Writes a region into the ring, the next record, whose ticks are no more than
    /// [`MOST_TICKS`](ring::MOST_TICKS), and takes the mark of the caller away.
    #[inline(always)]
    pub(crate) fn record(
        &self,
        position: Position,
        start: u64,
        elapsed: u64,
        own: u64,
        inclusive: u64,
        what: What,
    ) {
        // Asked by whoever is about to write, so that nobody, a signal handler
        // neither, comes to a page that is not backed.
        if position.begins_page() {
            return self.record_at_page(start, elapsed, own, inclusive, what);
        }
        self.slot_at(position).fill(start, elapsed, own, inclusive, what);
        self.publish(position);
    }

    /// Announces that a record is complete, and takes the mark of the caller away.
    #[inline(always)]
    pub(super) fn publish(&self, position: Position) {
        let next = position.0.wrapping_add(size_of::<Slot>() as u64);
        ring::publish(&self.tally().written, next / size_of::<Slot>() as u64);
        compiler_fence(SeqCst);
        self.position.store(next, Relaxed);
    }

    /// Takes the mark of the caller away.
    pub(super) fn done(&self) {
        compiler_fence(SeqCst);
        self.position.store(self.position_at_rest().0, Relaxed);
    }

    /// Has room for the next record, which is the first of its page, and folds the others; the
    /// ticks that this took. None where the page has no memory.
    pub(super) fn turn_page(&self) -> Option<u64> {
        self.busy(|| {
            let before = self.covered();
            fold::fold(self);
            self.back_page(self.written()).then(|| self.covered().wrapping_sub(before))
        })?
    }

    #[cold]
    #[inline(never)]
    fn record_at_page(&self, start: u64, elapsed: u64, own: u64, inclusive: u64, what: What) {
        self.record_after_fold(start, elapsed, own, inclusive, what);
        self.done();
    }

    /// The first record of a page, before which all others are folded. Where the page has no
    /// memory, the region goes into its cell alone, and that is counted.
    fn record_after_fold(&self, start: u64, elapsed: u64, own: u64, inclusive: u64, what: What) {
        // A child that a signal handler has forked has no ring.
        if !self.is_alive() {
            return;
        }
        fold::fold(self);
        let written = self.written();
        if self.back_page(written) {
            self.slot(written).fill(start, elapsed, own, inclusive, what);
            return ring::publish(&self.tally().written, written.wrapping_add(1));
        }
        self.count(|tally| &tally.unrecorded);
        self.show_end(start.wrapping_add(elapsed));
        if let Some(cell) = self.cell(what.point() as usize) {
            let exclusive = (own as i64).max(0) as u64;
            let measured = Measurement { exclusive, inclusive, away: None };
            cell.record(measured, self.bucket_for(cell, exclusive), written);
            self.count_call(what, measured, written);
        }
    }

    /// Records a measurement that no record of the ring can hold: one that was off the CPU, or
    /// has amounts, or is long. It goes into its cell, after those of the ring, and into the
    /// ring for the flight recorder. `times` are its start, the ticks until its end, and what
    /// else the record says.
    #[inline(never)]
    pub(super) fn record_counted(
        &self,
        entry: &Entry,
        measured: Measurement,
        (start, elapsed, what): (u64, u64, What),
        amounts: Option<&Amounts>,
    ) {
        fold::fold(self);
        let Some(cell) = entry.cell() else { return };
        let kept_cpu = measured.away.is_none_or(|away| away.off_cpu == 0);
        let exclusive = measured.exclusive;
        let credible = match kept_cpu {
            true => exclusive,
            false => cell.credible(exclusive, clock::switch_error()),
        };
        let bucket = self.bucket_for(cell, credible);
        // As late as that: a child that a signal handler has forked writes nothing.
        if !self.is_alive() {
            return;
        }
        let sums = amounts.and_then(|amounts| Some((self.sums(cell)?, amounts)));
        let written = self.written();
        cell.record_as(measured, (credible, kept_cpu), bucket, sums, written);
        self.count_call(what, measured, written);
        if begins_page(written) && !self.back_page(written) {
            return self.count(|tally| &tally.unrecorded);
        }
        self.slot(written).fill_counted(start, elapsed, exclusive, what);
        ring::publish(&self.tally().written, written.wrapping_add(1));
        // So that the next one has nothing to fold.
        fold::announce(self, written.wrapping_add(1));
    }

    /// Adds a measurement to its edge that its cell has already.
    fn count_call(&self, what: What, measured: Measurement, folded: u64) {
        let Measurement { exclusive, inclusive, .. } = measured;
        let one = CallSums { count: 1, exclusive, inclusive };
        self.add_call(what.caller(), what.point(), one, folded);
    }

    /// Gives the page of a record memory, if it has none; false if there is none.
    fn back_page(&self, number: u64) -> bool {
        let page = number as usize % RING_SLOTS / SLOTS_PER_PAGE;
        let backed = self.ring_backed.load(Relaxed);
        if backed & 1 << page != 0 {
            return true;
        }
        let ring = self.ring.load(Relaxed).addr() - self.segment.load(Relaxed).addr();
        let back = |process: &Process| process.back(ring + page * PAGE, PAGE);
        let is_backed = process::current().and_then(back).is_some();
        if is_backed {
            self.ring_backed.fetch_or(1 << page, Relaxed);
        }
        is_backed
    }

    /// The slot of a record, which may be written over from now on.
    #[inline(always)]
    pub(super) fn slot(&self, number: u64) -> &Slot {
        ring::reuse();
        // SAFETY: a thread that has cells has a ring of so many slots, in the
        // segment.
        unsafe { &*self.ring.load(Relaxed).add(number as usize % RING_SLOTS) }
    }

    /// The slot at a position, which may be written over from now on.
    #[inline(always)]
    pub(super) fn slot_at(&self, position: Position) -> &Slot {
        const BYTES: usize = RING_SLOTS * size_of::<Slot>();
        ring::reuse();
        // SAFETY: as in `slot`.
        unsafe { &*self.ring.load(Relaxed).byte_add(position.0 as usize % BYTES) }
    }

    /// The slots of some records of one page.
    pub(super) fn slots(&self, from: u64, end: u64) -> &[Slot] {
        // SAFETY: as in `slot`; the slots of a page lie one after the other.
        unsafe { std::slice::from_raw_parts(self.slot(from), (end - from) as usize) }
    }

    /// The whole ring, if the thread has one.
    pub(crate) fn ring(&self) -> Option<&[Slot]> {
        let ring = self.ring.load(Relaxed);
        // SAFETY: as in `slot`; all of it has the same owner.
        (!ring.is_null()).then(|| unsafe { std::slice::from_raw_parts(ring, RING_SLOTS) })
    }

    /// Records that were written so far.
    #[inline(always)]
    pub(super) fn written(&self) -> u64 {
        self.tally().written.load(Relaxed)
    }

    /// Exclusive ticks of the last record.
    pub(super) fn last_exclusive(&self) -> u64 {
        self.slot(self.written().wrapping_sub(1)).copy().exclusive
    }

    /// The thread's counters in the segment.
    #[inline(always)]
    pub(crate) fn tally(&self) -> &Tally {
        // SAFETY: set when the lane was claimed, and in the segment.
        unsafe { &*self.tally.load(Relaxed) }
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

    /// Whether the thread found no lane and shares the overflow lane.
    pub(crate) fn overflows(&self) -> bool {
        self.ring.load(Relaxed).is_null()
    }

    // ---- cold: space for cells and histograms ----

    /// Makes the calling thread's cell of a point ready to follow `control`.
    pub(super) fn ready_cell(
        &self,
        process: &'static Process,
        point: &Point,
        control: Control,
    ) -> Option<&Entry> {
        let index = point.index();
        let owner = self.generation.load(Relaxed) as u32;
        let entry = self.entry(index);
        if let Some(cell) = entry.cell() {
            // The records in the ring belong to the window that ends.
            fold::fold(self);
            let sums = process.segment.sums(cell.amounts());
            let clear = |chunk| clear_chunk(&process.segment, chunk);
            cell.follow_with(control, owner, sums, clear);
            entry.follows.store(control.0, Relaxed);
            return Some(entry);
        }
        let cell = self.new_cell(process)?;
        if point.has_sums() {
            cell.set_amounts(self.new_chunks(process, 1)?);
        }
        cell.prepare(index as u32, control, owner);
        self.commit_cell(process);
        self.set_cell(index, cell);
        entry.follows.store(control.0, Relaxed);
        self.publish_switches();
        Some(entry)
    }

    /// Takes the lane's next cell, not yet visible to readers.
    fn new_cell<'a>(&self, process: &'a Process) -> Option<&'a Cell> {
        let segment = &process.segment;
        if self.cell_block.load(Relaxed) == 0
            || self.cells_used.load(Relaxed) as usize == CELLS_PER_BLOCK
        {
            let block = process.take_block()?;
            // The page with the links, which readers touch.
            if process.back(segment.block_offset(block)?, PAGE).is_none() {
                process.give_back(block);
                return None;
            }
            match segment.cell_block(self.cell_block.load(Relaxed)) {
                Some(last) => last.set_next(block),
                None => segment.lane(self.lane.load(Relaxed) as usize)?.set_cells_block(block),
            }
            self.cell_block.store(block, Relaxed);
            self.cells_used.store(0, Relaxed);
        }
        let block = segment.cell_block(self.cell_block.load(Relaxed))?;
        let cell = block.cell(self.cells_used.load(Relaxed) as usize);
        let offset = (&raw const *cell).addr() - segment.base().addr();
        // Of its pages only the last one may be new.
        let last = offset + size_of::<Cell>() - 1;
        if last / PAGE != (offset - 1) / PAGE {
            process.back(last / PAGE * PAGE, PAGE)?;
        }
        Some(cell)
    }

    /// Shows readers the cell that was taken last.
    fn commit_cell(&self, process: &Process) {
        let used = self.cells_used.load(Relaxed) + 1;
        self.cells_used.store(used, Relaxed);
        if let Some(block) = process.segment.cell_block(self.cell_block.load(Relaxed)) {
            block.set_used(used as usize);
        }
    }

    /// The bucket of a measurement; none if there is no space for its part of the histogram.
    pub(crate) fn bucket_for(&self, cell: &Cell, ticks: u64) -> Option<&AtomicU64> {
        let ticks = ticks.min(histogram::LIMIT - 1);
        let (part, bucket) = histogram::locate(ticks);
        self.part_for(cell, part).map(|chunk| &chunk.0[bucket])
    }

    #[cold]
    #[inline(never)]
    fn new_part(&self, cell: &Cell, part: usize) -> Option<&Chunk> {
        if cell.part(part) == 0 {
            cell.set_part(part, self.new_chunks(process::current()?, 1)?);
        }
        self.chunk(cell.part(part))
    }

    /// The next chunks of the lane's own, `count` (1 or [`SHARED_CELL`]) in a row and aligned
    /// to as many. Also for a signal handler that interrupts this very thing.
    fn new_chunks(&self, process: &Process, count: u64) -> Option<u32> {
        let segment = &process.segment;
        let mut next = self.chunks.load(Relaxed);
        loop {
            let mut first = next.next_multiple_of(count);
            let mut block = None;
            if next == 0 || next.is_multiple_of(PER_BLOCK) || first.is_multiple_of(PER_BLOCK) {
                // A block that is full reads as the start of the next one, which
                // is not ours.
                let taken = process.take_block()?;
                block = Some(taken);
                first = taken * PER_BLOCK;
            }
            let in_block = (first % PER_BLOCK) as usize * CHUNK;
            let offset = segment.block_offset(first / PER_BLOCK)? + in_block;
            let backed = !offset.is_multiple_of(PAGE) || process.back(offset, PAGE).is_some();
            if backed {
                match self.chunks.compare_exchange(next, first + count, Relaxed, Relaxed) {
                    Ok(_) => return Some((offset / CHUNK) as u32),
                    Err(found) => next = found,
                }
            }
            if let Some(block) = block {
                process.give_back(block);
            }
            if !backed {
                return None;
            }
        }
    }

    /// The shared cell of a point, on the overflow lane.
    pub(crate) fn shared_cell(&self, point: &Point) -> Option<&'static Cell> {
        let (index, control) = (point.index(), point.control());
        let process = process::current()?;
        let control = control.meant();
        let segment = &process.segment;
        let entry = segment.entry(index)?;
        // One of the two may be missing, and then it is taken as it was put there.
        for _ in 0..3 {
            let cells = entry.shared_cells().map(|offset| segment.shared_cell(offset));
            let clear = |chunk| clear_chunk(segment, chunk);
            let place = match Cell::shared_for(cells, control, clear) {
                Ok(cell) => return Some(cell),
                Err(place) => place,
            };
            let taken = u64::from(self.new_chunks(process, SHARED_CELL)?) * CHUNK as u64;
            let cell = segment.shared_cell(taken)?;
            cell.prepare(index as u32, control, 0);
            if point.has_sums() {
                cell.set_amounts(self.new_chunks(process, 1)?);
            }
            entry.set_shared_cell(place == 1, taken);
        }
        None
    }

    /// The bucket's counter in a shared cell; none if there is no space.
    pub(crate) fn shared_bucket(&self, cell: &Cell, ticks: u64) -> Option<&AtomicU64> {
        let ticks = ticks.min(histogram::LIMIT - 1);
        let (part, _) = histogram::locate(ticks);
        if cell.part(part) == 0 {
            let chunk = self.new_chunks(process::current()?, 1)?;
            cell.set_part_shared(part, chunk);
        }
        self.bucket(cell, ticks)
    }

    /// Shows what the clock counts, where readers look.
    pub(crate) fn publish_switches(&self) {
        if !self.overflows() && self.is_alive() {
            self.tally().switches.store(self.clock.all_switches(), Relaxed);
        }
    }

    /// Counts in the lane's tally, also where several threads share it.
    pub(crate) fn count(&self, word: fn(&Tally) -> &AtomicU64) {
        // A forked child counts nothing for its parent.
        if !self.is_alive() {
            return;
        }
        word(self.tally()).fetch_add(1, Relaxed);
    }
}

pub(super) fn clear_chunk(segment: &Segment, chunk: u32) {
    if let Some(chunk) = segment.chunk(chunk) {
        for bucket in &chunk.0 {
            bucket.store(0, Relaxed);
        }
    }
}

/// Brings a begin that found something missing to the point where it can be
/// tried again: a registered point that is on, a thread with a lane, a cell that
/// follows the control word. None if the point is off.
#[cold]
pub(crate) fn prepare(
    point: &'static Point,
) -> Option<Result<(&'static Thread, &'static Entry), Unready>> {
    if !point.register() {
        process::miss_unregistered(point);
        return None;
    }
    // Read once: a viewer may switch the point off this very moment. Of another
    // process's bits only those that mean something: where the others are to be 0,
    // tags have the place of a region. A word that has them equals no cell's, so all
    // its regions begin on this long way.
    let control = point.control().meant();
    if !control.enabled() {
        return None;
    }
    // Of a fenced point, or of a word that somebody has written who means ill: no cell ever
    // equals it.
    if point.timed().is_none()
        && let Some(ready) = super::measure::ready(point, control)
    {
        return Some(Ok(ready));
    }
    let Some(process) = process::current() else { return Some(Err(Unready::Never)) };
    process.refine_rate();
    let thread = match current().filter(|thread| thread.is_alive()) {
        Some(thread) => thread,
        None => match claim(process) {
            Some(thread) => thread,
            None => return Some(Err(Unready::Never)),
        },
    };
    // A signal handler must not take space while its thread does.
    if thread.overflows() || thread.is_busy() || point.timed().is_some() {
        return Some(Err(Unready::Overflow(thread)));
    }
    thread.outdate();
    if thread.clock.refresh_and_verify(true).missed {
        process.take_rung();
    }
    match thread.busy(|| thread.ready_cell(process, point, control)) {
        Some(Some(entry)) => Some(Ok((thread, entry))),
        Some(None) => Some(Err(Unready::Never)),
        None => Some(Err(Unready::Overflow(thread))),
    }
}

/// The calling thread's state, with a lane claimed if need be.
pub(crate) fn get() -> Option<&'static Thread> {
    let process = process::get()?;
    // Asked after that: making the process calibrates, which claims a lane.
    match current().filter(|thread| thread.is_alive()) {
        Some(thread) => Some(thread),
        None => claim(process),
    }
}

fn claim(process: &'static Process) -> Option<&'static Thread> {
    // The lane would be the parent's thread's, under a name and an id that go.
    if !process.is_callers_threads(tid()) {
        return None;
    }
    cold::section(|| claim_alone(process))
}

#[inline(never)]
fn claim_alone(process: &'static Process) -> Option<&'static Thread> {
    // Claimed by a signal handler, before it was kept from coming.
    if let Some(thread) = current().filter(|thread| thread.is_alive()) {
        return Some(thread);
    }
    // The handler of a fault in the middle of the claiming measures nothing.
    if CLAIMING.replace(true) && !cold::is_outermost() {
        return None;
    }
    // The thread has one lane for all copies: the leader's.
    let claimed = copies::thread(current::place()).unwrap_or_else(|| {
        let claimed = claim_lane(process).or_else(|| claim_overflow(process));
        CLAIMED.set((0, 0));
        MOVING_IN.set(ptr::null());
        // In a child that was forked meanwhile the lane is not one of its own.
        claimed.filter(|thread| {
            let is_ours = process.is_current();
            if !is_ours {
                thread.alive.store(0, Relaxed);
            }
            is_ours
        })
    });
    if let Some(thread) = claimed {
        current::replace(thread);
        // SAFETY: the key was made with the process; the value is not null, so
        // that the destructor runs.
        unsafe { libc::pthread_setspecific(process.exit_key, (&raw const *thread).cast()) };
    }
    CLAIMING.set(false);
    claimed
}

/// For [`copies`]: the calling thread's state for the follower of that number, which keeps
/// it in `slot`; null if it cannot have any now.
///
/// # Safety
///
/// The slot is the calling thread's, and is there until that ends.
pub(super) unsafe extern "C" fn of_follower(
    number: u32,
    slot: *mut *const Thread,
) -> *const Thread {
    let Some(thread) = get() else { return ptr::null() };
    let Some(kept) = thread.followers.get((number as usize).wrapping_sub(1)) else {
        return ptr::null();
    };
    kept.store(slot, Relaxed);
    thread
}

fn claim_lane(process: &'static Process) -> Option<&'static Thread> {
    let segment = &process.segment;
    let lanes = segment.geometry().lanes();
    // Where many threads have none, not each of them asks all the others.
    let overflowed = segment.ledger().lanes_overflowed.load(Relaxed);
    let mut buries = overflowed == 0 || overflowed.is_power_of_two();
    let mut next = 0;
    loop {
        let number = next;
        next += 1;
        let used = segment.ledger().lanes_used.load(Acquire);
        if buries && number as u64 >= used {
            buries = false;
            // Each doubling once, so that a lane costs no more where there are many.
            if (used.is_power_of_two() || number == lanes) && bury(process) {
                next = 0;
                continue;
            }
        }
        if number == lanes {
            return None;
        }
        let lane = if (number as u64) < used {
            segment.lane(number)?
        } else {
            segment.back_lane(number).ok()??
        };
        let Some(generation) = lane.claim() else { continue };
        CLAIMED.set((number + 1, generation));
        let Some(thread) = pages_of(process, number) else {
            lane.release(generation);
            return None;
        };
        if thread.ring.load(Relaxed).is_null() {
            let Some(block) = process.take_blocks(RING_BLOCKS + CALLS_BLOCKS) else {
                lane.release(generation);
                return None;
            };
            let (slots, calls) = (segment.ring(block)?, segment.calls(block + RING_BLOCKS)?);
            let Some(backed) = back_ring_and_calls(process, block) else {
                lane.release(generation);
                return None;
            };
            lane.set_ring_block(block);
            lane.set_calls_block(block + RING_BLOCKS);
            thread.ring_backed.store(backed, Relaxed);
            thread.calls.store((&raw const *calls).cast_mut(), Relaxed);
            thread.ring.store(slots.as_ptr().cast_mut(), Relaxed);
        }
        if let Some(calls) = thread.calls() {
            calls.claim(stamp(), clock::cpu_time_ns().unwrap_or(0));
        }
        thread.tally.store((&raw const lane.tally).cast_mut(), Relaxed);
        thread.settle_in(segment, number, generation);
        // Meets the load in `bury`.
        thread.holder.store(u64::from(generation) << 32 | u64::from(tid()), Release);
        lane.announce(generation, tid(), stamp(), &thread_name());
        return Some(thread);
    }
}

/// Gives a new lane's ring and calls memory; the pages of the ring that have some, a bit each.
/// None if there is too little for the calls.
fn back_ring_and_calls(process: &Process, block: u64) -> Option<u64> {
    let ring = process.segment.block_offset(block)?;
    let calls = process.segment.block_offset(block + RING_BLOCKS)?;
    process.ask_for_space(|segment| {
        // All at once, so that a thread which has measured asks for no more; the ring page by
        // page where there is no room for that.
        if segment.back(ring, calls - ring + Calls::NEEDED).is_ok() {
            return Some(u64::MAX);
        }
        segment.back_or_count(calls, Calls::NEEDED).ok().map(|()| 0)
    })
}

fn claim_overflow(process: &'static Process) -> Option<&'static Thread> {
    let segment = &process.segment;
    let number = segment.overflow_lane();
    let lane = segment.back_lane(number).ok()??;
    let thread = map_pages(process.segment.geometry().points())?;
    segment.ledger().lanes_overflowed.fetch_add(1, Relaxed);
    thread.tally.store((&raw const lane.tally).cast_mut(), Relaxed);
    thread.settle_in(segment, number, 0);
    Some(thread)
}

impl Thread {
    fn settle_in(&self, segment: &Segment, lane: usize, generation: u32) {
        MOVING_IN.set(self);
        let (first, count) = segment.chunk_numbers();
        self.segment.store(segment.base().cast_mut(), Relaxed);
        self.first_chunk.store(u64::from(first), Relaxed);
        self.chunk_count.store(u64::from(count), Relaxed);
        self.tid.store(u64::from(tid()), Relaxed);
        self.lane.store(lane as u64, Relaxed);
        self.generation.store(u64::from(generation), Relaxed);
        self.points.store(segment.geometry().points() as u64, Relaxed);
        self.set_covered(NOTHING_COVERED);
        self.begin_stretch(super::context::next_stretch());
        self.done();
        self.suspended.store(0, Relaxed);
        self.context.store(0, Relaxed);
        self.current.store(ptr::null_mut(), Relaxed);
        self.own.clear();
        for slot in &self.followers {
            slot.store(ptr::null_mut(), Relaxed);
        }
        self.claimed.store(stamp(), Relaxed);
        self.clock.start();
        self.alive.store(1, Relaxed);
    }
}

/// The private pages of a lane, mapped at its first owner.
fn pages_of(process: &'static Process, lane: usize) -> Option<&'static Thread> {
    let kept = &process.lanes[lane];
    let known = kept.load(Acquire);
    // SAFETY: null, or pages that stay mapped as long as the process runs.
    if let Some(thread) = unsafe { known.as_ref() } {
        return Some(thread);
    }
    let thread = map_pages(process.segment.geometry().points())?;
    kept.store((&raw const *thread).cast_mut(), Release);
    Some(thread)
}

/// Maps a state whose table has room for so many points.
fn map_pages(points: usize) -> Option<&'static Thread> {
    let behind = size_of::<Sorting>() + size_of::<EdgeIndex>();
    let bytes = size_of::<Thread>().max(TABLE + points * size_of::<Entry>() + behind);
    const { assert!(align_of::<Sorting>() <= align_of::<Entry>()) };
    const { assert!(align_of::<EdgeIndex>() <= align_of::<Sorting>()) };
    let pages = process::private_pages(bytes)?;
    // For `entry`.
    let _ = pages.expose_provenance();
    // Where that is refused, a child must not be forked in the middle of a region.
    #[cfg(not(miri))]
    // SAFETY: advice about a page that we have just mapped.
    errno::kept(|| unsafe { libc::madvise(pages.cast(), KEPT, libc::MADV_KEEPONFORK) });
    // SAFETY: new pages of zeros, aligned to a page, which are a valid value of
    // atomics and null pointers.
    let thread = unsafe { &*pages.cast::<Thread>() };
    thread.bytes.store(bytes as u64, Relaxed);
    Some(thread)
}

/// The kernel's name of the calling thread.
fn thread_name() -> [u8; 16] {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    name
}

/// Names the calling thread's lane.
pub(crate) fn set_name(name: &str) {
    let (Some(thread), Some(process)) = (get(), process::current()) else { return };
    if !thread.overflows()
        && let Some(lane) = process.segment.lane(thread.lane.load(Relaxed) as usize)
    {
        lane.set_name(name.as_bytes());
    }
}

/// The last thing that happens in a thread that has a lane. It runs after the
/// destructors of thread-local values, so regions in those still count; a
/// region even later claims a lane once more. This may not be called again then: the
/// threads library goes through the destructors four times at most, and no more after
/// a time in which no key was set. See [`bury`].
pub(crate) unsafe extern "C" fn at_thread_exit(value: *mut libc::c_void) {
    cold::section(|| {
        current::replace(ptr::null());
        // SAFETY: the value that `claim` has set, in this process or in a parent.
        let thread = unsafe { &*value.cast::<Thread>() };
        if let Some(process) = process::current().filter(|_| thread.is_alive()) {
            leave(process, thread);
        }
    });
}

/// Gives back what the calling thread has.
fn leave(process: &Process, thread: &Thread) {
    for slot in &thread.followers {
        let slot = slot.swap(ptr::null_mut(), Relaxed);
        if !slot.is_null() {
            // SAFETY: it is thread-local, of this thread.
            unsafe { slot.write(ptr::null()) };
        }
    }
    thread.publish_switches();
    thread.clock.stop();
    if thread.overflows() {
        super::context::leave_all(thread);
        let bytes = thread.bytes.load(Relaxed) as usize;
        // SAFETY: the pages are this thread's alone, and it refers to them no
        // more. In a child that was forked meanwhile there are none.
        unsafe { libc::munmap((&raw const *thread).cast_mut().cast(), bytes) };
        return;
    }
    thread.holder.store(0, Relaxed);
    give_up(process, thread);
}

/// Gives up the lanes of threads that are no more and could not do it themselves: a
/// signal handler, or a destructor that had itself called again and again, has
/// measured when nobody was going to call [`at_thread_exit`] any more. Asked before a
/// lane is taken that nobody has had. Whether there was one.
fn bury(process: &Process) -> bool {
    let mut any = false;
    for kept in &process.lanes {
        // SAFETY: null, or pages that stay mapped as long as the process runs.
        let Some(thread) = (unsafe { kept.load(Acquire).as_ref() }) else { continue };
        // Meets the store in `claim_lane`: the lane is whose it says.
        let holder = thread.holder.load(Acquire);
        if holder == 0 || exists(holder as u32) {
            continue;
        }
        // Nobody but one of those that look; and not what was claimed anew meanwhile.
        if thread.holder.compare_exchange(holder, 0, Acquire, Relaxed).is_ok() {
            thread.publish_switches();
            thread.clock.forget();
            give_up(process, thread);
            any = true;
        }
    }
    any
}

/// Leaves the lane of a thread that writes no more to its next owner.
fn give_up(process: &Process, thread: &Thread) {
    super::context::leave_all(thread);
    fold::recover(process, thread);
    // So that the next owner of the lane makes the cells its own.
    let points =
        process.segment.ledger().points_used.load(Relaxed).min(thread.points.load(Relaxed));
    for entry in (0..points as usize).map(|index| thread.entry(index)) {
        if let Some(cell) = entry.cell() {
            entry.follows.store(0, Relaxed);
            cell.abandon();
        }
    }
    if let Some(lane) = process.segment.lane(thread.lane.load(Relaxed) as usize) {
        lane.release(thread.generation.load(Relaxed) as u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference to the state leads no further than the state; Miri sees to that.
    #[test]
    fn the_table_is_reached_to_its_end() {
        const POINTS: usize = 700;
        let thread = map_pages(POINTS).expect("there is memory");
        let cells = [Cell::new(), Cell::new()];
        assert!((0..POINTS).all(|index| thread.cell(index).is_none()));
        thread.set_cell(0, &cells[0]);
        thread.set_cell(POINTS - 1, &cells[1]);
        for (index, cell) in [(0, &cells[0]), (POINTS - 1, &cells[1])] {
            assert!(thread.cell(index).is_some_and(|found| ptr::eq(found, cell)));
            assert!(thread.cell_of_any(index).is_some_and(|found| ptr::eq(found, cell)));
        }
        assert!(thread.cell(1).is_none() && thread.tally.load(Relaxed).is_null());
        let bytes = thread.bytes.load(Relaxed) as usize;
        let pages = ptr::with_exposed_provenance_mut(ptr::from_ref(thread).addr());
        // SAFETY: nobody refers to the pages any more.
        unsafe { libc::munmap(pages, bytes) };
    }
}
