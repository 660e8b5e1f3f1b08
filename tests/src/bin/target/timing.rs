//! Compares everything that computes times from stamps with the system's own clock, which is read
//! just before and just after.

use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pfp_tests::os::{burn, thread_cpu, wall};
use pfp_tests::own::figures;
use pfp_tests::script::say;
use pfp_tests::stand_in::StandIn;

const STEP: Duration = Duration::from_millis(10);
/// Milliseconds that the device works.
const DEVICE_MS: f64 = 12.5;

static POINT: pfp::Point = pfp::Point::new("timing");

pub(crate) fn run(library: PathBuf) {
    // This comes first, before other code could determine the tick rate.
    ticks();
    let is_there = pfp::init().is_ok();
    say("segment", &[&is_there]);
    ticks();
    let (before, stamp) = (wall(), pfp_timing::cycle_stamp());
    let inside = work();
    let ticks = pfp_timing::cycle_stamp().ticks - stamp.ticks;
    say_times("stamps", ticks, inside, wall() - before);

    let before = wall();
    let counted = pfp_timing::cycle_count(&POINT, pfp_timing::SyncScope::None, work);
    say_times("count", counted.elapsed(), counted.result, wall() - before);

    let group = pfp_timing::ThreadGroup::named("pair", 2);
    let waits = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            assert!(group.join());
            waits.store(true, SeqCst);
            let before = wall();
            let synced = pfp_timing::synchronize(pfp_timing::SyncScope::Internal(&group));
            let around = wall() - before;
            // The thread may be off the CPU between the two clocks' readings.
            say_times("wait", synced.waited, around / 2, around);
        });
        assert!(group.join());
        while !waits.load(SeqCst) {
            thread::yield_now();
        }
        thread::sleep(STEP);
        let _ = pfp_timing::synchronize(pfp_timing::SyncScope::Internal(&group));
    });

    // Regions use CPU time if the thread has a lane, and wall time otherwise.
    let clock = if pfp::on_cpu_ticks().is_some() { thread_cpu } else { wall };
    let (mut inside, before) = (Duration::ZERO, clock());
    let found = pfp_timing::sample("sample", 0, 4, || {
        let before = clock();
        burn(STEP);
        inside += clock() - before;
    });
    let around = clock() - before;
    say("sample", &[&(found.mean * 4.0), &inside.as_secs_f64(), &around.as_secs_f64()]);

    // The device measures time by its own clock, and the segment stores it in ticks. The stand-in
    // is not dropped, since that would remove the library, which belongs to the test.
    let stand_in = ManuallyDrop::new(StandIn::at(library));
    let mut timer = pfp_timing::GpuTimer::new(stand_in.gpu(), "timing");
    let before = wall();
    timer.start();
    stand_in.launch(ptr::null_mut(), DEVICE_MS);
    let inside = work();
    timer.stop();
    let around = wall() - before;
    say("launch", &[&(timer.launch_ms() / 1e3), &inside.as_secs_f64(), &around.as_secs_f64()]);
    stand_in.advance(DEVICE_MS);
    let found = timer.elapsed_ms();
    if is_there {
        let device = Duration::from_secs_f64(DEVICE_MS / 1e3);
        let found = found.expect("the device is done") / 1e3;
        say("device", &[&found, &device.as_secs_f64(), &device.as_secs_f64()]);
        say_times("recorded", figures("gpu:timing").exclusive, device, device);
    } else {
        assert_eq!(found, None, "a point is off without a segment, and then records no events");
    }
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
