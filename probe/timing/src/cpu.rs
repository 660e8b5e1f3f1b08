//! A timer of wall-clock time and on-CPU time.

use pfp::reading::{cpu_time, wall_ns};

/// Times a section of the program: the wall-clock time, and the time that the thread was on a CPU.
/// It is not a profile point, and needs no segment.
///
/// [`elapsed_ms`](Self::elapsed_ms) may be called repeatedly. While the timer runs, it returns the
/// time until now, and afterwards the time until the stop.
///
/// ```
/// let mut timer = pfp_timing::CpuTimer::new();
/// timer.start();
/// let lap = timer.elapsed_ms();
/// timer.stop();
/// assert!(timer.elapsed_ms() >= lap);
/// ```
///
/// All zeros is a timer that was not started, which is how C initializes one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CpuTimer {
    started: Reading,
    stopped: Reading,
    /// One of the constants below. An integer, since C may pass any value.
    state: u64,
    reserved: [u64; 3],
}

// `pfp_timer_t` provides the memory of a timer in C.
const _: () = assert!(size_of::<CpuTimer>() == 10 * size_of::<u64>());

const NEW: u64 = 0;
const RUNNING: u64 = 1;
const STOPPED: u64 = 2;

/// A reading of the wall clock and of a thread's CPU time.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Reading {
    wall_ns: u64,
    /// CPU time of the thread `thread`.
    cpu_ns: u64,
    /// Thread that read the clock; 0 if its CPU time could not be read.
    thread: u64,
}

impl Reading {
    /// The wall clock is read last at a start and first at a stop, so that the time to read the CPU
    /// clock is not measured.
    fn at_start() -> Self {
        let (thread, cpu_ns) = cpu_time();
        Self { wall_ns: wall_ns(), cpu_ns, thread }
    }

    fn at_stop() -> Self {
        let wall_ns = wall_ns();
        let (thread, cpu_ns) = cpu_time();
        Self { wall_ns, cpu_ns, thread }
    }
}

impl CpuTimer {
    /// A timer that was not started.
    #[must_use]
    pub const fn new() -> Self {
        const NONE: Reading = Reading { wall_ns: 0, cpu_ns: 0, thread: 0 };
        Self { started: NONE, stopped: NONE, state: NEW, reserved: [0; 3] }
    }

    /// Starts the timer, or restarts it.
    pub fn start(&mut self) {
        self.state = RUNNING;
        self.started = Reading::at_start();
    }

    /// Stops the timer. Does nothing if it is not running.
    pub fn stop(&mut self) {
        if self.state == RUNNING {
            self.stopped = Reading::at_stop();
            self.state = STOPPED;
        }
    }

    /// Whether the timer was started and not stopped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == RUNNING
    }

    /// Milliseconds of the wall clock (CLOCK_MONOTONIC) from the start until the stop, or until now
    /// while the timer runs. 0 for a timer that was not started.
    #[must_use]
    pub fn elapsed_ms(&self) -> f64 {
        let end = match self.state {
            RUNNING => wall_ns(),
            STOPPED => self.stopped.wall_ns,
            _ => return 0.0,
        };
        end.saturating_sub(self.started.wall_ns) as f64 / 1e6
    }

    /// The part of [`elapsed_ms`](Self::elapsed_ms) in which the thread was on a CPU, in
    /// milliseconds. It can exceed the whole by the time to read the clocks. `None` for a timer
    /// that was not started, or if another thread started it, since each thread has its own CPU
    /// clock.
    #[must_use]
    pub fn on_cpu_ms(&self) -> Option<f64> {
        let end = match self.state {
            RUNNING => Reading::at_stop(),
            STOPPED => self.stopped,
            _ => return None,
        };
        if end.thread == 0 || end.thread != self.started.thread {
            return None;
        }
        Some(end.cpu_ns.checked_sub(self.started.cpu_ns)? as f64 / 1e6)
    }
}
