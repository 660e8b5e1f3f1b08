//! The reader's half of a cell: it takes a picture of one moment while the writer goes on.

use std::array;
use std::mem::offset_of;
use std::ops::Range;

use super::{Cell, FLIP, Half, STAGED, Sums, get};
use crate::layout::amounts::{self, SumWords, SumsPicture};
use crate::layout::histogram::PARTS;
use crate::sync::{AtomicU64, Ordering, fence_at, ord};

/// The contents of a cell at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellPicture {
    /// Number of the cell's point.
    pub point: u32,
    /// Reset epoch of the figures.
    pub epoch: u32,
    /// Generation of the owner that `live` belongs to.
    pub owner: u32,
    /// Figures of that owner.
    pub live: Sums,
    /// Figures of the lane's earlier owners since the point's last reset.
    pub retired: Sums,
    /// Measurements in windows that a reset has ended.
    pub past_count: u64,
    /// Exclusive ticks in windows that a reset has ended.
    pub past_exclusive: u64,
    /// Chunk number of each histogram part, 0 for none.
    pub parts: Parts,
    /// `live` holds the lane's records below this number.
    pub folded: u64,
    /// Whether something was staged during the copy, or is staged now. If so, the histogram may
    /// hold some records that are not in `live` yet.
    pub staged: bool,
    /// Sums of amounts; zeros if the cell has none.
    pub amounts: SumsPicture,
    /// Number of restarts. If it is unchanged after a histogram was read, the histogram and this
    /// picture belong to one window.
    pub restarts: u64,
}

/// Chunk numbers of a histogram's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts(pub [u32; PARTS]);

impl Default for Parts {
    fn default() -> Self {
        Self([0; PARTS])
    }
}

/// Result of one attempt to read the live figures.
struct Attempt<R> {
    found: R,
    /// The sequence word that publishes these figures.
    before: u64,
    /// Whether something was staged, or was published during the attempt.
    staged: bool,
    /// Whether the figures were not written to during the attempt.
    is_whole: bool,
}

/// How a cell was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRead {
    /// The figures are of one moment.
    Whole,
    /// The cell was written to while it was read.
    Torn,
}

impl Cell {
    /// Copies the cell once.
    pub fn read(&self, picture: &mut CellPicture) -> CellRead {
        self.read_with(picture, |_| None)
    }

    /// Copies the cell with its sums of amounts, whose words `find` returns for their chunk number.
    pub fn read_with<'a>(
        &self,
        picture: &mut CellPicture,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> CellRead {
        let commit = self.restarts();
        let (retired, past) = self.retired_sums(commit);
        picture.epoch = get(&self.epoch[(commit & 1) as usize]) as u32;
        picture.point = self.point.load(Ordering::Relaxed) as u32;
        (picture.past_count, picture.past_exclusive) = past;
        picture.restarts = commit;
        let attempt = self.try_read(|half, copy| {
            let void = !half.window().is_current(commit);
            picture.live = if void { Sums::default() } else { half.sums() };
            picture.amounts = self.amounts_sums((copy, commit), void, find);
            picture.folded = get(&half.live.folded);
            picture.owner = half.window().owner();
            void
        });
        // A restart in progress that retires nothing is a reset, which also clears the histogram.
        let is_cleared = attempt.found && retired.count == 0;
        // The parts are read after the figures. Otherwise the figures could count a measurement whose
        // part had no chunk yet when the parts were read.
        picture.parts = match is_cleared {
            true => Parts::default(),
            false => Parts(array::from_fn(|part| self.part_to_read(part))),
        };
        picture.retired = retired;
        picture.staged = attempt.staged;
        // No restart happened in between.
        let same = attempt.is_whole && self.commit.load(Ordering::Relaxed) == commit;
        if same { CellRead::Whole } else { CellRead::Torn }
    }

    /// Copies the live figures, the number of records that they hold, and the sums of amounts. The
    /// rest of the cell changes only in a restart. Returns the sequence word that publishes the
    /// copy, then the copy. `None` if the cell was written to during the copy, has something
    /// staged, or its number of restarts is not `restarts`.
    #[inline]
    pub fn read_live<'a>(
        &self,
        restarts: u64,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> Option<(u64, Sums, u64, SumsPicture)> {
        let attempt = self.try_read(|half, copy| {
            let same = get(&self.commit) == restarts && half.window().is_current(restarts);
            let amounts = self.amounts_sums((copy, restarts), false, find);
            same.then(|| (half.sums(), get(&half.live.folded), amounts))
        });
        let (live, folded, amounts) = attempt.found.filter(|_| !attempt.staged)?;
        Some((attempt.before, live, folded, amounts))
    }

    /// The sums of amounts; zeros if the cell has none.
    #[inline]
    fn amounts_sums<'a>(
        &self,
        copies: (u64, u64),
        void: bool,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> SumsPicture {
        let sums = Some(self.amounts_to_read()).filter(|&chunk| chunk != 0).and_then(find);
        sums.map_or_else(SumsPicture::default, |sums| amounts::read(sums, copies, void))
    }

    /// The chunk number of the sums of amounts, 0 for none.
    #[inline(always)]
    #[must_use]
    pub fn amounts(&self) -> u32 {
        self.amounts.load(Ordering::Relaxed)
    }

    /// The chunk number of what the point's regions have allocated, 0 for none.
    #[inline(always)]
    #[must_use]
    pub fn allocs(&self) -> u32 {
        self.allocs.load(Ordering::Relaxed)
    }

    /// [`Self::allocs`] for a reader that goes on to read the chunk.
    pub(crate) fn allocs_to_read(&self) -> u32 {
        // Pairs with `cell-part`.
        self.allocs.load(ord!("cell-part-seen", Acquire))
    }

    /// The chunk number of the sums of amounts, for a reader that goes on to read the chunk.
    pub(crate) fn amounts_to_read(&self) -> u32 {
        // Pairs with `cell-part`.
        self.amounts.load(ord!("cell-part-seen", Acquire))
    }

    /// Copies the words of the cell as they are in memory: `words` are the cell's own, and `sums`
    /// the words of its sums of amounts. Returns the number of restarts, or `None` if the copy is
    /// torn. In a copy that counts as whole, only the staged figures can be torn, and the words name
    /// the chunk of each measurement that the figures count.
    pub(crate) fn copy(
        &self,
        (words, to): (&[AtomicU64], &mut [u64]),
        (sums, sums_to): (&[AtomicU64], &mut [u64]),
    ) -> Option<u64> {
        const CHUNKS: Range<usize> = offset_of!(Cell, amounts) / 8..offset_of!(Cell, rare) / 8;
        const LIVE: Range<usize> = offset_of!(Cell, rare) / 8..offset_of!(Cell, retired) / 8;
        let copy = |to: &mut [u64], words: &[AtomicU64]| {
            for (to, word) in to.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
        };
        let restarts = self.restarts();
        copy(to, words);
        let attempt = self.try_read(|_, _| {
            copy(&mut to[LIVE], &words[LIVE]);
            copy(sums_to, sums);
        });
        // The chunk numbers are copied after the figures, for the reason given in `read_with`.
        copy(&mut to[CHUNKS], &words[CHUNKS]);
        // This sequence word was read before the copy, so the figures that it publishes are whole.
        to[0] = attempt.before;
        let same = attempt.is_whole && self.commit.load(Ordering::Relaxed) == restarts;
        same.then_some(restarts)
    }

    /// The number of restarts.
    pub(super) fn restarts(&self) -> u64 {
        // Pairs with `cell-commit`.
        self.commit.load(ord!("cell-commit-seen", Acquire))
    }

    /// Calls `read` with the published live figures and the number of their copy, and finds out
    /// whether the figures stayed whole.
    #[inline]
    fn try_read<R>(&self, read: impl FnOnce(Half<'_>, u64) -> R) -> Attempt<R> {
        // Pairs with `cell-close` and `cell-stage`.
        let before = self.seq.load(ord!("cell-enter", Acquire));
        let found = read(self.published_by(before), before / FLIP);
        // Pairs with `cell-open`: if any figure above was newer than `before`, the load below sees
        // at least the sequence word stored before that figure.
        fence_at!("cell-recheck", Acquire);
        let after = self.seq.load(Ordering::Relaxed);
        let staged = before != after || before & STAGED != 0;
        // The writer may have published the other copy by now. Even so, this copy stays whole until
        // the next change, which is staged in it.
        let is_whole = after.wrapping_sub(before & !STAGED) <= FLIP;
        Attempt { found, before, staged, is_whole }
    }

    /// The sequence word. If two readings are equal and even, nothing was written in between.
    /// Relaxed: the word only decides whether to call [`Self::read`], which checks again. It is
    /// enough that the word never decreases.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Exclusive ticks of a staged measurement that has no record. The writer stores them before it
    /// counts the measurement in the histogram.
    pub(crate) fn staged_beside(&self) -> u64 {
        let seq = self.seq.load(Ordering::Relaxed);
        get(&self.published_by(seq.wrapping_add(FLIP)).live.words.last)
    }

    /// Whether the cell still has this sequence word, and had it while the histogram was
    /// read.
    #[inline]
    #[must_use]
    pub fn is_still(&self, sequence: u64) -> bool {
        // Pairs with `cell-open`.
        fence_at!("cell-recheck", Acquire);
        self.seq.load(Ordering::Relaxed) == sequence
    }

    /// The addresses of the words that [`Self::read_live`] reads in the copy that a sequence word
    /// publishes.
    pub(crate) fn live_words(&self, sequence: u64) -> [Range<*const u8>; 2] {
        fn bytes<T>(words: &T) -> Range<*const u8> {
            let first = std::ptr::from_ref(words);
            first.cast()..first.wrapping_add(1).cast()
        }
        let Half { live, rare } = self.published_by(sequence);
        [bytes(live), bytes(rare)]
    }

    /// Whether the cell was restarted since a picture with this number of restarts. A reader calls
    /// this after it has read the histogram.
    #[must_use]
    pub fn restarted_since(&self, restarts: u64) -> bool {
        // Pairs with `cell-void`, and `cell-open` of the next window's records.
        fence_at!("cell-recheck", Acquire);
        self.commit.load(Ordering::Relaxed) != restarts
    }
}
