//! The clock tells the truth: under heavy competition and with blocking inside,
//! what a thread's regions add up to is the CPU time that the kernel counted for
//! the thread, on every rung of the clock's ladder that claims it.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pfp::Point;
use pfp_shm_layout::header::ClockKind;
use pfp_tests::place::Place;
use pfp_tests::watch::{self, Watch};
use pfp_tests::{figure, os, own, size, skipped, stolen};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");

/// What two figures of the same thing may differ by.
const NEAR: f64 = 0.005;

fn ratio(found: f64, expected: f64) -> f64 {
    found / expected - 1.0
}

/// As [`ratio`], 0 for whatever lies between two figures.
fn ratio_to_either(found: f64, least: f64, most: f64) -> f64 {
    ratio(found, found.clamp(least, most))
}

/// Runs threads that compete for one CPU on a rung; None if it is not to be had.
fn compete(name: &str, kind: ClockKind) -> Option<(Watch, Vec<Vec<f64>>)> {
    let place = Place::new();
    let threads = 2 * os::cpus().len();
    let arguments = ["on-cpu", &threads.to_string()];
    let mut target = place.start_with(TARGET, &arguments, "PFP_CLOCK", name);
    let said = target.reach("done").all("thread");
    assert_eq!(said.len(), threads);
    let mut watch = Watch::attach(&place, &target);
    let found = watch.poll().clock.kind;
    target.go();
    target.end_well();
    if found != kind {
        skipped(&format!("rung {name}"), &format!("it is not to be had here, {found:?} is"));
        return None;
    }
    Some((watch, said))
}

/// The rung's figures against the kernel's.
fn agrees_with_the_kernel(name: &str, kind: ClockKind) {
    let Some((mut watch, threads)) = compete(name, kind) else { return };
    let picture = watch.poll();
    assert!(picture.exited);
    let ns_per_tick = 1e9 / picture.clock.ticks_per_second;
    let everything = watch::id(picture, "everything");
    let (mut worst_cpu, mut worst_wall, mut worst_stolen) = (0.0f64, 0.0f64, 0.0f64);
    for thread in threads {
        let [tid, cpu_ns, inside_ns, outside_ns, stolen_ns] = thread[..] else {
            panic!("{thread:?}")
        };
        let tid = tid as u32;
        let (near_cpu, near_wall) = (NEAR + stolen_ns / cpu_ns, NEAR + stolen_ns / inside_ns);
        worst_stolen = worst_stolen.max(stolen_ns);
        let lane = watch::lane(picture, tid);
        let all = watch::of_lane(picture, lane);
        let off = ratio(all.exclusive as f64 * ns_per_tick, cpu_ns);
        let stolen = format!("{stolen_ns} ns stolen");
        assert!(
            off.abs() < near_cpu,
            "{name}: {off:+.5} from the CPU time of {cpu_ns} ns, {stolen}: {all:?}"
        );
        worst_cpu = worst_cpu.max(off.abs());

        // The competition was real.
        assert!(inside_ns >= 2.0 * cpu_ns, "{name}: {inside_ns} ns of wall, {cpu_ns} ns of CPU");
        let covering = watch::cells(picture, everything).find(|cell| cell.lane == lane);
        let covering = covering.expect("every thread ran under it");
        let (inclusive, off_cpu) = (
            covering.live.inclusive + covering.retired.inclusive,
            covering.live.off_cpu + covering.retired.off_cpu,
        );
        let found_ns = (inclusive + off_cpu) as f64 * ns_per_tick;
        let off = ratio_to_either(found_ns, inside_ns, outside_ns);
        assert!(
            off.abs() < near_wall,
            "{name}: {off:+.5} from a wall time of {inside_ns} to {outside_ns} ns, {stolen}"
        );
        worst_wall = worst_wall.max(off.abs());
        let off = ratio(inclusive as f64 * ns_per_tick, cpu_ns);
        assert!(off.abs() < near_cpu, "{name}: inclusive is {off:+.5} from the CPU time, {stolen}");
        assert!(covering.live.switches + covering.retired.switches > 0);
    }
    figure(&format!(
        "on_cpu {name}: CPU time within {:.4} %, wall time within {:.4} %, {worst_stolen} ns stolen",
        worst_cpu * 100.0,
        worst_wall * 100.0
    ));
}

#[test]
fn rseq_agrees_with_the_kernel() {
    agrees_with_the_kernel("rseq", ClockKind::Rseq);
}

#[test]
fn perf_agrees_with_the_kernel() {
    agrees_with_the_kernel("perf", ClockKind::Perf);
}

#[test]
fn cputime_agrees_with_the_kernel() {
    agrees_with_the_kernel("cputime", ClockKind::Cputime);
}

/// The last rung claims nothing, and says so: its figures are wall time.
#[test]
fn wall_is_marked_as_such() {
    let (mut watch, threads) = compete("wall", ClockKind::Wall).expect("it is always to be had");
    let picture = watch.poll();
    let ns_per_tick = 1e9 / picture.clock.ticks_per_second;
    let everything = watch::total(picture, watch::id(picture, "everything"));
    let sum = |which: usize| threads.iter().map(|thread| thread[which]).sum::<f64>();
    let found_ns = everything.inclusive as f64 * ns_per_tick;
    let off = ratio_to_either(found_ns, sum(2), sum(3));
    assert!(off.abs() < NEAR, "{off:+.5} from the wall time");
    assert_eq!((everything.off_cpu, everything.switches), (0, 0));
}

/// Each step waits for the one before. The same instructions for all callers.
#[inline(never)]
fn work(steps: u64) {
    let last = (0..steps).fold(1u64, |value, _| black_box(value.wrapping_mul(3)));
    black_box(last);
}

/// How long work took, with what the clock takes.
fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// Time off the CPU that is learnt late makes no region of fixed work shorter than it was,
/// neither on a thread that is left alone nor among others that want its CPU. A core's rate
/// changes, so the same work without pfp, in turn with the regions, says how short it can be.
/// Only what a hypervisor has taken from the thread may be missing in one, and no more than that
/// in all of them.
#[test]
fn no_region_of_fixed_work_is_told_as_shorter_than_it_was() {
    const REGIONS: u64 = size(50_000, 500_000);
    static POINTS: [[Point; 2]; 2] = [
        [Point::new("short, alone"), Point::new("long, alone")],
        [Point::new("short, competing"), Point::new("long, competing")],
    ];
    for (points, competitors) in POINTS.iter().zip([0, 4]) {
        // Half a microsecond and ten, or so.
        for (point, steps) in points.iter().zip([1_600, 32_000]) {
            let is_over = AtomicBool::new(false);
            let mut shortest = Duration::MAX;
            let before = stolen::so_far();
            thread::scope(|scope| {
                for _ in 0..competitors {
                    scope.spawn(|| {
                        while !is_over.load(Relaxed) {
                            work(1_000);
                        }
                    });
                }
                stolen::counted(|| {
                    for _ in 0..REGIONS {
                        {
                            let _guard = point.measure();
                            work(steps);
                        }
                        shortest = shortest.min(timed(|| work(steps)));
                    }
                });
                is_over.store(true, Relaxed);
            });
            let stolen = stolen::since(before);
            let of_clock = (0..1_000).map(|_| timed(|| ())).min().expect("a thousand");
            let shortest = shortest.saturating_sub(of_clock) * 9 / 10;
            let mut watch = own::watch();
            let picture = watch.poll();
            let sums = watch::named(picture, point.name().as_ref());
            assert_eq!(sums.count, REGIONS);
            let time =
                |ticks: u64| Duration::from_secs_f64(ticks as f64 / picture.clock.ticks_per_second);
            let cells = watch::cells(picture, watch::id(picture, point.name().as_ref()));
            let missing = cells.flat_map(|cell| cell.histogram.iter()).map(|bucket| {
                let most = time(bucket.low + bucket.width);
                shortest.saturating_sub(most) * bucket.count as u32
            });
            let missing: Duration = missing.sum();
            let said = format!(
                "{}: least {:?}, without pfp {shortest:?} and a tenth, off the CPU for {:?}, {} \
                 switches, {missing:?} missing, {stolen:?} stolen",
                point.name(),
                time(sums.min),
                time(sums.off_cpu),
                sums.switches
            );
            figure(&format!("on_cpu {said}"));
            assert!(missing <= stolen + stolen::SWITCH, "{said}");
            // The least is somewhere in its bucket.
            let least = time(sums.min) * 20 / 19;
            assert!(missing > Duration::ZERO || least >= shortest, "{said}");
        }
    }
}
