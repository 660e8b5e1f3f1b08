//! Eight threads that call points of every form as fast as they can.

use std::thread;

use pfp_tests::script::{in_turn, pause, say};

/// Number of threads that measure.
pub(crate) const THREADS: u64 = 8;
/// Number of calls in one round to points that are always enabled.
pub(crate) const IN_A_ROUND: u64 = 5;

const NUMBERED: u32 = 7;
static HAND: pfp::Point = pfp::Point::new("by hand");
static FLICKER: pfp::Point = pfp::Point::new("flicker by hand");

pub(crate) fn run(calls: u64) {
    let rounds = calls / THREADS / IN_A_ROUND;
    pfp::Point::numbered(NUMBERED).set_name("numbered");
    pfp::Point::numbered(NUMBERED).enable();
    // Registers all points, so that the reader knows them from the start.
    round();
    pause("ready");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                in_turn(round);
                (1..rounds).for_each(|_| round());
            });
        }
    });
    say("rounds", &[&(rounds * THREADS + 1)]);
    pause("done");
}

#[inline(never)]
fn round() {
    {
        pfp::scope!("outer");
        pfp::scope!("inner");
    }
    {
        pfp::scope!("scoped");
    }
    HAND.begin();
    HAND.end();
    // A numbered point may be open in several threads at once; each has its own region.
    pfp::Point::numbered(NUMBERED).begin_once();
    pfp::Point::numbered(NUMBERED).end();
    {
        pfp::scope!("flicker");
    }
    FLICKER.begin();
    FLICKER.end();
}
