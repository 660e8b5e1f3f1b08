//! The control word.

use std::sync::Arc;

use loom::thread;

use super::{ON, after_reset, check, memory, new_cell, record, whole};
use crate::control::{self, Change, Control};
use crate::sync::{AtomicU64, Ordering, watch};

/// Two change it at once: both changes are in it.
pub(super) fn control_two_writers() {
    check(|| {
        let word = memory();
        let other = {
            let word = Arc::clone(&word);
            thread::spawn(move || control::apply(&word, Change::Reset))
        };
        let before = control::apply(&word, Change::Enable);
        let other_before = other.join().unwrap();
        // Neither saw a word without any change unless it was the first.
        assert!((before == Control(0)) ^ (other_before == Control(0)));
        assert_eq!(Control(word.load(Ordering::Relaxed)), after_reset());
    });
}

/// A reset at any moment: figures of the epoch that the word holds are of
/// measurements that began after it.
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

/// Two reset at once: the time that stays is that of the last one.
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

/// Whenever somebody looks, a time that counts is that of the published epoch: of the reset
/// before, whose time was not left, and of the one that comes, nobody is told anything.
pub(super) fn control_reset_is_timed() {
    check(|| {
        let (word, time) = (memory(), memory());
        // Killed before it left its time.
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

/// What a reader makes of both words: the epoch, and when that began.
fn seen(word: &AtomicU64, time: &AtomicU64) -> (u32, Option<u64>) {
    let control = Control(word.load(Ordering::Relaxed));
    (control.epoch(), control::reset_ns(control, time.load(Ordering::Relaxed)))
}
