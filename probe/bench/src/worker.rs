//! The worker, which runs batches of one case. Its threads last for all batches.

use std::io::{self, BufRead, Write};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::Case;

/// Number of calls of each thread before its first batch, so that no figure includes one-time work.
const WARM_UP: u64 = 10;

/// Number of spins at the start of a batch before a thread yields its CPU. They take longer than a
/// wake-up.
const SPINS: u32 = 10_000;

/// If the command line has `--case NAME`, serves the parent and does not return. Must be the first
/// call in `main`.
pub fn serve_if_asked(cases: &[Case]) {
    let Some(name) = std::env::args().skip_while(|argument| argument != "--case").nth(1) else {
        return;
    };
    let Some(case) = cases.iter().find(|case| case.name == name) else {
        eprintln!("no case is called {name:?}");
        std::process::exit(2);
    };
    let served = serve(*case);
    std::process::exit(i32::from(served.is_none()));
}

/// Answers until the parent closes the pipe. `None` on an error.
fn serve(case: Case) -> Option<()> {
    cpus();
    let mut threads = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line.ok()?;
        let (calls, wanted) = line.split_once(' ')?;
        let (calls, wanted) = (calls.parse().ok()?, wanted.parse().ok()?);
        while threads.len() < wanted {
            threads.push(Thread::start(case, threads.len()));
        }
        let Times { ns, cpu_ns } = run(&threads[..wanted], calls)?;
        let regions = (calls * u64::from(case.regions)).max(1) as f64;
        let mut answers = io::stdout().lock();
        writeln!(answers, "{} {} {}", ns / regions, cpu_ns / regions, resident_bytes()?).ok()?;
        answers.flush().ok()?;
    }
    Some(())
}

/// Runs a batch on all threads simultaneously. Returns the mean of their times.
fn run(threads: &[Thread], calls: u64) -> Option<Times> {
    let missing = Arc::new(AtomicUsize::new(threads.len()));
    for thread in threads {
        thread.batches.send(Batch { calls, missing: Arc::clone(&missing) }).ok()?;
    }
    let mut sum = Times::default();
    for thread in threads {
        let Times { ns, cpu_ns } = thread.times.recv().ok()?;
        sum.ns += ns;
        sum.cpu_ns += cpu_ns;
    }
    let count = threads.len().max(1) as f64;
    Some(Times { ns: sum.ns / count, cpu_ns: sum.cpu_ns / count })
}

/// Duration of a batch.
#[derive(Clone, Copy, Default)]
struct Times {
    ns: f64,
    /// CPU time of the thread.
    cpu_ns: f64,
}

impl Times {
    fn of(batch: impl FnOnce()) -> Self {
        // The CPU time is read outside the timed part, because the reading takes a system call.
        let cpu = thread_cpu_time();
        let start = Instant::now();
        batch();
        let elapsed = start.elapsed();
        let cpu = thread_cpu_time().saturating_sub(cpu);
        Self { ns: elapsed.as_secs_f64() * 1e9, cpu_ns: cpu.as_secs_f64() * 1e9 }
    }
}

struct Batch {
    calls: u64,
    /// Number of threads that have not reached the start yet.
    missing: Arc<AtomicUsize>,
}

/// A thread that runs batches, bound to a CPU.
struct Thread {
    batches: Sender<Batch>,
    times: Receiver<Times>,
}

impl Thread {
    fn start(case: Case, number: usize) -> Self {
        let (batches, asked) = channel::<Batch>();
        let (answers, times) = channel();
        std::thread::spawn(move || {
            (case.prepare)();
            (case.batch)(WARM_UP);
            // Binds the thread only now, so that threads that the case has started are not bound,
            // too.
            bind(number);
            for batch in asked {
                // The thread has just been switched in, so its caches are cold. One call before the
                // start keeps that cost out of the figures, too.
                if batch.calls > 0 {
                    (case.batch)(1);
                }
                // All threads spin, because a wake-up takes as long as a thousand calls. If a
                // thread has no CPU, the waiting threads yield theirs.
                batch.missing.fetch_sub(1, Relaxed);
                let mut spins = 0;
                while batch.missing.load(Relaxed) != 0 {
                    std::hint::spin_loop();
                    spins += 1;
                    if spins > SPINS {
                        std::thread::yield_now();
                    }
                }
                let times = Times::of(|| (case.batch)(batch.calls));
                let times = if batch.calls == 0 { Times::default() } else { times };
                if answers.send(times).is_err() {
                    return;
                }
            }
        });
        Self { batches, times }
    }
}

fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a local variable that the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// CPUs that the process may use, determined before any thread is bound.
fn cpus() -> &'static [usize] {
    static CPUS: OnceLock<Vec<usize>> = OnceLock::new();
    CPUS.get_or_init(|| {
        // SAFETY: a set of CPUs is an array of bits, for which zeros are valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the call fills `set`, whose size is passed.
        let got = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        let most = if got == 0 { libc::CPU_SETSIZE as usize } else { 0 };
        // SAFETY: `cpu` is less than the number of bits in the set.
        (0..most).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect()
    })
}

/// Binds the thread to a CPU; thread numbers are distributed over the CPUs in turn. If binding
/// fails, the figures only scatter more.
fn bind(thread: usize) {
    let Some(&cpu) = cpus().get(thread % cpus().len().max(1)) else { return };
    // SAFETY: zeros are a valid set; `cpu` is a number from such a set, and the call only reads the
    // set.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

/// Resident memory. Read from `smaps_rollup`, because `statm` can be off by tens of pages per CPU.
fn resident_bytes() -> Option<u64> {
    let maps = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let line = maps.lines().find_map(|line| line.strip_prefix("Rss:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? * 1024)
}
