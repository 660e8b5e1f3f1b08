//! The on-CPU clock is correct: with many threads per CPU and with blocking regions, the times of a
//! thread's regions add up to the CPU time that the kernel counted for it, on every clock source
//! that promises this.

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

/// Allowed relative difference between two figures of the same time.
const NEAR: f64 = 0.005;

fn ratio(found: f64, expected: f64) -> f64 {
    found / expected - 1.0
}

/// Like [`ratio`], but 0 if `found` is between the two bounds.
fn ratio_to_either(found: f64, least: f64, most: f64) -> f64 {
    ratio(found, found.clamp(least, most))
}

/// Runs threads that compete for one CPU on a clock source; `None` if the source is not available.
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
        skipped(&format!("source {name}"), &format!("it is not to be had here, {found:?} is"));
        return None;
    }
    Some((watch, said))
}

/// Compares the clock source's figures with the kernel's.
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

        // The threads really competed.
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

/// The last clock source promises nothing, and is marked: its figures are wall time.
#[test]
fn wall_time_is_marked_as_wall_time() {
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

/// Each step depends on the one before. All callers run these same instructions.
#[inline(never)]
fn work(steps: u64) {
    let last = (0..steps).fold(1u64, |value, _| black_box(value.wrapping_mul(3)));
    black_box(last);
}

/// The duration of some work, including the clock readings.
fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

/// A region of fixed work is never measured as shorter or longer than it was, on a thread that is
/// left alone and among others that compete for its CPU, although pfp learns of off-CPU time late.
///
/// A core's speed changes. So the same work without pfp, alternating with the regions, gives a
/// lower bound, and the thread's own clock, read on both sides of each region, gives an upper
/// bound. Only time that a hypervisor has stolen may be missing or in excess. In total, the regions
/// equal the kernel's CPU time.
#[test]
fn a_region_of_fixed_work_has_its_true_length() {
    const REGIONS: u64 = size(50_000, 500_000);
    /// Tolerance as a share of the kernel's CPU time.
    const NEAR: f64 = 0.0005;
    static POINTS: [[Point; 2]; 2] = [
        [Point::new("short, alone"), Point::new("long, alone")],
        [Point::new("short, competing"), Point::new("long, competing")],
    ];
    static AROUND: [[Point; 2]; 2] = [
        [Point::new("around short, alone"), Point::new("around long, alone")],
        [Point::new("around short, competing"), Point::new("around long, competing")],
    ];
    for ((points, around), competitors) in POINTS.iter().zip(&AROUND).zip([0, 4]) {
        // Numbers of steps that take roughly half a microsecond and ten microseconds.
        for ((point, around), steps) in points.iter().zip(around).zip([1_600, 32_000]) {
            // The first region of a thread or a point begins late, after its lane and cell are
            // made, so it is measured here and reset.
            drop((around.measure(), point.measure()));
            around.reset();
            point.reset();
            let is_over = AtomicBool::new(false);
            let (mut shortest, mut longest) = (Duration::MAX, Duration::ZERO);
            let before = stolen::so_far();
            let mut all = os::thread_cpu();
            thread::scope(|scope| {
                for _ in 0..competitors {
                    scope.spawn(|| {
                        while !is_over.load(Relaxed) {
                            work(1_000);
                        }
                    });
                }
                all = os::thread_cpu();
                let outer = around.measure();
                stolen::counted(|| {
                    for _ in 0..REGIONS {
                        let began = os::thread_cpu();
                        {
                            let _guard = point.measure();
                            work(steps);
                        }
                        longest = longest.max(os::thread_cpu() - began);
                        shortest = shortest.min(timed(|| work(steps)));
                    }
                });
                is_over.store(true, Relaxed);
                drop(outer);
                all = os::thread_cpu() - all;
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
            let around = watch::named(picture, around.name().as_ref());
            let off = time(around.inclusive).abs_diff(all);
            let said = format!(
                "{}: {:?} to {:?}, without pfp {shortest:?} and a tenth, by the kernel {longest:?} \
                 at most; off the CPU for {:?}, {} switches, {missing:?} missing, {stolen:?} \
                 stolen; of {all:?} in all {off:?} off",
                point.name(),
                time(sums.min),
                time(sums.max),
                time(around.off_cpu),
                around.switches
            );
            figure(&format!("on_cpu {said}"));
            assert!(missing <= stolen + stolen::SWITCH, "{said}");
            // `missing` is 0 if the upper end of the lowest bucket reaches `shortest`. The minimum
            // itself may be lower by the width of that bucket.
            let least = time(sums.min) * 20 / 19;
            assert!(missing > Duration::ZERO || least >= shortest, "{said}");
            // If another thread's time slice counted for the region, the maximum would be
            // milliseconds longer.
            assert!(time(sums.max) <= longest + stolen + 5 * stolen::SWITCH, "{said}");
            assert!(off <= all.mul_f64(NEAR) + stolen + 2 * stolen::SWITCH, "{said}");
        }
    }
}

/// For a region that waits, the usual figures hold its CPU time, and `longest` holds its time by the
/// clock.
#[test]
fn the_longest_time_by_the_clock_includes_waits() {
    static WAITS: Point = Point::new("waits now and then");
    let (mut least, mut most) = (Duration::ZERO, Duration::ZERO);
    for milliseconds in [3, 40, 7] {
        let around = Instant::now();
        let region = WAITS.measure();
        let within = Instant::now();
        thread::sleep(Duration::from_millis(milliseconds));
        least = least.max(within.elapsed());
        drop(region);
        most = most.max(around.elapsed());
    }
    let stats = WAITS.stats().expect("it has ended");
    let longest = stats.longest();
    let is_near = longest >= least.mul_f64(1.0 - NEAR) && longest <= most.mul_f64(1.0 + NEAR);
    assert!(is_near, "{longest:?} for {least:?} to {most:?}");
    assert!(stats.max() < longest / 2, "{stats:?}");
}

/// The cost of measuring, including folds, counts for no surrounding region. The test compares four
/// levels of empty regions around a known load with the same load alone.
#[test]
fn the_cost_of_measuring_counts_for_no_parent() {
    const ROUNDS: usize = 400;
    /// Regions in a round: more than one page of records.
    const REGIONS: u32 = 4 * 100;
    static ALONE: Point = Point::new("the load alone");
    static AROUND: Point = Point::new("the load and regions");
    static LEVELS: [Point; 4] = [
        Point::new("first level"),
        Point::new("second level"),
        Point::new("third level"),
        Point::new("fourth level"),
    ];
    #[inline(never)]
    fn regions() {
        for _ in 0..REGIONS / 4 {
            let _first = LEVELS[0].measure();
            let _second = LEVELS[1].measure();
            let _third = LEVELS[2].measure();
            let _fourth = LEVELS[3].measure();
        }
    }
    let exclusive = |point: &'static Point| own::figures(&point.name()).exclusive;
    let (mut with, mut without, mut wall) = (Vec::new(), Vec::new(), Vec::new());
    drop((ALONE.measure(), AROUND.measure()));
    for _ in 0..ROUNDS {
        let before = [&ALONE, &AROUND].map(exclusive);
        {
            let _guard = ALONE.measure();
            work(32_000);
        }
        {
            let _guard = AROUND.measure();
            work(16_000);
            regions();
            work(16_000);
        }
        let after = [&ALONE, &AROUND].map(exclusive);
        without.push(after[0] - before[0]);
        with.push(after[1] - before[1]);
        wall.push(timed(regions).as_nanos() as u64);
    }
    let median = |all: &mut Vec<u64>| {
        all.sort_unstable();
        all[ROUNDS / 2] as f64
    };
    let ns = 1e9 / pfp::ticks_per_second();
    let off = (median(&mut with) - median(&mut without)) * ns / f64::from(REGIONS);
    let taken = median(&mut wall) / f64::from(REGIONS);
    let own: Vec<f64> = LEVELS
        .iter()
        .map(|level| exclusive(level) as f64 * ns / own::figures(&level.name()).count as f64)
        .collect();
    figure(&format!("an empty region: {taken:.1} ns, {off:.2} in the parent; levels {own:.1?}"));
    // Five nanoseconds, or an eighth of the cost if that is more.
    assert!(off.abs() <= f64::max(5.0, taken / 8.0), "{off} of {taken}");
}
