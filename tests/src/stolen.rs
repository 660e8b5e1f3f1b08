//! Time taken from a thread while it was on a CPU: by a hypervisor that ran another guest there,
//! and on some kernels by interrupts.
//!
//! The kernel excludes stolen time from the thread's CPU time. pfp reads a counter that includes
//! it, and corrects its figures when it next reads the CPU time: until then the open region has too
//! much, and afterwards a later region has too little. So a test that compares pfp's figures with
//! the CPU time allows the time stolen from its threads in addition to its tolerance. On a machine
//! without other guests that is only some microseconds.
//!
//! The account needs only the scheduler's figures and a wall clock, and nothing of pfp: a thread
//! that does not sleep is on a CPU, waits for one, or is stolen from.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::time::Duration;

use crate::os::{process_cpu, thread_count, thread_cpu, wall};

/// The accuracy with which the kernel and pfp agree on the time of a switch. After a switch pfp
/// reads the thread's CPU time, which takes 0.8 to 1.5 us (docs/costs.md) and counts for no region.
/// The reading takes several times as long if other programs have filled the caches.
pub const SWITCH: Duration = Duration::from_micros(10);

/// The calling thread's times up to now.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    wall: Duration,
    cpu: Duration,
    waited: Duration,
}

/// Time that the calling thread has waited for a CPU while it could run.
fn waited() -> Option<Duration> {
    let mut text = [0; 64];
    let read = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    let waited = str::from_utf8(&text[..read]).ok()?.split_whitespace().nth(1)?;
    Some(Duration::from_nanos(waited.parse().ok()?))
}

impl Account {
    /// `None` if the kernel does not report how long threads wait.
    #[must_use]
    pub fn now() -> Option<Self> {
        let mut before = waited()?;
        loop {
            let (wall, cpu) = (wall(), thread_cpu());
            let waited = waited()?;
            // If the two differ, the thread waited between the readings.
            if waited == before {
                return Some(Self { wall, cpu, waited });
            }
            before = waited;
        }
    }

    /// Nanoseconds stolen from the thread since `self` was taken, if it has not slept since. The
    /// clocks are not read at one moment, so the result may be slightly negative.
    #[must_use]
    pub fn stolen_ns(&self) -> i64 {
        let Some(now) = Self::now() else { return 0 };
        let ns = |now: Duration, before: Duration| (now - before).as_nanos() as i64;
        ns(now.wall, self.wall) - ns(now.cpu, self.cpu) - ns(now.waited, self.waited)
    }
}

thread_local! {
    static STOLEN_NS: Cell<i64> = const { Cell::new(0) };
}

/// Runs `awake`, in which the thread does not sleep, and adds the time stolen from it to the
/// thread's sum. Do not nest calls: the time would count twice.
pub fn counted<T>(awake: impl FnOnce() -> T) -> T {
    let account = Account::now();
    let done = awake();
    let stolen = account.map_or(0, |account| account.stolen_ns());
    STOLEN_NS.set(STOLEN_NS.get() + stolen);
    done
}

/// Time stolen from the calling thread so far, in [`counted`] and in [`burn`](crate::os::burn).
#[must_use]
pub fn so_far() -> Duration {
    Duration::from_nanos(STOLEN_NS.get().max(0) as u64)
}

/// Time stolen from the calling thread since [`so_far`] returned `before`.
#[must_use]
pub fn since(before: Duration) -> Duration {
    // The sum may decrease slightly, see `Account::stolen_ns`.
    so_far().saturating_sub(before)
}

/// The account of all threads of another program, which may sleep and end. It uses a perf event
/// that counts how long its threads were on a CPU, including stolen time.
#[derive(Debug)]
pub struct Outside {
    /// The event; `None` if perf events are forbidden.
    event: Option<File>,
    pid: u32,
    cpu: Duration,
}

impl Outside {
    /// Attaches to a process that has just been started. It must not have started threads yet,
    /// since existing threads are not counted.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let cpu = process_cpu(pid).unwrap_or_default();
        let event = on_cpu_event(pid).filter(|_| thread_count(pid) == 1);
        Self { event, pid, cpu }
    }

    /// Time stolen from the process since `self` was created, or 0 if the event cannot be read.
    /// Call this while the process is idle.
    /// Each switch of a thread subtracts some microseconds, since the event starts to count
    /// slightly late.
    ///
    /// # Panics
    ///
    /// Panics if the process has ended.
    #[must_use]
    pub fn stolen(&self) -> Duration {
        let mut on_cpu = [0; 8];
        let Some(mut event) = self.event.as_ref() else { return Duration::ZERO };
        if event.read(&mut on_cpu).ok() != Some(on_cpu.len()) {
            return Duration::ZERO;
        }
        let cpu = process_cpu(self.pid).expect("it rests") - self.cpu;
        Duration::from_nanos(u64::from_ne_bytes(on_cpu)).saturating_sub(cpu)
    }
}

/// A "task clock" event of a process and of all threads that it starts.
fn on_cpu_event(pid: u32) -> Option<File> {
    /// The first version of the kernel's `struct perf_event_attr`.
    #[repr(C)]
    struct Attributes {
        kind: u32,
        size: u32,
        config: u64,
        sample: [u64; 3],
        flags: u64,
        rest: [u64; 2],
    }
    const SOFTWARE: u32 = 1;
    const TASK_CLOCK: u64 = 1;
    /// `inherit`, `exclude_kernel` and `exclude_hv`. Without root, the last two are required; the
    /// event counts the same time with them.
    const FLAGS: u64 = 1 << 1 | 1 << 5 | 1 << 6;
    const CLOSE_ON_EXEC: libc::c_ulong = 8;
    let attributes = Attributes {
        kind: SOFTWARE,
        size: size_of::<Attributes>() as u32,
        config: TASK_CLOCK,
        sample: [0; 3],
        flags: FLAGS,
        rest: [0; 2],
    };
    // SAFETY: the kernel reads `size` bytes of the structure; the other arguments are plain
    // numbers.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            pid as libc::pid_t,
            -1,
            -1,
            CLOSE_ON_EXEC,
        ) as i32
    };
    // SAFETY: the descriptor was just opened, and no other code owns it.
    (descriptor >= 0).then(|| unsafe { File::from_raw_fd(descriptor) })
}
