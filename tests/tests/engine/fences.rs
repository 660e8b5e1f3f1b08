//! Fenced points: a short region that waits for memory has the whole wait in its time, the cost of
//! fences is subtracted, and nothing is lost.

use std::hint::black_box;

use pfp::Point;
use pfp_read::files::json;
use pfp_tests::figure;
use pfp_tests::os::thread_cpu;
use pfp_tests::own::figures;
use pfp_tests::place::{Place, count};

const TARGET: &str = env!("CARGO_BIN_EXE_pfp-test-target");
/// More entries than any cache holds.
const PLACES: usize = 1 << 24;

/// A walk through memory in which each step depends on the one before: one cycle through all
/// entries, in an order that no prefetcher predicts.
fn circle() -> Vec<u32> {
    let mut next = vec![0; PLACES];
    let mut at = 0_u32;
    for step in 1..=PLACES as u32 {
        // The cycle has full length, by the theorem of Hull and Dobell.
        let to = at.wrapping_mul(1_664_525).wrapping_add(1_013_904_223) % PLACES as u32;
        next[at as usize] = if step == PLACES as u32 { 0 } else { to };
        at = to;
    }
    next
}

/// CPU time of some work, in nanoseconds.
fn timed(work: impl FnOnce()) -> f64 {
    let start = thread_cpu();
    work();
    (thread_cpu() - start).as_nanos() as f64
}

#[test]
fn a_fenced_region_has_all_of_its_memory_wait() {
    static AROUND: Point = Point::new("around the loads");
    static PLAIN: Point = Point::new("a load");
    static FENCED: Point = Point::new("a fenced load").fenced();
    const STEPS: u32 = 2_000;
    const ROUNDS: u32 = 50;
    let next = circle();
    let mut at = 0;
    let mut bare = 0.0;
    let mut walk = |point: Option<&'static Point>| {
        let _around = point.map(|_| AROUND.measure());
        for _ in 0..STEPS {
            let _guard = point.map(Point::measure);
            at = next[black_box(at) as usize];
        }
    };
    for _ in 0..ROUNDS {
        bare += timed(|| walk(None));
        walk(Some(&PLAIN));
        walk(Some(&FENCED));
    }
    black_box(at);
    let all = f64::from(STEPS * ROUNDS);
    let mean = |name: &str| {
        let figures = figures(name);
        assert_eq!(figures.count, u64::from(STEPS * ROUNDS), "{name}");
        figures.exclusive as f64 / pfp::ticks_per_second() * 1e9 / all
    };
    let (bare, plain, fenced) = (bare / all, mean("a load"), mean("a fenced load"));
    figure(&format!("a load of {bare:.1} ns: {plain:.1} measured, {fenced:.1} fenced"));
    assert!((0.7..1.6).contains(&(fenced / bare)), "{fenced} of {bare}");
}

/// The cost of fences is not in the region's figures, and not in the surrounding region's.
#[test]
fn the_cost_of_fences_is_subtracted() {
    static AROUND: Point = Point::new("around nothing");
    static EMPTY: Point = Point::new("fenced, empty").fenced();
    const CALLS: u32 = 100_000;
    let taken = timed(|| {
        let _around = AROUND.measure();
        for _ in 0..CALLS {
            let _guard = EMPTY.measure();
        }
    });
    let ns = |ticks: u64| ticks as f64 / pfp::ticks_per_second() * 1e9;
    let own = ns(figures("fenced, empty").exclusive);
    let around = ns(figures("around nothing").exclusive);
    let each = |ns: f64| ns / f64::from(CALLS);
    figure(&format!(
        "an empty fenced region: {:.1} ns taken, {:.1} its own, {:.1} of the one around",
        each(taken),
        each(own),
        each(around)
    ));
    assert!(own + around < taken / 2.0, "{own} and {around} of {taken}");
}

#[test]
fn fenced_regions_of_every_kind_are_counted() {
    static POINT: Point = Point::new("every kind").fenced();
    static OTHER: Point = Point::new("the other kind").fenced();
    fn down(levels: u32) {
        let _guard = POINT.measure();
        if levels > 1 {
            down(levels - 1);
        }
    }
    down(100);
    for _ in 0..100 {
        POINT.begin();
        OTHER.begin();
        OTHER.end();
        POINT.end();
    }
    let mut guard = POINT.measure();
    for _ in 0..50 {
        guard.lap(&OTHER);
        guard.lap(&POINT);
    }
    drop(guard);
    // A viewer changes the mode while the program runs, in both directions.
    for fenced in [false, true, false] {
        POINT.set_fenced(fenced);
        for _ in 0..10 {
            let _guard = POINT.measure();
            POINT.set_fenced(!fenced);
            POINT.set_fenced(fenced);
        }
    }
    let figures = [figures("every kind"), figures("the other kind")];
    assert_eq!(figures.each_ref().map(|it| it.count), [100 + 100 + 51 + 30, 100 + 50]);
    assert!(figures.iter().all(|it| it.inclusive >= it.exclusive));
}

#[test]
fn a_variable_fences_all_points_of_a_program() {
    let place = Place::new();
    let file = place.path("figures.json");
    let of = |fence: &str| {
        let mut command = place.command(TARGET);
        command.args(["brief", "1000", "0"]).env("PFP_FENCE", fence).env("PFP_SNAPSHOT", &file);
        pfp_tests::c::run(&mut command);
        let snapshot = json::read(&file).expect("it was written");
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(count(&snapshot, "brief"), 1000);
        let point = snapshot.points.iter().find(|point| point.name == "brief");
        point.expect("it is there").fenced
    };
    assert!(!of("0") && of("1"));
}
