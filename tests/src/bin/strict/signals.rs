//! Threads that measure during a storm of signals. The signals' handler measures, too, and other
//! handlers may interrupt it. No handler may allocate memory.

use std::cell::Cell;
use std::mem;
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use pfp_tests::script::{pause, say};
use pfp_tests::strict::forbid;

const WORKERS: usize = 4;
/// Number of different signals that are sent to the workers, in addition to the timer's.
const SENT: usize = 9;
/// Maximum number of nested handlers.
const DEPTHS: usize = SENT + 1;
/// Number of regions that a handler begins.
const IN_A_HANDLER: u64 = 3;
/// Every RAISES-th handler raises the next signal inside its region.
const RAISES: u64 = 16;

/// Calls of the handler, as the program counts them; the index is the number of handlers that were
/// interrupted.
static HANDLED: [AtomicU64; DEPTHS] = [const { AtomicU64::new(0) }; DEPTHS];
static STOP: AtomicBool = AtomicBool::new(false);
/// Whether handlers measure now, and whether they may allocate memory.
static ACT: AtomicU64 = AtomicU64::new(ACT_STRICTLY);
const ACT_STRICTLY: u64 = 0;
const ACT_FREELY: u64 = 1;
const ACT_NOT: u64 = 2;

thread_local! {
    static DEPTH: Cell<usize> = const { Cell::new(0) };
}

static IN_HANDLER: pfp::Point = pfp::Point::new("handler by hand");
static HAND: pfp::Point = pfp::Point::new("by hand");

/// Signals that no other code of the process uses.
fn sent() -> [libc::c_int; SENT] {
    let real_time = libc::SIGRTMIN();
    let mut all = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGURG, libc::SIGWINCH, 0, 0, 0, 0, 0];
    (0..).zip(&mut all[4..]).for_each(|(at, signal)| *signal = real_time + at);
    all
}

fn handled() -> u64 {
    HANDLED.iter().map(|count| count.load(Relaxed)).sum()
}

/// Runs until the handler was called `wanted` times.
pub(crate) fn run(wanted: u64) {
    pfp::Point::numbered(9).enable();
    pfp::Point::numbered(9).set_name("numbered");
    pfp::init().ok();
    let begin: &'static Barrier = Box::leak(Box::new(Barrier::new(WORKERS + 1)));
    let workers: Vec<_> = (0..WORKERS).map(|_| thread::spawn(|| work(begin))).collect();
    begin.wait();
    let sent = sent();
    // Run the handler once as a plain function, so that it registers its points. A handler that
    // interrupts its own thread while that thread registers them would not be measured.
    handle(0);
    sent.into_iter().chain([libc::SIGALRM]).for_each(install);
    set_timer(100);
    let mut at = 0;
    while handled() < wanted {
        let (worker, signal) = (&workers[at % WORKERS], sent[at / WORKERS % SENT]);
        // SAFETY: the thread has not been joined, so its handle is valid.
        unsafe { libc::pthread_kill(worker.as_pthread_t(), signal) };
        at += 1;
        // Signals that are already pending are not queued again, so yield the CPU to the workers
        // that handle them.
        if at % (WORKERS * SENT) == 0 {
            thread::yield_now();
        }
    }
    set_timer(0);
    STOP.store(true, Relaxed);
    let calls: u64 = workers.into_iter().map(|worker| worker.join().expect("it counts")).sum();
    tell(calls);
}

fn tell(calls: u64) {
    say("calls", &[&calls]);
    HANDLED.iter().for_each(|count| say("handled", &[&count.load(Relaxed)]));
    say("regions", &[&(IN_A_HANDLER * handled())]);
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

/// Starts threads that live for a few calls, under signals that no other thread accepts. Most
/// signals come early in a thread's life, while it claims a lane; some come even earlier, while the
/// segment is created.
pub(crate) fn claims(threads: u64) {
    const AT_ONCE: u64 = 2;
    const CALLS: u64 = 4;
    let sent = sent();
    sent.into_iter().for_each(install);
    mask(libc::SIG_BLOCK, &sent);
    thread::scope(|scope| {
        scope.spawn(|| {
            let pid = std::process::id() as libc::pid_t;
            let signals = sent.into_iter().cycle().take_while(|_| !STOP.load(Relaxed));
            for (number, signal) in (0..).zip(signals) {
                // SAFETY: the signal goes to this process, whose threads block or handle it.
                unsafe { libc::kill(pid, signal) };
                // The pause varies, so that signals come at ever different moments. Without a pause
                // the threads would do nothing but handle signals.
                let (sent, pause) = (Instant::now(), Duration::from_micros(number * 37 % 101));
                while sent.elapsed() < pause {
                    std::hint::spin_loop();
                }
            }
        });
        // A handler that allocates memory ends this program, but the creation of the segment has to
        // allocate. So handlers measure nothing until the creation begins, and may allocate until
        // it has ended.
        let make = || {
            ACT.store(ACT_NOT, Relaxed);
            mask(libc::SIG_UNBLOCK, &sent);
            ACT.store(ACT_FREELY, Relaxed);
            pfp::init().ok();
            mask(libc::SIG_BLOCK, &sent);
        };
        scope.spawn(make).join().expect("it only makes it");
        ACT.store(ACT_STRICTLY, Relaxed);
        for _ in 0..threads / AT_ONCE {
            let short = |_| {
                scope.spawn(|| {
                    mask(libc::SIG_UNBLOCK, &sent);
                    (0..CALLS).for_each(|_| round());
                    mask(libc::SIG_BLOCK, &sent);
                })
            };
            let together: Vec<_> = (0..AT_ONCE).map(short).collect();
            together.into_iter().for_each(|thread| thread.join().expect("it only counts"));
        }
        STOP.store(true, Relaxed);
    });
    tell(threads / AT_ONCE * AT_ONCE * CALLS);
}

fn round() {
    {
        pfp::scope!("outer");
        pfp::scope!("inner");
    }
    HAND.begin();
    HAND.end();
    pfp::Point::numbered(9).begin_once();
    pfp::Point::numbered(9).end();
}

extern "C" fn on_signal(signal: libc::c_int) {
    match ACT.load(Relaxed) {
        ACT_NOT => {}
        ACT_FREELY => handle(signal),
        _ => forbid(|| handle(signal)),
    }
}

fn handle(signal: libc::c_int) {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    let count = HANDLED[depth].fetch_add(1, Relaxed);
    {
        pfp::scope!("handler");
        {
            pfp::scope!("handler inside");
        }
        if count.is_multiple_of(RAISES)
            && let Some(&next) = sent().iter().skip_while(|&&sent| sent != signal).nth(1)
        {
            // SAFETY: takes a plain number. The handler runs on this thread at once, unless its
            // signal is blocked.
            unsafe { libc::raise(next) };
        }
        IN_HANDLER.begin();
        IN_HANDLER.end();
    }
    DEPTH.set(depth);
}

fn install(signal: libc::c_int) {
    // SAFETY: a zeroed sigaction is valid: no flags, an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = on_signal as *const () as usize;
    // Other signals may interrupt a handler, but its own signal is blocked. Otherwise any number of
    // handlers could pile up on the stack before one begins.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: the handler uses only points and atomics.
    let result = unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    assert_eq!(result, 0, "the signal may be handled");
}

/// Blocks or unblocks signals in the calling thread.
fn mask(how: libc::c_int, signals: &[libc::c_int]) {
    // SAFETY: a zeroed signal set is valid, and the calls take numbers of signals.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&raw mut set);
        signals.iter().for_each(|&signal| _ = libc::sigaddset(&raw mut set, signal));
        libc::pthread_sigmask(how, &raw const set, ptr::null_mut());
    }
}

/// Sends SIGALRM to the process every `every_us` microseconds; 0 stops it.
fn set_timer(every_us: i64) {
    let interval = libc::timeval { tv_sec: 0, tv_usec: every_us };
    let timer = libc::itimerval { it_interval: interval, it_value: interval };
    // SAFETY: `timer` is initialized and outlives the call, and the null pointer is permitted.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
}
