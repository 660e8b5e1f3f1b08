//! The other way to write a cell: by many threads, with atomic additions.
//!
//! Threads that found no lane share the overflow lane's cells. Every sum is
//! exact; a reader may see the sums of a measurement that is being added one
//! after the other, so a picture of such a cell is never torn but may be ahead
//! in one sum by the measurements in progress. All orderings are relaxed: each
//! word stands for itself.
//!
//! **A reset.** A point has two such cells. One of them takes what is measured; after a
//! reset one thread, in its turn, clears the other one, and puts it in force by its control
//! word. Who adds to a cell has entered it, and no cell is cleared that somebody has entered: so
//! count and sums are of one window. Threads that come meanwhile add to the window before, and do
//! not wait. A cell that was left by a jump counts as entered: whoever resets says for how long.
//!
//! **What there ever was**, over all resets, has words of its own, to which every
//! measurement is added first and which nobody takes from.
//!
//! | site | meets | makes visible |
//! |---|---|---|
//! | `shared-cleared` store | `shared-seen` load | the cell is cleared |
//! | `shared-left` exchange | `shared-empty` exchange | all additions were before the cell is cleared |

use std::ops::Deref;

use crate::layout::amounts::{self, Amounts, SumWords};
use crate::layout::cell::{Cell, Measurement, Sums, averaged};
use crate::layout::control::{Control, is_newer};
use crate::sync::{AtomicU64, Ordering::Relaxed, ord};

/// In the word of measurements under way, beside the epoch of their window: one.
const ONE: u64 = 1 << 32;

/// A shared cell that is not cleared before this is dropped.
#[derive(Debug)]
pub struct Entered<'a> {
    cell: &'a Cell,
    /// Of the window.
    epoch: u32,
}

impl Deref for Entered<'_> {
    type Target = Cell;

    fn deref(&self) -> &Cell {
        self.cell
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        // Where the cell was cleared all the same, nobody is counted any more.
        let less = |word: u64| (word as u32 == self.epoch && word >= ONE).then(|| word - ONE);
        let under_way = self.cell.shared_words().under_way;
        let mut found = under_way.load(Relaxed);
        while let Some(left) = less(found) {
            let success = ord!("shared-left", Release);
            match under_way.compare_exchange_weak(found, left, success, Relaxed) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
    }
}

impl Cell {
    /// Keeps the cell from being cleared; none if that is being done, or was done just now.
    pub fn enter_shared(&self) -> Option<Entered<'_>> {
        let epoch = self.shared_control().epoch();
        let found = self.shared_words().under_way.fetch_add(ONE, Relaxed) as u32;
        // Dropped where it is of another window, it leaves that one.
        let entered = Entered { cell: self, epoch: found };
        (found == epoch).then_some(entered)
    }

    /// Records one measurement, whoever else records at the same time.
    pub fn record_shared(&self, measured: Measurement, bucket: Option<&AtomicU64>) {
        let words = self.shared_words();
        let count = &words.live.count;
        let own = measured.exclusive;
        words.ever_count.fetch_add(1, Relaxed);
        words.ever_exclusive.fetch_add(own, Relaxed);
        let alpha = i64::from(self.control().alpha_fixed());
        if alpha != 0 {
            let is_first = count.load(Relaxed) == 0;
            let next = |found| Some(averaged((!is_first).then_some(found), own, alpha));
            let _ = words.rare.average.fetch_update(Relaxed, Relaxed, next);
        }
        let mut sums = Sums::of(own, measured.inclusive);
        if let Some(away) = measured.away {
            (sums.off_cpu, sums.switches) = (away.off_cpu, away.switches);
        }
        // The count comes last, so that no figure is behind it.
        sums.count = 0;
        sums.add_shared(words.live, words.rare);
        if let Some(bucket) = bucket {
            bucket.fetch_add(1, Relaxed);
        }
        count.fetch_add(1, Relaxed);
    }

    /// Measurements and their exclusive ticks in all windows; none if there are none,
    /// or the writer is of a version that did not count them by themselves.
    pub(crate) fn ever(&self) -> Option<(u64, u64)> {
        let words = self.shared_words();
        let count = words.ever_count.load(Relaxed);
        (count > 0).then(|| (count, words.ever_exclusive.load(Relaxed)))
    }

    /// Adds the amounts of a measurement, before it is recorded.
    pub fn add_amounts_shared(sums: &SumWords, amounts: &Amounts) {
        amounts::add_shared(sums, amounts);
    }

    /// Of a point's two shared cells, the one that takes what is measured under a control
    /// word. After a reset, `restart` is given the cell in force and the other one, which it has
    /// [follow the word](Self::restart_shared); false while another thread may do that.
    ///
    /// # Errors
    ///
    /// The place that has no cell yet, 0 or 1: the caller prepares one that follows the word.
    pub fn shared_for(
        cells: [Option<&Self>; 2],
        control: Control,
        restart: impl FnOnce(&Self, &Self) -> bool,
    ) -> Result<&Self, usize> {
        let Some((newest, other)) = Self::newest_shared(cells) else { return Err(0) };
        let found = newest.shared_control();
        if is_newer(control.epoch(), found.epoch()) {
            let Some(other) = other else { return Err(1) };
            return Ok(if restart(newest, other) { other } else { newest });
        }
        // A thread that read its control word before a reset does not take it back.
        if found != control && found.epoch() == control.epoch() {
            let word = newest.shared_words().control;
            let _ = word.compare_exchange(found.0, control.0, Relaxed, Relaxed);
        }
        Ok(newest)
    }

    /// The cell in force of a point's two, and the other one, if there is any.
    pub(crate) fn newest_shared(
        [first, second]: [Option<&Self>; 2],
    ) -> Option<(&Self, Option<&Self>)> {
        let first = first?;
        match second {
            Some(second)
                if is_newer(second.shared_control().epoch(), first.shared_control().epoch()) =>
            {
                Some((second, Some(first)))
            }
            second => Some((first, second)),
        }
    }

    /// What a shared cell follows. Meets `shared-cleared`.
    fn shared_control(&self) -> Control {
        Control(self.shared_words().control.load(ord!("shared-seen", Acquire)))
    }

    /// Clears the cell of a window that has passed, and has it follow a control word. False where a
    /// thread has entered it, if those are still `waited_for`. No other thread may do it at the same
    /// time. `clear` sets a chunk to zeros.
    ///
    /// Another thread may have been faster. Then nothing is cleared: either this cell is in force
    /// already (true), or `in_force` follows a newer word (false). A cell in force is never cleared,
    /// because no thread can enter a cell while that is done.
    pub fn restart_shared(
        &self,
        in_force: &Self,
        control: Control,
        waited_for: bool,
        mut clear: impl FnMut(u32),
    ) -> bool {
        let newest = in_force.shared_control().epoch();
        if is_newer(self.shared_control().epoch(), newest) {
            return true;
        }
        if !is_newer(control.epoch(), newest) {
            return false;
        }
        let words = self.shared_words();
        let epoch = u64::from(control.epoch());
        let found = words.under_way.load(Relaxed);
        let success = ord!("shared-empty", Acquire);
        if waited_for && found >= ONE
            || words.under_way.compare_exchange(found, epoch, success, Relaxed).is_err()
        {
            return false;
        }
        Sums::default().put(words.live, words.rare);
        self.for_each_part(&mut clear);
        if self.amounts() != 0 {
            clear(self.amounts());
        }
        words.epoch.store(epoch, Relaxed);
        words.control.store(control.0, ord!("shared-cleared", Release));
        true
    }
}
