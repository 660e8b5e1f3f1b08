//! Threads that call points, under a storm of signals whose handler calls points
//! too, and may be interrupted itself.

use std::cell::Cell;
use std::mem;
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;

use pfp_tests::script::{pause, say};

const WORKERS: usize = 4;
/// What is sent to the workers, beside the timer's signal: as many as can
/// interrupt each other.
const SENT: [libc::c_int; 3] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGURG];
/// How deep handlers interrupt each other.
const DEEPEST: u32 = 4;

/// Calls that handlers made, by their own count.
static HANDLED: AtomicU64 = AtomicU64::new(0);
/// Handlers that interrupted another one.
static NESTED: AtomicU64 = AtomicU64::new(0);
static STOP: AtomicBool = AtomicBool::new(false);

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

static IN_HANDLER: pfp::Point = pfp::Point::new("handler by hand");
static HAND: pfp::Point = pfp::Point::new("by hand");

/// Runs until the handler was run so often.
pub(crate) fn run(wanted: u64) {
    pfp::enable(9);
    pfp::set_name(9, "numbered");
    pfp::init();
    // A thread's first region, and a point's, must not be in a handler.
    on_signal(0);
    let begin: &'static Barrier = Box::leak(Box::new(Barrier::new(WORKERS + 1)));
    let workers: Vec<_> = (0..WORKERS).map(|_| thread::spawn(|| work(begin))).collect();
    begin.wait();
    for signal in SENT.into_iter().chain([libc::SIGALRM]) {
        install(signal);
    }
    set_timer(100);
    let mut at = 0;
    while HANDLED.load(Relaxed) < wanted {
        // SAFETY: the threads have not been joined.
        unsafe { libc::pthread_kill(workers[at % WORKERS].as_pthread_t(), SENT[at / WORKERS % 3]) };
        at += 1;
    }
    set_timer(0);
    STOP.store(true, Relaxed);
    let calls: u64 = workers.into_iter().map(|worker| worker.join().expect("it counts")).sum();
    say("calls", &[&calls]);
    say("handled", &[&HANDLED.load(Relaxed)]);
    say("nested", &[&NESTED.load(Relaxed)]);
    pause("done");
}

fn work(begin: &Barrier) -> u64 {
    round();
    begin.wait();
    let mut calls = 1;
    while !STOP.load(Relaxed) {
        round();
        calls += 1;
    }
    calls
}

fn round() {
    {
        pfp::scope!("outer");
        pfp::scope!("inner");
    }
    HAND.begin();
    HAND.end();
    pfp::begin(9);
    pfp::end(9, false);
}

extern "C" fn on_signal(_signal: libc::c_int) {
    let depth = DEPTH.get();
    if depth >= DEEPEST {
        return;
    }
    DEPTH.set(depth + 1);
    {
        pfp::scope!("handler");
        {
            pfp::scope!("handler inside");
        }
        IN_HANDLER.begin();
        IN_HANDLER.end();
    }
    HANDLED.fetch_add(1, Relaxed);
    if depth > 0 {
        NESTED.fetch_add(1, Relaxed);
    }
    DEPTH.set(depth);
}

fn install(signal: libc::c_int) {
    // SAFETY: all zero is a value of it: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    // A handler may be interrupted, but not by its own signal: then there would be
    // no bound on how many wait on the stack before any has begun.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler only uses points and atomics.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0, "the signal may be handled");
}

/// Sends SIGALRM to the process every so many microseconds; 0 for never.
fn set_timer(every_us: i64) {
    let interval = libc::timeval { tv_sec: 0, tv_usec: every_us };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: reads our structure.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
}
