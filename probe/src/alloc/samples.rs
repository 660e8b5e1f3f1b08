//! A sample of the memory that is allocated and not freed yet. `libpfp_alloc.so` compiles this file,
//! too.
//!
//! Each thread takes a sample whenever it has allocated about [`RATE`] bytes more. A sample stands
//! for that many bytes, so the sum of the samples that are not freed estimates the living memory,
//! without a bias: an allocation of `n` bytes has `n / RATE` samples on average. The samples are in
//! a table by their address. A sample belongs to the innermost region that counts allocations; two
//! words of the segment have the sums of the region's point.
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

/// Returns the words of the calling thread's innermost region that counts allocations; null without
/// such a region.
pub(crate) type Find = extern "C" fn() -> *const LiveWords;

/// [`RATE`] unless the user has set another one.
pub(crate) const USUAL_RATE: u64 = 512 << 10;
/// Average bytes between two samples of a thread.
static RATE: AtomicU64 = AtomicU64::new(USUAL_RATE);
/// The function that finds the words of a region; null if there is none.
static FIND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// Number of intervals so far.
static INTERVALS: AtomicU64 = AtomicU64::new(0);

const BUCKETS: usize = 4096;
/// Samples in a bucket: their addresses fill a cache line.
const PER_BUCKET: usize = 8;

/// The addresses of a bucket's samples; 0 for a free place.
#[repr(align(64))]
struct Bucket([AtomicUsize; PER_BUCKET]);

struct Sample {
    words: AtomicPtr<LiveWords>,
    count: AtomicU64,
    bytes: AtomicU64,
}

/// Number of samples in each bucket. Most frees read nothing else.
static USED: [AtomicU8; BUCKETS] = [const { AtomicU8::new(0) }; BUCKETS];
static ADDRESSES: [Bucket; BUCKETS] =
    [const { Bucket([const { AtomicUsize::new(0) }; PER_BUCKET]) }; BUCKETS];
static SAMPLES: [[Sample; PER_BUCKET]; BUCKETS] = [const {
    [const {
        Sample {
            words: AtomicPtr::new(ptr::null_mut()),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }; PER_BUCKET]
}; BUCKETS];

/// Sets the function that finds the words of a region, and the average bytes between two samples.
/// Before, nothing is sampled.
pub(crate) fn start(find: Find, rate: u64) {
    RATE.store(rate.max(1), Relaxed);
    // Pairs with the load in `take`.
    FIND.store(find as *mut c_void, Release);
}

/// Takes the samples of an allocation of `size` bytes, which is more than the `left` bytes that the
/// thread still had to allocate until its next sample. Returns the bytes until the next sample.
#[cold]
#[inline(never)]
pub(crate) fn take(memory: usize, size: u64, left: u64) -> u64 {
    let rate = RATE.load(Relaxed);
    // A thread begins with 0.
    let left = if left == 0 { interval(rate) } else { left };
    let (mut left, mut count) = (left as i64 - size as i64, 0);
    // A large allocation has many samples.
    let many = left.unsigned_abs() / rate;
    if many > 64 {
        (count, left) = (many, left + (many * rate).cast_signed());
    }
    while left < 0 {
        (count, left) = (count + 1, left + interval(rate) as i64);
    }
    let left = left.cast_unsigned().max(1);
    if count == 0 {
        return left;
    }
    // Pairs with the store in `start`.
    let find = FIND.load(Acquire);
    if find.is_null() {
        return left;
    }
    // SAFETY: `start` has stored a function of this type.
    let find = unsafe { mem::transmute::<*mut c_void, Find>(find) };
    // SAFETY: the pointer is null, or leads to words of the segment, which is never unmapped.
    if let Some(words) = unsafe { find().as_ref() } {
        insert(memory, words, count, count.saturating_mul(rate));
    }
    left
}

/// Bytes to the next sample: between half the rate and one and a half.
fn interval(rate: u64) -> u64 {
    let mixed = INTERVALS.fetch_add(1, Relaxed).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    rate / 2 + ((u128::from(mixed ^ mixed >> 32) * u128::from(rate)) >> 64) as u64 + 1
}

#[inline(always)]
fn bucket_of(memory: usize) -> usize {
    (memory >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52
}

/// Enters a sample; if its bucket is full, it is left out.
fn insert(memory: usize, words: &LiveWords, count: u64, bytes: u64) {
    let bucket = bucket_of(memory);
    let free = |place: &AtomicUsize| place.compare_exchange(0, memory, Relaxed, Relaxed).is_ok();
    let Some(place) = ADDRESSES[bucket].0.iter().position(free) else { return };
    // Whoever frees the memory has its address from the program, and so sees these stores.
    let sample = &SAMPLES[bucket][place];
    sample.words.store(ptr::from_ref(words).cast_mut(), Relaxed);
    sample.count.store(count, Relaxed);
    sample.bytes.store(bytes, Relaxed);
    USED[bucket].fetch_add(1, Relaxed);
    words.bytes.fetch_add(bytes, Relaxed);
    words.samples.fetch_add(count, Relaxed);
}

/// Removes the samples of memory that is about to be freed.
#[inline(always)]
pub(crate) fn forget(memory: usize) {
    let bucket = bucket_of(memory);
    if USED[bucket].load(Relaxed) != 0 {
        forget_in(bucket, memory);
    }
}

#[cold]
#[inline(never)]
fn forget_in(bucket: usize, memory: usize) {
    let is_it = |place: &AtomicUsize| place.load(Relaxed) == memory;
    let Some(place) = ADDRESSES[bucket].0.iter().position(is_it) else { return };
    let sample = &SAMPLES[bucket][place];
    let (count, bytes) = (sample.count.load(Relaxed), sample.bytes.load(Relaxed));
    // SAFETY: `insert` has stored a pointer to words of the segment, which is never unmapped.
    let words = unsafe { sample.words.load(Relaxed).as_ref() };
    ADDRESSES[bucket].0[place].store(0, Relaxed);
    USED[bucket].fetch_sub(1, Relaxed);
    if let Some(words) = words {
        words.bytes.fetch_sub(bytes, Relaxed);
        words.samples.fetch_sub(count, Relaxed);
    }
}
