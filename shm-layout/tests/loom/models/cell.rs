//! The cell: read beside a writer that lives.

use std::sync::Arc;

use loom::thread;

use super::{
    ON, after_reset, assert_ready, check, make_ready, memory, new_cell, record, torn_or_whole,
    whole,
};
use crate::cell::{Cell, Sums};
use crate::control::{Alpha, Change};
use crate::sync::{AtomicU64, Ordering, watch};

/// The sums of a whole picture are those after 0, 1 or 2 measurements, all of
/// the same.
pub(super) fn cell_record() {
    type Figures = fn(&Sums) -> [u64; 3];
    let groups: [(&[&str], Figures); 4] = [
        (&["seq", "count", "exclusive", "max"], |s| [s.count, s.exclusive, s.max]),
        (&["seq", "inclusive", "last", "min"], |s| [s.inclusive, s.last, s.min]),
        (&["seq", "squares_low", "off_cpu"], |s| [s.squares as u64, s.off_cpu, 0]),
        (&["seq", "squares_high", "switches"], |s| [(s.squares >> 64) as u64, s.switches, 0]),
    ];
    for (words, figures) in groups {
        check(move || {
            let cell = Arc::new(new_cell());
            watch(&*cell, words);
            // Each figure differs from one state to the next.
            let ticks = [1 << 33, 1 << 32];
            let states = states_after(&ticks);
            let writer = {
                let cell = Arc::clone(&cell);
                let bucket = AtomicU64::new(0);
                thread::spawn(move || ticks.map(|ticks| record(&cell, ticks, &bucket)))
            };
            if let Some(picture) = whole(&cell) {
                let seen = figures(&picture.live);
                assert!(states.iter().any(|state| figures(state) == seen), "{seen:?}");
            }
            writer.join().unwrap();
            assert_eq!(figures(&whole(&cell).unwrap().live), figures(&states[2]));
        });
    }
}

/// So are the live figures alone, and a change of owner in between is noticed.
pub(super) fn cell_live_record() {
    check(|| {
        let cell = Arc::new(new_cell());
        watch(&*cell, &["seq", "count", "exclusive", "commit"]);
        let ticks = [1 << 33, 1 << 32];
        let states = states_after(&ticks);
        let writer = {
            let cell = Arc::clone(&cell);
            let bucket = AtomicU64::new(0);
            thread::spawn(move || {
                record(&cell, ticks[0], &bucket);
                cell.follow(ON, 2, |_| unreachable!());
                record(&cell, ticks[1], &bucket);
            })
        };
        if let Some((_, live, _)) = cell.read_live(0) {
            let figures = |sums: &Sums| [sums.count, sums.exclusive];
            let seen = figures(&live);
            assert!(states[..2].iter().any(|state| figures(state) == seen), "{seen:?}");
        }
        writer.join().unwrap();
        assert!(cell.read_live(0).is_none());
    });
}

/// The plain version: the sums before and after each of two measurements.
fn states_after(ticks: &[u64; 2]) -> [Sums; 3] {
    let [first, second] = *ticks;
    let square = |ticks: u64| u128::from(ticks) * u128::from(ticks);
    let one = Sums {
        count: 1,
        exclusive: first,
        inclusive: first,
        off_cpu: 2 * first,
        switches: 3,
        min: first,
        max: first,
        last: first,
        squares: square(first),
        average_fixed: 0,
    };
    let two = Sums {
        count: 2,
        exclusive: first + second,
        inclusive: first + second,
        off_cpu: 2 * (first + second),
        switches: 6,
        min: first.min(second),
        max: first.max(second),
        last: second,
        squares: square(first) + square(second),
        average_fixed: 0,
    };
    [Sums::default(), one, two]
}

/// Whole pictures at the same sequence number are the same, also around a
/// change that moves no figures: a reader skips a cell whose number it knows.
pub(super) fn cell_same_sequence() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "average"]);
        let writer = {
            let cell = Arc::clone(&cell);
            let averaged = ON.with(Change::Alpha(Alpha::new(0.5).unwrap()));
            thread::spawn(move || cell.follow(averaged, 1, |_| unreachable!()))
        };
        let looks = [(); 2].map(|()| (cell.sequence(), whole(&cell)));
        if let [(before, Some(first)), (_, Some(second))] = looks
            && before == cell.sequence()
        {
            assert_eq!(first, second);
        }
        writer.join().unwrap();
    });
}

/// A whole picture around a change of owner: what was live is settled, at once.
pub(super) fn cell_new_owner() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit", "version", "count", "count#2"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.follow(ON, 2, |_| unreachable!());
                record(&cell, 20, &bucket);
            })
        };
        if let Some(picture) = whole(&cell) {
            let seen = (picture.restarts, picture.live.count, picture.settled.count);
            assert!([(0, 1, 0), (1, 0, 1), (1, 1, 1)].contains(&seen), "{seen:?}");
        }
        writer.join().unwrap();
    });
}

/// A whole picture around a reset: nothing of the window before is in the new
/// one, and nothing is lost to the total of all windows.
pub(super) fn cell_reset() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit", "version", "count", "epoch#1", "past_count#1"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.follow(after_reset(), 1, |_| ());
                record(&cell, 20, &bucket);
            })
        };
        if let Some(picture) = whole(&cell) {
            let seen = (picture.epoch, picture.live.count, picture.past_count);
            assert!([(0, 1, 0), (1, 0, 1), (1, 1, 1)].contains(&seen), "{seen:?}");
        }
        writer.join().unwrap();
    });
}

/// A histogram read beside a picture that is still in force was not cleared by
/// a later reset.
pub(super) fn cell_reset_histogram() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        cell.set_part(0, 9);
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
            thread::spawn(move || {
                cell.follow(after_reset(), 1, |_| bucket.store(0, Ordering::Relaxed));
            })
        };
        if let Some(picture) = whole(&cell) {
            let counted = bucket.load(Ordering::Relaxed);
            if !cell.restarted_since(picture.restarts) {
                assert_eq!(counted, 1 - picture.restarts);
            }
        }
        writer.join().unwrap();
    });
}

/// Nor does it hold measurements of the window after.
pub(super) fn cell_next_window_histogram() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        cell.set_part(0, 9);
        record(&cell, 10, &bucket);
        watch(&*cell, &["commit"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), Arc::clone(&bucket));
            thread::spawn(move || {
                cell.follow(after_reset(), 1, |_| bucket.store(0, Ordering::Relaxed));
                // Twice: one measurement more than the window before had.
                record(&cell, 20, &bucket);
                record(&cell, 20, &bucket);
            })
        };
        let picture = torn_or_whole(&cell);
        let counted = bucket.load(Ordering::Relaxed);
        if picture.restarts == 0 && !cell.restarted_since(picture.restarts) {
            assert_eq!(counted, 1);
        }
        writer.join().unwrap();
    });
}

/// Whoever has seen a measurement in the histogram sees those before it, wherever
/// they are counted.
pub(super) fn cell_counted_in_order() {
    check(|| {
        let (cell, first, second) = (Arc::new(new_cell()), memory(), memory());
        let writer = {
            let (cell, first, second) = (Arc::clone(&cell), first.clone(), second.clone());
            thread::spawn(move || {
                record(&cell, 10, &first);
                record(&cell, 20, &second);
            })
        };
        let later = second.load(Ordering::Relaxed);
        cell.look_further();
        assert!(first.load(Ordering::Relaxed) >= later);
        writer.join().unwrap();
    });
}

/// Whoever has seen that a measurement is whole sees what it counted.
pub(super) fn cell_overtaken() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        let before = cell.sequence();
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), bucket.clone());
            thread::spawn(move || record(&cell, 10, &bucket))
        };
        let is_overtaken = cell.sequence() >= before + 2;
        cell.look_further();
        assert!(!is_overtaken || bucket.load(Ordering::Relaxed) == 1);
        writer.join().unwrap();
    });
}

/// A chunk is backed and zeroed before its number can be seen.
pub(super) fn cell_part() {
    part_is_published("parts", |cell| cell.set_part(0, 9), |cell| torn_or_whole(cell).parts.0[0]);
}

/// The same where several threads may give the part its chunk.
pub(super) fn cell_part_shared() {
    let set = |cell: &Cell| assert_eq!(cell.set_part_shared(0, 9), 9);
    part_is_published("parts", set, |cell| torn_or_whole(cell).parts.0[0]);
}

/// So are the sums of amounts.
pub(super) fn cell_amounts() {
    let set = |cell: &Cell| assert_eq!(cell.set_amounts(9), 9);
    part_is_published("amounts", set, Cell::amounts_to_read);
}

fn part_is_published(word: &'static str, set: fn(&Cell), get: fn(&Cell) -> u32) {
    check(move || {
        let (cell, chunk) = (Arc::new(new_cell()), memory());
        watch(&*cell, &[word]);
        let writer = {
            let (cell, chunk) = (Arc::clone(&cell), Arc::clone(&chunk));
            thread::spawn(move || {
                make_ready(&chunk);
                set(&cell);
            })
        };
        if get(&cell) == 9 {
            assert_ready(&chunk);
        }
        writer.join().unwrap();
    });
}
