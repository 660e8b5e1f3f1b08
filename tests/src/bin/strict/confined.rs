//! Uses regions of every form in a program that may make only the system calls its test lists, from
//! the start of pfp to its own end.

use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use pfp_tests::script::{pause, say};

const THREADS: usize = 8;
const POINTS: usize = 64;
/// The second half of the points is reached only by the threads that are started last.
static NAMED: [pfp::Point; 2 * POINTS] = [const { pfp::Point::new("one of many") }; 2 * POINTS];
static HAND: pfp::Point = pfp::Point::new("by hand");
static LAPS: [pfp::Point; 2] = [pfp::Point::new("lap one"), pfp::Point::new("lap two")];
static SIZED: pfp::MeteredPoint = pfp::MeteredPoint::new("sized", &["bytes"]);
const NUMBERED: u32 = 5;
/// An exit status that no other ending of the process has.
const ORDERLY: i32 = 7;

/// Number of regions begun, counted by the program.
static BEGINS: AtomicU64 = AtomicU64::new(0);
/// Rounds of each thread.
static ROUNDS: AtomicU64 = AtomicU64::new(0);
static BEFORE: Barrier = Barrier::new(THREADS + 1);

/// The seccomp actions for the calls that the test has named and for all others.
pub(crate) struct Filter {
    named: u32,
    others: u32,
}

/// Runs under a filter of system calls that is set right after the start of pfp.
///
/// `mode` is `allow` (any call that is not named kills the process), `refuse` (a named call fails
/// with EPERM), `allow-start` and `refuse-start` (like `allow` and `refuse`, but with a filter that
/// is set before the start), `allow-in-child` (a forked child measures, too) or `plain` (like
/// `allow`, without a region).
pub(crate) fn run(mode: &str, calls: &str, rounds: u64) {
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    let filter = match mode {
        "allow" | "allow-start" | "allow-in-child" | "plain" => {
            Filter { named: ALLOW, others: KILL }
        }
        "refuse" | "refuse-start" => {
            Filter { named: libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, others: ALLOW }
        }
        other => panic!("there is no filter {other:?}"),
    };
    let measures = mode != "plain";
    // The C library allocates stacks for these threads before any call is refused.
    let early = mode.ends_with("-start");
    if early {
        let stacks: Vec<_> = (0..THREADS).map(|_| start(nothing)).collect();
        stacks.into_iter().for_each(join);
        filter.set(calls);
    }
    if measures {
        pfp::init().ok();
        pfp::Point::numbered(NUMBERED).enable();
        // Some calls take longer, and are kept.
        HAND.keep_over(Duration::from_micros(1));
    }
    ROUNDS.store(if measures { rounds } else { 0 }, Relaxed);
    // These threads start before the filter, and measure their first region after it.
    let waiting: Vec<_> = (0..THREADS).map(|_| start(waiting)).collect();
    if !early {
        filter.set(calls);
    }
    BEFORE.wait();
    waiting.into_iter().for_each(join);
    // The C library reuses the stacks of the threads that have ended, so the late threads need no
    // new memory.
    let late: Vec<_> = (0..THREADS).map(|_| start(late)).collect();
    late.into_iter().for_each(join);
    if mode == "allow-in-child" {
        a_child_measures();
    }
    say("begins", &[&BEGINS.load(Relaxed)]);
    pause("done");
    // SAFETY: the other threads have ended. Rust's own exit would set up a signal stack.
    unsafe { libc::exit(ORDERLY) };
}

/// A forked child measures for the first time, and once more.
fn a_child_measures() {
    // SAFETY: the child calls no function whose lock another thread of the parent could hold.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a child can be made");
    if child == 0 {
        for _ in 0..2 {
            let _guard = NAMED[0].measure();
        }
        // SAFETY: ends the child at once, without running any clean-up.
        unsafe { libc::_exit(ORDERLY) };
    }
    let mut status = 0;
    // SAFETY: `status` outlives the call, and the process is our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), ORDERLY, "the child's end: {status:#x}");
}

extern "C" fn nothing(_: *mut libc::c_void) -> *mut libc::c_void {
    ptr::null_mut()
}

extern "C" fn waiting(_: *mut libc::c_void) -> *mut libc::c_void {
    BEFORE.wait();
    work(&NAMED[..POINTS]);
    ptr::null_mut()
}

extern "C" fn late(_: *mut libc::c_void) -> *mut libc::c_void {
    work(&NAMED);
    ptr::null_mut()
}

fn work(points: &'static [pfp::Point]) {
    let rounds = ROUNDS.load(Relaxed);
    for round in 0..rounds {
        for point in points {
            let _guard = point.measure();
        }
        HAND.begin();
        HAND.end();
        let mut lap = LAPS[0].measure();
        lap.lap(&LAPS[1]);
        drop(lap);
        pfp::Point::numbered(NUMBERED).begin_once();
        pfp::Point::numbered(NUMBERED).end();
        // A few distinct tuples, then amounts that are summed together.
        drop(SIZED.measure([round.min(20)]));
    }
    BEGINS.fetch_add(rounds * (points.len() as u64 + 5), Relaxed);
}

/// Starts a bare thread: Rust's own would set up a signal stack.
fn start(work: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void) -> libc::pthread_t {
    // SAFETY: the calls initialize both values, and the thread's function ignores its argument.
    unsafe {
        let mut how = std::mem::zeroed();
        libc::pthread_attr_init(&raw mut how);
        libc::pthread_attr_setstacksize(&raw mut how, 256 << 10);
        let mut thread = 0;
        let refused = libc::pthread_create(&raw mut thread, &raw const how, work, ptr::null_mut());
        assert_eq!(refused, 0, "a thread can be started");
        thread
    }
}

fn join(thread: libc::pthread_t) {
    // SAFETY: the thread was started and is joined once.
    unsafe { libc::pthread_join(thread, ptr::null_mut()) };
}

/// The number of the system call with this name in the manual.
fn number(name: &str) -> Option<libc::c_long> {
    const KNOWN: &[(&str, libc::c_long)] = &[
        ("brk", libc::SYS_brk),
        #[cfg(target_arch = "x86_64")]
        ("chmod", libc::SYS_chmod),
        #[cfg(not(target_arch = "x86_64"))]
        ("chmod", libc::SYS_fchmodat),
        ("clock_gettime", libc::SYS_clock_gettime),
        ("clock_nanosleep", libc::SYS_clock_nanosleep),
        ("clone", libc::SYS_clone),
        ("clone3", libc::SYS_clone3),
        ("close", libc::SYS_close),
        ("exit", libc::SYS_exit),
        ("exit_group", libc::SYS_exit_group),
        ("fallocate", libc::SYS_fallocate),
        ("fchmod", libc::SYS_fchmod),
        ("fcntl", libc::SYS_fcntl),
        ("flock", libc::SYS_flock),
        ("fstat", libc::SYS_fstat),
        ("ftruncate", libc::SYS_ftruncate),
        ("futex", libc::SYS_futex),
        ("getdents64", libc::SYS_getdents64),
        ("geteuid", libc::SYS_geteuid),
        ("getpid", libc::SYS_getpid),
        ("getrandom", libc::SYS_getrandom),
        #[cfg(target_arch = "x86_64")]
        ("getrlimit", libc::SYS_getrlimit),
        ("getrusage", libc::SYS_getrusage),
        ("gettid", libc::SYS_gettid),
        ("kill", libc::SYS_kill),
        ("lseek", libc::SYS_lseek),
        ("madvise", libc::SYS_madvise),
        #[cfg(target_arch = "x86_64")]
        ("mkdir", libc::SYS_mkdir),
        #[cfg(not(target_arch = "x86_64"))]
        ("mkdir", libc::SYS_mkdirat),
        ("mlock2", libc::SYS_mlock2),
        ("mmap", libc::SYS_mmap),
        ("mprotect", libc::SYS_mprotect),
        ("mremap", libc::SYS_mremap),
        ("munlock", libc::SYS_munlock),
        ("munmap", libc::SYS_munmap),
        ("nanosleep", libc::SYS_nanosleep),
        ("newfstatat", libc::SYS_newfstatat),
        #[cfg(target_arch = "x86_64")]
        ("open", libc::SYS_open),
        ("openat", libc::SYS_openat),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("prctl", libc::SYS_prctl),
        ("prlimit64", libc::SYS_prlimit64),
        ("pread64", libc::SYS_pread64),
        ("read", libc::SYS_read),
        #[cfg(target_arch = "x86_64")]
        ("readlink", libc::SYS_readlink),
        #[cfg(not(target_arch = "x86_64"))]
        ("readlink", libc::SYS_readlinkat),
        ("renameat2", libc::SYS_renameat2),
        ("rseq", libc::SYS_rseq),
        ("rt_sigprocmask", libc::SYS_rt_sigprocmask),
        ("rt_sigreturn", libc::SYS_rt_sigreturn),
        ("sched_getaffinity", libc::SYS_sched_getaffinity),
        ("sched_yield", libc::SYS_sched_yield),
        ("set_robust_list", libc::SYS_set_robust_list),
        ("sigaltstack", libc::SYS_sigaltstack),
        #[cfg(target_arch = "x86_64")]
        ("stat", libc::SYS_stat),
        ("statfs", libc::SYS_statfs),
        ("statx", libc::SYS_statx),
        ("sysinfo", libc::SYS_sysinfo),
        ("tgkill", libc::SYS_tgkill),
        ("uname", libc::SYS_uname),
        ("wait4", libc::SYS_wait4),
        #[cfg(target_arch = "x86_64")]
        ("unlink", libc::SYS_unlink),
        #[cfg(not(target_arch = "x86_64"))]
        ("unlink", libc::SYS_unlinkat),
        ("unlinkat", libc::SYS_unlinkat),
        ("write", libc::SYS_write),
    ];
    KNOWN.iter().find(|(known, _)| *known == name).map(|&(_, number)| number)
}

impl Filter {
    /// Sets the filter for all threads. `calls` has names of calls, separated by commas;
    /// `NAME=NUMBER` means only calls whose third argument is NUMBER.
    fn set(&self, calls: &str) {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const IS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const ANSWER: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        /// Offset in seccomp_data of the lower half of the third argument, on a little-endian
        /// machine.
        const THIRD: u32 = 32;
        let step = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
        let mut filter = Vec::new();
        for call in calls.split(',').filter(|call| !call.is_empty()) {
            let (name, argument) = call.split_once('=').map_or((call, None), |(name, number)| {
                (name, Some(number.parse::<u32>().expect("a number")))
            });
            let number = number(name).unwrap_or_else(|| panic!("{name} is unknown here")) as u32;
            filter.push(step(LOAD, 0, 0, 0));
            match argument {
                None => filter.push(step(IS, number, 0, 1)),
                Some(argument) => {
                    filter.push(step(IS, number, 0, 3));
                    filter.push(step(LOAD, THIRD, 0, 0));
                    filter.push(step(IS, argument, 0, 1));
                }
            }
            filter.push(step(ANSWER, self.named, 0, 0));
        }
        filter.push(step(ANSWER, self.others, 0, 0));
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program is valid for reads during the call, and the kernel copies it.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0, "no new rights");
            let (mode, all) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
            let set = libc::syscall(libc::SYS_seccomp, mode, all, &raw const program);
            assert_eq!(set, 0, "a filter may be set");
        }
    }
}
