//! User-level schedulers in C, which report task switches and interrupts to pfp: correctly,
//! wrongly, and at random moments.

use std::sync::atomic::Ordering::Relaxed;

use pfp_tests::c::{self, Compiler, Link};
use pfp_tests::figure;
use pfp_tests::place::Place;
use pfp_tests::stolen::SWITCH;
use pfp_tests::watch::{self, Watch};

/// Allowed relative difference between figures from two clocks.
const NEAR: f64 = 0.02;

/// All figures are in ticks. `unknown` is roughly the time stolen from the threads that ran the
/// task.
fn assert_near(what: &str, found: f64, expected: f64, unknown: f64) {
    let off = found / expected - 1.0;
    let said = format!("{what}: {off:+.5} from {expected}, {unknown} unknown");
    figure(&said);
    assert!(off.abs() < NEAR + unknown / expected, "{said}");
}

#[test]
fn hooks_that_do_not_fit_are_refused_and_counted() {
    for compiler in Compiler::all().filter(|compiler| !compiler.is_cxx()) {
        let program = c::compile(compiler, "hooks", &["hooks.c"], Link::Static, ["-pthread"]);
        let place = Place::new();
        let mut target = place.start(&program, &[]);
        let said = target.reach("done");
        for what in ["put-aside", "moved"] {
            let [found, expected, stolen] = said.all::<f64>(what)[0][..] else {
                panic!("{said:?}")
            };
            assert_near(what, found, expected, stolen);
        }
        let mismatched: u64 = said.one("mismatched");
        let mut watch = Watch::attach(&place, &target);
        let losses = watch.poll().losses;
        assert_eq!(losses.mismatched_ends, mismatched, "{losses:?}");
        assert_eq!((losses.clock_anomalies, losses.begins_refused), (0, 0));
        target.end_well();
    }
}

#[test]
fn nothing_is_lost_when_tasks_are_interrupted_and_pre_empted_anywhere() {
    const PREEMPTED: u64 = 1500;
    let program = c::compile(Compiler::C, "storm", &["storm.c"], Link::Static, [""; 0]);
    let place = Place::new();
    let mut target = place.start(&program, &[&PREEMPTED.to_string()]);
    let said = target.reach("done").clone();
    let [rounds, interrupts, switches] =
        ["rounds", "interrupts", "switches"].map(|what| said.one::<u64>(what));
    assert!(said.one::<u64>("preempted") >= PREEMPTED && switches > PREEMPTED);

    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    for (name, count) in [
        ("round", rounds),
        ("inner", rounds),
        ("task", 4),
        ("scheduler", 1),
        ("interrupt", interrupts),
    ] {
        assert_eq!(watch::named(picture, name).count, count, "{name}");
    }
    assert_eq!(watch::total(picture, 1).count, rounds);
    assert_eq!(watch::total(picture, 2).count, interrupts);
    let losses = picture.losses;
    assert_eq!((losses.mismatched_ends, losses.begins_refused), (0, 0), "{losses:?}");
    assert_eq!((losses.clock_anomalies, losses.points_refused), (0, 0), "{losses:?}");

    figure(&format!("storm: {rounds} rounds, {interrupts} interrupts, {switches} switches"));

    // All of the thread's time counts exactly once, except for the cost of measuring, which is
    // subtracted, and part of the hooks' time, which counts for no region.
    let (mut all, mut measured) = (0, 0);
    for cell in picture.cells.iter().filter(|cell| cell.point != 0) {
        all += cell.live.exclusive + cell.retired.exclusive;
        measured += cell.live.count + cell.retired.count;
    }
    let switched: u64 = picture.lanes.iter().map(|lane| lane.switches).sum();
    let switched = switched as f64 * picture.clock.ticks_per_second;
    let pair = watch.reader().segment().counters().overhead_pair.load(Relaxed);
    let [cpu, stolen] = said.all::<f64>("cpu")[0][..] else { panic!("{said:?}") };
    let unknown = stolen + switched * SWITCH.as_secs_f64();
    let found = (all + measured * pair) as f64;
    let nobodys = (cpu - found).clamp(0.0, said.one("hooks"));
    figure(&format!("storm: {nobodys} of {cpu} ticks are nobody's"));
    assert_near("all time", found + nobodys, cpu, unknown);
    target.end_well();
}
