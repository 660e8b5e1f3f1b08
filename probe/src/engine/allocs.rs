//! What regions allocate.
//!
//! An allocator that counts has [`Numbers`] for each thread, which only grow. A region of a point
//! that counts allocations stores them at its begin, and subtracts them at its end. To compute
//! exclusive figures, the thread keeps the sum of the exclusive figures of all regions that have
//! ended, as `covered` does for ticks:
//!
//! ```text
//!               A begins     B begins      B ends        A ends
//! allocations      | -- a -- | ---- b ---- | ---- c ---- |
//! taken            t         t             t + b         t + a + b + c
//! exclusive                                b             a + c
//! ```
//!
//! Regions of points that do not count allocations take nothing, so their allocations count for the
//! region around them. The sums of a point on a lane are in the segment, beside its cell. The end
//! of a region adds to them at once: its record has no room for allocations.

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::allocs::{AllocSums, AllocWords};

use super::current;
use super::region::{ALLOCS, Region};
use super::thread::Thread;
use super::thread::allocs::{AtBegin, Three, get, minus, plus, put};
use crate::alloc::{LiveWords, Numbers};
use crate::point::Point;

/// The inclusive sums.
#[inline(always)]
fn inclusive(sums: &AllocSums) -> Three {
    [sums.allocs_inclusive, sums.bytes_inclusive, sums.freed_inclusive]
}

/// The sums of a point on the thread's lane; `None` without a cell, or if memory runs out.
fn words_of<'a>(thread: &'a Thread, point: &Point) -> Option<&'a AllocWords> {
    thread.allocs_for(thread.entry(point).cell()?)
}

/// Stores the thread's numbers for a region that has been pushed. False if the region cannot count
/// its allocations.
pub(super) fn begin(thread: &Thread, point: &Point, tag: u64) -> bool {
    let Some(numbers) = thread.allocs.numbers() else { return false };
    let Some(words) = words_of(thread, point) else { return false };
    let at_begin = thread.allocs_at_begin(tag);
    let epoch = thread.entry(point).follows().epoch();
    let sums = words.current(epoch).unwrap_or_default();
    let (now, taken) = thread.allocs.read(numbers);
    put(&at_begin.untaken, minus(now, taken));
    put(&at_begin.beyond_sums, minus(now, inclusive(&sums)));
    at_begin.epoch.store(u64::from(epoch), Relaxed);
    at_begin.set_words(Some(words));
    at_begin.largest.store(numbers.replace_largest(|_| 0), Relaxed);
    true
}

/// Adds what a region has allocated since its begin to the point's sums. `is_call` is false for a
/// part of a measurement that a later part completes. If the caller is a signal handler that has
/// interrupted an end, the allocations count for the region around.
pub(super) fn end(thread: &Thread, region: &Region, point: &Point, is_call: bool) {
    let at_begin = thread.allocs_at_begin(region.tag());
    if at_begin.words().is_none() {
        // The context came from another thread, and this thread had no cell of the point then.
        at_begin.set_words(words_of(thread, point));
    }
    if thread.busy(|| end_marked(thread, region, is_call)).is_none()
        && let Some(numbers) = thread.allocs.numbers()
    {
        restore_largest(numbers, at_begin);
    }
}

/// [`end`] on a thread that is [marked](crate::marker).
#[inline(always)]
pub(super) fn end_marked(thread: &Thread, region: &Region, is_call: bool) -> Option<()> {
    let at_begin = thread.allocs_at_begin(region.tag());
    let (numbers, words) = (thread.allocs.numbers()?, at_begin.words()?);
    let now = numbers.counts();
    let taken = get(&thread.allocs.taken);
    let own = minus(minus(now, taken), get(&at_begin.untaken));
    put(&thread.allocs.taken, plus(taken, own));
    let largest = restore_largest(numbers, at_begin);
    let epoch = at_begin.epoch.load(Relaxed) as u32;
    // After a reset, the sums belong to regions that began later.
    let sums = words.current(epoch)?;
    let [allocs, bytes, freed] = own;
    let inside = minus(minus(now, inclusive(&sums)), get(&at_begin.beyond_sums));
    let [allocs_inclusive, bytes_inclusive, freed_inclusive] = inside;
    let more = AllocSums {
        calls: u64::from(is_call),
        allocs,
        bytes,
        freed,
        allocs_inclusive,
        bytes_inclusive,
        freed_inclusive,
        largest,
        ..AllocSums::default()
    };
    // Checked as late as possible: a child that a signal handler has forked must write nothing.
    if thread.is_alive() {
        words.publish(epoch, &sums.plus(&more));
    }
    Some(())
}

/// Returns the largest allocation of the region, and takes that of the region around into account
/// again.
#[inline(always)]
fn restore_largest(numbers: &Numbers, at_begin: &AtBegin) -> u64 {
    let before = at_begin.largest.load(Relaxed);
    numbers.replace_largest(|largest| largest.max(before))
}

/// The words of living allocations of the calling thread's innermost region that counts; null
/// without one. Allocators call this, also in signal handlers.
pub(super) extern "C" fn live_words() -> *const LiveWords {
    let find = || {
        let thread = current::near().filter(|thread| thread.is_alive())?;
        let levels = (0..thread.open_levels()).rev();
        let tags = levels.map(|level| thread.region_at(level).tag());
        let tag = tags.into_iter().find(|tag| tag & ALLOCS != 0)?;
        Some(ptr::from_ref(thread.allocs_at_begin(tag).words()?.live()).cast())
    };
    find().unwrap_or(ptr::null())
}

/// Replaces what an open region has stored by what it has allocated since, before its context is
/// suspended; and the other way round, before its context is resumed. Both are the present numbers
/// minus the stored ones. The innermost region is suspended first and resumed last.
pub(super) fn turn(thread: &Thread, region: &Region, point: &Point) {
    let at_begin = thread.allocs_at_begin(region.tag());
    let (numbers, words) = (thread.allocs.numbers(), words_of(thread, point));
    at_begin.set_words(words);
    let Some(numbers) = numbers else { return };
    let epoch = at_begin.epoch.load(Relaxed) as u32;
    // A lane without sums has zeros until a region of the point ends there.
    let sums = words.and_then(|words| words.current(epoch)).unwrap_or_default();
    let (now, taken) = thread.allocs.read(numbers);
    put(&at_begin.untaken, minus(minus(now, taken), get(&at_begin.untaken)));
    put(&at_begin.beyond_sums, minus(minus(now, inclusive(&sums)), get(&at_begin.beyond_sums)));
    let largest = numbers.replace_largest(|_| at_begin.largest.load(Relaxed));
    at_begin.largest.store(largest, Relaxed);
}
