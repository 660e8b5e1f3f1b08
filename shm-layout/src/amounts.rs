//! Amounts: what a region dealt with, beside how long it took.
//!
//! A region may say how many bytes it moved, how many operations it did, how many
//! items it had: at most [`MOST`] numbers under names of its point. A tuple of
//! amounts is a **variant** of the point: an entry of the point table of its own,
//! with cells like any other, so that its sums are its count times its amounts and
//! nothing is written for them. There are [`VARIANTS`] of a point; all further
//! tuples go to one variant more, the rest, whose cells have the sums in a chunk
//! beside them:
//!
//! ```text
//!  0 +-------------------------------------------------+
//!    | live[4]                                         |  every end
//! 32 | settled[2][4]: the copy in force is the cell's  |  restarts
//! 96 +-------------------------------------------------+
//! ```
//!
//! The cell's thread writes them between the same two values of the cell's sequence
//! word as all else, so what a reader copies whole belongs together.
//!
//! Variants follow the control word of their point and have none themselves.

use crate::sync::{AtomicU64, Ordering};

/// Most amounts of a point.
pub const MOST: usize = 4;
/// Different tuples of amounts that a point tells apart.
pub const VARIANTS: usize = 8;

/// Amounts of one measurement, or their sums; 0 where a point has fewer.
pub type Amounts = [u64; MOST];

/// The sums beside a cell; see the module for the drawing.
pub type SumWords = [AtomicU64; 3 * MOST];

/// The sums as they were at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SumsPicture {
    /// Of the lane's owner.
    pub live: Amounts,
    /// Of owners before, in the same epoch.
    pub settled: Amounts,
}

/// Adds the amounts of a measurement; the words are this thread's alone.
#[inline(always)]
pub(crate) fn add(words: &SumWords, amounts: &Amounts) {
    let (first, others) = amounts.split_at(2);
    let add = |at: usize, amount: u64| {
        let sum = words[at].load(Ordering::Relaxed).saturating_add(amount);
        words[at].store(sum, Ordering::Relaxed);
    };
    (0..2).for_each(|at| add(at, first[at]));
    // Most points have no more.
    if others[0] | others[1] != 0 {
        (2..MOST).for_each(|at| add(at, others[at - 2]));
    }
}

/// The same beside a cell that many threads write.
pub(crate) fn add_shared(words: &SumWords, amounts: &Amounts) {
    for (word, amount) in words.iter().zip(amounts) {
        let add = |sum: u64| Some(sum.saturating_add(*amount));
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

/// Prepares the copy that `commit` will put in force.
pub(crate) fn settle(words: &SumWords, commit: u64, reset: bool) {
    let before = read(words, commit.wrapping_sub(1), false);
    for (place, word) in copy(words, commit).iter().enumerate() {
        let sum = before.live[place].saturating_add(before.settled[place]);
        word.store(if reset { 0 } else { sum }, Ordering::Relaxed);
    }
}

/// Starts the live sums afresh.
pub(crate) fn clear(words: &SumWords) {
    words.iter().take(MOST).for_each(|word| word.store(0, Ordering::Relaxed));
}

/// The sums that belong to a cell of so many restarts; the live ones are void while
/// it is being restarted.
pub(crate) fn read(words: &SumWords, commit: u64, void: bool) -> SumsPicture {
    let get = |words: &[AtomicU64]| -> Amounts {
        core::array::from_fn(|place| words[place].load(Ordering::Relaxed))
    };
    let live = if void { Amounts::default() } else { get(&words[..MOST]) };
    SumsPicture { live, settled: get(copy(words, commit)) }
}

fn copy(words: &SumWords, commit: u64) -> &[AtomicU64] {
    let start = MOST + (commit & 1) as usize * MOST;
    &words[start..start + MOST]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether one thread writes them or many.
    #[test]
    fn what_is_more_than_a_word_holds_is_its_most() {
        for add in [add, add_shared] {
            let words: SumWords = [const { AtomicU64::new(0) }; 3 * MOST];
            add(&words, &[u64::MAX, 7, u64::MAX - 1, 0]);
            add(&words, &[u64::MAX, 7, 2, 0]);
            assert_eq!(read(&words, 0, false).live, [u64::MAX, 14, u64::MAX, 0]);
        }
    }
}
