//! Regions that are begun and ended by hand: their context keeps them in the meantime.

use std::mem::ManuallyDrop;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::{Change, Control};

use super::ending::fenced_end;
use super::finish::{Ending, Inclusive, finish};
use super::measure::{self, Begun, End, Guard};
use super::moment::{Moment, TRIES, note_long};
use super::regions::{By, Regions, Slot};
use super::thread::{self, Entry, FENCED, LEVEL, LEVELS, Thread};
use crate::clock::ticks;
use crate::point::Point;
use crate::timed::Timed;

/// Begins a region that the context keeps, and returns when it began, if it is measured. With
/// `once`, a point that is open already is switched off as invalid: the rule of the numeric
/// interface.
#[inline]
pub(crate) fn begin(point: &'static Point, once: bool) -> Option<u64> {
    let control = point.control();
    if !control.enabled() {
        return None;
    }
    let Some(thread) = thread::current() else { return begin_slow(point, once) };
    let (offset, regions) = (point.offset(), thread.regions());
    let at = regions.open.load(Relaxed) as usize;
    let Some((around, [slot, ..])) = regions.slots.split_at_checked(at) else {
        return begin_slow(point, once);
    };
    if around.iter().any(|slot| slot.has(point)) || !thread.follows(offset, control) {
        return begin_slow(point, once);
    }
    let place = thread.place.load(Relaxed);
    let begun = measure::note(thread, thread.entry_at(offset), point);
    let by = By { point, place, recursive: false, control: None };
    Some(keep_in(thread, regions, (at, slot), begun, by))
}

/// Begins a region by hand where something is not there yet, or has changed, or is unusual.
#[cold]
#[inline(never)]
fn begin_slow(point: &'static Point, once: bool) -> Option<u64> {
    let mut recursive = false;
    if let Some(thread) = thread::current()
        && let Some(at) = thread.regions().innermost(point)
    {
        recursive = true;
        if once {
            invalidate(thread, point, at);
            return None;
        }
    }
    let guard = ManuallyDrop::new(Guard::begin_slow(point));
    // Else it is off, or kept already.
    let begun = *guard.begun()?;
    let by = By { point, place: guard.place(), recursive, control: None };
    keep(thread::current()?, begun, by)
}

/// Notes a region among those of the context, and returns when it began; none if there is no room.
fn keep(thread: &Thread, begun: Begun, by: By) -> Option<u64> {
    let regions = thread.regions();
    let at = regions.open.load(Relaxed) as usize;
    let Some(slot) = regions.slots.get(at) else {
        refuse(thread);
        return None;
    };
    Some(keep_in(thread, regions, (at, slot), begun, by))
}

/// Notes it in the slot that is free, and returns when it began.
#[inline(always)]
fn keep_in(
    thread: &Thread,
    regions: &Regions,
    (at, slot): (usize, &Slot),
    begun: Begun,
    by: By,
) -> u64 {
    slot.fill(&begun, by);
    compiler_fence(SeqCst);
    let (mut start, mut covered) = (begun.start, begun.covered);
    // A handler that came until here did not see the region: it is not inside.
    if measure::must_note_again(thread, &begun) {
        (start, covered) = begin_again(thread, slot, by);
    } else if by.control.is_none() {
        // It has a cell, and so its thread has room to show it.
        measure::show(thread, by.place, start);
    }
    // One store, so that whoever jumps out has opened all of it or nothing.
    regions.open.store(at as u64 + 1, Relaxed);
    if !thread.has_covered(covered) && !slot.is_of(by.point, start) {
        // One that came just before has had the slot.
        (start, _) = begin_again(thread, slot, by);
    }
    start
}

/// Begins a region anew in its slot, since a signal handler has measured in between or the clock is
/// old. Returns when, and what was covered then.
#[cold]
#[inline(never)]
fn begin_again(thread: &Thread, slot: &Slot, by: By) -> (u64, u64) {
    for tried in 1.. {
        let begun = note_long(thread, by.place & !FENCED, by.point, || 0);
        slot.fill(&begun, by);
        compiler_fence(SeqCst);
        if thread.covered() == begun.covered || tried == TRIES {
            return (begun.start, begun.covered);
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
    let recursive = thread.regions().innermost(point).is_some();
    thread.deepen();
    let place = thread.inner_place();
    let begun = note_long(thread, place, point, || 0);
    // It was on just now.
    let control = point.control().meant().with(Change::Enable);
    keep(thread, begun, By { point, place, recursive, control: Some(control) }).is_some()
}

/// Ends the innermost region of a point that was begun by hand, and returns when it ended. Without
/// one it does nothing.
#[inline]
pub(crate) fn end(point: &'static Point, latch: bool) -> Option<u64> {
    end_in(point, latch, None, |thread, _| {
        Some(Recorded { entry: thread.entry(point.index()), point, sums: None })
    })
}

/// Ends the innermost region of a point with amounts, which the region has.
#[inline]
pub(crate) fn end_with(timed: &'static Timed, latch: bool, amounts: &Amounts) {
    end_in(timed.point(), latch, Some(amounts), |thread, slot| {
        let (variant, is_rest) = timed.known(amounts)?;
        let entry = thread.entry(variant.index());
        // Else it has not followed the point since the region began.
        (entry.follows().0 == slot.control.load(Relaxed)).then_some(Recorded {
            entry,
            point: variant,
            sums: is_rest.then_some(amounts),
        })
    });
}

/// Ends a region of a guard that the context keeps; with amounts if its cell sums those.
pub(super) fn end_kept(point: &'static Point, amounts: Option<&Amounts>) {
    end_in(point, false, amounts, |thread, _| {
        Some(Recorded { entry: thread.entry(point.index()), point, sums: amounts })
    });
}

/// Where a region that was begun by hand is recorded.
struct Recorded<'a> {
    entry: &'a Entry,
    /// Whose entry it is.
    point: &'static Point,
    /// Amounts to add to the cell's sums, if it has sums.
    sums: Option<&'a Amounts>,
}

/// Ends the innermost region of a point, if there is one: on the short way in the cell
/// that `find` has for it. Returns when it ended.
#[inline(always)]
fn end_in<'a>(
    point: &'static Point,
    latch: bool,
    amounts: Option<&Amounts>,
    find: impl FnOnce(&'a Thread, &'a Slot) -> Option<Recorded<'a>>,
) -> Option<u64> {
    let thread = thread::current()?;
    let regions = thread.regions();
    let at = regions.innermost(point)?;
    let slot = &regions.slots[at];
    let recursive = slot.recursive.load(Relaxed) != 0;
    let (begun, place) = (slot.begun(), slot.place.load(Relaxed));
    let start = begun.start;
    let mut guard = ManuallyDrop::new(Guard::of(point, place, begun));
    let covered = thread.covered();
    let mut end = End { now: ticks(), covered };
    compiler_fence(SeqCst);
    if !latch
        && !recursive
        && let Some(Recorded { entry, point: of, sums: None }) = find(thread, slot)
        && entry.cell().is_some()
    {
        // As a guard's, which drops nothing of what regions inside have added.
        guard.is_now_of(of, entry.total());
        regions.open.store(at as u64, Relaxed);
        match guard.end_shortly(thread, end) {
            Ok(()) => return Some(end.now),
            Err(later) => end = later,
        }
        // Open again, unless a handler has had its slot since it ended.
        if regions.open.load(Relaxed) == at as u64 && slot.is_of(point, start) {
            regions.open.store(at as u64 + 1, Relaxed);
        }
    }
    let is_open = slot.is_of(point, start);
    end_at(thread, point, (at, is_open), &guard, end, latch, amounts)
}

#[cold]
fn end_at(
    thread: &Thread,
    point: &'static Point,
    (at, is_open): (usize, bool),
    guard: &Guard,
    end: End,
    latch: bool,
    amounts: Option<&Amounts>,
) -> Option<u64> {
    if !thread.is_alive() {
        return None;
    }
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let begun = *guard.begun()?;
    let place = guard.place();
    let start = slot.start.load(Relaxed);
    let recursive = is_open && slot.recursive.load(Relaxed) != 0;
    let control = Control(slot.control.load(Relaxed));
    let end = if place & FENCED == 0 { end } else { fenced_end(thread) };
    let place = place & LEVELS;
    let (mut moment, ()) = thread.moment(Some(end), || ());
    if !is_open {
        // A handler has had the slot after the region's end.
        moment = Moment { now: end.now, covered: end.covered, ..moment };
    }
    if thread.inner_place() & LEVELS != place {
        // Regions inside were not ended: they are given up.
        thread.give_up_since(&begun, moment.now);
        thread.count(|tally| &tally.mismatched);
    }
    regions.open.store(at as u64, Relaxed);
    compiler_fence(SeqCst);
    // A handler that came before that was inside, unless it has had the slot since.
    if thread.covered() != moment.covered && is_open && slot.is_of(point, start) {
        (moment, ()) = thread.moment(None, || ());
    }
    thread.set_level(place.wrapping_add(LEVEL));
    let inclusive = if recursive { Inclusive::Inner } else { Inclusive::Add };
    finish(thread, point, Ending { begun, moment, inclusive, latch, control, amounts });
    Some(moment.now)
}
