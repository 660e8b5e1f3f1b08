//! The models: each a small scene of one protocol and what must hold in it.

use std::sync::Arc;

use loom::thread;

use crate::amounts::{MOST, SumWords, SumsPicture};
use crate::barrier::{Head, Member, Place, Words};
use crate::cell::{Away, Cell, CellPicture, CellRead, Measurement, Sums};
use crate::chain::CellBlock;
use crate::control::{self, Alpha, Change, Control};
use crate::header::{Facts, Header};
use crate::lane::{Lane, LaneState};
use crate::point::{Entry, Text};
use crate::ring::{self, Slot};
use crate::segment::{CELLS_PER_BLOCK, Geometry};
use crate::sync::{self, AtomicU64, Ordering, watch};

/// Every model, by name.
pub(crate) const MODELS: &[(&str, fn())] = &[
    ("cell_record", cell_record),
    ("cell_live_record", cell_live_record),
    ("cell_same_sequence", cell_same_sequence),
    ("cell_new_owner", cell_new_owner),
    ("cell_reset", cell_reset),
    ("cell_reset_histogram", cell_reset_histogram),
    ("cell_next_window_histogram", cell_next_window_histogram),
    ("cell_counted_in_order", cell_counted_in_order),
    ("cell_overtaken", cell_overtaken),
    ("cell_death_between_owners", cell_death_between_owners),
    ("cell_death_and_settled_figures", cell_death_and_settled_figures),
    ("cell_death_in_reset", cell_death_in_reset),
    ("cell_death_and_histogram", cell_death_and_histogram),
    ("cell_part", cell_part),
    ("cell_part_shared", cell_part_shared),
    ("cell_amounts", cell_amounts),
    ("cell_death_and_settled_amounts", cell_death_and_settled_amounts),
    ("cell_death_between_two_sums", cell_death_between_two_sums),
    ("shared_cell_records", shared_cell_records),
    ("shared_cell_reset", shared_cell_reset),
    ("shared_cell_two_resets", shared_cell_two_resets),
    ("shared_cell_death_in_reset", shared_cell_death_in_reset),
    ("ring_behind_cell", ring_behind_cell),
    ("ring_alone", ring_alone),
    ("lane_two_claimants", lane_two_claimants),
    ("lane_hand_over", lane_hand_over),
    ("lane_entry", lane_entry),
    ("lane_ring_block", lane_ring_block),
    ("lane_cells_block", lane_cells_block),
    ("point_two_registrants", point_two_registrants),
    ("point_rename", point_rename),
    ("point_shared_cell", point_shared_cell),
    ("point_shared_cell_reader", point_shared_cell_reader),
    ("chain_cell", chain_cell),
    ("chain_next", chain_next),
    ("group_two_come", group_two_come),
    ("group_three_come", group_three_come),
    ("group_one_leaves", group_one_leaves),
    ("group_one_dies", group_one_dies),
    ("group_next_round", group_next_round),
    ("group_one_enters", group_one_enters),
    ("control_two_writers", control_two_writers),
    ("control_reset", control_reset),
    ("header_magic", header_magic),
];

/// Runs a scene in every interleaving with at most three switches that no
/// thread asked for; two find every weakened ordering, and are enough where the
/// search is slow.
fn check(scene: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound.get_or_insert(if cfg!(debug_assertions) { 2 } else { 3 });
    sync::in_model(|| {
        model.check(move || {
            sync::set_scene();
            scene();
        });
    });
}

/// A watched word that stands for memory which a protocol publishes: 0 until it
/// is ready.
fn memory() -> Arc<AtomicU64> {
    let word = AtomicU64::new(0);
    word.watch();
    Arc::new(word)
}

/// A structure that is larger than the stack of a model's thread, which takes
/// the detour over it when it is built without optimisation.
fn large<T: Send + Sync + 'static>(build: fn() -> T) -> Arc<T> {
    std::thread::spawn(move || Arc::new(build())).join().unwrap()
}

fn make_ready(memory: &AtomicU64) {
    memory.store(1, Ordering::Relaxed);
}

fn assert_ready(memory: &AtomicU64) {
    assert_eq!(memory.load(Ordering::Relaxed), 1, "seen before it was ready");
}

const ON: Control = Control(1);

fn after_reset() -> Control {
    ON.with(Change::Reset)
}

/// A cell of owner 1, with nothing in it.
fn new_cell() -> Cell {
    let cell = Cell::new();
    cell.prepare(7, ON, 1);
    cell
}

fn record(cell: &Cell, ticks: u64, bucket: &AtomicU64) {
    let measured = Measurement {
        exclusive: ticks,
        inclusive_total: cell.inclusive_total() + ticks,
        away: Some(Away { off_cpu: 2 * ticks, switches: 3 }),
    };
    cell.record(measured, Some(bucket));
}

/// A whole picture, if there is one to be had.
fn whole(cell: &Cell) -> Option<CellPicture> {
    let mut picture = CellPicture::default();
    (cell.read(&mut picture) == CellRead::Whole).then_some(picture)
}

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

fn torn_or_whole(cell: &Cell) -> CellPicture {
    let mut picture = CellPicture::default();
    let _ = cell.read(&mut picture);
    picture
}

// ---- the cell ----

/// The sums of a whole picture are those after 0, 1 or 2 measurements, all of
/// the same.
fn cell_record() {
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
fn cell_live_record() {
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
fn cell_same_sequence() {
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
fn cell_new_owner() {
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
fn cell_reset() {
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
fn cell_reset_histogram() {
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
fn cell_next_window_histogram() {
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
fn cell_counted_in_order() {
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
fn cell_overtaken() {
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

/// A writer killed anywhere around two changes of owner: live and settled
/// together are what it had finished, neither less nor twice.
fn cell_death_between_owners() {
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
fn cell_death_and_settled_figures() {
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
fn cell_death_in_reset() {
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
fn cell_death_and_histogram() {
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

/// A chunk is backed and zeroed before its number can be seen.
fn cell_part() {
    part_is_published("parts", |cell| cell.set_part(0, 9), |cell| torn_or_whole(cell).parts.0[0]);
}

/// The same where several threads may give the part its chunk.
fn cell_part_shared() {
    let set = |cell: &Cell| assert_eq!(cell.set_part_shared(0, 9), 9);
    part_is_published("parts", set, |cell| torn_or_whole(cell).parts.0[0]);
}

/// So are the sums of amounts.
fn cell_amounts() {
    let set = |cell: &Cell| assert_eq!(cell.set_amounts(9), 9);
    part_is_published("amounts", set, Cell::amounts_to_read);
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
fn cell_death_and_settled_amounts() {
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
fn cell_death_between_two_sums() {
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

// ---- the cell that many threads write ----

fn record_shared(cell: &Cell, ticks: u64) {
    let measured = Measurement { exclusive: ticks, inclusive_total: ticks, away: None };
    cell.record_shared(measured, None);
}

/// Two threads record at once: no sum loses anything, the carry of the squares
/// included.
fn shared_cell_records() {
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
fn shared_cell_reset() {
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
fn shared_cell_two_resets() {
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
fn shared_cell_death_in_reset() {
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

// ---- the ring ----

/// The measuring thread's order: a cell's record, whose fence serves the ring,
/// then the slot.
pub(crate) fn ring_behind_cell() {
    let cell_of_thread = || {
        let (cell, bucket) = (new_cell(), AtomicU64::new(0));
        move || record(&cell, 10, &bucket)
    };
    ring_is_drained(cell_of_thread);
}

/// The order of a writer that fills the ring only.
fn ring_alone() {
    ring_is_drained(|| ring::reuse);
}

/// A reader drains while the writer overtakes it: each record it gets is whole
/// and the right one, and those it does not get are counted.
fn ring_is_drained<F: Fn() + Send + 'static>(before_fill: fn() -> F) {
    const WRITTEN: u64 = 3;
    check(move || {
        let ring = Arc::new(([Slot::new(), Slot::new()], AtomicU64::new(0)));
        ring.1.watch();
        for slot in &ring.0 {
            watch(slot, &["start", "what"]);
        }
        let writer = {
            let (ring, before_fill) = (Arc::clone(&ring), before_fill());
            thread::spawn(move || {
                for n in 0..WRITTEN {
                    before_fill();
                    ring.0[n as usize % 2].fill(n + 100, 1, 1, n + 200);
                    ring::publish(&ring.1, n + 1);
                }
            })
        };
        let mut reader = Drain::default();
        reader.drain(&ring.1, &ring.0);
        writer.join().unwrap();
        reader.drain(&ring.1, &ring.0);
        assert_eq!(reader.delivered + reader.lost, WRITTEN);
        // With the writer at rest, only the slot it would fill next is in doubt.
        assert!(reader.delivered >= 1);
    });
}

#[derive(Default)]
struct Drain {
    next: u64,
    delivered: u64,
    lost: u64,
}

impl Drain {
    fn drain(&mut self, position: &AtomicU64, slots: &[Slot]) {
        let mut records = Vec::new();
        let drained = ring::drain(position, slots, self.next, &mut records);
        let numbers = drained.next - records.len() as u64..drained.next;
        assert_eq!(numbers.start - self.next, drained.lost);
        for (n, record) in numbers.zip(&records) {
            assert_eq!((record.start, u64::from(record.point)), (n + 100, n + 200));
        }
        self.next = drained.next;
        self.delivered += records.len() as u64;
        self.lost += drained.lost;
    }
}

// ---- the lane directory ----

/// A lane that its first owner has announced as thread 1.
fn owned_lane() -> Arc<Lane> {
    let lane = Lane::new();
    assert_eq!(lane.claim(), Some(1));
    lane.announce(1, 1, 100, b"one");
    Arc::new(lane)
}

const ENTRY: &[&str] = &["state", "tid", "claimed", "name"];

/// Two threads want the same lane: one gets it, as its next owner.
fn lane_two_claimants() {
    check(|| {
        let lane = owned_lane();
        lane.release(1);
        watch(&*lane, &["state"]);
        let other = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || lane.claim())
        };
        let claims = [lane.claim(), other.join().unwrap()];
        assert!(claims == [Some(2), None] || claims == [None, Some(2)], "{claims:?}");
    });
}

/// The next owner sees what the last one wrote.
fn lane_hand_over() {
    check(|| {
        let (lane, cells) = (owned_lane(), memory());
        watch(&*lane, &["state"]);
        let last = {
            let (lane, cells) = (Arc::clone(&lane), Arc::clone(&cells));
            thread::spawn(move || {
                make_ready(&cells);
                lane.release(1);
            })
        };
        if lane.claim().is_some() {
            assert_ready(&cells);
        }
        last.join().unwrap();
    });
}

/// A reader gets the entry of one owner, or of none, but no mixture.
fn lane_entry() {
    check(|| {
        let lane = owned_lane();
        watch(&*lane, ENTRY);
        let writer = {
            let lane = Arc::clone(&lane);
            thread::spawn(move || {
                lane.release(1);
                assert_eq!(lane.claim(), Some(2));
                lane.announce(2, 2, 200, b"two");
            })
        };
        if let Some(seen) = lane.read() {
            let owner = (seen.tid, seen.claimed, seen.name.as_slice());
            match (seen.state, seen.generation) {
                (LaneState::Live | LaneState::Ended, 1) => assert_eq!(owner, (1, 100, &b"one"[..])),
                (LaneState::Live, 2) => assert_eq!(owner, (2, 200, &b"two"[..])),
                (LaneState::Ended, 2) => assert_eq!(owner, (0, 0, &b""[..])),
                other => panic!("{other:?}"),
            }
        }
        writer.join().unwrap();
    });
}

/// A ring is backed by memory before its block can be seen.
fn lane_ring_block() {
    lane_block_is_published("ring_block", Lane::set_ring_block, |lane| {
        lane.read().map_or(0, |entry| entry.ring_block)
    });
}

/// And so are cells.
fn lane_cells_block() {
    lane_block_is_published("cells_block", Lane::set_cells_block, |lane| {
        lane.read().map_or(0, |entry| entry.cells_block)
    });
}

fn lane_block_is_published(word: &'static str, set: fn(&Lane, u64), get: fn(&Lane) -> u64) {
    check(move || {
        let (lane, block) = (owned_lane(), memory());
        watch(&*lane, &[word]);
        let writer = {
            let (lane, block) = (Arc::clone(&lane), Arc::clone(&block));
            thread::spawn(move || {
                make_ready(&block);
                set(&lane, 3);
            })
        };
        if get(&lane) == 3 {
            assert_ready(&block);
        }
        writer.join().unwrap();
    });
}

// ---- the point table ----

const NAME: Text = Text { offset: 8, len: 4 };
const NEW_NAME: Text = Text { offset: 16, len: 4 };

/// Two threads enter the same number: one fills the entry, and a reader sees
/// all of it, the text included, or nothing.
fn point_two_registrants() {
    check(|| {
        let (entry, text) = (Arc::new(Entry::new()), memory());
        watch(&*entry, &["ready", "line", "name"]);
        let register = |entry: &Entry, text: &AtomicU64| {
            let taken = entry.take();
            if taken {
                make_ready(text);
                entry.announce(NAME, Text::default(), 3);
            }
            taken
        };
        let others = [(); 2].map(|()| {
            let (entry, text) = (Arc::clone(&entry), Arc::clone(&text));
            thread::spawn(move || register(&entry, &text))
        });
        if let Some(picture) = entry.read() {
            assert_eq!((picture.name, picture.line), (NAME, 3));
            assert_ready(&text);
        }
        let taken = others.map(|other| other.join().unwrap());
        assert!(taken[0] ^ taken[1]);
    });
}

/// A new name's text is there before the name.
fn point_rename() {
    check(|| {
        let (entry, text) = (Arc::new(Entry::new()), memory());
        assert!(entry.take());
        entry.announce(NAME, Text::default(), 3);
        watch(&*entry, &["name"]);
        let writer = {
            let (entry, text) = (Arc::clone(&entry), Arc::clone(&text));
            thread::spawn(move || {
                make_ready(&text);
                entry.rename(NEW_NAME);
            })
        };
        let name = entry.read().unwrap().name;
        assert!(name == NAME || name == NEW_NAME);
        if name == NEW_NAME {
            assert_ready(&text);
        }
        writer.join().unwrap();
    });
}

/// Two threads give a point its shared cell: both use the same one, prepared.
fn point_shared_cell() {
    check(|| {
        let (entry, cells) = (Arc::new(Entry::new()), [memory(), memory()]);
        watch(&*entry, &["shared_cell"]);
        let give = |entry: &Entry, cells: &[Arc<AtomicU64>; 2], mine: usize| {
            make_ready(&cells[mine]);
            let offset = entry.set_shared_cell(mine as u64 + 1);
            assert_ready(&cells[offset as usize - 1]);
            offset
        };
        let other = {
            let (entry, cells) = (Arc::clone(&entry), cells.clone());
            thread::spawn(move || give(&entry, &cells, 1))
        };
        let mine = give(&entry, &cells, 0);
        assert_eq!(mine, other.join().unwrap());
    });
}

/// A thread that finds the shared cell finds it prepared.
fn point_shared_cell_reader() {
    check(|| {
        let (entry, cell) = (Arc::new(Entry::new()), memory());
        watch(&*entry, &["shared_cell"]);
        let writer = {
            let (entry, cell) = (Arc::clone(&entry), Arc::clone(&cell));
            thread::spawn(move || {
                make_ready(&cell);
                assert_eq!(entry.set_shared_cell(1), 1);
            })
        };
        if entry.shared_cell() == 1 {
            assert_ready(&cell);
        }
        writer.join().unwrap();
    });
}

// ---- the chain of cells ----

/// A cell that is counted is prepared.
fn chain_cell() {
    check(|| {
        let block = large(CellBlock::new);
        watch(&*block, &["used", "point"]);
        let writer = {
            let block = Arc::clone(&block);
            thread::spawn(move || {
                block.cell(0).prepare(7, ON, 1);
                block.set_used(1);
            })
        };
        if let ([cell], _) = block.read() {
            assert_eq!(torn_or_whole(cell).point, 7);
        }
        writer.join().unwrap();
    });
}

/// A reader that goes on to the next block has seen all cells of this one, and
/// finds the next one backed by memory.
fn chain_next() {
    check(|| {
        let (block, next) = (large(CellBlock::new), memory());
        watch(&*block, &["used", "next"]);
        let writer = {
            let (block, next) = (Arc::clone(&block), Arc::clone(&next));
            thread::spawn(move || {
                block.set_used(CELLS_PER_BLOCK);
                make_ready(&next);
                block.set_next(5);
            })
        };
        if let (cells, 5) = block.read() {
            assert_eq!(cells.len(), CELLS_PER_BLOCK);
            assert_ready(&next);
        }
        writer.join().unwrap();
    });
}

// ---- groups ----

/// A group, as its members see it.
struct Group {
    head: Head,
    members: Vec<Member>,
}

impl Group {
    fn with_room_for(members: usize) -> Self {
        let members = (0..members).map(|_| Member::default()).collect();
        Self { head: Head::default(), members }
    }

    fn words(&self) -> Words<'_> {
        Words { head: &self.head, members: &self.members, private: true }
    }

    /// The member comes; asserts what holds if all have come now.
    fn come(&self, place: Place, stamp: u64, if_complete: impl FnOnce(u32)) {
        let round = self.words().arrive(place, stamp).expect("it is a member");
        if self.words().is_complete(round) {
            if_complete(round);
        }
    }
}

/// Two members that have not come yet.
fn group_of_two() -> (Arc<Group>, [Place; 2]) {
    let group = Group::with_room_for(2);
    let places = [0, 1].map(|index| group.words().enter(index, |_| ()));
    watch(&group.head, &["completed"]);
    (Arc::new(group), places)
}

/// Two come at once: one of them notices that both have, and whoever goes on sees what
/// both did before, and when the last one came.
fn group_two_come() {
    check(|| {
        let (group, places) = group_of_two();
        group.members.iter().for_each(|member| watch(member, &["arrived"]));
        let before = [memory(), memory()];
        let come = move |group: &Group, before: &[Arc<AtomicU64>; 2], own: usize| {
            make_ready(&before[own]);
            group.come(places[own], 10 + own as u64, |round| {
                before.iter().for_each(|before| assert_ready(before));
                assert_eq!(group.words().last_stamp(round), 11);
            });
        };
        let other = {
            let (group, before) = (Arc::clone(&group), before.clone());
            thread::spawn(move || come(&group, &before, 1))
        };
        come(&group, &before, 0);
        other.join().unwrap();
        assert!(group.words().is_complete(1), "both have come, and neither has noticed");
    });
}

/// Of three, one sees that all have come, and another one goes on: that one sees what
/// the third did before it came, which is all that the third still does.
fn group_three_come() {
    check(|| {
        let group = Arc::new(Group::with_room_for(3));
        let places = [0, 1, 2].map(|index| group.words().enter(index, |_| ()));
        watch(&group.head, &["completed"]);
        watch(&group.members[2], &["arrived"]);
        let before = memory();
        let second = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.come(places[1], 11, |_| ()))
        };
        let third = {
            let (group, before) = (Arc::clone(&group), Arc::clone(&before));
            thread::spawn(move || {
                make_ready(&before);
                group.members[2].arrived.store(1, Ordering::Release);
            })
        };
        group.come(places[0], 10, |_| assert_ready(&before));
        second.join().unwrap();
        third.join().unwrap();
    });
}

/// One comes while the other one leaves: nobody is waited for any more.
fn group_one_leaves() {
    check(|| {
        let (group, places) = group_of_two();
        watch(&group.members[0], &["arrived"]);
        watch(&group.members[1], &["active"]);
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.words().leave(places[1]))
        };
        group.come(places[0], 10, |_| ());
        other.join().unwrap();
        assert!(group.words().is_complete(1), "nobody is missing, and nobody has noticed");
    });
}

/// One comes, and is killed before it looks who is there. The other one, which finds it
/// dead, goes on in any case, and takes only one that has not come for missing.
fn group_one_dies() {
    check(|| {
        let (group, places) = group_of_two();
        group.members.iter().for_each(|member| watch(member, &["arrived"]));
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || group.members[1].arrived.store(1, Ordering::Release))
        };
        group.come(places[0], 10, |_| ());
        let words = group.words();
        if !words.is_complete(1) {
            let missing = words.bury(0, 1, &|_| false);
            words.settle();
            assert!(missing <= 1 && words.is_complete(1));
        }
        other.join().unwrap();
    });
}

/// Two rounds: no round is complete before both have come to it, and the stamps of one
/// are there when the next is under way.
fn group_next_round() {
    check(|| {
        let (group, places) = group_of_two();
        watch(&group.members[1], &["arrived"]);
        fn is_right(group: &Group, round: u32, complete: u32) {
            assert_eq!(complete, round);
            for member in &group.members {
                assert!(member.arrived.load(Ordering::Relaxed) >= round);
            }
            assert_eq!(group.words().last_stamp(round), u64::from(round) * 10 + 1);
        }
        let come_twice = move |group: &Group, own: usize| {
            let mut goes_on = false;
            group.come(places[own], 10 + own as u64, |complete| {
                is_right(group, 1, complete);
                goes_on = true;
            });
            if goes_on {
                group.come(places[own], 20 + own as u64, |complete| is_right(group, 2, complete));
            }
        };
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || come_twice(&group, 1))
        };
        come_twice(&group, 0);
        other.join().unwrap();
        let words = group.words();
        assert!(words.is_complete(1));
        let both = group.members.iter().all(|member| member.arrived.load(Ordering::Relaxed) == 2);
        assert_eq!(words.is_complete(2), both);
    });
}

/// One enters while another one looks who is missing and whether it lives: nobody is
/// judged by who had the place before.
fn group_one_enters() {
    const ALIVE: u32 = 7;
    check(|| {
        let group = Arc::new(Group::with_room_for(2));
        let first = group.words().enter(0, |_| ());
        watch(&group.members[1], &["active", "id"]);
        let other = {
            let group = Arc::clone(&group);
            thread::spawn(move || {
                group.words().enter(1, |member| member.id.store(ALIVE, Ordering::Relaxed))
            })
        };
        group.come(first, 10, |_| ());
        let is_alive =
            |index: u32| group.members[index as usize].id.load(Ordering::Relaxed) == ALIVE;
        assert_eq!(group.words().bury(0, 1, &is_alive), 0);
        let second = other.join().unwrap();
        assert!(group.words().arrive(second, 11).is_some(), "it was taken for dead");
    });
}

// ---- the control word ----

/// Two change it at once: both changes are in it.
fn control_two_writers() {
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
fn control_reset() {
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

// ---- the header ----

/// Whoever sees the magic sees the rest.
fn header_magic() {
    check(|| {
        let header = large(Header::new);
        watch(&*header, &["magic", "geometry#5", "pid"]);
        let writer = {
            let header = Arc::clone(&header);
            thread::spawn(move || {
                let facts = Facts { pid: 4, ..Facts::default() };
                header.publish(&Geometry([1; 6]), &facts);
            })
        };
        if let Ok((geometry, facts)) = header.read(4096, None) {
            assert_eq!((geometry, facts.pid), (Geometry([1; 6]), 4));
        }
        writer.join().unwrap();
    });
}
