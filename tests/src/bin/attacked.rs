//! A program whose control words another process overwrites while it measures. It counts its own
//! calls, and prints results that do not depend on pfp.
//!
//! ```text
//! attacked THREADS
//! ```
//!
//! Its threads use all kinds of regions until the first line of standard input. Then only the main
//! thread runs: each further line holds a number, and the thread uses each of the points [`ANY`]
//! that many times.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use pfp::Point;
use pfp_tests::script::say;

/// Points whose control words are not overwritten.
static ALONE: [Point; 2] = [Point::new("alone 0"), Point::new("alone 1")];
/// Points whose control words are overwritten with any value that leaves the point enabled.
static ON: [Point; 6] = [
    Point::new("on 0"),
    Point::new("on 1"),
    Point::new("on 2"),
    Point::new("on 3"),
    Point::new("on 4"),
    Point::new("on 5"),
];
/// Points whose control words are overwritten with any value.
static ANY: [Point; 4] =
    [Point::new("any 0"), Point::new("any 1"), Point::new("any 2"), Point::new("any 3")];
/// The number of a point that stays enabled.
const NUMBERED: u32 = 5;
/// The number of a point whose control word is overwritten with any value.
const NUMBERED_ANY: u32 = 6;

/// A thread switches contexts once in this many rounds.
const CONTEXTS_EVERY: u64 = 16;

static STOP: AtomicBool = AtomicBool::new(false);
/// Number of threads that have used every point.
static WARM: AtomicU64 = AtomicU64::new(0);

/// Calls per point, as the program counts them itself.
#[derive(Default)]
struct CallCounts {
    alone: [AtomicU64; 2],
    on: [AtomicU64; 6],
    any: [AtomicU64; 4],
    numbered: AtomicU64,
    numbered_any: AtomicU64,
}

static CALLS: CallCounts = CallCounts {
    alone: [const { AtomicU64::new(0) }; 2],
    on: [const { AtomicU64::new(0) }; 6],
    any: [const { AtomicU64::new(0) }; 4],
    numbered: AtomicU64::new(0),
    numbered_any: AtomicU64::new(0),
};

fn add(to: &AtomicU64, calls: u64) {
    to.fetch_add(calls, Relaxed);
}

fn main() {
    let threads: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(2);
    Point::numbered(NUMBERED).enable();
    Point::numbered(NUMBERED).set_name("numbered");
    Point::numbered(NUMBERED_ANY).enable();
    Point::numbered(NUMBERED_ANY).set_name("numbered any");
    pfp::init().ok();
    // This round registers every point, so that the other process finds all their control words.
    round(&pfp::ExecutionContext::new(), &pfp::ExecutionContext::new(), 0);
    let mut lines = std::io::stdin().lock().lines();
    thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|number| scope.spawn(move || work(number))).collect();
        while WARM.load(Relaxed) < threads {
            thread::yield_now();
        }
        say("ready", &[]);
        let _ = lines.next();
        STOP.store(true, Relaxed);
        for worker in workers {
            let (number, rounds, sum) = worker.join().expect("it only counts");
            say("worked", &[&number, &rounds, &sum]);
        }
    });
    calls();
    say("calm", &[]);
    for line in lines.map_while(Result::ok) {
        let times: u64 = line.trim().parse().unwrap_or(0);
        for (point, calls) in ANY.iter().zip(&CALLS.any) {
            for _ in 0..times {
                drop(point.measure());
            }
            add(calls, times);
        }
        for _ in 0..times {
            Point::numbered(NUMBERED_ANY).begin_once();
            Point::numbered(NUMBERED_ANY).end();
        }
        add(&CALLS.numbered_any, times);
        say("used", &[]);
    }
    calls();
}

fn calls() {
    let each = [("alone", &CALLS.alone[..]), ("on", &CALLS.on[..]), ("any", &CALLS.any[..])];
    for (kind, all) in each {
        for (number, calls) in all.iter().enumerate() {
            say(kind, &[&number, &calls.load(Relaxed)]);
        }
    }
    say("numbered", &[&CALLS.numbered.load(Relaxed)]);
    say("numbered_any", &[&CALLS.numbered_any.load(Relaxed)]);
}

/// The program's real work: a sum that the test can recompute.
fn work(number: u64) -> (u64, u64, u64) {
    let (one, other) = (pfp::ExecutionContext::new(), pfp::ExecutionContext::new());
    let (mut rounds, mut sum) = (0_u64, number);
    while !STOP.load(Relaxed) {
        sum = step(sum, rounds);
        rounds += 1;
        round(&one, &other, rounds);
        if rounds == CONTEXTS_EVERY {
            add(&WARM, 1);
        }
    }
    (number, rounds, sum)
}

/// One step of the sum.
fn step(sum: u64, round: u64) -> u64 {
    sum.rotate_left(7) ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Measures regions of every kind, nested and one after the other.
fn round(one: &pfp::ExecutionContext, other: &pfp::ExecutionContext, number: u64) {
    {
        let _alone = ALONE[0].measure();
        let _on = ON[0].measure();
        let _any = ANY[0].measure();
        let _within = ON[1].measure();
        let _deeper = ANY[1].measure();
        let _last = ALONE[1].measure();
    }
    add(&CALLS.alone[0], 1);
    add(&CALLS.alone[1], 1);
    add(&CALLS.on[0], 1);
    add(&CALLS.on[1], 1);
    add(&CALLS.any[0], 1);
    add(&CALLS.any[1], 1);

    // Regions begun and ended by hand, one of them recursive.
    ON[2].begin();
    ANY[2].begin();
    ON[2].begin();
    ON[2].end();
    ANY[2].end();
    ON[2].end();
    add(&CALLS.on[2], 2);
    add(&CALLS.any[2], 1);

    // Laps, one directly after the other.
    {
        let mut lap = ON[3].measure();
        lap.lap(&ANY[3]);
        lap.lap(&ON[4]);
        lap.lap(&ON[3]);
    }
    add(&CALLS.on[3], 2);
    add(&CALLS.on[4], 1);
    add(&CALLS.any[3], 1);

    // Regions by number. The first end is latched, so both regions of the point count as one.
    Point::numbered(NUMBERED).begin_once();
    Point::numbered(NUMBERED).end_latched();
    Point::numbered(NUMBERED_ANY).begin_once();
    Point::numbered(NUMBERED).begin_once();
    Point::numbered(NUMBERED).end();
    Point::numbered(NUMBERED_ANY).end();
    add(&CALLS.numbered, 1);
    add(&CALLS.numbered_any, 1);

    // These regions are open while other contexts run on the thread.
    if number.is_multiple_of(CONTEXTS_EVERY) {
        let entered = one.enter();
        ON[5].begin();
        pfp::task_switch(one, other);
        drop(ON[0].measure());
        pfp::task_switch(other, one);
        ON[5].end();
        drop(entered);
        add(&CALLS.on[5], 1);
        add(&CALLS.on[0], 1);
    }
}
