//! A host whose heap runs out at each of its allocations in turn.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use pfp_shm_layout::heap::ShortText;
use pfp_tests::script::say;
use pfp_tests::strict::{refuse_all, refuse_from};
use pfp_timing::{Gpu, GpuTimer, ProcessGroup, SyncScope, ThreadGroup};

static POINT: pfp::Point = pfp::Point::new("point");
static METERED: pfp::MeteredPoint = pfp::MeteredPoint::new("metered", &["bytes", "flops"]);

/// Runs `work`, which may fail for lack of memory, and for no other reason; returns whether it
/// succeeded.
fn may_fail(work: impl FnOnce() -> io::Result<()>) -> bool {
    match work() {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::OutOfMemory);
            false
        }
    }
}

fn snapshot_to() {
    let is_there = may_fail(|| pfp::snapshot_to("snapshot.json"));
    assert_eq!(Path::new("snapshot.json").exists(), is_there);
    // SAFETY: the path is a NUL-terminated literal.
    unsafe { libc::unlink(c"snapshot.json".as_ptr()) };
}

fn snapshot_over() {
    may_fail(|| pfp::snapshot_over("over.json"));
}

fn show() {
    may_fail(|| pfp::show(&mut io::sink()));
}

fn stats() {
    if let Some(stats) = POINT.stats() {
        let mut both = stats;
        both.merge(&stats_of(&METERED));
        let _ = (both.quantile(0.5), both.mean());
    }
    let _ = (METERED.amounts(), POINT.name());
}

fn stats_of(metered: &'static pfp::MeteredPoint) -> pfp::Stats {
    metered.point().stats().unwrap_or_default()
}

fn regions() {
    pfp::scope!("scope");
    pfp::scope!("scope with amounts", items = 3, bytes = 4);
    drop(POINT.measure());
    POINT.begin();
    POINT.end_latched();
    drop(METERED.measure([5, 6]));
    pfp::laps!("first lap");
    pfp::lap!("second lap");
    pfp::finish_frame!();
}

fn steering() {
    POINT.set_name("another name");
    POINT.set_fenced(true);
    POINT.set_fenced(false);
    let _ = POINT.set_alpha(0.5);
    POINT.clear_alpha();
    POINT.reset();
    POINT.disable();
    POINT.enable();
    pfp::set_enabled(false);
    pfp::set_enabled(true);
    let _ = (POINT.alpha(), POINT.is_enabled(), pfp::points().count());
}

fn contexts() {
    let (idle, task) = (pfp::ExecutionContext::new(), pfp::ExecutionContext::new());
    if pfp::task_switch(&idle, &task) {
        POINT.begin();
        POINT.end();
        pfp::task_switch(&task, &idle);
    }
    drop(task.enter());
    let _ = task.clone().number();
}

fn program() {
    pfp::set_program_name("a program");
    pfp::register_thread("a thread");
    let _ = (pfp::calibrate(16), pfp::ticks_per_second(), pfp::on_cpu_ticks(), pfp::ticks());
    let _ = pfp::init();
}

/// A name that was not used before.
fn fresh() -> ShortText<32> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    ShortText::of(format_args!("name {}", NEXT.fetch_add(1, Relaxed)))
}

/// Name of a group that exists while the tests run. Like the start of the library, making a group
/// takes memory that cannot be refused.
const PROCESSES: &str = "processes";

fn samples() {
    let found = pfp_timing::sample(fresh().as_str(), 1, 20, || ());
    assert!(found.samples == 0 || found.samples == 20, "{}", found.samples);
    let _ = pfp_timing::cycle_count(&POINT, SyncScope::None, || ());
}

fn groups() {
    let name = fresh();
    let group = ThreadGroup::named(name.as_str(), 1);
    let is_member = group.join();
    let synced = pfp_timing::synchronize(SyncScope::Internal(&group.clone()));
    assert!(!is_member || !synced.not_member);
    group.leave();
    may_fail(|| ProcessGroup::join(PROCESSES, 0).map(drop));
}

/// A library in place of the driver of a GPU.
static DRIVER: OnceLock<String> = OnceLock::new();

fn gpu() {
    let Ok(gpu) = Gpu::with_library(DRIVER.get().expect("it is set")) else { return };
    let mut timer = GpuTimer::new(gpu, fresh().as_str());
    for _ in 0..3 {
        timer.start();
        timer.stop();
        let _ = timer.elapsed_ms();
    }
    timer.synchronize();
    drop(timer.copies());
}

pub(crate) fn run(driver: &str) -> ExitCode {
    DRIVER.get_or_init(|| driver.to_owned());
    assert_eq!(pfp::init(), Ok(()));
    regions();
    let _group = ProcessGroup::join(PROCESSES, 0).expect("it is the first");
    // Spend some time off the CPU, so that the figures include such time.
    {
        pfp::scope!("asleep");
        std::thread::sleep(Duration::from_millis(2));
    }
    let calls: [(&str, fn()); 11] = [
        ("snapshot_to", snapshot_to),
        ("snapshot_over", snapshot_over),
        ("show", show),
        ("stats", stats),
        ("regions", regions),
        ("steering", steering),
        ("contexts", contexts),
        ("program", program),
        ("samples", samples),
        ("groups", groups),
        ("gpu", gpu),
    ];
    for (name, call) in calls {
        let asked = [false, true]
            .map(|for_good| (0..).take_while(|&n| refuse_from(n, for_good, call)).count());
        say(name, &[&asked.into_iter().max().unwrap_or(0)]);
    }
    // Memory is refused until the process ends.
    refuse_all();
    // SAFETY: takes a number; runs the exit handlers and ends the process.
    unsafe { libc::exit(7) }
}
