//! Records that an end does not simply append: the first of a page, and those that no slot can
//! hold.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::{Amounts, MAX_AMOUNTS};
use pfp_shm_layout::calls::CallSums;
use pfp_shm_layout::cell::{CountedBucket, Measurement};
use pfp_shm_layout::geometry::{PAGE, RING_SLOTS};
use pfp_shm_layout::ring::What;

use super::ring::{SLOTS_PER_PAGE, begins_page};
use super::{Entry, Thread};
use crate::engine::fold;
use crate::engine::process::{self, Process};

impl Thread {
    /// Folds the records, and backs the page of the next record, which is the first of its page;
    /// false if memory runs out.
    #[inline(never)]
    pub(in crate::engine) fn turn_page(&self) -> bool {
        let turned = self.busy(|| {
            fold::fold(self);
            self.back_page(self.written())
        });
        turned == Some(true)
    }

    /// Records a measurement that no record of the ring can hold: its region was off the CPU, has
    /// amounts, or is long. It is added to the cell, after the records of the ring, and written to
    /// the ring for the flight recorder. `start`, `elapsed` and `what` are the begin of the region,
    /// the ticks until its end, and the other words of the record.
    #[inline(never)]
    pub(in crate::engine) fn record_counted(
        &self,
        entry: &Entry,
        measured: Measurement,
        (start, elapsed, what): (u64, u64, What),
        amounts: Option<&Amounts>,
    ) {
        fold::fold(self);
        let Some(cell) = entry.cell() else { return };
        let off_cpu = measured.away.map_or(0, |away| away.off_cpu);
        let kept_cpu = off_cpu == 0;
        let exclusive = measured.exclusive;
        let credible = match kept_cpu {
            true => exclusive,
            false => cell.credible(exclusive, self.clock.error(off_cpu)),
        };
        let bucket = self.bucket_for(cell, credible).map(CountedBucket::new);
        // If a cell has sums of amounts, each record copies them, even the record of a region
        // without amounts.
        let sums = self.sums(cell).map(|sums| (sums, amounts.unwrap_or(&[0; MAX_AMOUNTS])));
        let (staged, written) = (cell.staged(), self.written());
        // Checked as late as possible: a child that a signal handler forks before this check writes
        // nothing, and a child that is forked later writes the same words as its parent.
        if !self.is_still_alive() {
            return;
        }
        cell.record_as(staged, measured, (credible, kept_cpu), bucket, sums, written);
        self.count_call(entry, what, measured, written);
        if begins_page(written) && !self.back_page(written) {
            return self.count(|counters| &counters.unrecorded);
        }
        self.slot(written).fill_counted(start, elapsed, exclusive, what);
        self.counters().written.publish(written.wrapping_add(1));
        // The new record counts as folded, because its measurement is in the cell already.
        fold::announce(self, written.wrapping_add(1));
    }

    /// Adds a measurement, which its cell has already, to its edge.
    fn count_call(&self, entry: &Entry, what: What, measured: Measurement, folded: u64) {
        let Measurement { exclusive, inclusive, .. } = measured;
        let one = CallSums { count: 1, exclusive, inclusive };
        self.add_call(entry, what.names, one, folded);
    }

    /// Backs the page of a record, if it is not backed; false if memory runs out.
    fn back_page(&self, number: u64) -> bool {
        let page = number as usize % RING_SLOTS / SLOTS_PER_PAGE;
        let backed = self.ring_backed.load(Relaxed);
        if backed & 1 << page != 0 {
            return true;
        }
        self.back_pages(page, 1)
    }

    /// Backs the whole ring, so that records make no system call for memory.
    pub(super) fn back_ring(&self) {
        if !self.ring.load(Relaxed).is_null() {
            self.back_pages(0, RING_SLOTS / SLOTS_PER_PAGE);
        }
    }

    /// Backs pages of the ring; false if memory runs out.
    fn back_pages(&self, first: usize, count: usize) -> bool {
        let ring = self.ring.load(Relaxed).addr() - self.segment.load(Relaxed).addr();
        let back = |process: &Process| process.back(ring + first * PAGE, count * PAGE);
        let is_backed = process::current().and_then(back).is_some();
        if is_backed {
            self.ring_backed.fetch_or(((1 << count) - 1) << first, Relaxed);
        }
        is_backed
    }
}
