//! A program whose control words somebody writes over while it measures. It counts
//! its own calls, and says what it would say without pfp.
//!
//! ```text
//! attacked THREADS
//! ```
//!
//! Its threads use all kinds of regions until the first line of standard input. Then
//! the main thread uses each of the points [`ANY`] a number of times for each further
//! line, which says how often; nothing else runs then.

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use pfp::Point;
use pfp_tests::script::say;

/// Points that nobody writes to.
static ALONE: [Point; 2] = [Point::new("alone 0"), Point::new("alone 1")];
/// Points that stay on, whatever else is written to them.
static ON: [Point; 6] = [
    Point::new("on 0"),
    Point::new("on 1"),
    Point::new("on 2"),
    Point::new("on 3"),
    Point::new("on 4"),
    Point::new("on 5"),
];
/// Points to which anything is written.
static ANY: [Point; 4] =
    [Point::new("any 0"), Point::new("any 1"), Point::new("any 2"), Point::new("any 3")];
/// A point by its number, which stays on.
const NUMBERED: u32 = 5;
/// One to which anything is written.
const NUMBERED_ANY: u32 = 6;

/// Rounds from one in which contexts are switched to the next.
const CONTEXTS_EVERY: u64 = 16;

static STOP: AtomicBool = AtomicBool::new(false);
/// Threads that have used every point.
static WARM: AtomicU64 = AtomicU64::new(0);

/// Calls by point, as the program itself counts them.
#[derive(Default)]
struct Calls {
    alone: [AtomicU64; 2],
    on: [AtomicU64; 6],
    any: [AtomicU64; 4],
    numbered: AtomicU64,
    numbered_any: AtomicU64,
}

static CALLS: Calls = Calls {
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
    // All of them are known before anybody looks.
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

/// What the program is for: a sum that anybody can work out again.
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

/// Regions of every kind, in each other and beside each other.
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

    // By hand, and one of them recursive.
    ON[2].begin();
    ANY[2].begin();
    ON[2].begin();
    ON[2].end();
    ANY[2].end();
    ON[2].end();
    add(&CALLS.on[2], 2);
    add(&CALLS.any[2], 1);

    // Laps from one to the next.
    {
        let mut lap = ON[3].measure();
        lap.lap(&ANY[3]);
        lap.lap(&ON[4]);
        lap.lap(&ON[3]);
    }
    add(&CALLS.on[3], 2);
    add(&CALLS.on[4], 1);
    add(&CALLS.any[3], 1);

    // By numbers; of every other one the end is latched, so that two are one.
    Point::numbered(NUMBERED).begin_once();
    Point::numbered(NUMBERED).end_latched();
    Point::numbered(NUMBERED_ANY).begin_once();
    Point::numbered(NUMBERED).begin_once();
    Point::numbered(NUMBERED).end();
    Point::numbered(NUMBERED_ANY).end();
    add(&CALLS.numbered, 1);
    add(&CALLS.numbered_any, 1);

    // Open while other contexts have the thread.
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
