//! Readings of a thread's clock off the hot path: the counter, and the values that belong to it.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use super::cold;
use super::overhead::overhead;
use super::process;
use super::region::{Begun, End, Region, RegionPart, ran_backwards};
use super::thread::Thread;
use crate::clock::{self, Stamps, fenced_ticks, ticks_or_stamp};
use crate::point::Point;

/// Maximum number of attempts to take a stamp while signal handlers interrupt.
pub(super) const STAMP_ATTEMPTS: u32 = 8;

/// The counter, and the state of the thread at the same moment.
#[derive(Clone, Copy)]
pub(super) struct ClockReading {
    pub(super) now: u64,
    pub(super) covered: u64,
    pub(super) off: u64,
    pub(super) switches: u64,
}

impl Thread {
    /// Reads the counter, and updates the clock after a switch.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp_after(ticks_or_stamp())
    }

    /// A stamp for the program's own use. If the clock changes, this marks it as disturbed, so that
    /// a begin or end that a signal handler has interrupted reads the clock again.
    #[inline(always)]
    pub(crate) fn stamp_beside(&self) -> u64 {
        self.stamp_beside_after(ticks_or_stamp())
    }

    /// Like [`Self::stamp_beside`], with the given value of the counter.
    #[inline(always)]
    pub(crate) fn stamp_beside_after(&self, now: u64) -> u64 {
        if !self.clock.is_outdated(now) {
            return now;
        }
        let now = self.stamp_anew();
        self.clock.disturb();
        now
    }

    /// Reads the clock and calls `read`, and repeats both if a signal handler measured in between.
    /// `at` replaces the first reading of the counter, if no handler has measured since.
    pub(super) fn read_clock<R>(
        &self,
        mut at: Option<End>,
        mut read: impl FnMut() -> R,
    ) -> (ClockReading, R) {
        for tried in 1.. {
            let End { now, covered } = at.take().unwrap_or_else(|| {
                let covered = self.covered();
                End { now: ticks_or_stamp(), covered }
            });
            compiler_fence(SeqCst);
            let now = self.stamp_after(now);
            let (off, switches) = (self.clock.off(), self.clock.switches());
            let found = read();
            compiler_fence(SeqCst);
            let holds = self.covered() == covered && !self.clock.is_disturbed();
            if holds || tried == STAMP_ATTEMPTS {
                return (ClockReading { now, covered, off, switches }, found);
            }
        }
        unreachable!("it returns when all tries are over")
    }

    /// The clock of the current context minus the covered ticks. It does not advance while the
    /// thread is switched out, or while a handler measures.
    pub(super) fn uncovered_ticks(&self) -> u64 {
        let (reading, ()) = self.read_clock(None, || ());
        reading.now.wrapping_sub(reading.off).wrapping_sub(reading.covered)
    }

    /// The stamp of an end that has already read the counter as `now`.
    #[inline]
    fn stamp_after(&self, now: u64) -> u64 {
        if !self.clock.is_outdated(now) {
            return now;
        }
        self.stamp_anew()
    }

    /// Updates the clock, which is outdated, and returns the stamp.
    #[inline]
    fn stamp_anew(&self) -> u64 {
        let stamps = self.refresh();
        self.publish_switches();
        stamps.early
    }

    /// The stamp of a begin on the slow path.
    fn stamp_late(&self, stamp: Stamp) -> u64 {
        let now = stamp.take();
        if !self.clock.is_outdated(now) {
            return now;
        }
        // Before the stamp, so that the region does not contain the time that this takes.
        self.note_usage(now);
        self.refresh().late
    }

    /// Updates the clock. Counts an anomaly if the counter went astray, or if the clock source
    /// missed a switch.
    #[inline(always)]
    fn refresh(&self) -> Stamps {
        cold::put_right();
        self.outdate();
        let stamps = self.clock.refresh();
        self.note_usage(stamps.early);
        if stamps.astray || stamps.missed {
            self.note_anomaly();
        }
        if stamps.missed
            && let Some(process) = process::current()
        {
            process.take_source_later();
        }
        stamps
    }

    /// Counts an anomaly: the counter has decreased, stood still or jumped.
    fn note_anomaly(&self) {
        self.count(|counters| &counters.anomalies);
        if clock::doubt()
            && let Some(process) = process::current()
        {
            process.take_source_later();
        }
    }

    /// The part of the time between a region's begin and a reading that belongs to the region.
    pub(super) fn part(&self, begun: &Begun, at: ClockReading) -> RegionPart {
        let elapsed = at.now.wrapping_sub(begun.start);
        if ran_backwards(elapsed) {
            self.note_anomaly();
        }
        // The clock notices time that was lost without a switch, such as to a hypervisor, up to a
        // millisecond late. If the lost time is longer than this region, the difference is negative
        // although the counter advanced. The remainder is then subtracted from the enclosing
        // region, and shortens its span.
        let off = at.off.wrapping_sub(begun.off);
        let raw = (elapsed.wrapping_sub(off) as i64).max(0) as u64;
        RegionPart {
            net: raw.wrapping_sub(overhead().inside()),
            child: at.covered.wrapping_sub(begun.covered),
            // The difference is negative if the counter ran backwards.
            off: (off as i64).max(0) as u64,
            switches: clock::switches_between(begun.switches, at.switches),
        }
    }
}

/// Whether the stamp is fenced, so that it waits for the work before it.
#[derive(Clone, Copy)]
pub(super) enum Stamp {
    Plain,
    Fenced,
}

impl Stamp {
    fn take(self) -> u64 {
        match self {
            Self::Fenced if !clock::is_forbidden() => fenced_ticks(),
            _ => ticks_or_stamp(),
        }
    }
}

/// Stores the state at the begin of the region that was pushed last, and publishes the region as
/// open. Returns the tag that `of_place` makes of the region's place. `None` in a forked child,
/// whose place is wiped.
pub(super) fn note(
    thread: &Thread,
    point: &Point,
    region: &Region,
    stamp: Stamp,
    of_place: impl Fn(u64) -> u64,
) -> Option<u64> {
    let entry = thread.entry(point);
    for tried in 1.. {
        let covered = thread.covered();
        compiler_fence(SeqCst);
        let start = thread.stamp_late(stamp);
        let place = thread.last_place()?;
        // From now on, any change of the clock stores the previous state in this region first.
        region.open(of_place(place));
        let off = thread.clock.off();
        // The state is stored before the checks, so that another fibre that runs after the checks
        // finds the region complete.
        region.set_start(start);
        region.set_covered(covered);
        region.set_inclusive(entry.total());
        compiler_fence(SeqCst);
        let holds = thread.covered() == covered && !thread.clock.is_disturbed();
        if holds || tried == STAMP_ATTEMPTS {
            if thread.calls().is_some() {
                let open = thread.open_region(place);
                open.name(point.offset().bytes(), off);
                open.begin(start);
            }
            return Some(of_place(place));
        }
    }
    unreachable!("it returns when all tries are over")
}

/// Reads the counter for the end of a region of a fenced point.
pub(super) fn fenced_end(thread: &Thread) -> End {
    let covered = thread.covered();
    compiler_fence(SeqCst);
    End { now: Stamp::Fenced.take(), covered }
}

/// Calls [`Thread::turn_page`] for the record of a region. Excludes from the region the ticks that
/// are covered during the call, and the ticks that are added to its point's inclusive total. Both
/// include a handler's ticks. Returns the covered ticks.
///
/// `None` if the stack has no room, the page cannot be turned, or handlers measured during each
/// try.
pub(super) fn turn_page(thread: &Thread, region: &Region, point: &Point) -> Option<u64> {
    if !thread.has_room() {
        return None;
    }
    let entry = thread.entry_at(point.offset());
    // Reads the covered ticks and the added ticks at one moment. The place differs if another fibre
    // has run in between.
    let read = || {
        (0..STAMP_ATTEMPTS).find_map(|_| {
            let (place, covered) = (thread.place(), thread.covered());
            compiler_fence(SeqCst);
            let added = entry.total().wrapping_sub(region.inclusive());
            compiler_fence(SeqCst);
            let holds = thread.has_covered(covered) && thread.place() == place;
            holds.then_some((covered, added))
        })
    };
    let (covered, added) = read().filter(|_| thread.turn_page())?;
    let (now_covered, now_added) = read()?;
    let took = now_covered.wrapping_sub(covered);
    region.leave_out(took, now_added.wrapping_sub(added));
    Some(took)
}
