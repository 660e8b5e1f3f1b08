//! The process: one segment, made when the first point is met.
//!
//! Everything here is off the hot path. A thread that needs the process while another
//! one is making it waits a millisecond at most, and then measures nothing, which is
//! counted.

mod entries;
mod failed;
mod gate;
mod making;
mod memory;
mod name;
mod pausing;
mod switches;

use std::mem::offset_of;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pfp_shm_layout::beacon::Beacon;
use pfp_shm_layout::header::ProcessState;
use pfp_shm_layout::segment::Segment;

pub(crate) use entries::NotEntered;
pub(crate) use memory::private_pages;
pub(crate) use name::set_name;
pub(super) use name::{pass_name_on, set_name_here};
pub(super) use pausing::pause_here;
pub(crate) use pausing::{is_enabled, pause, pause_latecomer};
pub use switches::Switch;

use self::gate::Gate;
use super::point::Kind;
use super::settings::Settings;
use super::thread::{self, Thread};
use super::turn::Turn;
use super::{cold, copies, image, owner};
use crate::clock::{self, calibrate, counter};
use crate::errno;
use crate::own::has_memory;
use crate::snapshot;
use crate::{InitError, Point};

const PAGE: usize = 4096;
/// Pairs that the automatic calibration runs.
const CALIBRATION_PAIRS: u32 = 512;

/// A process's segment and what belongs to it.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) segment: Segment,
    /// Taken out and put out when the process ends in order. Null, or a box.
    beacon: AtomicPtr<Beacon>,
    pid: libc::pid_t,
    /// Ends with the threads: its destructor releases their lanes.
    pub(crate) exit_key: libc::pthread_key_t,
    /// The private state of each lane, kept over the lane's owners.
    pub(crate) lanes: Box<[AtomicPtr<Thread>]>,
    /// Whether measuring costs something else than what is known.
    outdated: AtomicBool,
    /// The counter before which no space is asked for again.
    no_space_until: AtomicU64,
    /// A block that was taken and could not be backed; 0 for none.
    spare_block: AtomicU64,
    settings: &'static Settings,
    /// That of the parent that this process was forked from, if it had one.
    _inherited: AtomicPtr<Process>,
    /// Where the last figures go when the process ends in order.
    snapshot: Option<PathBuf>,
    /// Held by the thread that clears a cell which threads without a lane share.
    pub(super) clearing: Turn,
}

/// Keeps what is never freed within reach of a leak checker, which does not look
/// behind the gate.
static NEWEST: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Points to the process through a page that reads zero in a forked child, also
/// after a raw clone that runs no handler: what a child inherits is not its own.
static GATE: AtomicPtr<AtomicPtr<Process>> = AtomicPtr::new(ptr::null_mut());

/// Stack that making the process takes, with room to spare: 8 KiB as it is built for a
/// release, half of it in what makes and opens objects.
const STACK: usize = 16 << 10;

/// Held by the thread that makes the process.
static MAKING: Turn = Turn::new();
/// Why it cannot be made here: what could not be made and the system's error, as
/// [`failed::Failed`] packs them. 0 while it may still be made.
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Begins that were missed while there was no segment to count them in, of points
/// that start on.
static MISSED: AtomicU64 = AtomicU64::new(0);

/// The points of this process, a list through `Point::next`.
pub(crate) static POINTS: AtomicPtr<Point> = AtomicPtr::new(ptr::null_mut());

/// The process, if it was made by this process and not by a parent.
#[inline]
pub(crate) fn current() -> Option<&'static Process> {
    let gate = GATE.load(Acquire);
    if gate.is_null() {
        return None;
    }
    // SAFETY: the gate's page is never unmapped, and its pointer is null or to
    // a process that is never freed.
    unsafe { (*gate).load(Acquire).as_ref() }
}

/// The process, made if need be; none if it cannot be or must not be now.
pub(crate) fn get() -> Option<&'static Process> {
    if let Some(process) = current() {
        return Some(process);
    }
    if FAILED.load(Relaxed) != 0 || MAKING.is_hopeless() {
        return None;
    }
    cold::section(make_or_wait)
}

#[cold]
#[inline(never)]
fn make_or_wait() -> Option<&'static Process> {
    if owner::is_anothers() {
        return None;
    }
    leave_parents();
    // Done without a process behind the gate: this is a forked child.
    let turn = MAKING.take_anew().ok();
    if let Some(process) = current() {
        // Whoever has made it was waited for, or taken the turn from.
        if let Some(turn) = turn {
            turn.done();
        }
        return Some(process);
    }
    // A handler on a small stack leaves it to whoever comes next, and so does who has no memory.
    let can_be = || FAILED.load(Relaxed) == 0 && !cold::has_less_stack(STACK) && has_memory();
    let turn = turn.filter(|_| can_be())?;
    // Before another copy refers to this one.
    image::prepare();
    if let Some(joined) = copies::join() {
        match joined {
            Some(_) => turn.done(),
            None => FAILED.store(copies::failure(), Relaxed),
        }
        return joined;
    }
    let gate = Gate::map();
    if let (Some(process), Ok(gate)) = (making::make(&gate), gate) {
        // A child that was forked meanwhile, and has come back into this, has no process.
        let is_ours = gate.is_ours();
        gate.keep();
        turn.done();
        return is_ours.then_some(process);
    }
    // Another thread may have taken the turn over, and been faster.
    current()
}

/// Puts private memory in the place of a parent's segment, if there is one in this
/// process: a copy of the parent's memory.
fn leave_parents() {
    // SAFETY: null, or a process that is never freed.
    let newest = unsafe { NEWEST.load(Acquire).as_ref() };
    if let Some(parents) = newest.filter(|process| !process.is_callers()) {
        switches::leave_parents();
        parents.detach();
    }
}

/// Whose segment was detached last. Once is enough, also for the children of children.
static DETACHED: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// In a forked child, before it comes back: whatever its thread was in the middle of, it
/// writes to its parent's segment no more. Only what signal handlers may do.
pub(super) extern "C" fn in_child() {
    errno::kept(|| {
        // None of the parent's threads is here.
        MAKING.forget(|_| true);
        switches::leave_parents();
        super::calibrate::forget();
        // A handler of another copy, or of the host, may have measured already.
        if current().is_some() {
            return;
        }
        // SAFETY: null, or a process that is never freed. Only the copy that made it has it.
        if let Some(parents) = unsafe { NEWEST.load(Acquire).as_ref() } {
            parents.detach();
        }
        thread::forget();
    });
}

/// Points of the parent this process was forked from keep their numbers.
fn enter_again(process: &'static Process) {
    // Variants after what they are variants of.
    for variants in [false, true] {
        let which = |point: &&Point| matches!(point.kind(), Kind::Variant { .. }) == variants;
        points().filter(which).for_each(|point| point.enter_again(process));
    }
}

/// For [`copies`]: the gate to the process, which is made if need be; null if it cannot be.
pub(super) extern "C" fn gate_for_followers() -> *mut AtomicPtr<Process> {
    get().map_or(ptr::null_mut(), |_| GATE.load(Acquire))
}

/// For [`copies`]: why there will be no process, however often it is asked for; 0 while
/// there may be one.
pub(super) extern "C" fn failure_here() -> u64 {
    FAILED.load(Relaxed)
}

/// For [`crate::init`].
pub(crate) fn init() -> Result<(), InitError> {
    get().map(drop).ok_or_else(failed::why_none)
}

/// For [`crate::ticks_per_second`].
pub(crate) fn ticks_per_second() -> f64 {
    match get() {
        Some(process) => process.refine_rate(),
        None => calibrate::refine(),
    }
    calibrate::ticks_per_second()
}

/// For [`copies`]: the process behind this gate becomes that of this copy too. False if
/// it was.
pub(super) extern "C" fn follow(gate: *mut AtomicPtr<Process>) -> bool {
    // Meets the loads in `current`, here and in the copy that made it.
    if GATE.swap(gate, AcqRel) == gate {
        return false;
    }
    if let Some(process) = current() {
        let missed = MISSED.swap(0, Relaxed);
        if process.settings.on_by_default {
            process.segment.ledger().begins_missed.fetch_add(missed, Relaxed);
        }
        enter_again(process);
    }
    true
}

pub(super) extern "C" fn at_process_exit() {
    // Those that follow leave it to the copy that made it.
    if let Some(process) = current().filter(|_| !copies::follows()) {
        cold::section(|| process.end());
    }
}

/// All points of this process.
pub(crate) fn points() -> impl Iterator<Item = &'static Point> {
    // SAFETY: the list holds statics only, and links are set before a point is
    // published in it.
    let at = |point: *mut Point| unsafe { point.as_ref() };
    std::iter::successors(at(POINTS.load(Acquire)), move |point| at(point.state.next.load(Acquire)))
}

/// The program's own points of these.
pub(crate) fn listed() -> impl Iterator<Item = &'static Point> {
    points().filter(|point| point.is_listed())
}

impl Process {
    /// Where another copy of pfp must expect what it uses.
    pub(super) const LAYOUT: [usize; 11] = [
        size_of::<Self>(),
        offset_of!(Self, pid),
        offset_of!(Self, exit_key),
        offset_of!(Self, lanes),
        offset_of!(Self, outdated),
        offset_of!(Self, no_space_until),
        offset_of!(Self, spare_block),
        offset_of!(Self, settings),
        offset_of!(Self, _inherited),
        offset_of!(Self, snapshot),
        offset_of!(Self, clearing),
    ];

    /// Whether regions are measured into it: not in a forked child.
    pub(crate) fn is_current(&self) -> bool {
        current().is_some_and(|process| ptr::eq(process, self))
    }

    /// Puts private memory in the place of the segment, in a forked child.
    fn detach(&self) {
        let this = ptr::from_ref(self).cast_mut();
        if DETACHED.swap(this, Relaxed) != this {
            self.segment.detach();
        }
    }

    /// Another thread has made the process meanwhile: nothing is left of this one but some of its
    /// memory, which others may look at.
    fn give_up(&self) {
        self.segment.unlink();
        let beacon = self.beacon.swap(ptr::null_mut(), Acquire);
        if !beacon.is_null() {
            // SAFETY: the box that was left there, taken by nobody else.
            let _ = unsafe { Box::from_raw(beacon) }.extinguish();
        }
        // What it has touched is given back.
        self.segment.detach();
    }

    /// What is left to do when the calling process ends in order.
    fn end(&self) {
        if !self.is_callers() {
            return;
        }
        self.segment.ledger().state.store(ProcessState::Exited as u64, Release);
        if let Some(path) = &self.snapshot {
            snapshot::write_at_exit(self, path);
        }
        // SAFETY: null, or the box that was left there, which is taken only below.
        let beacon = unsafe { self.beacon.load(Acquire).as_ref() };
        // Who watches all removes it after the last look.
        if beacon.is_some_and(Beacon::is_awaited) {
            return;
        }
        // What cannot be removed stays to be found.
        if self.is_current() && self.segment.unlink() {
            let beacon = self.beacon.swap(ptr::null_mut(), Acquire);
            if !beacon.is_null() {
                // SAFETY: the box that was left there, taken by nobody else.
                let _ = unsafe { Box::from_raw(beacon) }.remove();
            }
        }
    }

    /// Id of the process whose memory it is in.
    pub(super) fn pid(&self) -> libc::pid_t {
        self.pid
    }

    fn publish_rate(&self, ticks_per_second: f64) {
        let word = &self.segment.ledger().ticks_per_1000_s;
        word.store(making::thousand_seconds(ticks_per_second), Relaxed);
    }

    /// Makes the rate more exact, if enough time has passed for that to be
    /// worth it. Cold paths call this.
    pub(crate) fn refine_rate(&self) {
        calibrate::refine();
        self.publish_rate(calibrate::ticks_per_second());
    }

    /// Says which rung of the clock is in force, and what measuring costs on it:
    /// a rung has turned out not to work.
    pub(crate) fn take_rung(&self) {
        self.tell_rung();
        copies::calibrate();
    }

    /// The same, for whoever is in the middle of something: what measuring costs is
    /// left to the [next that is not](Self::catch_up).
    pub(crate) fn take_rung_later(&self) {
        self.tell_rung();
        self.outdated.store(true, Relaxed);
    }

    /// Measures what measuring costs, if that has changed.
    pub(crate) fn catch_up(&self) {
        if self.outdated.load(Relaxed) && self.outdated.swap(false, Relaxed) {
            copies::calibrate();
        }
    }

    fn tell_rung(&self) {
        let ledger = self.segment.ledger();
        ledger.clock_kind.store(clock::kind() as u64, Relaxed);
        ledger.system_clock.store(u64::from(counter::is_replaced()), Relaxed);
    }
}

/// For [`copies`]: measures what measuring costs in this copy.
pub(super) extern "C" fn calibrate_here() {
    super::calibrate::calibrate(CALIBRATION_PAIRS);
}

/// Counts a begin that could not be measured.
#[cold]
pub(crate) fn miss() {
    if let Some(process) = current() {
        process.segment.ledger().begins_missed.fetch_add(1, Relaxed);
    }
}

/// The same for one whose point could not be registered: a signal handler has
/// interrupted that, or the making of the process, on its own thread. Nobody can have
/// switched the point on or off by then.
#[cold]
pub(crate) fn miss_unregistered(point: &'static Point) {
    match current() {
        Some(process) if process.starts_on(point) => miss(),
        Some(_) => {}
        None if point.starts_on() && FAILED.load(Relaxed) == 0 => {
            MISSED.fetch_add(1, Relaxed);
        }
        None => {}
    }
}

/// A word of a refused point: off for good.
pub(crate) static REFUSED: AtomicU64 = AtomicU64::new(0);
