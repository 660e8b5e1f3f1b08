//! The cells of a picture: what is kept of each, and when it is read again.

use super::{MAX_BLOCKS, Picture, Sparse, TRIES};
use crate::amounts::Amounts;
use crate::cell::{Cell, CellPicture, CellRead, Sums};
use crate::control::Control;
use crate::histogram::{self, BUCKETS, PARTS};
use crate::lane::LaneState;
use crate::segment::{BLOCK, CELLS_PER_BLOCK, CHUNK, Geometry};
use crate::sync::Ordering;

/// A cell since the last reset of its point.
#[derive(Clone, Debug)]
pub struct CellReading {
    /// Number of the poll that changed this reading last.
    pub changed: u64,
    /// Number of the lane.
    pub lane: u32,
    /// Number of the point.
    pub point: u32,
    /// Figures of the lane's owner.
    pub live: Sums,
    /// Figures of owners before.
    pub retired: Sums,
    /// Measurements since the process began, whatever was reset.
    pub lifetime_count: u64,
    /// Exclusive ticks since the process began, whatever was reset.
    pub lifetime_exclusive: u64,
    /// The process died in the middle of a change: the sums may hold a part of
    /// a measurement that the count does not.
    pub in_flight: bool,
    /// Measurements by bucket, of `live` and `retired` together. It is read
    /// beside the sums: of a cell in use it may be ahead of them by the
    /// measurements that ended in between, and is never behind.
    pub histogram: Histogram,
    /// Sums of amounts of the lane's owner, where the cell has them.
    pub live_amounts: Amounts,
    /// The same of owners before.
    pub retired_amounts: Amounts,
    /// It is a part of the reading of the point that its point is a variant of.
    pub is_part: bool,
    /// Of what is the sum of the point's variants: their places in the picture.
    pub variants: Vec<u32>,
}

/// A histogram: only the parts in use.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    parts: Parts,
    /// The window that it is of, as [`CellPicture::restarts`] numbers them; none
    /// if it cannot be read on from.
    window: Option<u64>,
    /// Measurements in its chunks.
    counted: u64,
    /// Part and bucket of the last one of the sums that it was read beside.
    last: Option<(usize, usize)>,
    /// That one was in no chunk yet, and is counted here all the same.
    added: bool,
}

/// Parts of a histogram, in their order.
#[derive(Clone, Debug, Default)]
struct Parts {
    /// A bit for each part that is there.
    present: u64,
    counts: Vec<Counts>,
}

/// The counters of a part.
type Counts = [u64; BUCKETS];

/// A bucket of a histogram that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCount {
    /// Least value in it, ticks.
    pub low: u64,
    /// Number of values in it, ticks.
    pub width: u64,
    /// Measurements in it.
    pub count: u64,
}

impl Histogram {
    /// The buckets that are not empty, by value.
    pub fn iter(&self) -> impl Iterator<Item = BucketCount> + '_ {
        self.parts.iter().flat_map(|(part, counts)| {
            // Which are empty is as good as chance: all are asked at once, and no
            // branch is taken on it.
            let full = (0..BUCKETS).fold(0, |full, at| full | u64::from(counts[at] != 0) << at);
            ones(full).map(move |bucket| {
                let (low, width) = histogram::bounds(part, bucket);
                BucketCount { low, width, count: counts[bucket] }
            })
        })
    }

    /// Takes over what was read, and counts the last measurement where the
    /// chunks do not yet.
    fn take(&mut self, read: &ReadParts, window: Option<u64>, last: Last) {
        if let Some((part, bucket)) = self.last.take().filter(|_| self.added) {
            let count = &mut self.parts.at(part)[bucket];
            *count = count.saturating_sub(1);
        }
        if read.all {
            self.parts.present = read.parts.present;
            self.parts.counts.clone_from(&read.parts.counts);
        } else {
            for (part, counts) in read.parts.iter() {
                self.parts.at(part).clone_from(counts);
            }
        }
        (self.window, self.counted) = (window, read.counted);
        (self.last, self.added) = (last.place, last.is_to_be_added);
        if let Some((part, bucket)) = self.last.filter(|_| self.added) {
            let count = &mut self.parts.at(part)[bucket];
            *count = count.saturating_add(1);
        }
    }

    /// Measurements in the chunk of a part.
    fn in_chunk(&self, part: usize) -> u64 {
        let added = u64::from(self.added && self.last.is_some_and(|(of, _)| of == part));
        self.parts.get(part).map_or(0, total).wrapping_sub(added)
    }

    fn clear(&mut self) {
        self.parts.clear();
        (self.window, self.last) = (None, None);
    }

    fn add(&mut self, other: &Self) {
        for (part, counts) in other.parts.iter() {
            for (sum, count) in self.parts.at(part).iter_mut().zip(counts) {
                *sum = sum.saturating_add(*count);
            }
        }
    }
}

/// The last measurement of the sums, which the next one counts in the histogram.
#[derive(Clone, Copy, Debug, Default)]
struct Last {
    /// Part and bucket; none if there is no such measurement.
    place: Option<(usize, usize)>,
    /// The chunks that were read do not have it.
    is_to_be_added: bool,
}

impl Last {
    fn of(ticks: Option<u64>) -> Self {
        let place = ticks.map(|ticks| histogram::locate(ticks.min(histogram::LIMIT - 1)));
        Self { place, is_to_be_added: false }
    }

    fn part(self) -> Option<usize> {
        self.place.map(|(part, _)| part)
    }
}

impl Parts {
    fn clear(&mut self) {
        self.present = 0;
        self.counts.clear();
    }

    fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.present)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Counts)> {
        self.numbers().zip(&self.counts)
    }

    /// The counters of a part, if it is there.
    fn get(&self, part: usize) -> Option<&Counts> {
        (self.present >> part & 1 != 0).then(|| &self.counts[self.place(part)])
    }

    /// Place of a part among those that are there.
    fn place(&self, part: usize) -> usize {
        (self.present & ((1 << part) - 1)).count_ones() as usize
    }

    /// The counters of a part, zero if it was not there.
    fn at(&mut self, part: usize) -> &mut Counts {
        let place = self.place(part);
        if self.present >> part & 1 == 0 {
            self.present |= 1 << part;
            self.counts.insert(place, [0; BUCKETS]);
        }
        &mut self.counts[place]
    }

    /// Adds a part that is not there yet.
    fn put(&mut self, part: usize, counts: Counts) {
        self.counts.insert(self.place(part), counts);
        self.present |= 1 << part;
    }
}

/// The places of the bits that are set, from the lowest on.
fn ones(mut left: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(place)
    })
}

/// The parts of a histogram that were read just now.
///
/// Most measurements of a point fall into a few octaves, and the others need not
/// be looked at: counters only grow within a window, and a cell tells how many
/// measurements they hold. So as soon as the parts that were read account for
/// all that are new, the rest is as it was.
///
/// Of a cell in use, what is counted while this goes on may stand in for what a part
/// has that was not read. The **last measurement** of the sums tells: it is the first
/// that is counted after them, so its part is read last. If all parts together then
/// hold more than the sums, it is in them, and nothing is missing but what came later
/// still; if they hold as many as before it and the cell was written to, something is
/// missing, and the reading goes on.
#[derive(Debug, Default)]
struct ReadParts {
    parts: Parts,
    /// They are all there are.
    all: bool,
    /// Measurements in them, and in those that were not read.
    counted: u64,
}

/// What a histogram is read beside.
#[derive(Clone, Copy)]
struct Beside {
    /// Sequence word of the cell then.
    sequence: u64,
    /// Measurements that the chunks held.
    counted: u64,
    last: Last,
}

/// Beside these sums.
fn beside(sequence: u64, live: &Sums, settled: &Sums, last: Last) -> Beside {
    let counted = live.count.wrapping_add(settled.count);
    let counted = counted.wrapping_sub(u64::from(last.place.is_some()));
    Beside { sequence, counted, last }
}

impl ReadParts {
    /// Reads all that a cell names, but no more than so many. Whether the last
    /// measurement is to be added.
    fn read_all(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        copy: &CellPicture,
        most: usize,
        beside: Beside,
    ) -> bool {
        self.parts.clear();
        self.all = true;
        self.counted = 0;
        let at_last = beside.last.part();
        let mut read = |part: usize| {
            if self.parts.counts.len() == most {
                return;
            }
            let Some(now) = counts(segment, copy.parts.0[part]) else { return };
            self.counted = self.counted.wrapping_add(total(&now));
            self.parts.put(part, now);
        };
        let named = |part: &usize| copy.parts.0[*part] != 0;
        (0..PARTS).filter(named).filter(|part| Some(*part) != at_last).for_each(&mut read);
        if let Some(part) = at_last.filter(named) {
            cell.look_further();
            read(part);
        }
        // Fewer than there should be: there was no memory to count some in.
        at_last.is_some()
            && (self.counted == beside.counted
                || self.counted < beside.counted && cell.sequence() == beside.sequence)
    }

    /// Reads on from what is known until the chunks hold what they held then; tells
    /// whether the last measurement is to be added. None if they never do.
    fn read_on(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        known: &Histogram,
        beside: Beside,
    ) -> Option<bool> {
        self.parts.clear();
        self.all = false;
        self.counted = known.counted;
        // Most likely the part of what came since.
        let first = known.last.map(|(part, _)| part);
        let others = known.parts.numbers().chain(ones(!known.parts.present & ALL_PARTS));
        let others = others.filter(|part| Some(*part) != first);
        let mut unread = first.into_iter().chain(others);
        loop {
            while self.counted < beside.counted {
                self.renew(segment, cell, known, unread.next()?);
            }
            let Some(part) = beside.last.part() else { return Some(false) };
            cell.look_further();
            if cell.sequence() == beside.sequence {
                return Some(true);
            }
            if !is_overtaken(cell, beside.sequence) {
                return None;
            }
            self.renew(segment, cell, known, part);
            if self.counted > beside.counted {
                return Some(false);
            }
            self.renew(segment, cell, known, unread.next()?);
        }
    }

    /// Reads a part, again if it was read already.
    fn renew(&mut self, segment: Sparse<'_>, cell: &Cell, known: &Histogram, part: usize) {
        let Some(now) = counts(segment, cell.part_to_read(part)) else { return };
        let before = self.parts.get(part).map_or_else(|| known.in_chunk(part), total);
        self.counted = self.counted.wrapping_add(total(&now)).wrapping_sub(before);
        *self.parts.at(part) = now;
    }
}

/// A bit for each part.
const ALL_PARTS: u64 = (1 << PARTS) - 1;

/// Waits, not for long, until a measurement is whole that ended since the cell had
/// this number. False if its thread was stopped in the middle of it.
fn is_overtaken(cell: &Cell, sequence: u64) -> bool {
    let is_over = (0..TRIES).any(|_| {
        std::hint::spin_loop();
        cell.sequence().wrapping_sub(sequence) >= 2
    });
    // What it counted is to be seen now.
    cell.look_further();
    is_over
}

/// The counters of a chunk; none if there is no such chunk.
fn counts(segment: Sparse<'_>, chunk: u32) -> Option<Counts> {
    let chunk = segment.chunk(chunk)?;
    Some(chunk.0.each_ref().map(|count| count.load(Ordering::Relaxed)))
}

fn total(counts: &Counts) -> u64 {
    counts.iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

/// Whom the figures of a cell are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The owner of the lane, now or until it ended.
    One { generation: u32, state: LaneState },
    /// All threads that found no lane.
    All,
}

impl Default for Owner {
    fn default() -> Self {
        Self::One { generation: 0, state: LaneState::Free }
    }
}

impl Owner {
    /// Whether the live figures of a cell are this owner's, who still runs.
    fn owns(self, cell: &CellPicture) -> bool {
        match self {
            Self::One { generation, state } => generation == cell.owner && state == LaneState::Live,
            Self::All => true,
        }
    }
}

/// What tells that a reading is still that of its cell. Small, and apart from
/// the reading: of a cell that has not changed, nothing else is looked at.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    sequence: u64,
    /// Whose control word the cell follows.
    steered_by: u32,
    epoch: u32,
    /// The point was of that epoch.
    current: bool,
    /// Whoever had the lane.
    owner: Owner,
    /// Place of the reading; none while the cell was never read.
    place: Option<u32>,
}

impl Default for Mark {
    fn default() -> Self {
        Self {
            sequence: Self::NEVER,
            steered_by: 0,
            epoch: 0,
            current: false,
            owner: Owner::default(),
            place: None,
        }
    }
}

impl Mark {
    /// Odd: no cell at rest has it.
    const NEVER: u64 = 1;

    /// The cell is to be read again, though nobody has written to it.
    pub(super) fn forget(&mut self) {
        self.sequence = Self::NEVER;
    }

    /// Whether the cell would be read as it was.
    pub(super) fn is_fresh(&self, segment: Sparse<'_>, cell: &Cell) -> bool {
        let sequence = cell.sequence();
        sequence == self.sequence
            && sequence & 1 == 0
            && is_current(segment, self.steered_by, self.epoch) == Some(self.current)
    }
}

/// So many cells are read together: their lines fit the first cache.
const STALE: usize = 32;

/// Cells of a lane that are to be read again.
///
/// Between two polls their memory is in no cache, and what another one waits for
/// depends on nothing here. So before they are read one by one, each of their lines
/// is asked for, one after the other: the processor has many such requests under
/// way at once, but only as many as it finds among the next few hundred
/// instructions.
pub(super) struct Stale<'a> {
    cells: [Option<(usize, &'a Cell)>; STALE],
    len: usize,
}

impl Default for Stale<'_> {
    fn default() -> Self {
        Self { cells: [None; STALE], len: 0 }
    }
}

impl<'a> Stale<'a> {
    pub(super) const fn is_full(&self) -> bool {
        self.len == STALE
    }

    pub(super) const fn add(&mut self, mark: usize, cell: &'a Cell) {
        self.cells[self.len] = Some((mark, cell));
        self.len += 1;
    }

    /// The cells with the places of their marks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &'a Cell)> {
        self.cells[..self.len].iter().filter_map(|cell| *cell)
    }

    /// Asks for the memory that [`CellReader::read`] is going to look at, most
    /// likely.
    pub(super) fn fetch(&self, segment: Sparse<'_>, marks: &[Mark], picture: &Picture) {
        let mut asked = 0_u64;
        let known = |mark: usize| {
            let reading = &picture.cells[marks[mark].place? as usize];
            Some((reading, reading.histogram.last?.0))
        };
        let mut parts = [None; STALE];
        for ((mark, cell), part) in self.iter().zip(&mut parts) {
            asked ^= cell.fetch();
            *part = known(mark).map(|(reading, part)| (reading, part, cell));
        }
        let mut chunks = [None; STALE];
        for (part, chunk) in parts.iter().take(self.len).zip(&mut chunks) {
            let Some((reading, part, cell)) = part else { continue };
            asked ^= reading.live.count ^ reading.histogram.parts.present;
            *chunk = segment.chunk(cell.part(*part)).map(|chunk| (chunk, &reading.histogram.parts));
        }
        const LINE: usize = 64 / size_of::<u64>();
        for (chunk, parts) in chunks.iter().take(self.len).flatten() {
            asked = chunk.0.iter().step_by(LINE).fold(asked, |x, n| x ^ n.load(Ordering::Relaxed));
            let counts = parts.counts.iter().flat_map(|counts| counts.iter().step_by(LINE));
            asked = counts.fold(asked, |x, n| x ^ n);
        }
        std::hint::black_box(asked);
    }
}

/// The point whose control word a point follows: its own, or that of the point that
/// it is a variant of, which was there before it.
fn steering(segment: Sparse<'_>, point: u32) -> u32 {
    let entry = segment.entry(point as usize).and_then(|entry| entry.read());
    let of = entry.and_then(|entry| entry.variant).map(|variant| variant.point);
    of.filter(|of| *of < point).unwrap_or(point)
}

/// Whether figures of this epoch are the point's since its last reset; none for
/// a point that there is not.
fn is_current(segment: Sparse<'_>, point: u32, epoch: u32) -> Option<bool> {
    Some(Control(segment.control_word(point as usize)?).epoch() == epoch)
}

/// Where a cell is read from.
pub(super) struct From {
    pub(super) lane: u32,
    pub(super) owner: Owner,
    /// Nobody writes any more: a cell in the middle of a change will stay so.
    pub(super) dead: bool,
    /// Measurements and exclusive ticks that another cell has counted before this one.
    pub(super) before: (u64, u64),
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
        }
    }

    /// Reads a cell anew; false if it could not be copied whole, which leaves
    /// what was known.
    pub(super) fn read(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From,
        mark: &mut Mark,
        picture: &mut Picture,
    ) -> bool {
        self.read_on(segment, cell, from, mark, picture)
            || self.read_anew(segment, cell, from, mark, picture)
    }

    /// Reads what measurements alone have changed since the last time; false if
    /// anything else has.
    fn read_on(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From,
        mark: &mut Mark,
        picture: &mut Picture,
    ) -> bool {
        let known = mark.place.filter(|_| mark.current).map(|place| place as usize);
        let Some(reading) = known.map(|place| &mut picture.cells[place]) else { return false };
        let Some(window) = reading.histogram.window.filter(|_| from.owner == mark.owner) else {
            return false;
        };
        let find = |chunk| segment.sums(chunk);
        let Some((sequence, live, last, amounts)) = cell.read_live_with(window, find) else {
            return false;
        };
        let mut last = Last::of(last);
        let beside = beside(sequence, &live, &reading.retired, last);
        let Some(is_to_be_added) = self.parts.read_on(segment, cell, &reading.histogram, beside)
        else {
            return false;
        };
        if cell.restarted_since(window)
            || is_current(segment, mark.steered_by, mark.epoch) != Some(true)
        {
            return false;
        }
        last.is_to_be_added = is_to_be_added;
        mark.sequence = sequence;
        reading.changed = picture.poll;
        let grown = live.count.wrapping_sub(reading.live.count);
        reading.lifetime_count = reading.lifetime_count.wrapping_add(grown);
        let grown = live.exclusive.wrapping_sub(reading.live.exclusive);
        reading.lifetime_exclusive = reading.lifetime_exclusive.wrapping_add(grown);
        reading.live = live;
        reading.live_amounts = amounts.live;
        let held = reading.histogram.parts.counts.len();
        reading.histogram.take(&self.parts, Some(window), last);
        self.account(held, reading);
        true
    }

    fn read_anew(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From,
        mark: &mut Mark,
        picture: &mut Picture,
    ) -> bool {
        if mark.place.is_none() && self.cells_left == 0 {
            return false;
        }
        let known = mark.place.map(|place| &picture.cells[place as usize]);
        let held = known.map_or(0, |reading| reading.histogram.parts.counts.len());
        let most = self.parts_left + held;
        let Some((sequence, whole, last)) = self.copy(segment, cell, from, most) else {
            return false;
        };
        let copy = &self.copy;
        let steered_by = steering(segment, copy.point);
        let Some(current) = is_current(segment, steered_by, copy.epoch) else { return true };
        let place = mark.place.unwrap_or(picture.cells.len() as u32);
        let (point, epoch, owner) = (copy.point, copy.epoch, from.owner);
        *mark = Mark { sequence, steered_by, epoch, current, owner, place: Some(place) };
        if place as usize == picture.cells.len() {
            picture.cells.push(CellReading::blank());
            self.cells_left -= 1;
        }
        let reading = &mut picture.cells[place as usize];
        (reading.changed, reading.lane, reading.point) = (picture.poll, from.lane, point);
        let owned = owner.owns(copy);
        reading.take(copy, owned, current);
        if let Some(ever) = (owner == Owner::All).then(|| cell.ever()).flatten() {
            (reading.lifetime_count, reading.lifetime_exclusive) = ever;
        }
        let (count, exclusive) = from.before;
        reading.lifetime_count = reading.lifetime_count.wrapping_add(count);
        reading.lifetime_exclusive = reading.lifetime_exclusive.wrapping_add(exclusive);
        reading.in_flight = !whole;
        if current {
            let alone = owner != Owner::All;
            let window = (whole && owned && alone).then_some(copy.restarts);
            reading.histogram.take(&self.parts, window, last);
        } else {
            reading.histogram.clear();
        }
        let place = place as usize;
        self.account(held, &picture.cells[place]);
        true
    }

    /// Keeps count of the parts that are held.
    fn account(&mut self, before: usize, reading: &CellReading) {
        let held = reading.histogram.parts.counts.len();
        // What the last measurement added may be in no chunk.
        self.parts_left = (self.parts_left + before).saturating_sub(held);
    }

    /// Copies a cell and its histogram, of at most so many parts; returns the
    /// sequence word that goes with the copy, whether it is whole, and its last
    /// measurement. None if it could not be had.
    fn copy(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        from: &From,
        most: usize,
    ) -> Option<(u64, bool, Last)> {
        for _ in 0..TRIES {
            let sequence = cell.sequence();
            let whole =
                cell.read_with(&mut self.copy, |chunk| segment.sums(chunk)) == CellRead::Whole;
            if !whole && !from.dead {
                std::hint::spin_loop();
                continue;
            }
            let mut last = Last::of(self.copy.uncounted);
            let beside = beside(sequence, &self.copy.live, &self.copy.settled, last);
            last.is_to_be_added = self.parts.read_all(segment, cell, &self.copy, most, beside);
            if cell.restarted_since(self.copy.restarts) && !from.dead {
                continue;
            }
            // Many threads at once leave a shared cell odd, or even, by chance.
            let shared = from.owner == Owner::All;
            return Some(if shared {
                (Mark::NEVER, true, Last::default())
            } else {
                (sequence, whole, last)
            });
        }
        None
    }
}

impl CellReading {
    fn blank() -> Self {
        Self {
            changed: 0,
            lane: 0,
            point: 0,
            live: Sums::default(),
            retired: Sums::default(),
            lifetime_count: 0,
            lifetime_exclusive: 0,
            in_flight: false,
            histogram: Histogram::default(),
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
        sum.in_flight = false;
        (sum.lifetime_count, sum.lifetime_exclusive) = (0, 0);
        sum.histogram.clear();
        for &part in &places {
            let part = &cells[part as usize];
            sum.in_flight |= part.in_flight;
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

    /// What a copy of the cell says about its point. The live figures are
    /// `owned` by the thread that has the lane now.
    fn take(&mut self, cell: &CellPicture, owned: bool, current: bool) {
        let count = cell.live.count.wrapping_add(cell.settled.count);
        let exclusive = cell.live.exclusive.wrapping_add(cell.settled.exclusive);
        self.lifetime_count = cell.past_count.wrapping_add(count);
        self.lifetime_exclusive = cell.past_exclusive.wrapping_add(exclusive);
        (self.live_amounts, self.retired_amounts) = Default::default();
        if !current {
            (self.live, self.retired) = (Sums::default(), Sums::default());
            return;
        }
        self.retired.clone_from(&cell.settled);
        self.retired_amounts = cell.amounts.settled;
        if owned {
            self.live.clone_from(&cell.live);
            self.live_amounts = cell.amounts.live;
        } else {
            for (sum, more) in self.retired_amounts.iter_mut().zip(cell.amounts.live) {
                *sum = sum.saturating_add(more);
            }
            // The thread has ended; its figures stay.
            self.live = Sums::default();
            self.retired.merge(&cell.live);
            self.retired.last = cell.live.last;
            self.retired.average_fixed = cell.live.average_fixed;
        }
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
