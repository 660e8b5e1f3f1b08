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
use std::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::allocs::{AllocSums, AllocWords};

use super::clock_reading::STAMP_ATTEMPTS;
use super::current;
use super::region::{ALLOCS, Region};
use super::thread::Thread;
use crate::alloc::{self, LiveWords, Numbers};
use crate::point::Point;

/// Allocations, allocated bytes and freed bytes.
type Three = [u64; 3];
type ThreeWords = [AtomicU64; 3];

/// What a region stores at its begin. Only the region's thread uses the words.
#[repr(C)]
#[derive(Debug)]
pub(super) struct AtBegin {
    /// The thread's numbers that no region had taken.
    untaken: ThreeWords,
    /// The thread's numbers minus the point's inclusive sums on the lane.
    beyond_sums: ThreeWords,
    /// The largest allocation before the region.
    largest: AtomicU64,
    /// The reset epoch of the point.
    epoch: AtomicU64,
    /// The point's sums on the lane.
    words: AtomicPtr<AllocWords>,
}

impl AtBegin {
    /// The point's sums on the lane.
    fn words(&self) -> Option<&AllocWords> {
        // SAFETY: the pointer is null, or `begin` or `turn` has stored it, and leads to a chunk of
        // the segment, which is never unmapped.
        unsafe { self.words.load(Relaxed).as_ref() }
    }

    fn set_words(&self, words: Option<&AllocWords>) {
        self.words
            .store(words.map_or(ptr::null_mut(), |words| ptr::from_ref(words).cast_mut()), Relaxed);
    }
}

/// The state of a thread.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ThreadAllocs {
    /// The thread's numbers; null before a region has asked for them.
    numbers: AtomicPtr<Numbers>,
    /// The sums of the exclusive figures of all ended regions.
    taken: ThreeWords,
}

impl ThreadAllocs {
    /// Forgets the numbers of a lane's earlier owner.
    pub(super) fn forget(&self) {
        self.numbers.store(ptr::null_mut(), Relaxed);
    }

    /// The calling thread's numbers. `None` if no allocator counts.
    #[inline(always)]
    fn numbers(&self) -> Option<&'static Numbers> {
        let mut numbers = self.numbers.load(Relaxed);
        if numbers.is_null() {
            numbers = self.find_numbers();
        }
        // SAFETY: the pointer is null, or the calling thread's storage, which lasts as long as the
        // thread.
        unsafe { numbers.as_ref() }
    }

    #[cold]
    #[inline(never)]
    fn find_numbers(&self) -> *mut Numbers {
        let found = alloc::of_this_thread().map_or(ptr::null(), ptr::from_ref).cast_mut();
        self.numbers.store(found, Relaxed);
        found
    }

    /// The numbers, and what regions have taken of them. Repeated if a signal handler's regions
    /// take something in between.
    #[inline(always)]
    fn read(&self, numbers: &Numbers) -> (Three, Three) {
        for tried in 1.. {
            let taken = get(&self.taken);
            compiler_fence(SeqCst);
            let now = numbers.all();
            compiler_fence(SeqCst);
            // Compared word by word: the compiler would store the arrays, and load them in larger
            // pieces, which waits for the stores.
            let [a, b, c] = minus(get(&self.taken), taken);
            if a | b | c == 0 || tried == STAMP_ATTEMPTS {
                return (now, taken);
            }
        }
        unreachable!("it returns when all tries are over")
    }
}

#[inline(always)]
fn get(words: &ThreeWords) -> Three {
    words.each_ref().map(|word| word.load(Relaxed))
}

#[inline(always)]
fn put(words: &ThreeWords, values: Three) {
    words.iter().zip(values).for_each(|(word, value)| word.store(value, Relaxed));
}

#[inline(always)]
fn minus(these: Three, those: Three) -> Three {
    std::array::from_fn(|at| these[at].wrapping_sub(those[at]))
}

#[inline(always)]
fn plus(these: Three, those: Three) -> Three {
    std::array::from_fn(|at| these[at].wrapping_add(those[at]))
}

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
pub(super) fn end(thread: &Thread, region: &Region, is_call: bool) {
    if thread.busy(|| end_marked(thread, region, is_call)).is_none()
        && let Some(numbers) = thread.allocs.numbers()
    {
        restore_largest(numbers, thread.allocs_at_begin(region.tag()));
    }
}

/// [`end`] on a thread that is [marked](crate::marker).
#[inline(always)]
pub(super) fn end_marked(thread: &Thread, region: &Region, is_call: bool) -> Option<()> {
    let at_begin = thread.allocs_at_begin(region.tag());
    let (numbers, words) = (thread.allocs.numbers()?, at_begin.words()?);
    let now = numbers.all();
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
    let (Some(numbers), Some(words)) = (numbers, words) else { return };
    let sums = words.current(at_begin.epoch.load(Relaxed) as u32).unwrap_or_default();
    let (now, taken) = thread.allocs.read(numbers);
    put(&at_begin.untaken, minus(minus(now, taken), get(&at_begin.untaken)));
    put(&at_begin.beyond_sums, minus(minus(now, inclusive(&sums)), get(&at_begin.beyond_sums)));
    let largest = numbers.replace_largest(|_| at_begin.largest.load(Relaxed));
    at_begin.largest.store(largest, Relaxed);
}

/// Runs pfp's own work in a section; its allocations count for no region.
pub(super) fn uncounted<R>(work: impl FnOnce() -> R) -> R {
    match alloc::of_this_thread() {
        Some(numbers) => numbers.uncounted(work),
        None => work(),
    }
}
