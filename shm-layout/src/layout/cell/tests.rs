//! Compares both ways to write a cell with plain lists and with each other.

use super::*;
use crate::layout::control::{Alpha, Change};

/// Xorshift: the same numbers in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Any number of up to 40 bits.
    fn ticks(&mut self) -> u64 {
        let bits = self.below(41);
        self.below(1 << bits)
    }

    fn measurement(&mut self) -> Measurement {
        let [off_cpu, elapsed] = [self.ticks(), self.ticks()];
        let away = Away { off_cpu, switches: 1 + self.below(3), elapsed };
        let exclusive = self.ticks();
        let inclusive = exclusive + self.ticks();
        Measurement { exclusive, inclusive, away: (self.below(2) == 0).then_some(away) }
    }
}

fn add_naively(sums: &mut Sums, measured: Measurement) {
    let own = measured.exclusive;
    sums.count += 1;
    sums.exclusive += own;
    sums.inclusive += measured.inclusive;
    let away = measured.away.unwrap_or_default();
    sums.off_cpu += away.off_cpu;
    sums.switches += away.switches;
    sums.longest = sums.longest.max(away.elapsed);
    sums.min = sums.min.min(own);
    sums.max = sums.max.max(own);
    sums.last = own;
    sums.squares += u128::from(own) * u128::from(own);
}

fn whole(cell: &Cell) -> CellPicture {
    let mut picture = CellPicture::default();
    assert_eq!(cell.read(&mut picture), CellRead::Whole);
    picture
}

/// A number of repetitions: a tenth of `times` under Miri, which is slow.
const fn times(times: u32) -> u32 {
    if cfg!(miri) { times / 10 } else { times }
}

/// Records, resets and changes of owner in any order: the picture equals three lists, of live, of
/// retired and of past measurements, which each change moves to the next list.
#[test]
fn a_cell_is_what_lists_of_measurements_would_be() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..times(50) {
        let bucket = AtomicU64::new(0);
        let (mut control, mut owner) = (Control(1), 1);
        let (mut live, mut retired, mut past) = (Sums::default(), Sums::default(), (0, 0));
        let mut folded = 0;
        let cell = Cell::new();
        cell.prepare(3, control, owner);
        for _ in 0..times(200) {
            let (mut reset, mut moved) = (false, false);
            match random.below(20) {
                0 => reset = true,
                1 => moved = true,
                2 => (reset, moved) = (true, true),
                // Neither of these two calls moves figures.
                3 => cell.follow(control, owner, |_| unreachable!()),
                4 => cell.abandon(),
                _ => {
                    let measured = random.measurement();
                    folded += 1;
                    cell.record(measured, Some(&bucket), folded);
                    add_naively(&mut live, measured);
                }
            }
            if reset || moved {
                control = if reset { control.with(Change::Reset) } else { control };
                owner += u32::from(moved);
                cell.follow(control, owner, |_| ());
                retired.merge(&live);
                live = Sums::default();
                if reset {
                    past.0 += retired.count;
                    past.1 += retired.exclusive;
                    retired = Sums::default();
                }
            }
            let picture = whole(&cell);
            assert_eq!(picture.live, live);
            assert_eq!(picture.retired, retired);
            assert_eq!((picture.past_count, picture.past_exclusive), past);
            assert_eq!((picture.epoch, picture.owner), (control.epoch(), owner));
            assert_eq!((picture.point, picture.folded, picture.staged), (3, folded, false));
        }
    }
}

/// A fold in batches of any size adds the same as records one by one. A reader sees a batch whole
/// or not at all, and never sees dropped figures.
#[test]
fn a_fold_adds_what_one_measurement_after_another_would() {
    let mut random = Random(7);
    let averaged = Control(1).with(Change::Alpha(Alpha::new(0.2).unwrap()));
    let (folded, single) = (Cell::new(), Cell::new());
    let plain = |_| AtomicU64::new(0);
    let sums: [SumWords; 2] = [core::array::from_fn(plain), core::array::from_fn(plain)];
    for (cell, control) in [(&folded, averaged), (&single, averaged)] {
        cell.prepare(1, control, 1);
        cell.set_amounts(9);
    }
    let pictures = || {
        let mut pictures = [CellPicture::default(), CellPicture::default()];
        for ((cell, sums), picture) in [&folded, &single].into_iter().zip(&sums).zip(&mut pictures)
        {
            assert_eq!(cell.read_with(picture, |_| Some(sums)), CellRead::Whole);
        }
        pictures
    };
    let mut number = 0;
    for _ in 0..times(300) {
        let before = pictures();
        let batch: Vec<_> = (0..random.below(5))
            .map(|_| Measurement { away: None, ..random.measurement() })
            .collect();
        number += batch.len() as u64;
        let is_dropped = random.below(4) == 0;
        let mut live = Sums::default();
        for again in 0..1 + u32::from(is_dropped) {
            live = folded.stage();
            for measured in &batch {
                live.add(averaged, measured.exclusive, measured.inclusive);
            }
            let during = pictures();
            assert!(during[0].staged && !during[1].staged);
            assert_eq!((&during[0].live, during[0].folded), (&before[0].live, before[0].folded));
            if is_dropped && again == 0 {
                assert_eq!(folded.mend(Some(&sums[0]), |_| 0, |_| ()).0, 0);
                folded.mended(Some(&sums[0]));
                assert_eq!(pictures()[0], CellPicture { staged: false, ..before[0].clone() });
            }
        }
        folded.publish(&live, Some(&sums[0]), number);
        for measured in batch {
            single.record_amounts(measured, None, Some((&sums[1], &[0; 4])), number);
        }
        // Measurements with amounts are recorded one by one, in both cells.
        let (measured, amounts) = (random.measurement(), [random.ticks(), 1, 0, 2]);
        for (cell, sums) in [&folded, &single].into_iter().zip(&sums) {
            cell.record_amounts(measured, None, Some((sums, &amounts)), number);
        }
        let [folded, single] = pictures();
        assert_eq!((&folded.live, folded.folded), (&single.live, number));
        assert_eq!(folded.amounts, single.amounts);
    }
}

/// One record adds the same by a fold and by `record`, whatever happens in between: time off the
/// CPU, resets, averages, and squares that overflow.
#[test]
fn one_record_adds_what_a_fold_of_it_would() {
    let mut random = Random(11);
    let (alone, folded) = (Cell::new(), Cell::new());
    let mut control = Control(1);
    for cell in [&alone, &folded] {
        cell.prepare(3, control, 1);
    }
    let (mut simple, mut other) = (0, 0u32);
    for number in 1..=u64::from(times(2_000)) {
        let most = [1 << 10, 1 << 31][random.below(2) as usize];
        let (exclusive, inclusive) = (random.below(most), random.below(1 << 31));
        let more = Sums::one(exclusive, inclusive);
        match random.below(16) {
            0 => {
                let measured = random.measurement();
                [&alone, &folded].iter().for_each(|cell| cell.record(measured, None, number));
            }
            1 => {
                let quarter = Change::Alpha(Alpha::new(0.25).unwrap());
                let changes = [Change::Reset, quarter, Change::Alpha(Alpha::OFF)];
                control = control.with(changes[random.below(3) as usize]);
                [&alone, &folded].iter().for_each(|cell| cell.follow(control, 1, |_| ()));
            }
            _ => {
                let staged = alone.stage_more();
                if alone.is_simple() {
                    alone.append_simple(staged, &more, number);
                    simple += 1;
                } else {
                    alone.append(staged, &more, None, number);
                    other += 1;
                }
                folded.append(folded.stage_more(), &more, None, number);
            }
        }
        assert_eq!(whole(&alone), whole(&folded));
    }
    assert!(simple.min(other) > times(200), "{simple} {other}");
}

/// The two ways to write a cell give the same sums.
#[test]
fn a_shared_cell_sums_as_one_with_a_single_writer() {
    let mut random = Random(42);
    let (alone, shared) = (Cell::new(), Cell::new());
    let averaged = Control(1).with(Change::Alpha(Alpha::new(0.2).unwrap()));
    let buckets = [AtomicU64::new(0), AtomicU64::new(0)];
    alone.prepare(1, averaged, 0);
    shared.prepare(1, averaged, 0);
    for _ in 0..1000 {
        let measured = random.measurement();
        shared.record_shared(measured, Some(&buckets[1]));
        alone.record(measured, Some(&buckets[0]), 0);
        assert_eq!(whole(&alone).live, whole(&shared).live);
    }
    assert!(buckets.iter().all(|bucket| bucket.load(Ordering::Relaxed) == 1000));
}

/// A point's two shared cells take turns, and a thread that comes late with an old control
/// word changes nothing.
#[test]
fn shared_cells_go_back_to_no_older_window() {
    let cells = [Cell::new(), Cell::new()];
    let find = |control, cells| {
        Cell::shared_for(cells, control, |newest, other| {
            other.restart_shared(newest, control, true, |_| ())
        })
    };
    let both = [Some(&cells[0]), Some(&cells[1])];
    assert_eq!(find(Control(1), [None, None]).err(), Some(0));
    cells[0].prepare(1, Control(1), 0);
    let reset = Control(1).with(Change::Reset);
    assert_eq!(find(reset, [both[0], None]).err(), Some(1));
    cells[1].prepare(1, reset, 0);
    for (control, wanted) in [(reset, 1), (Control(1), 1), (reset.with(Change::Reset), 0)] {
        let cell = find(control, both).unwrap();
        cell.record_shared(Random(7).measurement(), None);
        assert!(std::ptr::eq(cell, &raw const cells[wanted]), "{control:?}");
    }
    assert_eq!(cells.each_ref().map(|cell| whole(cell).live.count), [1, 2]);
    assert_eq!(cells.each_ref().map(|cell| whole(cell).epoch), [2, 1]);
    // A point switched off and on stays in its window.
    let off = reset.with(Change::Reset).with(Change::Disable);
    assert!(std::ptr::eq(find(off, both).unwrap(), &raw const cells[0]));
    assert_eq!((cells[0].control(), whole(&cells[0]).live.count), (off, 1));
}

/// A cell that a thread has entered is cleared only after the thread has left it, or once the
/// caller no longer waits for the thread.
#[test]
fn no_shared_cell_is_cleared_that_was_entered() {
    let (cell, published, reset) = (Cell::new(), Cell::new(), Control(1).with(Change::Reset));
    cell.prepare(1, Control(1), 0);
    published.prepare(1, Control(1), 0);
    let restart = |control, waited_for| {
        let is_cleared = cell.restart_shared(&published, control, waited_for, |_| ());
        // The published cell must follow the same word before the next restart.
        if is_cleared {
            published.prepare(1, control, 0);
        }
        is_cleared
    };
    let [one, two] = [(); 2].map(|()| cell.enter_shared().expect("nobody clears it"));
    one.record_shared(Random(7).measurement(), None);
    drop(one);
    assert!(!restart(reset, true));
    assert_eq!((cell.control(), whole(&cell).live.count), (Control(1), 1));
    drop(two);
    assert!(restart(reset, true));
    assert_eq!((cell.control(), whole(&cell).live.count), (reset, 0));
    // A thread that never leaves, or leaves too late, does not prevent a later reset.
    let late = cell.enter_shared().expect("nobody clears it");
    let next = reset.with(Change::Reset);
    assert!(!restart(next, true) && restart(next, false));
    drop(late);
    assert!(cell.enter_shared().is_some());
    assert!(restart(next.with(Change::Reset), true));
}

/// While another thread may clear a cell, measurements are added to the previous window.
#[test]
fn nobody_waits_for_a_shared_cell_to_be_cleared() {
    let cells = [Cell::new(), Cell::new()];
    let both = [Some(&cells[0]), Some(&cells[1])];
    cells[0].prepare(1, Control(1), 0);
    cells[1].prepare(1, Control(1).with(Change::Reset), 0);
    let newest = Control(1).with(Change::Reset).with(Change::Reset);
    let found = Cell::shared_for(both, newest, |_, _| false).unwrap();
    assert!(std::ptr::eq(found, &raw const cells[1]));
}

/// A thread finds the third reset. Before it can clear the other cell, a second thread, which has
/// found the second reset, publishes that cell. The first thread must not clear that cell. During
/// each clearing, threads find a cell to enter.
#[test]
fn a_shared_cell_that_another_thread_has_published_is_not_cleared() {
    let cells = [Cell::new(), Cell::new()];
    let both = [Some(&cells[0]), Some(&cells[1])];
    let resets: [Control; 4] = std::array::from_fn(|resets| {
        (0..resets).fold(Control(1), |control, _| control.with(Change::Reset))
    });
    for (cell, control) in cells.iter().zip(resets) {
        cell.prepare(1, control, 0);
        // A part for the restart to clear.
        cell.set_part(0, 1);
    }
    let enter = |control| {
        let cell = Cell::shared_for(both, control, |_, _| false).unwrap();
        assert!(cell.enter_shared().is_some(), "{control:?}");
    };
    let restart_before = |control: Control, before: &dyn Fn()| {
        Cell::shared_for(both, control, |newest, other| {
            before();
            other.restart_shared(newest, control, true, |_| enter(control))
        })
        .unwrap()
    };
    let found = restart_before(resets[3], &|| {
        let found = restart_before(resets[2], &|| ());
        assert!(std::ptr::eq(found, &raw const cells[0]));
        found.record_shared(Random(7).measurement(), None);
    });
    assert!(std::ptr::eq(found, &raw const cells[0]));
    assert_eq!((found.control(), whole(found).live.count), (resets[2], 1));
    // The next thread clears the other cell, which belongs to the previous window.
    let found = restart_before(resets[3], &|| ());
    assert!(std::ptr::eq(found, &raw const cells[1]) && found.control() == resets[3]);
    // A thread that has found an older reset clears nothing.
    let older = restart_before(resets[2], &|| ());
    assert!(std::ptr::eq(older, found));
}

/// A reader beside a writer: a picture that it calls whole is of one moment. Outside Miri the
/// models of `tests/loom` check this.
#[cfg(miri)]
#[test]
fn a_picture_beside_a_writer_is_of_one_moment() {
    const CALLS: u64 = 200;
    let (cell, bucket, ended) = (Cell::new(), AtomicU64::new(0), AtomicU64::new(0));
    cell.prepare(1, Control(1), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for call in 0..CALLS {
                let measured = Measurement { exclusive: 7, inclusive: 9, away: None };
                cell.record(measured, Some(&bucket), call + 1);
            }
            // Pairs with the load below.
            ended.store(1, Ordering::Release);
        });
        while ended.load(Ordering::Acquire) == 0 {
            let mut picture = CellPicture::default();
            if cell.read(&mut picture) == CellRead::Whole {
                let Sums { count, exclusive, inclusive, .. } = picture.live;
                assert_eq!((exclusive, picture.live.squares), (count * 7, u128::from(count * 49)));
                assert_eq!((inclusive, picture.folded), (count * 9, count));
            }
            std::thread::yield_now();
        }
    });
    assert_eq!(whole(&cell).live.count, CALLS);
}

/// A region off the CPU may seem too short. If it has no ticks, or a few ticks less than the
/// shortest region that kept the CPU, it counts as long as that shortest region. Only the sums
/// count the ticks that it has.
#[test]
fn off_cpu_regions_do_not_lower_the_minimum() {
    let cell = Cell::new();
    cell.prepare(3, Control(1), 1);
    let record = |exclusive, kept_cpu| {
        let measured = Measurement { exclusive, inclusive: exclusive, away: None };
        let credible = if kept_cpu { exclusive } else { cell.credible(exclusive, 10) };
        cell.record_as(cell.staged(), measured, (credible, kept_cpu), None, None, 0);
        let mut picture = CellPicture::default();
        assert_eq!(cell.read(&mut picture), CellRead::Whole);
        assert_eq!(picture.point, 3);
        picture.live.bound_minimum();
        let Sums { count, exclusive, min, max, last, .. } = picture.live;
        [count, exclusive, min, max, last]
    };
    // Before any region has kept the CPU, a region counts by its own ticks.
    assert_eq!(record(30, false), [1, 30, 30, 30, 30]);
    assert_eq!(record(20, false), [2, 50, 20, 30, 20]);
    // From the first region that kept the CPU on, the minimum counts only such regions, and is at
    // most the mean.
    assert_eq!(record(40, true), [3, 90, 30, 40, 40]);
    assert_eq!(record(90, true), [4, 180, 40, 90, 90]);
    assert_eq!(record(0, false), [5, 180, 36, 90, 40]);
    assert_eq!(record(30, false), [6, 210, 35, 90, 40]);
    assert_eq!(record(140, false), [7, 350, 40, 140, 140]);
    assert_eq!(record(35, true), [8, 385, 35, 140, 35]);
    // A region that is much shorter is believed.
    assert_eq!(record(24, false), [9, 409, 24, 140, 24]);
    // In a new window no region has kept the CPU yet.
    cell.follow(Control(1).with(Change::Reset), 1, |_| ());
    assert_eq!(record(3, false), [1, 3, 3, 3, 3]);
}
