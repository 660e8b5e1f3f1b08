//! Two periodic tasks that pre-empt each other on one CPU, measured through the numeric interface.
//!
//! Both have a period of 10 ms. Task 0 starts at once and computes for 6 ms, including 4 ms in an
//! inner region. Task 1 starts 1.5 ms later, computes for 1.3 ms, and has the higher priority if
//! the system permits.
//!
//! ```text
//! ms     0    1    2    3    4    5    6    7    8    9    10
//! task 0 [2 1 ms ][3        ......        4 ms ][2 1 ms ]
//! task 1             [4 1.3 ms ]
//! ```
//!
//! Whatever the overlap, each point must show its own load, without nested regions and the other
//! task's time.
//!
//! | point | measures |
//! |---|---|
//! | 0 | the overhead of measuring |
//! | 1 | the tuning of the load that takes 1 ms |
//! | 2 | task 0, outer region: 2 ms around the inner one |
//! | 3 | task 0, inner region: 4 ms |
//! | 4 | task 1: 1.3 ms |
//!
//! Run it with `cargo run --release -p pfp-probe --example two_tasks -- [PERIODS] [--hold]`. With
//! `--hold`, it prints its table and then waits until its standard input ends, so that a viewer can
//! show it.

use std::hint::black_box;
use std::io::{self, Read};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use std::{env, mem, ptr, thread};

const OVERHEAD: u32 = 0;
const TUNING: u32 = 1;
const OUTER: u32 = 2;
const INNER: u32 = 3;
const TASK_1: u32 = 4;

const PERIOD: Duration = Duration::from_millis(10);
/// Time constant of the averages, which gives a measurement the weight 10 ms / 50 ms = 0.2.
const AVERAGE_OVER: Duration = Duration::from_millis(50);
/// Weight of one tuning round, stated directly because these rounds have no period.
const TUNING_ALPHA: f64 = 0.05;

const PHASE_0: Duration = Duration::ZERO;
const PHASE_1: Duration = Duration::from_micros(1_500);

/// Load of the outer region before the inner one, and again after it.
const OUTER_HALF: Duration = Duration::from_millis(1);
const INNER_LOAD: Duration = Duration::from_millis(4);
const TASK_1_LOAD: Duration = Duration::from_micros(1_300);

/// Time for both threads to start before the first period.
const LEAD: Duration = Duration::from_millis(20);

const DEFAULT_PERIODS: u32 = 100;
const CALIBRATION_LOOPS: u32 = 10_000;
const TUNING_ROUNDS: usize = 101;

fn main() -> ExitCode {
    let mut periods = DEFAULT_PERIODS;
    let mut hold = false;
    for argument in env::args().skip(1) {
        match argument.parse() {
            Ok(number) => periods = number,
            Err(_) if argument == "--hold" => hold = true,
            Err(_) => {
                eprintln!("usage: two_tasks [PERIODS] [--hold]");
                return ExitCode::from(2);
            }
        }
    }
    match run(periods, hold) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("two_tasks: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(periods: u32, hold: bool) -> io::Result<()> {
    pin_to_one_cpu()?;
    set_up_points();
    pfp::calibrate(CALIBRATION_LOOPS);
    let load = Load::tune();

    let start = now(libc::CLOCK_MONOTONIC) + LEAD;
    thread::scope(|scope| {
        let task_0 = scope.spawn(|| {
            pfp::register_thread("task 0");
            let priority = raise_priority(10);
            repeat(periods, start + PHASE_0, || {
                pfp::Point::numbered(OUTER).begin_once();
                load.compute(OUTER, OUTER_HALF);
                pfp::Point::numbered(INNER).begin_once();
                load.compute(INNER, INNER_LOAD);
                pfp::Point::numbered(INNER).end();
                load.compute(OUTER, OUTER_HALF);
                pfp::Point::numbered(OUTER).end();
            });
            priority
        });
        scope.spawn(|| {
            pfp::register_thread("task 1");
            // Both tasks get the same result, and task 0 reports it.
            let _ = raise_priority(20);
            repeat(periods, start + PHASE_1, || {
                pfp::Point::numbered(TASK_1).begin_once();
                load.compute(TASK_1, TASK_1_LOAD);
                pfp::Point::numbered(TASK_1).end();
            });
        });
        match task_0.join().expect("the task only computes and sleeps") {
            Ok(()) => println!("# real-time priorities, {} loops a ms", load.loops_per_ms),
            Err(refused) => {
                println!("# plain priorities ({refused}), {} loops a ms", load.loops_per_ms)
            }
        }
    });

    print_table();
    if hold {
        io::stdin().read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

fn set_up_points() {
    pfp::set_program_name("two_tasks");
    for (id, name) in [
        (OVERHEAD, "overhead"),
        (TUNING, "tuning 1 ms"),
        (OUTER, "outer 2 ms"),
        (INNER, "inner 4 ms"),
        (TASK_1, "task 1 1.3 ms"),
    ] {
        pfp::Point::numbered(id).set_name(name);
        pfp::Point::numbered(id).enable();
    }
    pfp::Point::numbered(TUNING).set_alpha(TUNING_ALPHA).expect("0.05 is in range");
    for id in [OUTER, INNER, TASK_1] {
        pfp::Point::numbered(id)
            .set_average(PERIOD, AVERAGE_OVER)
            .expect("10 ms over 50 ms is in range");
    }
}

/// Prints one line for each point. C is exclusive cycles, T is time.
fn print_table() {
    for id in [OVERHEAD, TUNING, OUTER, INNER, TASK_1] {
        let Some(stats) = pfp::Point::numbered(id).stats() else {
            println!("ID: {id:02}, not measured");
            continue;
        };
        // Without a weight, the plain mean replaces the moving average.
        let average = if id == OVERHEAD { stats.mean_ticks() } else { stats.average };
        println!(
            "ID: {id:02}, n={}, C={}, Cmin={}, Cmax={}, C-avg={average:.0}, Avg-T={:.6}ms",
            stats.count,
            stats.exclusive,
            stats.min,
            stats.max,
            stats.mean().as_secs_f64() * 1e3,
        );
        let computed = Duration::from_nanos(COMPUTED_NS[id as usize].load(Relaxed));
        if !computed.is_zero() {
            let mean = computed.as_secs_f64() / stats.count as f64;
            println!("# ID: {id:02} computed T={:.6}ms", mean * 1e3);
        }
    }
}

/// Time between two readings of the clock near the end of a load. On average, a load is half of
/// this time too long.
const STEP: Duration = Duration::from_micros(2);

/// Sum of the times that the loads of each point took, by the clock that ends a load.
static COMPUTED_NS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

/// A loop whose duration is known.
struct Load {
    loops_per_ms: u64,
}

impl Load {
    /// Determines the number of loops that take 1 ms on the CPU.
    fn tune() -> Self {
        const MS: Duration = Duration::from_millis(1);

        // Doubling the number until it takes long enough also lets the CPU reach its working
        // frequency.
        let mut loops = 1_000;
        while time_on_cpu(|| spin(loops)) < 20 * MS {
            loops *= 2;
        }
        loops /= 20;

        // Uses the median, which a round delayed by an interrupt or a hypervisor does not move.
        let mut rates: Vec<u64> = (0..TUNING_ROUNDS)
            .map(|_| {
                pfp::Point::numbered(TUNING).begin_once();
                let took = time_on_cpu(|| spin(loops));
                pfp::Point::numbered(TUNING).end();
                loops = (u128::from(loops) * MS.as_nanos() / took.as_nanos()) as u64;
                loops
            })
            .collect();
        rates.sort_unstable();
        Self { loops_per_ms: rates[TUNING_ROUNDS / 2] }
    }

    /// Computes for a given CPU time. Each step is a quarter of the remaining time, so the load
    /// ends in time even if the core has become slower since tuning. Only an interrupted step can
    /// end late.
    fn compute(&self, id: u32, length: Duration) {
        let start = now(libc::CLOCK_THREAD_CPUTIME_ID);
        loop {
            let took = now(libc::CLOCK_THREAD_CPUTIME_ID) - start;
            let Some(left) = length.checked_sub(took).filter(|left| !left.is_zero()) else {
                COMPUTED_NS[id as usize].fetch_add(took.as_nanos() as u64, Relaxed);
                return;
            };
            spin(self.loops_in((left / 4).max(STEP)));
        }
    }

    fn loops_in(&self, length: Duration) -> u64 {
        self.loops_per_ms * length.as_micros() as u64 / 1_000
    }
}

/// A chain of dependent operations (Marsaglia's xorshift). It uses no memory, depends little on the
/// other hyperthread, and the compiler cannot shorten it.
fn spin(loops: u64) {
    let mut chain = black_box(1_u64);
    for _ in 0..loops {
        chain ^= chain << 13;
        chain ^= chain >> 7;
        chain ^= chain << 17;
    }
    black_box(chain);
}

fn time_on_cpu(work: impl FnOnce()) -> Duration {
    let before = now(libc::CLOCK_THREAD_CPUTIME_ID);
    work();
    now(libc::CLOCK_THREAD_CPUTIME_ID) - before
}

/// Runs a task's body once per period. The deadlines are absolute, so one late period does not
/// delay the next.
fn repeat(periods: u32, first: Duration, mut body: impl FnMut()) {
    for period in 0..periods {
        sleep_until(first + period * PERIOD);
        body();
    }
}

/// Reads a clock, as the time since its zero.
fn now(clock: libc::clockid_t) -> Duration {
    // SAFETY: a timespec consists of integers, for which zeros are valid.
    let mut time: libc::timespec = unsafe { mem::zeroed() };
    // SAFETY: `time` is valid for writes.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "every Linux has this clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Sleeps until a time of CLOCK_MONOTONIC.
fn sleep_until(moment: Duration) {
    let time = libc::timespec {
        tv_sec: moment.as_secs() as libc::time_t,
        tv_nsec: moment.subsec_nanos().into(),
    };
    loop {
        // SAFETY: `time` is valid for reads; with an absolute time nothing is written back.
        let result = unsafe {
            libc::clock_nanosleep(
                libc::CLOCK_MONOTONIC,
                libc::TIMER_ABSTIME,
                &time,
                ptr::null_mut(),
            )
        };
        // A signal ends the sleep early; the target time stays the same.
        if result != libc::EINTR {
            return;
        }
    }
}

/// Binds the calling thread, and threads that it starts, to one CPU: the last of its allowed CPUs,
/// because most systems handle interrupts on the first one.
fn pin_to_one_cpu() -> io::Result<()> {
    // SAFETY: a cpu_set_t consists of bits; zeros are the empty set.
    let (mut allowed, mut one): (libc::cpu_set_t, libc::cpu_set_t) = unsafe { mem::zeroed() };
    // SAFETY: the set is valid for writes of the size given; 0 is the calling thread.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &mut allowed) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let last = (0..libc::CPU_SETSIZE as usize)
        .rev()
        // SAFETY: `cpu` is below CPU_SETSIZE, the number of bits in the set.
        .find(|&cpu| unsafe { libc::CPU_ISSET(cpu, &allowed) })
        .expect("the CPU that this runs on is in the set");
    // SAFETY: `last` is below CPU_SETSIZE, and the set is valid for reads of the size given.
    if unsafe {
        libc::CPU_SET(last, &mut one);
        libc::sched_setaffinity(0, size_of_val(&one), &one)
    } != 0
    {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Requests a real-time priority for the calling thread. This needs a privilege; the example also
/// works without it.
fn raise_priority(priority: i32) -> io::Result<()> {
    // SAFETY: a sched_param consists of integers, for which zeros are valid.
    let mut parameter: libc::sched_param = unsafe { mem::zeroed() };
    parameter.sched_priority = priority;
    // SAFETY: `parameter` is valid for reads; 0 is the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
