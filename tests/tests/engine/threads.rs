//! Threads that start and end: memory follows the peak number of threads and not their total.
//! Threads without a lane of their own are counted exactly, too, and so are regions in a thread's
//! destructors.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use pfp_model::Model;
use pfp_read::snapshot::Snapshot;
use pfp_read::source;
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::lane::LaneState;
use pfp_shm_layout::ring::Slot;
use pfp_tests::place::Place;
use pfp_tests::target::wait_for;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os, size};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

#[test]
fn memory_follows_the_peak_number_of_threads() {
    const THREADS: u64 = size(20_000, 1_000_000);
    let place = Place::new();
    let mut target = place.start(TARGET, &["short-threads", &THREADS.to_string()]);
    target.reach("warm");
    let mut watch = Watch::attach(&place, &target);
    let lanes = watch.poll().lanes.len();
    let (blocks, mappings) = (watch.blocks_used(), os::mapping_count(target.pid()));
    let resident = os::resident(target.pid());
    // 16 threads at once, and the first one.
    assert_eq!(lanes, 17);
    target.go();
    target.reach("done");
    let blocks_after = watch.blocks_used();
    let mappings_after = os::mapping_count(target.pid());
    let resident_after = os::resident(target.pid());
    let picture = watch.poll();
    assert_eq!(picture.lanes.len(), lanes);
    assert_eq!(watch::named(picture, "short").count, THREADS * 10 + 1);
    assert_eq!(picture.losses.lanes_overflowed, 0);
    // A lane takes a block for histograms when it first needs one, and the threads library caches
    // some stacks.
    assert!(blocks_after <= blocks + lanes as u64, "{blocks} blocks became {blocks_after}");
    assert!(mappings_after <= mappings + 4, "{mappings} mappings became {mappings_after}");
    // Rings that were not full before fill up, and keep their memory.
    let rings = (lanes * RING_SLOTS * size_of::<Slot>()) as u64;
    let most = resident + rings + (1 << 20);
    assert!(resident_after <= most, "{resident} bytes became {resident_after}");
    figure(&format!(
        "threads: {THREADS} threads on {lanes} lanes, blocks {blocks} to {blocks_after}, \
         mappings {mappings} to {mappings_after}, resident {} to {} KiB",
        resident >> 10,
        resident_after >> 10,
    ));
    target.end_well();
}

/// A lane counts its owners in 32 bits, and the count wraps. The test sets the counts close to
/// their maximum.
#[test]
fn a_lanes_owner_count_may_wrap() {
    const THREADS: u64 = size(4_000, 40_000);
    /// Number of owners until the count wraps.
    const LEFT: u64 = 50;
    let place = Place::new();
    let mut target = place.start(TARGET, &["short-threads", &THREADS.to_string()]);
    target.reach("warm");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let ended = picture.lanes.iter().filter(|lane| lane.lane.state == LaneState::Ended);
    let ended: Vec<_> = ended.map(|lane| (lane.id, lane.lane.generation)).collect();
    assert_eq!(ended.len(), 16);
    let segment = watch.reader().segment();
    let name = segment.name().expect("it is an object").as_str();
    let object = OpenOptions::new().read(true).write(true).open(format!("/dev/shm{name}"));
    let object = object.expect("it belongs to this user");
    for &(id, generation) in &ended {
        let lane = std::ptr::from_ref(segment.lane(id as usize).expect("it is there"));
        let offset = (lane.addr() - segment.base().addr()) as u64;
        // The first word of a lane holds the number of owners so far, and two bits of state.
        let mut word = [0; 8];
        object.read_exact_at(&mut word, offset).expect("it is within the object");
        let word = u64::from_ne_bytes(word);
        assert_eq!(word >> 2, u64::from(generation), "not the word that was meant");
        let near_end = (u64::from(u32::MAX) - LEFT) << 2 | word & 3;
        object.write_all_at(&near_end.to_ne_bytes(), offset).expect("it may be written");
    }
    let before = watch.poll().lanes.iter().map(|lane| lane.lane.generation).max();
    assert_eq!(before, Some(u32::MAX - LEFT as u32));
    target.go();
    target.reach("done");
    let picture = watch.poll();
    let largest = picture.lanes.iter().map(|lane| lane.lane.generation).max();
    assert!(largest.is_some_and(|owners| owners < u32::MAX - LEFT as u32), "{largest:?}");
    assert_eq!(picture.lanes.len(), 17);
    assert_eq!(watch::named(picture, "short").count, THREADS * 10 + 1);
    target.end_well();
}

#[test]
fn threads_without_a_lane_are_counted_exactly() {
    const THREADS: u64 = size(32, 10_000);
    const LANES: u64 = size(4, 256);
    const CALLS: u64 = size(20_000, 1_000);
    let place = Place::new();
    let arguments = ["many-threads", &THREADS.to_string(), &CALLS.to_string()];
    let mut target = place.start_with(TARGET, &arguments, "PFP_LANES", LANES.to_string());
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
    // The first thread has one of the lanes.
    assert_eq!(picture.losses.lanes_overflowed, THREADS - (LANES - 1));
    assert!(picture.lanes.iter().any(|lane| lane.overflow));
    assert_eq!(picture.losses.mismatched_ends, 0);
    // Threads that share cells have no ring.
    let without_record: u64 = (picture.cells.iter())
        .filter(|cell| picture.lanes.iter().any(|lane| lane.overflow && lane.id == cell.lane))
        .map(|cell| cell.lifetime_count)
        .sum();
    assert_eq!(picture.losses.records_missed, without_record);
    figure(&format!(
        "threads: {THREADS} live threads on {LANES} lanes, {CALLS} calls of each of 4 points, \
         difference 0"
    ));
    target.end_well();
}

#[test]
fn regions_in_a_threads_destructors_count() {
    const THREADS: u64 = 50;
    let place = Place::new();
    let mut target = place.start(TARGET, &["thread-exit", &THREADS.to_string()]);
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "work").count, THREADS);
    assert_eq!(watch::named(picture, "in a destructor").count, THREADS);
    // Each thread measures the point twice: in the destructor of a key that is older than the
    // probe's, and in that of a newer key.
    assert_eq!(watch::named(picture, "in a key's destructor").count, 2 * THREADS);
    // The first thread, and one other at a time.
    assert_eq!(picture.lanes.len(), 2);
    target.end_well();
}

/// A thread that measures after the probe's last destructor leaves its lane claimed, and cannot
/// release it. The next thread that starts reaps the lane.
#[test]
fn a_lane_outlives_its_thread_only_until_the_next_one_starts() {
    const THREADS: u64 = 50;
    let place = Place::new();
    let mut target = place.start(TARGET, &["after-thread-exit", &THREADS.to_string()]);
    target.reach("done");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "work").count, THREADS);
    // This is the maximum number of times that the threads library calls a destructor.
    assert_eq!(watch::named(picture, "again and again").count, 4 * THREADS);
    assert_eq!(picture.lanes.len(), 2, "a lane for each thread: {:?}", picture.lanes);
    target.go();
    target.reach("after");
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "work").count, THREADS + 1);
    assert_eq!(picture.lanes[1].lane.state, LaneState::Ended);
    target.end_well();
}

/// The CPU time that the viewer reads from the kernel for a thread that alternates between work and
/// sleep equals the thread's own clock, and so does the thread's share of a CPU between two polls.
#[test]
fn the_kernels_share_of_a_thread_equals_its_own_clock() {
    const WORK: Duration = Duration::from_millis(20);
    let (say, said) = mpsc::channel();
    let (wake, woken) = mpsc::channel();
    let thread = thread::spawn(move || {
        pfp::register_thread("works and rests");
        let tid = os::tid();
        // The thread's CPU time before and after each sleep.
        loop {
            os::burn(WORK);
            say.send((tid, os::thread_cpu())).expect("the test listens");
            if woken.recv().is_err() {
                return;
            }
            say.send((tid, os::thread_cpu())).expect("the test listens");
        }
    });
    let found = source::discover().expect("the directory can be read").candidates;
    let me = found.iter().find(|candidate| candidate.pid == std::process::id());
    let mut viewer = source::attach(me.expect("this process measures")).expect("it can be watched");
    let mut model = Model::new(1.0);
    // The thread's CPU time before and after its sleep, and the times at which the poll began and
    // ended.
    let mut polled = || {
        let (tid, before) = said.recv().expect("it rests");
        let of_thread = |snapshot: &Snapshot| {
            let lane = snapshot.lanes.iter().find(|lane| lane.tid == tid)?;
            lane.cpu_ns.map(Duration::from_nanos)
        };
        // The kernel's figure is complete once the thread has left the CPU.
        let (began, snapshot) = wait_for("the thread to rest", || {
            let began = os::wall();
            let snapshot = viewer.poll().expect("it runs");
            (of_thread(&snapshot)? >= before).then_some((began, snapshot))
        });
        let ended = os::wall();
        wake.send(()).expect("it rests");
        let (_, after) = said.recv().expect("it works");
        assert!(of_thread(&snapshot) <= Some(after), "{snapshot:?}, {before:?} to {after:?}");
        model.fold(snapshot);
        let threads = model.thread_figures().iter();
        let share = threads.filter(|it| it.lane.tid == tid).find_map(|thread| thread.cpu);
        (share, [before, after], [began, ended])
    };
    let (none, used, polls) = polled();
    assert_eq!(none, None, "since when is not known");
    // The thread sleeps while this one works.
    os::burn(WORK);
    let (share, used_then, polls_then) = polled();
    let share = share.expect("it was there before");
    let least = (used_then[0] - used[1]).div_duration_f64(polls_then[1] - polls[0]);
    let most = (used_then[1] - used[0]).div_duration_f64(polls_then[0] - polls[1]);
    figure(&format!("threads: the kernel's share {share:.4}, by the thread {least:.4}..{most:.4}"));
    // The rates of the two clocks differ by what NTP corrects, at most 500 ppm.
    assert!(least * 0.999 <= share && share <= most * 1.001, "{share}, {least} to {most}");
    drop(wake);
    thread.join().expect("it ends");
}
