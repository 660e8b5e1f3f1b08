//! A steady program to watch: a few points at constant rates, in two threads, until its standard
//! input ends, or for a number of rounds. A line `abort` on the input ends it at once, and a line
//! `slow` makes `work` eight times as long.
//!
//! ```text
//! steady [NAME [ROUNDS]]
//! ```

use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two ticks. It is so long that the screen shows the exact count for minutes.
const TICK: Duration = Duration::from_millis(100);
/// The point with a number and no name.
const NUMBERED: u32 = 5;

static RUNNING: AtomicBool = AtomicBool::new(true);
static SLOW: AtomicBool = AtomicBool::new(false);

fn main() {
    if let Some(name) = std::env::args().nth(1) {
        pfp::set_program_name(&name);
    }
    let rounds = std::env::args().nth(2).map(|rounds| rounds.parse().expect("a number of rounds"));
    pfp::Point::numbered(NUMBERED).enable();
    thread::scope(|scope| {
        scope.spawn(move || ticker(rounds.unwrap_or(u64::MAX)));
        scope.spawn(worker);
        if rounds.is_some() {
            return;
        }
        for line in std::io::stdin().lock().lines() {
            match line {
                Ok(line) if line == "abort" => std::process::abort(),
                Ok(line) if line == "slow" => SLOW.store(true, Relaxed),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        RUNNING.store(false, Relaxed);
    });
}

/// Measures rare, short regions, and sleeps in between.
fn ticker(rounds: u64) {
    pfp::register_thread("ticker");
    for _ in 0..rounds {
        if !RUNNING.load(Relaxed) {
            break;
        }
        pfp::scope!("round");
        {
            pfp::scope!("tick");
            spin(Duration::from_micros(50));
        }
        pfp::Point::numbered(NUMBERED).begin_once();
        spin(Duration::from_micros(20));
        pfp::Point::numbered(NUMBERED).end();
        thread::sleep(TICK);
    }
    RUNNING.store(false, Relaxed);
}

/// Measures frequent regions, with a visible load.
fn worker() {
    pfp::register_thread("worker");
    while RUNNING.load(Relaxed) {
        {
            pfp::scope!("work");
            spin(Duration::from_micros(if SLOW.load(Relaxed) { 1600 } else { 200 }));
            pfp::scope!("inner");
            spin(Duration::from_micros(100));
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn spin(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}
