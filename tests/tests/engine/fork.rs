//! Forks: a child measures into its own segment or not at all, however it was forked. A child does
//! not change its parent's figures or object, and a dead parent counts as dead while a child lives.

use std::path::Path;
use std::time::{Duration, Instant};

use pfp_shm_layout::find::KEEP;
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::object;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;
use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::place::Place;
use pfp_tests::target::wait_for;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os, size};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// Forks in every way, while eight threads measure, on every clock source.
#[test]
fn children_leave_their_parent_alone() {
    for (clock, forks) in [
        ("rseq", size(60, 10_000)),
        ("perf", size(20, 1_000)),
        ("cputime", size(20, 1_000)),
        ("wall", size(20, 1_000)),
    ] {
        fork_away(clock, forks);
    }
}

fn fork_away(clock: &str, forks: u64) {
    let place = Place::new();
    let arguments = ["forks", &forks.to_string()];
    let mut target = place.start_with(TARGET, &arguments, "PFP_CLOCK", clock);
    let said = target.reach("done").clone();
    let calls: u64 = said.one("calls");
    assert_eq!(said.one::<u64>("bad"), 0, "{clock}: children that hung, crashed or miscounted");
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    assert_eq!(watch::named(picture, "call").count, calls, "{clock}");
    assert_eq!(watch::named(picture, "across the fork").count, forks, "{clock}");
    assert_eq!(watch::named(picture, "across the fork by hand").count, forks, "{clock}");
    assert_eq!(picture.losses.mismatched_ends, 0, "{clock}");
    assert!(!picture.exited, "{clock}");

    // No child that ended has removed the parent's object or its beacon.
    let entry = place.entry(target.pid()).expect("the beacon is there");
    assert_eq!(entry.state, Liveness::Alive, "{clock}");
    assert!(object::backed_bytes(&entry.info.object).is_ok_and(|bytes| bytes.is_some()));
    // Only children that were killed have left segments, and each child sweeps the segments of
    // earlier ones.
    let children = place.entries().len() - 1;
    assert!(children <= KEEP + 1, "{clock}: {children} children left a segment");
    figure(&format!(
        "fork: {clock}, {forks} children beside {calls} calls, {children} left a segment"
    ));
    target.end_well();
}

/// A child of a bare `clone` finishes frames while their point is off, and writes nothing to its
/// parent's segment.
#[test]
fn a_bare_clone_that_finishes_frames_does_not_write_to_its_parent() {
    let place = Place::new();
    let mut target = place.start(TARGET, &["frames-in-a-copy"]);
    target.reach("off");
    let entry = place.entry(target.pid()).expect("the beacon is there");
    let object = Path::new("/dev/shm").join(&entry.info.object.as_str()[1..]);
    let read = || std::fs::read(&object).expect("it can be read");
    let before = read();
    target.go();
    assert_eq!(target.reach("done").one::<u64>("bad"), 0);
    assert!(read() == before, "words of the parent's segment have changed");
    target.end_well();
}

/// The parent counts as dead although its children live on, including one that shares the parent's
/// memory and so keeps the lock on its beacon.
#[test]
fn a_child_has_its_own_segment_and_outlives_its_parent() {
    let mut slowest = Duration::ZERO;
    let parents = size(3, 100);
    for _ in 0..parents {
        slowest = slowest.max(outlive());
    }
    figure(&format!(
        "fork: {parents} parents killed, dead at the latest {slowest:?} after the signal"
    ));
}

/// The time until the viewer showed that a killed parent is dead.
fn outlive() -> Duration {
    let place = Place::new();
    let mut target = place.start(TARGET, &["fork-and-live"]);
    let said = target.reach("done").clone();
    let parent = target.pid();
    let [child, clone, inside] = ["child", "clone", "inside"].map(|who| said.one::<u32>(who));
    let kill_children =
        || [child, clone, inside].iter().for_each(|&child| os::signal(child, libc::SIGKILL));
    let outcome = std::panic::catch_unwind(|| {
        let mut watch = Watch::attach_to(&place, child);
        assert_eq!(watch.reader().facts().pid, child);
        wait_for("the child to have measured", || {
            let picture = watch.poll();
            let all: u64 = picture
                .points
                .iter()
                .filter(|point| point.name == "call")
                .map(|point| watch::total(picture, point.id).count)
                .sum();
            assert!(all <= 1000, "the child has its own calls only");
            all == 1000
        });
        let mut watch = Watch::attach_to(&place, parent);
        assert_eq!(watch::named(watch.poll(), "call").count, 1);
        for silent in [clone, inside] {
            assert!(place.entry(silent).is_none(), "it has measured nothing");
        }

        // The parent crashes and is not reaped, so it stays a zombie.
        let entry = place.entry(parent).expect("it was found");
        let judge = entry.info.watch(&place.directory());
        let mut judge = judge.expect("it can be read").expect("it is there");
        assert_eq!(judge.judge().expect("it can be asked"), Liveness::Alive);
        let killed = Instant::now();
        os::signal(parent, libc::SIGKILL);
        wait_for("the parent to be dead", || {
            judge.judge().expect("it can be asked") == Liveness::Dead
        });
        let took = killed.elapsed();
        let states = |pid: u32| place.entry(pid).map(|entry| entry.state);
        assert_eq!(states(parent), Some(Liveness::Dead));
        assert_eq!(states(child), Some(Liveness::Alive));
        assert!(os::exists(inside), "it keeps its parent's memory");
        took
    });
    kill_children();
    let took = outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    target.kill();
    wait_for("the child to be dead", || {
        place.entry(child).map(|entry| entry.state) == Some(Liveness::Dead)
    });
    took
}

/// A child can calibrate although a thread of its parent was calibrating at the fork. That thread
/// does not exist in the child, so its calibration never finishes there.
#[test]
fn a_child_calibrates_though_its_parent_did_so() {
    let place = Place::new();
    let forks = size(30, 1_000);
    let target = place.start(TARGET, &["forks-while-calibrating", &forks.to_string()]);
    assert_eq!(target.end_well().one::<u64>("bad"), 0);
}

/// A child's segment may have room for fewer points than its parent's, so the child refuses some of
/// the parent's points. Regions of these points that were open at the fork write nothing in the
/// child.
#[test]
fn regions_of_points_that_a_child_has_no_room_for_write_nothing() {
    let place = Place::new();
    let target = place.start(TARGET, &["forks-with-less-room"]);
    assert_eq!(target.end_well().one::<u64>("bad"), 0);
}

/// A new point in a child never gets the number of one of the parent's points, which are registered
/// again at the same time.
#[test]
fn new_points_of_a_child_have_numbers_of_their_own() {
    let place = Place::new();
    let children = size(30, 1_000).to_string();
    let target = place.start_with(TARGET, &["newcomers", &children], "PFP_POINTS", "4096");
    assert_eq!(target.end_well().one::<u64>("bad"), 0);
}

/// A child registers all points of its parent again, which takes long if there are many. Signals do
/// not wait for all of them: their handlers run in between.
#[test]
fn signals_arrive_while_a_child_enters_its_parents_points() {
    const POINTS: u64 = 20_000;
    let place = Place::new();
    let arguments = ["signals-after-a-fork", &POINTS.to_string()];
    let mut target = place.start_with(TARGET, &arguments, "PFP_POINTS", "32768");
    let said = target.reach("done").clone();
    let mut watch = Watch::attach_to(&place, said.one("child"));
    let entered = watch.poll().points.iter().filter(|point| point.name == "parent's").count();
    assert_eq!(entered as u64, POINTS);
    // A timer sends a signal every 50 us; signals that are pending together count once.
    let handled = said.one::<u64>("handled");
    assert!(handled >= 8, "only {handled}");
    target.end_well();
}

/// Number of calls by each side in the program `vfork.c`.
const ROUNDS: u64 = 100;

/// A child that shares its parent's memory leaves no trace of itself in it: its measurements count
/// for the waiting parent, or are lost. The program that it executes has its own segment.
#[test]
fn a_child_in_its_parents_memory_leaves_no_trace_in_it() {
    let links = if size(0, 1) == 1 { &[Link::Static, Link::Shared][..] } else { &[Link::Static] };
    for &link in links {
        let name = format!("vfork-{link:?}");
        let program = c::compile(Compiler::C, &name, &["vfork.c"], link, [""; 0]);
        for how in ["vfork", "clone", "spawn", "copy"] {
            for when in ["first", "later", "forked"] {
                judge_vfork(&program, how, when, "rseq");
                // With `cputime`, every stamp reads the CPU time, which differs in the child.
                if size(u64::from(when == "later"), 1) == 1 {
                    judge_vfork(&program, how, when, "cputime");
                }
            }
        }
    }
}

fn judge_vfork(program: &Path, how: &str, when: &str, clock: &str) {
    let what = format!("{how} {when} {clock}");
    let place = Place::new();
    let mut target = place.start_with(program, &[how, when], "PFP_CLOCK", clock);
    let said = target.reach("done").clone();
    let pid = if when == "forked" { said.one("forked") } else { target.pid() };

    let entry = place.entry(pid).unwrap_or_else(|| panic!("{what}: no segment"));
    assert_eq!(entry.state, Liveness::Alive, "{what}");
    let mut watch = Watch::open(&entry);
    assert_eq!(watch.reader().facts().pid, pid, "{what}");
    let picture = watch.poll();
    let tids: Vec<u32> = picture.lanes.iter().map(|lane| lane.lane.tid).collect();
    assert_eq!(tids, [pid], "{what}: lanes");
    // The child's own call counts for the parent if the parent has measured before, and is lost if
    // it would be the first of all.
    let shares = how == "vfork" || how == "clone";
    let silent = u64::from(shares && when != "later");
    let calls = said.one::<u64>("calls");
    assert_eq!(watch::named(picture, "region").count, calls - silent, "{what}");
    assert_eq!(watch::named(picture, "another").count, ROUNDS, "{what}");
    // The child did not confuse the parent's clock: the region slept, and did not compute.
    let slept = watch::named(picture, "sleeps");
    assert!(slept.off_cpu > 9 * slept.exclusive, "{what}: {slept:?}");
    assert_eq!(picture.losses.mismatched_ends, 0, "{what}");

    let child = wait_for(&format!("the child to have measured: {what}"), || {
        let mut others = place.entries();
        others.retain(|entry| ![pid, target.pid()].contains(&entry.info.process.pid));
        // Once its beacon is found, the process may still have no segment, an incomplete one, or
        // one without points.
        let (segment, facts) = Segment::open(&others.first()?.info.object).ok()?;
        let mut reader = Reader::new(segment, facts);
        let picture = reader.poll();
        picture.points.iter().find(|point| point.name == "region")?;
        let count = watch::named(picture, "region").count;
        (others.len() == 1 && count == ROUNDS).then(|| others[0].info.process.pid)
    });
    target.end_well();
    wait_for("the child to be dead", || {
        let left = place.entries();
        let theirs = left.iter().all(|entry| entry.info.process.pid == child);
        assert!(theirs && left.len() == 1, "{what}: {left:?}");
        left.iter().all(|entry| entry.state == Liveness::Dead)
    });
}
