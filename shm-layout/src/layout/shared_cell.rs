//! The second way to write a cell: by many threads, with atomic additions.
//!
//! Threads that found no lane share the overflow lane's cells. Every sum is exact. The sums of a
//! measurement change one after the other, so a picture of a shared cell may be ahead in some sums
//! by the measurements in progress, but no sum is torn. Additions are relaxed: no word publishes
//! another one.
//!
//! **A reset.** A point has two shared cells, and one of them takes the measurements. After a reset
//! one thread, which holds a lease, clears the other cell and publishes it by its control word. A
//! thread enters a cell before it adds to the cell, and a cell that a thread has entered is not
//! cleared. So the count and the sums of a cell belong to one window, the time between two resets.
//! Threads that measure during the clearing add to the previous window, and do not wait. A thread
//! that jumps out of a cell (by longjmp) stays counted in the cell; the caller of a reset decides
//! how long it waits for that thread.
//!
//! **Totals** over all resets have words of their own. Every measurement is added to them first,
//! and they are never reset.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `shared-cleared` store | `shared-seen` load | the cell is cleared |
//! | `shared-left` exchange | `shared-empty` exchange | all additions were before the cell is cleared |

use std::ops::Deref;

use crate::layout::amounts::{self, Amounts, SumWords};
use crate::layout::cell::{Cell, Measurement, Sums, averaged};
use crate::layout::control::{Control, is_newer};
use crate::sync::{AtomicU64, Ordering::Relaxed, ord};

/// One thread in the word `entered`, whose upper half is the number of threads in the cell, and
/// whose lower half is the epoch of their window.
const ONE: u64 = 1 << 32;

/// A thread's entry to a shared cell, from [`Cell::enter_shared`]. Dropping this leaves the cell.
#[derive(Debug)]
pub struct Entered<'a> {
    cell: &'a Cell,
    /// Epoch of the window that the thread has entered.
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
        // The cell may have been cleared without waiting for this thread. Its count of threads then
        // started at 0 again, so this thread must not be subtracted.
        let less = |word: u64| (word as u32 == self.epoch && word >= ONE).then(|| word - ONE);
        let entered = self.cell.shared_words().entered;
        let mut found = entered.load(Relaxed);
        while let Some(left) = less(found) {
            let success = ord!("shared-left", Release);
            match entered.compare_exchange_weak(found, left, success, Relaxed) {
                Ok(_) => break,
                Err(other) => found = other,
            }
        }
    }
}

impl Cell {
    /// Enters the cell. Until the result is dropped, another thread clears the cell only if that
    /// thread has stopped waiting for this one. `None` if the cell is being cleared, or was cleared
    /// just now.
    pub fn enter_shared(&self) -> Option<Entered<'_>> {
        let epoch = self.shared_control().epoch();
        let found = self.shared_words().entered.fetch_add(ONE, Relaxed) as u32;
        // If this window is not the one that the caller saw, dropping `entered` leaves the cell
        // again.
        let entered = Entered { cell: self, epoch: found };
        (found == epoch).then_some(entered)
    }

    /// Records one measurement, while other threads may record, too.
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
            sums.add_away(away);
        }
        // The count is added last, so that no figure lags behind it.
        sums.count = 0;
        sums.add_shared(words.live, words.rare);
        if let Some(bucket) = bucket {
            bucket.fetch_add(1, Relaxed);
        }
        count.fetch_add(1, Relaxed);
    }

    /// Measurements and their exclusive ticks in all windows; `None` if there are none, or if the
    /// writer's version does not count them separately.
    pub(crate) fn ever(&self) -> Option<(u64, u64)> {
        let words = self.shared_words();
        let count = words.ever_count.load(Relaxed);
        (count > 0).then(|| (count, words.ever_exclusive.load(Relaxed)))
    }

    /// Adds the amounts of a measurement, before it is recorded.
    pub fn add_amounts_shared(sums: &SumWords, amounts: &Amounts) {
        amounts::add_shared(sums, amounts);
    }

    /// Chooses which of a point's two shared cells takes the measurements under a control word.
    /// After a reset it calls `restart` with the published cell and the other one, so that
    /// `restart` makes the other cell [follow the word](Self::restart_shared). `restart` returns
    /// false if it leaves that to another thread.
    ///
    /// # Errors
    ///
    /// The index of the cell that is needed and missing, 0 or 1. The caller then prepares a cell
    /// that follows the word.
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
        // A thread that read its control word before a reset must not undo the reset.
        if found != control && found.epoch() == control.epoch() {
            let word = newest.shared_words().control;
            let _ = word.compare_exchange(found.0, control.0, Relaxed, Relaxed);
        }
        Ok(newest)
    }

    /// The published cell of a point's two, and the other cell, if there is one.
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

    /// The control word that a shared cell follows. Pairs with `shared-cleared`.
    fn shared_control(&self) -> Control {
        Control(self.shared_words().control.load(ord!("shared-seen", Acquire)))
    }

    /// Clears the cell, whose window has passed, and makes it follow a control word. False if a
    /// thread has entered the cell and is still `waited_for`, or enters or leaves it just now. The
    /// caller ensures that no other thread clears a cell of the point at the same time. `clear`
    /// sets a chunk to zeros.
    ///
    /// Another thread may have been faster. Then nothing is cleared: either this cell is published
    /// already (true), or `published` follows a newer word (false). A published cell is never
    /// cleared, because threads must always find a cell to enter, and cannot enter a cell that is
    /// being cleared.
    pub fn restart_shared(
        &self,
        published: &Self,
        control: Control,
        waited_for: bool,
        mut clear: impl FnMut(u32),
    ) -> bool {
        let newest = published.shared_control().epoch();
        if is_newer(self.shared_control().epoch(), newest) {
            return true;
        }
        if !is_newer(control.epoch(), newest) {
            return false;
        }
        let words = self.shared_words();
        let epoch = u64::from(control.epoch());
        let found = words.entered.load(Relaxed);
        let success = ord!("shared-empty", Acquire);
        if waited_for && found >= ONE
            || words.entered.compare_exchange(found, epoch, success, Relaxed).is_err()
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
