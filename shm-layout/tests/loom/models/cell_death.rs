//! The cell: what a writer leaves that is killed anywhere in a change.

use std::sync::Arc;

use loom::thread;

use super::{ON, after_reset, check, memory, new_cell, record, torn_or_whole};
use crate::amounts::{MOST, SumWords, SumsPicture};
use crate::cell::{Cell, CellPicture, CellRead, Measurement};
use crate::sync::{self, AtomicU64, Ordering, watch};

/// A picture of what the writer may leave when it is killed.
///
/// The reader of a dead process finds some set of the writer's stores, closed
/// under the order that the writer asked for. Copies of a living one that are
/// equal, with a fence between, are just such sets: if the first holds a store,
/// the second holds every one that had to go before it.
fn left_by_death<T: PartialEq>(copy: impl Fn() -> T) -> Option<T> {
    let first = copy();
    sync::fence(Ordering::Acquire);
    (copy() == first).then_some(first)
}

/// A writer killed anywhere around two changes of owner: live and settled
/// together are what it had finished, neither less nor twice.
pub(super) fn cell_death_between_owners() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        record(&cell, 20, &bucket);
        watch(&*cell, &["commit", "version", "count", "count#1", "count#2"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.follow(ON, 2, |_| unreachable!());
                record(&cell, 30, &bucket);
                cell.follow(ON, 3, |_| unreachable!());
            })
        };
        let copy = || {
            let picture = torn_or_whole(&cell);
            (picture.restarts, picture.live.count, picture.settled.count)
        };
        if let Some((restarts, live, settled)) = left_by_death(copy) {
            let total = live + settled;
            match restarts {
                0 => assert_eq!(total, 2),
                1 => assert!(total == 2 || total == 3, "{live} + {settled}"),
                _ => assert_eq!(total, 3),
            }
        }
        writer.join().unwrap();
    });
}

/// The same of a sum and an extreme, which are not moved with the count.
pub(super) fn cell_death_and_settled_figures() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["commit", "version", "exclusive", "exclusive#2", "min", "min#2"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.follow(ON, 2, |_| unreachable!()))
        };
        let copy = || {
            let picture = torn_or_whole(&cell);
            let mut both = picture.live;
            both.merge(&picture.settled);
            (both.exclusive, both.min)
        };
        if let Some(left) = left_by_death(copy) {
            assert_eq!(left, (10, 10));
        }
        writer.join().unwrap();
    });
}

/// A writer killed in a reset: the total over all windows is whole.
pub(super) fn cell_death_in_reset() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        record(&cell, 20, &bucket);
        watch(&*cell, &["commit", "version", "count", "epoch#1", "past_count#1"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.follow(after_reset(), 1, |_| ()))
        };
        let copy = || {
            let picture = torn_or_whole(&cell);
            (picture.epoch, picture.live.count, picture.past_count)
        };
        if let Some(left) = left_by_death(copy) {
            assert!([(0, 2, 0), (1, 0, 2)].contains(&left), "{left:?}");
        }
        writer.join().unwrap();
    });
}

/// A writer killed in a reset: the histogram is the old one, none, or the new.
pub(super) fn cell_death_and_histogram() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        cell.set_part(0, 9);
        record(&cell, 10, &bucket);
        watch(&*cell, &["commit", "version"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
            thread::spawn(move || {
                cell.follow(after_reset(), 1, |_| bucket.store(0, Ordering::Relaxed));
            })
        };
        let copy = || {
            let picture = torn_or_whole(&cell);
            let counted = (picture.parts.0[0] != 0).then(|| bucket.load(Ordering::Relaxed));
            (picture.restarts, counted)
        };
        if let Some(left) = left_by_death(copy) {
            assert!([(0, Some(1)), (1, None), (1, Some(0))].contains(&left), "{left:?}");
        }
        writer.join().unwrap();
    });
}

/// A cell of owner 1 that has measured once, with these amounts.
fn with_amounts(amounts: [u64; 2]) -> (Arc<Cell>, Arc<SumWords>) {
    let cell = new_cell();
    cell.set_amounts(9);
    let sums: SumWords = std::array::from_fn(|_| AtomicU64::new(0));
    record_amounts(&cell, &sums, amounts);
    (Arc::new(cell), Arc::new(sums))
}

fn record_amounts(cell: &Cell, sums: &SumWords, [first, second]: [u64; 2]) {
    let measured = Measurement { exclusive: 7, inclusive_total: 7, away: None };
    cell.record_amounts(cell.control(), measured, None, (sums, &[first, second, 0, 0]));
}

/// What is left of the first two amounts, of all owners, and whether the copy is whole.
fn amounts_left(cell: &Cell, sums: &SumWords) -> (u64, [u64; 2], CellRead) {
    let mut picture = CellPicture::default();
    let read = cell.read_with(&mut picture, |chunk| (chunk == 9).then_some(sums));
    let SumsPicture { live, settled } = picture.amounts;
    let count = picture.live.count + picture.settled.count;
    (count, [live[0] + settled[0], live[1] + settled[1]], read)
}

/// A writer killed anywhere in a change of owners, after which sums are moved to the
/// copy in force: all owners together have what they had, neither less nor twice.
pub(super) fn cell_death_and_settled_amounts() {
    check(|| {
        let (cell, sums) = with_amounts([10, 0]);
        watch(&*cell, &["commit", "version"]);
        // Live, and in the copy that is in force after a restart.
        for word in [0, MOST + MOST] {
            sums[word].watch();
        }
        let writer = {
            let (cell, sums) = (Arc::clone(&cell), Arc::clone(&sums));
            thread::spawn(move || cell.follow_with(ON, 2, Some(&sums), |_| unreachable!()))
        };
        if let Some(left) = left_by_death(|| amounts_left(&cell, &sums).1[0]) {
            assert_eq!(left, 10);
        }
        writer.join().unwrap();
    });
}

/// A writer killed between two sums: the cell says that it was in the middle, and each
/// sum has the measurement or has it not. Where it does not say so, the sums and the
/// count are of the same measurements.
pub(super) fn cell_death_between_two_sums() {
    check(|| {
        let (cell, sums) = with_amounts([10, 100]);
        watch(&*cell, &["seq", "count"]);
        for word in &sums[..2] {
            word.watch();
        }
        let writer = {
            let (cell, sums) = (Arc::clone(&cell), Arc::clone(&sums));
            thread::spawn(move || record_amounts(&cell, &sums, [20, 200]))
        };
        let (count, left, read) = amounts_left(&cell, &sums);
        if read == CellRead::Whole {
            assert!([(1, [10, 100]), (2, [30, 300])].contains(&(count, left)), "{count} {left:?}");
        } else {
            assert!([10, 30].contains(&left[0]) && [100, 300].contains(&left[1]), "{left:?}");
        }
        writer.join().unwrap();
        assert_eq!(amounts_left(&cell, &sums), (2, [30, 300], CellRead::Whole));
    });
}
