//! Samples of memory that is not freed yet. The crate `pfp-alloc` compiles this file, too.
//!
//! Each thread takes a sample whenever it has allocated about [`RATE`] bytes more. A sample
//! represents that many bytes: an allocation of `n` bytes has `n / RATE` samples on average. The
//! intervals between samples are distributed geometrically, as if each byte were sampled at random.
//! So no pattern of allocations can evade the samples, and their number has a known error.
//!
//! A hash table maps the address of sampled memory to an entry with its samples. An entry belongs
//! to the process, and to the innermost region that counts allocations, if there is one; words of
//! the segment have the sums. An allocation whose bucket is full has no entry.
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
    /// Sum of their Unix times, seconds.
    births: AtomicU64,
}

/// The sums of the process's samples that are not freed.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct HeapWords {
    /// Bytes for which the samples stand.
    bytes: AtomicU64,
    /// Number of samples.
    samples: AtomicU64,
    /// The most bytes so far.
    peak: AtomicU64,
}

/// Where a sample belongs.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct SamplePlace {
    /// The words of the process; null if the sample belongs to none.
    pub(crate) heap: *const HeapWords,
    /// A word that is not 0 in this process, and 0 in its forked children.
    pub(crate) is_ours: *const AtomicU64,
    /// The words of a point; null if the sample belongs to no region.
    pub(crate) live: *const LiveWords,
    /// The point's sum of bytes in allocations of this size; null if the sample belongs to no
    /// region, or the point was reset since the region began.
    pub(crate) size: *const AtomicU64,
    /// The Unix time, seconds.
    pub(crate) birth: u64,
}

impl SamplePlace {
    #[allow(dead_code, reason = "the engine uses it")]
    pub(crate) const NONE: Self = Self {
        heap: ptr::null(),
        is_ours: ptr::null(),
        live: ptr::null(),
        size: ptr::null(),
        birth: 0,
    };
}

/// Finds the place for samples of an allocation of `size` bytes by the calling thread.
pub(crate) type Find = extern "C" fn(size: u64) -> SamplePlace;

/// Default of [`RATE`].
pub(crate) const USUAL_RATE: u64 = 512 << 10;
/// Average bytes between two samples of a thread.
static RATE: AtomicU64 = AtomicU64::new(USUAL_RATE);
/// The function that finds the place of a sample; null if there is none.
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
    heap: AtomicPtr<HeapWords>,
    is_ours: AtomicPtr<AtomicU64>,
    live: AtomicPtr<LiveWords>,
    /// Number of samples.
    count: AtomicU64,
    /// Bytes for which they stand.
    bytes: AtomicU64,
    birth: AtomicU64,
}

/// Number of entries in each bucket. Most frees read nothing else.
static USED: [AtomicU8; BUCKETS] = [const { AtomicU8::new(0) }; BUCKETS];
static ADDRESSES: [Bucket; BUCKETS] =
    [const { Bucket([const { AtomicUsize::new(0) }; PER_BUCKET]) }; BUCKETS];
static ENTRIES: [[Entry; PER_BUCKET]; BUCKETS] = [const {
    [const {
        Entry {
            heap: AtomicPtr::new(ptr::null_mut()),
            is_ours: AtomicPtr::new(ptr::null_mut()),
            live: AtomicPtr::new(ptr::null_mut()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            birth: AtomicU64::new(0),
        }
    }; PER_BUCKET]
}; BUCKETS];

/// Sets the function that finds the place of a sample, and the average bytes between two samples.
/// No sample is taken before this call.
pub(crate) fn start(find: Find, rate: u64) {
    RATE.store(rate.clamp(1, 1 << 40), Relaxed);
    // Pairs with the load in `take`.
    FIND.store(find as *mut c_void, Release);
}

/// Takes the samples of an allocation of `size` bytes, which uses up the `left` bytes that the
/// thread still had to allocate until its next sample; 0 for a new thread. Returns the bytes until
/// the next sample, at least 1.
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
    let bytes = count.saturating_mul(rate);
    let place = find(size);
    // SAFETY: the pointer is null, or leads to a word of the segment, which is never unmapped.
    if let Some(sum) = unsafe { place.size.as_ref() } {
        sum.fetch_add(bytes, Relaxed);
    }
    insert(memory, &place, count, bytes);
    left
}

/// The number of samples of an allocation, and the bytes until the next sample; see [`take`].
fn samples_of(rate: u64, size: u64, left: u64) -> (u64, u64) {
    let left = if left == 0 { interval(rate) } else { left };
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

/// Bytes to the next sample, at least 1: distributed geometrically, with the mean `rate`.
fn interval(rate: u64) -> u64 {
    if rate == 1 {
        return 1;
    }
    let mixed = INTERVALS.fetch_add(1, Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    // The mean of an exponential distribution that becomes this one when it is rounded up:
    // -1 / ln(1 - 1/rate), by the first terms of its series.
    let rate = rate as f64;
    let mean = rate - 0.5 - 1.0 / (12.0 * rate);
    (minus_ln(mixed ^ mixed >> 32) * mean) as u64 + 1
}

/// The negative natural logarithm of `(n | 1) / 2^64`: at most 44.4. The logarithm in the C library
/// may not be used here, because it would make a program load another library.
fn minus_ln(n: u64) -> f64 {
    let n = n | 1;
    let zeros = n.leading_zeros();
    // n = m * 2^(63 - zeros), where m is in [1, 2)
    let m = f64::from_bits(0x3ff << 52 | (n << zeros << 1) >> 12);
    // ln m = 2 artanh((m - 1) / (m + 1)), whose series ends here with an error below 1e-6.
    let x = (m - 1.0) / (m + 1.0);
    let square = x * x;
    let series =
        [11.0, 9.0, 7.0, 5.0, 3.0].iter().fold(1.0 / 13.0, |sum, n| sum * square + 1.0 / n);
    let ln_m = 2.0 * x * (series * square + 1.0);
    f64::from(zeros + 1) * std::f64::consts::LN_2 - ln_m
}

#[inline(always)]
fn bucket_of(memory: usize) -> usize {
    (memory >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

/// Adds an entry to the table, unless it belongs to no process or its bucket is full.
fn insert(memory: usize, to: &SamplePlace, count: u64, bytes: u64) {
    // SAFETY: the pointers are null, or lead to words of the segment, which is never unmapped.
    let (heap, live) = unsafe { (to.heap.as_ref(), to.live.as_ref()) };
    let Some(heap) = heap else { return };
    let bucket = bucket_of(memory);
    // Pairs with the store in `remove_in`: the last entry of the place has been read.
    let free = |place: &AtomicUsize| place.compare_exchange(0, memory, Acquire, Relaxed).is_ok();
    let Some(place) = ADDRESSES[bucket].0.iter().position(free) else { return };
    // A thread that frees the memory gets its address after these stores, so it sees them.
    let entry = &ENTRIES[bucket][place];
    entry.heap.store(to.heap.cast_mut(), Relaxed);
    entry.is_ours.store(to.is_ours.cast_mut(), Relaxed);
    entry.live.store(to.live.cast_mut(), Relaxed);
    entry.count.store(count, Relaxed);
    entry.bytes.store(bytes, Relaxed);
    entry.birth.store(to.birth, Relaxed);
    USED[bucket].fetch_add(1, Relaxed);
    let now = heap.bytes.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    heap.samples.fetch_add(count, Relaxed);
    heap.peak.fetch_max(now, Relaxed);
    if let Some(live) = live {
        live.bytes.fetch_add(bytes, Relaxed);
        live.samples.fetch_add(count, Relaxed);
        live.births.fetch_add(to.birth.wrapping_mul(count), Relaxed);
    }
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
    let births = entry.birth.load(Relaxed).wrapping_mul(count);
    // SAFETY: `insert` has stored a pointer to words of the segment, which is never unmapped.
    let heap = unsafe { entry.heap.load(Relaxed).as_ref() };
    // SAFETY: the same, or null.
    let live = unsafe { entry.live.load(Relaxed).as_ref() };
    // SAFETY: the pointer is null, or leads to a word of a page that is never unmapped.
    let is_ours = unsafe { entry.is_ours.load(Relaxed).as_ref() };
    let is_ours = is_ours.is_some_and(|word| word.load(Relaxed) != 0);
    // Pairs with the exchange in `insert`: another thread may use the place from here on.
    ADDRESSES[bucket].0[place].store(0, Release);
    USED[bucket].fetch_sub(1, Relaxed);
    // The entry of a forked child belongs to its parent, whose segment the child must not change.
    if !is_ours {
        return;
    }
    if let Some(heap) = heap {
        heap.bytes.fetch_sub(bytes, Relaxed);
        heap.samples.fetch_sub(count, Relaxed);
    }
    if let Some(live) = live {
        live.bytes.fetch_sub(bytes, Relaxed);
        live.samples.fetch_sub(count, Relaxed);
        live.births.fetch_sub(births, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of samples is right on average for allocations of every size, also if the sizes
    /// divide the intervals.
    #[test]
    fn samples_stand_for_the_allocated_bytes() {
        for rate in [1, 2, 1000, 8192] {
            for size in [1, 8, 16, 100, 4096, 100_000, 30_000_000] {
                let allocations = (2000 * rate / size).max(40);
                let (mut samples, mut left) = (0, 0);
                for _ in 0..allocations {
                    let is_next = left == 0 || left <= size;
                    let (more, next) =
                        if is_next { samples_of(rate, size, left) } else { (0, left - size) };
                    assert!(next > 0);
                    (samples, left) = (samples + more, next);
                }
                let expected = (allocations * size) as f64 / rate as f64;
                // The standard error is the square root of the number of samples.
                let off = (samples as f64 - expected).abs() / expected.sqrt();
                assert!(off < 5.0, "{rate} {size}: {samples} {expected}");
            }
        }
    }

    #[test]
    fn the_logarithm_is_right() {
        for n in [1, 2, 3, 12_345, 1 << 40, (1 << 63) - 1, 1 << 63, 3 << 62, u64::MAX] {
            let expected = -((n | 1) as f64 / 2.0_f64.powi(64)).ln();
            let found = minus_ln(n);
            assert!((found - expected).abs() < 2e-6, "{n}: {found} {expected}");
            assert!(found > -1e-6);
        }
    }

    /// One of e intervals is longer than the mean, one of e^2 is twice as long, and so on.
    #[test]
    fn intervals_are_distributed_exponentially() {
        const RATE: u64 = 1 << 20;
        let all: Vec<u64> = (0..100_000).map(|_| interval(RATE)).collect();
        let mean = all.iter().sum::<u64>() as f64 / all.len() as f64;
        assert!((mean / RATE as f64 - 1.0).abs() < 0.02, "{mean}");
        for times in 1..5 {
            let longer = all.iter().filter(|interval| **interval > times * RATE).count();
            let expected = all.len() as f64 * (-(times as f64)).exp();
            let off = (longer as f64 - expected).abs() / expected.sqrt();
            assert!(off < 5.0, "{times}: {longer} {expected}");
        }
    }
}
