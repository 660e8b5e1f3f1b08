//! Samples of memory that is not freed yet. The crate `pfp-alloc` compiles this file, too.
//!
//! Each thread takes a sample whenever it has allocated about [`RATE`] bytes more. A sample stands
//! for that many bytes: an allocation of `n` bytes has `n / RATE` samples on average. A hash table
//! maps the address of sampled memory to an entry with its samples. An entry belongs to the innermost
//! region that counts allocations; two words of the segment have the sums of the region's point. An
//! allocation outside such regions has no entry, nor has one whose bucket is full.
//!
//! Nothing here takes a lock or allocates, so a signal handler and a forked child may call it.

use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU8, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// The sums of a point's samples that are not freed.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LiveWords {
    /// Bytes for which the samples stand.
    bytes: AtomicU64,
    /// Number of samples.
    samples: AtomicU64,
}

/// Where a sample belongs.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct LivePlace {
    /// The words of a point; null if the sample belongs to no region.
    pub(crate) words: *const LiveWords,
    /// A word that is not 0 in this process, and 0 in its forked children.
    pub(crate) is_ours: *const AtomicU64,
}

impl LivePlace {
    #[allow(dead_code, reason = "the engine uses it")]
    pub(crate) const NONE: Self = Self { words: ptr::null(), is_ours: ptr::null() };
}

/// Finds the place of a sample by the calling thread's innermost region that counts allocations.
pub(crate) type Find = extern "C" fn() -> LivePlace;

/// Default of [`RATE`].
pub(crate) const USUAL_RATE: u64 = 512 << 10;
/// Average bytes between two samples of a thread.
static RATE: AtomicU64 = AtomicU64::new(USUAL_RATE);
/// The function that finds the words of a region; null if there is none.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Number of intervals so far.
static INTERVALS: AtomicU64 = AtomicU64::new(0);

const BUCKETS: usize = 4096;
/// Entries of a bucket: their addresses fill a cache line.
const PER_BUCKET: usize = 8;

/// The addresses of a bucket's entries; 0 for a free place.
#[repr(align(64))]
struct Bucket([AtomicUsize; PER_BUCKET]);

struct Entry {
    words: AtomicPtr<LiveWords>,
    is_ours: AtomicPtr<AtomicU64>,
    /// Number of samples.
    count: AtomicU64,
    /// Bytes for which they stand.
    bytes: AtomicU64,
}

/// Number of entries in each bucket. Most frees read nothing else.
static USED: [AtomicU8; BUCKETS] = [const { AtomicU8::new(0) }; BUCKETS];
static ADDRESSES: [Bucket; BUCKETS] =
    [const { Bucket([const { AtomicUsize::new(0) }; PER_BUCKET]) }; BUCKETS];
static ENTRIES: [[Entry; PER_BUCKET]; BUCKETS] = [const {
    [const {
        Entry {
            words: AtomicPtr::new(ptr::null_mut()),
            is_ours: AtomicPtr::new(ptr::null_mut()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }; PER_BUCKET]
}; BUCKETS];

/// Sets the function that finds the words of a region, and the average bytes between two samples.
/// No sample is taken before this call.
pub(crate) fn start(find: Find, rate: u64) {
    RATE.store(rate.clamp(1, 1 << 40), Relaxed);
    // Pairs with the load in `take`.
    FIND.store(find as *mut c_void, Release);
}

/// Takes the samples of an allocation of `size` bytes, which uses up the `left` bytes that the thread
/// still had to allocate until its next sample; 0 for a new thread. Returns the bytes until the next
/// sample, at least 1.
#[cold]
#[inline(never)]
pub(crate) fn take(memory: usize, size: u64, left: u64) -> u64 {
    let rate = RATE.load(Relaxed);
    let (count, left) = samples_of(rate, size, left);
    // Pairs with the store in `start`.
    let find = FIND.load(Acquire);
    if count == 0 || find.is_null() {
        return left;
    }
    // SAFETY: `start` has stored a function of this type.
    let find = unsafe { mem::transmute::<*mut c_void, Find>(find) };
    insert(memory, &find(), count, count.saturating_mul(rate));
    left
}

/// The number of samples of an allocation, and the bytes until the next sample; see [`take`].
fn samples_of(rate: u64, size: u64, left: u64) -> (u64, u64) {
    // The first interval of a thread may be of any length, as if it had begun before the thread.
    let left = if left == 0 { below(rate) + 1 } else { left };
    let (mut left, mut count) = (left.cast_signed().wrapping_sub_unsigned(size), 0);
    // An allocation of more than 64 intervals is divided, because the loop would take too long.
    let whole = left.min(0).unsigned_abs() / rate;
    if whole > 64 {
        (count, left) = (whole, left.wrapping_add_unsigned(whole * rate));
    }
    while left <= 0 {
        (count, left) = (count + 1, left.wrapping_add_unsigned(interval(rate)));
    }
    (count, left.cast_unsigned())
}

/// Bytes to the next sample: between half the rate and one and a half.
fn interval(rate: u64) -> u64 {
    rate / 2 + below(rate) + 1
}

/// A pseudo-random number below `limit`.
fn below(limit: u64) -> u64 {
    let mixed = INTERVALS.fetch_add(1, Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((u128::from(mixed ^ mixed >> 32) * u128::from(limit)) >> 64) as u64
}

#[inline(always)]
fn bucket_of(memory: usize) -> usize {
    (memory >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

/// Adds an entry to the table, unless it belongs to no region or its bucket is full.
fn insert(memory: usize, to: &LivePlace, count: u64, bytes: u64) {
    // SAFETY: the pointer is null, or leads to words of the segment, which is never unmapped.
    let Some(words) = (unsafe { to.words.as_ref() }) else { return };
    let bucket = bucket_of(memory);
    // Pairs with the store in `remove_in`: the last entry of the place has been read.
    let free = |place: &AtomicUsize| place.compare_exchange(0, memory, Acquire, Relaxed).is_ok();
    let Some(place) = ADDRESSES[bucket].0.iter().position(free) else { return };
    // A thread that frees the memory gets its address after these stores, so it sees them.
    let entry = &ENTRIES[bucket][place];
    entry.words.store(to.words.cast_mut(), Relaxed);
    entry.is_ours.store(to.is_ours.cast_mut(), Relaxed);
    entry.count.store(count, Relaxed);
    entry.bytes.store(bytes, Relaxed);
    USED[bucket].fetch_add(1, Relaxed);
    words.bytes.fetch_add(bytes, Relaxed);
    words.samples.fetch_add(count, Relaxed);
}

/// Removes the samples of memory that is about to be freed or reallocated.
#[inline(always)]
pub(crate) fn remove(memory: usize) {
    let bucket = bucket_of(memory);
    if USED[bucket].load(Relaxed) != 0 {
        remove_in(bucket, memory);
    }
}

#[cold]
#[inline(never)]
fn remove_in(bucket: usize, memory: usize) {
    let is_it = |place: &AtomicUsize| place.load(Relaxed) == memory;
    let Some(place) = ADDRESSES[bucket].0.iter().position(is_it) else { return };
    let entry = &ENTRIES[bucket][place];
    let (count, bytes) = (entry.count.load(Relaxed), entry.bytes.load(Relaxed));
    // SAFETY: `insert` has stored a pointer to words of the segment, which is never unmapped.
    let words = unsafe { entry.words.load(Relaxed).as_ref() };
    // SAFETY: the pointer is null, or leads to a word of a page that is never unmapped.
    let is_ours = unsafe { entry.is_ours.load(Relaxed).as_ref() };
    let is_ours = is_ours.is_some_and(|word| word.load(Relaxed) != 0);
    // Pairs with the exchange in `insert`: another thread may use the place from here on.
    ADDRESSES[bucket].0[place].store(0, Release);
    USED[bucket].fetch_sub(1, Relaxed);
    // The entry of a forked child belongs to its parent, whose segment the child must not change.
    if let Some(words) = words.filter(|_| is_ours) {
        words.bytes.fetch_sub(bytes, Relaxed);
        words.samples.fetch_sub(count, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of samples is right on average for allocations of every size, also if the sizes
    /// divide the intervals.
    #[test]
    fn samples_stand_for_the_allocated_bytes() {
        for rate in [1, 1000, 8192] {
            for size in [1, 8, 16, 100, 4096, 100_000, 30_000_000] {
                let allocations = (400 * rate / size).max(40);
                let (mut samples, mut left) = (0, 0);
                for _ in 0..allocations {
                    let is_next = left == 0 || left <= size;
                    let (more, next) =
                        if is_next { samples_of(rate, size, left) } else { (0, left - size) };
                    assert!(next > 0);
                    (samples, left) = (samples + more, next);
                }
                let expected = (allocations * size) as f64 / rate as f64;
                // The intervals differ from the rate by 29 %, so that 400 of them differ by 1.5 %.
                let off = (samples as f64 / expected - 1.0).abs();
                assert!(off < 0.06, "{rate} {size}: {samples} {expected}");
            }
        }
    }
}
