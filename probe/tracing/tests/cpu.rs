//! The exclusive times of spans add up to the CPU time of their threads.

use std::thread;
use std::time::{Duration, Instant};

use tracing::info_span;

const THREADS: usize = 3;

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {}
}

fn work() {
    for round in 0..200 {
        let _round = info_span!("round").entered();
        spin(Duration::from_micros(300));
        for _ in 0..4 {
            info_span!("part").in_scope(|| spin(Duration::from_micros(100)));
        }
        // The thread sleeps inside this span, and the sleep must not count.
        if round % 10 == 0 {
            info_span!("wait").in_scope(|| thread::sleep(Duration::from_millis(1)));
        }
    }
}

fn thread_ns() -> u64 {
    // SAFETY: fills a local struct of integers.
    unsafe {
        let mut time = std::mem::zeroed();
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

#[test]
fn spans_add_up_to_the_clocks_of_their_threads() {
    pfp_tracing::init().expect("it is the first");
    // Work that happens only once is done before the measurement.
    thread::scope(|scope| scope.spawn(work).join().expect("it ends"));
    let rounds = [(); 5].map(|()| round());
    println!("spans: {rounds:.4?} off the threads' clocks");
    assert!(rounds.iter().all(|off| off.abs() < 0.005), "{rounds:?}");
}

/// Relative difference between the sum over the points and the kernel's CPU time.
fn round() -> f64 {
    pfp::points().for_each(pfp::Point::reset);
    let by_kernel: u64 = thread::scope(|scope| {
        let one = || {
            info_span!("first").in_scope(|| ());
            let before = thread_ns();
            info_span!("thread").in_scope(work);
            thread_ns() - before
        };
        let all: Vec<_> = (0..THREADS).map(|_| scope.spawn(one)).collect();
        all.into_iter().map(|thread| thread.join().expect("it ends")).sum()
    });
    let stats = pfp::points().filter_map(pfp::Point::stats);
    let ticks: u64 = stats.map(|stats| stats.exclusive).sum();
    let by_points = ticks as f64 / pfp::ticks_per_second() * 1e9;
    by_points / by_kernel as f64 - 1.0
}
