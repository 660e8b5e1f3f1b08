//! Begin and end pairs whose instructions are counted: `pairs CASE N...` runs one case N times, for
//! each N.
//!
//! Each case is a function of its own with a stable name, so its instructions can be read. These
//! are an enabled region and a disabled one:
//!
//! ```text
//! cargo build --release -p pfp-tests --bin pairs
//! objdump -d -C --no-show-raw-insn --disassemble=pairs_enabled  target/release/pairs
//! objdump -d -C --no-show-raw-insn --disassemble=pairs_disabled target/release/pairs
//! ```
//!
//! The code at a region is a test and two calls. All regions share the functions that are
//! called: see them by `--disassemble=pfp::engine::guard::begin`, `pfp::engine::measure::end` and
//! `lap_on`.
//!
//! Only code below [`pairs_repeat`] is counted, except [`pairs_repeat_wait`]; see
//! `tests/tests/engine/instructions.rs`.

use std::future::{Future, pending};
use std::hint::black_box;
use std::mem::ManuallyDrop;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Waker};

const NUMBER: u32 = 5;
static OFF: pfp::Point = pfp::Point::new("off");
static AVERAGE: pfp::Point = pfp::Point::new("average");
static BY_HAND: pfp::Point = pfp::Point::new("by hand");
static TIMED_OFF: pfp::MeteredPoint = pfp::MeteredPoint::new("timed off", &["bytes", "flops"]);
static POLLED: pfp::Point = pfp::Point::new("poll");
static ALLOCS: pfp::Point = pfp::Point::new("allocs").counting_allocs();

#[global_allocator]
static ALLOCATOR: pfp::Alloc = pfp::Alloc::new(std::alloc::System);

/// One region.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_enabled() {
    pfp::scope!("enabled");
    black_box(());
}

/// One region that counts its allocations.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_allocs() {
    let _guard = ALLOCS.measure();
    black_box(());
}

/// One region with two amounts, always the same.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_amounts() {
    let n = black_box(100_u64);
    pfp::scope!("amounts", bytes = n * 24, flops = n * 2);
    black_box(());
}

#[inline(always)]
fn full(n: u64) {
    let n = black_box(n);
    pfp::scope!("full", bytes = n * 24, flops = n * 2);
    black_box(());
}

/// One region with the last of the eight distinct tuples of amounts that are counted separately.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_amounts_last() {
    full(8);
    black_box(());
}

/// One region with a ninth tuple of amounts, which is summed together with all further tuples.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_amounts_rest() {
    full(9);
    black_box(());
}

/// One disabled region with amounts, by a guard that is returned.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_amounts_off() {
    let _guard = TIMED_OFF.measure([black_box(9_u64), 1]);
    black_box(());
}

/// One region by number.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_numeric() {
    pfp::Point::numbered(NUMBER).begin_once();
    black_box(());
    pfp::Point::numbered(NUMBER).end();
}

/// One disabled region.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_disabled() {
    let _guard = OFF.measure();
    black_box(());
}

/// A function that the compiler cannot see into.
#[inline(never)]
fn callee() {
    black_box(());
}

/// A call without a region around it.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_call() {
    black_box(callee as fn())();
    black_box(());
}

/// A call in a disabled region: the end has to test the point again.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_disabled_call() {
    let _guard = OFF.measure();
    black_box(callee as fn())();
    black_box(());
}

/// Two nested regions.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_nested() {
    pfp::scope!("outer");
    black_box(());
    {
        pfp::scope!("inner");
        black_box(());
    }
}

/// Two regions, one after the other.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_laps() {
    pfp::laps!("lap one");
    wait();
    pfp::lap!("lap two");
    wait();
}

/// One region that could have laps and has none: the difference from [`pairs_laps`] is the cost of
/// a lap.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_one_lap() {
    pfp::laps!("lap one");
    wait();
    wait();
}

/// The two waits of [`pairs_laps`], without its regions.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_waits() {
    wait();
    wait();
}

/// Minimum ticks of a wait. With the cost of measuring, a lap takes between 4,096 and 8,192 ticks
/// on every machine: its histogram bucket is always in the same octave, and it is longer than its
/// calibrated cost. With longer waits, more of the counted laps would read the thread's CPU time,
/// which happens every 2^21 ticks.
const WAIT: u64 = 5 << 10;

/// Whether [`pairs_repeat`] runs, below which callgrind counts.
static COUNTS: AtomicBool = AtomicBool::new(false);

/// Waits until the counter has advanced by [`WAIT`]. The number of instructions varies, so
/// callgrind does not count them.
#[inline(always)]
fn wait() {
    if COUNTS.load(Relaxed) { pairs_repeat_wait() } else { spin() }
}

/// Callgrind toggles counting when this function begins and when it returns, so only code below
/// [`pairs_repeat`] is permitted to call this function.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_repeat_wait() {
    spin();
}

#[inline(never)]
fn spin() {
    let start = ticks();
    while ticks().wrapping_sub(start) < WAIT {}
}

#[cfg(target_arch = "x86_64")]
fn ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter, and Linux lets programs read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// On other processors, the thread's clock replaces the counter.
#[cfg(not(target_arch = "x86_64"))]
fn ticks() -> u64 {
    pfp::on_cpu_ticks().unwrap_or(0)
}

/// One region for each of several points in turn.
#[inline(always)]
fn in_turn<const POINTS: usize>() {
    static IN_TURN: [pfp::Point; 1_000] = [const { pfp::Point::new("in turn") }; 1_000];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let next = NEXT.load(Relaxed);
    NEXT.store(next.wrapping_add(1), Relaxed);
    let _guard = IN_TURN[next % POINTS].measure();
    black_box(());
}

/// One region, of four points in turn.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_four_in_turn() {
    in_turn::<4>();
}

/// One region, of 64 points in turn.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_in_turn() {
    in_turn::<64>();
}

/// One region, of more points in turn than a page has records.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_thousand_in_turn() {
    in_turn::<1_000>();
}

/// One region of a point that averages exponentially.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_average() {
    let _guard = AVERAGE.measure();
    black_box(());
}

/// One measurement in two parts. The end of the first part is latched.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_latched() {
    BY_HAND.begin();
    black_box(());
    BY_HAND.end_latched();
    BY_HAND.begin();
    black_box(());
    BY_HAND.end();
}

/// One region begun and ended by hand.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_by_hand() {
    BY_HAND.begin();
    black_box(());
    BY_HAND.end();
}

/// One poll of a measured future that is never ready.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_poll() {
    // The future is not dropped, since that would record a measurement.
    let mut future = ManuallyDrop::new(POLLED.measure_async(pending::<()>()));
    let future = Pin::new(&mut *future);
    black_box(future.poll(&mut Context::from_waker(Waker::noop())).is_pending());
}

#[pfp::function]
async fn at_once() {
    black_box(());
}

/// One call of a measured async function that is ready at once.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_ready() {
    let future = pin!(at_once());
    black_box(future.poll(&mut Context::from_waker(Waker::noop())).is_ready());
}

/// One reading of the on-CPU clock.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_stamp() {
    black_box(pfp::on_cpu_ticks());
}

/// The cost without a region: the call and the loop.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_empty() {
    black_box(());
}

/// Calls a case `times` times. The counting begins and ends with this function.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn pairs_repeat(case: extern "C" fn(), times: u64) {
    for _ in 0..times {
        black_box(case)();
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, case, times @ ..] = &arguments[..] else { return ExitCode::FAILURE };
    let times: Result<Vec<u64>, _> = times.iter().map(|times| times.parse()).collect();
    let Ok(times) = times else { return ExitCode::FAILURE };
    let all_off = case == "ready_off";
    let case = match case.as_str() {
        "enabled" => pairs_enabled,
        "amounts" => pairs_amounts,
        "amounts_last" => pairs_amounts_last,
        "amounts_rest" => pairs_amounts_rest,
        "amounts_off" => pairs_amounts_off,
        "numeric" => pairs_numeric,
        "disabled" => pairs_disabled,
        "allocs" => pairs_allocs,
        "call" => pairs_call,
        "disabled_call" => pairs_disabled_call,
        "nested" => pairs_nested,
        "average" => pairs_average,
        "latched" => pairs_latched,
        "laps" => pairs_laps,
        "one_lap" => pairs_one_lap,
        "waits" => pairs_waits,
        "by_hand" => pairs_by_hand,
        "four_in_turn" => pairs_four_in_turn,
        "in_turn" => pairs_in_turn,
        "thousand_in_turn" => pairs_thousand_in_turn,
        "poll" => pairs_poll,
        "ready" => pairs_ready,
        // Runs with all points disabled: see below.
        "ready_off" => pairs_ready,
        "stamp" => pairs_stamp,
        "empty" => pairs_empty as extern "C" fn(),
        _ => return ExitCode::FAILURE,
    };
    OFF.disable();
    TIMED_OFF.point().disable();
    (1..=8).for_each(full);
    pfp::Point::numbered(NUMBER).enable();
    if AVERAGE.set_alpha(0.1).is_err() {
        return ExitCode::FAILURE;
    }
    if all_off {
        pfp::set_enabled(false);
    }
    // Registers the point, claims a lane, and allocates the histogram buckets of most durations.
    for _ in 0..10_000 {
        case();
    }
    for times in times {
        // Callgrind has just written its counts. If that took long, the next region reads the
        // thread's CPU time, so that region is not counted.
        case();
        COUNTS.store(true, Relaxed);
        pairs_repeat(case, times);
        COUNTS.store(false, Relaxed);
    }
    ExitCode::SUCCESS
}
