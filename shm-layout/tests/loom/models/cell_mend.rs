//! Models of a cell whose writer jumps out of a change in the middle, and then repairs it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use loom::thread;

use super::{ON, after_reset, check_within, memory, new_cell, record, whole};
use crate::cell::{Cell, CellPicture};
use crate::control::Control;
use crate::sync::{self, AtomicU64, Ordering, watch};

/// Runs a scene once for each store of a change, with a jump just before that store. The scene
/// returns whether the jump happened. It does not happen once the store's number is larger than the
/// number of stores in the change; then all stores were tried.
fn at_each_store(scene: fn(u32) -> bool) {
    for store in 0.. {
        let came = Arc::new(AtomicBool::new(false));
        check_within(2, {
            let came = Arc::clone(&came);
            move || came.store(scene(store), SeqCst)
        });
        if !came.load(SeqCst) {
            assert!(store > 5, "{store} stores: the change is not what is left");
            return;
        }
    }
}

/// Jumps out of a change and repairs the cell; returns whether the jump happened.
fn leave(cell: &Cell, store: u32, bucket: &AtomicU64, change: impl FnOnce()) -> bool {
    let came = sync::is_left_before(store, change);
    let held = |_| bucket.load(Ordering::Relaxed);
    let (too_many, _) = cell.mend(None, held, |_| bucket.store(0, Ordering::Relaxed));
    bucket.store(bucket.load(Ordering::Relaxed) - too_many, Ordering::Relaxed);
    cell.mended(None);
    came
}

/// Number of measurements in the cell's count, and in its histogram.
fn counted(picture: &CellPicture, bucket: &AtomicU64) -> [u64; 2] {
    let in_parts = if picture.parts.0[0] == 0 { 0 } else { bucket.load(Ordering::Relaxed) };
    [picture.live.count, in_parts]
}

/// After a jump out of a measurement, either both the count and the histogram contain it, or
/// neither does. Both contain the next measurement.
pub(super) fn cell_mended_record() {
    at_each_store(|store| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        cell.set_part(0, 9);
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "count", "count#1"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
            thread::spawn(move || {
                let came = leave(&cell, store, &bucket, || record(&cell, 20, &bucket));
                let left = whole(&cell).expect("it is mended");
                let [count, in_histogram] = counted(&left, &bucket);
                assert!(count == in_histogram && (1..=2).contains(&count), "{left:?}");
                assert!(!left.staged);
                (came, left)
            })
        };
        let picture = whole(&cell);
        let seen = picture.as_ref().map(|picture| counted(picture, &bucket));
        sync::fence(Ordering::Acquire);
        if let (Some(picture), Some([count, in_histogram])) = (picture, seen) {
            assert!((1..=2).contains(&count), "{picture:?}");
            // The histogram may already contain staged measurements.
            assert!(in_histogram >= count, "{in_histogram}: {picture:?}");
        }
        let (came, left) = writer.join().unwrap();
        record(&cell, 10, &bucket);
        let last = whole(&cell).unwrap();
        assert_eq!(counted(&last, &bucket), [left.live.count + 1; 2], "{last:?}");
        came
    });
}

/// After a jump out of a restart, the restart is either done or not begun: each consistent picture
/// contains every measurement once. `seen` lists the pictures that may appear; the last of them
/// follows one more measurement.
fn restart(
    store: u32,
    (control, owner): (Control, u32),
    words: &[&str],
    look: fn(&CellPicture) -> [u64; 3],
    seen: &[[u64; 3]],
) -> bool {
    let (cell, bucket) = (Arc::new(new_cell()), Arc::new(AtomicU64::new(0)));
    record(&cell, 10, &bucket);
    watch(&*cell, words);
    let writer = {
        let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
        thread::spawn(move || leave(&cell, store, &bucket, || cell.follow(control, owner, |_| ())))
    };
    if let Some(picture) = whole(&cell) {
        assert!(seen.contains(&look(&picture)), "{picture:?}");
    }
    let came = writer.join().unwrap();
    // A begin calls this if the cell follows another control word.
    cell.follow(control, owner, |_| ());
    record(&cell, 20, &bucket);
    let last = whole(&cell).unwrap();
    assert_eq!(Some(&look(&last)), seen.last(), "{last:?}");
    came
}

/// [`restart`] with a jump out of a change of owners.
pub(super) fn cell_mended_new_owner() {
    at_each_store(|store| {
        let words = ["seq", "commit", "window", "window#1", "count#1"];
        let look = |it: &CellPicture| [0, it.live.count, it.retired.count];
        restart(store, (ON, 2), &words, look, &[[0, 1, 0], [0, 0, 1], [0, 1, 1]])
    });
}

/// [`restart`] with a jump out of a reset.
pub(super) fn cell_mended_reset() {
    at_each_store(|store| {
        let words = ["seq", "commit", "window", "window#1", "count#1"];
        let look = |it: &CellPicture| [u64::from(it.epoch), it.live.count, it.past_count];
        restart(store, (after_reset(), 1), &words, look, &[[0, 1, 0], [1, 0, 1], [1, 1, 1]])
    });
}

/// After a jump out of a reset, the histogram belongs to the window of the cell, whichever call
/// zeroed it.
pub(super) fn cell_mended_reset_histogram() {
    at_each_store(|store| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        cell.set_part(0, 9);
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit", "window"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
            thread::spawn(move || {
                let zero = |_| bucket.store(0, Ordering::Relaxed);
                leave(&cell, store, &bucket, || cell.follow(after_reset(), 1, zero))
            })
        };
        if let Some(picture) = whole(&cell) {
            let counted = bucket.load(Ordering::Relaxed);
            let has_histogram = picture.parts.0[0] != 0;
            if has_histogram && !cell.restarted_since(picture.restarts) {
                assert_eq!(counted, 1 - picture.restarts, "{picture:?}");
            }
        }
        let came = writer.join().unwrap();
        let left = whole(&cell).unwrap();
        assert_eq!(bucket.load(Ordering::Relaxed), 1 - left.restarts, "{left:?}");
        came
    });
}
