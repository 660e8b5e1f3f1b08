//! What the regions of a point allocate.
//!
//! A lane's cell of a point leads to a chunk with these sums, if regions of the point have counted
//! allocations:
//!
//! ```text
//!   0 +--------------------------------------------------+
//!     | seq: reset epoch 28 bits | publications 36 bits  |  each region
//!     | live: bytes | samples                            |  any thread
//!  64 | sums[8]: eight copies, one of them published     |
//! 576 +--------------------------------------------------+
//! ```
//!
//! The lane's thread writes the sums with one more region to the next copy, and publishes that copy
//! by one store to `seq`, whose lowest bits select the published copy. A copy stays as it is until
//! the thread has published seven others, so that a reader has time to read it even if the regions
//! are very short. So a reader finds complete sums at any time, also after the writer was killed.
//! The sums belong to one reset epoch of the point: the first region of a later epoch starts from
//! zeros.
//!
//! The two words of `live` estimate the memory that regions of the point have allocated and that is
//! not freed yet: see `probe/src/alloc/samples.rs`. Any thread may free it, so both words change by
//! atomic additions, independently of each other. No reset clears them.
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

/// What the regions of a point have allocated. Exclusive figures leave out nested regions that count
/// their own allocations. Inclusive figures have them, with recursion counted once.
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
    /// Bytes that are not freed yet, estimated by samples.
    pub live_bytes: u64,
    /// Samples that are not freed yet. The relative standard error of the estimate is at most about
    /// one over the square root of this number.
    pub live_samples: u64,
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
            live_bytes: self.live_bytes.wrapping_add(more.live_bytes),
            live_samples: self.live_samples.wrapping_add(more.live_samples),
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
        const NAMES: [&str; FIGURES + 2] = [
            "calls",
            "allocs",
            "bytes",
            "freed",
            "allocs_inclusive",
            "bytes_inclusive",
            "freed_inclusive",
            "largest",
            "live_bytes",
            "live_samples",
        ];
        let live = [self.live_bytes, self.live_samples];
        NAMES
            .iter()
            .zip(self.words().into_iter().chain(live))
            .try_for_each(|(name, value)| field(name, value))
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
            live_bytes: 0,
            live_samples: 0,
        }
    }
}

/// The sums in the segment; see the module for the drawing. The words are zeros at first.
#[repr(C, align(64))]
#[derive(Debug, Default)]
pub struct AllocWords {
    seq: AtomicU64,
    live: [AtomicU64; 2],
    sums: [SumsCopy; ALLOC_COPIES],
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

    /// The words for live memory: bytes and samples.
    #[must_use]
    pub fn live(&self) -> &[AtomicU64; 2] {
        &self.live
    }

    /// The sums, with the figures of live memory.
    #[must_use]
    pub fn with_live(&self, sums: AllocSums) -> AllocSums {
        // The host may write any value. A negative one counts as 0.
        let [live_bytes, live_samples] = self.live.each_ref().map(|word| {
            let value = word.load(Ordering::Relaxed);
            if value as i64 >= 0 { value } else { 0 }
        });
        AllocSums { live_bytes, live_samples, ..sums }
    }

    /// The published sums and their reset epoch. `None` if the writer has published so many others
    /// during the read that the copy may have been overwritten.
    #[must_use]
    pub fn read(&self) -> Option<(u32, AllocSums)> {
        // Pairs with `allocs-close`.
        let seq = self.seq.load(ord!("allocs-enter", Acquire));
        let sums = self.published_by(seq);
        // Pairs with `allocs-open`: if a word above was of later sums, the load below sees the `seq`
        // before them.
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
}
