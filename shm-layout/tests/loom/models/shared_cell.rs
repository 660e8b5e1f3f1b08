//! Models of a cell that many threads write.

use std::ptr;
use std::sync::Arc;

use loom::thread;

use super::{after_reset, check, make_ready, memory, new_cell, torn_or_whole};
use crate::cell::{Cell, Measurement};
use crate::control::{Change, Control};
use crate::sync::{AtomicU64, Ordering, watch};

/// The word that counts the threads inside a cell: the epoch of the second copy.
const UNDER_WAY: &str = "epoch#1";

fn record_shared(cell: &Cell, ticks: u64) {
    let measured = Measurement { exclusive: ticks, inclusive: ticks, away: None };
    cell.record_shared(measured, None);
}

/// Two threads record at once: no sum loses anything, including the carry of the squares.
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

/// The two cells of a point, and the lease of the thread that may clear one.
type TwoCells = ([Arc<Cell>; 2], Arc<AtomicU64>);

/// The first cell is the current one, the other belongs to the previous window.
fn two_cells() -> TwoCells {
    let before = Cell::new();
    before.prepare(3, Control(Control(1).0.wrapping_sub(after_reset().0 - Control(1).0)), 0);
    record_shared(&before, 5);
    let before = Arc::new(before);
    watch(&*before, &["control", "count", "exclusive"]);
    ([Arc::new(new_cell()), before], memory())
}

/// Finds the cell for measurements under a control word. Like a real thread, it clears a cell only
/// while it holds the lease.
fn shared_for((cells, lease): &TwoCells, control: Control) -> &Cell {
    let cells = cells.each_ref().map(|cell| Some(&**cell));
    let restart = |newest: &Cell, other: &Cell| {
        // Pairs with the release store below.
        let is_ours = lease.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
        is_ours && {
            let is_cleared = other.restart_shared(newest, control, true, |_| ());
            lease.store(0, Ordering::Release);
            is_cleared
        }
    };
    Cell::shared_for(cells, control, restart).expect("both are there")
}

/// Two threads find a reset and record: each measurement is in one window, with its ticks.
pub(super) fn shared_cell_reset() {
    check(|| {
        let cells = two_cells();
        let other = {
            let cells = cells.clone();
            thread::spawn(move || record_shared(shared_for(&cells, after_reset()), 20))
        };
        record_shared(shared_for(&cells, after_reset()), 10);
        other.join().unwrap();
        let windows = cells.0.each_ref().map(|cell| torn_or_whole(cell).live);
        assert_eq!(windows.each_ref().map(|sums| sums.count).iter().sum::<u64>(), 2);
        assert_eq!(windows.each_ref().map(|sums| sums.exclusive).iter().sum::<u64>(), 30);
        for sums in windows {
            let wanted: &[u64] = [&[0][..], &[10, 20], &[30]][sums.count as usize];
            assert!(wanted.contains(&sums.exclusive), "{sums:?}");
        }
    });
}

/// A thread is in the middle of a measurement while another one applies two resets: count and sum
/// belong to one window.
pub(super) fn shared_cell_entered() {
    check(|| {
        let cells = two_cells();
        for cell in &cells.0 {
            watch(&**cell, &["control", "count", "exclusive", UNDER_WAY]);
        }
        let other = {
            let cells = cells.clone();
            thread::spawn(move || {
                if let Some(entered) = shared_for(&cells, Control(1)).enter_shared() {
                    record_shared(&entered, 20);
                }
            })
        };
        shared_for(&cells, after_reset());
        shared_for(&cells, after_reset().with(Change::Reset));
        other.join().unwrap();
        for sums in cells.0.each_ref().map(|cell| torn_or_whole(cell).live) {
            let wanted: &[u64] = [&[0][..], &[5, 20]][sums.count as usize];
            assert!(wanted.contains(&sums.exclusive), "{sums:?}");
        }
    });
}

/// A thread that clears a cell sees all stores of the threads that have left the cell.
pub(super) fn shared_cell_left() {
    check(|| {
        let (cell, published, memory) = (Arc::new(new_cell()), new_cell(), memory());
        watch(&*cell, &["control", UNDER_WAY]);
        let other = {
            let (cell, memory) = (Arc::clone(&cell), Arc::clone(&memory));
            thread::spawn(move || {
                let entered = cell.enter_shared();
                entered.is_some_and(|entered| {
                    make_ready(&memory);
                    entered.control() == Control(1)
                })
            })
        };
        let is_cleared = cell.restart_shared(&published, after_reset(), true, |_| ());
        let seen = memory.load(Ordering::Relaxed);
        let was_in_it = other.join().unwrap();
        assert!(!(is_cleared && was_in_it) || seen == 1);
    });
}

/// A thread that finds the second cell current finds it cleared.
pub(super) fn shared_cell_cleared() {
    check(|| {
        let cells = two_cells();
        let other = {
            let cells = cells.clone();
            thread::spawn(move || {
                shared_for(&cells, after_reset());
            })
        };
        let both = cells.0.each_ref().map(|cell| Some(&**cell));
        let (found, _) = Cell::newest_shared(both).expect("both are there");
        if ptr::eq(found, &*cells.0[1]) {
            assert_eq!(torn_or_whole(found).live.exclusive, 0);
        }
        other.join().unwrap();
    });
}

/// Two threads apply two resets, one of them late: readers use the newer window's cell.
pub(super) fn shared_cell_two_resets() {
    check(|| {
        let cells = two_cells();
        let newest = after_reset().with(Change::Reset);
        let other = {
            let cells = cells.clone();
            thread::spawn(move || {
                shared_for(&cells, after_reset());
            })
        };
        shared_for(&cells, newest);
        other.join().unwrap();
        let found = shared_for(&cells, newest);
        assert_eq!((found.control(), torn_or_whole(found).epoch), (newest, newest.epoch()));
        assert_eq!(torn_or_whole(found).live.count, 0);
    });
}

/// Two threads apply two resets, and one of them measures: it finds a cell to enter at any step of
/// the other one.
pub(super) fn shared_cell_to_enter() {
    /// The other thread clears one cell, so it can interfere once.
    const ENTER_ATTEMPTS: u32 = 2;
    check(|| {
        let cells = two_cells();
        for cell in &cells.0 {
            watch(&**cell, &["control", UNDER_WAY]);
        }
        let other = {
            let cells = cells.clone();
            thread::spawn(move || {
                shared_for(&cells, after_reset().with(Change::Reset));
            })
        };
        let mut attempts = 0..ENTER_ATTEMPTS;
        assert!(attempts.any(|_| shared_for(&cells, after_reset()).enter_shared().is_some()));
        other.join().unwrap();
    });
}

/// Threads are killed at any step of a reset and of a concurrent measurement: the total over all
/// windows includes every measurement that had returned, and at most the running ones in addition.
pub(super) fn shared_cell_death_in_reset() {
    check(|| {
        let cells = two_cells();
        // Counts the measurements that are known to have returned.
        let returned = memory();
        let recording = {
            let (cells, returned) = (cells.clone(), Arc::clone(&returned));
            thread::spawn(move || {
                record_shared(shared_for(&cells, Control(1)), 20);
                returned.store(1, Ordering::Release);
            })
        };
        let following = {
            let cells = cells.clone();
            thread::spawn(move || {
                shared_for(&cells, after_reset());
            })
        };
        let total = || {
            let ever = cells.0.each_ref().map(|cell| cell.ever().map_or(0, |(count, _)| count));
            ever.iter().sum::<u64>()
        };
        let least = 1 + returned.load(Ordering::Acquire);
        let left = total();
        assert!((least..=2).contains(&left), "{left} of {least} at least");
        recording.join().unwrap();
        following.join().unwrap();
        assert_eq!(total(), 2);
    });
}
