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
        watch(&*cell, &["seq", "commit", "version", "count", "epoch#1"]);
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
