//! Laps: consecutive regions that share a reading of the clock. No time falls between them, and no
//! time counts twice.

use std::panic::catch_unwind;
use std::time::Duration;

use pfp_tests::os::{burn, thread_cpu};
use pfp_tests::own::{figures, watch};
use pfp_tests::stolen::SWITCH;
use pfp_tests::watch::{id, lane};
use pfp_tests::{figure, stolen};

const ROUNDS: u64 = 20;
const STEP: Duration = Duration::from_millis(2);
/// Tolerance of the figures relative to the CPU time. Reading that time takes a system call before
/// and after each piece of work.
const NEAR: f64 = 0.01;

fn seconds(ticks: u64) -> f64 {
    ticks as f64 / pfp::ticks_per_second()
}

/// `unknown` is roughly the time stolen from the thread in the region and in its neighbours.
fn assert_near(what: &str, ticks: u64, cpu: Duration, unknown: Duration) {
    let off = seconds(ticks) / cpu.as_secs_f64() - 1.0;
    let said = format!("{what}: {off:+.5} from {cpu:?}, {unknown:?} unknown");
    figure(&format!("laps {said}"));
    assert!(off.abs() < NEAR + unknown.div_duration_f64(cpu), "{said}");
}

#[test]
fn phases_of_a_loop_share_all_of_its_cpu_time() {
    pfp::register_thread("laps");
    let (mut busy, mut sleepy) = (Duration::ZERO, Duration::ZERO);
    let (start, stolen) = (thread_cpu(), stolen::so_far());
    {
        pfp::laps!();
        for _ in 0..ROUNDS {
            pfp::lap!("busy phase");
            busy += burn(STEP);
            pfp::lap!("phase that sleeps");
            let before = thread_cpu();
            // Long enough that the clock readings are negligible.
            burn(STEP);
            // The sleep is outside of both phases.
            std::thread::sleep(STEP / 4);
            sleepy += thread_cpu() - before;
        }
    }
    let (all, stolen) = (thread_cpu() - start, stolen::since(stolen));
    let (busy_found, sleepy_found) = (figures("busy phase"), figures("phase that sleeps"));
    assert_eq!([busy_found.count, sleepy_found.count], [ROUNDS, ROUNDS]);
    let unknown = stolen + SWITCH * (busy_found.switches + sleepy_found.switches) as u32;
    assert_near("busy", busy_found.exclusive, busy, unknown);
    assert_near("sleepy", sleepy_found.exclusive, sleepy, unknown);
    assert_near("both", busy_found.exclusive + sleepy_found.exclusive, all, unknown);
    assert!(
        sleepy_found.off_cpu > 0
            && seconds(sleepy_found.off_cpu) >= 0.9 * ROUNDS as f64 * STEP.as_secs_f64() / 4.0
    );
}

#[test]
fn laps_count_as_inside_the_surrounding_region() {
    pfp::register_thread("inside");
    let [mut own, mut first, mut second, mut innermost] = [Duration::ZERO; 4];
    let stolen = stolen::so_far();
    // Several rounds, since the first one touches new pages.
    for _ in 0..ROUNDS {
        pfp::scope!("around laps");
        own += burn(STEP);
        pfp::laps!("first lap inside");
        first += burn(STEP);
        pfp::lap!("second lap inside");
        {
            // Laps of a nested block are nested in the open lap of the enclosing block.
            pfp::laps!("innermost lap");
            innermost += burn(STEP);
            pfp::lap!("innermost lap two");
            innermost += burn(STEP);
        }
        second += burn(STEP);
    }
    let stolen = stolen::since(stolen);
    let around = figures("around laps");
    let unknown = stolen + SWITCH * around.switches as u32;
    assert_near("the region around", around.exclusive, own, unknown);
    let all = own + first + second + innermost;
    assert_near("the region around and all", around.inclusive, all, unknown);
    let found = figures("second lap inside");
    assert_near("the lap around laps", found.exclusive, second, unknown);
    assert_near("the lap around laps and they", found.inclusive, second + innermost, unknown);
}

/// A lap is an expression, so the arms of a match can name the phases.
#[test]
fn a_lap_can_be_used_in_match_arms() {
    pfp::laps!();
    for phase in [0, 1, 2, 0] {
        match phase {
            0 => pfp::lap!("arm 0"),
            1 => pfp::lap!("arm 1"),
            _ => pfp::lap!("another arm"),
        }
    }
    pfp::lap!("after the arms");
    let counts = ["arm 0", "arm 1", "another arm"].map(|name| figures(name).count);
    assert_eq!(counts, [2, 1, 1]);
}

/// A lap to a disabled point leaves a gap, and changes nothing else.
#[test]
fn a_lap_to_a_disabled_point_only_ends_the_last_one() {
    static ON: pfp::Point = pfp::Point::new("on before off");
    static OFF: pfp::Point = pfp::Point::new("off after on");
    OFF.disable();
    let mut guard = ON.measure();
    for _ in 0..100 {
        guard.lap(&OFF);
        guard.lap(&OFF);
        guard.lap(&ON);
    }
    drop(guard);
    assert_eq!(ON.stats().map(|stats| stats.count), Some(101));
    assert_eq!(OFF.stats(), None);
    OFF.enable();
    let mut guard = ON.measure();
    guard.lap(&OFF);
    // The point is disabled while its lap is open: the lap is still recorded.
    OFF.disable();
    guard.lap(&ON);
    drop(guard);
    assert_eq!(OFF.stats().map(|stats| stats.count), Some(1));
    assert_eq!(ON.stats().map(|stats| stats.count), Some(103));
}

/// Consecutive laps of one point are each counted, and their time counts once.
#[test]
fn consecutive_laps_of_one_point_count_each() {
    static SAME: pfp::Point = pfp::Point::new("the same again");
    let mut guard = SAME.measure();
    let (before, stolen) = (thread_cpu(), stolen::so_far());
    for _ in 0..ROUNDS {
        burn(STEP / 2);
        guard.lap(&SAME);
    }
    let (cpu, stolen) = (thread_cpu() - before, stolen::since(stolen));
    drop(guard);
    let stats = SAME.stats().expect("it was measured");
    assert_eq!(stats.count, ROUNDS + 1);
    let unknown = stolen + SWITCH * stats.switches as u32;
    assert_near("one point", stats.exclusive, cpu, unknown);
    assert_near("one point, inclusive", stats.inclusive, cpu, unknown);
}

#[test]
fn a_reset_and_a_panic_between_laps_lose_nothing_else() {
    static BEFORE: pfp::Point = pfp::Point::new("before the panic");
    static AFTER: pfp::Point = pfp::Point::new("after the panic");
    let mut guard = BEFORE.measure();
    guard.lap(&AFTER);
    BEFORE.reset();
    guard.lap(&BEFORE);
    AFTER.reset();
    guard.lap(&AFTER);
    drop(guard);
    let counts = || [&BEFORE, &AFTER].map(|point| point.stats().map_or(0, |stats| stats.count));
    assert_eq!(counts(), [1, 1]);
    let unwound = catch_unwind(|| {
        let mut guard = BEFORE.measure();
        guard.lap(&AFTER);
        std::panic::resume_unwind(Box::new(()));
    });
    assert!(unwound.is_err());
    assert_eq!(counts(), [2, 2]);
}

/// In the flight recorder, each lap begins where the last one ends, except for the time of
/// recording it.
#[test]
fn records_of_laps_are_contiguous() {
    pfp::register_thread("records");
    // Runs twice: by the second time all durations have occurred before, so that no lap takes a
    // slow path.
    for _ in 0..2 {
        pfp::laps!();
        for _ in 0..1_000 {
            pfp::lap!("recorded one");
            pfp::lap!("recorded two");
        }
    }
    let mut watch = watch();
    let picture = watch.poll();
    let points = [id(picture, "recorded one"), id(picture, "recorded two")];
    let lane = lane(picture, pfp_tests::os::tid());
    let records: Vec<_> = watch
        .reader()
        .records()
        .into_iter()
        .filter(|(of, record)| *of == lane && points.contains(&record.point))
        .map(|(_, record)| record)
        .collect();
    assert!(records.len() > 1_000, "{} records", records.len());
    let gap = |pair: &[pfp_shm_layout::ring::Record]| {
        pair[1].start.wrapping_sub(pair[0].start + pair[0].span) as i64
    };
    let mut gaps: Vec<i64> = records.windows(2).map(gap).collect();
    gaps.sort_unstable();
    let usual = gaps[gaps.len() / 2];
    figure(&format!("laps: {usual} ticks from the end of a record to the start of the next"));
    // The time of recording varies by a step of the counter, which may be tens of ticks. Only a
    // switch makes a larger gap.
    let alike = gaps.iter().filter(|&&gap| gap <= 2 * usual).count();
    assert!(alike * 10 >= gaps.len() * 9, "{alike} gaps are like {usual} ticks: {gaps:?}");
    assert!(gaps[0] >= 0, "a lap that begins {} ticks before the one before ends", -gaps[0]);
}
