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

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::amounts::SumWords;
use pfp_shm_layout::calls::CallSums;
use pfp_shm_layout::cell::{self, Cell, Sums};
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::histogram::{self, BUCKETS, FIRST_OCTAVE_NUMBER};
use pfp_shm_layout::ring::{self, Added, Addition, Slot, What};
use pfp_shm_layout::segment::{Chunk, Segment};

use super::process::memory::clear_chunk;
use super::process::{self, Process};
use super::thread::calls::EdgeIndex;
use super::thread::ring::SLOTS_PER_PAGE;
use super::thread::{Entry, Thread};
use crate::doubles::Doubles;

/// Adds what was recorded to the cells of the calling thread, and takes the time out of the
/// regions that are open.
pub(super) fn fold(thread: &Thread) {
    if thread.written() == thread.folded.load(Relaxed) {
        return;
    }
    let began = thread.spent();
    fold_up_to_now(thread);
    let took = (thread.spent().wrapping_sub(began) as i64).max(0) as u64;
    thread.cover(took);
    cell::add(&thread.counters().folding, took);
}

/// Repairs the changes that were cut off and that no thread will finish, and folds the remaining
/// records. The thread is the calling one, or has ended.
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

/// Drops what is staged of a cell, and takes it out of the histogram.
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
    let written = thread.written();
    for number in first(thread)..written {
        let slot = thread.slot(number);
        let Some(addition) = slot.addition() else { continue };
        let Addition { point, caller, exclusive, inclusive } = addition;
        let Some(entry) = thread.entry_of(point) else { continue };
        let cell = entry.cell();
        let is_missing = cell.is_some_and(|cell| cell.folded() <= number);
        if is_missing && !fold_one(thread, point, caller, slot.added(), number + 1) {
            return;
        }
        // The cell was first.
        if cell.is_some() && !is_missing && thread.lacks_call(caller, point, number) {
            let one = CallSums { count: 1, exclusive, inclusive };
            thread.add_call(entry, caller, point, one, number + 1);
        }
    }
    announce(thread, written);
}

/// The records below a number are in the cells.
pub(super) fn announce(thread: &Thread, folded: u64) {
    thread.folded.store(folded, Relaxed);
    ring::announce_folded(&thread.counters().folded, folded);
}

/// Folds records of one page. False in a child that a signal handler has forked in here.
fn fold_some(thread: &Thread, from: u64, end: u64) -> bool {
    let slots = thread.slots(from, end);
    let first = slots.first().map_or(What::default(), Slot::what);
    // Most often all are of one point, with one caller.
    let names = slots.iter().fold(0, |differ, slot| differ | slot.names() ^ first.names);
    let differ = What { names, ..first };
    if differ.point() == 0 {
        let point = first.point();
        let callers = Callers::of(differ.caller() == 0, first.caller(), slots);
        return fold_point(thread, point, callers, slots, end);
    }
    // The lowest six bits of a point tell most points apart.
    let some = slots.iter().take(SOME);
    let seen = some.fold(0u64, |seen, slot| seen | 1 << (slot.point() % u64::BITS));
    match seen.count_ones() > MANY {
        true => fold_in_turn(thread, slots, from),
        false => fold_sorted(thread, slots, end),
    }
}

/// If [`SOME`] records have more points than that, sorting a page of them does not pay.
const MANY: u32 = 32;
const SOME: usize = 64;

/// Folds records of many points, one by one.
#[inline(never)]
fn fold_in_turn(thread: &Thread, slots: &[Slot], from: u64) -> bool {
    (from..).zip(slots).all(|(number, slot)| {
        fold_one(thread, slot.point(), slot.caller(), slot.added(), number + 1)
    })
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
    // SAFETY: the thread's own, zeros at first; the caller has marked the thread, so that no
    // handler is here as well.
    let Sorting { points, counts, callers, differ, of, next, sorted } =
        unsafe { &mut *thread.sorting() };
    counts.fill(0);
    differ.fill(false);
    let mut distinct = 0;
    for (slot, of) in slots.iter().zip(&mut *of) {
        let what = What { names: slot.names(), place: 0 };
        let known = thread.entry_of(what.point()).map(|entry| (what.point(), entry));
        let (point, entry) = known.unwrap_or((0, thread.first_entry()));
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
        if let Some(entry) = thread.entry_of(point) {
            entry.batch.store(0, Relaxed);
        }
        if let ([one], false) = (added, differ[number]) {
            return fold_one(thread, point, callers[number], *one, end);
        }
        let callers = Callers::of(!differ[number], callers[number], slots);
        fold_point(thread, point, callers, added, end)
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
fn add_calls(thread: &Thread, entry: &Entry, point: u32, slots: &[Slot], end: u64) -> bool {
    const { assert!(SLOTS_PER_PAGE <= u128::BITS as usize) };
    let is_of_point = |slot: &Slot| slot.point() == point;
    let bits = slots.iter().enumerate().map(|(at, slot)| u128::from(is_of_point(slot)) << at);
    let mut left = bits.fold(0, |bits, bit| bits | bit);
    while left != 0 {
        let first = left.trailing_zeros() as usize;
        let caller = slots[first].caller();
        let mut sums = CallSums::default();
        for (at, slot) in slots.iter().enumerate().skip(first) {
            if left >> at & 1 != 0 && slot.caller() == caller {
                left &= !(1 << at);
                let added = slot.added();
                let (exclusive, inclusive) = (added.exclusive(), added.inclusive());
                sums.add(CallSums { count: 1, exclusive, inclusive });
            }
        }
        if !thread.add_call(entry, caller, point, sums, end) {
            return false;
        }
    }
    true
}

/// Adds to the cell of a point; the lane's records up to `end` are in it then. False in a child
/// that a signal handler has forked in here.
#[inline(never)]
fn fold_point<T: Source>(
    thread: &Thread,
    point: u32,
    callers: Callers<'_>,
    records: &[T],
    end: u64,
) -> bool {
    let Some(entry) = thread.entry_of(point) else { return true };
    // In a forked child the table reads zero.
    let Some(cell) = entry.cell() else { return thread.is_alive() };
    let staged = cell.stage_more();
    let Some(mut more) = add_up(thread, cell, records) else { return false };
    let control = entry.follows();
    if control.alpha_fixed() != 0 {
        let (count, average) = cell.averaged(staged);
        more.average = average;
        for (at, record) in records.iter().enumerate() {
            more.take_into_average(control, count == 0 && at == 0, record.added().exclusive());
        }
    }
    cell.append(staged, &more, sums(cell), end);
    let Sums { count, exclusive, inclusive, .. } = more;
    match callers {
        Callers::One(caller) => {
            let sums = CallSums { count, exclusive, inclusive };
            thread.add_call(entry, caller, point, sums, end)
        }
        Callers::Of(slots) => add_calls(thread, entry, point, slots, end),
    }
}

/// As [`fold_point`], of one record. Each of its calls is its last step, so it needs no stack.
#[inline(never)]
fn fold_one(thread: &Thread, point: u32, caller: u32, added: Added, end: u64) -> bool {
    let Some(entry) = thread.entry_of(point) else { return true };
    let exclusive = added.exclusive();
    let (part, bucket) = histogram::locate(exclusive);
    let simple = entry.cell().filter(|cell| cell.is_simple());
    let chunk_of = |cell| Some((cell, thread.chunk(Cell::part(cell, part))?));
    let Some((cell, chunk)) = simple.and_then(chunk_of) else {
        return fold_alone(thread, point, caller, added, end);
    };
    let staged = cell.stage_more();
    // As late as that: the histogram has no copy that a child could write to.
    if !thread.is_still_alive() {
        return false;
    }
    cell::add(&chunk.0[bucket], 1);
    let inclusive = added.inclusive();
    cell.append_one(staged, exclusive, inclusive, end);
    let one = CallSums { count: 1, exclusive, inclusive };
    thread.add_call(entry, caller, point, one, end)
}

/// As [`fold_one`], for a cell whose other figures may change too.
#[cold]
#[inline(never)]
fn fold_alone(thread: &Thread, point: u32, caller: u32, added: Added, end: u64) -> bool {
    fold_point(thread, point, Callers::One(caller), &[added], end)
}

/// What a record of one point is found in.
trait Source {
    fn added(&self) -> Added;
    /// The same as doubles.
    fn ticks(&self) -> Doubles;
}

impl Source for Slot {
    #[inline(always)]
    fn added(&self) -> Added {
        Slot::added(self)
    }

    #[inline(always)]
    fn ticks(&self) -> Doubles {
        // SAFETY: in the slot.
        unsafe { Doubles::of_behind::<{ Slot::ADDED }>(ptr::from_ref(self).cast()) }
            .first_not_below_zero()
    }
}

impl Source for Added {
    #[inline(always)]
    fn added(&self) -> Added {
        *self
    }

    #[inline(always)]
    fn ticks(&self) -> Doubles {
        const { assert!(size_of::<Self>() == 8) };
        // SAFETY: these are those two.
        unsafe { Doubles::of_behind::<0>(ptr::from_ref(self).cast()) }.first_not_below_zero()
    }
}

/// Counts records of one point in the histogram of their cell, and adds them up. None in a child
/// that a signal handler has forked in here.
#[inline(always)]
fn add_up<T: Source>(thread: &Thread, cell: &Cell, records: &[T]) -> Option<Sums> {
    let (mut sum, mut rest) = (Sum::none(), records);
    // All but what is to be counted where there is no memory yet, or in a forked child.
    loop {
        let added = sum.add(thread, cell, rest).addr() - rest.as_ptr().addr();
        let left = rest.get(added / size_of::<T>()..).unwrap_or_default();
        let Some((record, after)) = left.split_first() else { break };
        count(thread, cell, record.added().exclusive())?;
        rest = after;
    }
    // By numbers with a sign: the other way sets the host's flag of inexact results.
    let whole = |sum: f64| sum as i64 as u64;
    let (exclusive, inclusive) = (whole(sum.both.first()), whole(sum.both.second()));
    let (min, max) = (whole(sum.min), whole(sum.max));
    let squares = match max < Sum::SMALL {
        true => u128::from(whole(sum.squares.first())),
        false => records.iter().map(|record| u128::from(record.added().exclusive()).pow(2)).sum(),
    };
    let last = records.last().map_or(0, |record| record.added().exclusive());
    let count = records.len() as u64;
    // A region that was off the CPU has no record to be added; the caller averages.
    let (off_cpu, switches, average) = (0, 0, 0);
    Some(Sums { count, exclusive, inclusive, off_cpu, switches, min, max, last, squares, average })
}

/// What records add up to, in doubles: that takes the fewest instructions. They hold all of it
/// exactly, but for squares of [`Sum::SMALL`] and more.
#[repr(C)]
struct Sum {
    /// Exclusive and inclusive ticks.
    both: Doubles,
    /// The squares of the exclusive ticks, and beside them others that nobody needs.
    squares: Doubles,
    /// Extremes of the exclusive ticks.
    min: f64,
    max: f64,
}

/// Counts a record in the histogram of its cell, which is given a part if need be. None in a child
/// that a signal handler has forked in here.
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

impl Sum {
    fn none() -> Self {
        Self { both: Doubles::zero(), squares: Doubles::zero(), min: f64::INFINITY, max: 0.0 }
    }

    /// Squares of less, a page of them, add up to less than 2^53.
    const SMALL: u64 = 1 << 23;

    /// Adds records and counts them in the histogram of their cell, up to one that is added and
    /// cannot be counted: returns where that is, or the end. It calls nothing, so that all the loop
    /// needs stays in registers.
    #[inline(never)]
    fn add<T: Source>(&mut self, thread: &Thread, cell: &Cell, records: &[T]) -> *const T {
        const { assert!(Self::SMALL.pow(2) * SLOTS_PER_PAGE as u64 <= 1 << 53) };
        let Self { mut both, mut squares, mut min, mut max } = *self;
        // The histogram part that was last added to, and the octave number of its first bucket.
        let (mut chunk, mut first) = (&NO_CHUNK, 0);
        // By a pointer, so that the loop needs neither a count nor what is returned.
        let Range { start: mut at, end } = records.as_ptr_range();
        while at < end {
            // SAFETY: one of them.
            let ticks = unsafe { &*at }.ticks();
            both = both.add(ticks);
            let own = ticks.first();
            squares = squares.add(ticks.squared());
            min = if min < own { min } else { own };
            max = if max > own { max } else { own };
            let mut bucket = histogram::octave_number(own).wrapping_sub(first);
            if bucket >= BUCKETS {
                let number = first.wrapping_add(bucket);
                first = number / BUCKETS * BUCKETS;
                bucket = number % BUCKETS;
                match thread.chunk(cell.part((first - FIRST_OCTAVE_NUMBER) / BUCKETS)) {
                    Some(found) => chunk = found,
                    None => break,
                }
            }
            // As late as that: the histogram has no copy that a child could write to.
            if !thread.is_still_alive() {
                break;
            }
            cell::add(&chunk.0[bucket], 1);
            // SAFETY: the next one, or behind the last one.
            at = unsafe { at.add(1) };
        }
        *self = Self { both, squares, min, max };
        at
    }
}

/// In place of a histogram part, of which nothing is read or written.
static NO_CHUNK: Chunk = Chunk([const { AtomicU64::new(0) }; BUCKETS]);

fn sums(cell: &Cell) -> Option<&SumWords> {
    match cell.amounts() {
        0 => None,
        chunk => process::current()?.segment.sums(chunk),
    }
}

impl Thread {
    /// Where a fold sorts: behind the table, since a signal handler's stack may be small.
    fn sorting(&self) -> *mut Sorting {
        self.behind_table().wrapping_add(size_of::<EdgeIndex>()).cast()
    }
}
