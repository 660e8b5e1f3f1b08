//! A timer of the wall clock and of the time on the CPU.

use pfp::reading::{cpu_time, wall_ns};

/// Times a stretch of the program: the wall clock, and beside it the time that the
/// thread was on a CPU. It is no profile point, and needs no segment.
///
/// [`elapsed_ms`](Self::elapsed_ms) may be asked as often as one likes after one
/// start: while the timer runs it tells the time until now, afterwards the time until
/// the stop.
///
/// ```
/// let mut timer = pfp_timing::CpuTimer::new();
/// timer.start();
/// let lap = timer.elapsed_ms();
/// timer.stop();
/// assert!(timer.elapsed_ms() >= lap);
/// ```
///
/// All zeros are a timer that was not started, as C makes one.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CpuTimer {
    started: Reading,
    stopped: Reading,
    /// One of those below. A number, since C may hand over anything.
    state: u64,
    reserved: [u64; 3],
}

// `pfp_timer_t` is what a timer is kept in.
const _: () = assert!(size_of::<CpuTimer>() == 10 * size_of::<u64>());

const NEW: u64 = 0;
const RUNNING: u64 = 1;
const STOPPED: u64 = 2;

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Reading {
    wall_ns: u64,
    /// CPU time of the thread below.
    cpu_ns: u64,
    /// Whose it is; 0 where it could not be read.
    thread: u64,
}

impl Reading {
    /// The wall clock is read last at a start and first at a stop: what reading the
    /// other takes is outside.
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

    /// Starts the timer, anew if it was started before.
    pub fn start(&mut self) {
        self.state = RUNNING;
        self.started = Reading::at_start();
    }

    /// Stops the timer. One that does not run stays as it is.
    pub fn stop(&mut self) {
        if self.state == RUNNING {
            self.stopped = Reading::at_stop();
            self.state = STOPPED;
        }
    }

    /// Whether it was started and not stopped.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.state == RUNNING
    }

    /// Milliseconds of the wall clock (CLOCK_MONOTONIC, which nobody sets) since the
    /// start: until now, or until the stop. 0 for a timer that was not started.
    #[must_use]
    pub fn elapsed_ms(&self) -> f64 {
        let end = match self.state {
            RUNNING => wall_ns(),
            STOPPED => self.stopped.wall_ns,
            _ => return 0.0,
        };
        end.saturating_sub(self.started.wall_ns) as f64 / 1e6
    }

    /// Milliseconds that the thread was on a CPU meanwhile, at most
    /// [`elapsed_ms`](Self::elapsed_ms) but for what reading two clocks takes. None
    /// for a timer that was not started, or one that another thread started: each
    /// thread has a clock of its own.
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
