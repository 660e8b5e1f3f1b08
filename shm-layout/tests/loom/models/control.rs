//! Models of the control word.

use std::sync::Arc;

use loom::thread;

use super::{ON, after_reset, check, memory, new_cell, record, whole};
use crate::control::{self, Change, Control};
use crate::sync::{AtomicU64, Ordering, watch};

/// If two threads change the word at once, it has both changes.
pub(super) fn control_two_writers() {
    check(|| {
        let word = memory();
        let other = {
            let word = Arc::clone(&word);
            thread::spawn(move || control::apply(&word, Change::Reset))
        };
        let before = control::apply(&word, Change::Enable);
        let other_before = other.join().unwrap();
        // Exactly one of the two threads saw the word unchanged.
        assert!((before == Control(0)) ^ (other_before == Control(0)));
        assert_eq!(Control(word.load(Ordering::Relaxed)), after_reset());
    });
}

/// After a reset at any moment, the figures of the current epoch come from measurements that began
/// after the reset.
pub(super) fn control_reset() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        let word = Arc::new(AtomicU64::new(ON.0));
        word.watch();
        watch(&*cell, &["seq", "commit", "window", "count", "epoch#1"]);
        let writer = {
            let (cell, word) = (Arc::clone(&cell), Arc::clone(&word));
            thread::spawn(move || {
                let control = Control(word.load(Ordering::Relaxed));
                if cell.control() != control {
                    cell.follow(control, 1, |_| ());
                }
                record(&cell, 20, &bucket);
            })
        };
        control::apply(&word, Change::Reset);
        if let Some(picture) = whole(&cell) {
            let shown = picture.epoch == Control(word.load(Ordering::Relaxed)).epoch();
            assert!(!shown || picture.live.count <= 1);
        }
        writer.join().unwrap();
    });
}

/// If two threads reset at once, the time of the last reset remains.
pub(super) fn control_two_resets() {
    check(|| {
        let (word, time) = (memory(), memory());
        let other = {
            let (word, time) = (Arc::clone(&word), Arc::clone(&time));
            thread::spawn(move || control::reset(&word, &time, 5_000))
        };
        let before = control::reset(&word, &time, 3_000);
        let other_before = other.join().unwrap();
        let last = if before.epoch() > other_before.epoch() { 3_000 } else { 5_000 };
        assert_eq!(seen(&word, &time), (2, Some(last)));
    });
}

/// A reader accepts a time only if it belongs to the current epoch. It sees no time for the earlier
/// reset, which left none, and no time of a reset that is not published.
pub(super) fn control_reset_is_timed() {
    check(|| {
        let (word, time) = (memory(), memory());
        // The writer was killed before it stored the time of its reset.
        control::apply(&word, Change::Reset);
        let writer = {
            let (word, time) = (Arc::clone(&word), Arc::clone(&time));
            thread::spawn(move || {
                control::reset(&word, &time, 5_000);
            })
        };
        match seen(&word, &time) {
            (1 | 2, None) | (2, Some(5_000)) => {}
            other => panic!("{other:?}"),
        }
        writer.join().unwrap();
        assert_eq!(seen(&word, &time), (2, Some(5_000)));
    });
}

/// A reader's view of both words: the epoch, and the time at which it began.
fn seen(word: &AtomicU64, time: &AtomicU64) -> (u32, Option<u64>) {
    let control = Control(word.load(Ordering::Relaxed));
    (control.epoch(), control::reset_ns(control, time.load(Ordering::Relaxed)))
}
