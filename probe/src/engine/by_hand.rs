//! Regions that are begun and ended by hand: their context keeps them in the meantime.

use std::mem::ManuallyDrop;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::{Change, Control};

use super::busy;
use super::current;
use super::finish::{Ending, Inclusive, finish};
use super::guard::Guard;
use super::measure::{self, begin_noted, end_at};
use super::moment::{TRIES, fenced_end, note_long, turn_page};
use super::region::{Door, End, Region, RegionStart};
use super::regions::{Regions, Slot};
use super::thread::ring::begins_page;
use super::thread::{FENCED, IS_PLACE, LEVEL, LEVELS, Thread};
use crate::clock::{ticks, ticks_or_stamp};
use crate::engine::variants::MeteredPoint;
use crate::point::Point;

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
    let Some(thread) = current::near() else { return begin_slow(point, once) };
    let (offset, regions) = (point.offset(), thread.regions());
    let at = regions.open.load(Relaxed) as usize;
    let Some(mut slot) = regions.slots.get(at) else { return begin_slow(point, once) };
    if once && regions.is_around(at, point) {
        return begin_slow(point, once);
    }
    match begin_noted(thread, point, (offset, control), &mut slot) {
        Some((tag, Some(begun))) => Some(keep(thread, at, point, tag, begun)),
        Some((tag, None)) => begin_late(thread, at, point, tag),
        None => begin_slow(point, once),
    }
}

#[cold]
#[inline(never)]
fn begin_late(thread: &Thread, at: usize, point: &'static Point, tag: u64) -> Option<u64> {
    if !thread.is_alive() {
        return None;
    }
    if !thread.has_room() {
        thread.leave_out(tag);
        return None;
    }
    let begun = begin_again(thread, &thread.regions().slots[at], point, tag);
    Some(keep(thread, at, point, tag, begun))
}

/// Begins a region by hand where something is not there yet, or has changed, or is unusual.
#[cold]
#[inline(never)]
fn begin_slow(point: &'static Point, once: bool) -> Option<u64> {
    if once
        && let Some(thread) = current::thread()
        && let Some(at) = thread.regions().innermost(point)
    {
        invalidate(thread, point, at);
        return None;
    }
    let guard = ManuallyDrop::new(Guard::begin_slow(point));
    // Else it is off, or kept already.
    let begun = guard.begun()?;
    keep_noted(current::thread()?, point, Region::tag(&*guard), begun, None)
}

/// Notes a region among those of the context, and returns when it began; none if there is no room.
/// Its control word is noted if its cell is only known at the end.
fn keep_noted(
    thread: &Thread,
    point: &'static Point,
    tag: u64,
    begun: &RegionStart,
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
    compiler_fence(SeqCst);
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
    compiler_fence(SeqCst);
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
#[inline(never)]
fn begin_again(thread: &Thread, slot: &Slot, point: &'static Point, tag: u64) -> End {
    let total = || thread.entry(point).total();
    for tried in 1.. {
        let begun = note_long(thread, tag & !FENCED, point, total);
        slot.fill(point, tag, &begun);
        compiler_fence(SeqCst);
        let holds = thread.covered() == begun.covered && !thread.clock.is_disturbed();
        if holds || tried == TRIES {
            return End { now: begun.start, covered: begun.covered };
        }
    }
    unreachable!("it returns when all tries are over")
}

/// Undoes a begin whose context has all its slots in use.
#[cold]
fn refuse(thread: &Thread) {
    thread.rise();
    // The clock may have been read for it.
    thread.clock.disturb();
    thread.show_end(ticks_or_stamp());
    thread.count(|counters| &counters.refused);
}

#[cold]
fn invalidate(thread: &Thread, point: &'static Point, at: usize) {
    point.change(Change::Invalidate);
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let (begun, place) = (slot.begun(), slot.place.load(Relaxed));
    let now = ticks_or_stamp();
    thread.give_up_since(place, &begun, now);
    regions.give_up(at);
    thread.set_level(place);
    thread.show_end(now);
}

/// Begins a region on the slow path: the thread has no lane of its own, is interrupted in the
/// middle of a change, or finds out only at the end which cell the region belongs to. Returns when
/// it began. `None` if all slots of the context are in use.
pub(crate) fn begin_kept(thread: &Thread, point: &'static Point) -> Option<u64> {
    thread.deepen();
    let place = thread.inner_place();
    let begun = note_long(thread, place, point, || thread.entry(point).total());
    // It was on just now.
    let control = point.control().sanitized().with(Change::Enable);
    // Without [`IS_PLACE`] the tag matches no place, so the region ends on the slow path, too.
    keep_noted(thread, point, place & !IS_PLACE, &begun, Some(control))
}

/// A region that its context has, as it ends on the short way.
struct Held<'a> {
    regions: &'a Regions,
    at: usize,
    start: &'a AtomicU64,
    covered: &'a AtomicU64,
    tag: u64,
    /// Where it is recorded, and what was noted of the inclusive total there.
    point: &'static Point,
    inclusive: &'a AtomicU64,
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
        self.start.load(Relaxed)
    }

    #[inline(always)]
    fn covered(&self) -> u64 {
        self.covered.load(Relaxed)
    }

    #[inline(always)]
    fn inclusive(&self) -> u64 {
        self.inclusive.load(Relaxed)
    }

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
    match current::near() {
        Some(thread) => end_in(thread, point, ticks),
        None => end_far(point),
    }
}

#[cold]
#[inline(never)]
fn end_far(point: &'static Point) {
    if let Some(thread) = current::thread() {
        end_in(thread, point, ticks_or_stamp);
    }
}

#[inline(always)]
fn end_in(thread: &'static Thread, point: &'static Point, ticks: impl FnOnce() -> u64) {
    end_by(thread, point, ticks, |thread, at, Door { elapsed, covered }, marked| {
        if marked {
            end_marked(point, thread, elapsed, at, covered);
        } else {
            end_slow(point, thread, elapsed, at, covered);
        }
    });
}

/// Ends a region as [`end`] does, and returns when it ended.
pub(crate) fn end_told(point: &'static Point) -> Option<u64> {
    let mut ended = None;
    let asked = end_by(current::thread()?, point, ticks_or_stamp, |thread, at, door, marked| {
        ended = end_turned(thread, point, at, door, marked);
    });
    ended.or(asked)
}

/// Ends it on the short way, if it can be, else by `slow`. Returns the stamp of the call.
#[inline(always)]
fn end_by(
    thread: &'static Thread,
    point: &'static Point,
    ticks: impl FnOnce() -> u64,
    mut slow: impl FnMut(&'static Thread, usize, Door, bool),
) -> Option<u64> {
    let regions = thread.regions();
    // Nothing is open where all points are off.
    let at = (regions.open.load(Relaxed) as usize).checked_sub(1)?;
    let Some(slot) = regions.slots.get(at).filter(|slot| slot.has(point)) else {
        return end_further_out(thread, point);
    };
    let end = stamp_by(thread, ticks);
    let tag = slot.place.load(Relaxed);
    let Slot { start, covered, inclusive, .. } = slot;
    let mut held = Held { regions, at, start, covered, tag, point, inclusive };
    end_at::<false, _>(&mut held, thread, end, None, |_, door, marked| {
        slow(thread, at, door, marked);
    });
    Some(end.now)
}

/// The counter, and what was covered before that.
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

/// Regions inside the one that ends were not ended, or there is none.
#[cold]
#[inline(never)]
fn end_further_out(thread: &Thread, point: &'static Point) -> Option<u64> {
    let at = thread.regions().innermost(point)?;
    let end = stamp(thread);
    end_long(thread, point, at, end, Extra::default())
}

/// The door out of an end by hand, which takes the point and what has elapsed where they are.
#[cold]
#[inline(never)]
fn end_slow(point: &'static Point, thread: &Thread, elapsed: u64, at: usize, covered: u64) {
    end_turned(thread, point, at, Door { elapsed, covered }, false);
}

/// Slow path of an end whose thread is marked.
#[cold]
#[inline(never)]
fn end_marked(point: &'static Point, thread: &Thread, elapsed: u64, at: usize, covered: u64) {
    end_turned(thread, point, at, Door { elapsed, covered }, true);
}

/// Ends a region that the short way has refused: again if its record is the first of a page, else on
/// the long way.
fn end_turned(
    thread: &Thread,
    point: &'static Point,
    at: usize,
    door: Door,
    marked: bool,
) -> Option<u64> {
    busy::take_back(thread, marked);
    if thread.has_room() {
        return end_unmarked(thread, point, at, door);
    }
    if thread.is_alive() {
        leave_out(thread, at);
    }
    None
}

/// Closes a region for whose end the stack has no room.
#[cold]
#[inline(never)]
pub(super) fn leave_out(thread: &Thread, at: usize) {
    let regions = thread.regions();
    let place = regions.slots[at].place.load(Relaxed);
    regions.open.store(at as u64, Relaxed);
    compiler_fence(SeqCst);
    thread.leave_out(place);
}

#[inline(never)]
fn end_unmarked(thread: &Thread, point: &'static Point, at: usize, door: Door) -> Option<u64> {
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let Door { elapsed, covered } = door;
    let now = slot.start.load(Relaxed).wrapping_add(elapsed);
    let tag = slot.place.load(Relaxed);
    if let Some((took, added)) = turned(thread, point, tag) {
        slot.leave_out(took, added);
        let end = End { now, covered: covered.wrapping_add(took) };
        let Slot { start, covered, inclusive, .. } = slot;
        let mut held = Held { regions, at, start, covered, tag, point, inclusive };
        let mut is_short = true;
        end_at::<true, _>(&mut held, thread, end, None, |_, _, marked| {
            busy::take_back(thread, marked);
            is_short = false;
        });
        if is_short {
            return Some(now);
        }
        // The next stamp is later by what this took, so the begin is, too.
        slot.start.store(slot.start.load(Relaxed).wrapping_add(took), Relaxed);
    }
    if !thread.is_alive() {
        return None;
    }
    end_longest(thread, point, at, End { now, covered }, Extra::default())
}

/// Turns the page for the record of the innermost region, if that will be the first of one.
fn turned(thread: &Thread, recorded: &Point, tag: u64) -> Option<(u64, u64)> {
    let is_first = thread.inner_place() == tag && begins_page(thread.written());
    is_first.then(|| turn_page(thread, recorded)).flatten()
}

/// Ends the innermost region of a point, but keeps what it measured; see [`Point::end_latched`].
#[cold]
pub(crate) fn end_latched(point: &'static Point) {
    let Some(thread) = current::thread() else { return };
    let Some(at) = thread.regions().innermost(point) else { return };
    end_long(thread, point, at, stamp(thread), Extra { latch: true, ..Extra::default() });
}

/// Ends the innermost region of a point with amounts, which the region has: on the short way of its
/// variant, if that is known.
pub(crate) fn end_with(metered: &'static MeteredPoint, latch: bool, amounts: &Amounts) {
    let Some(thread) = current::thread() else { return };
    let (point, regions) = (metered.point(), thread.regions());
    let Some(at) = regions.innermost(point) else { return };
    let end = stamp(thread);
    let slot = &regions.slots[at];
    let extra = Extra { latch, amounts: Some(amounts), variant: None };
    if latch || at + 1 != regions.open() || regions.is_around(at, point) {
        end_long(thread, point, at, end, extra);
        return;
    }
    let Some((variant, false)) = metered.known(amounts) else {
        end_long(thread, point, at, end, extra);
        return;
    };
    let entry = thread.entry(variant);
    // Else it has not followed the point since the region began.
    if entry.follows().0 != slot.kept.load(Relaxed) {
        end_long(thread, point, at, end, extra);
        return;
    }
    let variant = Variant { of: metered, point: variant, at, before: [0; 2] };
    let variant = Variant { before: variant.totals(thread), ..variant };
    let Some(door) = variant.end::<false>(thread, end) else { return };
    let mut end = End { covered: door.covered, ..end };
    if let Some((took, _)) = turned(thread, variant.point, variant.tag(slot)) {
        slot.leave_out(took, 0);
        end.covered = end.covered.wrapping_add(took);
        if variant.end::<true>(thread, end).is_none() {
            return;
        }
        // It will be found to end later: so much later it begins.
        slot.start.store(slot.start.load(Relaxed).wrapping_add(took), Relaxed);
    }
    end_long(thread, point, at, end, Extra { variant: Some(variant), ..extra });
}

/// A region of a point with amounts as it ends, where its amounts are known: it is recorded by a
/// variant of the point.
#[derive(Clone, Copy)]
struct Variant {
    of: &'static MeteredPoint,
    point: &'static Point,
    at: usize,
    /// The thread's switches and the totals when the end began.
    before: [u64; 2],
}

impl Variant {
    fn tag(&self, slot: &Slot) -> u64 {
        slot.place.load(Relaxed) | IS_PLACE
    }

    /// The thread's switches; and what regions with these amounts have added to its inclusive
    /// totals, whichever way they ended.
    fn totals(&self, thread: &Thread) -> [u64; 2] {
        let switches = thread.clock.switches();
        compiler_fence(SeqCst);
        let [of, own] = [self.of.point(), self.point].map(|it| thread.entry(it).total());
        [switches, of.wrapping_add(own)]
    }

    /// What handlers have added since the end began. What another fibre has is not inside.
    fn added(&self, thread: &Thread) -> u64 {
        let [switches, before] = self.before;
        match thread.clock.was_resumed(switches) {
            true => 0,
            false => self.totals(thread)[1].wrapping_sub(before),
        }
    }

    /// Ends it on the short way, if it can be; else it is open as it was.
    ///
    /// It is closed first: what a handler measures from then on is not inside and counts by
    /// itself, and where this end finds that one has come, it leaves out what was added.
    #[inline(always)]
    fn end<const TURNED: bool>(self, thread: &Thread, end: End) -> Option<Door> {
        let (regions, at) = (thread.regions(), self.at);
        let slot = &regions.slots[at];
        let (begun, place) = (slot.begun(), slot.place.load(Relaxed));
        let kept = slot.kept.load(Relaxed);
        let (tag, point) = (self.tag(slot), self.point);
        let total = thread.entry(point).total();
        compiler_fence(SeqCst);
        regions.open.store(at as u64, Relaxed);
        compiler_fence(SeqCst);
        // Not in the slot, which a handler may have now.
        let [start, covered, inclusive] = &[begun.start, begun.covered, total].map(AtomicU64::new);
        let mut held = Held { regions, at, start, covered, tag, point, inclusive };
        let mut refused = None;
        end_at::<TURNED, _>(&mut held, thread, end, None, |_, door, marked| {
            busy::take_back(thread, marked);
            refused = Some(door);
        });
        if refused.is_some() {
            // Open before it is filled: a handler that comes meanwhile has another slot.
            regions.open.store(at as u64 + 1, Relaxed);
            compiler_fence(SeqCst);
            slot.fill(self.of.point(), place, &begun);
            slot.kept.store(kept, Relaxed);
        }
        refused
    }
}

/// Ends the region of a guard that the context has kept since `start`. `amounts` are those to add,
/// if its cell sums amounts.
pub(super) fn end_kept(
    thread: &Thread,
    point: &'static Point,
    start: u64,
    amounts: Option<&Amounts>,
) {
    match thread.regions().begun_at(point, start) {
        Some(at) => {
            let extra = Extra { amounts, ..Extra::default() };
            end_long(thread, point, at, stamp(thread), extra);
        }
        // The region was given up, or belongs to another thread.
        None => thread.count(|counters| &counters.mismatched),
    }
}

/// What an end on the long way may have besides.
#[derive(Default)]
struct Extra<'a> {
    latch: bool,
    amounts: Option<&'a Amounts>,
    /// The variant, if the short way was tried.
    variant: Option<Variant>,
}

#[cold]
#[inline(never)]
fn end_long(
    thread: &Thread,
    point: &'static Point,
    at: usize,
    end: End,
    extra: Extra<'_>,
) -> Option<u64> {
    if !thread.is_alive() {
        return None;
    }
    if !thread.has_room() {
        leave_out(thread, at);
        return None;
    }
    end_longest(thread, point, at, end, extra)
}

#[inline(never)]
fn end_longest(
    thread: &Thread,
    point: &'static Point,
    at: usize,
    end: End,
    Extra { latch, amounts, variant }: Extra<'_>,
) -> Option<u64> {
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let (begun, place) = (slot.begun(), slot.place.load(Relaxed));
    let control = Control(slot.kept.load(Relaxed));
    let end = if place & FENCED == 0 { end } else { fenced_end(thread) };
    let place = place & LEVELS;
    let (mut moment, mut inside) = thread.moment(Some(end), || match &variant {
        Some(variant) => variant.added(thread),
        None => slot.added(thread.entry(point).total()),
    });
    if thread.inner_place() & LEVELS != place {
        // Regions inside were not ended: they are given up.
        thread.give_up_since(place, &begun, moment.now);
        thread.count(|counters| &counters.mismatched);
    }
    let is_inner = regions.is_around(at, point);
    let noted = slot.inclusive.load(Relaxed);
    regions.open.store(at as u64, Relaxed);
    compiler_fence(SeqCst);
    // A handler that came before that was inside, unless it has had the slot since.
    if thread.covered() != moment.covered && slot.is_of(point, begun.start) {
        let total = || thread.entry(point).total().wrapping_sub(noted);
        (moment, inside) = thread.moment(None, || match &variant {
            Some(variant) => variant.added(thread),
            None => total(),
        });
    }
    thread.set_level(place.wrapping_add(LEVEL));
    // The cells of a point with amounts have totals of their own.
    let inclusive = match point.metered() {
        Some(_) if is_inner => Inclusive::Inner,
        Some(_) if variant.is_none() => Inclusive::Add,
        _ => Inclusive::Beyond(inside),
    };
    finish(thread, point, Ending { begun, moment, inclusive, latch, control, amounts });
    Some(moment.now)
}
