//! The other way to write a cell: by many threads, with atomic additions.
//!
//! Threads that found no lane share the overflow lane's cells. Every sum is
//! exact; a reader may see the sums of a measurement that is being added one
//! after the other, so a picture of such a cell is never torn but may be ahead
//! in one sum by the measurements in progress. All orderings are relaxed: each
//! word stands for itself.
//!
//! **What there ever was**, over all resets, has words of its own, to which every
//! measurement is added first and which nobody takes from. A reset moves what the
//! window had to what is past in two steps, and between them it is in neither: a
//! process killed there would have lost it, if the total were the sum of the two.
//! The past is kept all the same, for readers of layout 1.1, whose writers had no
//! other.

use crate::amounts::{self, Amounts, SumWords};
use crate::cell::{AVERAGE_FRACTION_BITS, Cell, Measurement};
use crate::control::{ALPHA_BITS, Control, is_newer};
use crate::sync::{AtomicU64, Ordering::Relaxed};

impl Cell {
    /// Records one measurement, whoever else records at the same time.
    /// `measured.inclusive_total` is what to *add* to the inclusive ticks.
    pub fn record_shared(&self, measured: Measurement, bucket: Option<&AtomicU64>) {
        let words = self.shared_words();
        let own = measured.exclusive;
        words.ever_count.fetch_add(1, Relaxed);
        words.ever_exclusive.fetch_add(own, Relaxed);
        words.exclusive.fetch_add(own, Relaxed);
        words.inclusive.fetch_add(measured.inclusive_total, Relaxed);
        if let Some(away) = measured.away {
            words.off_cpu.fetch_add(away.off_cpu, Relaxed);
            words.switches.fetch_add(away.switches, Relaxed);
        }
        words.last.store(own, Relaxed);
        words.min.fetch_min(own, Relaxed);
        words.max.fetch_max(own, Relaxed);
        let square = u128::from(own) * u128::from(own);
        let low = words.squares_low.fetch_add(square as u64, Relaxed);
        let carry = u64::from(low.checked_add(square as u64).is_none());
        words.squares_high.fetch_add((square >> 64) as u64 + carry, Relaxed);

        let alpha = i64::from(self.control().alpha_fixed());
        if alpha != 0 {
            // Another process may have written more than 1.
            let alpha = alpha.min(1 << ALPHA_BITS);
            let first = words.count.load(Relaxed) == 0;
            let value = (own << AVERAGE_FRACTION_BITS) as i64;
            let mut average = words.average.load(Relaxed);
            loop {
                let start = if first { value } else { average as i64 };
                let step = (i128::from(value - start) * i128::from(alpha)) >> ALPHA_BITS;
                let next = (start + step as i64) as u64;
                match words.average.compare_exchange_weak(average, next, Relaxed, Relaxed) {
                    Ok(_) => break,
                    Err(found) => average = found,
                }
            }
        }
        if let Some(bucket) = bucket {
            bucket.fetch_add(1, Relaxed);
        }
        words.count.fetch_add(1, Relaxed);
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

    /// Follows a new control word. One thread does, the others go on adding;
    /// what they add in the meantime belongs to the window before or after, and
    /// is in exactly one of them.
    pub fn follow_shared(&self, control: Control, mut clear: impl FnMut(u32)) {
        let words = self.shared_words();
        let mut before = self.control();
        while before != control {
            // A thread that read its control word before a reset that the cell
            // has followed already must not take it back to the window before.
            if is_newer(before.epoch(), control.epoch()) {
                return;
            }
            match words.control.compare_exchange(before.0, control.0, Relaxed, Relaxed) {
                Ok(_) => break,
                // It may have been put to an older word than ours.
                Err(found) => before = Control(found),
            }
        }
        if before.epoch() == control.epoch() {
            return;
        }
        let count = words.count.swap(0, Relaxed);
        let exclusive = words.exclusive.swap(0, Relaxed);
        words.past_count.fetch_add(count, Relaxed);
        words.past_exclusive.fetch_add(exclusive, Relaxed);
        for word in [
            words.inclusive,
            words.off_cpu,
            words.switches,
            words.squares_low,
            words.squares_high,
            words.last,
            words.average,
            words.max,
        ] {
            word.store(0, Relaxed);
        }
        words.min.store(u64::MAX, Relaxed);
        self.for_each_part(&mut clear);
        if self.amounts() != 0 {
            clear(self.amounts());
        }
        // Only forwards: of two threads that follow two resets, the one with the
        // older may come last, and readers show nothing of an older epoch.
        let _ = words.epoch.fetch_update(Relaxed, Relaxed, |epoch| {
            is_newer(control.epoch(), epoch as u32).then_some(u64::from(control.epoch()))
        });
    }
}
