//! Calls: the regions that are open on a lane, and which point ran inside which.
//!
//! ```text
//!    0 +-----------------------------------------------------------+
//!      | resumed | cpu | -                                         |  slow path
//!   32 | root                                                      |
//!   64 | open[256]: start | off | - | point | -                    |  every begin
//! 8256 | edges[639]: key | seq | count, epoch[2] | exclusive[2]    |  a fold
//!      |                       | inclusive[2]                      |
//!      +-----------------------------------------------------------+
//! ```
//!
//! **Open regions.** A begin writes the entry of its level, and an end does not clear it. Readers
//! derive the open regions from the lane's last record. When the region of that record ended, all
//! regions around it were open, so the entries below its level are open. After that end there were
//! only begins, so an entry at its level or deeper is open if its start is not before that end. On
//! the slow path a region may end without a record, so its end clears its entry. On the slow path,
//! and when the thread goes on in another context, the thread also stores in `resumed` how many
//! regions are open, and since when.
//!
//! **Edges.** A fold adds each record to the edge from the enclosing region's point, the caller, to
//! the record's point, the callee. An edge has its sums twice, as a cell has: a fold writes the
//! unpublished copy. One store to `seq` publishes that copy, together with the number of records
//! that the copy holds.
//!
//! **Allocations of edges.** Once a region of the lane's thread has counted its allocations, the lane
//! has an array beside its calls, with an entry for each edge, by the same numbers. An entry has the
//! layout of an edge without a key. Its sums are allocations, bytes and inclusive bytes. The end of a
//! region adds to them, and its `seq` counts these additions.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `edge-open` fence | `edge-recheck` fence | a reader that saw a new sum in an outdated copy sees the `seq` that outdated the copy |
//! | `edge-close` store | `edge-enter` load | the published copy is complete |
//! | `edge-announce` store | `edge-seen` load | the keys of the edges below that number, or their entries for allocations |
//! | `open-begin` store | `open-enter` load | the point of a region that has a start |
//! | `open-resume` store | `open-resumed` load | what the regions below that level show |

use crate::heap::{self, NoMemory};
use crate::layout::ring::{POINT_SHIFT, Record, What};
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_at, ord};

/// Number of entries of a lane for open regions; the levels of deeper regions wrap around.
pub const MAX_OPEN: usize = 256;
/// Maximum number of edges of a lane.
pub const MAX_EDGES: usize = 639;

/// Caller number of an outermost region.
pub const ROOT: u32 = 0xff_ffff;
/// Caller number of a region whose caller is not known.
pub const UNKNOWN: u32 = 0xff_fffe;
/// Caller number of a measurement that did not run on the thread, such as a device's.
pub const ELSEWHERE: u32 = 0xff_fffd;

/// Bits of a count in an edge; above them is the epoch.
const COUNT_BITS: u32 = 52;

/// The calls of a lane; see the module for the drawing.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Calls {
    resumed: Resumed,
    /// The thread's CPU time when it claimed the lane, in ns.
    cpu: AtomicU64,
    spare: [AtomicU64; 2],
    root: OpenRegion,
    open: [OpenRegion; MAX_OPEN],
    edges: [Edge; MAX_EDGES],
}

/// When the lane's context resumed, and how many regions were open then: ticks modulo 2^56 in the
/// upper bits, and the number modulo 256 below them.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Resumed {
    word: AtomicU64,
}

const LEVEL_BITS: u32 = MAX_OPEN.trailing_zeros();
const LEVEL: u64 = MAX_OPEN as u64 - 1;

impl Resumed {
    /// Publishes that `level` regions are open from `now` on.
    pub fn show(&self, now: u64, level: u64) {
        // Pairs with `open-resumed`.
        self.word.store(now << LEVEL_BITS | level & LEVEL, ord!("open-resume", Release));
    }

    /// The time, in the upper bits of a word, and the number of open regions.
    pub(crate) fn seen(&self) -> (u64, u64) {
        // Pairs with `open-resume`.
        let word = self.word.load(ord!("open-resumed", Acquire));
        (word & !LEVEL, word & LEVEL)
    }
}

/// Whether `moment` is not before `since`, a moment modulo 2^56 in the upper bits of a word.
fn is_since(moment: u64, since: u64) -> bool {
    ((moment << LEVEL_BITS).wrapping_sub(since) as i64) >= 0
}

/// A region that is open, or was the last one open at its level.
#[repr(C)]
#[derive(Debug, Default)]
pub struct OpenRegion {
    start: AtomicU64,
    off: AtomicU64,
    /// Always zero. The end of a nested region reads this and `point` as one word: this region's
    /// point is the caller, in the upper half of a record's [names](crate::layout::ring::What).
    blank: AtomicU32,
    point: AtomicU32,
    spare: [AtomicU32; 2],
}

/// The sequence word of an edge before a change; it selects the published copy of the sums.
#[derive(Clone, Copy, Debug)]
pub struct StagedEdge {
    seq: u64,
}

/// Figures of the calls of one point by another.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct Edge {
    key: AtomicU64,
    /// Number of the lane's records that the published copy holds, times two; the lowest bit
    /// selects that copy.
    seq: AtomicU64,
    /// Both copies of each sum.
    sums: [[AtomicU64; 2]; 3],
}

/// The allocations of a lane's edges: entry `n` belongs to edge `n`.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct EdgeAllocs([Edge; MAX_EDGES]);

impl EdgeAllocs {
    /// The entry of an edge.
    #[inline(always)]
    #[must_use]
    pub fn of(&self, edge: usize) -> Option<&Edge> {
        self.0.get(edge)
    }

    /// Copies the first `count` entries of another lane.
    pub(crate) fn take(&self, from: &Self, count: usize, tries: usize) {
        for (to, from) in self.0.iter().zip(&from.0).take(count) {
            to.take(from, tries);
        }
    }
}

/// Allocations of the calls of one point by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallAllocs {
    /// Allocations, without nested regions that count theirs.
    pub allocs: u64,
    /// Allocated bytes, without nested regions that count theirs.
    pub bytes: u64,
    /// Allocated bytes with nested regions, recursion counted once.
    pub bytes_inclusive: u64,
}

impl CallAllocs {
    /// As an entry of [`EdgeAllocs`] stores them.
    #[inline(always)]
    #[must_use]
    pub fn to_sums(self) -> CallSums {
        let Self { allocs, bytes, bytes_inclusive } = self;
        CallSums { count: allocs, exclusive: bytes, inclusive: bytes_inclusive }
    }

    /// The figures in an entry of [`EdgeAllocs`].
    #[must_use]
    pub fn of_sums(CallSums { count, exclusive, inclusive }: CallSums) -> Self {
        Self { allocs: count, bytes: exclusive, bytes_inclusive: inclusive }
    }

    /// Calls `field` with the name that each figure has in a snapshot file, and its value, unless
    /// all are 0.
    ///
    /// # Errors
    ///
    /// The first error that `field` returns.
    pub fn to_json<E>(
        self,
        mut field: impl FnMut(&'static str, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if self == Self::default() {
            return Ok(());
        }
        field("allocs", self.allocs)?;
        field("alloc_bytes", self.bytes)?;
        field("alloc_bytes_inclusive", self.bytes_inclusive)
    }

    /// Adds other figures.
    pub fn add(&mut self, more: Self) {
        self.allocs = self.allocs.wrapping_add(more.allocs);
        self.bytes = self.bytes.wrapping_add(more.bytes);
        self.bytes_inclusive = self.bytes_inclusive.wrapping_add(more.bytes_inclusive);
    }
}

/// Sums over the calls of one point by another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallSums {
    /// Finished measurements.
    pub count: u64,
    /// Exclusive ticks.
    pub exclusive: u64,
    /// Inclusive ticks, recursion counted once.
    pub inclusive: u64,
}

impl CallSums {
    /// Adds other sums.
    #[inline(always)]
    pub fn add(&mut self, more: Self) {
        self.count = self.count.wrapping_add(more.count);
        self.exclusive = self.exclusive.wrapping_add(more.exclusive);
        self.inclusive = self.inclusive.wrapping_add(more.inclusive);
    }
}

/// An edge at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EdgePicture {
    /// Number of the calling point, or [`ROOT`], [`UNKNOWN`] or [`ELSEWHERE`].
    pub caller: u32,
    /// Number of the called point.
    pub callee: u32,
    /// Reset epoch of the called point, modulo 4,096.
    pub epoch: u32,
    /// `sums` hold the lane's records below this number.
    pub folded: u64,
    /// Sums over the calls.
    pub sums: CallSums,
    /// Allocations of the calls.
    pub allocs: CallAllocs,
}

/// A region that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenPicture {
    /// Number of the point.
    pub point: u32,
    /// Begin, as a raw value of the process's tick counter.
    pub start: u64,
    /// Ticks that the thread had been off the CPU by then, since it claimed the lane.
    pub off: u64,
}

/// The bits of a point's epoch that an edge stores.
#[must_use]
pub const fn short_epoch(epoch: u32) -> u32 {
    epoch & ((1 << (u64::BITS - COUNT_BITS)) - 1)
}

impl Calls {
    /// Number of bytes that must be backed before a thread's first region: for the open regions,
    /// and for some edges.
    pub const NEEDED: usize = 3 * 4096;

    // ---- writer: the lane's own thread ----

    /// Prepares the calls for a new owner of the lane.
    pub fn claim(&self, now: u64, cpu: u64) {
        self.root.name(ROOT << POINT_SHIFT, 0);
        for region in self.open.iter().filter(|region| get(&region.start) != 0) {
            region.end();
        }
        self.cpu.store(cpu, Ordering::Relaxed);
        self.resume(now, 0);
    }

    /// Publishes that `level` regions are open from `now` on, regardless of the last record.
    pub fn resume(&self, now: u64, level: u64) {
        self.resumed.show(now, level);
    }

    /// The entry of a level, modulo [`MAX_OPEN`].
    #[must_use]
    pub fn open(&self, level: usize) -> &OpenRegion {
        &self.open[level % MAX_OPEN]
    }

    /// Bytes from the start of the calls to the entry of level 0.
    pub const OPEN_OFFSET: usize = std::mem::offset_of!(Self, open);
    /// Bytes from the start of the calls to the caller of a region of level 0, in the form of a
    /// record's names.
    pub const CALLER_OFFSET: usize =
        std::mem::offset_of!(Self, root) + std::mem::offset_of!(OpenRegion, blank);

    /// An edge; `number` is below [`MAX_EDGES`].
    #[must_use]
    pub fn edge(&self, number: usize) -> Option<&Edge> {
        self.edges.get(number)
    }

    /// Bytes from the start of the calls to an edge.
    #[must_use]
    pub const fn edge_offset(number: usize) -> usize {
        std::mem::offset_of!(Self, edges) + number * size_of::<Edge>()
    }

    // ---- reader ----

    /// Copies the first `count` edges of another lane.
    pub(crate) fn take_edges(&self, from: &Self, count: usize, tries: usize) {
        for (to, from) in self.edges.iter().zip(&from.edges).take(count) {
            to.take(from, tries);
        }
    }

    /// The CPU time of the thread when it claimed the lane, in ns.
    #[must_use]
    pub fn cpu(&self) -> u64 {
        self.cpu.load(Ordering::Relaxed)
    }

    /// The open regions, outermost first. `last` is the lane's last record. The caller checks
    /// afterwards that `last` is still the last record.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn open_since(&self, last: Option<&Record>) -> Result<Vec<OpenPicture>, NoMemory> {
        let (mut since, mut level) = self.resumed.seen();
        if let Some(last) = last {
            let end = last.start.wrapping_add(last.span);
            // If both have the same time, `resumed` is newer: it was written after the record.
            if is_since(end, since) && end << LEVEL_BITS != since {
                (since, level) = (end << LEVEL_BITS, u64::from(last.depth));
            }
        }
        // The region of the last record may have begun and ended at the same tick.
        let is_last = |region: &OpenPicture| {
            last.is_some_and(|last| (region.start, region.point) == (last.start, last.point))
        };
        let seen = self.open.iter().map(OpenRegion::seen).enumerate();
        let open = seen.take_while(|(at, region)| {
            let is_around = (*at as u64) < level;
            let has_begun = is_since(region.start, since) && !is_last(region);
            if !is_around {
                // Regions inside this one cannot be older.
                since = region.start << LEVEL_BITS;
            }
            region.start != 0 && (is_around || has_begun)
        });
        heap::collect(open.map(|(_, region)| region))
    }
}

impl OpenRegion {
    /// Stores the point of the region that begins here, as an [offset](POINT_SHIFT), and how long
    /// its thread had been off the CPU.
    #[inline(always)]
    pub fn name(&self, point: u32, off: u64) {
        self.rename(point);
        self.off.store(off, Ordering::Relaxed);
    }

    /// Stores only the point, for a region that begins as another one of its level ends, on a
    /// thread that was not off the CPU.
    #[inline(always)]
    pub fn rename(&self, point: u32) {
        self.point.store(point, Ordering::Relaxed);
    }

    /// Stores when the region began, which publishes its point.
    #[inline(always)]
    pub fn begin(&self, start: u64) {
        // Pairs with `open-enter`.
        self.start.store(start, ord!("open-begin", Release));
    }

    /// Clears the entry: its region has ended.
    pub fn end(&self) {
        self.off.store(0, Ordering::Relaxed);
        self.begin(0);
    }

    /// Copies the entry, for a reader.
    #[must_use]
    pub fn seen(&self) -> OpenPicture {
        // Pairs with `open-begin`.
        let start = self.start.load(ord!("open-enter", Acquire));
        OpenPicture {
            point: self.point() >> POINT_SHIFT,
            start,
            off: self.off.load(Ordering::Relaxed),
        }
    }

    /// The point, as an offset.
    #[inline(always)]
    #[must_use]
    pub fn point(&self) -> u32 {
        self.point.load(Ordering::Relaxed)
    }
}

impl Edge {
    // ---- writer: the lane's own thread ----

    /// The names of the edge's records; see [`What`].
    #[inline(always)]
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key.load(Ordering::Relaxed)
    }

    /// Stores the key of a fresh edge, before the edge is announced.
    pub fn set_key(&self, key: u64) {
        self.key.store(key, Ordering::Relaxed);
    }

    /// The edge holds the lane's records below this number. For an entry of [`EdgeAllocs`], the
    /// number of additions.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.seq.load(Ordering::Relaxed) >> 1
    }

    /// The published copy of the sums, for [`Self::add`].
    #[inline(always)]
    #[must_use]
    pub fn stage(&self) -> StagedEdge {
        StagedEdge { seq: get(&self.seq) }
    }

    /// Adds sums of an epoch; `None` means the epoch that the edge has. Sums of another epoch
    /// replace the edge's sums. The edge then holds the records below `folded`. A child that a
    /// signal handler forks during this call writes the same words as its parent.
    #[inline(always)]
    pub fn add(
        &self,
        StagedEdge { seq }: StagedEdge,
        epoch: Option<u32>,
        more: CallSums,
        folded: u64,
    ) {
        let words = self.copy(seq & 1);
        let other = epoch.map(|epoch| u64::from(short_epoch(epoch)) << COUNT_BITS);
        let other = other.filter(|epoch| (words[0] ^ epoch) >> COUNT_BITS != 0);
        // Pairs with `edge-recheck`.
        fence_at!("edge-open", Release);
        let after = seq & 1 ^ 1;
        self.put(after, other.map_or(words, |epoch| [epoch, 0, 0]), more);
        // Pairs with `edge-enter`.
        self.seq.store(folded << 1 | after, ord!("edge-close", Release));
    }

    /// Reads a copy.
    #[inline(always)]
    fn copy(&self, copy: u64) -> [u64; 3] {
        self.sums.each_ref().map(|copies| get(&copies[copy as usize]))
    }

    /// Writes the sums `before` and `more` together to a copy.
    #[inline(always)]
    fn put(&self, copy: u64, before: [u64; 3], more: CallSums) {
        // No thread counts to 2^52, so the count does not run into the epoch above it.
        let more = [more.count, more.exclusive, more.inclusive];
        for ((copies, before), more) in self.sums.iter().zip(before).zip(more) {
            copies[copy as usize].store(before.wrapping_add(more), Ordering::Relaxed);
        }
    }

    // ---- reader ----

    /// Copies another edge. If that edge is written to during all `tries`, this edge stays
    /// unchanged.
    fn take(&self, from: &Self, tries: usize) {
        let Some((seq, words)) = (0..tries).find_map(|_| from.words()) else { return };
        for (copy, words) in words.into_iter().enumerate() {
            self.put(copy as u64, words, CallSums::default());
        }
        self.key.store(from.key(), Ordering::Relaxed);
        self.seq.store(seq, Ordering::Relaxed);
    }

    /// Copies the edge; `None` if it was written to during the copy.
    #[must_use]
    pub fn read(&self) -> Option<EdgePicture> {
        let (seq, words) = self.words()?;
        let (sums, epoch) = sums(words[(seq & 1) as usize]);
        let of = What { names: self.key(), place: 0 };
        let (caller, callee) = (of.caller(), of.point());
        let allocs = CallAllocs::default();
        Some(EdgePicture { caller, callee, epoch, folded: seq >> 1, sums, allocs })
    }

    /// The sequence word and both copies; the published copy is whole. `None` if the edge was
    /// written to during the copy.
    fn words(&self) -> Option<(u64, [[u64; 3]; 2])> {
        // Pairs with `edge-close`.
        let seq = self.seq.load(ord!("edge-enter", Acquire));
        let words = [0, 1].map(|copy| self.copy(copy));
        // Pairs with `edge-open`.
        fence_at!("edge-recheck", Acquire);
        (get(&self.seq) == seq).then_some((seq, words))
    }
}

/// Splits the words of an edge into its sums and their epoch.
#[inline(always)]
fn sums([count, exclusive, inclusive]: [u64; 3]) -> (CallSums, u32) {
    let sums = CallSums { count: count & ((1 << COUNT_BITS) - 1), exclusive, inclusive };
    (sums, (count >> COUNT_BITS) as u32)
}

#[inline(always)]
fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Announces that the first `count` edges have keys. Pairs with `edge-seen`.
pub fn announce(edges: &AtomicU64, count: u64) {
    edges.store(count, ord!("edge-announce", Release));
}

/// The number of edges that have keys. Pairs with `edge-announce`.
#[must_use]
pub fn announced(edges: &AtomicU64) -> usize {
    (edges.load(ord!("edge-seen", Acquire)) as usize).min(MAX_EDGES)
}
