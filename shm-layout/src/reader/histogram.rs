//! The histogram of a cell's reading: its counts, and how they are read from the segment.

use super::backed::Sparse;
use crate::heap::{Grow, NoMemory};
use crate::layout::cell::{Cell, CellPicture};
use crate::layout::histogram::{self, BUCKETS, PARTS};
use crate::sync::{Ordering, fence};

/// A histogram: only the parts in use.
#[derive(Clone, Debug, Default)]
#[repr(C)]
pub struct Histogram {
    parts: PartCounts,
    /// The window of the counts, as [`CellPicture::restarts`] numbers it; `None` if the next poll
    /// must read all counts anew.
    pub(super) window: Option<u64>,
    /// Number of measurements that the cell's chunks hold.
    pub(super) counted: u64,
    /// Parts and buckets of measurements that no chunk holds yet, but that are counted here.
    pub(super) added: Vec<(u8, u8)>,
}

/// The counters of a histogram's parts, in the order of the parts.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct PartCounts {
    /// One bit for each part that exists.
    present: u64,
    counts: Vec<Counts>,
}

/// The counters of a part, line by line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[repr(align(64))]
struct Counts([Line; LINES]);

/// The counters of a cache line.
pub(super) type Line = [u64; IN_LINE];
pub(super) const IN_LINE: usize = 64 / size_of::<u64>();
const LINES: usize = BUCKETS / IN_LINE;

/// A bucket of a histogram with measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BucketCount {
    /// The shortest duration of the bucket, in ticks.
    pub low: u64,
    /// The number of different durations in the bucket, in ticks.
    pub width: u64,
    /// Number of measurements in the bucket.
    pub count: u64,
}

/// The position of the last measurement of a cell in the histogram.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Near {
    /// Number of the chunk, 0 if it is not known.
    pub(super) chunk: u32,
    pub(super) part: u8,
    /// The line of the chunk.
    pub(super) line: u8,
}

/// One bit for each count that is not 0. The counts are unpredictable, so all are tested at once,
/// without a branch. The function is not inlined, because the crate that calls it, such as the
/// viewer, may be compiled with less optimisation.
#[inline(never)]
fn full(counts: &[u64]) -> u64 {
    counts.iter().enumerate().fold(0, |full, (at, count)| full | u64::from(*count != 0) << at)
}

impl Histogram {
    /// The buckets with measurements, by value.
    pub fn iter(&self) -> impl Iterator<Item = BucketCount> + '_ {
        self.parts.iter().flat_map(|(part, counts)| {
            let counts = counts.0.as_flattened();
            ones(full(counts)).map(move |bucket| {
                let (low, width) = histogram::bounds(part, bucket);
                BucketCount { low, width, count: counts[bucket] }
            })
        })
    }

    /// Number of parts in this histogram.
    pub(super) const fn parts(&self) -> usize {
        self.parts.counts.len()
    }

    /// The line that a measurement was counted in, if this histogram has its part.
    #[inline]
    pub(super) fn line(&self, near: Near) -> Option<&Line> {
        self.parts.get(near.part.into()).map(|counts| &counts.0[usize::from(near.line)])
    }

    /// Replaces all counts by those that were read.
    pub(super) fn take(&mut self, read: &ReadParts, window: Option<u64>) -> Result<(), NoMemory> {
        self.parts.copy_from(&read.parts)?;
        self.added.clear();
        (self.window, self.counted) = (window, read.counted);
        Ok(())
    }

    /// Replaces the lines that were read again; all lines then hold `counted` measurements.
    pub(super) fn take_lines(&mut self, lines: &[ReadLine], counted: u64) -> Result<(), NoMemory> {
        for read in lines {
            self.parts.at(read.part.into())?.0[usize::from(read.line)] = read.counts;
        }
        self.counted = counted;
        Ok(())
    }

    /// Removes the staged measurement of `ticks`, which is in no record, if the chunks count it:
    /// they then hold one more than the `folded` measurements of the sums.
    pub(super) fn drop_beside(&mut self, ticks: Option<u64>, folded: u64) {
        let Some(ticks) = ticks.filter(|_| self.counted == folded.wrapping_add(1)) else { return };
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        self.parts.take_one(part, bucket);
        self.counted = folded;
    }

    /// Removes the measurements that [`Self::put_in`] has counted.
    pub(super) fn take_out(&mut self) {
        for (part, bucket) in self.added.drain(..) {
            self.parts.take_one(part.into(), bucket.into());
        }
    }

    /// Counts a measurement whose record is not yet added to the segment's histogram.
    pub(super) fn put_in(&mut self, ticks: u64) -> Result<(), NoMemory> {
        let (part, bucket) = histogram::locate(ticks.min(histogram::LIMIT - 1));
        let count = &mut self.parts.at(part)?.0[bucket / IN_LINE][bucket % IN_LINE];
        *count = count.saturating_add(1);
        self.added.try_push((part as u8, bucket as u8))
    }

    /// Measurements that a line of a chunk holds.
    fn in_chunk(&self, part: usize, line: usize) -> u64 {
        let is_here = |(of, bucket): &&(u8, u8)| {
            usize::from(*of) == part && usize::from(*bucket) / IN_LINE == line
        };
        let added = self.added.iter().filter(is_here).count() as u64;
        self.parts.get(part).map_or(0, |counts| sum(&counts.0[line])).wrapping_sub(added)
    }

    pub(super) fn clear(&mut self) {
        self.parts.clear();
        self.added.clear();
        (self.window, self.counted) = (None, 0);
    }

    /// Adds the buckets of another histogram.
    pub(super) fn add(&mut self, other: &Self) -> Result<(), NoMemory> {
        for (part, counts) in other.parts.iter() {
            let sums = self.parts.at(part)?.0.as_flattened_mut();
            for (sum, count) in sums.iter_mut().zip(counts.0.as_flattened()) {
                *sum = sum.saturating_add(*count);
            }
        }
        Ok(())
    }
}

impl PartCounts {
    fn clear(&mut self) {
        self.present = 0;
        self.counts.clear();
    }

    fn copy_from(&mut self, other: &Self) -> Result<(), NoMemory> {
        // Exact: few readings ever grow, and spare space in all of them would add up.
        self.counts.try_reserve_exact(other.counts.len().saturating_sub(self.counts.len()))?;
        self.counts.clone_from(&other.counts);
        self.present = other.present;
        Ok(())
    }

    fn numbers(&self) -> impl Iterator<Item = usize> + use<> {
        ones(self.present)
    }

    fn iter(&self) -> impl Iterator<Item = (usize, &Counts)> {
        self.numbers().zip(&self.counts)
    }

    /// The counters of a part, if it exists.
    fn get(&self, part: usize) -> Option<&Counts> {
        (self.present >> part & 1 != 0).then(|| &self.counts[self.place(part)])
    }

    /// Index of a part among the existing ones.
    fn place(&self, part: usize) -> usize {
        (self.present & ((1 << part) - 1)).count_ones() as usize
    }

    /// The counters of a part; a missing part is added with zeros.
    fn at(&mut self, part: usize) -> Result<&mut Counts, NoMemory> {
        let place = self.place(part);
        if self.present >> part & 1 == 0 {
            self.counts.try_reserve_exact(1)?;
            self.put(part, Counts::default())?;
        }
        Ok(&mut self.counts[place])
    }

    /// Takes one measurement out of a bucket, if the bucket has one.
    fn take_one(&mut self, part: usize, bucket: usize) {
        if self.present >> part & 1 != 0 {
            let place = self.place(part);
            let count = &mut self.counts[place].0[bucket / IN_LINE][bucket % IN_LINE];
            *count = count.saturating_sub(1);
        }
    }

    /// Adds a part that is missing.
    fn put(&mut self, part: usize, counts: Counts) -> Result<(), NoMemory> {
        self.counts.try_insert(self.place(part), counts)?;
        self.present |= 1 << part;
        Ok(())
    }
}

/// The positions of the set bits, from the lowest on.
fn ones(mut left: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = (left != 0).then(|| left.trailing_zeros() as usize)?;
        left &= left - 1;
        Some(place)
    })
}

/// The parts of a histogram that were read just now.
#[derive(Debug, Default)]
pub(super) struct ReadParts {
    parts: PartCounts,
    /// Measurements in these parts.
    counted: u64,
}

impl ReadParts {
    /// Reads the parts that a cell names, at most `most` of them.
    pub(super) fn read_all(
        &mut self,
        segment: Sparse<'_>,
        copy: &CellPicture,
        most: usize,
    ) -> Result<(), NoMemory> {
        self.parts.clear();
        self.counted = 0;
        for (part, &chunk) in copy.parts.0.iter().enumerate() {
            if chunk == 0 || self.parts.counts.len() == most {
                continue;
            }
            let Some(now) = counts(segment, chunk) else { continue };
            self.counted = self.counted.wrapping_add(sum(now.0.as_flattened()));
            self.parts.put(part, now)?;
        }
        Ok(())
    }

    /// Whether all counts still equal those that were read. If so, the counts that were read are of
    /// one moment, because counts only grow.
    pub(super) fn are_still(&self, segment: Sparse<'_>, copy: &CellPicture) -> bool {
        // All counts were read before the fence, and are compared after it.
        fence(Ordering::Acquire);
        self.parts.iter().all(|(part, before)| {
            counts(segment, copy.parts.0[part]).is_some_and(|now| now == *before)
        })
    }
}

/// The lines of a histogram that were read just now.
///
/// Most measurements of a point fall into a few buckets, and the other buckets need not be read:
/// counters only grow within a window, and a cell shows how many measurements they hold. So as soon
/// as the lines that were read account for all new measurements, the other lines are unchanged.
#[derive(Debug, Default)]
pub(super) struct ReadLines(pub(super) Vec<ReadLine>);

#[derive(Debug)]
pub(super) struct ReadLine {
    part: u8,
    line: u8,
    counts: Line,
}

impl ReadLines {
    /// Reads lines until the known counts and the new ones account for all `measured` measurements;
    /// false if they never do. The last measurement took `last` ticks.
    pub(super) fn read_on(
        &mut self,
        segment: Sparse<'_>,
        cell: &Cell,
        known: &Histogram,
        (measured, last): (u64, u64),
        near: &mut Near,
    ) -> Result<bool, NoMemory> {
        self.0.clear();
        let mut missing = measured.wrapping_sub(known.counted);
        if missing == 0 {
            return Ok(true);
        }
        // Most likely all new measurements are in the line of the last one.
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
                    return Ok(false);
                }
                if more > 0 {
                    self.0.try_push(ReadLine { part: part as u8, line: line as u8, counts })?;
                }
                missing -= more;
                if missing == 0 {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// A bit for each part.
const ALL_PARTS: u64 = (1 << PARTS) - 1;

/// The counters of a chunk; `None` if the chunk does not exist.
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
