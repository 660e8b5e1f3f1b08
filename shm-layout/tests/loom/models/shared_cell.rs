//! The cell that many threads write.

use std::sync::Arc;

use loom::thread;

use super::{after_reset, check, memory, new_cell, torn_or_whole};
use crate::cell::{Cell, Measurement};
use crate::control::Change;
use crate::sync::{Ordering, watch};

fn record_shared(cell: &Cell, ticks: u64) {
    let measured = Measurement { exclusive: ticks, inclusive_total: ticks, away: None };
    cell.record_shared(measured, None);
}

/// Two threads record at once: no sum loses anything, the carry of the squares
/// included.
pub(super) fn shared_cell_records() {
    check(|| {
        let cell = Arc::new(new_cell());
        watch(&*cell, &["count", "squares_low", "squares_high", "min", "max"]);
        // Both squares fill the low word half, so that together they carry.
        let ticks = 3_037_000_500;
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || record_shared(&cell, ticks))
        };
        record_shared(&cell, ticks + 1);
        other.join().unwrap();
        let live = torn_or_whole(&cell).live;
        let square = |ticks: u64| u128::from(ticks) * u128::from(ticks);
        assert_eq!(live.squares, square(ticks) + square(ticks + 1));
        assert_eq!((live.count, live.min, live.max), (2, ticks, ticks + 1));
    });
}

/// A reset while another thread records: each measurement is in one window.
pub(super) fn shared_cell_reset() {
    check(|| {
        let cell = Arc::new(new_cell());
        record_shared(&cell, 10);
        watch(&*cell, &["control", "count", "past_count"]);
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || record_shared(&cell, 20))
        };
        cell.follow_shared(after_reset(), |_| ());
        other.join().unwrap();
        let picture = torn_or_whole(&cell);
        assert_eq!(picture.live.count + picture.past_count, 2);
        assert!(picture.past_count >= 1 && picture.epoch == 1);
    });
}

/// Two threads follow two resets, one of them late: the cell ends in the newer
/// window, where readers look for it.
pub(super) fn shared_cell_two_resets() {
    check(|| {
        let cell = Arc::new(new_cell());
        record_shared(&cell, 10);
        watch(&*cell, &["control", "count", "past_count", "epoch"]);
        let other = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.follow_shared(after_reset(), |_| ()))
        };
        cell.follow_shared(after_reset().with(Change::Reset), |_| ());
        other.join().unwrap();
        let picture = torn_or_whole(&cell);
        assert_eq!((picture.epoch, cell.control().epoch()), (2, 2));
        assert_eq!((picture.live.count, picture.past_count), (0, 1));
    });
}

/// Threads killed at any moment of a reset and of a measurement beside it: what had
/// returned is in the total over all windows, and at most what was under way besides.
pub(super) fn shared_cell_death_in_reset() {
    check(|| {
        let cell = Arc::new(new_cell());
        record_shared(&cell, 10);
        watch(&*cell, &["control", "count", "past_count", "past_count#1"]);
        // Stands for what the program knows to have returned.
        let returned = memory();
        let recording = {
            let (cell, returned) = (Arc::clone(&cell), Arc::clone(&returned));
            thread::spawn(move || {
                record_shared(&cell, 20);
                returned.store(1, Ordering::Release);
            })
        };
        let following = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || cell.follow_shared(after_reset(), |_| ()))
        };
        let total = || cell.ever().map_or(0, |(count, _)| count);
        let least = 1 + returned.load(Ordering::Acquire);
        let left = total();
        assert!((least..=2).contains(&left), "{left} of {least} at least");
        recording.join().unwrap();
        following.join().unwrap();
        assert_eq!(total(), 2);
        let picture = torn_or_whole(&cell);
        assert_eq!(picture.live.count + picture.past_count, 2);
    });
}
