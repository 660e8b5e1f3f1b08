//! The slow path that makes the process, claims a lane, registers a point or makes a cell, or
//! reports that this is impossible now.
//!
//! A begin without a cell enters here, and so do callers that need the process, the calling
//! thread's lane, or a point's word.

use std::sync::atomic::AtomicU64;

use super::measure;
use super::process::entries::miss_unregistered;
use super::process::making;
use super::process::pausing::pause_latecomer;
use super::process::{self, Process};
use super::thread::{Entry, Thread, lane};
use super::{cold, owner, registry};
use crate::clock;
use crate::point::Point;

/// The process, made if needed. `None` if it cannot be made, or must not be made now.
pub(crate) fn process() -> Option<&'static Process> {
    making::get()
}

/// The calling thread's state, with a lane claimed if needed.
pub(crate) fn thread() -> Option<&'static Thread> {
    // Making the process runs the calibration, which claims a lane.
    lane::of(process()?)
}

/// The destination of a region of a point, on the calling thread.
pub(crate) enum Target {
    /// No destination: the point is off, or could not be registered.
    Off,
    /// Cannot measure now: the process is not made yet, the thread is claiming its lane, or memory
    /// ran out.
    Missing,
    /// A cell of the overflow lane, which the end of the region finds.
    Late(&'static Thread),
    /// A cell of the thread's own.
    Cell(&'static Thread, &'static Entry),
}

/// The destination of a region of a point, on the calling thread; creates what is missing. The
/// check whether the point is off comes first, because the control word of such a point may be 0,
/// and would then match the entries in a forked child's pages, which read 0.
pub(super) fn target(point: &'static Point) -> Target {
    let control = point.control();
    if !control.enabled() {
        return Target::Off;
    }
    match measure::ready(point, control) {
        Some((thread, entry)) => Target::Cell(thread, entry),
        None => self::point(point),
    }
}

/// Slow path of [`target`]: registers the point, claims a lane and prepares a cell that follows the
/// control word, so that a begin on the fast path can be tried again.
#[cold]
pub(crate) fn point(point: &'static Point) -> Target {
    if !point.register() {
        miss_unregistered(point);
        return Target::Off;
    }
    // The word is read once, because a viewer may switch the point off at any moment. Another
    // process may have set bits that must be 0, so these are cleared. No cell equals a word with
    // such bits, so each of the point's regions begins on this slow path.
    let control = point.control().sanitized();
    if !control.enabled() {
        return Target::Off;
    }
    // If the counter must not be read, no cell follows the point's word. The test is skipped then,
    // since a word that another process has forged could pass it.
    if !clock::is_forbidden()
        && let Some((thread, entry)) = measure::ready(point, control)
    {
        return Target::Cell(thread, entry);
    }
    let Some(process) = process::current() else { return Target::Missing };
    process.refine_rate();
    // If a handler has jumped out while the process was made, some inherited points are not entered
    // yet.
    registry::enter_inherited(process);
    let Some(thread) = lane::of(process) else { return Target::Missing };
    // A signal handler must not take space while its thread does. If the counter must not be read,
    // no cell ever follows a word, since the fast path of a begin would read the counter.
    if thread.overflows() || thread.is_busy() || clock::is_forbidden() {
        return Target::Late(thread);
    }
    thread.outdate();
    if thread.clock.refresh_and_verify(true).missed {
        process.take_source();
    }
    let Some(entry) = thread.busy(|| thread.ready_cell(process, point, control)) else {
        return Target::Late(thread);
    };
    entry.map_or(Target::Missing, |entry| Target::Cell(thread, entry))
}

/// Makes the calling thread's cell of a point, if the point's region began on another thread, in a
/// context that came from there.
pub(super) fn missing_cell(thread: &Thread, point: &'static Point) {
    if thread.cell(point).is_none() && !thread.overflows() && !thread.is_busy() {
        let _ = self::point(point);
    }
}

impl Point {
    /// The point's word, registered by this call if needed; `None` if the point was refused.
    pub(crate) fn word(&'static self) -> Option<&'static AtomicU64> {
        if !self.register() {
            return None;
        }
        self.known_word()
    }

    /// Enters the point into the process's table, once; false if this is not possible now.
    #[cold]
    pub(crate) fn register(&'static self) -> bool {
        let Some(process) = process() else { return false };
        if self.state.registering.is_done() {
            return true;
        }
        cold::section(|| self.register_in_section(process))
    }

    /// [`Self::register`] for a caller in a section. It enters no section of its own: if both
    /// sections began within 1 KiB of the stack, the inner one would take the outer one for a
    /// section that the thread has jumped out of.
    pub(crate) fn register_in_section(&'static self, process: &'static Process) -> bool {
        let tid = owner::tid();
        // A child that shares this process's memory must not take the lease, because threads of
        // this process would wait for it.
        let is_registered =
            process.is_callers_threads(tid) && self.register_under_lease(process, tid);
        if is_registered {
            pause_latecomer(self);
        }
        is_registered
    }
}

// The tests need a system, which Miri does not have.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::ptr;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::engine::process::entries::NotEntered;

    /// A child finds a point that a thread of its parent was registering: in one case not yet in
    /// the list, in the other already in it. The point must then be in the list once, and the list
    /// must end.
    #[test]
    fn what_another_has_begun_to_register_is_registered_once() {
        static EARLY: Point = Point::new("early");
        static LATE: Point = Point::new("late");
        let _one = crate::engine::oracle::one_at_a_time();
        assert!(LATE.register());
        for point in [&EARLY, &LATE] {
            point.state.registering.hold_as_dead_thread();
            assert!(point.register());
            assert!(point.number().is_some() && point.is_enabled());
            let same = |&found: &&Point| ptr::eq(found, point);
            assert_eq!(registry::all().take(1 << 16).filter(same).count(), 1);
        }
        assert!(registry::all().count() < 1 << 16);
    }

    /// One thread takes the last place of the table for a point. Another thread registers the same
    /// point and finds no place.
    #[test]
    fn who_finds_no_place_refuses_no_point_that_has_one() {
        static LAST: Point = Point::new("last");
        let _one = crate::engine::oracle::one_at_a_time();
        let process = super::process().expect("there is a segment");
        let found = LAST.state.control.load(Relaxed);
        assert!(LAST.register());
        assert!(LAST.lead_to(process, Err(NotEntered::NoPlace), found) && LAST.is_enabled());
        let found = LAST.state.control.load(Relaxed);
        assert!(LAST.lead_to(process, Err(NotEntered::NoPlace), found) && !LAST.is_enabled());
    }

    /// A thread that is stopped while it registers a point does not keep other threads from
    /// registering the point, and the point has one number and one name.
    #[test]
    fn who_has_waited_enough_registers_a_point_beside_a_thread_that_stands_still() {
        static SLOW: Point = Point::new("slow");
        let _one = crate::engine::oracle::one_at_a_time();
        let process = super::process().expect("there is a segment");
        let _lease = SLOW.state.registering.acquire().expect("nobody else registers it");
        let other = std::thread::spawn(|| {
            assert!(SLOW.register());
            SLOW.number().expect("it is registered")
        });
        let number = other.join().expect("it does not wait");
        // The stopped thread continues where it was stopped.
        let found = SLOW.state.control.load(Relaxed);
        assert!(SLOW.lead_to(process, SLOW.enter(process, None), found) && SLOW.is_enabled());
        assert_eq!(SLOW.number(), Some(number));
        let numbers = 0..process.segment.geometry().points();
        let entries = numbers.filter_map(|at| process.segment.entry(at)?.read());
        let is_slow = |entry: &pfp_shm_layout::point::EntryPicture| {
            let (offset, len) = (entry.name.offset as usize, entry.name.len as usize);
            process
                .segment
                .text(offset, len)
                .is_some_and(|text| text.iter().map(|byte| byte.load(Relaxed)).eq(*b"slow"))
        };
        assert_eq!(entries.filter(is_slow).count(), 1);
    }
}
