//! Regions that are begun and ended by hand: their context keeps them in the meantime.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::{Change, Control};

use super::busy;
use super::ending::fenced_end;
use super::finish::{Ending, Inclusive, finish};
use super::guard::Guard;
use super::measure::{self, Begun, Door, End, Region, begin_noted, end_at};
use super::moment::{Moment, TRIES, note_long};
use super::regions::{Regions, Slot};
use super::thread::{self, FENCED, IS_PLACE, LEVEL, LEVELS, Thread};
use crate::clock::ticks;
use crate::mark;
use crate::point::Point;
use crate::timed::Timed;

/// Begins a region that the context keeps.
#[inline(never)]
pub(crate) fn begin(point: &'static Point) {
    begin_in(point, false);
}

/// As [`begin`], but a point that is open already is switched off as invalid: the numeric
/// interface's rule.
#[inline(never)]
pub(crate) fn begin_once(point: &'static Point) {
    begin_in(point, true);
}

/// Begins a region that the context keeps, and returns when it began, if it is measured.
#[inline(always)]
pub(crate) fn begin_in(point: &'static Point, once: bool) -> Option<u64> {
    let control = point.control();
    if !control.enabled() {
        return None;
    }
    let Some(thread) = thread::current() else { return begin_slow(point, once) };
    let (offset, regions) = (point.offset(), thread.regions());
    if !thread.follows(offset, control) {
        return begin_slow(point, once);
    }
    let at = regions.open.load(Relaxed) as usize;
    let Some(slot) = regions.slots.get(at) else { return begin_slow(point, once) };
    if once && regions.is_around(at, point) {
        return begin_slow(point, once);
    }
    match begin_noted(thread, point, offset, slot) {
        (tag, Some(begun)) => Some(keep(thread, at, point, tag, begun)),
        (tag, None) => begin_late(thread, at, point, tag),
    }
}

#[cold]
#[inline(never)]
fn begin_late(thread: &Thread, at: usize, point: &'static Point, tag: u64) -> Option<u64> {
    let begun = begin_again(thread, &thread.regions().slots[at], point, tag);
    Some(keep(thread, at, point, tag, begun))
}

/// Begins a region by hand where something is not there yet, or has changed, or is unusual.
#[cold]
#[inline(never)]
fn begin_slow(point: &'static Point, once: bool) -> Option<u64> {
    if once
        && let Some(thread) = thread::current()
        && let Some(at) = thread.regions().innermost(point)
    {
        invalidate(thread, point, at);
        return None;
    }
    let guard = ManuallyDrop::new(Guard::begin_slow(point));
    // Else it is off, or kept already.
    let begun = guard.begun()?;
    keep_noted(thread::current()?, point, guard.place(), begun, None)
}

/// Notes a region among those of the context, and returns when it began; none if there is no room.
/// Its control word is noted if its cell is only known at the end.
fn keep_noted(
    thread: &Thread,
    point: &'static Point,
    tag: u64,
    begun: &Begun,
    control: Option<Control>,
) -> Option<u64> {
    let regions = thread.regions();
    let at = regions.open.load(Relaxed) as usize;
    let Some(slot) = regions.slots.get(at) else {
        refuse(thread);
        return None;
    };
    let keep_control = || control.map(|control| slot.kept.store(control.0, Relaxed));
    slot.fill(point, tag, begun);
    keep_control();
    compiler_fence(SeqCst);
    let mut end = End { now: begun.start, covered: begun.covered };
    // A handler that came until here did not see the region: it is not inside.
    if measure::must_note_again(thread, begun) {
        end = begin_again(thread, slot, point, tag);
    } else if control.is_none() {
        // It has a cell, and so its thread has room to show it.
        measure::show(thread, tag, begun.start);
    }
    regions.open.store(at as u64 + 1, Relaxed);
    // A later handler was inside; an earlier one may have used the slot.
    if !thread.has_covered(end.covered) && !slot.is_of(point, end.now) {
        end = begin_again(thread, slot, point, tag);
        keep_control();
    }
    Some(end.now)
}

/// Opens a region that its slot has, and returns when it began.
#[inline(always)]
fn keep(thread: &Thread, at: usize, point: &'static Point, tag: u64, begun: End) -> u64 {
    // One store, so that whoever jumps out has opened all of it or nothing.
    thread.regions().open.store(at as u64 + 1, Relaxed);
    if !thread.has_covered(begun.covered) {
        return keep_again(thread, at, point, tag);
    }
    begun.now
}

/// A handler has come meanwhile. It may have had the slot while that was being filled, so the
/// region begins now.
#[cold]
#[inline(never)]
fn keep_again(thread: &Thread, at: usize, point: &'static Point, tag: u64) -> u64 {
    begin_again(thread, &thread.regions().slots[at], point, tag).now
}

/// Begins a region anew in its slot, since a signal handler has measured in between or the clock is
/// old.
#[cold]
fn begin_again(thread: &Thread, slot: &Slot, point: &'static Point, tag: u64) -> End {
    let total = || thread.entry(point.index()).total();
    for tried in 1.. {
        let begun = note_long(thread, tag & !FENCED, point, total);
        slot.fill(point, tag, &begun);
        compiler_fence(SeqCst);
        if thread.covered() == begun.covered || tried == TRIES {
            return End { now: begun.start, covered: begun.covered };
        }
    }
    unreachable!("it returns when all tries are over")
}

/// Undoes a begin for which there is no room.
#[cold]
fn refuse(thread: &Thread) {
    thread.rise();
    // The clock may have been read for it.
    thread.clock.disturb();
    thread.show_end(ticks());
    thread.count(|tally| &tally.refused);
}

#[cold]
fn invalidate(thread: &Thread, point: &'static Point, at: usize) {
    point.change(Change::Invalidate);
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let (begun, place) = (slot.begun(), slot.place.load(Relaxed));
    let now = ticks();
    thread.give_up_since(&begun, now);
    regions.give_up(at);
    thread.set_level(place);
    thread.show_end(now);
}

/// Begins a region on the long way: the thread has no lane of its own, or is
/// interrupted in the middle of something, or its cell is only known at the end. False
/// if there is no room for it.
pub(crate) fn begin_kept(thread: &Thread, point: &'static Point) -> bool {
    thread.deepen();
    let place = thread.inner_place();
    let begun = note_long(thread, place, point, || thread.entry(point.index()).total());
    // It was on just now.
    let control = point.control().meant().with(Change::Enable);
    // Its tag is no place, so that it ends on the long way, too.
    keep_noted(thread, point, place & !IS_PLACE, &begun, Some(control)).is_some()
}

/// A region that its context has, as it ends on the short way.
struct Held<'a> {
    regions: &'a Regions,
    at: usize,
    slot: &'a Slot,
    tag: u64,
    /// Where it is recorded, and what was noted of the inclusive total there.
    point: &'static Point,
    inclusive: u64,
    mark: &'a mut MaybeUninit<u64>,
}

impl Region for Held<'_> {
    #[inline(always)]
    fn tag(&self) -> u64 {
        self.tag
    }

    #[inline(always)]
    fn point(&self) -> &'static Point {
        self.point
    }

    #[inline(always)]
    fn start(&self) -> u64 {
        self.slot.start.load(Relaxed)
    }

    #[inline(always)]
    fn covered(&self) -> u64 {
        self.slot.covered.load(Relaxed)
    }

    #[inline(always)]
    fn inclusive(&self) -> u64 {
        self.inclusive
    }

    #[inline(always)]
    fn prepare_mark(&mut self) -> u64 {
        mark::prepare(self.mark)
    }

    #[inline(always)]
    fn drop_mark(&mut self, _: u64) {}

    /// From now on a handler may have the slot.
    #[inline(always)]
    fn was_read(&mut self) {
        compiler_fence(SeqCst);
        self.regions.open.store(self.at as u64, Relaxed);
    }
}

/// Ends the innermost region of a point that was begun by hand. Without one it does nothing.
#[inline(never)]
pub(crate) fn end(point: &'static Point) {
    end_by(point, |thread, at, Door { elapsed, covered, marked }| {
        end_slow(thread, point, at, elapsed, covered, marked);
    });
}

/// The same, and returns when it ended.
pub(crate) fn end_told(point: &'static Point) -> Option<u64> {
    let mut ended = None;
    let at = end_by(point, |thread, at, door| {
        ended = end_turned(thread, point, at, point, None, door);
    });
    ended.or(at)
}

/// Ends it on the short way, if it can be, else by `slow`. Returns when that was asked for.
#[inline(always)]
fn end_by(
    point: &'static Point,
    mut slow: impl FnMut(&'static Thread, usize, Door),
) -> Option<u64> {
    let thread = thread::current()?;
    let regions = thread.regions();
    // Nothing is open where all points are off.
    let at = (regions.open.load(Relaxed) as usize).checked_sub(1)?;
    let Some(slot) = regions.slots.get(at).filter(|slot| slot.has(point)) else {
        return end_further_out(thread, point);
    };
    let end = stamp(thread);
    let (tag, inclusive) = (slot.place.load(Relaxed), slot.inclusive.load(Relaxed));
    let mut held = Held { regions, at, slot, tag, point, inclusive, mark: &mut mark::new() };
    end_at::<false, _>(&mut held, thread, end, None, |_, door| slow(thread, at, door));
    Some(end.now)
}

/// The counter, and what was covered before that.
#[inline(always)]
fn stamp(thread: &Thread) -> End {
    let covered = thread.covered();
    let end = End { now: ticks(), covered };
    compiler_fence(SeqCst);
    end
}

/// Regions inside the one that ends were not ended, or there is none.
#[cold]
#[inline(never)]
fn end_further_out(thread: &Thread, point: &'static Point) -> Option<u64> {
    let at = thread.regions().innermost(point)?;
    let end = stamp(thread);
    end_long(thread, point, &Long::of(thread, point, at), end)
}

/// The door out of an end by hand.
#[cold]
#[inline(never)]
fn end_slow(
    thread: &Thread,
    point: &'static Point,
    at: usize,
    elapsed: u64,
    covered: u64,
    marked: u64,
) {
    let door = Door { elapsed, covered, marked };
    end_turned(thread, point, at, point, None, door);
}

/// Ends a region as a guard would if only a page must be turned for it; else on the long way.
fn end_turned(
    thread: &Thread,
    point: &'static Point,
    at: usize,
    recorded: &'static Point,
    amounts: Option<&Amounts>,
    Door { elapsed, covered, marked }: Door,
) -> Option<u64> {
    if marked != 0 && thread.is_alive() {
        busy::unmark(thread);
    }
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let mut long = Long { amounts, ..Long::of(thread, point, at) };
    let start = long.begun.start;
    let end = End { now: start.wrapping_add(elapsed), covered };
    let (mut place, mut begun) = (long.place, long.begun);
    if !ptr::eq(recorded, point) {
        place |= IS_PLACE;
        begun.inclusive = thread.entry(recorded.index()).total();
    }
    if place & IS_PLACE == 0 {
        return end_long(thread, point, &long, end);
    }
    let mut guard = ManuallyDrop::new(Guard::of(recorded, place, begun));
    // As at the end of its short way: whoever jumps out leaves it.
    regions.open.store(at as u64, Relaxed);
    let Err(later) = guard.end_turned(thread, end) else { return Some(end.now) };
    // Open again, unless a handler has had its slot since.
    if regions.open.load(Relaxed) == at as u64 && slot.is_of(point, start) {
        regions.open.store(at as u64 + 1, Relaxed);
    }
    long.is_open = slot.is_of(point, start);
    long.begun = *guard.begun()?;
    end_long(thread, point, &long, later)
}

/// Ends the innermost region of a point, but keeps what it measured; see [`Point::end_latched`].
pub(crate) fn end_latched(point: &'static Point) {
    end_long_now(point, true, None);
}

/// Ends the innermost region of a point with amounts, which the region has.
#[inline]
pub(crate) fn end_with(timed: &'static Timed, latch: bool, amounts: &Amounts) {
    if latch || end_variant(timed, amounts).is_none() {
        end_long_now(timed.point(), latch, Some(amounts));
    }
}

/// Ends it on the short way of its variant, if that is known; none if it is not, or there is none.
#[inline]
fn end_variant(timed: &'static Timed, amounts: &Amounts) -> Option<u64> {
    let (thread, point) = (thread::current()?, timed.point());
    let regions = thread.regions();
    let at = (regions.open.load(Relaxed) as usize).checked_sub(1)?;
    let slot = regions.slots.get(at).filter(|slot| slot.has(point))?;
    let end = stamp(thread);
    let (variant, false) = timed.known(amounts)? else { return None };
    let entry = thread.entry(variant.index());
    // Else it has not followed the point since the region began.
    if entry.follows().0 != slot.kept.load(Relaxed) || regions.is_around(at, point) {
        return None;
    }
    // It drops nothing of what regions inside have added: none of them is of the point.
    let (tag, inclusive) = (slot.place.load(Relaxed) | IS_PLACE, entry.total());
    let mark = &mut mark::new();
    let mut held = Held { regions, at, slot, tag, point: variant, inclusive, mark };
    let mut door = None;
    end_at::<false, _>(&mut held, thread, end, None, |_, found| door = Some(found));
    match door {
        None => Some(end.now),
        Some(door) => end_turned(thread, point, at, variant, Some(amounts), door),
    }
}

/// Ends a region of a guard that the context keeps; with amounts if its cell sums those.
pub(super) fn end_kept(point: &'static Point, amounts: Option<&Amounts>) {
    end_long_now(point, false, amounts);
}

/// Ends the innermost region of a point, if there is one, on the long way.
#[cold]
fn end_long_now(point: &'static Point, latch: bool, amounts: Option<&Amounts>) {
    let Some(thread) = thread::current() else { return };
    let Some(at) = thread.regions().innermost(point) else { return };
    let end = stamp(thread);
    end_long(thread, point, &Long { latch, amounts, ..Long::of(thread, point, at) }, end);
}

/// A region that its context has, as it ends on the long way.
struct Long<'a> {
    at: usize,
    begun: Begun,
    place: u64,
    /// Unless a handler has had its slot since it began to end.
    is_open: bool,
    latch: bool,
    amounts: Option<&'a Amounts>,
}

impl Long<'_> {
    fn of(thread: &Thread, point: &Point, at: usize) -> Self {
        let slot = &thread.regions().slots[at];
        let (begun, place) = (slot.begun(), slot.place.load(Relaxed));
        let is_open = slot.is_of(point, begun.start);
        Self { at, begun, place, is_open, latch: false, amounts: None }
    }
}

#[cold]
fn end_long(thread: &Thread, point: &'static Point, long: &Long<'_>, end: End) -> Option<u64> {
    if !thread.is_alive() {
        return None;
    }
    let &Long { at, begun, place, is_open, latch, amounts } = long;
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let start = slot.start.load(Relaxed);
    let control = Control(slot.kept.load(Relaxed));
    let end = if place & FENCED == 0 { end } else { fenced_end(thread) };
    let place = place & LEVELS;
    // What was added since; a context that goes on in another thread has other totals.
    let inside = || {
        let noted = if is_open { slot.inclusive.load(Relaxed) } else { begun.inclusive };
        thread.entry(point.index()).total().wrapping_sub(noted)
    };
    let (mut moment, mut inside_then) = thread.moment(Some(end), inside);
    if !is_open {
        // A handler has had the slot after the region's end.
        moment = Moment { now: end.now, covered: end.covered, ..moment };
    }
    if thread.inner_place() & LEVELS != place {
        // Regions inside were not ended: they are given up.
        thread.give_up_since(&begun, moment.now);
        thread.count(|tally| &tally.mismatched);
    }
    // The cells of a point with amounts have totals of their own.
    let inclusive = |inside| match point.timed() {
        Some(_) if is_open && regions.is_around(at, point) => Inclusive::Inner,
        Some(_) => Inclusive::Add,
        None => Inclusive::Beyond(inside),
    };
    regions.open.store(at as u64, Relaxed);
    compiler_fence(SeqCst);
    // A handler that came before that was inside, unless it has had the slot since.
    if thread.covered() != moment.covered && is_open && slot.is_of(point, start) {
        (moment, inside_then) = thread.moment(None, inside);
    }
    thread.set_level(place.wrapping_add(LEVEL));
    let inclusive = inclusive(inside_then);
    finish(thread, point, Ending { begun, moment, inclusive, latch, control, amounts });
    Some(moment.now)
}
