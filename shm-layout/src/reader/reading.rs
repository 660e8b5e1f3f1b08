//! A reading: the figures of a cell, as plain data.

use std::mem::offset_of;

use super::histogram::Histogram;
use crate::heap::NoMemory;
use crate::layout::allocs::{AllocSums, HeapSamples};
use crate::layout::amounts::Amounts;
use crate::layout::cell::{CellPicture, Sums};
use crate::layout::control::Control;
use crate::layout::ring::Addition;

/// The figures of a cell since the last reset of its point.
///
/// The fields are in this order so that most polls of a cell write only the first cache lines of
/// its reading.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct CellReading {
    /// Number of the poll that changed this reading last.
    pub changed: u64,
    /// Number of the lane.
    pub lane: u32,
    /// Number of the point.
    pub point: u32,
    /// Figures of the lane's owner.
    pub live: Sums,
    /// Measurements since the process began, including those before resets.
    pub lifetime_count: u64,
    /// Exclusive ticks since the process began, including those before resets.
    pub lifetime_exclusive: u64,
    /// Measurements that the cell has retired.
    pub(super) retired_count: u64,
    /// Measurements by bucket, of `live` and `retired` together. The histogram is read after the
    /// sums. If the cell is in use, the histogram may include measurements that ended in between;
    /// it never lacks any.
    pub histogram: Histogram,
    /// Figures of earlier owners.
    pub retired: Sums,
    /// Sums of amounts of the lane's owner; zeros if the cell has none.
    pub live_amounts: Amounts,
    /// Sums of amounts of earlier owners.
    pub retired_amounts: Amounts,
    /// What the regions have allocated, on this lane; zeros if they count no allocations.
    pub allocs: AllocSums,
    /// The estimates by samples of these allocations.
    pub heap: HeapSamples,
    /// Whether this reading is a part of a metered point's sum: the reading of a tuple's cell, or
    /// of the point's own cell.
    pub is_part: bool,
    /// If this reading is a metered point's sum: the indexes of its parts in the picture.
    pub parts: Vec<u32>,
}

/// Number of bytes at the start of a reading that are written when a cell in use is polled.
pub(super) const IN_USE: usize = offset_of!(CellReading, histogram) + offset_of!(Histogram, added);
const _: () = assert!(IN_USE <= 192, "three lines");

impl CellReading {
    pub(super) fn blank() -> Self {
        Self {
            changed: 0,
            lane: 0,
            point: 0,
            live: Sums::default(),
            lifetime_count: 0,
            lifetime_exclusive: 0,
            retired_count: 0,
            histogram: Histogram::default(),
            retired: Sums::default(),
            live_amounts: Amounts::default(),
            retired_amounts: Amounts::default(),
            allocs: AllocSums::default(),
            heap: HeapSamples::default(),
            is_part: false,
            parts: Vec::new(),
        }
    }

    /// Whether the cell has measurements, or allocations of a region that is still open.
    #[must_use]
    pub fn has_figures(&self) -> bool {
        self.live.count > 0 || self.retired.count > 0 || self.allocs.is_any() || self.heap.is_any()
    }

    /// The figures and sums of amounts of all owners of the lane.
    #[must_use]
    pub fn all_owners(&self) -> (Sums, Amounts) {
        let mut amounts = self.retired_amounts;
        for (sum, more) in amounts.iter_mut().zip(self.live_amounts) {
            *sum = sum.saturating_add(more);
        }
        ([&self.retired, &self.live].into_iter().sum(), amounts)
    }

    /// The sum of a metered point's parts on a lane, initially without parts.
    pub(super) fn sum(lane: u32, point: u32) -> Self {
        Self { lane, point, ..Self::blank() }
    }

    /// Sums the parts anew, if one has changed in that poll.
    pub(super) fn sum_up(place: usize, cells: &mut [Self], poll: u64) -> Result<(), NoMemory> {
        let is_new = |part: &u32| cells[*part as usize].changed == poll;
        if !cells[place].parts.iter().any(is_new) {
            return Ok(());
        }
        let mut sum = std::mem::replace(&mut cells[place], Self::blank());
        let places = std::mem::take(&mut sum.parts);
        sum.changed = poll;
        (sum.lifetime_count, sum.lifetime_exclusive) = (0, 0);
        sum.histogram.clear();
        for &part in &places {
            let part = &cells[part as usize];
            sum.lifetime_count = sum.lifetime_count.saturating_add(part.lifetime_count);
            sum.lifetime_exclusive = sum.lifetime_exclusive.saturating_add(part.lifetime_exclusive);
            sum.histogram.add(&part.histogram)?;
        }
        let parts = || places.iter().map(|&part| &cells[part as usize]);
        sum.live = parts().map(|part| &part.live).sum();
        sum.retired = parts().map(|part| &part.retired).sum();
        sum.allocs = parts().fold(AllocSums::default(), |sum, part| sum.plus(&part.allocs));
        sum.heap = parts().fold(HeapSamples::default(), |sum, part| sum.plus(&part.heap));
        sum.parts = places;
        cells[place] = sum;
        Ok(())
    }

    /// Takes all figures except the live ones, which are here already, from a copy of the cell.
    /// `past` are the lifetime's measurements and exclusive ticks besides those in the live and
    /// retired figures. `owned`: the live figures belong to the lane's present owner. `current`:
    /// the figures belong to the point's current window.
    pub(super) fn take(
        &mut self,
        cell: &CellPicture,
        past: (u64, u64),
        owned: bool,
        current: bool,
    ) {
        let retired = &cell.retired;
        let sum =
            |past: u64, retired: u64, live: u64| past.wrapping_add(retired).wrapping_add(live);
        self.lifetime_count = sum(past.0, retired.count, self.live.count);
        self.lifetime_exclusive = sum(past.1, retired.exclusive, self.live.exclusive);
        (self.live_amounts, self.retired_amounts) = Default::default();
        if !current {
            (self.live, self.retired) = (Sums::default(), Sums::default());
            return;
        }
        self.retired.clone_from(retired);
        self.retired.bound_minimum();
        self.live.bound_minimum();
        self.retired_amounts = cell.amounts.retired;
        if owned {
            self.live_amounts = cell.amounts.live;
            return;
        }
        // The thread of the live figures has ended, so its figures count as retired.
        let live = std::mem::take(&mut self.live);
        self.retired.append(&live);
        for (sum, more) in self.retired_amounts.iter_mut().zip(cell.amounts.live) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Adds the `pending` records from number `records` on, which the cell lacks. Returns whether
    /// any records were pending.
    #[inline]
    pub(super) fn add(
        &mut self,
        pending: &[(u64, Addition)],
        records: u64,
        control: Control,
        current: bool,
    ) -> Result<bool, NoMemory> {
        if pending.is_empty() {
            return Ok(false);
        }
        let lacks = pending.partition_point(|(number, _)| *number < records);
        let pending = &pending[lacks..];
        // The first records of an interrupted fold may be in the histogram already.
        let folded = self.live.count.wrapping_add(self.retired_count);
        let is_counted = self.histogram.counted.saturating_sub(folded);
        for (place, (_, addition)) in pending.iter().enumerate() {
            self.live.add(control, addition.exclusive, addition.inclusive);
            if current && place as u64 >= is_counted {
                self.histogram.put_in(addition.exclusive)?;
            }
        }
        Ok(!pending.is_empty())
    }
}
