//! Begin and end: the hot path.
//!
//! A begin pushes a [`Region`] onto the stack of the current context, and an end pops it. To
//! compute exclusive time, the thread keeps one number that only grows: the covered ticks, which
//! are the ticks of all regions that have ended, where nested regions count once:
//!
//! ```text
//!            A begins        B begins      B ends           A ends
//! ticks      |----- own -----|=== B =======|------ own -----|
//! covered    c               c             c + B            c + A
//! recorded                                 B - 0            A - B
//! ```
//!
//! A signal handler may measure between any two instructions, which changes the covered ticks. So a
//! begin or end reads the covered ticks before and after its stamp, and takes the stamp again if
//! the two values differ. A handler that measures just before the push overwrites the region's
//! fields, since it uses the same slot of the stack; the same comparison detects this.
//!
//! The cost is the longest chain of dependent instructions after the counter is read. So everything
//! that does not depend on the counter is done before it is read, and rare cases are left to
//! [`super::slow`].

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::control::Control;
use pfp_shm_layout::ring::What;

use super::copies::by_leader;
use super::facts::Offset;
use super::overhead::{self, overhead};
use super::region::{ALLOCS, BY_HAND, End, FENCED, Region};
use super::state::UNREGISTERED;
use super::thread::{Entry, Thread};
use super::{current, slow};
use crate::clock::{ticks, ticks_or_stamp};
use crate::marker;
use crate::point::Point;

/// The calling thread and its entry of a point, if the thread has a cell that follows the control
/// word.
#[inline(always)]
pub(crate) fn ready(
    point: &'static Point,
    control: Control,
) -> Option<(&'static Thread, &'static Entry)> {
    let thread = current::thread()?;
    let offset = point.offset();
    if thread.follows(offset, control) { Some((thread, thread.entry_at(offset))) } else { None }
}

/// [`ready`] for a point that is fenced or counts allocations. Its cells follow the control word
/// without these flags, so the comparison in [`begin_in`] fails for each of its begins.
/// Also returns the flags in a region's tag.
pub(crate) fn ready_flagged(point: &'static Point) -> Option<(&'static Thread, u64)> {
    let control = point.control();
    let flags = flags_of(control);
    if flags == 0 || !control.enabled() || control.0 == UNREGISTERED {
        return None;
    }
    ready(point, control.sanitized()).map(|(thread, _)| (thread, flags))
}

/// The flags in the tags of a point's regions.
pub(super) fn flags_of(control: Control) -> u64 {
    let fenced = if control.fenced() { FENCED } else { 0 };
    let allocs = if control.counts_allocs() { ALLOCS } else { 0 };
    fenced | allocs
}

/// A region whose tag a guard stores.
pub(crate) const SCOPE: u64 = 0;
/// A region that is begun and ended by hand, and is found by its point.
pub(crate) const HAND: u64 = BY_HAND;
/// A function that a compiler's hooks begin and end. The hooks cost more than a scope, so the
/// region starts later by that cost, and less of it counts for the enclosing region.
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
    // All loads come before the test: if one of them reads a page that was wiped in a forked child,
    // the tested word is wiped, too.
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
    // From here on, regions of signal handlers are nested in this one.
    thread.push();
    // The counter is read last, so that as little as possible of this code is inside the region.
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
    // Read the counter early. The reading starts when the instructions before it are done, and
    // later instructions that do not need its result run in parallel with it.
    let now = ticks();
    // This fails in a forked child, whose pages are wiped.
    if !thread.is_in(tag) {
        return slow::end(tag, now, covered);
    }
    let region = thread.region(tag);
    // SAFETY: a region that is open has begun.
    let of = unsafe { region.point_of_open() }.offset();
    let end = End { now, covered };
    let slow = |marked, now| match marked {
        true => slow::end_marked(tag, now, covered),
        false => slow::end(tag, now, covered),
    };
    record::<false, SCOPE>(thread, region, tag, [of; 2], end, slow, || ());
}

/// Pops the innermost region, whose tag is `tag`, and writes its record. If that is impossible,
/// calls `slow` with whether the thread is [marked](marker), and with the counter. The former is a
/// constant at each call and the latter is computed again, so neither takes a register. Calls
/// `when_marked` while the thread is marked and nothing can fail any more. With `TURNED`,
/// [`Thread::turn_page`] has made room for the record, and `at` includes the ticks that
/// turning the page covered. The record is for the point `of`. Inclusive time is added to `total`,
/// the region's own point.
#[inline(always)]
pub(super) fn record<const TURNED: bool, const HOW: u64>(
    thread: &Thread,
    region: &Region,
    tag: u64,
    [of, total]: [Offset; 2],
    at: End,
    slow: impl FnOnce(bool, u64),
    when_marked: impl FnOnce(),
) {
    let End { now, covered } = at;
    let elapsed = region.elapsed(now);
    let now = || elapsed.wrapping_add(region.start());
    if thread.clock.is_due_after(elapsed) {
        return slow(false, now());
    }
    let position = thread.position();
    let may_be_written = if TURNED { position.is_free() } else { position.is_in_page() };
    if !may_be_written {
        return slow(false, now());
    }
    // From here on, signal handlers and other fibres do not use the ring. If one of them wrote a
    // record since the position was read, the position has moved. If one measured since the counter
    // was read, the covered ticks have changed. In a child that one of them forked, the covered
    // ticks are 0. In all three cases nothing may be written.
    let marker = &mut marker::new();
    if !thread.mark_at(position, marker::prepare(marker)) {
        return slow(false, now());
    }
    // Subtract the ticks that inner regions of the point have added to the point's total. The total
    // is read before the two tests below, because they show whether another fibre or a handler has
    // added to it since.
    let inside = thread.less_total(total, region.inclusive());
    // Test the clock first: a handler that measures updates it, and changes the covered ticks.
    if thread.clock.was_switched() || !thread.has_covered(covered) {
        return slow(true, now());
    }
    when_marked();
    let slot = thread.slot_at(position);
    // Each figure is stored as soon as it is known, and words of the region are loaded again, so
    // that few registers are in use.
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

/// The words of a region's record that are not ticks: its point, caller and place.
pub(crate) fn what(thread: &Thread, point: &Point, tag: u64) -> What {
    What::at(point.offset().bytes(), thread.caller(tag), tag as u32)
}
