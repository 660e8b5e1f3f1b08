//! Regions of every form on a thread that may ask the kernel for two things only: its own CPU time,
//! and whether it is on a stack for signal handlers.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pfp_tests::os;
use pfp_tests::script::{pause, say};
use pfp_tests::strict::forbid;

const NUMBERED: u32 = 5;
static HAND: pfp::Point = pfp::Point::new("by hand");
static OFF: pfp::Point = pfp::Point::new("off");

/// Number of regions that one round measures.
const IN_A_ROUND: u64 = 6;
/// Number of octaves of durations that are measured before system calls are forbidden, so that
/// their histogram parts exist. The octaves reach a tenth of a second.
const OCTAVES: u32 = 28;

/// The step that was reached last. The confined thread stores [`WARM`] and [`DONE`], the main
/// thread stores [`GO`].
static STEP: AtomicU64 = AtomicU64::new(0);
const WARM: u64 = 1;
const GO: u64 = 2;
const DONE: u64 = 3;

pub(crate) fn run(pairs: u64) {
    pfp::init().ok();
    pfp::Point::numbered(NUMBERED).enable();
    pfp::Point::numbered(NUMBERED).set_name("numbered");
    OFF.disable();
    let rounds = pairs.div_ceil(IN_A_ROUND);
    thread::spawn(move || confined(rounds));
    reach(WARM);
    let pid = std::process::id();
    // The first reading allocates memory, so that the second one needs no new memory.
    let _ = os::resident(pid);
    let before = os::resident(pid);
    STEP.store(GO, SeqCst);
    reach(DONE);
    let after = os::resident(pid);
    say("rounds", &[&rounds]);
    say("resident", &[&before, &after]);
    pause("done");
    // This ends the process while the thread still runs: the end of a thread makes system calls.
    std::process::exit(0);
}

fn reach(step: u64) {
    while STEP.load(SeqCst) != step {
        thread::sleep(Duration::from_millis(1));
    }
}

fn confined(rounds: u64) -> ! {
    // Touches the whole ring, and every part of the histograms.
    pfp::register_thread("confined");
    round(|| {});
    for octave in 0..=OCTAVES {
        let ticks = (1 << octave) + (1 << octave) / 4;
        round(|| spin(ticks));
    }
    forbid(|| {
        allow_one_clock();
        STEP.store(WARM, SeqCst);
        while STEP.load(SeqCst) != GO {
            std::hint::spin_loop();
        }
        (0..rounds).for_each(|_| round(|| {}));
        STEP.store(DONE, SeqCst);
    });
    loop {
        std::hint::spin_loop();
    }
}

#[inline(always)]
fn round(work: impl Fn()) {
    {
        pfp::scope!("outer");
        work();
        pfp::scope!("inner");
        work();
    }
    {
        pfp::laps!("lap one");
        work();
        pfp::lap!("lap two");
        work();
    }
    HAND.begin();
    work();
    HAND.end();
    pfp::Point::numbered(NUMBERED).begin_once();
    work();
    pfp::Point::numbered(NUMBERED).end();
    let _off = OFF.measure();
}

fn spin(ticks: u64) {
    let now = || pfp::on_cpu_ticks().expect("the thread has measured");
    let start = now();
    while now().wrapping_sub(start) < ticks {}
}

/// Shows that any other system call of the thread kills the process.
pub(crate) fn asks_the_kernel() {
    allow_one_clock();
    let _ = os::thread_cpu();
    // SAFETY: the call takes no arguments.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// Permits the calling thread only to read its CPU time and to query its signal stack. From here
/// on, any other system call of this thread kills the process.
fn allow_one_clock() {
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const CLOCK: u32 = libc::SYS_clock_gettime as u32;
    const STACK: u32 = libc::SYS_sigaltstack as u32;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Offsets in seccomp_data of the call's number and of the lower half of its first argument, on
    // a little-endian machine.
    let filter = [
        step(LOAD, 0, 0, 0),
        step(IS, STACK, 3, 0),
        step(IS, CLOCK, 0, 3),
        step(LOAD, 16, 0, 0),
        step(IS, libc::CLOCK_THREAD_CPUTIME_ID as u32, 0, 1),
        step(ANSWER, libc::SECCOMP_RET_ALLOW, 0, 0),
        step(ANSWER, KILL, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: the program is valid for reads during the call, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "no new rights");
        let filter = libc::SECCOMP_MODE_FILTER;
        let set = libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program, 0, 0);
        assert_eq!(set, 0, "a filter may be set");
    }
}
