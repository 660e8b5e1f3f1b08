//! Amounts: how much work a region did, in addition to how long it took.
//!
//! The regions of a *metered* point report amounts, such as the bytes they moved, the operations
//! they did, or the items they processed. The point has a name for each amount, at most
//! [`MAX_AMOUNTS`]. Each tuple of amounts is a point of its own, with an entry in the point table
//! and cells like any other point. A tuple's sums are its count times its amounts, so they need
//! not be stored. A metered point has up to [`TUPLES`] tuples. Regions with other amounts count for
//! the metered point itself, whose cells have the sums of those amounts in a separate chunk:
//!
//! ```text
//!   0 +-------------------------------------------------+
//!     | live[2][4]: published with the live figures     |  every end
//!  64 | retired[2][4]: published with the retired ones  |  restarts
//! 128 +-------------------------------------------------+
//! ```
//!
//! The cell's sequence word and its number of restarts publish one copy of each kind. The cell's
//! thread writes only the other copy, so the sums in a reader's copy that is not torn are of one
//! moment.
//!
//! Tuples have no control word of their own: they follow the word of their metered point.

use crate::sync::{AtomicU64, Ordering};

/// Maximum number of amounts of a point.
pub const MAX_AMOUNTS: usize = 4;
/// Maximum number of tuples of a metered point; each tuple has a point of its own.
pub const TUPLES: usize = 8;

/// Amounts of one measurement, or their sums; 0 beyond the amounts that a point has.
pub type Amounts = [u64; MAX_AMOUNTS];

/// The sums of amounts of a cell. The module's documentation shows their layout.
pub type SumWords = [AtomicU64; SUM_WORDS];
/// Number of words of a cell's sums: two copies of the live sums, and two of the retired sums.
pub(crate) const SUM_WORDS: usize = 4 * MAX_AMOUNTS;

/// The sums as they were at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumsPicture {
    /// Sums of the lane's owner.
    pub live: Amounts,
    /// Sums of the lane's earlier owners since the point's last reset.
    pub retired: Amounts,
}

/// Copies the published live sums to the other copy.
pub(crate) fn stage(words: &SumWords, published: u64) {
    for (to, from) in live(words, published + 1).iter().zip(live(words, published)) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Writes the published live sums plus the amounts of a measurement to the other copy.
pub(crate) fn add(words: &SumWords, published: u64, amounts: &Amounts) {
    let (before, after) = (live(words, published), live(words, published + 1));
    for ((to, from), amount) in after.iter().zip(before).zip(amounts) {
        to.store(from.load(Ordering::Relaxed).saturating_add(*amount), Ordering::Relaxed);
    }
}

/// Adds amounts to the sums of a cell that many threads write.
pub(crate) fn add_shared(words: &SumWords, amounts: &Amounts) {
    for (word, amount) in words.iter().zip(amounts) {
        let add = |sum: u64| Some(sum.saturating_add(*amount));
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// Writes the retired copy that `commit` will publish: the sums so far, or zeros after a reset.
pub(crate) fn retire(words: &SumWords, (published, commit): (u64, u64), reset: bool) {
    let before = read(words, (published, commit.wrapping_sub(1)), false);
    for (place, word) in retired(words, commit).iter().enumerate() {
        let sum = before.live[place].saturating_add(before.retired[place]);
        word.store(if reset { 0 } else { sum }, Ordering::Relaxed);
    }
}

/// Clears a copy of the live sums.
pub(crate) fn clear(words: &SumWords, copy: u64) {
    live(words, copy).iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// The sums of amounts of a cell. The two numbers select the published copies: the copy of the live
/// sums, and the number of restarts, `commit`. With `void`, the cell is being restarted, so its
/// live sums read as zeros.
pub(crate) fn read(words: &SumWords, (published, commit): (u64, u64), void: bool) -> SumsPicture {
    let get = |words: &[AtomicU64]| -> Amounts {
        core::array::from_fn(|place| words[place].load(Ordering::Relaxed))
    };
    let live = if void { Amounts::default() } else { get(live(words, published)) };
    SumsPicture { live, retired: get(retired(words, commit)) }
}

fn live(words: &SumWords, copy: u64) -> &[AtomicU64] {
    let start = (copy & 1) as usize * MAX_AMOUNTS;
    &words[start..start + MAX_AMOUNTS]
}

fn retired(words: &SumWords, commit: u64) -> &[AtomicU64] {
    let start = (2 + (commit & 1) as usize) * MAX_AMOUNTS;
    &words[start..start + MAX_AMOUNTS]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums saturate, whether one thread writes them or many do.
    #[test]
    fn sums_saturate() {
        let words = || -> SumWords { core::array::from_fn(|_| AtomicU64::new(0)) };
        let amounts = [[u64::MAX, 7, u64::MAX - 1, 0], [u64::MAX, 7, 2, 0]];
        let (alone, shared) = (words(), words());
        for (copy, amounts) in amounts.iter().enumerate() {
            add(&alone, copy as u64, amounts);
            add_shared(&shared, amounts);
        }
        for words in [alone, shared] {
            assert_eq!(read(&words, (0, 0), false).live, [u64::MAX, 14, u64::MAX, 0]);
        }
    }
}
