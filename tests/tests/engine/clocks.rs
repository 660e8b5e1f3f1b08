//! Counters that cannot be trusted: they run backwards, jump, freeze, or continue during a
//! suspension. No figure is negative or wrapped, nothing is lost, errors are counted, and pfp stops
//! using a counter that keeps failing.
//!
//! The counter is simulated: each reading of it traps in the target.
#![cfg(target_arch = "x86_64")]

use pfp_shm_layout::header::ClockKind;
use pfp_shm_layout::histogram::LIMIT;
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{cells, figure, size, skipped};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
const SOURCES: [(&str, ClockKind); 4] = [
    ("rseq", ClockKind::Rseq),
    ("perf", ClockKind::Perf),
    ("cputime", ClockKind::Cputime),
    ("wall", ClockKind::Wall),
];

/// The results of a run.
struct Run {
    anomalies: u64,
    wrong: u64,
    kind: ClockKind,
    system_clock: bool,
    /// Exclusive time of all regions as a share of the thread's CPU time.
    of_cpu: f64,
}

/// Runs the target on a clock source with a counter that fails in this mode, and checks the
/// properties that hold in every mode.
fn run(source: &str, mode: &str, calls: u64, when: &str) -> Run {
    let place = Place::new();
    let arguments = ["trapped", mode, &calls.to_string(), when];
    let mut target = place.start_with(TARGET, &arguments, "PFP_CLOCK", source);
    let said = target.reach("done").clone();
    let [count, cpu_ns, wall_ns, ahead_ns] = said.all::<f64>("figures")[0][..] else {
        panic!("{said:?}")
    };
    let [_, wrong] = said.all::<u64>("readings")[0][..] else { panic!("{said:?}") };
    let mut watch = Watch::attach(&place, &target);
    let picture = watch.poll();
    let what = format!("{source}, {mode} {when}: {:?}", picture.clock);
    let ns_per_tick = 1e9 / picture.clock.ticks_per_second;
    assert!((0.1..1000.0).contains(&ns_per_tick), "{what}");
    let mut exclusive = 0.0;
    for name in ["outer", "inner", "by hand"] {
        let point = watch::id(picture, name);
        for cell in watch::cells(picture, point) {
            cells::check(cell, name != "outer");
            // A wrapped figure would be that large. With wall time as the clock, a region that
            // includes two suspensions can be that large, too, so there only the sums are checked.
            assert!(cell.live.max < LIMIT - 1 || source == "wall", "{what}: {cell:?}");
            let longest = wall_ns + ahead_ns + 1e9;
            for ticks in [cell.live.exclusive, cell.live.inclusive, cell.live.off_cpu] {
                let ns = ticks as f64 * ns_per_tick;
                assert!(ns <= 2.0 * longest, "{what}: {ns} ns of {longest}: {cell:?}");
            }
        }
        let total = watch::total(picture, point);
        assert_eq!(total.count as f64, count, "{what}: {name}");
        exclusive += total.exclusive as f64 * ns_per_tick;
    }
    let run = Run {
        anomalies: picture.losses.clock_anomalies,
        wrong,
        kind: picture.clock.kind,
        system_clock: picture.clock.system_clock,
        of_cpu: exclusive / cpu_ns,
    };
    target.go();
    target.end_well();
    run
}

/// Tests one failing mode on every clock source.
fn on_every_source(mode: &str, calls: u64, check: impl Fn(&Run, &str)) {
    for (source, kind) in SOURCES {
        let run = run(source, mode, calls, "later");
        if run.kind != kind && run.anomalies == 0 {
            skipped(&format!("{mode} on {source}"), "it is not to be had here");
            continue;
        }
        // Clock sources that read the CPU time stay correct.
        if matches!(kind, ClockKind::Rseq | ClockKind::Cputime) {
            assert!(run.of_cpu < 1.02, "{source}, {mode}: {} of the CPU time", run.of_cpu);
        }
        check(&run, source);
        figure(&format!(
            "clocks: {mode} on {source}: {calls} measurements, none negative or wrapped; wrong {} \
             times, {} anomalies counted{}",
            run.wrong,
            run.anomalies,
            if run.system_clock { ", then the system's clock" } else { "" }
        ));
    }
}

const SOME: u64 = size(1_500, 30_000);

#[test]
fn a_working_counter_causes_no_anomaly() {
    on_every_source("steady", SOME, |run, source| {
        assert_eq!((run.wrong, run.anomalies), (0, 0), "{source}");
        assert!(!run.system_clock);
    });
}

#[test]
fn a_counter_that_runs_backwards_is_noticed() {
    on_every_source("backwards", SOME, |run, source| assert!(run.anomalies > 0, "{source}"));
}

#[test]
fn a_counter_that_jumps_by_hours_does_no_harm() {
    on_every_source("jumps", SOME, |_, _| {});
}

#[test]
fn a_frozen_counter_does_no_harm() {
    on_every_source("frozen", SOME, |_, _| {});
}

#[test]
fn a_machine_that_was_suspended_does_no_harm() {
    on_every_source("suspended", SOME, |_, _| {});
}

/// All failures together, and often: in the end pfp stops using the counter.
#[test]
fn a_counter_that_keeps_failing_is_abandoned() {
    on_every_source("everything", size(3_000, 1_000_000), |run, source| {
        assert!(run.anomalies > 0, "{source}");
        if cfg!(feature = "torture") {
            assert!(run.system_clock, "{source}: {} anomalies", run.anomalies);
        }
    });
}

/// pfp does not use a counter that never advanced.
#[test]
fn a_counter_frozen_from_the_start_is_replaced() {
    for (source, _) in SOURCES {
        let run = run(source, "frozen", SOME, "from-the-start");
        assert!(run.system_clock, "{source}");
        assert!(!matches!(run.kind, ClockKind::Rseq | ClockKind::Perf), "{source}");
        if source != "wall" {
            assert!(run.of_cpu < 1.02, "{source}: {} of the CPU time", run.of_cpu);
        }
    }
    figure("clocks: a counter that never moved is replaced by the system's clock");
}
