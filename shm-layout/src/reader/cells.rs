//! The cells of a picture: what is kept of each, and when it is read again.

use std::mem::offset_of;

use super::histogram::{Histogram, Near, ReadLines, ReadParts};
use super::marks::{Mark, Owner, is_current, steering};
use super::pending::Pending;
use super::{MAX_BLOCKS, Picture, Sparse, TRIES};
use crate::layout::amounts::Amounts;
use crate::layout::cell::{Cell, CellPicture, CellRead, Sums};
use crate::layout::control::Control;
use crate::layout::geometry::{BLOCK, CELLS_PER_BLOCK, CHUNK, Geometry};
use crate::layout::lane::Tally;
use crate::layout::ring::Addition;

/// A cell since the last reset of its point.
///
/// What a poll writes of a cell in use lies together in the first lines.
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
    /// Measurements since the process began, whatever was reset.
    pub lifetime_count: u64,
    /// Exclusive ticks since the process began, whatever was reset.
    pub lifetime_exclusive: u64,
    /// Measurements that the cell has settled.
    settled_count: u64,
    /// Measurements by bucket, of `live` and `retired` together. It is read
    /// beside the sums: of a cell in use it may be ahead of them by the
    /// measurements that ended in between, and is never behind.
    pub histogram: Histogram,
    /// Figures of owners before.
    pub retired: Sums,
    /// Sums of amounts of the lane's owner, where the cell has them.
    pub live_amounts: Amounts,
    /// The same of owners before.
    pub retired_amounts: Amounts,
    /// It is a part of the reading of the point that its point is a variant of.
    pub is_part: bool,
    /// Of what is the sum of the point's variants: their places in the picture.
    pub variants: Vec<u32>,
}

/// Bytes of a reading that a poll writes of a cell in use.
pub(super) const IN_USE: usize = offset_of!(CellReading, histogram) + offset_of!(Histogram, added);
const _: () = assert!(IN_USE <= 192, "three lines");

/// Where a cell is read from.
pub(super) struct From<'a> {
    pub(super) lane: u32,
    pub(super) owner: Owner,
    /// Measurements and exclusive ticks that another cell has counted before this one.
    pub(super) before: (u64, u64),
    /// The lane's records that may not be in its cells.
    pub(super) pending: &'a Pending,
    /// Where these are counted; none where there are none.
    pub(super) tally: Option<&'a Tally>,
}

/// Reads cells into a picture.
#[derive(Debug)]
pub(super) struct CellReader {
    /// Histogram parts that may still be held. A chunk is one cell's; a damaged
    /// segment may name one again and again.
    parts_left: usize,
    /// Readings that may still be added. A damaged chain may lead elsewhere at
    /// every poll.
    cells_left: usize,
    /// What is read comes here first, and counts only once it is whole.
    copy: CellPicture,
    parts: ReadParts,
    lines: ReadLines,
    /// Exclusive ticks of a measurement that is staged, in no record, and may be in `parts`.
    beside: Option<u64>,
}

impl CellReader {
    /// For a segment of this size.
    pub(super) fn new(geometry: &Geometry) -> Self {
        let blocks = geometry.blocks_present().min(MAX_BLOCKS);
        Self {
            parts_left: blocks * (BLOCK / CHUNK),
            cells_left: blocks * CELLS_PER_BLOCK + geometry.points(),
            copy: CellPicture::default(),
            parts: ReadParts::default(),
            lines: ReadLines::default(),
            beside: None,
        }
    }

    /// Reads a cell, and adds the records that it lacks; false if it could not be copied
    /// whole, which leaves what was known.
    pub(super) fn read(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From<'_>,
        mark: &mut Mark,
        picture: &mut Picture,
    ) -> bool {
        self.read_on(segment, cell, from, mark, picture)
            || self.read_anew(segment, cell, from, mark, picture)
    }

    /// Reads what measurements alone have changed since the last time; false if
    /// anything else has, or the cell is written to.
    fn read_on(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From<'_>,
        mark: &mut Mark,
        picture: &mut Picture,
    ) -> bool {
        let known = mark.place.filter(|_| mark.current).map(|place| place as usize);
        let Some(reading) = known.map(|place| &mut picture.cells[place]) else { return false };
        let Some(window) = reading.histogram.window else { return false };
        let find = |chunk| segment.sums(chunk);
        let Some((sequence, live, records, amounts)) = cell.read_live(window, find) else {
            return false;
        };
        let measured = live.count.wrapping_add(reading.settled_count);
        let what = (measured, live.last);
        if !self.lines.read_on(segment, cell, &reading.histogram, what, &mut mark.near)
            || !cell.is_still(sequence)
            || is_current(segment, mark.steered_by, mark.epoch) != Some(true)
        {
            return false;
        }
        mark.sequence = sequence;
        if cell.amounts() != 0 {
            reading.live_amounts = amounts.live;
        }
        let held = reading.histogram.parts();
        if mark.added {
            reading.histogram.take_out();
        }
        reading.histogram.take_lines(&self.lines.0, measured);
        let (count, exclusive) = (reading.live.count, reading.live.exclusive);
        reading.live = live;
        mark.added = reading.add(from.pending.of(cell.point()), records, cell.control(), true);
        reading.live.bound_minimum();
        let more = (reading.live.count, reading.live.exclusive);
        let sum = |before: u64, less: u64, more: u64| before.wrapping_sub(less).wrapping_add(more);
        reading.lifetime_count = sum(reading.lifetime_count, count, more.0);
        reading.lifetime_exclusive = sum(reading.lifetime_exclusive, exclusive, more.1);
        reading.changed = picture.poll;
        self.account(held, reading);
        true
    }

    fn read_anew(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From<'_>,
        mark: &mut Mark,
        picture: &mut Picture,
    ) -> bool {
        if mark.place.is_none() && self.cells_left == 0 {
            return false;
        }
        let known = mark.place.map(|place| &picture.cells[place as usize]);
        let held = known.map_or(0, |reading| reading.histogram.parts());
        let most = self.parts_left + held;
        let Some(sequence) = self.copy(segment, cell, from, most) else { return false };
        let copy = &self.copy;
        let steered_by = steering(segment, copy.point);
        let Some(current) = is_current(segment, steered_by, copy.epoch) else { return true };
        let (point, epoch, owner) = (copy.point, copy.epoch, from.owner);
        let place = mark.place.unwrap_or(picture.cells.len() as u32);
        if place as usize == picture.cells.len() {
            picture.cells.push(CellReading::blank());
            self.cells_left -= 1;
        }
        let (near, added) = (Near::default(), false);
        *mark = Mark { sequence, steered_by, epoch, current, added, place: Some(place), near };
        let reading = &mut picture.cells[place as usize];
        (reading.lane, reading.point) = (from.lane, point);
        if current {
            let is_at_rest = !copy.staged && owner != Owner::All && owner.owns(copy);
            reading.histogram.take(&self.parts, is_at_rest.then_some(copy.restarts));
            let folded = copy.live.count.wrapping_add(copy.settled.count);
            reading.histogram.drop_beside(self.beside, folded);
        } else {
            reading.histogram.clear();
        }
        let mut past = (copy.past_count, copy.past_exclusive);
        if let Some((count, exclusive)) = (owner == Owner::All).then(|| cell.ever()).flatten() {
            // Sums over all windows have words of their own.
            past.0 = count.wrapping_sub(copy.live.count);
            past.1 = exclusive.wrapping_sub(copy.live.exclusive);
        }
        past.0 = past.0.wrapping_add(from.before.0);
        past.1 = past.1.wrapping_add(from.before.1);
        reading.changed = picture.poll;
        reading.live.clone_from(&copy.live);
        reading.settled_count = copy.settled.count;
        mark.added = reading.add(from.pending.of(point), copy.folded, cell.control(), current);
        reading.take(copy, past, owner.owns(copy), current);
        self.account(held, &picture.cells[place as usize]);
        true
    }

    /// Keeps count of the parts that are held.
    fn account(&mut self, before: usize, reading: &CellReading) {
        let held = reading.histogram.parts();
        // What was added may be in no chunk.
        self.parts_left = (self.parts_left + before).saturating_sub(held);
    }

    /// Copies a cell and its histogram, of at most so many parts; returns the
    /// sequence word that goes with the copy. None if it could not be had.
    fn copy(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From<'_>,
        most: usize,
    ) -> Option<u64> {
        let mut found = None;
        self.beside = None;
        for _ in 0..TRIES {
            let sequence = cell.sequence();
            if cell.read_with(&mut self.copy, |chunk| segment.sums(chunk)) == CellRead::Torn {
                std::hint::spin_loop();
                continue;
            }
            self.parts.read_all(segment, &self.copy, most);
            if cell.restarted_since(self.copy.restarts) {
                continue;
            }
            // Many threads at once add to a shared cell.
            if from.owner == Owner::All {
                return Some(Mark::NEVER);
            }
            if !self.copy.staged && cell.is_still(sequence) {
                return Some(sequence);
            }
            // It has some of what is staged, for good where the thread is dead. At one moment
            // these are the first ones.
            found = Some(Mark::NEVER);
            let beside = cell.staged_beside();
            if self.parts.are_still(segment, &self.copy) {
                let is_beside = from.pending.is_all_folded(from.tally) && cell.is_still(sequence);
                self.beside = is_beside.then_some(beside);
                break;
            }
        }
        found
    }
}

impl CellReading {
    fn blank() -> Self {
        Self {
            changed: 0,
            lane: 0,
            point: 0,
            live: Sums::default(),
            lifetime_count: 0,
            lifetime_exclusive: 0,
            settled_count: 0,
            histogram: Histogram::default(),
            retired: Sums::default(),
            live_amounts: Amounts::default(),
            retired_amounts: Amounts::default(),
            is_part: false,
            variants: Vec::new(),
        }
    }

    /// The figures and sums of amounts of all who have owned the lane.
    #[must_use]
    pub fn all_owners(&self) -> (Sums, Amounts) {
        let sums = [&self.retired, &self.live];
        let mut amounts = self.retired_amounts;
        for (sum, more) in amounts.iter_mut().zip(self.live_amounts) {
            *sum = sum.saturating_add(more);
        }
        (together(sums.into_iter()), amounts)
    }

    /// The sum of a point's variants on a lane, of none so far.
    pub(super) fn sum(lane: u32, point: u32) -> Self {
        Self { lane, point, ..Self::blank() }
    }

    /// Sums the variants anew, if one has changed in this poll.
    pub(super) fn sum_up(place: usize, picture: &mut Picture) {
        let cells = &mut picture.cells;
        let is_new = |part: &u32| cells[*part as usize].changed == picture.poll;
        if !cells[place].variants.iter().any(is_new) {
            return;
        }
        let mut sum = std::mem::replace(&mut cells[place], Self::blank());
        let places = std::mem::take(&mut sum.variants);
        sum.changed = picture.poll;
        (sum.lifetime_count, sum.lifetime_exclusive) = (0, 0);
        sum.histogram.clear();
        for &part in &places {
            let part = &cells[part as usize];
            sum.lifetime_count = sum.lifetime_count.saturating_add(part.lifetime_count);
            sum.lifetime_exclusive = sum.lifetime_exclusive.saturating_add(part.lifetime_exclusive);
            sum.histogram.add(&part.histogram);
        }
        let parts = || places.iter().map(|&part| &cells[part as usize]);
        sum.live = together(parts().map(|part| &part.live));
        sum.retired = together(parts().map(|part| &part.retired));
        sum.variants = places;
        cells[place] = sum;
    }

    /// What a copy of the cell says about its point, beside the live figures, which are there.
    /// These are `owned` by the thread that has the lane now. `past` are measurements and
    /// exclusive ticks in windows that a reset has ended, and in another cell.
    fn take(&mut self, cell: &CellPicture, past: (u64, u64), owned: bool, current: bool) {
        let settled = &cell.settled;
        let sum =
            |past: u64, settled: u64, live: u64| past.wrapping_add(settled).wrapping_add(live);
        self.lifetime_count = sum(past.0, settled.count, self.live.count);
        self.lifetime_exclusive = sum(past.1, settled.exclusive, self.live.exclusive);
        (self.live_amounts, self.retired_amounts) = Default::default();
        if !current {
            (self.live, self.retired) = (Sums::default(), Sums::default());
            return;
        }
        self.retired.clone_from(settled);
        self.retired.bound_minimum();
        self.live.bound_minimum();
        self.retired_amounts = cell.amounts.settled;
        if owned {
            self.live_amounts = cell.amounts.live;
            return;
        }
        // The thread has ended; its figures stay.
        let live = std::mem::take(&mut self.live);
        self.retired.merge(&live);
        self.retired.last = live.last;
        self.retired.average_fixed = live.average_fixed;
        for (sum, more) in self.retired_amounts.iter_mut().zip(cell.amounts.live) {
            *sum = sum.saturating_add(more);
        }
    }

    /// Adds the records of these that the cell lacks, which holds those below number `records`,
    /// to what it held. Whether there were any.
    #[inline]
    fn add(
        &mut self,
        pending: &[(u64, Addition)],
        records: u64,
        control: Control,
        current: bool,
    ) -> bool {
        if pending.is_empty() {
            return false;
        }
        let lacks = pending.partition_point(|(number, _)| *number < records);
        let pending = &pending[lacks..];
        // Of a fold that was cut off some may be in the histogram, the first ones.
        let folded = self.live.count.wrapping_add(self.settled_count);
        let is_counted = self.histogram.counted.saturating_sub(folded);
        for (place, (_, addition)) in pending.iter().enumerate() {
            self.live.add(control, addition.exclusive, addition.inclusive);
            if current && place as u64 >= is_counted {
                self.histogram.put_in(addition.exclusive);
            }
        }
        !pending.is_empty()
    }
}

/// Sums of several variants. The last measurement and the average are told of each
/// one only: the first is that of the variant with most measurements, the other the
/// mean of theirs, weighted by their counts.
fn together<'a>(parts: impl Iterator<Item = &'a Sums>) -> Sums {
    let mut sum = Sums::default();
    let (mut most, mut weighted) = (0, 0_u128);
    for part in parts.filter(|part| part.count > 0) {
        sum.merge(part);
        weighted = weighted
            .saturating_add(u128::from(part.average_fixed).saturating_mul(part.count.into()));
        if part.count >= most {
            (most, sum.last) = (part.count, part.last);
        }
    }
    sum.average_fixed = (weighted / u128::from(sum.count.max(1))) as u64;
    sum
}
