//! Begin and end: the hot path.
//!
//! Exclusive time needs no stack of frames and no last time stamp. The thread
//! keeps one number that only grows, the ticks of all regions that have ended
//! (`covered`), those inside others counted once:
//!
//! ```text
//!            A begins        B begins      B ends           A ends
//! ticks      |----- own -----|=== B =======|------ own -----|
//! covered    c               c             c + B            c + A
//! recorded                                 B - 0            A - B
//! ```
//!
//! A signal handler may measure between any two instructions. It then changes what is
//! covered, so each stamp stands between two readings of that: if they differ, the
//! stamp is taken again. A region that a jump leaves has changed nothing.
//!
//! What it costs is the longest chain of dependent instructions after the
//! counter is read, so everything that does not depend on it is done before, and
//! everything rare leaves by a door of its own.
//!
//! A region is noted in a [guard](super::guard), or by hand in a slot of its
//! [context](super::by_hand): [`Notes`] is what a begin writes there, [`Region`] what an end reads.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::Measurement;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::ring::What;

use super::current;
use super::facts::Offset;
use super::moment;
use super::overhead::{self, overhead};
use super::region::{Door, End, Notes, Region, RegionStart, not_below_zero};
use super::state::UNREGISTERED;
use super::thread::{Entry, Thread};
use crate::clock::{ThreadClock, fenced_ticks, ticks};
use crate::mark;
use crate::point::Point;

/// The calling thread and its entry of a point, if there is a cell that follows the
/// control word.
#[inline(always)]
pub(crate) fn ready(
    point: &'static Point,
    control: Control,
) -> Option<(&'static Thread, &'static Entry)> {
    let thread = current::thread()?;
    let offset = point.offset();
    if thread.follows(offset, control) { Some((thread, thread.entry_at(offset))) } else { None }
}

/// [`ready`] for a fenced point: no cell equals its word.
pub(crate) fn ready_fenced(point: &'static Point) -> Option<(&'static Thread, &'static Entry)> {
    let control = point.control();
    let is_fenced = control.fenced() && control.enabled() && control.0 != UNREGISTERED;
    if is_fenced { ready(point, control.sanitized()) } else { None }
}

/// Opens a region: the thread is in it from now on. The caller asks whether the
/// thread was switched out before that.
#[inline(always)]
pub(super) fn note(thread: &Thread, entry: &Entry, point: &Point) -> RegionStart {
    note_by(thread, entry, point, ticks)
}

#[inline(always)]
fn note_by(
    thread: &Thread,
    entry: &Entry,
    point: &Point,
    ticks: impl FnOnce() -> u64,
) -> RegionStart {
    let covered = thread.covered();
    let off = thread.clock.off();
    let switches = thread.clock.switches();
    let inclusive = entry.total();
    // Before it is inside, so that what a signal handler measures knows its caller.
    thread.open_region(thread.place.load(Relaxed)).name(point.offset().bytes(), off);
    thread.deepen();
    // Last, so that as little as possible of this is inside the region.
    let start = ticks();
    RegionStart { start, covered, off, switches, inclusive }
}

/// Whether what [`note`] noted does not belong together: a signal handler has measured
/// in between, this is a forked child, or the thread was switched out before.
#[inline(always)]
pub(super) fn must_note_again(thread: &Thread, begun: &RegionStart) -> bool {
    !thread.has_covered(begun.covered) || thread.clock.is_outdated(begun.start)
}

/// Shows that a region of a place is open.
#[inline(always)]
pub(super) fn show(thread: &Thread, place: u64, start: u64) {
    thread.open_region(place).begin(start);
}

/// Reads anew what [`note`] noted of a region of a place, and shows it.
#[inline(never)]
pub(super) fn note_late(thread: &Thread, entry: &Entry, place: u64, point: &Point) -> RegionStart {
    moment::note_long(thread, place, point, || entry.total())
}

/// Opens a region, after a switch too.
#[inline(always)]
pub(crate) fn begin_in(thread: &Thread, entry: &Entry, point: &Point) -> RegionStart {
    let begun = note(thread, entry, point);
    let place = thread.inner_place();
    if must_note_again(thread, &begun) {
        return note_late(thread, entry, place, point);
    }
    show(thread, place, begun.start);
    begun
}

/// The same with a stamp that waits for the work before.
pub(super) fn begin_fenced_in(thread: &Thread, entry: &Entry, point: &Point) -> RegionStart {
    // What the fences cost the region around.
    thread.cover(overhead().fence_pair.load(Relaxed));
    let mut begun = note_by(thread, entry, point, fenced_ticks);
    let place = thread.inner_place();
    if must_note_again(thread, &begun) {
        begun = note_late(thread, entry, place, point);
    } else {
        show(thread, place, begun.start);
    }
    begun.start = begun.start.wrapping_add(overhead().fence_inside.load(Relaxed));
    begun
}

/// Begins a region of a point, if the thread has a cell that follows its word. Returns the region's
/// tag, and the time and what was covered when it began. `None` if the begin must be repeated: the
/// clock is out of date, a signal handler has measured in between, or this is a forked child.
#[inline(always)]
pub(super) fn begin_noted(
    thread: &Thread,
    point: &'static Point,
    (offset, control): (Offset, Control),
    notes: &mut impl Notes,
) -> Option<(u64, Option<End>)> {
    // All before the test: in a forked child these read zero, and so does what is tested.
    let tag = thread.place.load(Relaxed);
    let level = thread.level();
    let covered = thread.covered();
    if !thread.follows(offset, control) {
        return None;
    }
    let open = thread.open_region_at(level);
    notes.point(point);
    notes.covered(covered);
    let off = thread.clock.off();
    open.name(offset.bytes(), off);
    notes.clock(off, thread.clock.switches());
    notes.inclusive(thread.entry_at(offset).total());
    // The caller of what a signal handler measures from now on.
    thread.deepen();
    // Last, so that as little as possible of this is inside the region.
    let now = ticks();
    if !thread.has_covered(covered) || thread.clock.is_outdated(now) {
        return Some((tag, None));
    }
    open.begin(now);
    notes.whole(now, tag);
    Some((tag, Some(End { now, covered })))
}

/// Ends a region on the short way, if it can be; else by `slow`, with whether the thread is
/// [marked](mark). That is a constant at each call, so it takes no register. With `TURNED`, there is
/// room for its record, and what that took was covered since. Amounts have no place in the ring: a
/// region that has some goes into its cell.
#[inline(always)]
pub(super) fn end_at<const TURNED: bool, R: Region>(
    region: &mut R,
    thread: &Thread,
    at: End,
    amounts: Option<&Amounts>,
    mut slow: impl FnMut(&mut R, Door, bool),
) {
    let End { now, covered } = at;
    let tag = region.tag();
    let point = region.point();
    let elapsed = now.wrapping_sub(region.start());
    let door = Door { elapsed, covered };
    // A forked child finds no place: its pages are wiped.
    if !thread.is_in(tag) {
        return slow(region, door, false);
    }
    if ThreadClock::is_due_after(elapsed) {
        return slow(region, door, false);
    }
    let position = thread.position();
    let may_be_written = match TURNED || amounts.is_some() {
        true => position.is_free(),
        false => position.is_in_page(),
    };
    if !may_be_written {
        return slow(region, door, false);
    }
    // From here on signal handlers and other fibres leave the ring alone. If one has written a
    // record since the position was read, the position has moved; if one has measured since the
    // counter was read, it has covered something; a child that one forked finds nothing covered. In
    // all three cases, nothing may be written.
    let mark = &mut mark::new();
    if !thread.mark_at(position, mark::prepare(mark)) {
        return slow(region, door, false);
    }
    let offset = point.offset();
    // Less what inner regions of the point have added. Read before the two questions below, which
    // show whether another fibre or a handler has added to it since.
    let inside = thread.less_total(offset, region.inclusive());
    // The clock first: a handler that measures brings it up to date, and has covered something.
    if thread.clock.was_switched() || !thread.has_covered(covered) {
        return slow(region, door, true);
    }
    let slot = thread.slot_at(position);
    // Each figure goes where it belongs as soon as it is known, and words of the region are
    // looked at anew, so that few registers do.
    if amounts.is_none() {
        slot.fill_place(tag as u32);
        slot.fill_names(thread.open_at(tag).names(offset.bytes()));
        slot.fill_times(region.start(), elapsed);
    }
    let (net, span) = overhead::less_inside(elapsed);
    let inclusive = span.wrapping_add(inside);
    thread.add_to_total(offset, inclusive);
    let own = net.wrapping_add(region.covered()).wrapping_sub(covered);
    if amounts.is_some() {
        let start = region.start();
        region.was_read();
        thread.rise();
        thread.cover(overhead::with_pair(own));
        let measured = Measurement { exclusive: not_below_zero(own), inclusive, away: None };
        let times = (start, elapsed, what(thread, point, tag));
        thread.record_counted(thread.entry_at(offset), measured, times, amounts);
        return thread.done();
    }
    region.was_read();
    thread.rise();
    slot.fill_figures(own, inclusive);
    thread.cover(overhead::with_pair(own));
    thread.publish(position);
}

/// What a record says of a region of a place beside its ticks.
#[inline(always)]
pub(crate) fn what(thread: &Thread, point: &Point, place: u64) -> What {
    What::at(point.offset().bytes(), thread.caller(place), place as u32)
}

/// Closes the innermost region, which has had `child` ticks of regions inside, for the
/// one around it.
#[inline(always)]
pub(crate) fn give_back(thread: &Thread, child: u64, net: u64) {
    thread.cover(net.wrapping_add(overhead().pair()).wrapping_sub(child));
    thread.rise();
}
