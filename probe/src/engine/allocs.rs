//! What regions allocate.
//!
//! An allocator that counts adds up allocations, allocated bytes and freed bytes for each thread,
//! in [`Numbers`]. A region of a point that counts allocations stores them at its begin, and
//! subtracts them at its end. For exclusive figures, the thread has one more sum, `taken`: the
//! exclusive figures of all ended regions. It is to allocations what `covered` is to ticks:
//!
//! ```text
//!               A begins     B begins      B ends        A ends
//! allocations      | -- a -- | ---- b ---- | ---- c ---- |
//! taken            t         t             t + b         t + a + b + c
//! exclusive                                b             a + c
//! ```
//!
//! A region of a point that does not count allocations takes nothing, so its allocations count for
//! the enclosing region. The sums of a point on a lane are in the segment, beside its cell; those
//! of its calls by each caller are beside the edges. The end of a region adds to them at once: its
//! record has no room for allocations.

use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::allocs::{AllocSums, AllocWords, size_class};
use pfp_shm_layout::calls::CallAllocs;

use super::region::{ALLOCS, LEVELS, Region, level_of};
use super::thread::Thread;
use super::thread::allocs::{Counts, get, minus, plus, put};
use super::{current, process, process_page};
use crate::alloc::SamplePlace;
use crate::point::Point;

/// The inclusive sums.
#[inline(always)]
fn inclusive(sums: &AllocSums) -> Counts {
    [sums.allocs_inclusive, sums.bytes_inclusive, sums.freed_inclusive]
}

/// The sums of a point on the thread's lane; `None` without a cell, or if memory runs out.
fn words_of<'a>(thread: &'a Thread, point: &Point) -> Option<&'a AllocWords> {
    thread.allocs_for(thread.entry(point).cell()?)
}

/// Stores the thread's counters for a region that has been pushed. Returns false if no allocator
/// counts, or if the point has no sums on the lane.
pub(super) fn begin(thread: &Thread, point: &Point, tag: u64) -> bool {
    let Some(numbers) = thread.allocs.numbers() else { return false };
    let Some(words) = words_of(thread, point) else { return false };
    let Some(at_begin) = thread.allocs_to_begin(tag) else { return false };
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
/// part of a measurement that a later part completes. In a signal handler that has interrupted an
/// end, nothing is added, and the allocations count for the enclosing region.
pub(super) fn end(thread: &Thread, region: &Region, point: &Point, is_call: bool) {
    let Some(at_begin) = thread.allocs_at_begin(region.tag()) else { return };
    // Regions inside that have not ended will not end.
    thread.restore_largest_from(level_of(region.tag()) + 1);
    if at_begin.words().is_none() && !at_begin.is_lost() {
        // The context came from another thread, and this thread had no cell of the point then.
        at_begin.set_words(words_of(thread, point));
    }
    if thread.busy(|| end_marked(thread, region, point, is_call)).flatten().is_none()
        && let Some(numbers) = thread.allocs.numbers()
    {
        at_begin.restore_largest(numbers);
    }
}

/// [`end`] on a thread that is [marked](crate::marker).
#[inline(always)]
pub(super) fn end_marked(
    thread: &Thread,
    region: &Region,
    point: &Point,
    is_call: bool,
) -> Option<()> {
    let at_begin = thread.allocs_at_begin(region.tag())?;
    let (numbers, words) = (thread.allocs.numbers()?, at_begin.words()?);
    let now = numbers.counts();
    let taken = get(&thread.allocs.taken);
    let own = minus(minus(now, taken), get(&at_begin.untaken));
    put(&thread.allocs.taken, plus(taken, own));
    let largest = at_begin.restore_largest(numbers);
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
    };
    // Checked as late as possible: a child that a signal handler has forked must write nothing.
    if thread.is_alive() {
        words.publish(epoch, &sums.plus(&more));
    }
    if allocs != 0 || bytes_inclusive != 0 {
        let names = thread.open_at(region.tag() & LEVELS).names(point.offset().bytes());
        let of_edge = CallAllocs { allocs, bytes, bytes_inclusive };
        thread.add_call_allocs(thread.entry(point), names, epoch, of_edge);
    }
    Some(())
}

/// Where samples of an allocation belong: to the process, and to the calling thread's innermost
/// counting region. Allocators call this, also in signal handlers.
pub(super) extern "C" fn place_of_sample(size: u64) -> SamplePlace {
    let (Some(process), Some(is_ours)) = (process::current(), process_page::is_ours()) else {
        return SamplePlace::NONE;
    };
    // SAFETY: a null pointer is allowed.
    let now = unsafe { libc::time(ptr::null_mut()) };
    let of_process = SamplePlace {
        heap: ptr::from_ref(&process.segment.counters().heap).cast(),
        is_ours,
        birth: now.cast_unsigned(),
        ..SamplePlace::NONE
    };
    let of_region = || {
        let thread = current::thread().filter(|thread| thread.is_alive())?;
        let levels = (0..thread.open_levels()).rev();
        let tags = levels.map(|level| thread.region_at(level).tag());
        let tag = tags.into_iter().find(|tag| tag & ALLOCS != 0)?;
        let at_begin = thread.allocs_at_begin(tag)?;
        let words = at_begin.words()?;
        let sizes = words.sizes(at_begin.epoch.load(Relaxed) as u32);
        let size = sizes.map_or(ptr::null(), |sizes| ptr::from_ref(&sizes[size_class(size)]));
        Some(SamplePlace { live: ptr::from_ref(words.live()).cast(), size, ..of_process })
    };
    of_region().unwrap_or(of_process)
}

/// Before a context is suspended, replaces the counters that an open region has stored by what the
/// region has allocated since. Before the context is resumed, replaces these by counters again.
/// Both are the present counters minus what is stored. The innermost region is suspended first and
/// resumed last.
pub(super) fn swap_stored(thread: &Thread, region: &Region, point: &Point) {
    let Some(at_begin) = thread.allocs_at_begin(region.tag()) else { return };
    if at_begin.is_lost() {
        return;
    }
    let (numbers, words) = (thread.allocs.numbers(), words_of(thread, point));
    at_begin.set_words(words);
    let Some(numbers) = numbers else { return };
    let epoch = at_begin.epoch.load(Relaxed) as u32;
    // A lane on which no region of the point has ended has no sums, or zeros.
    let sums = words.and_then(|words| words.current(epoch)).unwrap_or_default();
    let (now, taken) = thread.allocs.read(numbers);
    put(&at_begin.untaken, minus(minus(now, taken), get(&at_begin.untaken)));
    put(&at_begin.beyond_sums, minus(minus(now, inclusive(&sums)), get(&at_begin.beyond_sums)));
    let largest = numbers.replace_largest(|_| at_begin.largest.load(Relaxed));
    at_begin.largest.store(largest, Relaxed);
}

/// Stops the count of an open region whose thread has ended: its counters cannot be read any more.
pub(super) fn lose(thread: &Thread, region: &Region, _: &Point) {
    if let Some(at_begin) = thread.allocs_at_begin(region.tag()) {
        at_begin.lose();
    }
}
