//! A known pattern of calls, and regions that are open when a program is killed.

use std::hint::black_box;
use std::time::{Duration, Instant};

use pfp_tests::script::pause;

const ROUNDS: u32 = 100;

fn work() {
    black_box((0..500_u64).fold(0, |sum, next| sum ^ black_box(next)));
}

fn b() {
    pfp::scope!("calls.b");
    work();
}

fn c() {
    pfp::scope!("calls.c");
    work();
}

fn recursive(levels: u32) {
    pfp::scope!("calls.again");
    work();
    if levels > 1 {
        recursive(levels - 1);
    }
}

/// In each round `a` calls `b` 3 times and `c` twice, `d` calls `b` once, and one point calls
/// itself until it is 4 levels deep.
pub(crate) fn pattern() {
    pfp::register_thread("caller");
    for _ in 0..ROUNDS {
        {
            pfp::scope!("calls.a");
            work();
            (0..3).for_each(|_| b());
            (0..2).for_each(|_| c());
        }
        {
            pfp::scope!("calls.d");
            work();
            b();
        }
        recursive(4);
    }
    pause("called");
}

/// Nested regions. The innermost one, `open.inner`, runs until the program is killed, and spends a
/// third of its time in regions of `open.called`.
pub(crate) fn endless() {
    pfp::register_thread("caller");
    pfp::scope!("open.outer");
    std::thread::sleep(Duration::from_millis(50));
    pfp::scope!("open.middle");
    pfp::scope!("open.inner");
    pfp_tests::script::say("open", &[]);
    loop {
        let spin = |time| {
            let start = Instant::now();
            while start.elapsed() < time {}
        };
        spin(Duration::from_micros(200));
        pfp::scope!("open.called");
        spin(Duration::from_micros(100));
    }
}
