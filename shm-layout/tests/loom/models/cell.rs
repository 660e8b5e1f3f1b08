//! Models of a cell that is read while its writer is alive.

use std::sync::Arc;

use loom::thread;

use super::{
    ON, after_reset, amounts_left, assert_ready, check, make_ready, memory, new_cell, record,
    record_amounts, torn_or_whole, whole, with_amounts,
};
use crate::amounts::MAX_AMOUNTS;
use crate::cell::{Cell, Sums};
use crate::control::{Alpha, Change};
use crate::sync::{AtomicU64, Ordering, watch};

/// In a consistent picture all sums are those after 0, 1 or 2 measurements.
pub(super) fn cell_record() {
    type Figures = fn(&Sums) -> [u64; 2];
    let groups: [(&[&str], Figures); 6] = [
        (&["seq", "count", "count#1", "exclusive", "exclusive#1"], |s| [s.count, s.exclusive]),
        (&["seq", "inclusive", "inclusive#1", "max", "max#1"], |s| [s.inclusive, s.max]),
        (&["seq", "last", "last#1", "min", "min#1"], |s| [s.last, s.min]),
        (&["seq", "squares_low", "squares_low#1"], |s| [s.squares as u64, 0]),
        (&["seq", "squares_high", "squares_high#1"], |s| [(s.squares >> 64) as u64, 0]),
        (&["seq", "off_cpu", "off_cpu#1", "switches", "switches#1"], |s| [s.off_cpu, s.switches]),
    ];
    for (words, figures) in groups {
        check(move || {
            let cell = Arc::new(new_cell());
            watch(&*cell, words);
            // Each figure differs between any two states.
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

/// `read_live` returns consistent figures, and no figures after a change of owner.
pub(super) fn cell_live_record() {
    check(|| {
        let cell = Arc::new(new_cell());
        watch(&*cell, &["seq", "count", "count#1", "exclusive", "exclusive#1", "commit"]);
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
        if let Some((_, live, ..)) = cell.read_live(0, |_| None) {
            let figures = |sums: &Sums| [sums.count, sums.exclusive];
            let seen = figures(&live);
            assert!(states[..2].iter().any(|state| figures(state) == seen), "{seen:?}");
        }
        writer.join().unwrap();
        assert!(cell.read_live(0, |_| None).is_none());
    });
}

/// The sums before and after each of two measurements, computed without a cell.
fn states_after(ticks: &[u64; 2]) -> [Sums; 3] {
    let of = |ticks| Sums { off_cpu: 2 * ticks, switches: 3, ..Sums::of(ticks, ticks) };
    let one = of(ticks[0]);
    let mut two = one.clone();
    two.append(&of(ticks[1]));
    [Sums::default(), one, two]
}

/// Consistent pictures at one sequence number are equal, also around a change that moves no
/// figures. So a reader may skip a cell whose number it has seen.
pub(super) fn cell_same_sequence() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "average", "average#1"]);
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

/// In a consistent picture, a change of owner has retired all the old figures, or none.
pub(super) fn cell_new_owner() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        watch(&*cell, &["seq", "commit", "window", "window#1", "count", "count#1", "count#3"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.follow(ON, 2, |_| unreachable!());
                record(&cell, 20, &bucket);
            })
        };
        if let Some(picture) = whole(&cell) {
            let seen = (picture.restarts, picture.live.count, picture.retired.count);
            assert!([(0, 1, 0), (1, 0, 1), (1, 1, 1)].contains(&seen), "{seen:?}");
        }
        writer.join().unwrap();
    });
}

/// After a reset, a consistent picture has nothing of the previous window, and the total over all
/// windows is complete.
pub(super) fn cell_reset() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        record(&cell, 10, &bucket);
        let words =
            ["seq", "commit", "window", "window#1", "count", "count#1", "epoch#1", "past_count#1"];
        watch(&*cell, &words);
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

/// A histogram was not cleared by a later reset if the picture read beside it is still current.
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
            let has_histogram = picture.parts.0[0] != 0;
            if has_histogram && !cell.restarted_since(picture.restarts) {
                assert_eq!(counted, 1 - picture.restarts);
            }
        }
        writer.join().unwrap();
    });
}

/// A histogram read beside a picture that is still current holds no measurements of the next
/// window.
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
                // Two measurements: one more than the previous window had.
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

/// A histogram read beside a picture has all of the picture's measurements, and no others if
/// nothing was staged during the read.
pub(super) fn cell_histogram_beside() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), memory());
        watch(&*cell, &["seq", "count", "count#1"]);
        let writer = {
            let (cell, bucket) = (Arc::clone(&cell), bucket.clone());
            thread::spawn(move || {
                record(&cell, 10, &bucket);
                record(&cell, 20, &bucket);
            })
        };
        let sequence = cell.sequence();
        if let Some(picture) = whole(&cell) {
            let (counted, count) = (bucket.load(Ordering::Relaxed), picture.live.count);
            if !picture.staged && cell.is_still(sequence) {
                assert_eq!(counted, count);
            }
            assert!(counted >= count, "{counted}: {picture:?}");
        }
        writer.join().unwrap();
    });
}

/// Readers see a fold completely or not at all, also while figures are staged and dropped.
pub(super) fn cell_fold() {
    check(|| {
        let cell = Arc::new(new_cell());
        watch(&*cell, &["seq", "exclusive", "exclusive#1", "folded", "folded#1"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                let (staged, mut more) = (cell.stage_more(), Sums::default());
                more.add(ON, 1, 1);
                more.add(ON, 2, 2);
                cell.append(staged, &more, None, 2);
                assert!(cell.is_simple());
                cell.append_simple(cell.stage_more(), &Sums::one(4, 4), 3);
                cell.stage_more();
                assert_eq!(cell.mend(None, |_| 0, |_| unreachable!()).0, 0);
                cell.mended(None);
            })
        };
        if let Some(picture) = whole(&cell) {
            let seen = (picture.live.exclusive, picture.folded);
            assert!([(0, 0), (3, 2), (7, 3)].contains(&seen), "{picture:?}");
        }
        writer.join().unwrap();
        assert_eq!(whole(&cell).unwrap().live.exclusive, 7);
    });
}

/// Sums of amounts and the count cover one set of measurements.
pub(super) fn cell_sums_of_amounts() {
    check(|| {
        let (cell, sums) = with_amounts([10, 100]);
        watch(&*cell, &["seq"]);
        // The first two words of both live copies.
        for word in [0, 1, MAX_AMOUNTS, MAX_AMOUNTS + 1] {
            sums[word].watch();
        }
        let writer = {
            let (cell, sums) = (Arc::clone(&cell), Arc::clone(&sums));
            thread::spawn(move || {
                record_amounts(&cell, &sums, [20, 200]);
                record_amounts(&cell, &sums, [40, 400]);
            })
        };
        if let Some(left) = amounts_left(&cell, &sums) {
            assert!([[10, 100], [30, 300], [70, 700]].contains(&left), "{left:?}");
        }
        writer.join().unwrap();
        assert_eq!(amounts_left(&cell, &sums), Some([70, 700]));
    });
}

/// A chunk is backed and zeroed before its number becomes visible.
pub(super) fn cell_part() {
    part_is_published("parts", |cell| cell.set_part(0, 9), |cell| torn_or_whole(cell).parts.0[0]);
}

/// A chunk is backed and zeroed before its number becomes visible, also if several threads may
/// assign it.
pub(super) fn cell_part_shared() {
    let set = |cell: &Cell| assert_eq!(cell.set_part_shared(0, 9), 9);
    part_is_published("parts", set, |cell| torn_or_whole(cell).parts.0[0]);
}

/// A consistent picture has the chunk of each measurement that it counts.
pub(super) fn cell_new_part() {
    check(|| {
        let (cell, bucket) = (Arc::new(new_cell()), AtomicU64::new(0));
        watch(&*cell, &["seq", "count#1", "parts"]);
        let writer = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                cell.set_part(0, 9);
                record(&cell, 10, &bucket);
            })
        };
        if let Some(picture) = whole(&cell).filter(|picture| picture.live.count > 0) {
            assert_eq!(picture.parts.0[0], 9);
        }
        writer.join().unwrap();
    });
}

/// The sums of amounts are backed and zeroed before their number becomes visible.
pub(super) fn cell_amounts() {
    let set = |cell: &Cell| assert_eq!(cell.set_amounts(9), 9);
    part_is_published("amounts", set, Cell::amounts_to_read);
}

/// The sums of allocations are backed and zeroed before their number becomes visible.
pub(super) fn cell_allocs() {
    part_is_published("allocs", |cell| cell.set_allocs(9), Cell::allocs_to_read);
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
