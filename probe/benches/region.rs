//! What a region costs, beside what there is without pfp.
//!
//! Criterion measures each case by itself. The table at the end is what the
//! README quotes: all cases in turn, many rounds, so that a machine whose speed
//! drifts does so for all of them, and each median as a ratio to two bare reads
//! of the time-stamp counter of the same run.
//!
//! `cargo bench -p pfp-probe`; `-- --quick` for a short run, `-- table` for the
//! table alone.

use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};

static OFF: pfp::Point = pfp::Point::new("off");
static BY_HAND: pfp::Point = pfp::Point::new("by hand");
const NUMBER: u32 = 5;

/// Calls in one timed batch.
const BATCH: u64 = 20_000;

#[pfp::function]
#[inline(always)]
fn attribute() {}

/// Something that the compiler must leave where it is.
#[inline(always)]
fn nothing() {
    black_box(());
}

fn two_rdtsc() {
    let first = pfp::ticks();
    black_box(pfp::ticks().wrapping_sub(first));
}

fn two_instants() {
    black_box(Instant::now().elapsed());
}

fn two_thread_cpu_times() {
    black_box((thread_cpu_time(), thread_cpu_time()));
}

fn thread_cpu_time() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills the structure that we own.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_nsec
}

fn stamp() {
    black_box(pfp::on_cpu_ticks());
}

fn scope() {
    pfp::scope!("scope");
    nothing();
}

fn measure() {
    static POINT: pfp::Point = pfp::Point::new("measure");
    let _guard = POINT.measure();
    nothing();
}

fn by_hand() {
    BY_HAND.begin();
    nothing();
    BY_HAND.end();
}

fn numeric() {
    pfp::begin(NUMBER);
    nothing();
    pfp::end(NUMBER, false);
}

fn disabled() {
    let _guard = OFF.measure();
    nothing();
}

fn nested() {
    pfp::scope!("outer");
    nothing();
    {
        pfp::scope!("inner");
        nothing();
    }
}

/// A case: its name, how many regions one call has, and a batch of calls. The
/// loop is inlined with the case, so that no call is measured.
struct Case {
    name: &'static str,
    regions: u32,
    batch: fn(u64),
}

macro_rules! case {
    ($name:literal, $regions:literal, $call:expr) => {
        Case {
            name: $name,
            regions: $regions,
            batch: |calls| {
                for _ in 0..calls {
                    $call;
                }
            },
        }
    };
}

fn cases() -> Vec<Case> {
    vec![
        case!("two bare rdtsc", 1, two_rdtsc()),
        case!("one stamp of the on-CPU clock", 1, stamp()),
        case!("enabled: scope!", 1, scope()),
        case!("enabled: #[pfp::function]", 1, attribute()),
        case!("enabled: Point::measure", 1, measure()),
        case!("enabled: Point::begin, end", 1, by_hand()),
        case!("enabled: begin(id), end(id)", 1, numeric()),
        case!("nested pair, per region", 2, nested()),
        case!("disabled: Point::measure", 1, disabled()),
        case!("an empty loop", 1, nothing()),
        case!("two Instant::now", 1, two_instants()),
        case!("two CLOCK_THREAD_CPUTIME_ID", 1, two_thread_cpu_times()),
    ]
}

fn prepare() {
    pfp::init();
    for case in cases() {
        (case.batch)(10);
    }
    OFF.disable();
    pfp::enable(NUMBER);
    pfp::calibrate(100_000);
}

fn by_criterion(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("region");
    for case in cases() {
        group.bench_function(BenchmarkId::from_parameter(case.name), |bencher| {
            bencher.iter_custom(|calls| {
                let start = Instant::now();
                (case.batch)(calls);
                start.elapsed()
            });
        });
    }
    group.bench_function("two threads at once, per thread", |bencher| {
        bencher.iter_custom(|calls| {
            let times = two_threads(calls);
            times.iter().sum::<Duration>() / 2
        });
    });
    group.finish();
}

/// The time each of two threads takes for its own calls while the other runs.
fn two_threads(calls: u64) -> [Duration; 2] {
    let barrier = Barrier::new(2);
    let run = || {
        scope();
        barrier.wait();
        let start = Instant::now();
        for _ in 0..calls {
            scope();
        }
        start.elapsed()
    };
    std::thread::scope(|threads| {
        let other = threads.spawn(run);
        [run(), other.join().unwrap_or_default()]
    })
}

fn table(rounds: usize) {
    let cases = cases();
    let mut times = vec![Vec::with_capacity(rounds); cases.len()];
    let (mut one, mut two) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for (case, times) in cases.iter().zip(&mut times) {
            let start = Instant::now();
            (case.batch)(BATCH);
            times.push(
                start.elapsed().as_secs_f64() * 1e9 / (BATCH as f64 * f64::from(case.regions)),
            );
        }
        // Long enough that both threads really run at once.
        let calls = BATCH * 5;
        let start = Instant::now();
        (cases[2].batch)(calls);
        one.push(start.elapsed().as_secs_f64());
        let [first, second] = two_threads(calls);
        two.push((first + second).as_secs_f64() / 2.0);
    }
    let floor = median(&mut times[0]);
    println!("\n{} interleaved rounds of {BATCH} calls, medians; {}\n", rounds, machine());
    println!("| what | ns | x two rdtsc |");
    println!("|---|---:|---:|");
    for (case, times) in cases.iter().zip(&mut times) {
        let ns = median(times);
        println!("| {} | {ns:.2} | {:.2} |", case.name, ns / floor);
    }
    println!("\ntwo threads at once against one: {:.2}", median(&mut two) / median(&mut one));
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn machine() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cpus = std::thread::available_parallelism().map_or(0, usize::from);
    let ghz = pfp::ticks_per_second() / 1e9;
    let name = model.map_or("unknown processor", |(_, name)| name);
    format!("{name}, {cpus} CPUs, time-stamp counter {ghz:.2} GHz")
}

fn main() {
    let has = |flag: &str| std::env::args().any(|argument| argument == flag);
    prepare();
    // `cargo test --benches` only asks whether it runs.
    if has("--test") {
        return table(1);
    }
    if !has("table") {
        let mut criterion = Criterion::default().configure_from_args();
        by_criterion(&mut criterion);
        criterion.final_summary();
    }
    table(if has("--quick") { 11 } else { 101 });
}
