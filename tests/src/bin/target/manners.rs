//! A host that checks how a library behaves inside it.

use std::collections::BTreeSet;
use std::mem;
use std::process::ExitCode;
use std::ptr;
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::Duration;

use pfp_tests::os;
use pfp_tests::script::{pause, say};

static POINTS: [pfp::Point; 200] = [const { pfp::Point::new("one of many") }; 200];

/// Works on several threads, prints a result that does not depend on measuring, and exits with 0.
pub(crate) fn host() {
    let sums: Vec<u64> = thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|seed| scope.spawn(move || work(seed))).collect();
        threads.into_iter().map(|thread| thread.join().expect("the work is sound")).collect()
    });
    println!("{sums:?}");
}

/// Prints the result of `init`.
pub(crate) fn init() {
    match pfp::init() {
        Ok(()) => println!("ok"),
        Err(error) => println!("{error:?}\n{error}"),
    }
}

/// Runs [`host`] with only `left` free descriptors beside the standard ones.
pub(crate) fn host_short_of_descriptors(left: u64) {
    let limit = libc::rlimit { rlim_cur: 3 + left, rlim_max: 3 + left };
    // SAFETY: `limit` is initialized and outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(result, 0, "a limit may be lowered");
    host();
}

fn work(seed: u64) -> u64 {
    let mut sum = seed;
    for round in 0..2_000u64 {
        let _guard = POINTS[(round % 200) as usize].measure();
        pfp::scope!("inside");
        sum = (sum ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
    }
    sum
}

static ACCOUNTS: Mutex<()> = Mutex::new(());
static JOURNAL: Mutex<()> = Mutex::new(());

/// Two threads that wait for each other's mutex for ever.
pub(crate) fn deadlocked() {
    let both = Barrier::new(2);
    let lock = |first: &'static Mutex<()>, second: &'static Mutex<()>| {
        let _first = first.lock();
        both.wait();
        let _second = second.lock();
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            pfp::scope!("transfer");
            lock(&ACCOUNTS, &JOURNAL);
        });
        scope.spawn(|| {
            pfp::scope!("audit");
            lock(&JOURNAL, &ACCOUNTS);
        });
        pause("started");
        std::process::exit(0);
    });
}

/// A host that has locked all its memory, present and future. Prints a line if the system does not
/// permit the locking.
pub(crate) fn locked() {
    // SAFETY: locks only pages of this process.
    if unsafe { libc::mlockall(libc::MCL_CURRENT | libc::MCL_FUTURE) } != 0 {
        say("refused", &[&std::io::Error::last_os_error()]);
    } else {
        host();
    }
    pause("done");
}

/// Compares the state of the process before and after it used the probe.
pub(crate) fn run() -> ExitCode {
    let before = HostState::now();
    host();
    pfp::calibrate(100);
    let _ = pfp::Point::numbered(0).stats();
    // The kernel still lists a thread for a moment after it was joined.
    let mut looks = (0..1000).map(|_| {
        thread::sleep(Duration::from_millis(1));
        HostState::now()
    });
    let after = match looks.find(|after| *after == before) {
        Some(_) => return ExitCode::SUCCESS,
        None => HostState::now(),
    };
    eprintln!("before: {before:#?}\nafter: {after:#?}");
    ExitCode::FAILURE
}

/// The state of the host that a library must not change.
#[derive(Debug, PartialEq)]
struct HostState {
    threads: usize,
    descriptors: Vec<String>,
    handlers: BTreeSet<(i32, usize)>,
    blocked: Vec<i32>,
}

impl HostState {
    fn now() -> Self {
        let pid = std::process::id();
        let signals = 1..libc::SIGRTMAX();
        Self {
            threads: os::thread_count(pid),
            descriptors: os::descriptors(pid),
            handlers: signals
                .clone()
                .filter_map(|signal| Some((signal, handler(signal)?)))
                .collect(),
            blocked: signals.filter(|&signal| is_blocked(signal)).collect(),
        }
    }
}

fn handler(signal: i32) -> Option<usize> {
    // SAFETY: a zeroed sigaction is valid.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: a null pointer changes nothing, and the kernel fills `action`.
    let result = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
    (result == 0).then_some(action.sa_sigaction)
}

fn is_blocked(signal: i32) -> bool {
    // SAFETY: a zeroed signal set is valid; a null pointer changes nothing, and the kernel fills
    // `set`.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), &raw mut set);
        libc::sigismember(&raw const set, signal) == 1
    }
}

/// Measures, and prints whether it has other rights than the process that started it.
pub(crate) fn trusted() {
    for _ in 0..10 {
        pfp::scope!("work");
    }
    {
        pfp::scope!("asked for");
    }
    // Loads the driver or its stand-in.
    let _ = pfp_timing::Gpu::find();
    let is_traced = pfp_tracing::Options::default().subscriber().is_ok();
    say("traced", &[&u64::from(is_traced)]);
    // SAFETY: takes a plain number.
    say("secure", &[&unsafe { libc::getauxval(libc::AT_SECURE) }]);
    pause("done");
}
