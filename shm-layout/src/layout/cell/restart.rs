//! Starts a cell afresh after a reset or for a new owner, and completes interrupted changes.

use super::{AVERAGE_FRACTION_BITS, Cell, FLIP, STAGED, Sums, Window, get, put};
use crate::layout::amounts::{self, SumWords};
use crate::layout::control::Control;
use crate::sync::{Ordering, fence_at, ord};

impl Cell {
    /// Follows a new control word and a new owner of the lane. The cell starts afresh if the point
    /// was reset or the owner has changed. `clear` is called with the chunk number of each
    /// histogram part that has to be zeroed. All records of the lane must have been folded.
    pub fn follow(&self, control: Control, owner: u32, clear: impl FnMut(u32)) {
        self.follow_with(control, owner, None, clear);
    }

    /// Like [`Self::follow`], for a cell that has the sums of amounts.
    pub fn follow_with(
        &self,
        control: Control,
        owner: u32,
        sums: Option<&SumWords>,
        mut clear: impl FnMut(u32),
    ) {
        let seq = self.seq.load(Ordering::Relaxed);
        self.mark_staged(seq);
        let mut live = self.published_by(seq).sums();
        let folded = self.published_by(seq).live.folded.load(Ordering::Relaxed);
        let window = self.window(seq);
        // The epoch of `self.control` cannot be used: an owner that leaves clears that word.
        let commit = self.commit.load(Ordering::Relaxed);
        let epoch = get(&self.epoch[(commit & 1) as usize]);
        let reset = u64::from(control.epoch()) != epoch;
        let moved = owner != window.owner();
        if reset || moved {
            let (mut retired, mut past) = self.retired_sums(commit);
            retired.merge(&live);
            if reset {
                past.0 = past.0.wrapping_add(retired.count);
                past.1 = past.1.wrapping_add(retired.exclusive);
                retired = Sums::default();
            }
            self.retire(commit.wrapping_add(1), control.epoch(), &retired, past);
            if let Some(sums) = sums {
                amounts::retire(sums, (seq / FLIP, commit.wrapping_add(1)), reset);
            }
            // Pairs with `cell-commit-seen`: the copy is complete before it is published, even if
            // the process is killed in between.
            self.commit.store(commit.wrapping_add(1), ord!("cell-commit", Release));
            // Pairs with `cell-recheck`: the live figures are void before the histogram is zeroed.
            fence_at!("cell-void", Release);
            self.control.store(control.0, Ordering::Relaxed);
            return self.restart(seq, owner, sums, reset, &mut clear);
        }
        if control.alpha_fixed() == 0 {
            live.average = 0;
        } else if self.control().alpha_fixed() == 0 {
            // Averaging was just switched on: start at the mean so far.
            live.average = (live.exclusive / live.count.max(1)) << AVERAGE_FRACTION_BITS;
        }
        if let Some(sums) = sums {
            amounts::stage(sums, seq / FLIP);
        }
        self.control.store(control.0, Ordering::Relaxed);
        self.put(seq, &live, folded, window);
    }

    /// Publishes the empty figures of a new window. The earlier figures have been retired.
    fn restart(
        &self,
        seq: u64,
        owner: u32,
        sums: Option<&SumWords>,
        reset: bool,
        clear: &mut impl FnMut(u32),
    ) {
        if reset {
            self.for_each_part(clear);
        }
        if let Some(sums) = sums {
            amounts::clear(sums, seq / FLIP + 1);
        }
        self.point.store(u64::from(self.point()), Ordering::Relaxed);
        let folded = self.published_by(seq).live.folded.load(Ordering::Relaxed);
        let commit = self.commit.load(Ordering::Relaxed);
        self.put(seq, &Sums::default(), folded, Window::new(commit, owner));
    }

    /// Ends a change that was interrupted and that no thread will continue, because its thread
    /// jumped out of a signal handler, for instance. Drops the staged figures, and completes an
    /// interrupted restart. `held` returns the number of measurements in a histogram part, and
    /// `clear` zeroes the part.
    ///
    /// Returns how many of the dropped measurements the histogram holds, and the ticks of the last
    /// one. The caller removes these measurements from the histogram, and then calls
    /// [`Self::mended`].
    pub fn mend(
        &self,
        sums: Option<&SumWords>,
        mut held: impl FnMut(u32) -> u64,
        mut clear: impl FnMut(u32),
    ) -> (u64, u64) {
        let seq = self.seq.load(Ordering::Relaxed);
        if seq & STAGED == 0 {
            return (0, 0);
        }
        let last = get(&self.published_by(seq.wrapping_add(FLIP)).live.words.last);
        // The change may have been interrupted inside `mark_staged`, between its store and its
        // fence.
        self.mark_staged(seq);
        let window = self.window(seq);
        let commit = self.commit.load(Ordering::Relaxed);
        let (retired, _) = self.retired_sums(commit);
        if !window.is_current(commit) {
            // As in `follow_with`, the retired figures are empty after a reset, and only then.
            self.restart(seq, window.owner(), sums, retired.count == 0, &mut clear);
            return (0, 0);
        }
        let counted = retired.count.wrapping_add(get(&self.published_by(seq).live.words.count));
        let mut in_parts = 0u64;
        self.for_each_part(|chunk| in_parts = in_parts.wrapping_add(held(chunk)));
        (in_parts.saturating_sub(counted), last)
    }

    /// The published figures hold the lane's records below this number. Only the lane's thread may
    /// call this, because the copy could be overwritten before a reader loads the number.
    #[must_use]
    pub fn folded(&self) -> u64 {
        self.published_by(self.seq.load(Ordering::Relaxed)).live.folded.load(Ordering::Relaxed)
    }

    /// Ends the repair that [`Self::mend`] began: publishes the figures unchanged, if something was
    /// staged.
    pub fn mended(&self, sums: Option<&SumWords>) {
        if self.seq.load(Ordering::Relaxed) & STAGED != 0 {
            self.publish(&self.stage(), sums, self.folded());
        }
    }

    fn retire(&self, commit: u64, epoch: u32, sums: &Sums, past: (u64, u64)) {
        let copy = (commit & 1) as usize;
        let retired = &self.retired[copy];
        put(&self.epoch[copy], u64::from(epoch));
        sums.retire(&retired.words);
        put(&retired.past_count, past.0);
        put(&retired.past_exclusive, past.1);
    }

    /// The retired figures after `commit` restarts, and the measurements and exclusive ticks in
    /// windows that a reset has ended.
    pub(super) fn retired_sums(&self, commit: u64) -> (Sums, (u64, u64)) {
        let retired = &self.retired[(commit & 1) as usize];
        let past = (get(&retired.past_count), get(&retired.past_exclusive));
        (Sums::get_retired(&retired.words), past)
    }
}
