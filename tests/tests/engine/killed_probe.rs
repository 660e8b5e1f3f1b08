//! A program killed at any instruction: whatever state it leaves, a reader that attaches afterwards
//! gets correct figures.
//!
//! A SIGKILL leaves the shared memory as it is between two instructions. So the test runs a program
//! one instruction at a time. Whenever its shared memory or one of its files has changed, a new
//! reader finds the segment, attaches and takes a picture. The program records the true counts in a
//! witness before and after each call.

mod judge;
mod program;
mod steps;

use std::fs;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::{Duration, Instant};

use pfp_shm_layout::find;
use pfp_shm_layout::liveness::Liveness;
use pfp_shm_layout::object;
use pfp_shm_layout::reader::Reader;
use pfp_shm_layout::segment::Segment;
use pfp_tests::place::Place;
use pfp_tests::random::Random;
use pfp_tests::stepper::{self, Halt, Stepper};
use pfp_tests::target::{DEADLINE, wait_for};
use pfp_tests::witness::{NAMES, NUMBER, SEATS, STAGES, point, stage};
use pfp_tests::{cells, figure, size, skipped, watch};

use judge::Judge;
use program::{Program, mapped, read};
use steps::{Pace, Shown, go_through};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// Number of the program's lanes. The program has more threads.
const LANES: u64 = 2;

#[test]
fn a_program_killed_at_any_instruction_leaves_correct_figures() {
    if let Some(why) = stepper::why_not() {
        return skipped("a program killed at any instruction", &why);
    }
    let mut shown = Shown::default();
    let few = size(100, 1_000_000);
    let start = Instant::now();
    // With wall time as the clock, regions take the fast paths, as on a thread that is never
    // switched out. With `rseq`, each single step looks like a switch.
    for (clock, few) in [("wall", few), ("rseq", few / 4)] {
        go_through(
            &["stepped"],
            clock,
            |stage| match stage {
                stage::CREATION | stage::EXIT => Pace::SystemCalls(few * 4),
                _ => Pace::Instructions(few),
            },
            &mut shown,
        );
    }
    let ways = shown.states.len();
    // This run is separate, since its calibration runs instruction by instruction: measuring then
    // seems so expensive that no figures remain after its cost is subtracted.
    let all = |_| Pace::Instructions(size(0, 1_000_000));
    go_through(&["stepped", "short"], "wall", all, &mut shown);
    let Shown { steps, states, slowest, slowest_cpu } = shown;
    figure(&format!(
        "killed: {steps} instructions, {} states ({ways} without the creation's), each seen as it \
         is; the slowest took {slowest:?}, {slowest_cpu:?} of CPU time; in {:?}",
        states.len(),
        start.elapsed()
    ));
    let enough = size(500, 10_000);
    assert!(ways as u64 >= enough, "{ways} states");
}

/// The test above only stops the program. This one really kills it, at system calls of its start
/// and of its end, which create and remove files.
#[test]
fn a_program_killed_at_any_system_call_leaves_correct_figures() {
    if let Some(why) = stepper::why_not() {
        return skipped("a program killed at any system call", &why);
    }
    let place = Place::new();
    let (mut kills, mut readable, mut stale, mut unlit) = (0, 0, 0, 0);
    for of in [stage::CREATION, stage::EXIT] {
        // Each program is killed a few system calls later than the one before, until a program
        // stops or ends before the kill.
        let mut calls = 1;
        loop {
            let mut program = Program::start(&place, &["stepped", "alone"], "wall");
            let mut stepper = Stepper::take(program.pid());
            reach(&program, &mut stepper, of);
            let ended = (0..calls).any(|_| stepper.to_system_call() != Halt::Step);
            let objects = mapped(program.pid());
            program.kill();
            kills += 1;

            let entry = place.entry(program.pid());
            for object in &objects {
                let found = entry.as_ref().map(|entry| entry.info.object);
                assert!(found.is_none_or(|found| found == *object), "{found:?}, not {object}");
                // An object without a beacon: viewers do not find it yet, but the sweep below does.
                let is_there = object::backed_bytes(object).expect("one can ask").is_some();
                unlit += usize::from(found.is_none() && is_there);
            }
            let found = find::find(&place.directory()).expect("the directory can be read");
            assert!(found.unreadable.is_empty(), "{:?}", found.unreadable);
            assert!(found.entries.len() <= 1);
            if let Some(entry) = entry {
                assert_eq!(entry.state, Liveness::Dead);
                stale += 1;
                if Segment::open(&entry.info.object).is_ok() {
                    readable += 1;
                    let judge = Judge::new(&place, &program, true);
                    let left = judge.attach().expect("it can be opened");
                    assert!(left.picture.points.iter().all(|point| point.id == 0
                        || point.id == NUMBER
                        || NAMES.contains(&point.name.as_str())));
                }
            }
            find::gc(&place.directory()).expect("the directory can be read");
            let after = fs::read_dir(place.beacons()).expect("it is there").count();
            assert_eq!(after, 0, "something is left behind");
            for object in objects {
                let left = object::backed_bytes(&object).expect("one can ask");
                assert_eq!(left, None, "{object} is left behind");
            }
            if ended {
                break;
            }
            calls += size(9, 1);
        }
    }
    assert!(readable > 0 && unlit > 0, "{readable} {unlit}");
    figure(&format!(
        "killed at system calls: {kills} kills while files come and go, {stale} left something, \
         {readable} a segment; all of it was found, read and removed"
    ));
}

/// Runs a program until it reaches a stage.
fn reach(program: &Program, stepper: &mut Stepper, stage: u64) {
    while program.witness.seats[0].stage.load(Acquire) != stage {
        assert_eq!(stepper.run(), Halt::Stop, "it comes to {}", STAGES[stage as usize]);
    }
}

/// The thread that creates the segment may lose its CPU for long. Another thread that begins a
/// region then does not wait: it creates the segment itself, and the region is counted. Viewers
/// find one segment throughout.
#[test]
fn a_region_does_not_wait_for_the_segment() {
    if let Some(why) = stepper::why_not() {
        return skipped("a thread held up while it makes the segment", &why);
    }
    let place = Place::new();
    let program = Program::start(&place, &["slow-start"], "wall");
    let mut stepper = Stepper::take(program.pid());
    reach(&program, &mut stepper, stage::CREATION);
    while fs::read_dir(place.beacons()).expect("it is there").count() == 0 {
        assert_eq!(stepper.to_system_call(), Halt::Step);
    }
    program.witness.pause.store(1, Release);
    let seat = &program.witness.seats[1];
    wait_for("the other thread's region", || seat.claimed.load(Acquire) == 1);
    let found = place.entries();
    assert_eq!(found.len(), 1, "{found:?}");
    // Run to the end of the creation, then to the end of the other thread.
    assert_eq!([stepper.run(), stepper.run()], [Halt::Stop; 2]);
    let left = Judge::new(&place, &program, false).attach().expect("it runs");
    assert_eq!(left.picture.losses.begins_missed, 0);
    assert_eq!(watch::named(&left.picture, NAMES[point::INNER]).count, 1);
}

/// A program with two measuring threads is killed at random moments.
#[test]
fn a_program_killed_at_any_moment_leaves_correct_figures() {
    let place = Place::new();
    let kills = size(100, 10_000);
    let (mut calls, mut under_way, mut early) = (0, 0, 0);
    let mut slowest = Duration::ZERO;
    let mut random = Random::new(1);
    let start = Instant::now();
    for kill in 0..kills {
        let clock = if kill % 2 == 0 { "rseq" } else { "wall" };
        let mut program = Program::start(&place, &["endless"], clock);
        // The kill comes at the start, or during the measurements.
        let mut wait = Duration::from_nanos(random.below(2_000_000) as u64);
        if kill % 4 == 0 {
            wait *= 4;
        } else {
            let seats = &program.witness.seats;
            let runs = || (seats[0].logged.load(Acquire) > 0).then_some(());
            let deadline = Instant::now() + DEADLINE;
            while runs().is_none() {
                assert!(Instant::now() < deadline, "it never measures");
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        let until = Instant::now() + wait;
        while Instant::now() < until {
            std::hint::spin_loop();
        }
        program.kill();

        let witness = &program.witness;
        let allowed = |at| {
            let seats = (0..SEATS).map(|seat| witness.counts(seat, at));
            seats.fold((0, 0), |sum, seat| (sum.0 + seat.0, sum.1 + seat.1))
        };
        let look = Instant::now();
        let entry = place.entry(program.pid());
        let opened = entry.as_ref().and_then(|entry| {
            assert_eq!(entry.state, Liveness::Dead);
            Segment::open(&entry.info.object).ok()
        });
        let left = opened.map(|(segment, facts)| read(&mut Reader::new(segment, facts)));
        slowest = slowest.max(look.elapsed());
        early += u64::from(left.is_none());
        // A region that one thread begins while the other one registers the point is missed.
        let missed = left.as_ref().map_or(0, |left| left.picture.losses.begins_missed);
        let mut short = 0;
        for (at, name) in NAMES.iter().enumerate() {
            let (least, most) = allowed(at);
            let id = left.as_ref().and_then(|left| {
                left.picture.points.iter().find(|point| point.name == *name).map(|point| point.id)
            });
            let cells = || {
                let cells = left.iter().flat_map(|left| &left.picture.cells);
                cells.filter(|cell| Some(cell.point) == id)
            };
            let counted: u64 = cells().map(|cell| cell.lifetime_count).sum();
            assert!(
                counted <= most && least <= counted + missed,
                "{name}: {counted} counted, {missed} missed, {least} have returned of {most}"
            );
            short += least.saturating_sub(counted);
            for cell in cells() {
                // A thread that found the other one claiming a lane has no lane of its own.
                if u64::from(cell.lane) < LANES {
                    cells::check_left(cell);
                } else {
                    cells::check_left_shared(cell, most - least);
                }
            }
            calls += least;
            under_way += most - least;
        }
        assert!(short <= missed, "{short} are nowhere, {missed} were missed");
        for seat in 0..SEATS {
            let of_seat = (0..NAMES.len()).map(|at| witness.counts(seat, at));
            let open: u64 = of_seat.map(|(least, most)| most - least).sum();
            assert!(open <= 1, "a thread is in {open} ends at once");
        }
        find::gc(&place.directory()).expect("the directory can be read");
        assert!(place.entries().is_empty());
    }
    assert!(calls > 0 && early < kills / 2);
    figure(&format!(
        "killed at random: {kills} kills, {early} of them before there was a segment, {calls} calls \
         had returned and were counted; {under_way} were under way; the \
         slowest picture took {slowest:?}; in {:?}",
        start.elapsed()
    ));
}
