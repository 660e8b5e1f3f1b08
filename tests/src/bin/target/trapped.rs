//! A thread with a broken time-stamp counter: each reading traps, and a signal handler returns the
//! value that a bad counter would.

use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use pfp_tests::os;
use pfp_tests::script::{pause, say};

/// The simulated counter starts at the real counter's value and advances at the same rate, since
/// the C library computes clocks from the counter.
static FROM_TICKS: AtomicU64 = AtomicU64::new(0);
static FROM_NS: AtomicU64 = AtomicU64::new(0);
/// Ticks per thousand seconds.
static RATE: AtomicU64 = AtomicU64::new(0);

/// Roughly one second, in ticks.
const SECOND: i64 = 2_500_000_000;
const HOUR: i64 = 3_600 * SECOND;

/// The ways in which the counter goes wrong.
const MODES: [&str; 6] = ["steady", "backwards", "jumps", "frozen", "suspended", "everything"];
const STEADY: u8 = 0;
const BACKWARDS: u8 = 1;
const JUMPS: u8 = 2;
const FROZEN: u8 = 3;
const SUSPENDED: u8 = 4;
const EVERYTHING: u8 = 5;

static MODE: AtomicU8 = AtomicU8::new(STEADY);
/// The counter's lead over the correct value, in ticks.
static AHEAD: AtomicI64 = AtomicI64::new(0);
/// The sum of all jumps ahead, and the number of errors so far.
static AHEAD_IN_ALL: AtomicU64 = AtomicU64::new(0);
static WRONG: AtomicU64 = AtomicU64::new(0);
static READ: AtomicU64 = AtomicU64::new(0);
/// The number of further readings for which the counter is frozen, and the frozen value.
static STILL_FOR: AtomicU64 = AtomicU64::new(0);
static STILL_AT: AtomicU64 = AtomicU64::new(0);
static RANDOM: AtomicU64 = AtomicU64::new(0x9e37_79b9_7f4a_7c15);

fn random(below: u64) -> u64 {
    let mut x = RANDOM.load(Relaxed);
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    RANDOM.store(x, Relaxed);
    x % below
}

fn shift(by: i64) {
    AHEAD.fetch_add(by, Relaxed);
    AHEAD_IN_ALL.fetch_add(by.max(0) as u64, Relaxed);
    WRONG.fetch_add(1, Relaxed);
}

/// The value of the next reading.
fn reading() -> u64 {
    let passed = system_ns() - FROM_NS.load(Relaxed);
    READ.fetch_add(1, Relaxed);
    let mode = match MODE.load(Relaxed) {
        EVERYTHING => 1 + random(4) as u8,
        mode => mode,
    };
    match mode {
        // The counter of a core is slightly behind the others.
        BACKWARDS if random(50) == 0 => shift(-(random(100_000) as i64)),
        // The counter of a core was set to another value.
        BACKWARDS if random(500) == 0 => shift(-(random(3_600) as i64) * SECOND),
        JUMPS if random(500) == 0 => shift(random(12) as i64 * HOUR),
        // While the machine is suspended, the counter may continue, or it may start again.
        SUSPENDED if random(2_000) == 0 && AHEAD.load(Relaxed) <= 0 => shift(8 * HOUR),
        SUSPENDED if random(2_000) == 0 => shift(-8 * HOUR),
        _ => {}
    }
    let passed = u128::from(passed) * u128::from(RATE.load(Relaxed)) / 1_000_000_000_000;
    let now = FROM_TICKS.load(Relaxed).wrapping_add(passed as u64);
    let now = now.wrapping_add_signed(AHEAD.load(Relaxed));
    let still = STILL_FOR.load(Relaxed);
    if still > 0 {
        STILL_FOR.store(still - 1, Relaxed);
        return STILL_AT.load(Relaxed);
    }
    if mode == FROZEN && random(200) == 0 {
        WRONG.fetch_add(1, Relaxed);
        STILL_AT.store(now, Relaxed);
        // The counter stays frozen for much longer than the millisecond after which pfp detects
        // that.
        STILL_FOR.store(random(3_000), Relaxed);
    }
    now
}

/// Emulates a trapped RDTSC or RDTSCP, and skips the instruction.
extern "C" fn answer(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes the interrupted thread's context to the handler.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = registers[libc::REG_RIP as usize] as *const [u8; 3];
    // SAFETY: the processor has just executed these bytes.
    let length = match unsafe { *at } {
        [0x0f, 0x31, _] => 2,
        [0x0f, 0x01, 0xf9] => 3,
        _ => {
            // A fault of another kind repeats after the handler, and ends the process.
            // SAFETY: sets the default action.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            return;
        }
    };
    let ticks = reading();
    registers[libc::REG_RAX as usize] = i64::from(ticks as u32);
    registers[libc::REG_RDX as usize] = (ticks >> 32) as i64;
    if length == 3 {
        registers[libc::REG_RCX as usize] = 0;
    }
    registers[libc::REG_RIP as usize] += length;
}

const PR_SET_TSC: libc::c_int = 26;
const PR_TSC_ENABLE: libc::c_ulong = 1;
const PR_TSC_SIGSEGV: libc::c_ulong = 2;

fn trap(how: libc::c_ulong) {
    // SAFETY: the call changes how RDTSC behaves on this thread, and its handler is installed.
    let result = unsafe { libc::prctl(PR_SET_TSC, how, 0, 0, 0) };
    assert_eq!(result, 0, "the counter can be trapped");
}

fn install() {
    // SAFETY: a zeroed sigaction is valid, and the handler uses only atomics and the context.
    unsafe {
        let mut action: libc::sigaction = mem::zeroed();
        action.sa_sigaction = answer as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
    }
}

static OUTER: pfp::Point = pfp::Point::new("outer");
static INNER: pfp::Point = pfp::Point::new("inner");
static BY_HAND: pfp::Point = pfp::Point::new("by hand");

/// Measures `calls` times with a counter that goes wrong in this mode: from the start, or only
/// after the probe has accepted the counter.
pub(crate) fn run(mode: &str, calls: u64, from_the_start: bool) {
    install();
    let mode = MODES.iter().position(|&known| known == mode).expect("a known way to go wrong");
    let rate = real_rate();
    // The counter is simulated from here on, so that all code sees one counter.
    FROM_NS.store(system_ns(), Relaxed);
    FROM_TICKS.store(real_ticks(), Relaxed);
    RATE.store((rate * 1e3) as u64, Relaxed);
    // pfp checks only once whether the counter may be read: here, before readings trap.
    let _ = pfp::reading::wall_ns();
    trap(PR_TSC_SIGSEGV);
    if from_the_start {
        MODE.store(mode as u8, Relaxed);
        if mode == usize::from(FROZEN) {
            // The counter stays frozen.
            STILL_AT.store(FROM_TICKS.load(Relaxed), Relaxed);
            STILL_FOR.store(u64::MAX, Relaxed);
        }
    }
    pfp::init().ok();
    MODE.store(mode as u8, Relaxed);
    let (cpu, wall) = (os::thread_cpu(), system_ns());
    for round in 0..calls / 3 {
        let _outer = OUTER.measure();
        {
            let _inner = INNER.measure();
            std::hint::black_box(round);
        }
        BY_HAND.begin();
        if round % 1_000 == 7 {
            thread::sleep(Duration::from_micros(50));
        }
        BY_HAND.end();
    }
    let cpu = os::thread_cpu() - cpu;
    let wall = system_ns() - wall;
    trap(PR_TSC_ENABLE);
    let ahead_ns = AHEAD_IN_ALL.load(Relaxed) as f64 / rate * 1e9;
    say("figures", &[&(calls / 3), &cpu.as_nanos(), &wall, &ahead_ns]);
    say("readings", &[&READ.load(Relaxed), &WRONG.load(Relaxed)]);
    pause("done");
}

fn real_ticks() -> u64 {
    // SAFETY: every x86-64 processor has the counter, and Linux lets programs read it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Ticks per second of the machine's own counter.
fn real_rate() -> f64 {
    let (ticks, ns) = (real_ticks(), system_ns());
    thread::sleep(Duration::from_millis(20));
    (real_ticks() - ticks) as f64 * 1e9 / (system_ns() - ns) as f64
}

/// A system call, since the C library would compute the time from the counter.
fn system_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writes.
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
