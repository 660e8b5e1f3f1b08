//! The fold: what a thread's ring holds, added to its cells.
//!
//! The first record of a page folds all that were written before, so the cost of keeping
//! figures falls on one end in so many, and each cell is written once for all its records.
//!
//! ```text
//!  ring:   | in the cells | not folded yet | free ...
//!                         ^ folded         ^ written
//! ```
//!
//! Whoever folds has marked the thread as busy: a signal handler that comes meanwhile
//! records elsewhere. One that jumps out leaves figures staged, which [`recover`] drops.

use std::iter;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::SumWords;
use pfp_shm_layout::calls::CallSums;
use pfp_shm_layout::cell::{self, Cell, Sums};
use pfp_shm_layout::histogram::{self, BUCKETS};
use pfp_shm_layout::ring::{self, Added, Addition, Slot, What};
use pfp_shm_layout::segment::{RING_SLOTS, Segment};

use super::process::{self, Process};
use super::thread::{self, SLOTS_PER_PAGE, Thread};

/// Adds what was recorded to the cells of the calling thread, and takes the time out of the
/// regions that are open.
pub(super) fn fold(thread: &Thread) {
    if thread.written() == thread.folded.load(Relaxed) {
        return;
    }
    // On the context's clock: the thread may be switched out in between.
    let began = thread.on_cpu();
    fold_up_to_now(thread);
    let took = (thread.on_cpu().wrapping_sub(began) as i64).max(0) as u64;
    thread.cover(took);
    cell::add(&thread.tally().folding, took);
}

/// Puts right what was cut off in the middle and that nobody goes on with, and folds what is
/// left. The thread is the calling one, or has ended.
#[cold]
pub(super) fn recover(process: &Process, thread: &Thread) {
    let points = process.segment.ledger().points_used.load(Relaxed);
    let points = points.min(thread.points.load(Relaxed)) as usize;
    for index in 0..points {
        let entry = thread.entry(index);
        entry.batch.store(0, Relaxed);
        if let Some(cell) = entry.cell() {
            mend(&process.segment, thread, index, cell);
        }
    }
    fold_again(thread);
}

/// Drops what is staged of a cell, and takes it out of the histogram.
fn mend(segment: &Segment, thread: &Thread, index: usize, cell: &Cell) {
    let held = |chunk| {
        let Some(chunk) = segment.chunk(chunk) else { return 0 };
        chunk.0.iter().fold(0, |sum: u64, bucket| sum.wrapping_add(bucket.load(Relaxed)))
    };
    let clear = |chunk| thread::clear_chunk(segment, chunk);
    let (counted, last) = cell.mend(segment.sums(cell.amounts()), held, clear);
    if counted > 0 {
        let not_folded = first(thread).max(cell.folded())..thread.written();
        let additions = not_folded.filter_map(|number| thread.slot(number).addition());
        let of_point = additions.filter(|addition| addition.point as usize == index);
        let folded = of_point.map(|addition| addition.exclusive);
        // One that was recorded beside the ring comes when nothing else waits.
        for ticks in folded.chain([last]).take(counted as usize) {
            if let Some(bucket) = thread.bucket(cell, ticks) {
                cell::add(bucket, u64::MAX);
            }
        }
    }
    cell.mended(segment.sums(cell.amounts()));
}

/// The first record that is not folded, and still there.
fn first(thread: &Thread) -> u64 {
    let oldest = thread.written().saturating_sub(RING_SLOTS as u64);
    thread.folded.load(Relaxed).max(oldest)
}

/// Folds all records that are not folded.
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

/// Folds all records after a fold that was cut off: some cells may hold some of them already, and a
/// counted record may not be announced.
fn fold_again(thread: &Thread) {
    let (written, points) = (thread.written(), thread.points.load(Relaxed));
    for number in first(thread)..written {
        let slot = thread.slot(number);
        let Some(addition) = slot.addition() else { continue };
        let Addition { point, caller, exclusive, inclusive } = addition;
        let cell = (u64::from(point) < points).then(|| thread.cell(point as usize)).flatten();
        let is_missing = cell.is_some_and(|cell| cell.folded() <= number);
        let added = iter::once(slot.added());
        if is_missing && !fold_point(thread, point, Callers::One(caller), added, number + 1) {
            return;
        }
        // The cell was first.
        if cell.is_some() && !is_missing && thread.lacks_call(caller, point, number) {
            let one = CallSums { count: 1, exclusive, inclusive };
            thread.add_call(caller, point, one, number + 1);
        }
    }
    announce(thread, written);
}

/// The records below a number are in the cells.
pub(super) fn announce(thread: &Thread, folded: u64) {
    thread.folded.store(folded, Relaxed);
    ring::announce_folded(&thread.tally().folded, folded);
}

/// Folds records of one page. False in a child that a signal handler has forked in here.
fn fold_some(thread: &Thread, from: u64, end: u64) -> bool {
    let slots = thread.slots(from, end);
    let first = slots.first().map_or(What::default(), Slot::what);
    // Most often all are of one point, with one caller.
    let differ = slots.iter().fold(0, |differ, slot| differ | slot.what().key ^ first.key);
    let differ = What { key: differ, ..first };
    if differ.point() == 0 {
        let point = first.point();
        if u64::from(point) >= thread.points.load(Relaxed) {
            return true;
        }
        let callers = Callers::of(differ.caller() == 0, first.caller(), slots);
        return fold_point(thread, point, callers, slots.iter().map(Slot::added), end);
    }
    fold_sorted(thread, slots, end)
}

/// The records of a page, sorted by point.
#[derive(Debug)]
pub(super) struct Sorting {
    points: [u32; SLOTS_PER_PAGE],
    /// How many records each of the points has.
    counts: [u8; SLOTS_PER_PAGE],
    /// The caller of the first record of each.
    callers: [u32; SLOTS_PER_PAGE],
    /// Whether all of its records have that.
    differ: [bool; SLOTS_PER_PAGE],
    /// Which of the points each record is of.
    of: [u8; SLOTS_PER_PAGE],
    /// Where the next record of each point goes.
    next: [u8; SLOTS_PER_PAGE],
    sorted: [Added; SLOTS_PER_PAGE],
}

/// Folds records of several points.
#[inline(never)]
fn fold_sorted(thread: &Thread, slots: &[Slot], end: u64) -> bool {
    let known = thread.points.load(Relaxed);
    // SAFETY: the thread's own, zeros at first; the caller has marked the thread, so that no
    // handler is here as well.
    let Sorting { points, counts, callers, differ, of, next, sorted } =
        unsafe { &mut *thread.sorting() };
    counts.fill(0);
    differ.fill(false);
    let mut distinct = 0;
    for (slot, of) in slots.iter().zip(&mut *of) {
        let what = slot.what();
        // Another process may have written there.
        let point = if u64::from(what.point()) < known { what.point() } else { 0 };
        let entry = thread.entry(point as usize);
        let mut number = entry.batch.load(Relaxed) as usize;
        if number == 0 {
            entry.fetch_cell();
            points[distinct % SLOTS_PER_PAGE] = point;
            callers[distinct % SLOTS_PER_PAGE] = what.caller();
            distinct += 1;
            number = distinct;
            entry.batch.store(number as u32, Relaxed);
        }
        let number = (number - 1) % SLOTS_PER_PAGE;
        *of = number as u8;
        counts[number] += 1;
        differ[number] |= callers[number] != what.caller();
    }
    let distinct = distinct.min(SLOTS_PER_PAGE);
    // Where the next record of each goes.
    let mut sum = 0;
    for (next, count) in next.iter_mut().zip(&counts[..distinct]) {
        *next = sum;
        sum += count;
    }
    for (slot, of) in slots.iter().zip(&*of) {
        let next = &mut next[usize::from(*of) % SLOTS_PER_PAGE];
        sorted[usize::from(*next) % SLOTS_PER_PAGE] = slot.added();
        *next += 1;
    }
    let mut rest = &sorted[..];
    (0..distinct).all(|number| {
        let (point, count) = (points[number], usize::from(counts[number]));
        let added;
        (added, rest) = rest.split_at(count.min(rest.len()));
        thread.entry(point as usize).batch.store(0, Relaxed);
        let callers = Callers::of(!differ[number], callers[number], slots);
        fold_point(thread, point, callers, added.iter().copied(), end)
    })
}

/// Which points were around some records of one point.
#[derive(Clone, Copy)]
enum Callers<'a> {
    /// One point, around all of them.
    One(u32),
    /// Several: these records say which, and others' besides.
    Of(&'a [Slot]),
}

impl<'a> Callers<'a> {
    #[inline(always)]
    fn of(is_one: bool, first: u32, slots: &'a [Slot]) -> Self {
        if is_one { Self::One(first) } else { Self::Of(slots) }
    }
}

/// Adds the records of a point to the edges from its callers. False in a child that a signal
/// handler has forked in here.
#[inline(never)]
fn add_calls(thread: &Thread, point: u32, slots: &[Slot], end: u64) -> bool {
    const { assert!(SLOTS_PER_PAGE <= u128::BITS as usize) };
    let is_of_point = |slot: &Slot| slot.point() == point;
    let bits = slots.iter().enumerate().map(|(at, slot)| u128::from(is_of_point(slot)) << at);
    let mut left = bits.fold(0, |bits, bit| bits | bit);
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let caller = slots[first].what().caller();
        let mut sums = CallSums::default();
        for (at, slot) in slots.iter().enumerate().skip(first) {
            if left >> at & 1 != 0 && slot.what().caller() == caller {
                left &= !(1 << at);
                let added = slot.added();
                let (exclusive, inclusive) = (added.exclusive(), added.inclusive());
                sums.add(CallSums { count: 1, exclusive, inclusive });
            }
        }
        if !thread.add_call(caller, point, sums, end) {
            return false;
        }
    }
    true
}

/// Adds to the cell of a point; the lane's records up to `end` are in it then. False in a child
/// that a signal handler has forked in here.
#[inline(always)]
fn fold_point(
    thread: &Thread,
    point: u32,
    callers: Callers<'_>,
    added: impl Iterator<Item = Added> + Clone,
    end: u64,
) -> bool {
    let entry = thread.entry(point as usize);
    // In a forked child the table reads zero.
    let Some(cell) = entry.cell() else { return thread.is_alive() };
    let mut live = cell.stage();
    cell.keep_minimum(&mut live);
    let control = entry.follows();
    if control.alpha_fixed() != 0 {
        let mut is_first = live.count == 0;
        for added in added.clone() {
            live.take_into_average(control, is_first, added.exclusive());
            is_first = false;
        }
    }
    // What they add, and the histogram apart: so registers do.
    let mut more = Sums::default();
    for added in added.clone() {
        more.add_short(added);
    }
    live.append(&more);
    let mut rest = added.map(|added| histogram::number(added.exclusive()));
    let mut next = rest.next();
    while let Some(number) = next {
        let (part, first) = (number / BUCKETS, number / BUCKETS * BUCKETS);
        let Some(chunk) = thread.part_for(cell, part) else {
            next = rest.next();
            continue;
        };
        // Those that follow are most often of the same part.
        let mut bucket = number - first;
        next = loop {
            // As late as that: the histogram has no copy that a child could write to.
            if !thread.is_alive() {
                return false;
            }
            cell::add(&chunk.0[bucket % BUCKETS], 1);
            let Some(number) = rest.next() else { break None };
            bucket = number.wrapping_sub(first);
            if bucket >= BUCKETS {
                break Some(number);
            }
        };
    }
    cell.put_in_force(&live, sums(cell), end);
    let Sums { count, exclusive, inclusive, .. } = more;
    match callers {
        Callers::One(caller) => {
            thread.add_call(caller, point, CallSums { count, exclusive, inclusive }, end)
        }
        Callers::Of(slots) => add_calls(thread, point, slots, end),
    }
}

fn sums(cell: &Cell) -> Option<&SumWords> {
    match cell.amounts() {
        0 => None,
        chunk => process::current()?.segment.sums(chunk),
    }
}
