//! What a program knows of its own calls: counters in memory that it shares with its
//! test, and that have nothing to do with pfp's.
//!
//! The program counts a call just before it makes it and just after, so at whatever
//! instruction it is stopped or killed, the witness says between which bounds the
//! truth lies: what has returned, and what has at least begun. A call under way is
//! the whole difference.
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

/// Threads that can be witnessed.
pub const SEATS: usize = 4;
/// Ends that a seat remembers.
pub const LOG: usize = 8192;

/// Run to the next stop.
pub const RUN: u64 = 100;
/// Let this thread run, and wait for one that stops itself for the first time.
pub const HAND_OVER: u64 = 101;
/// Trace this thread no more, and wait for the one that has handed over to it.
pub const LET_GO: u64 = 102;
/// Find out how many regions the lane's ring has room for, but for a few.
pub const FILL: u64 = 103;
/// What is run instruction by instruction; of a viewer, the last four.
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

/// The points that are witnessed, by their place here.
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
/// Number of [`NAMES`]`[NUMBERED]`.
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

/// The whole of it, all zeros at first.
#[repr(C)]
#[derive(Debug)]
pub struct Witness {
    /// The seat of the thread that stops next, with [`HAND_OVER`].
    pub next: AtomicU64,
    /// The test's answer to [`FILL`].
    pub room: AtomicU64,
    /// Not 0: the threads are to rest.
    pub pause: AtomicU64,
    /// Viewers that have attached and seen the program.
    pub attached: AtomicU64,
    /// CPU time that the last of them took for it from its very start, nanoseconds.
    pub attached_in: AtomicU64,
    /// Times a viewer was about to switch a point.
    pub switching: AtomicU64,
    /// Times it has done so. What a killed one owes is paid by the test.
    pub switched: AtomicU64,
    /// Of each point, the calls that change its control word.
    pub steered: [Steered; NAMES.len()],
    /// Its threads.
    pub seats: [Seat; SEATS],
}

/// What a thread did.
#[repr(C)]
#[derive(Debug)]
pub struct Seat {
    /// What the thread, when it stops itself, wants of the test: [`RUN`] and so on, or
    /// the place in [`STAGES`] of what it does next.
    pub stage: AtomicU64,
    /// Kernel id of the thread; 0 before there is one that can be traced.
    pub tid: AtomicU64,
    /// Not 0 while the thread is in a call of pfp.
    pub calling: AtomicU64,
    /// A first region was begun, which claims a lane.
    pub claims: AtomicU64,
    /// That call has returned.
    pub claimed: AtomicU64,
    /// The thread has nothing left to do but to end.
    pub leaves: AtomicU64,
    /// Not 0 while the thread rests.
    pub rests: AtomicU64,
    /// Of each point.
    pub calls: [Calls; NAMES.len()],
    /// Ends so far, the one under way included.
    pub logged: AtomicU64,
    /// The ends, in order.
    pub log: [End; LOG],
}

/// What a thread did with a point.
#[repr(C)]
#[derive(Debug)]
pub struct Calls {
    /// Ends of regions that were called.
    pub ends: AtomicU64,
    /// Those of them that have returned.
    pub returned: AtomicU64,
    /// Least ticks that all those took, measuring not taken out.
    pub least: AtomicU64,
    /// Most ticks that they can have taken.
    pub most: AtomicU64,
    /// Begins and ends inside them, whose cost is taken out.
    pub inside: AtomicU64,
    /// When the region that is ending now was begun, at the earliest.
    pub since: AtomicU64,
}

/// Calls that change a point's control word.
#[repr(C)]
#[derive(Debug)]
pub struct Steered {
    /// Resets that were called.
    pub resets: AtomicU64,
    /// Those that have returned.
    pub reset: AtomicU64,
    /// Calls of all threads that had returned when the last reset was called.
    pub before: AtomicU64,
    /// Regions that were open then.
    pub open: AtomicU64,
    /// Whether the point measured before the last call that switched it; 1 is on.
    pub was_on: AtomicU64,
    /// Whether it does after that.
    pub is_on: AtomicU64,
}

/// One end of a region.
#[repr(C)]
#[derive(Debug)]
pub struct End {
    /// Place of the point, plus 1.
    pub point: AtomicU64,
    /// The counter before the begin, after it, before the end, after it; the last
    /// is 0 while the end is under way.
    pub ticks: [AtomicU64; 4],
    /// 1 if the measurement has parts from before this begin.
    pub parts: AtomicU64,
}

/// What a region took, as the caller saw it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    /// Ticks from before the begin until after the end.
    pub outer: u64,
    /// Ticks from after the begin until before the end.
    pub inner: u64,
    /// Begins and ends in it, its own included.
    pub pairs: u64,
}

impl Span {
    /// One after the other.
    #[must_use]
    pub fn and(self, next: Self) -> Self {
        Self {
            outer: self.outer + next.outer,
            inner: self.inner + next.inner,
            pairs: self.pairs + next.pairs,
        }
    }
}

/// A region that is open, as the caller saw its begin.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// The counter before the begin and after it.
    pub begun: [u64; 2],
    /// What parts of the same measurement took before.
    pub parts: Option<Span>,
}

impl Seat {
    /// Notes that a call of pfp is made, and makes it.
    #[inline(always)]
    pub fn call<R>(&self, call: impl FnOnce() -> R) -> R {
        self.calling.store(1, Release);
        let result = call();
        self.calling.store(0, Release);
        result
    }

    /// Ends a region that had others inside; `end` calls pfp.
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
        // In this order: at each store what is allowed holds what is true.
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

/// A witness that is mapped here.
#[derive(Debug)]
pub struct Shared {
    witness: *mut Witness,
    path: PathBuf,
    _file: File,
}

impl Shared {
    /// A new one.
    #[expect(clippy::new_without_default, reason = "it makes a file")]
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: the name is NUL-terminated and outlives the call.
        let file = unsafe { libc::memfd_create(c"witness".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(file >= 0, "no memory for a witness: {}", io::Error::last_os_error());
        // SAFETY: a descriptor that was just opened and that nobody else owns.
        let file = unsafe { File::from_raw_fd(file) };
        file.set_len(size_of::<Witness>() as u64).expect("there is memory for a witness");
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Self { witness: map(&file), path: path.into(), _file: file }
    }

    /// What the program has to open.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::ops::Deref for Shared {
    type Target = Witness;

    fn deref(&self) -> &Witness {
        // SAFETY: mapped until it is dropped, and nothing but atomics.
        unsafe { &*self.witness }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, and nobody has a reference that outlives this.
        unsafe { libc::munmap(self.witness.cast(), size_of::<Witness>()) };
    }
}

/// The program's side: the witness that its test has made.
///
/// # Panics
///
/// If there is none at that path.
#[must_use]
pub fn open(path: &str) -> &'static Witness {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("the witness is there");
    // SAFETY: mapped for good, and nothing but atomics.
    unsafe { &*map(&file) }
}

fn map(file: &File) -> *mut Witness {
    // SAFETY: a new mapping, at an address of the kernel's choice, of a file that is as
    // long.
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
    /// What calls of a point the witness allows to be counted, of one seat: the
    /// least and the most.
    #[must_use]
    pub fn counts(&self, seat: usize, point: usize) -> (u64, u64) {
        let calls = &self.seats[seat].calls[point];
        (calls.returned.load(Acquire), calls.ends.load(Acquire))
    }
}
