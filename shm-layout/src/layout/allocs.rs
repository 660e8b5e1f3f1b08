//! What the regions of a point allocate.
//!
//! A lane's cell of a point leads to a chunk with these sums, if regions of the point have counted
//! allocations:
//!
//! ```text
//!   0 +--------------------------------------------------+
//!     | seq: reset epoch 28 bits | publications 36 bits  |  each region
//!     | live: bytes | samples | births                   |  any thread
//!     | epoch of the sizes                               |  each sample
//!  64 | sums[8]: eight copies, one of them published     |
//! 576 | sizes[24]: sampled bytes by size of allocation   |
//! 768 +--------------------------------------------------+
//! ```
//!
//! The lane's thread writes the sums with one more region to the next copy, and publishes that copy
//! by one store to `seq`, whose lowest bits select the published copy. A copy stays as it is until
//! the thread has published seven others, so that a reader has time to read it even if the regions
//! are very short. So a reader finds complete sums at any time, also after the writer was killed.
//! The sums belong to one reset epoch of the point: the first region of a later epoch starts from
//! zeros.
//!
//! The three words of `live` estimate the memory that regions of the point have allocated and that
//! is not freed yet: see `probe/src/alloc/samples.rs`. Any thread may free it, so the words change
//! by atomic additions, independently of each other. No reset clears them. The words of `sizes`
//! estimate the bytes that the regions have allocated, by the size of the allocations. Only the
//! lane's thread changes these, and the first sample of a later epoch starts from zeros.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `allocs-open` fence | `allocs-recheck` fence | a reader that saw a word of the next sums sees the `seq` stored before that word |
//! | `allocs-close` store | `allocs-enter` load | the published copy is complete |

use crate::layout::control::is_newer;
use crate::layout::geometry::ALLOC_COPIES;
use crate::sync::{AtomicU64, Ordering, fence_at, ord};

/// Number of figures in the sums.
const FIGURES: usize = 8;
const EPOCH_SHIFT: u32 = 36;
const PUBLICATIONS: u64 = (1 << EPOCH_SHIFT) - 1;
const _: () = assert!(ALLOC_COPIES.is_power_of_two());

/// What the regions of a point have allocated. Exclusive figures leave out nested regions that
/// count their own allocations. Inclusive figures have them, with recursion counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AllocSums {
    /// Regions that counted their allocations.
    pub calls: u64,
    /// Allocations, exclusive.
    pub allocs: u64,
    /// Allocated bytes, exclusive.
    pub bytes: u64,
    /// Freed bytes, exclusive.
    pub freed: u64,
    /// Allocations, inclusive.
    pub allocs_inclusive: u64,
    /// Allocated bytes, inclusive.
    pub bytes_inclusive: u64,
    /// Freed bytes, inclusive.
    pub freed_inclusive: u64,
    /// Bytes of the largest single allocation, also in nested regions.
    pub largest: u64,
}

impl AllocSums {
    /// Whether something was counted or is alive.
    #[inline(always)]
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// The sums of these and `more`.
    #[inline(always)]
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        // The fields are named one by one, so that a new figure does not compile before it is added
        // here.
        let &Self { calls, allocs, bytes, freed, .. } = self;
        let &Self { allocs_inclusive, bytes_inclusive, freed_inclusive, largest, .. } = self;
        Self {
            calls: calls.wrapping_add(more.calls),
            allocs: allocs.wrapping_add(more.allocs),
            bytes: bytes.wrapping_add(more.bytes),
            freed: freed.wrapping_add(more.freed),
            allocs_inclusive: allocs_inclusive.wrapping_add(more.allocs_inclusive),
            bytes_inclusive: bytes_inclusive.wrapping_add(more.bytes_inclusive),
            freed_inclusive: freed_inclusive.wrapping_add(more.freed_inclusive),
            largest: largest.max(more.largest),
        }
    }

    /// Calls `field` with the name that each figure has in a snapshot file, and its value.
    ///
    /// # Errors
    ///
    /// The first error that `field` returns.
    pub fn to_json<E>(
        self,
        mut field: impl FnMut(&'static str, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        const NAMES: [&str; FIGURES] = [
            "calls",
            "allocs",
            "bytes",
            "freed",
            "allocs_inclusive",
            "bytes_inclusive",
            "freed_inclusive",
            "largest",
        ];
        NAMES.iter().zip(self.words()).try_for_each(|(name, value)| field(name, value))
    }

    #[inline(always)]
    fn words(&self) -> [u64; FIGURES] {
        let &Self { calls, allocs, bytes, freed, .. } = self;
        let &Self { allocs_inclusive, bytes_inclusive, freed_inclusive, largest, .. } = self;
        let inclusive = [allocs_inclusive, bytes_inclusive, freed_inclusive];
        let [allocs_inclusive, bytes_inclusive, freed_inclusive] = inclusive;
        [calls, allocs, bytes, freed, allocs_inclusive, bytes_inclusive, freed_inclusive, largest]
    }

    #[inline(always)]
    fn of(words: [u64; FIGURES]) -> Self {
        let [calls, allocs, bytes, freed, inclusive @ .., largest] = words;
        let [allocs_inclusive, bytes_inclusive, freed_inclusive] = inclusive;
        Self {
            calls,
            allocs,
            bytes,
            freed,
            allocs_inclusive,
            bytes_inclusive,
            freed_inclusive,
            largest,
        }
    }
}

/// Number of classes of sizes. Class 0 has the allocations below 16 bytes, each next class begins
/// at twice the bytes, and the last one has all from 64 MiB on.
pub const SIZES: usize = 24;
/// Class 0 ends below 2 to this power.
const FIRST_SIZE_BITS: u32 = 4;

/// The class of an allocation of `bytes` bytes.
#[must_use]
pub const fn size_class(bytes: u64) -> usize {
    let bits = u64::BITS - bytes.leading_zeros();
    let class = bits.saturating_sub(FIRST_SIZE_BITS) as usize;
    if class < SIZES { class } else { SIZES - 1 }
}

/// The least size of a class, and the number of its sizes, in bytes. The last class has no end; its
/// number continues the series (64 Mi).
#[must_use]
pub const fn sizes_of(class: usize) -> (u64, u64) {
    match class {
        0 => (0, 1 << FIRST_SIZE_BITS),
        _ => {
            let low = 1 << (class as u32 + FIRST_SIZE_BITS - 1);
            (low, low)
        }
    }
}

/// The estimates by samples of the allocations of a point's regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapSamples {
    /// Bytes that are not freed yet, estimated by samples.
    pub live_bytes: u64,
    /// Samples that are not freed yet. The relative standard error of the estimate is at most about
    /// one over the square root of this number.
    pub live_samples: u64,
    /// Sum of the Unix times of these samples, in seconds.
    pub live_births: u64,
    /// Bytes that were allocated since the last reset, by [`size_class`], estimated by samples.
    pub sizes: [u64; SIZES],
}

impl HeapSamples {
    /// Whether there is a sample.
    #[must_use]
    pub fn is_any(&self) -> bool {
        *self != Self::default()
    }

    /// These samples and `more`.
    #[must_use]
    pub fn plus(&self, more: &Self) -> Self {
        let &Self { live_bytes, live_samples, live_births, sizes } = self;
        Self {
            live_bytes: live_bytes.wrapping_add(more.live_bytes),
            live_samples: live_samples.wrapping_add(more.live_samples),
            live_births: live_births.wrapping_add(more.live_births),
            sizes: std::array::from_fn(|class| sizes[class].wrapping_add(more.sizes[class])),
        }
    }

    /// The sizes alone: the figures of live memory are 0.
    #[must_use]
    pub fn without_live(&self) -> Self {
        Self { sizes: self.sizes, ..Self::default() }
    }
}

/// The sums in the segment; see the module for the drawing. The words are zeros at first.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct AllocWords {
    seq: AtomicU64,
    live: [AtomicU64; 3],
    sizes_epoch: AtomicU64,
    sums: [SumsCopy; ALLOC_COPIES],
    sizes: [AtomicU64; SIZES],
}

#[repr(C, align(64))]
#[derive(Debug, Default)]
struct SumsCopy([AtomicU64; FIGURES]);

impl AllocWords {
    /// The sums of a reset epoch, for the lane's thread: zeros if the stored sums are older. `None`
    /// if they are newer.
    #[inline(always)]
    #[must_use]
    pub fn current(&self, epoch: u32) -> Option<AllocSums> {
        let seq = self.seq.load(Ordering::Relaxed);
        match epoch_of(seq) {
            stored if stored == epoch => Some(self.published_by(seq)),
            stored if is_newer(stored, epoch) => None,
            _ => Some(AllocSums::default()),
        }
    }

    /// Publishes new sums of a reset epoch. Only the lane's thread calls this.
    #[inline(always)]
    pub fn publish(&self, epoch: u32, sums: &AllocSums) {
        let seq = self.seq.load(Ordering::Relaxed);
        let next = u64::from(epoch) << EPOCH_SHIFT | seq.wrapping_add(1) & PUBLICATIONS;
        // Pairs with `allocs-recheck`.
        fence_at!("allocs-open", Release);
        for (word, figure) in self.copy(next).iter().zip(sums.words()) {
            word.store(figure, Ordering::Relaxed);
        }
        // Pairs with `allocs-enter`.
        self.seq.store(next, ord!("allocs-close", Release));
    }

    /// The words for live memory: bytes, samples and births.
    #[must_use]
    pub fn live(&self) -> &[AtomicU64; 3] {
        &self.live
    }

    /// The words for sizes in a reset epoch, for the lane's thread; zeros if the stored sizes are
    /// older. `None` if they are newer.
    #[must_use]
    pub fn sizes(&self, epoch: u32) -> Option<&[AtomicU64; SIZES]> {
        let stored = self.sizes_epoch.load(Ordering::Relaxed) as u32;
        if is_newer(stored, epoch) {
            return None;
        }
        if stored != epoch {
            self.sizes.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            self.sizes_epoch.store(u64::from(epoch), Ordering::Relaxed);
        }
        Some(&self.sizes)
    }

    /// The samples. `is_current` says whether an epoch is the point's. A reset during the call may
    /// mix sizes before and after it.
    #[must_use]
    pub fn samples(&self, is_current: impl FnOnce(u32) -> bool) -> HeapSamples {
        let [bytes, samples, births] =
            self.live.each_ref().map(|word| word.load(Ordering::Relaxed));
        let sizes = match is_current(self.sizes_epoch.load(Ordering::Relaxed) as u32) {
            true => self.sizes.each_ref().map(|word| word.load(Ordering::Relaxed)),
            false => [0; SIZES],
        };
        HeapSamples {
            live_bytes: not_negative(bytes),
            live_samples: not_negative(samples),
            live_births: births,
            sizes,
        }
    }

    /// Copies the samples of another segment.
    pub(crate) fn take_samples(&self, from: &Self) {
        let own = self.live.iter().chain([&self.sizes_epoch]).chain(&self.sizes);
        let others = from.live.iter().chain([&from.sizes_epoch]).chain(&from.sizes);
        for (own, other) in own.zip(others) {
            own.store(other.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// The published sums and their reset epoch. `None` if the writer has published so many others
    /// during the read that the copy may have been overwritten.
    #[must_use]
    pub fn read(&self) -> Option<(u32, AllocSums)> {
        // Pairs with `allocs-close`.
        let seq = self.seq.load(ord!("allocs-enter", Acquire));
        let sums = self.published_by(seq);
        // Pairs with `allocs-open`: if a word above was of later sums, the load below sees the
        // `seq` before them.
        fence_at!("allocs-recheck", Acquire);
        let now = self.seq.load(Ordering::Relaxed);
        let published = now.wrapping_sub(seq) & PUBLICATIONS;
        (published <= ALLOC_COPIES as u64 - 2).then(|| (epoch_of(seq), sums))
    }

    #[inline(always)]
    fn published_by(&self, seq: u64) -> AllocSums {
        AllocSums::of(self.copy(seq).each_ref().map(|word| word.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn copy(&self, seq: u64) -> &[AtomicU64; FIGURES] {
        &self.sums[seq as usize % ALLOC_COPIES].0
    }
}

/// The host may write any value. A negative one counts as 0.
pub(crate) const fn not_negative(word: u64) -> u64 {
    if word as i64 >= 0 { word } else { 0 }
}

#[inline(always)]
fn epoch_of(seq: u64) -> u32 {
    (seq >> EPOCH_SHIFT) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_belong_to_one_epoch() {
        let words = AllocWords::default();
        let one = AllocSums { calls: 1, allocs: 2, bytes: 3, largest: 9, ..Default::default() };
        let other = AllocSums { calls: 4, freed: 5, largest: 7, ..Default::default() };
        words.publish(3, &one);
        assert_eq!(words.current(3), Some(one));
        assert_eq!(words.current(2), None, "an older epoch");
        assert_eq!(words.current(4), Some(AllocSums::default()), "a newer epoch");
        let both = one.plus(&other);
        assert_eq!((both.calls, both.allocs, both.freed, both.largest), (5, 2, 5, 9));
        words.publish(4, &both);
        assert_eq!(words.read(), Some((4, both)));
        assert_eq!(AllocSums::of(both.words()), both);
    }

    #[test]
    fn each_size_is_in_its_class() {
        let classes = [0, 1, 15, 16, 31, 32, 1 << 20, (64 << 20) - 1, 64 << 20, u64::MAX];
        assert_eq!(classes.map(size_class), [0, 0, 0, 1, 1, 2, 17, 22, 23, 23]);
        for class in 0..SIZES {
            let (low, count) = sizes_of(class);
            assert_eq!([low, low + count - 1].map(size_class), [class; 2]);
        }
    }

    #[test]
    fn sizes_belong_to_one_epoch() {
        let words = AllocWords::default();
        words.sizes(3).unwrap()[1].store(100, Ordering::Relaxed);
        words.live()[0].store(70, Ordering::Relaxed);
        words.live()[1].store(u64::MAX, Ordering::Relaxed);
        let samples = words.samples(|epoch| epoch == 3);
        assert_eq!((samples.sizes[1], samples.live_bytes, samples.live_samples), (100, 70, 0));
        assert_eq!(words.samples(|epoch| epoch == 4).sizes, [0; SIZES]);
        assert_eq!(words.sizes(4).unwrap()[1].load(Ordering::Relaxed), 0);
        assert!(words.sizes(3).is_none(), "a region that began before the reset");
    }
}
