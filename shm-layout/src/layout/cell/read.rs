//! The reader's half of a cell: a picture of one moment, beside its writer.

use std::mem::offset_of;
use std::ops::Range;

use super::{Cell, FLIP, Half, STAGED, Sums, get};
use crate::layout::amounts::{self, SumWords, SumsPicture};
use crate::layout::histogram::PARTS;
use crate::sync::{AtomicU64, Ordering, fence_at, ord};

/// What a cell held at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CellPicture {
    /// The point the cell is of.
    pub point: u32,
    /// Reset epoch of the figures.
    pub epoch: u32,
    /// Generation of the lane's owner that `live` is of.
    pub owner: u32,
    /// Figures of that owner.
    pub live: Sums,
    /// Figures of owners before, in the same epoch.
    pub retired: Sums,
    /// Measurements in windows that a reset has ended.
    pub past_count: u64,
    /// Exclusive ticks in windows that a reset has ended.
    pub past_exclusive: u64,
    /// Chunk number of each histogram part, 0 for none.
    pub parts: Parts,
    /// Records of the lane's ring up to here are in `live`.
    pub folded: u64,
    /// Something is or was staged: the histogram may hold some of the records that follow.
    pub staged: bool,
    /// Sums of amounts, of a cell that has them.
    pub amounts: SumsPicture,
    /// Number of restarts; a histogram read beside this picture is of the same
    /// window if the number is still the same afterwards.
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

/// What was found in the live figures.
struct Looked<R> {
    found: R,
    /// The sequence word that puts them in force.
    before: u64,
    /// Something was staged, or put in force meanwhile.
    staged: bool,
    /// They were not written to meanwhile.
    is_whole: bool,
}

/// How a cell was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRead {
    /// The figures are of one moment.
    Whole,
    /// The cell was written to meanwhile.
    Torn,
}

impl Cell {
    /// Copies the cell once.
    pub fn read(&self, picture: &mut CellPicture) -> CellRead {
        self.read_with(picture, |_| None)
    }

    /// Copies the cell with the sums of its amounts, which `find` finds by the number of their
    /// chunk.
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
        for (to, from) in picture.parts.0.iter_mut().zip(&self.parts) {
            *to = from.load(Ordering::Relaxed);
        }
        let looked = self.look(|half, copy| {
            let void = !half.window().is_current(commit);
            picture.live = if void { Sums::default() } else { half.sums() };
            picture.amounts = self.amounts_sums((copy, commit), void, find);
            picture.folded = get(&half.live.folded);
            picture.owner = half.window().owner();
            void
        });
        // Only a reset clears the histogram, and it leaves nothing retired.
        if looked.found && retired.count == 0 {
            picture.parts = Parts::default();
        }
        picture.retired = retired;
        picture.staged = looked.staged;
        // No restart came in between.
        let same = looked.is_whole && self.commit.load(Ordering::Relaxed) == commit;
        if same { CellRead::Whole } else { CellRead::Torn }
    }

    /// Copies the live figures alone, with the sums of amounts and the number of records that
    /// they hold, behind the sequence word that goes with them: as long as nothing restarts,
    /// the rest is as it was. None if the cell was written to meanwhile, has something staged,
    /// or has restarted since a picture with this number of restarts.
    #[inline]
    pub fn read_live<'a>(
        &self,
        restarts: u64,
        find: impl FnOnce(u32) -> Option<&'a SumWords>,
    ) -> Option<(u64, Sums, u64, SumsPicture)> {
        let looked = self.look(|half, copy| {
            let same = get(&self.commit) == restarts && half.window().is_current(restarts);
            let amounts = self.amounts_sums((copy, restarts), false, find);
            same.then(|| (half.sums(), get(&half.live.folded), amounts))
        });
        let (live, folded, amounts) = looked.found.filter(|_| !looked.staged)?;
        Some((looked.before, live, folded, amounts))
    }

    /// The sums of amounts, of a cell that has them.
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
        self.amounts.load(Ordering::Relaxed) as u32
    }

    /// The chunk number of the sums of amounts, for a reader that goes on to read the chunk.
    pub(crate) fn amounts_to_read(&self) -> u32 {
        // Meets `cell-part`: the zeros that the chunk began with.
        self.amounts.load(Ordering::Acquire) as u32
    }

    /// Copies the words of the cell, as they lie in memory: `words` are the cell's
    /// own, and `sums` those of its sums of amounts. What is staged is not whole in it. With a
    /// whole copy comes the number of restarts.
    pub(crate) fn copy(
        &self,
        (words, to): (&[AtomicU64], &mut [u64]),
        (sums, sums_to): (&[AtomicU64], &mut [u64]),
    ) -> Option<u64> {
        const LIVE: Range<usize> = offset_of!(Cell, rare) / 8..offset_of!(Cell, retired) / 8;
        let copy = |to: &mut [u64], words: &[AtomicU64]| {
            for (to, word) in to.iter_mut().zip(words) {
                *to = word.load(Ordering::Relaxed);
            }
        };
        let restarts = self.restarts();
        copy(to, words);
        let looked = self.look(|_, _| {
            copy(&mut to[LIVE], &words[LIVE]);
            copy(sums_to, sums);
        });
        // The copy in force is the one that was.
        to[0] = looked.before;
        let same = looked.is_whole && self.commit.load(Ordering::Relaxed) == restarts;
        same.then_some(restarts)
    }

    /// The number of restarts.
    pub(super) fn restarts(&self) -> u64 {
        // Meets `cell-commit`.
        self.commit.load(ord!("cell-commit-seen", Acquire))
    }

    /// What `read` reads of the live figures in force, whose copy has that number, and whether
    /// they were whole all the while. It must look into no chunk.
    #[inline]
    fn look<R>(&self, read: impl FnOnce(Half<'_>, u64) -> R) -> Looked<R> {
        // Meets `cell-close` and `cell-stage`.
        let before = self.seq.load(ord!("cell-enter", Acquire));
        let found = read(self.in_force(before), before / FLIP);
        // Meets `cell-open`: if any figure above was newer than `before`, the
        // load below sees at least the word that went before it. Meets
        // `cell-part` too, since nobody looks into a chunk before this.
        fence_at!("cell-recheck", Acquire);
        let after = self.seq.load(Ordering::Relaxed);
        let staged = before != after || before & STAGED != 0;
        // The next copy may be in force by now: this one is written to once it is staged.
        let is_whole = after.wrapping_sub(before & !STAGED) <= FLIP;
        Looked { found, before, staged, is_whole }
    }

    /// The sequence word: equal and even at two readings means that nothing was
    /// written in between. Relaxed: it only tells whether to call
    /// [`Self::read`], which asks again; that a word never goes back is enough.
    #[inline]
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.seq.load(Ordering::Relaxed)
    }

    /// Exclusive ticks of a measurement that is staged and in no record. It is in the
    /// histogram only after that.
    pub(crate) fn staged_beside(&self) -> u64 {
        let seq = self.seq.load(Ordering::Relaxed);
        get(&self.in_force(seq.wrapping_add(FLIP)).live.words.last)
    }

    /// Whether the cell still has this sequence word, and had it while the histogram was
    /// read.
    #[inline]
    #[must_use]
    pub fn is_still(&self, sequence: u64) -> bool {
        // Meets `cell-open`.
        fence_at!("cell-recheck", Acquire);
        self.seq.load(Ordering::Relaxed) == sequence
    }

    /// Where the words lie that [`Self::read_live`] reads of the copy that a sequence word puts
    /// in force.
    pub(crate) fn live_words(&self, sequence: u64) -> [Range<*const u8>; 2] {
        fn bytes<T>(words: &T) -> Range<*const u8> {
            let first = std::ptr::from_ref(words);
            first.cast()..first.wrapping_add(1).cast()
        }
        let Half { live, rare } = self.in_force(sequence);
        [bytes(live), bytes(rare)]
    }

    /// Whether the cell was restarted since a picture with this number of
    /// restarts. A reader asks after it has read the histogram.
    #[must_use]
    pub fn restarted_since(&self, restarts: u64) -> bool {
        // Meets `cell-void`, and `cell-open` of the next window's records.
        fence_at!("cell-recheck", Acquire);
        self.commit.load(Ordering::Relaxed) != restarts
    }
}
