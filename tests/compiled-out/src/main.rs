//! Uses the whole API, compiled out.

use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

static POINT: pfp::Point = pfp::Point::new("a point");
static TIMED: pfp::MeteredPoint = pfp::MeteredPoint::new("with amounts", &["items"]);

/// Compiled with every kind of point, or with none: the instructions must be identical.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn measured(seed: u64) -> u64 {
    #[cfg(feature = "points")]
    pfp::function_scope!();
    let mut sum = seed;
    for round in 0..black_box(1000u64) {
        #[cfg(feature = "points")]
        pfp::scope!("round");
        #[cfg(feature = "points")]
        pfp::scope!("with amounts", rounds = round, bytes = seed as f64);
        #[cfg(feature = "points")]
        pfp::laps!("first");
        #[cfg(feature = "points")]
        let mut guard = POINT.measure();
        #[cfg(feature = "points")]
        {
            POINT.begin();
            pfp::Point::numbered(3).begin_once();
            TIMED.begin();
            guard.lap_with(&TIMED, [round]);
        }
        sum = (sum ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        #[cfg(feature = "points")]
        {
            pfp::lap!("next", rounds = round);
            guard.lap(&POINT);
            TIMED.end([seed]);
            pfp::Point::numbered(3).end();
            POINT.end_latched();
            POINT.end();
            pfp::finish_frame!();
        }
    }
    black_box(sum)
}

#[pfp::function]
fn function(number: u32) -> u32 {
    number + 1
}

struct Block;

#[pfp::all_functions]
impl Block {
    fn measured(number: u32) -> u32 {
        number + 1
    }

    #[pfp::skip]
    fn skipped(number: u32) -> u32 {
        number + 2
    }
}

#[pfp::measure("a name")]
async fn later(number: u32) -> u32 {
    std::future::ready(number).await + 1
}

fn main() {
    println!("{}", measured(black_box(7)));

    assert_eq!(pfp::init(), Err(pfp::InitError::CompiledOut));
    assert!(pfp::InitError::CompiledOut.to_string().contains("enabled"));
    pfp::set_program_name("nobody");
    pfp::register_thread("nothing");
    assert!(pfp::ticks_per_second() > 0.0);
    assert_eq!(pfp::ticks(), 0);
    assert!(pfp::calibrate(1000).is_none());

    assert_eq!(function(1), 2);
    assert_eq!((Block::measured(1), Block::skipped(1)), (2, 3));
    pfp::register_thread!();
    pfp::register_thread!("nothing");
    pfp::finish_frame!();
    let mut future = pin!(later(1));
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(2));
    let mut future = pin!(POINT.measure_async(async { 3 }));
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(3));

    TIMED.begin();
    TIMED.end_latched([1]);
    TIMED.end([2.5]);
    let mut future = pin!(TIMED.measure_async([1], async { 4 }));
    let polled = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(4));
    let mut guard = POINT.measure();
    guard.lap_with(&TIMED, [7_u8]);
    pfp::laps!("first", items = 1);
    pfp::lap!("next", items = 2, bytes = 3);
    assert!(TIMED.amounts().is_empty());

    POINT.enable();
    assert!(!POINT.is_enabled());
    POINT.reset();
    POINT.disable();
    POINT.clear_alpha();
    assert!(POINT.stats().is_none());
    assert_eq!((POINT.name().len(), POINT.file(), POINT.line()), (0, "", 0));
    assert_eq!(pfp::points().count(), 0);
    // Invalid arguments stay invalid, so that enabling measurements changes no result.
    let (period, tau) = (Duration::from_millis(100), Duration::from_millis(500));
    assert!(POINT.set_alpha(0.2).is_ok() && POINT.set_alpha(0.0).is_err());
    assert!(POINT.set_average(period, tau).is_ok() && POINT.set_average(tau, period).is_err());
    for id in [1, pfp::NUMERIC] {
        let point = pfp::Point::numbered(id);
        point.enable();
        point.disable();
        point.reset();
        point.set_name("one");
        assert!(point.stats().is_none());
        assert!(point.set_alpha(0.2).is_ok() && point.set_alpha(f64::NAN).is_err());
    }
    let refused = [pfp::snapshot_to("/nowhere/a"), pfp::snapshot_over("/nowhere/a")];
    assert!(refused.iter().all(|result| result.is_err()));
    let stats = pfp::Stats::default();
    assert_eq!((stats.count, stats.mean(), stats.variance()), (0, Duration::ZERO, 0.0));
    assert_eq!((stats.exclusive(), stats.quantile(0.5)), (Duration::ZERO, None));

    let (idle, task) = (pfp::ExecutionContext::new(), pfp::ExecutionContext::new());
    assert!(pfp::task_switch(&idle, &task));
    assert!(idle.number() > 0);
    drop(idle.enter());

    let mut timer = pfp_timing::CpuTimer::new();
    timer.start();
    timer.stop();
    assert_eq!((timer.elapsed_ms(), timer.on_cpu_ms()), (0.0, None));
    let mut runs = 0;
    assert_eq!(pfp_timing::sample("a sample", 2, 3, || runs += 1).samples, 0);
    assert_eq!(runs, 5, "what would be sampled runs all the same");

    // With measuring, this thread would wait for the second member of each group.
    let (threads, processes) =
        (pfp_timing::ThreadGroup::named("two", 2), pfp_timing::ProcessGroup::join("two", 2).expect("there is"));
    assert!(threads.join());
    let all = pfp_timing::SyncScope::Global(&threads, &processes);
    assert_eq!(pfp_timing::synchronize(all), pfp_timing::Synced::default());
    let count = pfp_timing::cycle_count(&POINT, all, || runs + 1);
    assert_eq!((count.result, count.elapsed(), count.on_cpu, count.stayed()), (6, 0, 0, false));
    // The types are empty, since there is nothing to store.
    assert_eq!((size_of::<pfp::Point>(), size_of::<pfp::MeteredPoint>()), (0, 0));
    assert_eq!(size_of::<pfp::Guard>(), 0);
    assert_eq!((size_of::<pfp::ExecutionContext>(), size_of::<pfp::Entered>()), (0, 0));
    assert_eq!((size_of::<pfp_timing::ThreadGroup>(), size_of::<pfp_timing::ProcessGroup>()), (0, 0));
    assert_eq!(size_of::<pfp::MeteredFuture<[u8; 7]>>(), 7);

    // The program has no segment and only this thread.
    let maps = std::fs::read_to_string("/proc/self/maps").expect("proc is mounted");
    assert!(!maps.contains("/dev/shm"), "{maps}");
    assert_eq!(std::fs::read_dir("/proc/self/task").expect("proc is mounted").count(), 1);
}
