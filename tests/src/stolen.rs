//! Time that was taken from a thread while it was on a CPU, by a hypervisor that ran
//! somebody else there, and on some kernels by interrupts.
//!
//! The kernel leaves it out of the thread's CPU time. pfp reads a counter that runs on
//! meanwhile, and learns of it when it next reads the CPU time: up to then it is part of
//! the region that is open, and what comes after pays for it. So a test that holds pfp's
//! figures against the CPU time allows what was stolen from the threads concerned beside
//! its share. That is 0 but for some microseconds on a machine that is its guests' own.
//!
//! The account is the scheduler's and a wall clock's, and knows nothing of pfp: a thread
//! that does not sleep is on a CPU, waits for one, or is stolen from.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;
use std::time::Duration;

use crate::os::{process_cpu, thread_count, thread_cpu, wall};

/// To this both the kernel and pfp know when a thread was taken off the CPU. After a switch pfp
/// reads the thread's CPU time, which takes 0.8 to 1.5 us (docs/costs.md), is no region's, and
/// takes several times as long where what ran meanwhile has the caches.
pub const SWITCH: Duration = Duration::from_micros(10);

/// What has become of the calling thread's time up to now.
#[derive(Clone, Copy, Debug)]
pub struct Account {
    wall: Duration,
    cpu: Duration,
    waited: Duration,
}

/// Time that the calling thread was able to run and waited for a CPU.
fn waited() -> Option<Duration> {
    let mut text = [0; 64];
    let read = File::open("/proc/thread-self/schedstat").ok()?.read(&mut text).ok()?;
    let waited = str::from_utf8(&text[..read]).ok()?.split_whitespace().nth(1)?;
    Some(Duration::from_nanos(waited.parse().ok()?))
}

impl Account {
    /// None where the kernel does not tell how long threads wait.
    #[must_use]
    pub fn now() -> Option<Self> {
        let mut before = waited()?;
        loop {
            let (wall, cpu) = (wall(), thread_cpu());
            let waited = waited()?;
            // Or else it waited between the readings.
            if waited == before {
                return Some(Self { wall, cpu, waited });
            }
            before = waited;
        }
    }

    /// Nanoseconds stolen from the thread since then, in which it has not slept. The
    /// clocks are not read at one moment, so that nothing may be a little less.
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

/// Does something in which the thread does not sleep, and counts what is stolen from it.
/// Not to be used inside itself: it would count twice.
pub fn counted<T>(awake: impl FnOnce() -> T) -> T {
    let account = Account::now();
    let done = awake();
    let stolen = account.map_or(0, |account| account.stolen_ns());
    STOLEN_NS.set(STOLEN_NS.get() + stolen);
    done
}

/// What was stolen from the calling thread so far, in [`counted`] and in
/// [`burn`](crate::os::burn).
#[must_use]
pub fn so_far() -> Duration {
    Duration::from_nanos(STOLEN_NS.get().max(0) as u64)
}

/// What was stolen from the calling thread since [`so_far`] has said this.
#[must_use]
pub fn since(before: Duration) -> Duration {
    // A little may be taken back, see `Account::stolen_ns`.
    so_far().saturating_sub(before)
}

/// The account of all threads of another program, which may sleep and end: by a perf
/// event that counts how long its threads were on a CPU, what was stolen included.
#[derive(Debug)]
pub struct Outside {
    /// The event; none where they are forbidden.
    event: Option<File>,
    pid: u32,
    cpu: Duration,
}

impl Outside {
    /// Looks at a process that has just been started, before it has started threads:
    /// those there are already would not be counted.
    #[must_use]
    pub fn of(pid: u32) -> Self {
        let cpu = process_cpu(pid).unwrap_or_default();
        let event = on_cpu_event(pid).filter(|_| thread_count(pid) == 1);
        Self { event, pid, cpu }
    }

    /// What was stolen from the process since then, at a moment at which it rests. Some
    /// microseconds less for each time that a thread was switched: the event counts from
    /// a little later on.
    ///
    /// # Panics
    ///
    /// If it is no more.
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

/// An event of the kind "task clock" of a process and of all threads that it starts.
fn on_cpu_event(pid: u32) -> Option<File> {
    /// The kernel's `struct perf_event_attr`, as it was first.
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
    /// `inherit`; `exclude_kernel` and `exclude_hv`, as those who are not root may only
    /// have it so: it counts all the same.
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
    // SAFETY: the kernel reads `size` bytes of the structure; any CPU, no group.
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
    // SAFETY: it was opened just now, and is nobody else's.
    (descriptor >= 0).then(|| unsafe { File::from_raw_fd(descriptor) })
}
