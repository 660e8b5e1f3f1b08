//! A program's own record of its calls: counters in memory that it shares with its test,
//! independent of pfp's.
//!
//! The program counts each call just before and just after it makes the call. So the witness bounds
//! the true count at whatever instruction the program is stopped or killed: the count is at least
//! the number of calls that have returned, and at most the number that have begun. The two bounds
//! differ only by calls in progress.
//!
//! ```text
//!   begun       begun         ends += 1               returned += 1
//!     t0 [begin] t1   work      t2       [end]          t3
//!     |<---------------------- outer ------------------>|
//!                |<---- inner ---->|
//! ```

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// Number of threads that can be recorded.
pub const SEATS: usize = 4;
/// Number of ends that a seat records.
pub const LOG: usize = 8192;

/// Asks the test to run the thread to its next stop.
pub const RUN: u64 = 100;
/// Asks the test to continue this thread, and to wait for another thread's first stop.
pub const HAND_OVER: u64 = 101;
/// Asks the test to stop tracing this thread, and to continue with the thread that has handed over
/// to this one.
pub const LET_GO: u64 = 102;
/// Asks the test to compute how many regions fit in the lane's ring, less a few.
pub const FILL: u64 = 103;
/// The stages that run instruction by instruction; the last four are a viewer's.
pub const STAGES: [&str; 13] = [
    "creation",
    "first regions",
    "rounds",
    "ring wraps",
    "lane claimed",
    "beside an open region",
    "thread ends",
    "without a lane",
    "process ends",
    "viewer attaches",
    "viewer switches",
    "viewer resets",
    "viewer saves",
];

#[expect(missing_docs, reason = "places in `STAGES`")]
pub mod stage {
    pub const CREATION: u64 = 0;
    pub const FIRST: u64 = 1;
    pub const ROUNDS: u64 = 2;
    pub const WRAP: u64 = 3;
    pub const CLAIM: u64 = 4;
    pub const BESIDE: u64 = 5;
    pub const END: u64 = 6;
    pub const OVERFLOW: u64 = 7;
    pub const EXIT: u64 = 8;
    pub const ATTACH: u64 = 9;
    pub const SWITCH: u64 = 10;
    pub const RESET: u64 = 11;
    pub const SAVE: u64 = 12;
}

/// Names of the recorded points, by their index.
pub const NAMES: [&str; 10] = [
    "outer",
    "inner",
    "by hand",
    "latched",
    "numbered",
    "lap a",
    "lap b",
    "in a task",
    "reset",
    "toggled",
];
/// The number of the point [`NAMES`]`[NUMBERED]`.
pub const NUMBER: u32 = 7;

#[expect(missing_docs, reason = "places in `NAMES`")]
pub mod point {
    pub const OUTER: usize = 0;
    pub const INNER: usize = 1;
    pub const HAND: usize = 2;
    pub const LATCHED: usize = 3;
    pub const NUMBERED: usize = 4;
    pub const LAP_A: usize = 5;
    pub const LAP_B: usize = 6;
    pub const TASK: usize = 7;
    pub const RESET: usize = 8;
    pub const TOGGLED: usize = 9;
}

/// The shared memory, which starts as all zeros.
#[repr(C)]
#[derive(Debug)]
pub struct Witness {
    /// With [`HAND_OVER`]: the seat of the thread that stops next.
    pub next: AtomicU64,
    /// The test's answer to [`FILL`].
    pub room: AtomicU64,
    /// Not 0 while the threads should pause.
    pub pause: AtomicU64,
    /// Number of viewers that have attached and seen the program.
    pub attached: AtomicU64,
    /// CPU time that the viewer which attached last used from its start until it had attached, in
    /// nanoseconds.
    pub attached_in: AtomicU64,
    /// Number of times that a viewer was about to switch a point.
    pub switching: AtomicU64,
    /// Number of times that a viewer has switched a point. The test adds the switches that a killed
    /// viewer did not count.
    pub switched: AtomicU64,
    /// Calls that change the control word of each point.
    pub steered: [Steered; NAMES.len()],
    /// One seat for each thread.
    pub seats: [Seat; SEATS],
}

/// The calls of a thread.
#[repr(C)]
#[derive(Debug)]
pub struct Seat {
    /// The thread's request to the test when it stops itself: [`RUN`] and the others above, or the
    /// index in [`STAGES`] of its next stage.
    pub stage: AtomicU64,
    /// Kernel id of the thread; 0 until the thread can be traced.
    pub tid: AtomicU64,
    /// Not 0 while the thread is in a call of pfp.
    pub calling: AtomicU64,
    /// Not 0 once the thread has begun its first region, which claims a lane.
    pub claims: AtomicU64,
    /// Not 0 once the calls of that first region have returned.
    pub claimed: AtomicU64,
    /// Not 0 once the thread only has to end.
    pub leaves: AtomicU64,
    /// Not 0 while the thread pauses.
    pub rests: AtomicU64,
    /// Calls by point.
    pub calls: [Calls; NAMES.len()],
    /// Number of ends so far, including one in progress.
    pub logged: AtomicU64,
    /// The ends, in order.
    pub log: [End; LOG],
}

/// A thread's calls at one point.
#[repr(C)]
#[derive(Debug)]
pub struct Calls {
    /// Number of ends that were called.
    pub ends: AtomicU64,
    /// Number of ends that have returned.
    pub returned: AtomicU64,
    /// Lower bound of the ticks of the regions in `returned`, including the cost of measuring.
    pub least: AtomicU64,
    /// Upper bound of the ticks of the regions in `returned`.
    pub most: AtomicU64,
    /// Number of begin and end pairs in the regions in `returned`, including their own pairs. pfp
    /// subtracts the cost of each pair.
    pub inside: AtomicU64,
    /// Earliest time at which the region that is ending now can have begun.
    pub since: AtomicU64,
}

/// Calls that change a point's control word.
#[repr(C)]
#[derive(Debug)]
pub struct Steered {
    /// Number of resets that were called.
    pub resets: AtomicU64,
    /// Number of resets that have returned.
    pub reset: AtomicU64,
    /// Calls of all threads that had returned when the last reset was called.
    pub before: AtomicU64,
    /// Regions that were open at that reset.
    pub open: AtomicU64,
    /// 1 if the point was enabled before the call that is switching it now. Equal to `is_on` while
    /// no call is in progress.
    pub was_on: AtomicU64,
    /// 1 if the point is enabled after that call.
    pub is_on: AtomicU64,
}

/// One end of a region.
#[repr(C)]
#[derive(Debug)]
pub struct End {
    /// Index of the point, plus 1.
    pub point: AtomicU64,
    /// The counter before and after the begin, and before and after the end; the last is 0 while
    /// the end is in progress.
    pub ticks: [AtomicU64; 4],
    /// 1 if the measurement includes parts from before this begin.
    pub parts: AtomicU64,
}

/// The duration of a region, as measured by the caller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Ticks from before the begin until after the end.
    pub outer: u64,
    /// Ticks from after the begin until before the end.
    pub inner: u64,
    /// Number of begin and end pairs in the region, including its own pair.
    pub pairs: u64,
}

impl Span {
    /// The sum of two consecutive regions.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        Self {
            outer: self.outer + next.outer,
            inner: self.inner + next.inner,
            pairs: self.pairs + next.pairs,
        }
    }
}

/// An open region, with the times of its begin measured by the caller.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// The counter before and after the begin.
    pub begun: [u64; 2],
    /// The sum of earlier parts of the measurement, if there are any.
    pub parts: Option<Span>,
}

impl Seat {
    /// Marks the thread as calling pfp, and makes the call.
    #[inline(always)]
    pub fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        self.calling.store(1, Release);
        let result = call();
        self.calling.store(0, Release);
        result
    }

    /// Ends a region that contained others; `end` calls pfp.
    #[inline(always)]
    pub fn end(&self, point: usize, open: Open, inside: Span, end: impl FnOnce()) -> Span {
        let calls = &self.calls[point];
        let number = self.logged.load(Relaxed);
        let entry = &self.log[number as usize % LOG];
        let before = now();
        entry.ticks[0].store(open.begun[0], Relaxed);
        entry.ticks[1].store(open.begun[1], Relaxed);
        entry.ticks[2].store(before, Relaxed);
        entry.ticks[3].store(0, Relaxed);
        entry.parts.store(u64::from(open.parts.is_some()), Relaxed);
        entry.point.store(point as u64 + 1, Relaxed);
        let parts = open.parts.unwrap_or_default();
        let since = open.begun[0].wrapping_sub(parts.outer).wrapping_add(inside.inner);
        calls.since.store(since, Relaxed);
        self.logged.store(number + 1, Release);
        calls.ends.store(calls.ends.load(Relaxed) + 1, Release);
        self.call(end);
        let after = now();
        let span = Span {
            outer: after.wrapping_sub(open.begun[0]),
            inner: before.wrapping_sub(open.begun[1]),
            pairs: inside.pairs + 1,
        };
        let most = (span.outer + parts.outer).saturating_sub(inside.inner);
        let least = (span.inner + parts.inner).saturating_sub(inside.outer);
        // The order matters: at each store the recorded bounds include the true value.
        calls.most.store(calls.most.load(Relaxed) + most, Release);
        calls.returned.store(calls.returned.load(Relaxed) + 1, Release);
        calls.inside.store(calls.inside.load(Relaxed) + span.pairs + parts.pairs, Relaxed);
        calls.least.store(calls.least.load(Relaxed) + least, Release);
        entry.ticks[3].store(after, Release);
        span
    }
}

/// The tick counter.
#[inline(always)]
#[must_use]
pub fn now() -> u64 {
    pfp::ticks()
}

/// A witness that is mapped in this process.
#[derive(Debug)]
pub struct Shared {
    witness: *mut Witness,
    path: PathBuf,
    _file: File,
}

impl Shared {
    /// Creates an empty witness.
    #[expect(clippy::new_without_default, reason = "it makes a file")]
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: the name is NUL-terminated and outlives the call.
        let file = unsafe { libc::memfd_create(c"witness".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0, "no memory for a witness: {}", io::Error::last_os_error());
        // SAFETY: the descriptor was just opened, and no other code owns it.
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(size_of::<Witness>() as u64).expect("there is memory for a witness");
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Self { witness: map(&file), path: path.into(), _file: file }
    }

    /// The path that the program opens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::ops::Deref for Shared {
    type Target = Witness;

    fn deref(&self) -> &Witness {
        // SAFETY: the memory is mapped until `self` is dropped, and holds only atomics.
        unsafe { &*self.witness }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: `new` mapped the memory, and all references to it have ended with `self`.
        unsafe { libc::munmap(self.witness.cast(), size_of::<Witness>()) };
    }
}

/// Maps the witness of the test, in the program.
///
/// # Panics
///
/// Panics if there is no witness at that path.
#[must_use]
pub fn open(path: &str) -> &'static Witness {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the witness is there");
    // SAFETY: the memory is never unmapped, and holds only atomics.
    unsafe { &*map(&file) }
}

fn map(file: &File) -> *mut Witness {
    // SAFETY: creates a mapping of a file of that length, at an address that the kernel chooses.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            size_of::<Witness>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    assert_ne!(map, libc::MAP_FAILED, "the witness can be mapped");
    map.cast()
}

impl Witness {
    /// The lowest and highest count of a point's calls in one seat that agree with the witness.
    #[must_use]
    pub fn counts(&self, seat: usize, point: usize) -> (u64, u64) {
        let calls = &self.seats[seat].calls[point];
        (calls.returned.load(Acquire), calls.ends.load(Acquire))
    }
}
