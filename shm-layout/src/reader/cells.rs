//! The cells of a picture: which values the reader stores for each cell, and when it reads a cell
//! again.

use super::backed::Sparse;
use super::bounds::{COPY_ATTEMPTS, MAX_BLOCKS};
use super::histogram::{Near, ReadLines, ReadParts};
use super::keys::{CacheKey, Owner, is_current, steering};
use super::pending::Pending;
use super::picture::Picture;
use super::reading::CellReading;
use crate::heap::{Grow, NoMemory};
use crate::layout::allocs::AllocSums;
use crate::layout::cell::{Cell, CellPicture, CellRead};
use crate::layout::geometry::{BLOCK, CELLS_PER_BLOCK, CHUNK, Geometry};
use crate::layout::lane::LaneCounters;

/// The cell to read, and the state of its lane.
pub(super) struct CellOrigin<'a> {
    pub(super) lane: u32,
    pub(super) owner: Owner,
    /// Measurements and exclusive ticks in the other cell of a point on the overflow lane; zeros
    /// for a cell of another lane.
    pub(super) before: (u64, u64),
    /// The lane's records that may be missing in its cells.
    pub(super) pending: &'a Pending,
    /// The counters of the lane to which the pending records belong. `None` if no records are
    /// pending.
    pub(super) counters: Option<&'a LaneCounters>,
}

/// Reads cells into a picture.
#[derive(Debug)]
pub(super) struct CellReader {
    /// Number of histogram parts that the picture may still grow by. A part belongs to one cell,
    /// but a damaged segment may name the same part many times, so the number is limited.
    parts_left: usize,
    /// Number of readings that the picture may still grow by. A damaged chain may lead to other
    /// cells at every poll, so the number is limited.
    cells_left: usize,
    /// A cell is copied here first. The copy is used only if the cell did not change in the
    /// meantime.
    copy: CellPicture,
    parts: ReadParts,
    lines: ReadLines,
    /// Exclusive ticks of a measurement that is staged and in no record. `parts` may contain it.
    beside: Option<u64>,
}

impl CellReader {
    /// A reader for a segment of this size.
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

    /// Reads a cell, and adds the records that it lacks. If the cell could not be copied whole,
    /// returns false and leaves the known figures unchanged.
    pub(super) fn read(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &CellOrigin<'_>,
        key: &mut CacheKey,
        picture: &mut Picture,
    ) -> Result<bool, NoMemory> {
        let is_read = self.read_on(segment, cell, from, key, picture)?
            || self.read_anew(segment, cell, from, key, picture)?;
        // The allocations are read last: a region adds its allocations before it writes its record.
        if is_read {
            read_allocs(segment, cell, key, picture);
        }
        Ok(is_read)
    }

    /// Reads only the figures that measurements change. False if anything else has changed, or the
    /// cell is being written to.
    fn read_on(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &CellOrigin<'_>,
        key: &mut CacheKey,
        picture: &mut Picture,
    ) -> Result<bool, NoMemory> {
        let known = key.place.filter(|_| key.current).map(|place| place as usize);
        let Some(reading) = known.map(|place| &mut picture.cells[place]) else { return Ok(false) };
        let Some(window) = reading.histogram.window else { return Ok(false) };
        let find = |chunk| segment.sums(chunk);
        let Some((sequence, live, records, amounts)) = cell.read_live(window, find) else {
            return Ok(false);
        };
        let measured = live.count.wrapping_add(reading.retired_count);
        let what = (measured, live.last);
        if !self.lines.read_on(segment, cell, &reading.histogram, what, &mut key.near)?
            || !cell.is_still(sequence)
            || is_current(segment, key.steered_by, key.epoch) != Some(true)
        {
            return Ok(false);
        }
        key.sequence = sequence;
        if cell.amounts() != 0 {
            reading.live_amounts = amounts.live;
        }
        let held = reading.histogram.parts();
        if key.added {
            reading.histogram.take_out();
        }
        reading.histogram.take_lines(&self.lines.0, measured)?;
        let (count, exclusive) = (reading.live.count, reading.live.exclusive);
        reading.live = live;
        let pending = from.pending.of(cell.point());
        key.added = reading.add(pending, records, cell.control(), true)?;
        reading.live.bound_minimum();
        let more = (reading.live.count, reading.live.exclusive);
        let sum = |before: u64, less: u64, more: u64| before.wrapping_sub(less).wrapping_add(more);
        reading.lifetime_count = sum(reading.lifetime_count, count, more.0);
        reading.lifetime_exclusive = sum(reading.lifetime_exclusive, exclusive, more.1);
        reading.changed = picture.poll;
        self.account(held, reading);
        Ok(true)
    }

    fn read_anew(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &CellOrigin<'_>,
        key: &mut CacheKey,
        picture: &mut Picture,
    ) -> Result<bool, NoMemory> {
        if key.place.is_none() && self.cells_left == 0 {
            return Ok(false);
        }
        let known = key.place.map(|place| &picture.cells[place as usize]);
        let held = known.map_or(0, |reading| reading.histogram.parts());
        let most = self.parts_left + held;
        let Some(sequence) = self.copy(segment, cell, from, most)? else { return Ok(false) };
        let copy = &self.copy;
        let steered_by = steering(segment, copy.point);
        let Some(current) = is_current(segment, steered_by, copy.epoch) else { return Ok(true) };
        let (point, epoch, owner) = (copy.point, copy.epoch, from.owner);
        let place = key.place.unwrap_or(picture.cells.len() as u32);
        if place as usize == picture.cells.len() {
            picture.cells.try_push(CellReading::blank())?;
            self.cells_left -= 1;
        }
        let (near, added) = (Near::default(), false);
        *key = CacheKey { sequence, steered_by, epoch, current, added, place: Some(place), near };
        let reading = &mut picture.cells[place as usize];
        (reading.lane, reading.point) = (from.lane, point);
        if current {
            let is_at_rest = !copy.staged && owner != Owner::All && owner.owns(copy);
            reading.histogram.take(&self.parts, is_at_rest.then_some(copy.restarts))?;
            let folded = copy.live.count.wrapping_add(copy.retired.count);
            reading.histogram.drop_beside(self.beside, folded);
        } else {
            reading.histogram.clear();
        }
        let mut past = (copy.past_count, copy.past_exclusive);
        if let Some((count, exclusive)) = (owner == Owner::All).then(|| cell.ever()).flatten() {
            // The cell has separate words for sums over all windows.
            past.0 = count.wrapping_sub(copy.live.count);
            past.1 = exclusive.wrapping_sub(copy.live.exclusive);
        }
        past.0 = past.0.wrapping_add(from.before.0);
        past.1 = past.1.wrapping_add(from.before.1);
        reading.changed = picture.poll;
        reading.live.clone_from(&copy.live);
        reading.retired_count = copy.retired.count;
        key.added = reading.add(from.pending.of(point), copy.folded, cell.control(), current)?;
        reading.take(copy, past, owner.owns(copy), current);
        self.account(held, &picture.cells[place as usize]);
        Ok(true)
    }

    /// Updates `parts_left` for a reading that had `before` parts.
    fn account(&mut self, before: usize, reading: &CellReading) {
        let held = reading.histogram.parts();
        // Saturating, because added records may have made parts that have no chunk.
        self.parts_left = (self.parts_left + before).saturating_sub(held);
    }

    /// Copies a cell and at most `most` parts of its histogram. Returns the sequence word of the
    /// copy, or `None` if every attempt failed.
    fn copy(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &CellOrigin<'_>,
        most: usize,
    ) -> Result<Option<u64>, NoMemory> {
        let mut found = None;
        self.beside = None;
        for _ in 0..COPY_ATTEMPTS {
            let sequence = cell.sequence();
            if cell.read_with(&mut self.copy, |chunk| segment.sums(chunk)) == CellRead::Torn {
                std::hint::spin_loop();
                continue;
            }
            self.parts.read_all(segment, &self.copy, most)?;
            if cell.restarted_since(self.copy.restarts) {
                continue;
            }
            // Many threads add to a shared cell at once, so its sequence word does not show whether
            // the copy is whole.
            if from.owner == Owner::All {
                return Ok(Some(CacheKey::NEVER));
            }
            if !self.copy.staged && cell.is_still(sequence) {
                return Ok(Some(sequence));
            }
            // The cell is in the middle of a change, forever if the thread is dead, and its
            // histogram contains some of the staged records. If all parts are of one moment, these
            // are the first staged records.
            found = Some(CacheKey::NEVER);
            let beside = cell.staged_beside();
            if self.parts.are_still(segment, &self.copy) {
                let is_beside =
                    from.pending.is_all_folded(from.counters) && cell.is_still(sequence);
                self.beside = is_beside.then_some(beside);
                break;
            }
        }
        Ok(found)
    }
}

/// Reads what the regions of a cell have allocated in the point's current window. If the writer
/// publishes new sums at each attempt, the known ones stay.
pub(super) fn read_allocs(segment: Sparse<'_>, cell: &Cell, key: &CacheKey, picture: &mut Picture) {
    let chunk = cell.allocs_to_read();
    let Some(place) = key.place.filter(|_| chunk != 0) else { return };
    let Some(words) = segment.allocs(chunk) else { return };
    let Some((epoch, sums)) = (0..COPY_ATTEMPTS).find_map(|_| words.read()) else { return };
    let is_current = |epoch| is_current(segment, key.steered_by, epoch) == Some(true);
    let allocs = if is_current(epoch) { sums } else { AllocSums::default() };
    let heap = words.samples(is_current);
    let reading = &mut picture.cells[place as usize];
    if (reading.allocs, reading.heap) != (allocs, heap) {
        (reading.allocs, reading.heap, reading.changed) = (allocs, heap, picture.poll);
    }
}
