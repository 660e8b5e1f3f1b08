//! Regions of every form on a thread that may ask the kernel for two things only: its
//! own CPU time, and whether it is on a stack for signal handlers.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use pfp_tests::os;
use pfp_tests::script::{pause, say};
use pfp_tests::strict::forbid;

const NUMBERED: u32 = 5;
static HAND: pfp::Point = pfp::Point::new("by hand");
static OFF: pfp::Point = pfp::Point::new("off");

/// Regions that one round measures.
const IN_A_ROUND: u64 = 6;
/// Durations whose part of a histogram is there before anything is forbidden: up to
/// so many doublings of a tick, a tenth of a second.
const OCTAVES: u32 = 28;

/// What the thread is at.
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
    // The second time, what reading takes is there.
    let _ = os::resident(pid);
    let before = os::resident(pid);
    STEP.store(GO, SeqCst);
    reach(DONE);
    let after = os::resident(pid);
    say("rounds", &[&rounds]);
    say("resident", &[&before, &after]);
    pause("done");
    // The thread may not even end by itself.
    std::process::exit(0);
}

fn reach(step: u64) {
    while STEP.load(SeqCst) != step {
        thread::sleep(Duration::from_millis(1));
    }
}

fn confined(rounds: u64) -> ! {
    // The whole ring, and every part of the histograms.
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

/// Shows what becomes of a thread that asks for anything else.
pub(crate) fn asks_the_kernel() {
    allow_one_clock();
    let _ = os::thread_cpu();
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_getppid) };
}

/// From here on the calling thread may read its CPU time and ask for its stack; the process is
/// killed for any other system call of this thread.
fn allow_one_clock() {
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const CLOCK: u32 = libc::SYS_clock_gettime as u32;
    const STACK: u32 = libc::SYS_sigaltstack as u32;
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    // Of a seccomp_data: the number of the call, and the lower half of its first
    // argument on a machine whose lower half comes first.
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
    // SAFETY: the program is valid for reads, and the kernel copies it.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "no new rights");
        let filter = libc::SECCOMP_MODE_FILTER;
        let set = libc::prctl(libc::PR_SET_SECCOMP, filter, &raw const program, 0, 0);
        assert_eq!(set, 0, "a filter may be set");
    }
}
