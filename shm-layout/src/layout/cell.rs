//! The cell: one lane's statistics of one point, and how they are written and
//! read at the same time.
//!
//! ```text
//!   0 +--------------------------------------------------------------+
//!     | seq | control | commit | point | amounts | allocs            |
//!  40 | parts[42]: chunk number of each histogram part, 0 for none   |  once each
//! 208 | rare[2]: squares, upper half | average | off_cpu | switches  |  seldom
//!     |          longest | window                                    |
//! 304 | epoch[2]: reset epoch of each copy of `retired`              |
//! 320 +--------------------------------------------------------------+
//!     | live[2]: count | exclusive | inclusive | squares | last      |  a fold
//!     |          min | max | folded                                  |
//! 448 +--------------------------------------------------------------+
//!     | retired[2]: earlier figures, two copies, one published       |  restarts
//!     | (shared cell: retired[1].past_*: totals over all resets)     |  every end
//! 640 +--------------------------------------------------------------+
//! ```
//!
//! A cell is a fold of its lane's ring ([`crate::layout::ring`]): it holds the records of its point
//! below number `folded`, and a reader adds the later ones.
//!
//! One thread writes a cell; any number of readers copy it. The live figures are stored twice. A
//! fold **stages** its additions: it writes them to the unpublished copy, and publishes that copy
//! by one store to `seq`, whose second bit selects the published copy. The lowest bit of `seq` says
//! that something is staged: then the histogram, which is stored once, may hold some of the
//! additions. So the figures are whole at every instruction, whether the writer goes on, is stopped
//! in the middle, or is killed.
//!
//! Each copy of the live figures is a cache line that every fold changes, and some rare words. As
//! long as the copies agree in the rare words, a fold can leave the rare words alone
//! ([`Cell::is_simple`]).
//!
//! **Restart.** When the point was reset, or the lane has a new owner, the next `begin` moves the
//! cell's figures into `retired` and starts afresh. For this, `begin` writes the sum to the
//! unpublished copy of `retired`, and publishes that copy by one store to `commit`. From that store
//! on the live figures are void until the figures of the new `window` are published.
//!
//! The orderings come in named pairs:
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `cell-open` fence | `cell-recheck` fence | a reader that saw any figure of a staged copy, or a new one in the histogram, sees the `seq` stored before that figure |
//! | `cell-close` store | `cell-enter` load | the published copy is complete, and so is the histogram of an even `seq` |
//! | `cell-stage` store | `cell-enter` load | the published copy beside a staged one is complete |
//! | `cell-commit` store | `cell-commit-seen` load | the published copy of `retired` is complete |
//! | `cell-part` store | `cell-part-seen` load | the chunk is backed and zeroed |
//! | `cell-void` fence | `cell-recheck` fence | a reader that saw a zeroed bucket sees the new `commit` |
//! | `cell-commit` store | death | the published copy is complete |
//! | `cell-close` store | death | the published copy is complete |
//!
//! Death is the end of a process that was killed. It leaves some set of the writer's stores in
//! memory. If a store is in this set, so are all stores that the orderings above put before it.

mod figures;
mod read;
mod record;
mod restart;
mod sums;

use crate::layout::amounts::{self, SumWords};
use crate::layout::control::Control;
use crate::layout::histogram::PARTS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence_at, ord};

use figures::RetiredWords;
pub(crate) use figures::{LiveWords, RareWords};
pub use read::{CellPicture, CellRead, Parts};
pub use record::{Away, CountedBucket, Measurement};
pub(crate) use sums::averaged;
pub use sums::{AVERAGE_FRACTION_BITS, Sums, average_of, average_ticks, variance};

/// One lane's statistics of one point; see the module for the drawing.
///
/// Written by the lane's thread only.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct Cell {
    seq: AtomicU64,
    control: AtomicU64,
    /// Number of restarts; its lowest bit selects the published copy of `retired`.
    commit: AtomicU64,
    /// Number of the point, which is constant, and in the upper bits the flags [`KEPT_CPU`] and
    /// [`SIMPLE`]; release-published before the cell is reachable.
    point: AtomicU64,
    /// Chunk number of the sums of amounts, see [`crate::layout::amounts`]; 0 if there are none.
    amounts: AtomicU32,
    /// Chunk number of what the point's regions have allocated, see [`crate::layout::allocs`]; 0 if
    /// no region has counted its allocations.
    allocs: AtomicU32,
    parts: [AtomicU32; PARTS],
    rare: [Rare; 2],
    /// Reset epoch of each copy of `retired`, published with that copy. In a shared cell, the upper
    /// half of the second word counts the threads that have entered the cell.
    epoch: [AtomicU64; 2],
    live: [Live; 2],
    retired: [Retired; 2],
}

/// The half of a copy of the live figures that each fold writes.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Live {
    words: LiveWords,
    /// The figures hold the lane's records below this number.
    folded: AtomicU64,
}

/// The half of a copy of the live figures that seldom changes.
#[repr(C)]
#[derive(Debug, Default)]
struct Rare {
    words: RareWords,
    /// The [`Window`] of these figures.
    window: AtomicU64,
}

/// Identifies the restart and the owner that live figures belong to.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Window(u64);

impl Window {
    #[inline(always)]
    fn new(restarts: u64, owner: u32) -> Self {
        Self(restarts << 32 | u64::from(owner))
    }

    /// Generation of the lane's owner.
    #[inline(always)]
    fn owner(self) -> u32 {
        self.0 as u32
    }

    /// Whether the figures belong to this restart. The low half of the number of restarts is
    /// enough, because the figures are at most one restart behind.
    #[inline(always)]
    fn is_current(self, restarts: u64) -> bool {
        (self.0 >> 32) as u32 == restarts as u32
    }
}

/// One copy of the live figures.
#[derive(Clone, Copy)]
struct Half<'a> {
    live: &'a Live,
    rare: &'a Rare,
}

/// The sequence word before a change. It selects the published copy; the change is written to the
/// other copy.
#[derive(Clone, Copy, Debug)]
pub struct Staged {
    seq: u64,
}

/// Flag in `seq`: something is staged.
const STAGED: u64 = 1;
/// Each publication adds this to `seq`.
const FLIP: u64 = 2;

/// Flag in the word of the point's number: the minimum counts only regions that kept the CPU.
const KEPT_CPU: u64 = 1 << 32;
/// Flag in the word of the point's number: [`Cell::append_simple`] may be called.
const SIMPLE: u64 = 1 << 33;

/// [`Cell::append_simple`] cannot overflow a sum of squares below this.
const NEARLY_FULL: u64 = 1 << 63;

/// A copy of the retired figures.
#[repr(C)]
#[derive(Debug, Default)]
struct Retired {
    words: RetiredWords,
    /// Measurements in windows that a reset has ended. In the second copy of a shared cell:
    /// measurements in all windows.
    past_count: AtomicU64,
    /// Exclusive ticks of the measurements that `past_count` counts.
    past_exclusive: AtomicU64,
}

/// The words of a cell that many threads write.
pub(crate) struct SharedWords<'a> {
    pub(crate) control: &'a AtomicU64,
    pub(crate) live: &'a LiveWords,
    pub(crate) rare: &'a RareWords,
    pub(crate) epoch: &'a AtomicU64,
    pub(crate) entered: &'a AtomicU64,
    pub(crate) ever_count: &'a AtomicU64,
    pub(crate) ever_exclusive: &'a AtomicU64,
}

impl Default for Cell {
    fn default() -> Self {
        Self::new()
    }
}

impl Rare {
    #[inline(always)]
    fn equals(&self, other: &Self) -> bool {
        self.words.equals(&other.words) && get(&self.window) == get(&other.window)
    }
}

impl Half<'_> {
    #[inline(always)]
    fn sums(self) -> Sums {
        Sums::get(&self.live.words, &self.rare.words)
    }

    #[inline(always)]
    fn window(self) -> Window {
        Window(get(&self.rare.window))
    }
}

#[inline(always)]
fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

#[inline(always)]
fn put(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

impl Cell {
    /// A cell of zeros, like a cell in fresh shared memory.
    #[must_use]
    pub fn new() -> Self {
        Self {
            seq: AtomicU64::default(),
            control: AtomicU64::default(),
            commit: AtomicU64::default(),
            point: AtomicU64::default(),
            amounts: AtomicU32::default(),
            allocs: AtomicU32::default(),
            parts: core::array::from_fn(|_| AtomicU32::new(0)),
            rare: Default::default(),
            epoch: Default::default(),
            live: Default::default(),
            retired: Default::default(),
        }
    }

    // ---- writer: the lane's own thread ----

    /// Initialises a zeroed cell for a point, before the cell is reachable.
    pub fn prepare(&self, point: u32, control: Control, owner: u32) {
        self.point.store(u64::from(point), Ordering::Relaxed);
        for (epoch, retired) in self.epoch.iter().zip(&self.retired) {
            put(epoch, u64::from(control.epoch()));
            Sums::default().retire(&retired.words);
        }
        let Half { live, rare } = self.published_by(0);
        Sums::default().put(&live.words, &rare.words);
        put(&rare.window, Window::new(0, owner).0);
        self.control.store(control.0, Ordering::Relaxed);
    }

    /// The control word that the cell follows.
    #[inline(always)]
    #[must_use]
    pub fn control(&self) -> Control {
        Control(self.control.load(Ordering::Relaxed))
    }

    /// Number of the cell's point.
    #[inline(always)]
    #[must_use]
    pub fn point(&self) -> u32 {
        self.point.load(Ordering::Relaxed) as u32
    }

    /// Clears the control word that the cell follows, when the owner leaves, so that the next owner
    /// finds the cell outdated and takes it over.
    pub fn abandon(&self) {
        self.control.store(0, Ordering::Relaxed);
    }

    /// The chunk number of a histogram part; 0 if it has none, or from [`PARTS`] on.
    #[inline(always)]
    #[must_use]
    pub fn part(&self, part: usize) -> u32 {
        self.parts.get(part).map_or(0, |part| part.load(Ordering::Relaxed))
    }

    /// Like [`Self::part`], for a reader that goes on to read the chunk.
    pub(crate) fn part_to_read(&self, part: usize) -> u32 {
        debug_assert!(part < PARTS);
        // Pairs with `cell-part`.
        self.parts.get(part).map_or(0, |part| part.load(ord!("cell-part-seen", Acquire)))
    }

    /// Assigns a zeroed chunk to a histogram part.
    pub fn set_part(&self, part: usize, chunk: u32) {
        // Pairs with `cell-part-seen`.
        self.parts[part].store(chunk, ord!("cell-part", Release));
    }

    /// Assigns a zeroed chunk to the sums of amounts, unless another thread was faster; returns the
    /// chunk that the cell has.
    pub fn set_amounts(&self, chunk: u32) -> u32 {
        let won =
            self.amounts.compare_exchange(0, chunk, ord!("cell-part", Release), Ordering::Relaxed);
        won.map_or_else(|found| found, |_| chunk)
    }

    /// Assigns a zeroed chunk to the sums of allocations, unless a signal handler was faster.
    pub fn set_allocs(&self, chunk: u32) {
        let published = ord!("cell-part", Release);
        // Pairs with `cell-part-seen`.
        let _ = self.allocs.compare_exchange(0, chunk, published, Ordering::Relaxed);
    }

    /// The copy of the live figures that a sequence word publishes.
    #[inline(always)]
    fn published_by(&self, seq: u64) -> Half<'_> {
        let copy = ((seq / FLIP) & 1) as usize;
        Half { live: &self.live[copy], rare: &self.rare[copy] }
    }

    /// Stages a change and returns the live figures, which the caller changes and then publishes by
    /// [`Self::publish`]. Counts added to the histogram in between belong to the change.
    pub fn stage(&self) -> Sums {
        let Staged { seq } = self.stage_more();
        self.published_by(seq).sums()
    }

    /// Marks the cell as staged. From here to [`Self::append`] the caller may add to the histogram.
    #[inline(always)]
    pub fn stage_more(&self) -> Staged {
        let staged = self.staged();
        self.mark_staged(staged.seq);
        staged
    }

    /// The published copy, from which [`Self::record_as`] starts.
    #[inline(always)]
    #[must_use]
    pub fn staged(&self) -> Staged {
        Staged { seq: self.seq.load(Ordering::Relaxed) }
    }

    #[inline(always)]
    fn mark_staged(&self, seq: u64) {
        // Only this thread stages changes. If a change is staged already, the thread has jumped out
        // of that change (by longjmp). Pairs with `cell-enter`.
        self.seq.store(seq | STAGED, ord!("cell-stage", Release));
        // Pairs with `cell-recheck`.
        fence_at!("cell-open", Release);
    }

    /// Publishes figures that hold the lane's records below `folded`. `sums` are the cell's sums of
    /// amounts, if it has them.
    pub fn publish(&self, live: &Sums, sums: Option<&SumWords>, folded: u64) {
        let seq = self.seq.load(Ordering::Relaxed);
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        self.put(seq, live, folded, self.window(seq));
    }

    /// Adds `more`, the figures of regions that kept the CPU, to the live figures, and publishes
    /// the result. The result takes its average from `more`, and holds the lane's records below
    /// `folded`.
    ///
    /// A child that a signal handler forks during this call writes the same words as its parent.
    pub fn append(
        &self,
        Staged { seq }: Staged,
        more: &Sums,
        sums: Option<&SumWords>,
        folded: u64,
    ) {
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        let mut live = self.published_by(seq).sums();
        live.min = self.least(live.min);
        live.append(more);
        self.put(seq, &live, folded, self.window(seq));
        let [first, second] = &self.rare;
        let is_simple = first.equals(second)
            && self.amounts() == 0
            && self.control().alpha_fixed() == 0
            && (live.squares as u64) < NEARLY_FULL;
        if is_simple {
            put(&self.point, get(&self.point) | SIMPLE);
        }
    }

    /// Whether [`Self::append_simple`] may be called: the copies agree in the rare words, the
    /// minimum counts only regions that kept the CPU, the point is not averaged, the cell has no
    /// sums of amounts, and the sum of squares has room for more.
    #[inline(always)]
    #[must_use]
    pub fn is_simple(&self) -> bool {
        get(&self.point) & SIMPLE != 0
    }

    /// Like [`Self::append`], for squares that add up to less than 2^63. It does not write the rare
    /// words.
    #[inline(always)]
    pub fn append_simple(&self, Staged { seq }: Staged, more: &Sums, folded: u64) {
        let copy = ((seq / FLIP) & 1) as usize;
        let from = &self.live[copy].words;
        // The fields are named one by one, so that a new figure does not compile before it is added
        // here.
        let Live { words, folded: to_folded } = &self.live[copy ^ 1];
        let LiveWords { count, exclusive, inclusive, squares_low, last, min, max } = words;
        let squares = get(&from.squares_low).wrapping_add(more.squares as u64);
        if squares >= NEARLY_FULL {
            put(&self.point, u64::from(self.point()) | KEPT_CPU);
        }
        put(count, get(&from.count).wrapping_add(more.count));
        put(exclusive, get(&from.exclusive).wrapping_add(more.exclusive));
        put(inclusive, get(&from.inclusive).wrapping_add(more.inclusive));
        put(squares_low, squares);
        put(last, more.last);
        put(min, get(&from.min).min(more.min));
        put(max, get(&from.max).max(more.max));
        put(to_folded, folded);
        // These figures do not change, because the cell is not averaged, and the measurements kept
        // the CPU and were short.
        let RareWords { squares_high: _, average: _, off_cpu: _, switches: _, longest: _ } =
            &self.rare[copy].words;
        self.close(seq);
    }

    /// The count and the average, for a fold that moves the average.
    #[must_use]
    pub fn averaged(&self, Staged { seq }: Staged) -> (u64, u64) {
        let Half { live, rare } = self.published_by(seq);
        (get(&live.words.count), get(&rare.words.average))
    }

    /// The window of the figures that a sequence word publishes.
    #[inline(always)]
    fn window(&self, seq: u64) -> Window {
        self.published_by(seq).window()
    }

    /// Writes the figures to the unpublished copy and publishes it. Pairs with `cell-enter`, and
    /// with death.
    #[inline(always)]
    fn put(&self, seq: u64, live: &Sums, folded: u64, window: Window) {
        let point = get(&self.point);
        if point & SIMPLE != 0 {
            put(&self.point, point & !SIMPLE);
        }
        let staged = self.published_by(seq.wrapping_add(FLIP));
        live.put(&staged.live.words, &staged.rare.words);
        put(&staged.live.folded, folded);
        put(&staged.rare.window, window.0);
        self.close(seq);
    }

    /// Publishes the staged copy.
    #[inline(always)]
    fn close(&self, seq: u64) {
        self.seq.store((seq | STAGED).wrapping_add(STAGED), ord!("cell-close", Release));
    }

    // ---- for the shared writer, `crate::layout::shared_cell` ----

    /// The words that many threads write. Live figures are in the first copy, which stays
    /// published.
    pub(crate) fn shared_words(&self) -> SharedWords<'_> {
        SharedWords {
            control: &self.control,
            live: &self.live[0].words,
            rare: &self.rare[0].words,
            epoch: &self.epoch[0],
            entered: &self.epoch[1],
            ever_count: &self.retired[1].past_count,
            ever_exclusive: &self.retired[1].past_exclusive,
        }
    }

    pub(crate) fn for_each_part(&self, mut visit: impl FnMut(u32)) {
        for part in &self.parts {
            let chunk = part.load(Ordering::Relaxed);
            if chunk != 0 {
                visit(chunk);
            }
        }
    }

    /// Assigns a chunk to a part of a shared cell, unless another thread was faster; returns the
    /// chunk that the part has.
    pub fn set_part_shared(&self, part: usize, chunk: u32) -> u32 {
        let won = self.parts[part].compare_exchange(
            0,
            chunk,
            ord!("cell-part", Release),
            Ordering::Relaxed,
        );
        won.map_or_else(|found| found, |_| chunk)
    }
}

/// `word += value` for a word that only this thread writes: a plain addition instead of a locked
/// one.
#[inline(always)]
pub fn add(word: &AtomicU64, value: u64) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(value), Ordering::Relaxed);
}

#[cfg(test)]
// The path is given because `tests/loom` includes this file from another folder.
#[path = "cell/tests.rs"]
mod tests;
