//! A process that forks while its threads measure.

use std::ffi::CString;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Command;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use pfp_tests::os;
use pfp_tests::script::{pause, say};

/// Number of calls in each child.
pub(crate) const IN_CHILD: u64 = 1000;
/// Number of threads that measure while the process forks.
const WORKERS: usize = 8;

static STOP: AtomicBool = AtomicBool::new(false);
static CALL: pfp::Point = pfp::Point::new("call");
static ACROSS: pfp::Point = pfp::Point::new("across the fork by hand");

fn call() {
    drop(CALL.measure());
}

/// The ways to create a child, which are taken in turn.
#[derive(Clone, Copy)]
enum ChildKind {
    Fork,
    /// A fork that bypasses the C library.
    Clone,
    /// A grandchild, whose parent exits at once.
    Twice,
    /// The child shares the parent's memory until it calls exec, and measures a call in that
    /// memory.
    Vfork,
    /// `posix_spawn` of the C library.
    Spawn,
}

/// Forks `forks` times, in all ways in turn, while threads measure. The children measure or not,
/// and end in all ways in turn.
pub(crate) fn run(forks: u64) {
    pfp::init().ok();
    call();
    // This process reaps orphaned grandchildren, so none is left over.
    // SAFETY: takes plain numbers.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            thread::spawn(|| {
                // The threads run at low priority; otherwise the children would starve and the test
                // would take hours.
                // SAFETY: takes plain numbers.
                unsafe { libc::setpriority(libc::PRIO_PROCESS, os::tid(), 19) };
                let mut calls = 0;
                while !STOP.load(Relaxed) {
                    call();
                    calls += 1;
                }
                calls
            })
        })
        .collect();
    let (mut bad, mut shared) = (0u64, 0);
    for number in 0..forks {
        let ways = [
            ChildKind::Fork,
            ChildKind::Clone,
            ChildKind::Twice,
            ChildKind::Vfork,
            ChildKind::Spawn,
        ];
        let way = ways[(number % 5) as usize];
        let child = {
            pfp::scope!("across the fork");
            ACROSS.begin();
            let child = match way {
                ChildKind::Fork => fork(),
                ChildKind::Clone => raw_clone(),
                ChildKind::Twice => fork_twice(),
                ChildKind::Vfork => become_program(),
                ChildKind::Spawn => spawn(),
            };
            ACROSS.end();
            child
        };
        if child == 0 {
            in_child(number / 5);
        }
        // A child of `vfork` shares this memory, so the call that it measures counts in this
        // process.
        shared += u64::from(matches!(way, ChildKind::Vfork));
        bad += wait_for_all();
        if number % 100 == 0 {
            say("at", &[&number]);
        }
    }
    STOP.store(true, Relaxed);
    let calls: u64 = workers.into_iter().map(|worker| worker.join().expect("it counts")).sum();
    say("bad", &[&bad]);
    say("calls", &[&(calls + shared + 1)]);
    pause("done");
}

/// Forks children that are not permitted to create a file as large as their parent's segment, so
/// their segments have room for fewer points than the program has. The parent has left regions of
/// the last point open in several ways. Each child ends these regions, and begins new ones.
pub(crate) fn with_less_room() {
    const POINTS: usize = 5000;
    let new = || -> &'static pfp::Point {
        let point: &'static pfp::Point = Box::leak(Box::new(pfp::Point::new("one of many")));
        drop(point.measure());
        point
    };
    call();
    let last = (1..POINTS).fold(new(), |_, _| new());
    let mut bad = 0;
    for bytes in [1 << 20, 2 << 20] {
        let half = || Box::pin(last.measure_async(SecondPoll(0)));
        let (mut polled, mut half_polled) = (half(), half());
        let context = &mut Context::from_waker(Waker::noop());
        assert!(polled.as_mut().poll(context).is_pending());
        assert!(half_polled.as_mut().poll(context).is_pending());
        let guard = last.measure();
        last.begin();
        if fork() == 0 {
            limit_files(bytes);
            call();
            assert!(polled.as_mut().poll(context).is_ready());
            drop(half_polled);
            last.end_latched();
            last.end();
            drop(guard);
            drop(last.measure());
            last.begin_once();
            last.end();
            pfp::laps!();
            pfp::lap!("a lap");
            last.reset();
            last.enable();
            last.set_name("renamed");
            assert!(last.stats().is_none(), "there is no place for it");
            let calls = CALL.stats().expect("it has measured").count;
            quit(i32::from(calls != 1));
        }
        last.end();
        bad += wait_for_all();
    }
    say("bad", &[&bad]);
}

/// Ready when it is polled for the second time.
struct SecondPoll(u32);

impl Future for SecondPoll {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        self.0 += 1;
        if self.0 > 1 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Limits the size of the files that this process writes.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: `limit` is initialized and outlives the call; the rest are plain numbers.
    unsafe {
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Forks `forks` times while another thread calibrates all the time: each child can calibrate.
pub(crate) fn while_calibrating(forks: u64) {
    pfp::init().ok();
    let calibrating = thread::spawn(|| {
        while !STOP.load(Relaxed) {
            let _ = pfp::calibrate(64);
        }
    });
    let mut bad = 0;
    for _ in 0..forks {
        if fork() == 0 {
            call();
            quit(i32::from(pfp::calibrate(64).is_none()));
        }
        bad += wait_for_all();
    }
    STOP.store(true, Relaxed);
    calibrating.join().expect("it does not panic");
    say("bad", &[&bad]);
}

/// Forks `forks` times while a thread changes the environment, first before any region and then
/// after one. Each child measures, whichever thread holds Rust's lock of the environment at the
/// fork.
pub(crate) fn beside_the_environment(forks: u64) {
    const NAME: &str = "NOTHING_OF_PFPS";
    static CHANGES: AtomicU64 = AtomicU64::new(0);
    let change = || {
        let number = CHANGES.fetch_add(1, Relaxed);
        // SAFETY: only the children read the environment, and each reads its own copy, which does
        // not change.
        unsafe { std::env::set_var(NAME, format!("{:02}", number % 100)) };
    };
    change();
    let changing = thread::spawn(move || {
        while !STOP.load(Relaxed) {
            change();
        }
    });
    while CHANGES.load(Relaxed) < 2 {
        thread::yield_now();
    }
    let mut bad = 0;
    for number in 0..2 * forks {
        if number == forks {
            call();
        }
        if fork() == 0 {
            // SAFETY: takes a plain number.
            unsafe { libc::alarm(20) };
            measure_and_check();
            quit(0);
        }
        bad += wait_for_all();
    }
    STOP.store(true, Relaxed);
    changing.join().expect("it does not panic");
    say("bad", &[&bad]);
    pause("done");
}

/// Waits for each child and grandchild. Returns how many ended otherwise than with status 0 or by
/// SIGKILL.
fn wait_for_all() -> u64 {
    let mut bad = 0;
    loop {
        let mut status = 0;
        // SAFETY: `status` outlives the call.
        let child = unsafe { libc::waitpid(-1, &raw mut status, 0) };
        if child < 0 {
            return bad;
        }
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        let ended = libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0;
        bad += u64::from(!killed && !ended);
    }
}

/// The child measures or not, and ends in one of several ways.
fn in_child(number: u64) -> ! {
    if !number.is_multiple_of(3) {
        measure_and_check();
    }
    match number % 4 {
        // An orderly exit, as far as a child of a raw clone can make one.
        0 | 2 => std::process::exit(0),
        1 => quit(0),
        // SAFETY: ends the process at once, without running any clean-up.
        _ => unsafe {
            libc::raise(libc::SIGKILL);
            unreachable!("nobody survives that")
        },
    }
}

/// Measures, and ends the process with an error if it sees more calls than its own.
fn measure_and_check() {
    (0..IN_CHILD).for_each(|_| call());
    if CALL.stats().is_some_and(|stats| stats.count != IN_CHILD) {
        quit(3);
    }
}

/// The program that a child executes.
pub(crate) fn another_program() {
    measure_and_check();
}

/// Forks children of each kind, which measure and then stay alive.
pub(crate) fn and_live() {
    pfp::init().ok();
    call();
    // This child shares this process's memory, so the memory stays mapped while the child lives.
    let (mut read, write) = std::io::pipe().expect("there are descriptors left");
    thread::spawn(move || in_this_memory(stay, write.as_raw_fd() as usize));
    let mut id = [0; 4];
    read.read_exact(&mut id).expect("the child says who it is");
    say("inside", &[&u32::from_ne_bytes(id)]);
    for (who, child) in [("child", fork as fn() -> libc::pid_t), ("clone", raw_clone)] {
        let child = child();
        if child == 0 {
            (0..IN_CHILD).for_each(|_| call());
            // Longer than any test runs; the test kills the process.
            thread::sleep(Duration::from_secs(600));
            quit(0);
        }
        say(who, &[&child]);
    }
    pause("done");
}

/// Writes its id to a descriptor, and then waits to be killed.
extern "C" fn stay(descriptor: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the calls read only `id`, a local of this function, and take plain numbers.
    unsafe {
        let id = libc::getpid().to_ne_bytes();
        libc::write(descriptor.addr() as libc::c_int, id.as_ptr().cast(), id.len());
        loop {
            libc::pause();
        }
    }
}

/// Forks children in which several threads reach new points at once, while the parent's points are
/// registered again. Prints how many children miscounted.
pub(crate) fn newcomers(children: u64) {
    const TUPLES: u64 = 8;
    static METERED: pfp::MeteredPoint = pfp::MeteredPoint::new("metered", &["items"]);
    fn point(name: &'static str) -> &'static pfp::Point {
        Box::leak(Box::new(pfp::Point::at(name, "", 0)))
    }
    let vary = || (1..=TUPLES).for_each(|items| drop(METERED.measure([items])));
    (0..2_000).for_each(|_| drop(point("parent's").measure()));
    vary();
    let mut bad = 0;
    for _ in 0..children {
        if fork() == 0 {
            let points: [_; 4] = std::array::from_fn(|_| point("child's"));
            let together = Barrier::new(points.len());
            thread::scope(|scope| {
                for point in points {
                    scope.spawn(|| {
                        together.wait();
                        drop(point.measure());
                    });
                }
            });
            vary();
            let counted = points.map(|point| point.stats().map_or(0, |stats| stats.count));
            let items = METERED.amounts()[0].1;
            // A region that begins while another thread creates the segment is missed.
            let right = counted.iter().all(|&count| count <= 1)
                && items == u128::from(TUPLES * (TUPLES + 1) / 2);
            quit(libc::c_int::from(!right));
        }
        bad += wait_for_all();
    }
    say("bad", &[&bad]);
    pause("done");
}

/// Forks a child of a process with many points. The child prints how many signals of a timer it has
/// handled in its first region, which registers all points again.
pub(crate) fn signals_while_points_are_entered(points: u64) {
    static HANDLED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn handle(_: libc::c_int) {
        HANDLED.fetch_add(1, Relaxed);
    }
    const EVERY: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 50 };
    const NEVER: libc::timeval = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let set = |time| {
        let timer = libc::itimerval { it_interval: time, it_value: time };
        // SAFETY: `timer` is initialized and outlives the call; a null pointer skips the old
        // setting.
        let result =
            unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
        assert_eq!(result, 0);
    };
    let all: Vec<&pfp::Point> =
        (0..points).map(|_| &*Box::leak(Box::new(pfp::Point::at("parent's", "", 0)))).collect();
    all.iter().for_each(|point| drop(point.measure()));
    // SAFETY: the handler only increments an atomic.
    unsafe { libc::signal(libc::SIGALRM, handle as *const () as libc::sighandler_t) };
    if fork() == 0 {
        set(EVERY);
        drop(all[0].measure());
        set(NEVER);
        say("child", &[&std::process::id()]);
        say("handled", &[&HANDLED.load(Relaxed)]);
        pause("done");
        quit(0);
    }
    assert_eq!(wait_for_all(), 0);
}

fn quit(code: libc::c_int) -> ! {
    // SAFETY: ends the process at once, without running exit handlers.
    unsafe { libc::_exit(code) }
}

fn fork() -> libc::pid_t {
    // SAFETY: the other threads only measure, so they hold no lock that the child acquires.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be made");
    child
}

fn fork_twice() -> libc::pid_t {
    let child = fork();
    if child == 0 && fork() != 0 {
        quit(0);
    }
    child
}

/// Forks without the handlers that a library may have installed.
fn raw_clone() -> libc::pid_t {
    // SAFETY: the other threads only measure, so they hold no lock that the child acquires. Without
    // a stack argument the child continues on a copy of this stack.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    assert!(child >= 0, "a process can be made");
    child as libc::pid_t
}

fn spawn() -> libc::pid_t {
    let program = std::env::current_exe().expect("a program knows its path");
    let child = Command::new(program).arg("another-program").spawn();
    child.expect("a process can be made").id() as libc::pid_t
}

/// Creates a child that measures a call in this memory and then executes another program.
fn become_program() -> libc::pid_t {
    let program = std::env::current_exe().expect("a program knows its path");
    let program = CString::new(program.into_os_string().into_vec()).expect("no zero in it");
    in_this_memory(call_and_become, program.as_ptr().expose_provenance())
}

extern "C" fn call_and_become(program: *mut libc::c_void) -> libc::c_int {
    call();
    let program = program.cast_const().cast();
    let arguments = [program, c"another-program".as_ptr(), ptr::null()];
    // SAFETY: the path and the arguments are NUL-terminated, and outlive the call.
    unsafe { libc::execv(program, arguments.as_ptr()) };
    3
}

/// A child that bypassed the C library finishes frames. The frames' point is off and was never
/// reset, so its control word is 0.
pub(crate) fn frames_in_a_copy() {
    (0..3).for_each(|_| pfp::finish_frame!());
    (0..50).for_each(|_| call());
    let frame = pfp::points().find(|point| point.name() == "frame").expect("it was met");
    frame.disable();
    pause("off");
    if raw_clone() == 0 {
        (0..3).for_each(|_| pfp::finish_frame!());
        quit(0);
    }
    say("bad", &[&wait_for_all()]);
    pause("done");
}

/// Prints the result of `init` in a child that shares this memory, and then its result here.
pub(crate) fn init_in_a_child() {
    extern "C" fn child(_: *mut libc::c_void) -> libc::c_int {
        crate::manners::init();
        0
    }
    in_this_memory(child, 0);
    crate::manners::init();
}

/// Runs `work` in a child that shares this memory. This thread waits until the child has called
/// exec or has ended.
fn in_this_memory(
    work: extern "C" fn(*mut libc::c_void) -> libc::c_int,
    argument: usize,
) -> libc::pid_t {
    let mut stack = vec![0u128; 1 << 12];
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = ptr::with_exposed_provenance_mut(argument);
    // SAFETY: only the child uses the stack, and this thread keeps it alive by waiting for the
    // child.
    let child = unsafe { libc::clone(work, stack.as_mut_ptr_range().end.cast(), flags, argument) };
    assert!(child >= 0, "a process can be made");
    child
}

/// Forks a child while another thread measures. The child measures, waits for a byte from its
/// parent, and then ends as `how` says. The parent reaps the child at once, unless the child calls
/// exec.
pub(crate) fn child_ends(how: &str) {
    pfp::init().ok();
    call();
    thread::spawn(|| {
        while !STOP.load(Relaxed) {
            call();
            thread::sleep(Duration::from_millis(1));
        }
    });
    let (mut reader, mut writer) = std::io::pipe().expect("there are descriptors left");
    let child = fork();
    if child == 0 {
        // SAFETY: takes plain numbers.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
        (0..IN_CHILD).for_each(|_| call());
        let _ = reader.read(&mut [0]);
        match how {
            "exit" => quit(0),
            "status" => quit(3),
            "abort" => std::process::abort(),
            "exec" => {
                let error = Command::new("sleep").arg("600").exec();
                panic!("sleep does not start: {error}");
            }
            signal => {
                let signal = match signal {
                    "int" => libc::SIGINT,
                    "term" => libc::SIGTERM,
                    _ => libc::SIGKILL,
                };
                // SAFETY: takes plain numbers; the signal ends this process.
                unsafe { libc::kill(libc::getpid(), signal) };
                thread::sleep(Duration::from_secs(600));
            }
        }
    }
    say("child", &[&child]);
    pause("ready");
    writer.write_all(&[0]).expect("the child listens");
    if how != "exec" {
        // SAFETY: the process is our child, and a null pointer skips its status.
        unsafe { libc::waitpid(child, ptr::null_mut(), 0) };
    }
    pause("done");
    STOP.store(true, Relaxed);
}
