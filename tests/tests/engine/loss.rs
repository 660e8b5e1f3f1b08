//! Every loss is counted. The records of a thread are those that a reader got, those that were
//! overwritten before it could copy them, and those that found no memory: the three numbers add up.
//! Measurements that are lost are counted, too.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use pfp::Point;
use pfp_shm_layout::calls::MAX_EDGES;
use pfp_shm_layout::geometry::RING_SLOTS;
use pfp_shm_layout::reader::{Call, PointPicture};
use pfp_tests::faults::own_shm;
use pfp_tests::place::Place;
use pfp_tests::target::{Target, wait_for};
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os, own, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

const THREADS: u64 = 8;

/// Number of times that each ring wraps.
const WRAPS: u64 = size(30, 1_000);
/// Minimum time for which the reader is stopped.
const STOPPED: Duration = Duration::from_millis(size(300, 10_000));
/// Minimum number of times that each ring wraps while the reader is stopped.
const WRAPS_STOPPED: u64 = 3;

/// The lowest number of records on a lane.
fn least_written(watch: &mut Watch) -> u64 {
    let written = watch.poll().lanes.iter().skip(1).map(|lane| lane.written);
    written.min().expect("the threads have lanes")
}

#[test]
fn records_missed_by_a_stopped_reader_are_counted() {
    let place = Place::new();
    let least = WRAPS * RING_SLOTS as u64;
    let arguments = ["emissions", &THREADS.to_string(), &least.to_string()];
    let mut target = place.start(TARGET, &arguments);
    target.reach("running");
    let mut watch = Watch::attach(&place, &target);
    let mut reader = place.start(TARGET, &["drain", &target.pid().to_string()]);
    reader.reach("attached");
    reader.go();
    reader.reach("reading");

    os::signal(reader.pid(), libc::SIGSTOP);
    let (start, before) = (Instant::now(), least_written(&mut watch));
    let wanted = before + WRAPS_STOPPED * RING_SLOTS as u64;
    wait_for("the rings to wrap", || {
        start.elapsed() >= STOPPED && least_written(&mut watch) >= wanted
    });
    os::signal(reader.pid(), libc::SIGCONT);
    wait_for("the last wrap", || least_written(&mut watch) >= least);
    target.go();
    let said = target.reach("done").clone();
    reader.go();
    let read = reader.end_well();

    let lanes: Vec<Vec<u64>> = read.all("lane");
    let (mut emitted_by_all, mut delivered_to_all, mut wraps) = (0, 0, u64::MAX);
    for thread in said.all::<u64>("thread") {
        let [tid, emitted] = thread[..] else { panic!("{thread:?}") };
        let lane = lanes.iter().find(|lane| lane[0] == tid).expect("it has a lane");
        let [_, delivered, lost, missed, wrong] = lane[..] else { panic!("{lane:?}") };
        assert_eq!(delivered + lost + missed, emitted, "thread {tid}: {lane:?}");
        assert_eq!((missed, wrong), (0, 0), "thread {tid}: {lane:?}");
        assert!(lost > WRAPS_STOPPED * RING_SLOTS as u64 / 2, "it was not stopped: {lane:?}");
        assert!(delivered > 0, "it never read: {lane:?}");
        emitted_by_all += emitted;
        delivered_to_all += delivered;
        wraps = wraps.min(emitted / RING_SLOTS as u64);
    }
    assert!(wraps >= WRAPS && said.all::<u64>("thread").len() as u64 == THREADS);
    figure(&format!(
        "loss: {emitted_by_all} records of {THREADS} threads, each ring wrapped {wraps} times \
         or more, reader stopped for {STOPPED:?}: {delivered_to_all} delivered, the rest \
         counted as lost, difference 0"
    ));
    target.go();
    target.end_well();
}

/// Makes a program run with a small `/dev/shm`.
fn in_small_shm(command: &mut Command) -> &mut Command {
    // SAFETY: the closure makes only system calls between fork and exec.
    unsafe { command.pre_exec(|| own_shm(0, c"size=2m")) }
}

#[test]
fn losses_for_lack_of_memory_are_counted() {
    if let Err(why) = in_small_shm(&mut Command::new("true")).status() {
        return skipped("records without room", &why.to_string());
    }
    let (mut without_record, mut unmeasured, mut tried) = (0, 0, 0);
    for pages in (0..24).chain((24..120).step_by(size(16, 4) as usize)) {
        let place = Place::new();
        let mut command = place.command(TARGET);
        command.args(["short-of-room", &pages.to_string()]);
        let mut target = Target::start(in_small_shm(&mut command));
        let said = target.reach("done").clone();
        let missed = said.all::<u64>("missed").remove(0);
        let (begins, counted): (u64, u64) = (said.one("begins"), said.one("counted"));
        assert_eq!(counted + missed[0], begins, "{pages} pages");
        let mut records_missed = 0;
        for lane in said.all::<u64>("lane") {
            assert_eq!(lane[1] + lane[2], lane[0], "{pages} pages: records and measurements");
            records_missed += lane[2];
        }
        assert_eq!(records_missed, missed[1], "{pages} pages");
        // The viewer shows this number, too.
        assert_eq!(said.all::<u64>("viewer"), std::slice::from_ref(&missed), "{pages} pages");
        without_record += u64::from(missed[1] > 0);
        unmeasured += u64::from(missed[0] > 0);
        tried += 1;
        target.end_well();
    }
    assert!(without_record > 0 && unmeasured > 0, "nobody was short of room");
    figure(&format!(
        "loss: {tried} sizes of a full /dev/shm, {unmeasured} with begins not measured, \
         {without_record} with measurements that left no record, all of them counted"
    ));
}

/// More pairs of caller and callee than a lane has edges for: calls without an edge are counted
/// separately, and the points count all calls.
#[test]
fn calls_without_an_edge_are_counted() {
    const CALLERS: usize = 30;
    const TIMES: u64 = 5;
    static OUTER: [Point; CALLERS] = [const { Point::new("a caller of many") }; CALLERS];
    static INNER: [Point; CALLERS] = [const { Point::new("a callee of many") }; CALLERS];
    const { assert!(CALLERS * CALLERS > MAX_EDGES) };
    for _ in 0..TIMES {
        for caller in &OUTER {
            let _caller = caller.measure();
            for callee in &INNER {
                let _callee = callee.measure();
            }
        }
    }
    let mut watch = own::watch();
    let mut counted = |name: &str| {
        let is_named = |point: &&PointPicture| point.name == name;
        let ids: Vec<u32> = watch.poll().points.iter().filter(is_named).map(|it| it.id).collect();
        let counts = ids.iter().map(|&id| watch::total(watch.poll(), id).count).sum();
        (ids, counts)
    };
    let ((outer, outer_count), (inner, inner_count)): ((_, u64), (_, u64)) =
        (counted("a caller of many"), counted("a callee of many"));
    let all = TIMES * CALLERS as u64;
    assert_eq!((outer_count, inner_count), (all, all * CALLERS as u64));
    let calls = watch.reader().calls();
    let is_here = |call: &&Call| outer.contains(&call.callee) || inner.contains(&call.callee);
    let edges = calls.iter().flat_map(|lane| &lane.edges).filter(is_here);
    let placed: u64 = edges.map(|call| call.sums.count).sum();
    // No other test makes that many pairs on its thread.
    let unplaced: u64 = calls.iter().map(|lane| lane.unplaced).sum();
    assert!(unplaced > 0, "there is no room for all");
    assert_eq!(placed + unplaced, outer_count + inner_count, "{placed} placed");
}
