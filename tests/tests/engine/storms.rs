//! Resets and switches as fast as a viewer can write them, against eight threads that measure: all
//! windows together have all measurements.

use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::control::Change;
use pfp_shm_layout::reader::{CellReading, Picture};
use pfp_tests::place::Place;
use pfp_tests::target::wait_for;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{cells, figure, size};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

const THREADS: usize = 8;
const RESETS: u64 = size(5_000, 100_000);
/// Lowest bit of the reset count in a control word.
const EPOCH_SHIFT: u32 = 36;
/// Number of values of the reset count, which then wraps.
const EPOCHS: u64 = 1 << 28;

/// The windows of a point in one cell, as the reader saw them.
#[derive(Clone, Copy, Debug, Default)]
struct Windows {
    /// Measurements in closed windows.
    closed: u64,
    /// Measurements last seen in the open window.
    seen: u64,
    /// Number of windows in which the reader saw measurements.
    count: u64,
}

impl Windows {
    fn note(&mut self, cell: &CellReading) {
        let live = cell.live.count + cell.retired.count;
        let closed = cell.lifetime_count - live;
        assert!(closed >= self.closed, "a window lost measurements: {self:?}, {cell:?}");
        if closed != self.closed {
            let window = closed - self.closed;
            assert!(window >= self.seen, "{window} were left of a window: {self:?}, {cell:?}");
            self.count += 1;
            *self = Self { closed, seen: 0, count: self.count };
        }
        // A cell that has not restarted yet shows no measurements of its old window.
        assert!(live == 0 || live >= self.seen, "the open window shrank: {self:?}, {cell:?}");
        self.seen = self.seen.max(live);
    }
}

fn note(all: &mut HashMap<u32, Windows>, picture: &Picture, point: u32) {
    for cell in watch::cells(picture, point) {
        cells::check(cell, true);
        all.entry(cell.lane).or_default().note(cell);
    }
}

/// Threads without a lane share a point's cells. After resets in rapid succession, and while
/// threads that clear cells lose their CPU, count, sums and histogram belong to one window, and the
/// total over all windows is complete.
#[test]
fn a_window_shared_by_threads_is_consistent() {
    let place = Place::new();
    let threads = (4 * THREADS).to_string();
    let mut target = place.start_with(TARGET, &["storm", &threads], "PFP_LANES", "1");
    target.reach("running");
    let mut watch = Watch::attach(&place, &target);
    let steady = watch::id(watch.poll(), "steady");
    for _ in 0..RESETS {
        watch.change(steady, Change::Reset);
        watch.poll();
    }
    target.go();
    let calls: u64 = target.reach("done").all::<u64>("thread").iter().map(|said| said[1]).sum();
    let picture = watch.poll();
    let shared: Vec<_> = watch::cells(picture, steady).collect();
    let [cell] = shared[..] else { panic!("{shared:?}") };
    assert!(picture.lanes.iter().any(|lane| lane.overflow && lane.id == cell.lane));
    cells::check_left_shared(cell, 0);
    assert_eq!(cell.lifetime_count + picture.losses.begins_missed, calls);
    assert!(cell.live.count < calls, "no reset came through: {cell:?}");
    target.go();
    target.end_well();
}

#[test]
fn the_sum_of_the_windows_is_the_total() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["storm", &THREADS.to_string()]);
    target.reach("running");
    let mut watch = Watch::attach(&place, &target);
    let (steady, flicker) = (watch::id(watch.poll(), "steady"), watch::id(watch.poll(), "flicker"));

    // Advance the reset count to near its maximum, so that it wraps halfway through the test. Each
    // step is small enough that cells do not take it for a step backwards.
    for _ in 0..3 {
        let before =
            watch::cells(watch.poll(), steady).map(|cell| cell.lifetime_count).sum::<u64>();
        let word =
            watch.reader().segment().control(steady as usize).expect("there is such a point");
        word.fetch_add((EPOCHS / 3 - RESETS / 6) << EPOCH_SHIFT, Relaxed);
        wait_for("every thread to follow", || {
            let cells: Vec<_> = watch::cells(watch.poll(), steady).collect();
            let live = cells.iter().filter(|cell| cell.live.count > 0).count();
            let now = cells.iter().map(|cell| cell.lifetime_count).sum::<u64>();
            live >= THREADS && now > before
        });
    }

    let epoch = |watch: &mut Watch| {
        let points = &watch.poll().points;
        points.iter().find(|point| point.id == steady).expect("just found").control.epoch()
    };
    let first = epoch(&mut watch);
    let mut windows = HashMap::new();
    for reset in 0..RESETS {
        watch.change(steady, Change::Reset);
        watch.change(flicker, if reset % 2 == 0 { Change::Disable } else { Change::Enable });
        if reset % 3 == 0 {
            watch.change(flicker, Change::Reset);
        }
        note(&mut windows, watch.poll(), steady);
    }
    let last = epoch(&mut watch);
    assert!(u64::from(first) > EPOCHS - RESETS && u64::from(last) < RESETS, "{first} to {last}");
    target.go();
    let said = target.reach("done").clone();

    let picture = watch.poll();
    note(&mut windows, picture, steady);
    let (mut total, mut seen) = (0, 0);
    for thread in said.all::<u64>("thread") {
        let lane = watch::lane(picture, thread[0] as u32);
        let windows = windows[&lane];
        assert_eq!(windows.closed + windows.seen, thread[1], "lane {lane}: {windows:?}");
        total += thread[1];
        seen += windows.count;
        // The threads cannot know how often they measured the point that was switched; but the ring
        // counts every measurement of the lane.
        let reading = picture.lanes.iter().find(|reading| reading.id == lane).expect("found");
        let cells = picture.cells.iter().filter(|cell| cell.lane == lane);
        let measured: u64 = cells.map(|cell| cell.lifetime_count).sum();
        assert_eq!(reading.written + reading.errors.records_missed, measured, "lane {lane}");
    }
    assert!(seen > THREADS as u64, "no windows: {windows:?}");
    let losses = picture.losses;
    assert_eq!((losses.mismatched_ends, losses.begins_missed, losses.cells_busy), (0, 0, 0));
    figure(&format!(
        "storms: {RESETS} resets from number {first} to {last}, and as many toggles, under \
         {total} calls of {THREADS} threads; {seen} windows with something in them, their sum \
         exact"
    ));
    target.go();
    target.end_well();
}
