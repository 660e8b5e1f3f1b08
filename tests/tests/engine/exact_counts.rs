//! Exact counts: eight threads make 10^8 or 10^9 calls, while a reader polls as fast as it can and
//! changes points. Nothing is lost, and no cell that is read as consistent mixes two of its states.

use std::collections::HashMap;

use pfp_shm_layout::control::Change;
use pfp_shm_layout::reader::Picture;
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{cells, figure, size};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

const THREADS: u64 = 8;
const CALLS: u64 = size(100_000_000, 1_000_000_000);
/// Points that are always on; the first contains the second.
const STEADY: [&str; 5] = ["outer", "inner", "scoped", "by hand", "numbered"];
/// Points that the reader enables and disables.
const FLICKERING: [&str; 2] = ["flicker", "flicker by hand"];

/// The counts of each cell in the last poll: its measurements, and those in its histogram.
type Seen = HashMap<(u32, u32), (u64, u64)>;

/// Checks every cell by itself and against the last poll.
fn check(picture: &Picture, outer: u32, seen: &mut Seen) {
    for cell in &picture.cells {
        // Point 0 belongs to the calibration, whose first measurements were uncalibrated.
        cells::check(cell, cell.point != outer && cell.point != 0);
        let (count, in_histogram) = (cell.lifetime_count, cells::in_histogram(cell));
        let before = seen.insert((cell.lane, cell.point), (count, in_histogram));
        let (last, last_in_histogram) = before.unwrap_or_default();
        assert!(count >= last, "{last} measurements became {count}: {cell:?}");
        // If the cell was read again, its count includes all measurements that were in the last
        // poll's histogram. Only one measurement in progress may still be missing from the count.
        let bound = if count == last { u64::MAX } else { count + 1 };
        assert!(last_in_histogram <= bound, "{last_in_histogram} in the histogram: {cell:?}");
    }
}

/// The points' counts at one moment. `None` if the reader never sees all cells at once: a thread
/// that was pre-empted in the middle of a change leaves its cell with the last known figures.
fn counts(watch: &mut Watch, points: [u32; 2]) -> Option<[u64; 2]> {
    (0..10_000).find_map(|_| {
        let picture = watch.poll();
        (picture.losses.cells_busy == 0).then(|| points.map(|id| watch::total(picture, id).count))
    })
}

#[test]
fn counts_are_exact_and_cells_consistent_under_a_fast_reader() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["counts", &CALLS.to_string()]);
    target.reach("ready");
    let mut watch = Watch::attach(&place, &target);
    let flickering = FLICKERING.map(|name| watch::id(watch.poll(), name));
    let outer = watch::id(watch.poll(), "outer");
    let mut seen = Seen::new();
    let (mut polls, mut toggles, mut compared, mut moved_while_on) = (0u64, 0u64, 0u64, 0u64);
    target.go();

    while !target.has_reached("done") {
        let on = counts(&mut watch, flickering);
        flickering.iter().for_each(|&id| watch.change(id, Change::Disable));
        let at_off = counts(&mut watch, flickering);
        for _ in 0..20 {
            check(watch.poll(), outer, &mut seen);
        }
        let still_off = counts(&mut watch, flickering);
        if let (Some(at_off), Some(still_off)) = (at_off, still_off) {
            for (at_off, still_off) in at_off.iter().zip(still_off) {
                // Each thread may end the one region that it had open.
                let grown = still_off - at_off;
                assert!(grown <= THREADS, "{grown} more measurements while the point was off");
            }
            compared += 1;
            moved_while_on += u64::from(on.is_some_and(|on| on[0] < at_off[0]));
        }
        flickering.iter().for_each(|&id| watch.change(id, Change::Enable));
        for _ in 0..20 {
            check(watch.poll(), outer, &mut seen);
        }
        polls += 43;
        toggles += 2;
    }

    let rounds: u64 = target.said().one("rounds");
    let picture = watch.poll();
    check(picture, outer, &mut seen);
    assert!(rounds * STEADY.len() as u64 >= CALLS);
    for name in STEADY {
        let id = watch::id(picture, name);
        assert_eq!(watch::total(picture, id).count, rounds, "{name}");
        // Once the threads are idle, the histograms are complete, too.
        let histograms: u64 = watch::cells(picture, id).map(cells::in_histogram).sum();
        assert_eq!(histograms, rounds, "{name}");
    }
    for id in flickering {
        let count = watch::total(picture, id).count;
        assert!(0 < count && count <= rounds, "{count} of {rounds}");
    }
    let losses = picture.losses;
    assert_eq!((losses.mismatched_ends, losses.begins_refused, losses.cells_busy), (0, 0, 0));
    assert!(compared > 0 && moved_while_on > 0, "the toggled point was never caught counting");
    figure(&format!(
        "exact_counts: {rounds} rounds of 5, {polls} polls and more, {toggles} toggles, \
         {compared} of them compared"
    ));
    target.go();
    target.end_well();
}
