//! Collects a point's figures from all threads' cells and rings.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use pfp_shm_layout::amounts::MAX_AMOUNTS;
use pfp_shm_layout::cell::{Cell, CellPicture, CellRead, Sums};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::heap::NoMemory;
use pfp_shm_layout::histogram::{self, BUCKETS, PARTS};
use pfp_shm_layout::ring;
use pfp_shm_layout::segment::Segment;

use super::process::{self, Process};
use super::thread::Thread;
use crate::clock::calibrate;
use crate::point::Point;
use crate::stats::{Bucket, Stats, merged};

/// Whether the histogram is read, too, which allocates memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Histogram {
    Read,
    LeftOut,
}

pub(crate) fn of_point(point: &'static Point, histogram: Histogram) -> Option<Stats> {
    // Returns `None` for a refused point, too, because its number is another point's.
    let (stats, _) = of_points(point.word()?, std::iter::once(point), histogram)?;
    (stats.count > 0).then_some(stats)
}

/// Statistics over all points that follow the same control word, and the sums of amounts in their
/// cells. `None` without a process, or if memory runs out.
pub(crate) fn of_points(
    word: &AtomicU64,
    points: impl Iterator<Item = &'static Point>,
    histogram: Histogram,
) -> Option<(Stats, [u128; MAX_AMOUNTS])> {
    let control = Control(word.load(Relaxed));
    let process = process::current()?;
    let mut all = Collected { epoch: control.epoch(), ..Collected::default() };
    all.histogram = (histogram == Histogram::Read).then(Vec::new);
    for point in points {
        for lane in &process.lanes {
            // SAFETY: the pointer is null, or leads to pages that stay mapped as long as the
            // process runs.
            let Some(thread) = (unsafe { lane.load(Acquire).as_ref() }) else { continue };
            if let Some(cell) = thread.cell_of_any(point) {
                all.add(&process.segment, cell, Some(thread)).ok()?;
            }
        }
        for offset in process.segment.entry(point.index())?.shared_cells() {
            if let Some(cell) = process.segment.shared_cell(offset) {
                all.add(&process.segment, cell, None).ok()?;
            }
        }
    }
    let Collected { sums, weighted, averaged, amounts, histogram, .. } = all;
    let (mean, variance) = (sums.mean().unwrap_or(0.0), sums.variance().unwrap_or(0.0));
    // The fields are named one by one, so that a new field does not compile until this code uses it
    // or leaves it out.
    let Sums {
        count,
        exclusive,
        inclusive,
        off_cpu,
        switches,
        longest,
        min,
        max,
        last,
        squares: _,
        average: _,
    } = sums;
    let stats = Stats {
        count,
        exclusive,
        inclusive,
        off_cpu,
        switches,
        longest,
        min: if count > 0 { min } else { 0 },
        max,
        last,
        average: weighted / averaged.max(1) as f64,
        alpha: control.alpha().unwrap_or(0.0),
        mean,
        variance,
        // Callers in C read no histogram. They get ticks, which need no rate, and may be in a
        // signal handler, where the rate must not be refined.
        rate: histogram.as_ref().map_or(0.0, |_| rate(process)),
        histogram: histogram.map_or_else(Vec::new, merged),
    };
    Some((stats, amounts))
}

/// Ticks per second, as exactly as the process knows them.
fn rate(process: &Process) -> f64 {
    process.refine_rate();
    calibrate::ticks_per_second()
}

/// The figures of several cells together.
#[derive(Default)]
struct Collected {
    epoch: u32,
    sums: Sums,
    weighted: f64,
    averaged: u64,
    amounts: [u128; MAX_AMOUNTS],
    /// Buckets of all cells. `None` if the caller wants no histogram.
    histogram: Option<Vec<Bucket>>,
}

impl Collected {
    fn add(
        &mut self,
        segment: &Segment,
        cell: &Cell,
        thread: Option<&Thread>,
    ) -> Result<(), NoMemory> {
        let read = read(segment, (cell, thread), self.epoch, self.histogram.as_mut())?;
        let Some(picture) = read else { return Ok(()) };
        self.weighted += picture.live.average_ticks() * picture.live.count as f64;
        // The addition wraps, because another process may have written any number.
        self.averaged = self.averaged.wrapping_add(picture.live.count);
        self.sums.merge(&picture.live);
        self.sums.merge(&picture.retired);
        self.sums.bound_minimum();
        if picture.live.count > 0 {
            self.sums.last = picture.live.last;
        }
        for of in [picture.amounts.live, picture.amounts.retired] {
            for (sum, more) in self.amounts.iter_mut().zip(of) {
                *sum += u128::from(more);
            }
        }
        Ok(())
    }
}

/// Attempts to read a histogram that was written to during the read. If a thread was interrupted in
/// the middle of a write, no attempt succeeds.
const EXACT_TRIES: u32 = 20;

/// Copies a cell while its thread may write to it, and adds the thread's records that the cell
/// lacks, and the buckets of the cell's histogram. `None` if the cell has nothing of this epoch.
fn read(
    segment: &Segment,
    (cell, thread): (&Cell, Option<&Thread>),
    epoch: u32,
    mut histogram: Option<&mut Vec<Bucket>>,
) -> Result<Option<CellPicture>, NoMemory> {
    let mut picture = CellPicture::default();
    // Bounded, so that a signal handler that interrupts the writing thread itself cannot hang.
    for tried in 0..1000 {
        let sequence = cell.sequence();
        // The number of folded records is read before the cell, so that the cell holds at least
        // these records.
        let ring = thread.and_then(|thread| Some((thread.ring()?, thread.counters())));
        let folded = ring.map(|(_, counters)| ring::folded(&counters.folded));
        if cell.read_with(&mut picture, |chunk| segment.sums(chunk)) == CellRead::Torn {
            continue;
        }
        if picture.epoch != epoch {
            return Ok(None);
        }
        let before = histogram.as_ref().map_or(0, |buckets| buckets.len());
        let in_cell = picture.live.count.wrapping_add(picture.retired.count);
        // A running fold may have added its first records to the histogram already.
        let mut ahead = match &mut histogram {
            None => 0,
            Some(buckets) => {
                let in_buckets = add_buckets(segment, &picture, buckets)?;
                // The ring adds at most this many buckets.
                buckets.try_reserve(RING_SLOTS)?;
                in_buckets.saturating_sub(in_cell)
            }
        };
        let mut live = picture.live.clone();
        let visited = match (ring, folded) {
            (Some((slots, counters)), Some(folded)) => {
                let from = folded.max(picture.folded);
                ring::visit(&counters.written, slots, folded, |number, addition| {
                    if addition.point != picture.point || number < from {
                        return;
                    }
                    live.add(cell.control(), addition.exclusive, addition.inclusive);
                    if ahead > 0 {
                        ahead -= 1;
                    } else if let Some(buckets) = &mut histogram {
                        let (part, at) = histogram::locate(addition.exclusive);
                        #[allow(clippy::disallowed_methods, reason = "there is room for it")]
                        buckets.push(bucket(part, at, 1));
                    }
                })
                .is_some()
            }
            _ => true,
        };
        // If this is false, a histogram part may have appeared during the read, with some of the
        // records.
        let is_exact = histogram.is_none() || !picture.staged && cell.is_still(sequence);
        let is_enough = is_exact || tried >= EXACT_TRIES;
        if visited && is_enough && !cell.restarted_since(picture.restarts) {
            picture.live = live;
            return Ok(Some(picture));
        }
        // Some of the buckets may belong to the next window, or to a fold, so they are dropped.
        if let Some(buckets) = &mut histogram {
            buckets.truncate(before);
        }
    }
    Ok(None)
}

fn bucket(part: usize, at: usize, count: u64) -> Bucket {
    let (low, width) = histogram::bounds(part, at);
    Bucket { low, width, count }
}

/// Adds the buckets of a cell's histogram that are not empty, and returns how many measurements
/// they hold.
fn add_buckets(
    segment: &Segment,
    picture: &CellPicture,
    to: &mut Vec<Bucket>,
) -> Result<u64, NoMemory> {
    let before = to.len();
    for part in (0..PARTS).filter(|part| picture.parts.0[*part] != 0) {
        let Some(chunk) = segment.chunk(picture.parts.0[part]) else { continue };
        let counts = (0..BUCKETS).map(|at| (at, chunk.0[at].load(Relaxed)));
        to.try_reserve(BUCKETS)?;
        to.extend(counts.filter(|(_, count)| *count > 0).map(|(at, n)| bucket(part, at, n)));
    }
    Ok(to[before..].iter().fold(0, |sum: u64, bucket| sum.wrapping_add(bucket.count)))
}
