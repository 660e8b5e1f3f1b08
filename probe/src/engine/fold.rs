//! The fold: adds the records of a thread's ring to its cells.
//!
//! The first record of a page folds all records before it, so the cost of keeping figures falls on
//! one end in 128, and a cell is written once for many records.
//!
//! A run of records that name the same points is added up in registers ([`run`]). Other records are
//! added to batches, or to their cells one by one ([`mixed`]).
//!
//! ```text
//!  ring:   | in the cells | not folded yet | free ...
//!                         ^ folded         ^ written
//! ```
//!
//! The caller has marked the thread as busy: a signal handler that interrupts a fold records on
//! another lane. A handler that jumps out leaves figures that are not published, which [`recover`]
//! drops.

mod mixed;
mod run;

use std::ptr;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::SumWords;
use pfp_shm_layout::calls::CallSums;
use pfp_shm_layout::cell::{self, Cell, Sums};
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::histogram::{self, BUCKETS, FIRST_OCTAVE_NUMBER};
use pfp_shm_layout::ring::{self, Addition, Slot};
use pfp_shm_layout::segment::Segment;

use super::process::memory::clear_chunk;
use super::process::{self, Process};
use super::thread::ring::SLOTS_PER_PAGE;
use super::thread::{Entry, Thread};
use crate::doubles::Doubles;

pub(super) use mixed::Batches;
use mixed::fold_mixed;
use run::fold_run;

/// Adds the unfolded records to the cells of the calling thread, and charges the time of the fold
/// to no open region.
pub(super) fn fold(thread: &Thread) {
    if thread.written() == thread.folded.load(Relaxed) {
        return;
    }
    let began = thread.uncovered_ticks();
    fold_up_to_now(thread);
    let took = (thread.uncovered_ticks().wrapping_sub(began) as i64).max(0) as u64;
    thread.cover(took);
    cell::add(&thread.counters().folding, took);
}

/// Repairs the interrupted changes that no thread will finish, and folds the remaining records. The
/// thread is the calling one, or has ended.
#[cold]
pub(super) fn recover(process: &Process, thread: &Thread) {
    for (number, entry) in thread.entries(process.segment.points_used()) {
        entry.batch.store(0, Relaxed);
        if let Some(cell) = entry.cell() {
            mend(&process.segment, thread, number, cell);
        }
    }
    fold_again(thread);
}

/// Drops the figures that an interrupted change has left unpublished in a cell, and removes their
/// measurements from the histogram.
fn mend(segment: &Segment, thread: &Thread, point: u32, cell: &Cell) {
    let held = |chunk| {
        let Some(chunk) = segment.chunk(chunk) else { return 0 };
        chunk.0.iter().fold(0, |sum: u64, bucket| sum.wrapping_add(bucket.load(Relaxed)))
    };
    let clear = |chunk| clear_chunk(segment, chunk);
    let (counted, last) = cell.mend(segment.sums(cell.amounts()), held, clear);
    if counted > 0 {
        let not_folded = first(thread).max(cell.folded())..thread.written();
        let additions = not_folded.filter_map(|number| thread.slot(number).addition());
        let of_point = additions.filter(|addition| addition.point == point);
        let folded = of_point.map(|addition| addition.exclusive);
        // A measurement that is not from the ring was added by a change of its own. `last` has its
        // ticks.
        for ticks in folded.chain([last]).take(counted as usize) {
            if let Some(bucket) = thread.bucket(cell, ticks) {
                cell::add(bucket, u64::MAX);
            }
        }
    }
    cell.mended(segment.sums(cell.amounts()));
}

/// Number of the first unfolded record that is still in the ring.
fn first(thread: &Thread) -> u64 {
    let oldest = thread.written().saturating_sub(RING_SLOTS as u64);
    thread.folded.load(Relaxed).max(oldest)
}

/// Folds all unfolded records.
fn fold_up_to_now(thread: &Thread) {
    let written = thread.written();
    let mut next = first(thread);
    while next < written {
        let end = written.min((next + 1).next_multiple_of(SLOTS_PER_PAGE as u64));
        if !fold_some(thread, next, end) {
            return;
        }
        next = end;
        announce(thread, end);
    }
}

/// Folds all records again after an interrupted fold. Some cells may already hold some of the
/// records, and the number of folded records may lag behind a record that its cell already holds.
fn fold_again(thread: &Thread) {
    let written = thread.written();
    for number in first(thread)..written {
        let slot = thread.slot(number);
        let Some(addition) = slot.addition() else { continue };
        let Addition { exclusive, inclusive, .. } = addition;
        let Some(entry) = thread.entry_of(addition.point) else { continue };
        let cell = entry.cell();
        let is_missing = cell.is_some_and(|cell| cell.folded() <= number);
        if is_missing && !fold_one(thread, entry, slot, number + 1) {
            return;
        }
        // A fold adds a record first to its cell and then to its edge, so the edge can lack a
        // record that the cell has.
        if cell.is_some() && !is_missing && thread.lacks_call(slot.names(), number) {
            let one = CallSums { count: 1, exclusive, inclusive };
            thread.add_call(entry, slot.names(), one, number + 1);
        }
    }
    announce(thread, written);
}

/// Announces that the records below `folded` are in the cells.
pub(super) fn announce(thread: &Thread, folded: u64) {
    thread.folded.store(folded, Relaxed);
    ring::announce_folded(&thread.counters().folded, folded);
}

/// Folds records of one page. False in a child that a signal handler has forked during the call.
fn fold_some(thread: &Thread, mut from: u64, end: u64) -> bool {
    let mut rest = thread.slots(from, end);
    // Most pages have records of one point with one caller.
    loop {
        let Some(folded) = fold_run(thread, rest, from) else { return false };
        rest = rest.get(folded..).unwrap_or_default();
        from += folded as u64;
        if rest.is_empty() || folded < LONG {
            return rest.is_empty() || fold_mixed(thread, rest, from);
        }
    }
}

/// After a run of this many records another run is likely.
const LONG: usize = 8;

/// Folds one record, out of line; see [`fold_here`].
#[inline(never)]
fn fold_one(thread: &Thread, entry: &Entry, slot: &Slot, end: u64) -> bool {
    fold_here(thread, entry, slot, end)
}

/// Folds one record, inline. False in a child that a signal handler has forked during the call.
#[inline(always)]
fn fold_here(thread: &Thread, entry: &Entry, slot: &Slot, end: u64) -> bool {
    let added = slot.added();
    let one = Sums::one(added.exclusive(), added.inclusive());
    let (part, bucket) = histogram::locate(one.last);
    let simple = entry.cell().filter(|cell| cell.is_simple());
    let chunk_of = |cell| Some((cell, thread.chunk(Cell::part(cell, part))?));
    let Some((cell, chunk)) = simple.and_then(chunk_of) else {
        return fold_alone(thread, entry, slot, end);
    };
    let staged = cell.stage_more();
    // Checked as late as possible: a forked child must not change its parent's histogram, which has
    // no unpublished copy.
    if !thread.is_still_alive() {
        return false;
    }
    cell::add(&chunk.0[bucket], 1);
    cell.append_simple(staged, &one, end);
    thread.add_call(entry, slot.names(), calls_of(&one), end)
}

/// Like [`fold_one`], for a cell that is not [simple](Cell::is_simple), or whose histogram lacks a
/// part.
#[cold]
#[inline(never)]
fn fold_alone(thread: &Thread, entry: &Entry, slot: &Slot, end: u64) -> bool {
    // In a forked child the table reads zero.
    let Some(cell) = entry.cell() else { return thread.is_alive() };
    let added = slot.added();
    let one = Sums::one(added.exclusive(), added.inclusive());
    let _ = cell.stage_more();
    if count(thread, cell, one.last).is_none() {
        return false;
    }
    append(entry, cell, one.clone(), slice::from_ref(slot), end);
    thread.add_call(entry, slot.names(), calls_of(&one), end)
}

/// Counts a record in the histogram of its cell, and adds a missing part. `None` in a child that a
/// signal handler has forked during the call.
fn count(thread: &Thread, cell: &Cell, exclusive: u64) -> Option<()> {
    let (part, bucket) = histogram::locate(exclusive);
    let chunk = thread.part_for(cell, part);
    if !thread.is_still_alive() {
        return None;
    }
    if let Some(chunk) = chunk {
        cell::add(&chunk.0[bucket], 1);
    }
    Some(())
}

/// The part of the histogram that has the bucket of an [octave number](histogram::octave_number).
#[inline(always)]
fn part(octave_number: usize) -> usize {
    (octave_number - FIRST_OCTAVE_NUMBER) / BUCKETS
}

/// The exclusive and inclusive ticks of a record, as doubles; either may be below zero.
#[inline(always)]
fn ticks(slot: &Slot) -> Doubles {
    // SAFETY: a slot has two 32-bit numbers at this offset.
    unsafe { Doubles::of_behind::<{ Slot::ADDED }>(ptr::from_ref(slot).cast()) }
}

/// Sums of records, in doubles, because their addition takes the fewest instructions. The sums are
/// exact, except `squares` if the exclusive ticks of a record are [`RecordSums::SMALL`] or more.
#[derive(Clone, Copy, Debug)]
struct RecordSums {
    /// Exclusive and inclusive ticks.
    both: Doubles,
    /// The squares of the exclusive ticks.
    squares: f64,
    /// The minimum of the exclusive ticks, and their negated maximum, so that one instruction
    /// updates both.
    extremes: Doubles,
    count: u64,
}

impl RecordSums {
    /// Ticks below this are small: the squares of a page of them add up to less than 2^53.
    const SMALL: u64 = 1 << 23;

    fn none() -> Self {
        const { assert!(Self::SMALL.pow(2) * SLOTS_PER_PAGE as u64 <= 1 << 53) };
        let extremes = Doubles::of(f64::INFINITY, 0.0);
        Self { both: Doubles::both(0.0), squares: 0.0, extremes, count: 0 }
    }

    /// The sums over the records of both.
    fn merged(self, more: Self) -> Self {
        Self {
            both: self.both.add(more.both),
            squares: self.squares + more.squares,
            extremes: self.extremes.min(more.extremes),
            count: self.count + more.count,
        }
    }

    /// The sums that an edge has.
    #[inline(always)]
    fn of_calls(&self) -> CallSums {
        let (exclusive, inclusive) = (whole(self.both.first()), whole(self.both.second()));
        CallSums { count: self.count, exclusive, inclusive }
    }

    /// The sums of the records of a point. `slots` include other points' records.
    #[inline(always)]
    fn whole(&self, point: u32, slots: &[Slot], last: &Slot) -> Sums {
        let CallSums { count, exclusive, inclusive } = self.of_calls();
        let (min, max) = (whole(self.extremes.first()), whole(-self.extremes.second()));
        let last = last.added().exclusive();
        let squares = match max < Self::SMALL {
            true => u128::from(whole(self.squares)),
            false => of_point(slots, point).map(|ticks| u128::from(ticks).pow(2)).sum(),
        };
        // A region that was off the CPU is not folded, because its end adds it to the cell. The
        // caller computes the average.
        let (off_cpu, switches, longest, average) = (0, 0, 0, 0);
        Sums {
            count,
            exclusive,
            inclusive,
            off_cpu,
            switches,
            longest,
            min,
            max,
            last,
            squares,
            average,
        }
    }
}

/// Converts a sum to an integer below 2^53.
#[inline(always)]
fn whole(sum: f64) -> u64 {
    // SAFETY: the sum of fewer than 2^21 numbers of 32 bits is finite. The conversion is signed,
    // because an unsigned one sets the host's flag for inexact results.
    unsafe { sum.to_int_unchecked::<i64>() as u64 }
}

/// The exclusive ticks of the records of a point.
fn of_point(slots: &[Slot], point: u32) -> impl Iterator<Item = u64> {
    let of_point = slots.iter().filter(move |slot| slot.point() == point);
    of_point.map(|slot| slot.added().exclusive())
}

/// Adds the records of a point to its cell, which then holds the lane's records below `end`.
/// `slots` include other points' records.
#[inline(always)]
fn add(entry: &Entry, cell: &Cell, sum: &RecordSums, slots: &[Slot], last: &Slot, end: u64) {
    let more = sum.whole(cell.point(), slots, last);
    if cell.is_simple() {
        return cell.append_simple(cell.staged(), &more, end);
    }
    append(entry, cell, more, slots, end);
}

/// Like [`add`], for a cell that is not [simple](Cell::is_simple).
#[inline(never)]
fn append(entry: &Entry, cell: &Cell, mut more: Sums, slots: &[Slot], end: u64) {
    let (staged, control) = (cell.staged(), entry.follows());
    if control.alpha_fixed() != 0 {
        let (count, average) = cell.averaged(staged);
        more.average = average;
        let mut all = of_point(slots, cell.point());
        if count == 0 {
            all.by_ref().take(1).for_each(|ticks| more.take_into_average(control, true, ticks));
        }
        all.for_each(|ticks| more.take_into_average(control, false, ticks));
    }
    cell.append(staged, &more, sums(cell), end);
}

fn calls_of(sums: &Sums) -> CallSums {
    let Sums { count, exclusive, inclusive, .. } = *sums;
    CallSums { count, exclusive, inclusive }
}

fn sums(cell: &Cell) -> Option<&SumWords> {
    match cell.amounts() {
        0 => None,
        chunk => process::current()?.segment.sums(chunk),
    }
}
