//! The fold of a run: consecutive records that name the same points, as most do.

use std::ops::Range;
use std::sync::atomic::AtomicU64;

use pfp_shm_layout::cell::{self, Cell};
use pfp_shm_layout::histogram::{BUCKETS, OCTAVE_BIT};
use pfp_shm_layout::ring::Slot;
use pfp_shm_layout::segment::Chunk;

use super::{RecordSums, add, count, part};
use crate::doubles::{Doubles, Numbers, greater, lesser};
use crate::engine::thread::Thread;
use crate::word;

const SLOT: usize = size_of::<Slot>();

/// Folds the first records as long as they name the same points, two at a time. Returns their
/// number. `None` in a child that a signal handler has forked during the call.
pub(super) fn fold_run(thread: &Thread, slots: &[Slot], from: u64) -> Option<usize> {
    let [first, second, ..] = slots else { return Some(0) };
    let names = first.names();
    let entry = thread.table().entry_named(names).filter(|_| second.names() == names);
    // In a forked child the table reads zero.
    let Some((entry, cell)) = entry.and_then(|entry| Some((entry, entry.cell()?))) else {
        return Some(0);
    };
    let _ = cell.stage_more();
    let (mut pairs, mut folded) = (Pairs::none(), 0);
    loop {
        folded += pairs.add(thread, cell, names, &slots[folded..]);
        // If `add` stopped at two records with these names, it has added them to the sums but not
        // to the histogram: a part of the histogram is missing, or this is a forked child.
        let [one, two, ..] = &slots[folded..] else { break };
        if one.names() != names || two.names() != names {
            break;
        }
        for slot in [one, two] {
            count(thread, cell, slot.added().exclusive())?;
        }
        folded += 2;
    }
    let (run, end) = (&slots[..folded], from + folded as u64);
    let Some(last) = run.last() else { return Some(0) };
    let sum = pairs.sum(folded as u64);
    // Checked as late as possible: a forked child still has the sums in its registers, and must not
    // add them.
    if !thread.is_still_alive() {
        return None;
    }
    add(entry, cell, &sum, run, last, end);
    thread.add_call(entry, names, sum.of_calls(), end).then_some(folded)
}

/// Sums of the records of a run, see [`RecordSums`]. Except in `both`, one half of a register has
/// the sum over the records at even indexes, and the other half over those at odd indexes.
struct Pairs {
    /// In the first half, exclusive ticks as recorded, which are not used; in the second half,
    /// inclusive ticks.
    both: Doubles,
    exclusive: Doubles,
    squares: Doubles,
    min: Doubles,
    max: Doubles,
}

impl Pairs {
    fn none() -> Self {
        let [zero, infinity] = [0.0, f64::INFINITY].map(Doubles::both);
        Self { both: zero, exclusive: zero, squares: zero, min: infinity, max: zero }
    }

    /// Adds pairs of records with these names, and counts them in the histogram of their cell.
    /// Stops after a pair that it has added but cannot count. Returns the number of counted
    /// records. It calls nothing, so that all that the loop needs stays in registers.
    #[inline(never)]
    fn add(&mut self, thread: &Thread, cell: &Cell, names: u64, slots: &[Slot]) -> usize {
        let Self { mut both, mut exclusive, mut squares, mut min, mut max } = *self;
        // The histogram part that was last added to, and the octave number of its first bucket.
        let (mut chunk, mut first, mut firsts) = (&NO_CHUNK, 0_usize, Numbers::both(0));
        let (pairs, _) = slots.as_chunks::<2>();
        // Pointers, so that the loop needs no counter.
        let Range { start, end } = pairs.as_ptr_range();
        let mut at = start;
        while at < end {
            if !word::is::<_, { Slot::NAMES }>(at, names)
                || !word::is::<_, { Slot::NAMES + SLOT }>(at, names)
            {
                break;
            }
            // SAFETY: `at` points to one of the pairs.
            let one = unsafe { Doubles::of_behind::<{ Slot::ADDED }>(at.cast()) };
            // SAFETY: `at` points to one of the pairs.
            let two = unsafe { Doubles::of_behind::<{ Slot::ADDED + SLOT }>(at.cast()) };
            both = both.add(one).add(two);
            let own = one.firsts(two).max(Doubles::both(0.0));
            exclusive = exclusive.add(own);
            squares = squares.add(own.squared());
            min = min.min(own);
            max = max.max(own);
            let octaves = Numbers::bits_from::<OCTAVE_BIT>(own.add(Doubles::both(BUCKETS as f64)));
            let [one, two] = octaves.less(firsts);
            // Checked as late as possible: a forked child must not change its parent's histogram,
            // which has no unpublished copy.
            if one | two < BUCKETS {
                if !thread.is_still_alive() {
                    break;
                }
                cell::add(&chunk.0[one], 1);
                cell::add(&chunk.0[two], 1);
            } else {
                let [one, two] = [one, two].map(|bucket| first.wrapping_add(bucket));
                let [of_one, of_two] =
                    [one, two].map(|number| thread.chunk(cell.part(part(number))));
                let (Some(of_one), Some(of_two)) = (of_one, of_two) else { break };
                if !thread.is_still_alive() {
                    break;
                }
                cell::add(&of_one.0[one % BUCKETS], 1);
                cell::add(&of_two.0[two % BUCKETS], 1);
                (chunk, first) = (of_two, two / BUCKETS * BUCKETS);
                firsts = Numbers::both(first);
            }
            // SAFETY: the result points to the next pair, or to the end of the last one.
            at = unsafe { at.add(1) };
        }
        *self = Self { both, exclusive, squares, min, max };
        (at.addr() - start.addr()) / SLOT
    }

    /// The sums over all records.
    fn sum(&self, count: u64) -> RecordSums {
        let Self { both, exclusive, squares, min, max } = *self;
        let (min, max) = (lesser(min.first(), min.second()), greater(max.first(), max.second()));
        RecordSums {
            both: Doubles::of(exclusive.first() + exclusive.second(), both.second()),
            squares: squares.first() + squares.second(),
            extremes: Doubles::of(min, -max),
            count,
        }
    }
}

/// Stands in for a histogram part before the first one is found. It is never read or written.
static NO_CHUNK: Chunk = Chunk([const { AtomicU64::new(0) }; BUCKETS]);
