//! Begin and end: the hot path.
//!
//! A begin pushes a [`Region`] to the stack of the current context, and an end pops it. For
//! exclusive time the thread keeps one number that only grows, the ticks of all regions that have
//! ended (`covered`), those inside others counted once:
//!
//! ```text
//!            A begins        B begins      B ends           A ends
//! ticks      |----- own -----|=== B =======|------ own -----|
//! covered    c               c             c + B            c + A
//! recorded                                 B - 0            A - B
//! ```
//!
//! A signal handler may measure between any two instructions. It then changes what is covered,
//! which is read before and after each stamp: if it differs, the stamp is taken again. A
//! handler that comes before the region is pushed uses the same place of the stack, and that shows
//! in what is covered, too.
//!
//! What it costs is the longest chain of dependent instructions after the counter is read, so
//! everything that does not depend on it is done before, and everything rare leaves to
//! [`super::slow`].

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::control::Control;
use pfp_shm_layout::ring::What;

use super::copies::by_leader;
use super::facts::Offset;
use super::overhead::{self, overhead};
use super::region::{BY_HAND, End, Region};
use super::state::UNREGISTERED;
use super::thread::{Entry, Thread};
use super::{current, slow};
use crate::clock::{ThreadClock, ticks, ticks_or_stamp};
use crate::marker;
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

/// A region that a guard keeps the tag of.
pub(crate) const SCOPE: u64 = 0;
/// A region that is begun and ended by hand, and found by its point.
pub(crate) const HAND: u64 = BY_HAND;
/// A function that a compiler's hooks begin and end. Its hooks cost more than a scope: the region starts
/// later by that, and the region around is charged less.
pub(crate) const FUNCTION: u64 = 1;

/// Begins a region of a point that is on. Returns its tag; 0 if it is not measured.
#[inline(always)]
pub(crate) fn begin<const HOW: u64>(point: &'static Point, control: Control) -> u64 {
    match current::near() {
        Some(thread) => begin_in::<HOW>(thread, point, control),
        None => slow::begin_far::<HOW>(point),
    }
}

/// [`begin`] on the calling thread.
#[inline(always)]
pub(super) fn begin_in<const HOW: u64>(
    thread: &Thread,
    point: &'static Point,
    control: Control,
) -> u64 {
    // All before the test: in a forked child these read zero, and so does what is tested.
    let tag = thread.place();
    let offset = point.offset();
    let mut covered = thread.covered();
    if !thread.follows(offset, control) || thread.is_full(tag) {
        return slow::begin::<HOW>(point);
    }
    if HOW == FUNCTION {
        thread.cover(overhead().hooks_pair.load(Relaxed));
        covered = thread.covered();
    }
    let region = thread.region(tag);
    region.set_covered(covered);
    let open = thread.open_region(tag);
    open.name(offset.bytes(), thread.clock.off());
    region.set_inclusive(thread.entry_at(offset).total());
    region.set_point(point);
    region.open(tag);
    // The caller of what a signal handler measures from now on.
    thread.push();
    // Last, so that as little as possible of this is inside the region.
    let now = ticks();
    if !thread.has_covered(covered) || thread.clock.is_outdated(now) {
        return slow::begin_again::<HOW>(point);
    }
    let start = match HOW {
        FUNCTION => now.wrapping_add(overhead().hooks_inside.load(Relaxed)),
        _ => now,
    };
    open.begin(start);
    region.set_start(start);
    if HOW == HAND {
        region.mark_by_hand();
    }
    tag
}

/// Ends the region of a tag.
#[inline(never)]
pub(crate) fn end(tag: u64) {
    match current::near() {
        Some(thread) => end_in(thread, tag, ticks),
        None => end_far(tag),
    }
}

#[cold]
#[inline(never)]
fn end_far(tag: u64) {
    by_leader!(end(tag));
    match current::thread() {
        Some(thread) => end_in(thread, tag, ticks_or_stamp),
        None => slow::end_elsewhere(),
    }
}

#[inline(always)]
fn end_in(thread: &'static Thread, tag: u64, ticks: impl FnOnce() -> u64) {
    let covered = thread.covered();
    // As early as that: the counter is read when everything before it is done, and
    // what comes after it goes on side by side with what waits for the reading.
    let now = ticks();
    // A forked child finds no place: its pages are wiped.
    if !thread.is_in(tag) {
        return slow::end(tag, now, covered);
    }
    let region = thread.region(tag);
    // SAFETY: a region that is open has begun.
    let of = unsafe { region.point_of_open() }.offset();
    let end = End { now, covered };
    record::<false, SCOPE>(thread, region, tag, [of; 2], end, |marked, now| match marked {
        true => slow::end_marked(tag, now, covered),
        false => slow::end(tag, now, covered),
    });
}

/// Pops the region of a tag, which is innermost, and writes its record; else `slow` ends it, with
/// whether the thread is [marked](marker), and with the counter. The first is a constant at each
/// call, the second is computed anew: neither takes a register.
/// With `TURNED`, there is room for the record, and what that took was covered since. The record is
/// of the first point, and inclusive time is added up for the second, which is the region's own.
#[inline(always)]
pub(super) fn record<const TURNED: bool, const HOW: u64>(
    thread: &Thread,
    region: &Region,
    tag: u64,
    [of, total]: [Offset; 2],
    at: End,
    slow: impl FnOnce(bool, u64),
) {
    let End { now, covered } = at;
    let elapsed = region.elapsed(now);
    let now = || elapsed.wrapping_add(region.start());
    if ThreadClock::is_due_after(elapsed) {
        return slow(false, now());
    }
    let position = thread.position();
    let may_be_written = if TURNED { position.is_free() } else { position.is_in_page() };
    if !may_be_written {
        return slow(false, now());
    }
    // From here on signal handlers and other fibres leave the ring alone. If one has written a
    // record since the position was read, the position has moved; if one has measured since the
    // counter was read, it has covered something; a child that one forked finds nothing covered. In
    // all three cases, nothing may be written.
    let marker = &mut marker::new();
    if !thread.mark_at(position, marker::prepare(marker)) {
        return slow(false, now());
    }
    // Less what inner regions of the point have added. Read before the two questions below, which
    // show whether another fibre or a handler has added to it since.
    let inside = thread.less_total(total, region.inclusive());
    // The clock first: a handler that measures brings it up to date, and has covered something.
    if thread.clock.was_switched() || !thread.has_covered(covered) {
        return slow(true, now());
    }
    let slot = thread.slot_at(position);
    // Each figure goes where it belongs as soon as it is known, and words of the region are
    // looked at anew, so that few registers do.
    slot.fill_place(tag as u32);
    slot.fill_names(thread.open_at(tag).names(of.bytes()));
    slot.fill_times(region.start(), elapsed);
    let (net, span) = overhead::less_inside(elapsed);
    let inclusive = span.wrapping_add(inside);
    thread.add_to_total(total, inclusive);
    let own = region.plus_covered(net.wrapping_sub(covered));
    if HOW == HAND {
        region.close();
    }
    thread.pop();
    slot.fill_figures(own, inclusive);
    thread.cover(overhead::with_pair(own));
    thread.publish(position);
}

/// What a record says of a region of a tag beside its ticks.
pub(crate) fn what(thread: &Thread, point: &Point, tag: u64) -> What {
    What::at(point.offset().bytes(), thread.caller(tag), tag as u32)
}
