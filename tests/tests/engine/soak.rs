//! Polls a program that measures as fast as it can, as many times as a viewer with ten polls per
//! second does in a week. The memory of the program and of the viewer does not grow, and the
//! viewer's counts are the true ones.

use pfp_tests::place::Place;
use pfp_tests::{figure, size};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

const THREADS: u64 = 2;
const POLLS: u64 = size(12_000, 7 * 24 * 3600 * 10);
/// Memory by which the program or the viewer may grow: for parts of histograms, and for the last
/// tier of the viewer's histories. A growth by one byte per poll would exceed this limit in the
/// full test.
const SLACK: u64 = size(4 << 20, 1 << 20);
/// Allowed relative difference between two figures of the same CPU time.
const NEAR: f64 = 0.005;

#[test]
fn memory_does_not_grow_over_a_week_of_polls() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["storm", &THREADS.to_string()]);
    target.reach("running");
    let arguments = ["watch", &target.pid().to_string(), &POLLS.to_string()];
    let mut viewer = place.start(TARGET, &arguments);
    let resident = viewer.reach("watched").all::<u64>("resident");
    target.go();
    let said = target.reach("done").clone();
    viewer.go();
    let counted = viewer.end_well();

    // In the first fifth, caches and histories still fill up.
    let warm = &resident[resident.len() / 5];
    let end = resident.last().expect("there are samples");
    assert!(end[0] <= warm[0] + SLACK, "the viewer grows: {resident:?}");
    assert!(end[1] <= warm[1] + SLACK, "the program grows: {resident:?}");

    let threads = said.all::<u64>("thread");
    let rounds: u64 = threads.iter().map(|thread| thread[1]).sum();
    let [steady, everything] =
        ["steady", "everything"].map(|key| counted.all::<u64>(key).remove(0));
    assert_eq!(steady[0], rounds, "the viewer has lost count");
    assert_eq!(everything[0], THREADS);
    let ns_per_tick = 1e9 / said.one::<f64>("ticks_per_second");
    let cpu: u64 = threads.iter().map(|thread| thread[2]).sum();
    let drift = everything[2] as f64 * ns_per_tick / cpu as f64 - 1.0;
    let stolen: u64 = threads.iter().map(|thread| thread[3]).sum();
    let room = NEAR + stolen as f64 / cpu as f64;
    assert!(drift.abs() < room, "{drift:+.5} from the CPU time, {stolen} ns stolen");
    figure(&format!(
        "soak: {POLLS} polls, {} measurements, {:.1} s of CPU time with a drift of {:+.4} %, \
         {:.4} s stolen; viewer {} to {} KiB, program {} to {} KiB; counts exact",
        2 * rounds + THREADS,
        cpu as f64 / 1e9,
        drift * 100.0,
        stolen as f64 / 1e9,
        warm[0] >> 10,
        end[0] >> 10,
        warm[1] >> 10,
        end[1] >> 10,
    ));
    target.go();
    target.end_well();
}
