//! The cells of a picture: what is kept of each, and when it is read again.

use std::mem::offset_of;

use super::near::{fetch, fetch_start};
use super::{MAX_BLOCKS, Picture, Sparse, TRIES};
use crate::layout::amounts::Amounts;
use crate::layout::cell::{Cell, CellPicture, CellRead, Sums};
use crate::layout::control::Control;
use crate::layout::histogram::{self, BUCKETS, PARTS};
use crate::layout::lane::{LaneState, Tally};
use crate::layout::ring::{self, Addition, Slot};
use crate::layout::segment::{BLOCK, CELLS_PER_BLOCK, CHUNK, Geometry};
use crate::sync::{Ordering, fence};

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
const IN_USE: usize = offset_of!(CellReading, histogram) + offset_of!(Histogram, added);
const _: () = assert!(IN_USE <= 192, "three lines");

/// A histogram: only the parts in use.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Histogram {
    parts: Parts,
    /// The window that it is of, as [`CellPicture::restarts`] numbers them; none
    /// if it cannot be read on from.
    window: Option<u64>,
    /// Measurements in its chunks.
    counted: u64,
    /// Parts and buckets of measurements that are in no chunk yet, and are counted here all
    /// the same.
    added: Vec<(u8, u8)>,
}

/// Parts of a histogram, in their order.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct Parts {
    /// A bit for each part that is there.
    present: u64,
    counts: Vec<Counts>,
}

/// The counters of a part, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Counts([Line; LINES]);

/// The counters of a cache line.
type Line = [u64; IN_LINE];
const IN_LINE: usize = 64 / size_of::<u64>();
const LINES: usize = BUCKETS / IN_LINE;

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
            let counts = counts.0.as_flattened();
            let full = (0..BUCKETS).fold(0, |full, at| full | u64::from(counts[at] != 0) << at);
            ones(full).map(move |bucket| {
                let (low, width) = histogram::bounds(part, bucket);
                BucketCount { low, width, count: counts[bucket] }
            })
        })
    }

    /// Takes over all that was read.
    fn take(&mut self, read: &ReadParts, window: Option<u64>) {
        self.parts.copy_from(&read.parts);
        self.added.clear();
        (self.window, self.counted) = (window, read.counted);
    }

    /// Takes over the lines that were read since; with those that were not, they hold so many
    /// measurements.
    fn take_lines(&mut self, lines: &[ReadLine], counted: u64) {
        for read in lines {
            self.parts.at(read.part.into()).0[usize::from(read.line)] = read.counts;
        }
        self.counted = counted;
    }

    /// Takes out what is staged beside the ring, if it is counted.
    fn drop_beside(&mut self, ticks: Option<u64>, folded: u64) {
        let Some(ticks) = ticks.filter(|_| self.counted == folded.wrapping_add(1)) else { return };
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        let count = self.parts.count(part, bucket);
        (*count, self.counted) = (count.saturating_sub(1), folded);
    }

    /// Takes out what is in no chunk.
    fn take_out(&mut self) {
        for (part, bucket) in self.added.drain(..) {
            let count = self.parts.count(part.into(), bucket.into());
            *count = count.saturating_sub(1);
        }
    }

    /// Counts what is in no chunk.
    fn put_in(&mut self, ticks: u64) {
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        let count = self.parts.count(part, bucket);
        *count = count.saturating_add(1);
        self.added.push((part as u8, bucket as u8));
    }

    /// Measurements in a line of a chunk.
    fn in_chunk(&self, part: usize, line: usize) -> u64 {
        let is_here = |(of, bucket): &&(u8, u8)| {
            usize::from(*of) == part && usize::from(*bucket) / IN_LINE == line
        };
        let added = self.added.iter().filter(is_here).count() as u64;
        self.parts.get(part).map_or(0, |counts| sum(&counts.0[line])).wrapping_sub(added)
    }

    fn clear(&mut self) {
        self.parts.clear();
        self.added.clear();
        (self.window, self.counted) = (None, 0);
    }

    fn add(&mut self, other: &Self) {
        for (part, counts) in other.parts.iter() {
            let sums = self.parts.at(part).0.as_flattened_mut();
            for (sum, count) in sums.iter_mut().zip(counts.0.as_flattened()) {
                *sum = sum.saturating_add(*count);
            }
        }
    }
}

impl Parts {
    fn clear(&mut self) {
        self.present = 0;
        self.counts.clear();
    }

    fn copy_from(&mut self, other: &Self) {
        self.present = other.present;
        // Few readings ever grow, and there are many.
        self.counts.reserve_exact(other.counts.len().saturating_sub(self.counts.len()));
        self.counts.clone_from(&other.counts);
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
            self.counts.reserve_exact(1);
            self.counts.insert(place, Counts::default());
        }
        &mut self.counts[place]
    }

    /// A counter, zero if its part was not there.
    fn count(&mut self, part: usize, bucket: usize) -> &mut u64 {
        &mut self.at(part).0[bucket / IN_LINE][bucket % IN_LINE]
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
#[derive(Debug, Default)]
struct ReadParts {
    parts: Parts,
    /// Measurements in them.
    counted: u64,
}

impl ReadParts {
    /// Reads all that a cell names, but no more than so many.
    fn read_all(&mut self, segment: Sparse<'_>, copy: &CellPicture, most: usize) {
        self.parts.clear();
        self.counted = 0;
        for (part, &chunk) in copy.parts.0.iter().enumerate() {
            if chunk == 0 || self.parts.counts.len() == most {
                continue;
            }
            let Some(now) = counts(segment, chunk) else { continue };
            self.counted = self.counted.wrapping_add(sum(now.0.as_flattened()));
            self.parts.put(part, now);
        }
    }

    /// Whether the parts are what they were all the time since the first was read.
    fn are_still(&self, segment: Sparse<'_>, copy: &CellPicture) -> bool {
        // After all that was read.
        fence(Ordering::Acquire);
        self.parts.iter().all(|(part, before)| {
            counts(segment, copy.parts.0[part]).is_some_and(|now| now == *before)
        })
    }
}

/// The lines of a histogram that were read just now.
///
/// Most measurements of a point fall into a few buckets, and the others need not
/// be looked at: counters only grow within a window, and a cell tells how many
/// measurements they hold. So as soon as the lines that were read account for
/// all that are new, the rest is as it was.
#[derive(Debug, Default)]
struct ReadLines(Vec<ReadLine>);

#[derive(Debug)]
struct ReadLine {
    part: u8,
    line: u8,
    counts: Line,
}

impl ReadLines {
    /// Reads on from what is known until the chunks hold so many measurements, the `last` of
    /// which took so long; false if they never do.
    fn read_on(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        known: &Histogram,
        (measured, last): (u64, u64),
        near: &mut Near,
    ) -> bool {
        self.0.clear();
        let mut missing = measured.wrapping_sub(known.counted);
        if missing == 0 {
            return true;
        }
        // Most likely the line of the last one has all that came since.
        let (first, bucket) = histogram::locate(last.min(histogram::LIMIT - 1));
        near.line = (bucket / IN_LINE) as u8;
        if usize::from(near.part) != first || near.chunk == 0 {
            (near.part, near.chunk) = (first as u8, cell.part_to_read(first));
        }
        let others = known.parts.numbers().chain(ones(!known.parts.present & ALL_PARTS));
        let others = others.filter(|part| *part != first);
        let others = others.map(|part| (part, cell.part_to_read(part), 0));
        let first = (first, near.chunk, bucket / IN_LINE);
        for (part, chunk, first) in std::iter::once(first).chain(others) {
            let Some(chunk) = segment.chunk(chunk) else { continue };
            for line in (0..LINES).map(|line| line ^ first) {
                let words = &chunk.0[line * IN_LINE..][..IN_LINE];
                let counts: Line = std::array::from_fn(|at| words[at].load(Ordering::Relaxed));
                let more = sum(&counts).wrapping_sub(known.in_chunk(part, line));
                if more > missing {
                    return false;
                }
                if more > 0 {
                    self.0.push(ReadLine { part: part as u8, line: line as u8, counts });
                }
                missing -= more;
                if missing == 0 {
                    return true;
                }
            }
        }
        false
    }
}

/// A bit for each part.
const ALL_PARTS: u64 = (1 << PARTS) - 1;

/// The counters of a chunk; none if there is no such chunk.
fn counts(segment: Sparse<'_>, chunk: u32) -> Option<Counts> {
    let chunk = segment.chunk(chunk)?;
    let line = |line: usize| {
        std::array::from_fn(|at| chunk.0[line * IN_LINE + at].load(Ordering::Relaxed))
    };
    Some(Counts(std::array::from_fn(line)))
}

fn sum(counts: &[u64]) -> u64 {
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
    /// Records were added to the cell's figures.
    added: bool,
    /// Place of the reading; none while the cell was never read.
    place: Option<u32>,
    near: Near,
}

/// Where the last measurement of a cell was counted.
#[derive(Clone, Copy, Debug, Default)]
struct Near {
    /// Number of the chunk, 0 where it is not known.
    chunk: u32,
    part: u8,
    /// The line of the chunk.
    line: u8,
}

impl Default for Mark {
    fn default() -> Self {
        Self {
            sequence: Self::NEVER,
            steered_by: 0,
            epoch: 0,
            current: false,
            added: false,
            place: None,
            near: Near::default(),
        }
    }
}

impl Mark {
    /// Odd: no cell at rest has it.
    const NEVER: u64 = 1;

    /// The cell is to be read anew, though nobody has written to it.
    pub(super) fn forget(&mut self) {
        (self.sequence, self.current) = (Self::NEVER, false);
    }

    /// The place of the reading, and the epoch that the cell follows, if that is of a point or
    /// one of its variants.
    pub(super) fn epoch_of(&self, point: u32) -> Option<(usize, u32)> {
        let place = self.place.filter(|_| self.steered_by == point);
        place.map(|place| (place as usize, self.epoch))
    }

    /// Whether the cell would be read as it was, beside the records of its lane.
    #[inline]
    pub(super) fn is_fresh(&self, segment: Sparse<'_>, cell: &Cell, pending: &Pending) -> bool {
        self.is_as_it_was(segment, cell)
            && !(pending.has_changed && (self.added || !pending.of(cell.point()).is_empty()))
    }

    /// Asks for the memory that [`CellReader::read`] is going to look at, most likely, but for
    /// what [`Self::fetch_counts`] asks for.
    #[inline]
    fn fetch(&self, segment: Sparse<'_>, cell: &Cell, picture: &Picture) {
        fetch(cell.live_range(cell.sequence()));
        let Some(place) = self.place else { return };
        if let Some(words) = segment.words(self.near.chunk) {
            fetch_start(&words[usize::from(self.near.line) * IN_LINE]);
        }
        let reading = picture.cells.as_ptr().wrapping_add(place as usize).cast::<u8>();
        fetch(reading..reading.wrapping_add(IN_USE));
    }

    #[inline]
    fn fetch_counts(&self, picture: &Picture) {
        let reading = self.place.map(|place| &picture.cells[place as usize]);
        let counts = reading.and_then(|it| it.histogram.parts.get(self.near.part.into()));
        if let Some(counts) = counts {
            fetch_start(&counts.0[usize::from(self.near.line)]);
        }
    }

    #[inline]
    fn is_as_it_was(&self, segment: Sparse<'_>, cell: &Cell) -> bool {
        let sequence = cell.sequence();
        sequence == self.sequence
            && sequence & 1 == 0
            && is_current(segment, self.steered_by, self.epoch) == Some(self.current)
    }
}

/// So many cells are read together. Their lines, and those of as many that are read before them,
/// fit the first cache.
const STALE: usize = 16;

/// Cells of a lane that are to be read again.
///
/// Between two polls their memory is in no cache. So it is asked for some cells ahead: the
/// processor has many such requests under way at once, and waits for none of them.
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

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds the cell of a mark.
    #[inline]
    pub(super) fn add(
        &mut self,
        (index, mark): (usize, &Mark),
        cell: &'a Cell,
        segment: Sparse<'_>,
        picture: &Picture,
    ) {
        mark.fetch(segment, cell, picture);
        self.cells[self.len] = Some((index, cell));
        self.len += 1;
    }

    /// The cells with the places of their marks.
    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, &'a Cell)> {
        self.cells[..self.len].iter().filter_map(|cell| *cell)
    }

    /// Asks for what the readings lead to, once they are near themselves.
    pub(super) fn fetch_counts(&self, marks: &[Mark], picture: &Picture) {
        self.iter().for_each(|(index, _)| marks[index].fetch_counts(picture));
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
#[inline]
fn is_current(segment: Sparse<'_>, point: u32, epoch: u32) -> Option<bool> {
    Some(Control(segment.control_word(point as usize)?).epoch() == epoch)
}

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

/// The records of a lane that may not be folded into its cells, by point.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// They are others than in the poll before.
    has_changed: bool,
    /// Number of the first one that is not folded, and of the one behind the last.
    taken: (u64, u64),
    additions: Vec<(u64, Addition)>,
    /// By point: one more than the place of its first addition, 0 without any.
    first: Vec<u32>,
}

impl Pending {
    /// Copies those of a lane, of points below a number; `before` says where they began and
    /// ended in the poll before.
    pub(super) fn take(
        &mut self,
        tally: &Tally,
        slots: Option<&[Slot]>,
        before: &mut (u64, u64),
        points: usize,
    ) {
        for (_, addition) in self.additions.drain(..) {
            self.first[addition.point as usize] = 0;
        }
        let now = (0..TRIES).find_map(|_| {
            self.additions.clear();
            let folded = ring::folded(&tally.folded);
            let written = ring::visit(&tally.written, slots?, folded, |number, addition| {
                if (addition.point as usize) < points {
                    self.additions.push((number, addition));
                }
            });
            Some((folded, written?))
        });
        let now = now.unwrap_or_else(|| {
            self.additions.clear();
            (0, 0)
        });
        self.has_changed = *before != now;
        (*before, self.taken) = (now, now);
        self.additions.sort_unstable_by_key(|(number, addition)| (addition.point, *number));
        for (place, (_, addition)) in self.additions.iter().enumerate().rev() {
            let point = addition.point as usize;
            if self.first.len() <= point {
                self.first.resize(point + 1, 0);
            }
            self.first[point] = place as u32 + 1;
        }
    }

    /// Whether nothing is or was to be folded since they were taken.
    fn is_all_folded(&self, tally: Option<&Tally>) -> bool {
        self.additions.is_empty()
            && tally.is_some_and(|tally| {
                let written = tally.written.load(Ordering::Relaxed);
                self.taken == (written, written)
            })
    }

    /// The records of a point, oldest first, with their numbers.
    #[inline]
    fn of(&self, point: u32) -> &[(u64, Addition)] {
        let Some(&first) = self.first.get(point as usize) else { return &[] };
        let Some(first) = (first as usize).checked_sub(1) else { return &[] };
        let from = &self.additions[first..];
        &from[..from.partition_point(|(_, addition)| addition.point == point)]
    }
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
        let held = reading.histogram.parts.counts.len();
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
        let held = known.map_or(0, |reading| reading.histogram.parts.counts.len());
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
        let held = reading.histogram.parts.counts.len();
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
