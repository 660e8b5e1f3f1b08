//! Threads that measure until the test stops them, and a viewer that polls them as often as it
//! would in a week.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use pfp_read::snapshot::{ProcessState, Snapshot};
use pfp_read::source::{self, Acted, Change, Source};
use pfp_remote::Machine;
use pfp_tests::script::{in_turn, pause, say};
use pfp_tests::{os, stolen};
use pfp_top::app::App;
use pfp_top::common::Options;

static STOP: AtomicBool = AtomicBool::new(false);
static FLICKER: pfp::Point = pfp::Point::new("flicker");
static EVERYTHING: pfp::Point = pfp::Point::new("everything");

/// Runs rounds in several threads until the test stops them. Each thread prints its number of
/// rounds and its CPU time.
pub(crate) fn run(threads: usize) {
    EVERYTHING.enable();
    let (begin, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                in_turn(round);
                begin.wait();
                let (cpu, rounds) = stolen::counted(work);
                let stolen = stolen::so_far().as_nanos();
                say("thread", &[&os::tid(), &rounds, &cpu.as_nanos(), &stolen]);
                end.wait();
                // The thread waits here, so that it owns its lane until the test has read it.
                end.wait();
            });
        }
        begin.wait();
        pause("running");
        STOP.store(true, Relaxed);
        end.wait();
        say("ticks_per_second", &[&pfp::ticks_per_second()]);
        pause("done");
        end.wait();
    });
}

/// Runs rounds until the test stops it, under one region that covers them all.
fn work() -> (Duration, u64) {
    let cpu = os::thread_cpu();
    let mut rounds = 1;
    {
        let _everything = EVERYTHING.measure();
        while !STOP.load(Relaxed) {
            round();
            rounds += 1;
        }
    }
    (os::thread_cpu() - cpu, rounds)
}

#[inline(never)]
fn round() {
    {
        pfp::scope!("steady");
    }
    let _flicker = FLICKER.measure();
}

/// A process whose clock advances by a tenth of a second at each poll, however often it is polled.
struct Hurried {
    process: Box<dyn Source>,
    polls: u64,
}

impl Source for Hurried {
    fn picture(&mut self) -> Result<Snapshot> {
        let mut snapshot = self.process.poll()?;
        self.polls += 1;
        let tenths = self.polls as f64 / 10.0;
        snapshot.elapsed_ticks += (tenths * snapshot.clock.ticks_per_second) as u64;
        snapshot.taken_unix_ns += self.polls * 100_000_000;
        Ok(snapshot)
    }

    fn act(&mut self, change: Change) -> Result<Acted> {
        self.process.act(change)
    }
}

/// Polls a process that runs [`run`] `polls` times, ten times a second by its own clock. Prints the
/// memory that this took, and then the final count of each point.
pub(crate) fn watch(pid: u32, polls: u64) {
    const SAMPLES: u64 = 20;
    let found = source::discover().expect("the directory can be read");
    let candidate = found.candidates.iter().find(|found| found.pid == pid);
    let process = source::attach(candidate.expect("the program runs")).expect("it can be watched");
    let mut now = Instant::now();
    let mut app = App::new(Options::default(), Box::new(Machine::default()), now);
    app.watch(Box::new(Hurried { process, polls: 0 }), now);
    let mut poll = |app: &mut App| {
        now += Duration::from_millis(100);
        app.poll(now);
    };
    for _ in 0..SAMPLES {
        for _ in 0..polls / SAMPLES {
            poll(&mut app);
        }
        say("resident", &[&os::resident(std::process::id()), &os::resident(pid)]);
    }
    pause("watched");
    poll(&mut app);
    let snapshot = app.common.model.snapshot().expect("it was polled");
    assert_eq!(snapshot.process.state, ProcessState::Running);
    for (name, key) in [("steady", "steady"), ("flicker", "flicker"), ("everything", "everything")]
    {
        let point = snapshot.points.iter().find(|point| point.name == name);
        let figures = app.common.model.point(point.expect("it was measured").id);
        let total = figures.expect("every point has figures").total();
        say(key, &[&total.count, &total.exclusive, &total.inclusive]);
    }
}
