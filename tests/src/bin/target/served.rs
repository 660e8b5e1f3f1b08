//! Work in bursts, and nothing in between: what a scraper saw can be compared with
//! what the segment says.

use std::thread;
use std::time::Duration;

use pfp_tests::os::burn;
use pfp_tests::script::pause;

/// Works once for each step, and waits at it; goes on until nobody listens.
pub(crate) fn run() {
    pfp::set_program_name("served");
    for step in 0.. {
        thread::scope(|scope| {
            for (name, calls) in [("one", 300), ("two", 100)] {
                scope.spawn(move || {
                    pfp::register_thread(name);
                    work(calls, step);
                });
            }
        });
        if !pause("worked") {
            return;
        }
    }
}

/// In the first step there are longer calls as well, which are not in what comes after.
fn work(calls: u64, step: u64) {
    for call in 0..calls {
        pfp::scope!("request");
        parse(20 + 2 * (call % 100));
        if step == 0 && call % 4 == 0 {
            parse(900);
        }
        {
            pfp::scope!("copy", bytes = 1000);
            burn(Duration::from_micros(10));
        }
        if call % 50 == 0 {
            pfp::scope!("wait");
            thread::sleep(Duration::from_millis(2));
        }
    }
}

fn parse(microseconds: u64) {
    pfp::scope!("parse");
    burn(Duration::from_micros(microseconds));
}
