//! The process: one segment, made at the first point.
//!
//! Everything here is off the hot path. A thread that needs the process while another thread is
//! making it waits for a millisecond at most, and then makes the process itself.

pub(crate) mod entries;
pub(super) mod failed;
pub(super) mod making;
pub(crate) mod memory;
pub(crate) mod name;
pub(crate) mod pausing;
mod publishing;
pub(crate) mod switches;

use std::io;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp_shm_layout::beacon::Beacon;
use pfp_shm_layout::header::ProcessState;
use pfp_shm_layout::segment::Segment;

use super::boxes::KeptLately;
use super::calibrate as costs;
use super::lease::Lease;
use super::overhead::CALIBRATING;
use super::owner;
use super::process_page::{self, ProcessPage};
use super::settings::{Asked, Settings};
use super::thread::Thread;
use crate::clock::{self, calibrate, counter};
use crate::errno;

const PAGE: usize = 4096;

/// A process's segment and what belongs to it.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) segment: Segment,
    /// The beacon: the file by which viewers find the segment. It is lit once the process is
    /// announced, and removed at an orderly exit. Null without a beacon. Once the process is
    /// announced, nothing frees the box.
    beacon: AtomicPtr<Beacon>,
    /// The page that leads to this process. It is never unmapped once the process is announced.
    page: &'static ProcessPage,
    pid: libc::pid_t,
    /// The key of thread-specific data whose destructor releases a thread's lane.
    pub(crate) exit_key: libc::pthread_key_t,
    /// The private state of each lane, which the lane's next owners use again; null before the
    /// first owner.
    pub(crate) lanes: Box<[AtomicPtr<Thread>]>,
    /// Whether the known overhead is outdated.
    outdated: AtomicBool,
    /// Value of the counter until which no space is requested again, because a request has failed
    /// just now.
    no_space_until: AtomicU64,
    /// A block that was taken and could not be backed; 0 without one.
    spare_block: AtomicU64,
    settings: &'static Settings,
    /// Blocks of a box that were taken, and could not be backed or were not needed; 0 without them.
    pub(super) spare_box: AtomicU64,
    /// How many slow calls were kept lately.
    pub(super) kept_lately: KeptLately,
    /// The process of the parent that this process was forked from; null without one.
    _inherited: AtomicPtr<Process>,
    /// The file to which an orderly exit writes the last figures.
    snapshot: Option<PathBuf>,
    /// Held by the thread that clears a cell which threads without a lane share.
    pub(super) clearing: Lease,
}

/// Keeps processes reachable for a leak checker, which does not follow the pointer in the process
/// page. Processes are never freed.
static NEWEST: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// The error if the process cannot be made here, packed as in [`failed::Failed`]: which step
/// failed, and the system's error. 0 while the process may still be made.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Number of begins that were missed before the segment existed. Only points that are on from the
/// start count.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The process. `None` before it is made, and in a forked child that has not made its own.
#[inline]
pub(crate) fn current() -> Option<&'static Process> {
    // SAFETY: the pointer is null, or leads to a process that is never freed.
    unsafe { process_page::process().cast::<Process>().as_ref() }
}

/// The process that was made last, by this process or a parent.
pub(super) fn newest() -> Option<&'static Process> {
    // SAFETY: the pointer is null, or leads to a process that is never freed.
    unsafe { NEWEST.load(Acquire).as_ref() }
}

/// The process whose segment was detached last. A child of a child inherits this, so it does not
/// detach the same segment again.
static DETACHED: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

impl Process {
    /// Whether this process's regions are measured into the segment: false in a forked child.
    pub(crate) fn is_current(&self) -> bool {
        current().is_some_and(|process| ptr::eq(process, self))
    }

    /// Whether the caller runs in this process: false in a child that only shares its memory. True
    /// if a filter refuses the system call.
    pub(crate) fn is_callers(&self) -> bool {
        // SAFETY: no preconditions.
        let pid = errno::preserve(|| unsafe { libc::getpid() });
        pid == self.pid || pid <= 0
    }

    /// [`Self::is_callers`] for a caller that knows the thread's id. If the C library stores the
    /// same id, the thread is no child in its parent's memory, and no system call is needed.
    pub(crate) fn is_callers_threads(&self, tid: u32) -> bool {
        owner::library_tid() == Some(tid) || self.is_callers()
    }

    /// Maps private memory in place of the segment, in a forked child.
    pub(super) fn detach(&self) {
        let this = ptr::from_ref(self).cast_mut();
        if DETACHED.swap(this, Relaxed) != this {
            self.segment.detach();
        }
    }

    /// Discards a process that was not announced, because another thread has announced one. Only
    /// the calling thread has seen the discarded one.
    fn discard(self: Box<Self>) {
        self.segment.unlink();
        let beacon = self.beacon.swap(ptr::null_mut(), Acquire);
        if !beacon.is_null() {
            // SAFETY: the pointer is from `Box::into_raw`, and after the swap no other thread can
            // find it.
            let _ = unsafe { Box::from_raw(beacon) }.extinguish();
        }
    }

    /// Lights the beacon, if the process has one.
    ///
    /// # Errors
    ///
    /// The system's error.
    fn light(&self) -> io::Result<()> {
        let Some(beacon) = self.beacon() else { return Ok(()) };
        memory::uninterrupted(|| beacon.light())
    }

    fn beacon(&self) -> Option<&Beacon> {
        // SAFETY: the pointer is null, or leads to a box that nothing frees once the process is
        // announced. The load pairs with the store in `make_as_named`.
        unsafe { self.beacon.load(Acquire).as_ref() }
    }

    /// Marks the calling process as ended by an orderly exit, and writes the last figures if a file
    /// was requested.
    pub(super) fn end(&self, write_snapshot: impl FnOnce(&Self, &Path)) {
        if !self.is_callers() {
            return;
        }
        self.segment.counters().state.store(ProcessState::Exited as u64, Release);
        if let Some(path) = &self.snapshot {
            write_snapshot(self, path);
        }
        let beacon = self.beacon();
        // A viewer that watches all processes removes the segment after its last read.
        if beacon.is_some_and(Beacon::is_awaited) {
            return;
        }
        // If the object cannot be removed, the beacon stays, so that a sweep finds both.
        if self.is_current()
            && self.segment.unlink()
            && let Some(beacon) = beacon
        {
            let _ = beacon.remove();
        }
    }

    /// Whether each process writes its last figures to a file of its own.
    pub(super) fn has_own_file(&self) -> bool {
        self.settings.snapshot.as_ref().is_some_and(Asked::is_per_process)
    }

    fn publish_rate(&self, ticks_per_second: f64) {
        let word = &self.segment.counters().ticks_per_1000_s;
        word.store(thousand_seconds(ticks_per_second), Relaxed);
    }

    /// Refines the tick rate, if enough time has passed for that. Cold paths call this.
    pub(crate) fn refine_rate(&self) {
        calibrate::refine();
        self.publish_rate(calibrate::ticks_per_second());
    }

    /// Publishes the clock source and its overhead, after the previous source has turned out not to
    /// work.
    pub(crate) fn take_source(&self) {
        self.take_source_later();
        self.catch_up();
    }

    /// Like [`Self::take_source`], for a caller that must not calibrate now: the calibration is
    /// left to the next caller of [`Self::catch_up`].
    pub(crate) fn take_source_later(&self) {
        self.tell_source();
        self.outdated.store(true, Relaxed);
    }

    /// Calibrates the overhead again, if it is outdated. Does nothing while another calibration
    /// runs. That calibration may have begun before the clock changed, so a later call calibrates
    /// again.
    pub(crate) fn catch_up(&self) {
        if self.outdated.load(Relaxed)
            && !CALIBRATING.is_held()
            && self.outdated.swap(false, Relaxed)
        {
            costs::calibrate_again();
        }
    }

    fn tell_source(&self) {
        let counters = self.segment.counters();
        counters.clock_kind.store(clock::kind() as u64, Relaxed);
        counters.system_clock.store(u64::from(counter::is_replaced()), Relaxed);
    }
}

/// Converts a rate per second to the unit of the segment, per 1000 seconds.
fn thousand_seconds(rate: f64) -> u64 {
    (rate * 1000.0) as u64
}

/// Counts a begin that could not be measured.
#[cold]
pub(crate) fn miss() {
    if let Some(process) = current() {
        process.segment.counters().begins_missed.fetch_add(1, Relaxed);
    }
}
