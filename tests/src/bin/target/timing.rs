//! Everything that tells a time from stamps, each beside the system's own clock, read just
//! inside and just outside of it.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pfp_tests::os::{burn, thread_cpu, wall};
use pfp_tests::script::say;

const STEP: Duration = Duration::from_millis(10);

static POINT: pfp::Point = pfp::Point::new("timing");

pub(crate) fn run() {
    // First of all, before anything else could have decided what a tick is.
    ticks();
    say("segment", &[&pfp::init().is_ok()]);
    ticks();
    let (before, stamp) = (wall(), pfp::cycle_stamp());
    let inside = work();
    let ticks = pfp::cycle_stamp().ticks - stamp.ticks;
    say_times("stamps", ticks, inside, wall() - before);

    let before = wall();
    let counted = pfp::cycle_count(&POINT, pfp::SyncScope::None, work);
    say_times("count", counted.elapsed(), counted.result, wall() - before);

    let group = pfp::ThreadGroup::named("pair", 2);
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(group.join());
            waits.store(true, SeqCst);
            let before = wall();
            let synced = pfp::synchronize(pfp::SyncScope::Internal(&group));
            let around = wall() - before;
            // Between the two clocks' readings a thread may be off the CPU.
            say_times("wait", synced.waited, around / 2, around);
        });
        assert!(group.join());
        while !waits.load(SeqCst) {
            thread::yield_now();
        }
        thread::sleep(STEP);
        let _ = pfp::synchronize(pfp::SyncScope::Internal(&group));
    });

    // On the CPU where there is a lane, else by the wall clock.
    let clock = if pfp::on_cpu_ticks().is_some() { thread_cpu } else { wall };
    let (mut inside, before) = (Duration::ZERO, clock());
    let found = pfp::sample("sample", 0, 4, || {
        let before = clock();
        burn(STEP);
        inside += clock() - before;
    });
    let around = clock() - before;
    say("sample", &[&(found.mean * 4.0), &inside.as_secs_f64(), &around.as_secs_f64()]);
}

fn ticks() {
    let (before, start) = (wall(), pfp::ticks());
    let inside = work();
    let ticks = pfp::ticks() - start;
    say_times("ticks", ticks, inside, wall() - before);
}

fn work() -> Duration {
    let before = wall();
    burn(STEP);
    wall() - before
}

fn say_times(what: &str, ticks: u64, inside: Duration, around: Duration) {
    let seconds = ticks as f64 / pfp::ticks_per_second();
    say(what, &[&seconds, &inside.as_secs_f64(), &around.as_secs_f64()]);
}
