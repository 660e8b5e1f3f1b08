//! Works in bursts with pauses in between, so that a scraper's figures can be compared with the
//! segment's.

use std::thread;
use std::time::Duration;

use pfp_tests::os::burn;
use pfp_tests::script::{in_turn, pause};

/// Works once for each step, and waits for the test after it, until the test closes the pipe.
pub(crate) fn run() {
    pfp::set_program_name("served");
    for step in 0.. {
        thread::scope(|scope| {
            for (name, calls) in [("one", 300), ("two", 100)] {
                scope.spawn(move || {
                    in_turn(|| {
                        pfp::register_thread(name);
                        work(0, step);
                    });
                    (1..calls).for_each(|call| work(call, step));
                });
            }
        });
        if !pause("worked") {
            return;
        }
    }
}

/// The first step also has longer calls, which later steps do not have.
fn work(call: u64, step: u64) {
    pfp::scope!("request");
    parse(20 + 2 * (call % 100));
    if step == 0 && call.is_multiple_of(4) {
        parse(900);
    }
    {
        pfp::scope!("copy", bytes = 1000);
        burn(Duration::from_micros(10));
    }
    if call.is_multiple_of(50) {
        pfp::scope!("wait");
        thread::sleep(Duration::from_millis(2));
    }
}

fn parse(microseconds: u64) {
    pfp::scope!("parse");
    burn(Duration::from_micros(microseconds));
}
