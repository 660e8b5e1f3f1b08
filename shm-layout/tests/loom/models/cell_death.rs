//! Models of a cell whose writer was killed at any step of a change.

use std::sync::Arc;

use loom::thread;

use super::{
    ON, after_reset, amounts_left, check, check_within, memory, new_cell, record, torn_or_whole,
    whole, with_amounts,
};
use crate::amounts::MAX_AMOUNTS;
use crate::cell::{Sums, add};
use crate::sync::{self, AtomicU64, Ordering, watch};

/// Returns a state that the writer may leave when it is killed, if the checker reaches one.
///
/// The reader of a dead process finds some set of the writer's stores, closed under the order that
/// the writer imposes. Two equal copies of a living writer, with a fence between, are such a set:
/// if the first holds a store, the second holds every store that precedes it.
fn left_by_death<T: PartialEq>(copy: impl Fn() -> T) -> Option<T> {
    let first = copy();
    sync::fence(Ordering::Acquire);
    (copy() == first).then_some(first)
}

/// If a writer is killed anywhere around two changes of owner, live and retired figures together
/// hold each finished measurement exactly once.
pub(super) fn cell_death_between_owners() {
    check_within(2, || {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        let words = ["seq", "commit", "window", "window#1", "count", "count#1"];
        watch(&*cell, &words);
        watch(&*cell, &["count#2", "count#3"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.follow(ON, 2, |_| unreachable!());
                cell.follow(ON, 3, |_| unreachable!());
            })
        };
        let copy = || whole(&cell).map(|picture| picture.live.count + picture.retired.count);
        if let Some(left) = left_by_death(copy) {
            assert!(left.is_none_or(|total| total == 1), "{left:?}");
        }
        writer.join().unwrap();
        assert_eq!(whole(&cell).unwrap().retired.count, 1);
    });
}

/// If a writer is killed in a change of owner, the exclusive ticks and the minimum are complete,
/// too, although their words are not written together with the count.
pub(super) fn cell_death_and_retired_figures() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit", "window", "exclusive", "exclusive#3", "min", "min#3"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.follow(ON, 2, |_| unreachable!()))
        };
        let copy = || {
            let picture = torn_or_whole(&cell);
            let mut both = picture.live;
            both.merge(&picture.retired);
            (both.exclusive, both.min)
        };
        if let Some(left) = left_by_death(copy) {
            assert_eq!(left, (10, 10));
        }
        writer.join().unwrap();
    });
}

/// If a writer is killed in a reset, the total over all windows is complete.
pub(super) fn cell_death_in_reset() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        record(&cell, 20, &bucket);
        watch(&*cell, &["seq", "commit", "window#1", "count#1", "epoch#1", "past_count#1"]);
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

/// If a writer is killed in a reset, the histogram is the old one, empty, or the new one.
pub(super) fn cell_death_and_histogram() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        cell.set_part(0, 9);
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit", "window"]);
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

/// If a writer is killed anywhere in a change of owners, which moves the sums to the other copy,
/// the sums over all owners are unchanged.
pub(super) fn cell_death_and_retired_amounts() {
    check(|| {
        let (cell, sums) = with_amounts([10, 0]);
        watch(&*cell, &["seq", "commit", "window"]);
        // The live sums, and the retired sums in the copy that a restart publishes.
        for word in [MAX_AMOUNTS, MAX_AMOUNTS + MAX_AMOUNTS + MAX_AMOUNTS] {
            sums[word].watch();
        }
        let writer = {
            let (cell, sums) = (Arc::clone(&cell), Arc::clone(&sums));
            thread::spawn(move || cell.follow_with(ON, 2, Some(&sums), |_| unreachable!()))
        };
        if let Some(left) = left_by_death(|| amounts_left(&cell, &sums)) {
            assert_eq!(left, Some([10, 0]));
        }
        writer.join().unwrap();
    });
}

/// If a writer is killed anywhere in a fold, the figures hold all of the fold or nothing of it. If
/// the figures hold the fold, so does the histogram.
pub(super) fn cell_death_in_fold() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "exclusive", "folded"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
            thread::spawn(move || {
                let (staged, mut more) = (cell.stage_more(), Sums::default());
                for ticks in [20, 30] {
                    more.add(ON, ticks, ticks);
                    add(&bucket, 1);
                }
                cell.append(staged, &more, None, 2);
            })
        };
        let copy = || {
            let picture = torn_or_whole(&cell);
            let counted = bucket.load(Ordering::Relaxed);
            (picture.live.exclusive, picture.folded, picture.staged, counted)
        };
        if let Some((exclusive, folded, staged, counted)) = left_by_death(copy) {
            assert!([(10, 0), (60, 2)].contains(&(exclusive, folded)), "{exclusive} {folded}");
            assert!(counted <= 3 && (counted == 3 || folded == 0), "{counted} {staged}");
        }
        writer.join().unwrap();
    });
}
