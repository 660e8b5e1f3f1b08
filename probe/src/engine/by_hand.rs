//! Regions that are begun and ended by hand: an end finds its region by the point.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::{Change, Control};

use super::busy;
use super::copies::{self, by_leader};
use super::current;
use super::measure::{self, HAND};
use super::region::{BY_HAND, End, IS_PLACE, Region, level_of};
use super::slow::{Extra, FLAGS, end_region, end_turned, is_recorded};
use super::thread::Thread;
use crate::clock::{ticks, ticks_or_stamp};
use crate::engine::metered::MeteredPoint;
use crate::point::Point;

/// Begins a region of a point.
#[inline(never)]
pub(crate) fn begin(point: &'static Point) {
    let control = point.control();
    if control.enabled() {
        measure::begin::<HAND>(point, control);
    }
}

/// Like [`begin`], but by the rule of the numeric interface: a point that is open already is
/// switched off as invalid.
#[inline(never)]
pub(crate) fn begin_once(point: &'static Point) {
    let control = point.control();
    if !control.enabled() {
        return;
    }
    let Some(thread) = current::near() else { return begin_once_far(point, control) };
    match thread.innermost(point) {
        Some(region) => invalidate(thread, point, region),
        None => _ = measure::begin_in::<HAND>(thread, point, control),
    }
}

#[cold]
#[inline(never)]
fn begin_once_far(point: &'static Point, control: Control) {
    let thread = current::thread();
    if thread.is_none() {
        by_leader!(begin_once(point));
    }
    match thread.and_then(|thread| Some((thread, thread.innermost(point)?))) {
        Some((thread, region)) => invalidate(thread, point, region),
        None => _ = measure::begin::<HAND>(point, control),
    }
}

/// Like [`begin`]. Returns the stamp at which the region began, if the region is measured.
pub(crate) fn begin_returning_stamp(point: &'static Point) -> Option<u64> {
    begin(point);
    match current::thread() {
        Some(_) => start(point),
        None => Some(copies::followed()?.start(point)).filter(|&ticks| ticks != 0),
    }
}

/// The stamp at which the innermost region of a point began.
pub(super) fn start(point: &Point) -> Option<u64> {
    current::thread()?.innermost(point).map(Region::start)
}

#[cold]
fn invalidate(thread: &Thread, point: &'static Point, region: &Region) {
    point.change(Change::Invalidate);
    thread.abandon_from(level_of(region.tag()));
    thread.show_end(ticks_or_stamp());
}

/// Ends the innermost region of a point. Without an open region it does nothing.
#[inline(never)]
pub(crate) fn end(point: &'static Point) {
    match current::near() {
        Some(thread) => end_in(thread, point, ticks),
        None => end_far(point),
    }
}

#[cold]
#[inline(never)]
fn end_far(point: &'static Point) {
    by_leader!(end_by_hand(point));
    if let Some(thread) = current::thread() {
        end_in(thread, point, ticks_or_stamp);
    }
}

#[inline(always)]
fn end_in(thread: &'static Thread, point: &'static Point, ticks: impl FnOnce() -> u64) {
    let end = stamp_by(thread, ticks);
    let End { now, covered } = end;
    let tag = thread.inner_place();
    // If no region is open, the level in `tag` has wrapped to the highest one, for which no stack
    // has room.
    if thread.is_full(tag) {
        return;
    }
    let region = thread.region(tag);
    if !region.is_by_hand(tag) || !region.is_of(point) {
        return end_slow(point, now, covered);
    }
    let of = [point.offset(); 2];
    let slow = |marked, now| match marked {
        true => end_marked(point, now, covered),
        false => end_slow(point, now, covered),
    };
    measure::record::<false, HAND>(thread, region, tag, of, end, slow, || ());
}

/// Like [`end`]. Returns the stamp at which the region ended.
pub(crate) fn end_returning_stamp(point: &'static Point) -> Option<u64> {
    let Some(thread) = current::thread() else {
        return Some(copies::followed()?.end_returning_stamp(point)).filter(|&ticks| ticks != 0);
    };
    let region = thread.innermost(point)?;
    let end = stamp(thread);
    end_region(thread, region, end, Extra::default())
}

/// The counter, and the covered ticks just before the counter was read.
#[inline(always)]
fn stamp(thread: &Thread) -> End {
    stamp_by(thread, ticks_or_stamp)
}

#[inline(always)]
fn stamp_by(thread: &Thread, ticks: impl FnOnce() -> u64) -> End {
    let covered = thread.covered();
    let end = End { now: ticks(), covered };
    compiler_fence(SeqCst);
    end
}

/// Slow path of an end: the region may be further out, or no region is open. The arguments stay in
/// the registers that they are in.
#[cold]
#[inline(never)]
fn end_slow(point: &'static Point, now: u64, covered: u64) {
    end_of(point, End { now, covered }, false);
}

/// [`end_slow`] on a thread that has set its marker.
#[cold]
#[inline(never)]
fn end_marked(point: &'static Point, now: u64, covered: u64) {
    end_of(point, End { now, covered }, true);
}

fn end_of(point: &'static Point, end: End, marked: bool) {
    let Some(thread) = current::thread() else { return };
    busy::unmark(thread, marked);
    if thread.is_alive()
        && let Some(region) = thread.innermost(point)
    {
        end_region(thread, region, end, Extra::default());
    }
}

/// Ends the innermost region of a point, and latches what it measured; see [`Point::end_latched`].
#[cold]
pub(crate) fn end_latched(point: &'static Point) {
    by_leader!(end_latched(point));
    let Some(thread) = current::thread().filter(|thread| thread.is_alive()) else { return };
    let Some(region) = thread.innermost(point) else { return };
    let extra = Extra { latch: true, amounts: None };
    end_region(thread, region, stamp(thread), extra);
}

/// Ends the innermost region of a point with amounts: on the fast path, if their tuple is known.
pub(crate) fn end_with(metered: &'static MeteredPoint, latch: bool, amounts: &Amounts) {
    let Some(thread) = current::thread().filter(|thread| thread.is_alive()) else {
        return end_far_with(metered, latch, amounts);
    };
    let Some(region) = thread.innermost(metered.point()) else { return };
    let end = stamp(thread);
    let end = match metered.find(amounts) {
        Some(tuple) if !latch => match end_as(thread, region, [tuple, metered.point()], end) {
            Ok(()) => return,
            Err(later) => later,
        },
        _ => end,
    };
    end_region(thread, region, end, Extra { latch, amounts: Some(amounts) });
}

#[cold]
fn end_far_with(metered: &'static MeteredPoint, latch: bool, amounts: &Amounts) {
    if let Some(leader) = copies::followed() {
        leader.end_with(metered.point(), latch, amounts);
    }
}

/// Ends a region of a metered point on the fast path, as a region of a tuple. `Err` has the stamp,
/// for the slow path.
#[inline(always)]
fn end_as(
    thread: &Thread,
    region: &Region,
    [tuple, metered]: [&'static Point; 2],
    end: End,
) -> Result<(), End> {
    let of = [tuple, metered].map(Point::offset);
    // The thread's cells of the tuple and of the metered point must follow the same control word,
    // so that the region counts in one window.
    let [follows, as_it] = of.map(|offset| thread.entry_at(offset).follows());
    let tag = region.tag() & !BY_HAND;
    if follows != as_it || tag & (IS_PLACE | FLAGS) != IS_PLACE {
        return Err(end);
    }
    if is_recorded::<false>(thread, region, tag, of, end) {
        return Ok(());
    }
    end_turned(thread, region, [tuple, metered], end)
}
