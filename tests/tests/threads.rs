//! Threads come and go: memory follows the peak and not the number of threads,
//! threads without a lane of their own are counted as exactly, and so are
//! regions in a thread's last moments.

use pfp_tests::target::Place;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

#[test]
fn short_threads_leave_figures_and_no_memory() {
    const THREADS: u64 = 20_000;
    let place = Place::new();
    let mut target = place.start(TARGET, &["short-threads", &THREADS.to_string()]);
    target.reach("warm");
    let mut watch = Watch::attach(&place, &target);
    let lanes = watch.poll().lanes.len();
    let (blocks, mappings) = (watch.blocks_used(), os::mapping_count(target.pid()));
    // 16 threads at once, and the first one.
    assert_eq!(lanes, 17);
    target.go();
    target.reach("done");
    let blocks_after = watch.blocks_used();
    let mappings_after = os::mapping_count(target.pid());
    let picture = watch.poll();
    assert_eq!(picture.lanes.len(), lanes);
    assert_eq!(watch::named(picture, "short").count, THREADS * 10);
    assert_eq!(picture.losses.lanes_overflowed, 0);
    // A lane takes a block for its histograms when the first needs one, and the
    // threads library keeps some stacks for later.
    assert!(blocks_after <= blocks + lanes as u64, "{blocks} blocks became {blocks_after}");
    assert!(mappings_after <= mappings + 4, "{mappings} mappings became {mappings_after}");
    figure(&format!(
        "threads: {THREADS} threads on {lanes} lanes, blocks {blocks} to {blocks_after}, \
         mappings {mappings} to {mappings_after}"
    ));
    target.end_well();
}

#[test]
fn threads_without_a_lane_are_counted_exactly() {
    const THREADS: u64 = 32;
    const CALLS: u64 = 20_000;
    let place = Place::new();
    let arguments = ["many-threads", &THREADS.to_string(), &CALLS.to_string()];
    let mut target = place.start_with(TARGET, &arguments, "PFP_LANES", "4");
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "first").count, THREADS);
    for name in ["outer", "inner", "by hand", "numbered"] {
        let id = watch::id(picture, name);
        assert_eq!(watch::total(picture, id).count, THREADS * CALLS, "{name}");
        let histograms: u64 = watch::cells(picture, id).map(pfp_tests::cells::in_histogram).sum();
        assert_eq!(histograms, THREADS * CALLS, "{name}");
    }
    // Four lanes: the first thread's and three.
    assert_eq!(picture.losses.lanes_overflowed, THREADS - 3);
    assert!(picture.lanes.iter().any(|lane| lane.overflow));
    assert_eq!(picture.losses.mismatched_ends, 0);
    target.end_well();
}

#[test]
fn the_last_moments_of_a_thread_count() {
    const THREADS: u64 = 50;
    let place = Place::new();
    let mut target = place.start(TARGET, &["thread-exit", &THREADS.to_string()]);
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "work").count, THREADS);
    assert_eq!(watch::named(picture, "in a destructor").count, THREADS);
    // Of a key that is older than the probe's, and of one that is younger.
    assert_eq!(watch::named(picture, "in a key's destructor").count, 2 * THREADS);
    // One thread at a time, beside the first.
    assert_eq!(picture.lanes.len(), 2);
    target.end_well();
}
