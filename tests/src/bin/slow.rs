//! Makes very many short calls in several threads, and one slow call with a known cause:
//! `slow CAUSE SEED NOTES`. Four causes differ: `killed` ends the program by SIGKILL after the
//! slow call, `asked` calls `pfp::keep` instead of being slow, `panicked` does so in a panic hook,
//! and `storm` makes only slow calls. `killed` and `storm` write no notes. NOTES gets the thread, the
//! end of the slow part of the call, its time by the clock and on a CPU, and its level. With
//! `SLOW_SPANS` in the environment, the calls are spans of the crate tracing.

use std::env;
use std::fs;
use std::hint::black_box;
use std::mem;
use std::panic;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant, UNIX_EPOCH};

use pfp::{Guard, Point};
use tracing::span::EnteredSpan;

/// Threads that make calls.
const THREADS: u64 = 4;
/// Outermost calls of each thread.
const CALLS: u64 = 60_000;
const LIMIT: Duration = Duration::from_millis(5);
/// How long the slow call takes at least, milliseconds.
static SLOW_MS: AtomicU64 = AtomicU64::new(20);
/// Threads that take the CPU from the slow call.
const RIVALS: usize = 4;

static LEVELS: [Point; 3] = [Point::new("request"), Point::new("step"), Point::new("detail")];
static LOCK: Mutex<()> = Mutex::new(());
/// Of the slow call: the kernel id of its thread, when it ended (milliseconds since the Unix
/// epoch), and its time by the clock and on a CPU (nanoseconds).
static PLANTED: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Where the slow call is, and its cause.
#[derive(Clone, Copy)]
struct Plan<'a> {
    cause: &'a str,
    thread: u64,
    call: u64,
    /// The level at which the time is spent.
    level: usize,
}

fn main() {
    let given: Vec<String> = env::args().skip(1).collect();
    let [cause, seed, notes] = given.as_slice() else { panic!("expected CAUSE SEED NOTES") };
    let mut random: u64 = seed.parse().expect("it is a number");
    // On a busy machine, other calls are slow, too. Each further try is slower.
    SLOW_MS.fetch_add(random / 1000 * 20, Relaxed);
    let mut below = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 33) % limit
    };
    let call = CALLS / 10 + below(CALLS * 8 / 10);
    let plan = Plan { cause, thread: below(THREADS), call, level: below(3) as usize };
    let has_spans = env::var_os("SLOW_SPANS").is_some();
    if has_spans {
        pfp_tracing::init().expect("no other subscriber is set");
        drop(Call::begin(0, true));
    }
    // Pre-empted calls would displace the call that is asked for.
    if !["asked", "panicked"].contains(&cause.as_str()) {
        LEVELS[0].keep_over(LIMIT);
        pfp::points()
            .filter(|point| point.name().ends_with("request"))
            .for_each(|it| it.keep_over(LIMIT));
    }
    if cause == "storm" {
        return storm();
    }
    if cause == "preempted" {
        start_rivals();
    }
    thread::scope(|scope| {
        for number in 0..THREADS {
            scope.spawn(move || {
                for call in 0..CALLS {
                    let here = number == plan.thread && call == plan.call;
                    request(0, has_spans, here.then_some(plan));
                    if here && plan.cause == "killed" {
                        // SAFETY: no preconditions.
                        unsafe { libc::raise(libc::SIGKILL) };
                    }
                }
            });
        }
    });
    let [tid, end, wall, cpu] = PLANTED.each_ref().map(|word| word.load(Relaxed));
    let noted = format!("{tid} {end} {wall} {cpu} {}", plan.level);
    fs::write(notes, noted).expect("the notes can be written");
}

/// A call that is measured until it is dropped.
#[expect(dead_code, reason = "it is only dropped")]
enum Call {
    Region(Guard),
    Span(EnteredSpan),
}

impl Call {
    fn begin(level: usize, has_spans: bool) -> Self {
        if !has_spans {
            return Self::Region(LEVELS[level].measure());
        }
        let span = match level {
            0 => tracing::info_span!("request"),
            1 => tracing::info_span!("step"),
            _ => tracing::info_span!("detail"),
        };
        Self::Span(span.entered())
    }
}

/// A call at a level, with calls at the next one inside.
fn request(level: usize, has_spans: bool, plan: Option<Plan<'_>>) {
    let _call = Call::begin(level, has_spans);
    black_box((0..20).map(black_box::<u64>).sum::<u64>());
    if let Some(plan) = plan.filter(|plan| plan.level == level) {
        let (begin, cpu) = (Instant::now(), cpu_time());
        spend(plan.cause);
        let [wall, cpu] = [begin.elapsed(), cpu_time() - cpu].map(|time| time.as_nanos() as u64);
        let end = UNIX_EPOCH.elapsed().expect("the clock is set").as_millis() as u64;
        // SAFETY: no preconditions.
        let tid = unsafe { libc::gettid() } as u64;
        for (word, noted) in PLANTED.iter().zip([tid, end, wall, cpu]) {
            word.store(noted, Relaxed);
        }
    }
    if level + 1 < LEVELS.len() {
        request(level + 1, has_spans, plan.filter(|plan| plan.level != level));
        request(level + 1, has_spans, None);
    }
}

fn slow() -> Duration {
    Duration::from_millis(SLOW_MS.load(Relaxed))
}

/// Spends the time of the slow call.
fn spend(cause: &str) {
    match cause {
        "sleep" | "killed" => thread::sleep(slow()),
        "asked" => pfp::keep("a reason"),
        "panicked" => panic_once(),
        "lock" => wait_for_lock(),
        "fault" => fault(),
        "preempted" => lose_the_cpu(),
        "ran" => spin(),
        other => panic!("unknown cause {other}"),
    }
}

/// Panics, and goes on. The panic hook keeps the call.
fn panic_once() {
    panic::set_hook(Box::new(|panic| pfp::keep(&panic.to_string())));
    assert!(panic::catch_unwind(|| panic!("no more")).is_err());
    let _ = panic::take_hook();
}

/// Calls that are beyond the limit, many in a second.
const STORM: u64 = 20_000;

fn storm() {
    static LONG: Point = Point::new("long");
    LONG.keep_over(Duration::from_micros(1));
    for _ in 0..STORM {
        let _region = LONG.measure();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_micros(2) {}
    }
}

fn spin() {
    let begin = cpu_time();
    while cpu_time() - begin < slow() {
        black_box((0..1000).map(black_box::<u64>).sum::<u64>());
    }
}

/// CPU time of the calling thread.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the structure that it gets.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn wait_for_lock() {
    let (held, is_held) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            let _held = LOCK.lock();
            held.send(()).expect("the other thread waits for it");
            thread::sleep(slow());
        });
        is_held.recv().expect("it is sent");
        drop(LOCK.lock());
    });
}

/// Touches new pages.
fn fault() {
    const PAGE: usize = 4096;
    const PAGES: usize = 4096;
    let begin = cpu_time();
    while cpu_time() - begin < slow() {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let pages = unsafe { libc::mmap(ptr::null_mut(), PAGE * PAGES, protection, flags, -1, 0) };
        assert_ne!(pages, libc::MAP_FAILED);
        // SAFETY: advice about the new mapping: each page takes a fault of its own.
        unsafe { libc::madvise(pages, PAGE * PAGES, libc::MADV_NOHUGEPAGE) };
        for page in 0..PAGES {
            // SAFETY: the page is in the new mapping.
            unsafe { pages.cast::<u8>().add(page * PAGE).write_volatile(1) };
        }
        // SAFETY: nothing uses the mapping any more.
        unsafe { libc::munmap(pages, PAGE * PAGES) };
    }
}

/// The number of the CPU that the rivals take from the slow call; negative before and after.
static CONTENDED: AtomicI64 = AtomicI64::new(-1);

/// Starts threads that wait for a CPU to take. They are not started by the slow call, since that
/// may be a wait.
fn start_rivals() {
    for _ in 0..RIVALS {
        thread::spawn(|| {
            while CONTENDED.load(Relaxed) < 0 {
                thread::sleep(Duration::from_millis(1));
            }
            pin(CONTENDED.load(Relaxed));
            while CONTENDED.load(Relaxed) >= 0 {
                black_box((0..1000).map(black_box::<u64>).sum::<u64>());
            }
        });
    }
}

/// Lets the calling thread run on this CPU only.
fn pin(cpu: i64) {
    // SAFETY: zeros are an empty set.
    let mut only: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `cpu` is the number of a CPU, and `only` a set.
    unsafe { libc::CPU_SET(cpu as usize, &mut only) };
    // SAFETY: the call reads the set.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&only), &raw const only) }, 0);
}

/// Runs on one CPU with the rivals. The thread stays on that CPU.
fn lose_the_cpu() {
    let begin = Instant::now();
    // SAFETY: no preconditions.
    let cpu = i64::from(unsafe { libc::sched_getcpu() });
    CONTENDED.store(cpu, Relaxed);
    pin(cpu);
    // At first, the rivals do not run yet.
    while begin.elapsed() < 4 * slow() {
        black_box((0..1000).map(black_box::<u64>).sum::<u64>());
    }
    CONTENDED.store(-1, Relaxed);
}
