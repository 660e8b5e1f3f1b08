//! Regions begun by hand, and the long way for all others: whatever the hot path
//! of [`super::measure`] leaves to its doors.

use std::mem::ManuallyDrop;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::calls::ELSEWHERE;
use pfp_shm_layout::cell::{Away, Cell, Measurement};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::ring::What;

use super::cold;
use super::fold;
use super::measure::{self, Begun, End, Guard, Part};
use super::overhead::overhead;
use super::process;
use super::regions::{By, Regions, Slot, Sum};
use super::thread::{self, Entry, FENCED, LEVEL, LEVELS, Thread, Unready};
use crate::clock::{self, Stamps, fenced_ticks, ticks};
use crate::mark::{self, Holder};
use crate::past::Past;
use crate::point::Point;
use crate::timed::Timed;

/// How often a stamp is taken again that a signal handler came in between of.
const TRIES: u32 = 8;

/// The clock, and what belongs to it, as it was at one moment.
#[derive(Clone, Copy)]
struct Moment {
    now: u64,
    covered: u64,
    off: u64,
    switches: u64,
}

impl Thread {
    /// The regions of the context that is current on this thread.
    #[inline]
    pub(super) fn regions(&self) -> &Regions {
        let current = self.current.load(Relaxed);
        // SAFETY: null, or a context that `switch` keeps alive while it is
        // current.
        unsafe { current.as_ref() }.map_or(&self.own, |context| &context.regions)
    }

    /// Reads the counter, and brings the clock up to date after a switch.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        self.stamp_after(ticks())
    }

    /// A stamp for the program, which may be in a signal handler that has interrupted a
    /// begin or end: that must not go on with a clock that it has not read.
    #[inline]
    pub(crate) fn stamp_beside(&self) -> u64 {
        let now = ticks();
        if !self.clock.is_outdated(now) {
            return now;
        }
        let now = self.stamp_after(now);
        self.clock.disturb();
        now
    }

    /// A stamp with what was covered at that moment and something else that was read: no
    /// signal handler has measured in between. The first one tried is `at`, if that still
    /// holds.
    fn moment<R>(&self, mut at: Option<End>, mut read: impl FnMut() -> R) -> (Moment, R) {
        for tried in 1.. {
            let End { now, covered } = at.take().unwrap_or_else(|| {
                let covered = self.covered();
                End { now: ticks(), covered }
            });
            compiler_fence(SeqCst);
            let now = self.stamp_after(now);
            let (off, switches) = (self.clock.off(), self.clock.switches());
            let found = read();
            compiler_fence(SeqCst);
            let holds = self.covered() == covered && !self.clock.is_disturbed();
            if holds || tried == TRIES {
                return (Moment { now, covered, off, switches }, found);
            }
        }
        unreachable!("it returns when all tries are over")
    }

    /// The clock of the current context.
    pub(super) fn on_cpu(&self) -> u64 {
        let (moment, ()) = self.moment(None, || ());
        moment.now.wrapping_sub(moment.off)
    }

    /// The stamp of an end that has read the counter already.
    #[inline]
    fn stamp_after(&self, now: u64) -> u64 {
        if !self.clock.is_outdated(now) {
            return now;
        }
        let stamps = self.refresh();
        self.publish_switches();
        stamps.early
    }

    /// The stamp of a begin that comes late.
    fn stamp_late(&self) -> u64 {
        let now = ticks();
        if self.clock.is_outdated(now) { self.refresh().late } else { now }
    }

    /// Brings the clock up to date, and counts if that had gone astray.
    fn refresh(&self) -> Stamps {
        cold::put_right();
        self.outdate();
        let stamps = self.clock.refresh();
        if stamps.astray || stamps.missed {
            self.note_anomaly();
        }
        if stamps.missed
            && let Some(process) = process::current()
        {
            process.take_rung_later();
        }
        stamps
    }

    /// The counter was less than before, stood still or jumped.
    fn note_anomaly(&self) {
        self.count(|tally| &tally.anomalies);
        if clock::doubt()
            && let Some(process) = process::current()
        {
            process.take_rung_later();
        }
    }

    /// Sets the number of open regions, in units of [`LEVEL`].
    pub(super) fn set_level(&self, level: u64) {
        let _ = self
            .place
            .fetch_update(Relaxed, Relaxed, |place| Some(place & !LEVELS | level & LEVELS));
    }

    /// What a region measured that ends at a moment.
    fn part(&self, begun: &Begun, at: Moment) -> Part {
        let elapsed = at.now.wrapping_sub(begun.start);
        if measure::ran_backwards(elapsed) {
            self.note_anomaly();
        }
        // Below zero although the counter went on: of time that the kernel has
        // taken off the thread without a switch, a hypervisor's most of all, the
        // clock may know only now, up to a millisecond late. What is more than this
        // region has is taken from the region around it, whose span is that much
        // shorter.
        let off = at.off.wrapping_sub(begun.off);
        let raw = (elapsed.wrapping_sub(off) as i64).max(0) as u64;
        Part {
            net: raw.wrapping_sub(overhead().inside()),
            child: at.covered.wrapping_sub(begun.covered),
            // Less than before, if the counter ran backwards.
            off: (off as i64).max(0) as u64,
            switches: clock::switches_between(begun.switches, at.switches),
        }
    }

    /// Whether the caller is a signal handler that has interrupted something.
    pub(crate) fn is_busy(&self) -> bool {
        match mark::holder(&self.position) {
            Holder::Nobody => false,
            Holder::AtWork => true,
            Holder::Gone => self.recover(),
        }
    }

    /// Puts right what somebody left in the middle who jumped out of a signal handler;
    /// false.
    #[cold]
    fn recover(&self) -> bool {
        let Some(process) = process::current().filter(|_| self.is_alive()) else { return false };
        let mut mark = mark::new();
        mark::set(&mut mark, &self.position);
        self.suspended.store(0, Relaxed);
        fold::recover(process, self);
        self.done();
        self.count(|tally| &tally.mismatched);
        false
    }

    /// Does something that a signal handler of this thread must not do at the same time,
    /// nor another fibre. None if the caller has interrupted such a thing.
    pub(crate) fn busy<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        if self.is_busy() {
            return None;
        }
        let mut mark = mark::new();
        mark::set(&mut mark, &self.position);
        // A handler may have put another fibre aside in the middle of one since `is_busy`.
        if mark::holder(&self.suspended) == Holder::AtWork {
            unmark(self);
            return None;
        }
        let result = work();
        self.done();
        Some(result)
    }
}

/// Takes a mark away that was set for nothing, or over that of a fibre that was put aside.
#[cold]
#[inline(never)]
pub(super) fn unmark(thread: &Thread) {
    loop {
        let suspended = thread.suspended.load(Relaxed);
        match suspended {
            0 => thread.done(),
            mark => thread.position.store(mark, Relaxed),
        }
        compiler_fence(SeqCst);
        // It differs if a handler switched to other fibres and back.
        if thread.suspended.load(Relaxed) == suspended {
            return;
        }
    }
}

/// Takes back the mark of a guard that cannot end on the short way. Its tag is last: whoever finds
/// the mark must find it there.
#[cold]
#[inline(never)]
pub(super) fn take_back(thread: &Thread, mark: &mut u64, tag: u64) {
    // A forked child writes nothing.
    if thread.is_alive() {
        unmark(thread);
    }
    compiler_fence(SeqCst);
    *mark = tag;
}

/// Notes what a region of a place begins with, on the long way, and something else, and shows
/// that it is open.
pub(super) fn note_long(
    thread: &Thread,
    place: u64,
    point: &Point,
    mut inclusive: impl FnMut() -> u64,
) -> Begun {
    for tried in 1.. {
        let covered = thread.covered();
        compiler_fence(SeqCst);
        let now = thread.stamp_late();
        let (off, switches) = (thread.clock.off(), thread.clock.switches());
        let inclusive = inclusive();
        compiler_fence(SeqCst);
        let holds = thread.covered() == covered && !thread.clock.is_disturbed();
        if holds || tried == TRIES {
            if thread.calls().is_some() {
                let open = thread.open_region(place);
                open.name(point.offset(), off);
                open.begin(now);
            }
            return Begun { start: now, covered, off, switches, inclusive };
        }
    }
    unreachable!("it returns when all tries are over")
}

/// Begins a region that the context keeps. With `once`, a point that is open
/// already is switched off as invalid: the rule of the numeric interface.
#[inline]
pub(crate) fn begin(point: &'static Point, once: bool) {
    let control = point.control();
    if !control.enabled() {
        return;
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
    keep_in(thread, regions, (at, slot), begun, by);
}

/// Begins a region by hand where something is not there yet, or has changed, or is unusual.
#[cold]
#[inline(never)]
fn begin_slow(point: &'static Point, once: bool) {
    let mut recursive = false;
    if let Some(thread) = thread::current()
        && let Some(at) = thread.regions().innermost(point)
    {
        recursive = true;
        if once {
            return invalidate(thread, point, at);
        }
    }
    let guard = ManuallyDrop::new(Guard::begin_slow(point));
    // Else it is off, or kept already.
    if let Some(begun) = guard.begun()
        && let Some(thread) = thread::current()
    {
        let by = By { point, place: guard.place(), recursive, control: None };
        keep(thread, *begun, by);
    }
}

/// Notes a region among those of the context; false if there is no room.
fn keep(thread: &Thread, begun: Begun, by: By) -> bool {
    let regions = thread.regions();
    let at = regions.open.load(Relaxed) as usize;
    let Some(slot) = regions.slots.get(at) else { return refuse(thread) };
    keep_in(thread, regions, (at, slot), begun, by);
    true
}

/// Notes it in the slot that is free.
#[inline(always)]
fn keep_in(thread: &Thread, regions: &Regions, (at, slot): (usize, &Slot), begun: Begun, by: By) {
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
        begin_again(thread, slot, by);
    }
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
fn refuse(thread: &Thread) -> bool {
    thread.rise();
    // The clock may have been read for it.
    thread.clock.disturb();
    thread.show_end(ticks());
    thread.count(|tally| &tally.refused);
    false
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
    keep(thread, begun, By { point, place, recursive, control: Some(control) })
}

/// Ends the innermost region of a point that was begun by hand. Without one it
/// does nothing.
#[inline]
pub(crate) fn end(point: &'static Point, latch: bool) {
    end_in(point, latch, None, |thread, _| {
        Some(Recorded { entry: thread.entry(point.index()), point, sums: None })
    });
}

/// The same for a point with amounts, which are those of the region.
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
fn end_kept(point: &'static Point, amounts: Option<&Amounts>) {
    end_in(point, false, amounts, |thread, _| {
        Some(Recorded { entry: thread.entry(point.index()), point, sums: amounts })
    });
}

/// Where a region that was begun by hand is recorded.
struct Recorded<'a> {
    entry: &'a Entry,
    /// Whose entry it is.
    point: &'static Point,
    /// What is added to the sums that the cell has.
    sums: Option<&'a Amounts>,
}

/// Ends the innermost region of a point, if there is one: on the short way in the cell
/// that `find` has for it.
#[inline(always)]
fn end_in<'a>(
    point: &'static Point,
    latch: bool,
    amounts: Option<&Amounts>,
    find: impl FnOnce(&'a Thread, &'a Slot) -> Option<Recorded<'a>>,
) {
    let Some(thread) = thread::current() else { return };
    let regions = thread.regions();
    let Some(at) = regions.innermost(point) else { return };
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
            Ok(()) => return,
            Err(later) => end = later,
        }
        // Open again, unless a handler has had its slot since it ended.
        if regions.open.load(Relaxed) == at as u64 && slot.is_of(point, start) {
            regions.open.store(at as u64 + 1, Relaxed);
        }
    }
    let is_open = slot.is_of(point, start);
    end_at(thread, point, (at, is_open), &guard, end, latch, amounts);
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
) {
    if !thread.is_alive() {
        return;
    }
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let Some(&begun) = guard.begun() else { return };
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
}

impl Thread {
    /// Regions inside one that has ended were not: what is to end one of them later finds
    /// that it was begun within that time.
    fn give_up_since(&self, begun: &Begun, now: u64) {
        let [since, until] = &self.gave_up;
        since.store(begun.start, Relaxed);
        until.store(now, Relaxed);
    }

    /// Whether a region was given up so, is another context's, or was begun before the
    /// thread had its lane, as what a forked child has of its parent.
    fn has_given_up(&self, begun: &Begun) -> bool {
        let [since, until] = self.gave_up.each_ref().map(|word| word.load(Relaxed));
        let claimed = self.claimed.load(Relaxed);
        let start = begun.start;
        start.wrapping_sub(since) < until.wrapping_sub(since)
            || (start.wrapping_sub(claimed) as i64) < 0
            || self.clock.was_resumed(begun.switches)
    }
}

/// The end of a region of a fenced point.
fn fenced_end(thread: &Thread) -> End {
    let covered = thread.covered();
    compiler_fence(SeqCst);
    End { now: fenced_ticks(), covered }
}

/// Turns the page for the record of a guard's region. Returns what was covered meanwhile: none of
/// it is in the region, nor is a handler that came in between.
pub(super) fn turn_page(thread: &Thread, guard: &mut Guard) -> Option<u64> {
    let entry = thread.entry_at(guard.point().offset());
    // What is covered, and the point's inclusive total at the same moment.
    let read = || {
        (0..TRIES).find_map(|_| {
            let (covered, total) = (thread.covered(), entry.total());
            thread.has_covered(covered).then_some((covered, total))
        })
    };
    let (covered, total) = read().filter(|_| thread.turn_page())?;
    let (now_covered, now_total) = read()?;
    let took = now_covered.wrapping_sub(covered);
    guard.leave_out(took, now_total.wrapping_sub(total));
    Some(took)
}

/// Ends a region on the short way whose record is the first of a page.
pub(super) fn end_turned(thread: &Thread, guard: &mut Guard, end: End) -> bool {
    let Some(took) = turn_page(thread, guard) else { return false };
    let covered = end.covered.wrapping_add(took);
    let mut is_short = true;
    guard.end_at::<true>(thread, End { covered, ..end }, None, |guard, door| {
        guard.end_by(door);
        is_short = false;
    });
    if !is_short {
        // It will be found to end later: so much later it begins.
        guard.delay(took);
    }
    is_short
}

/// The door out of a guard's end: what the hot path could not end.
#[cold]
#[inline(never)]
pub(crate) fn end_guard(guard: &mut Guard, end: End, amounts: Option<&Amounts>) {
    let Some(thread) = thread::current().filter(|thread| thread.is_alive()) else { return };
    let point = guard.point();
    if guard.begun().is_none() {
        let kept = guard.kept_amounts();
        return end_kept(point, amounts.or(kept.as_ref()));
    }
    let mut end = end;
    if amounts.is_none() {
        let ended = match guard.is_fenced() {
            true => {
                let end = fenced_end(thread);
                guard.forget_fence();
                guard.end_shortly(thread, end)
            }
            false => guard.end_turned(thread, end),
        };
        match ended {
            Ok(()) => return,
            Err(later) => end = later,
        }
    } else if guard.is_fenced() {
        end = fenced_end(thread);
    }
    let Some(&begun) = guard.begun() else { return };
    let deeper = thread.inner_place().wrapping_sub(guard.tag() & LEVELS) & LEVELS;
    let place = thread.inner_place().wrapping_sub(deeper);
    let (moment, inside) = thread.moment(Some(end), || {
        // A handler may have switched to another fibre and back since the last try.
        added_since(noted(thread, point, &begun), &begun)
    });
    // Regions between this one and the innermost, of as many as are counted.
    if deeper != 0 {
        thread.count(|tally| &tally.mismatched);
        // So deep only where an end of something around has given this region up, or where
        // so many were left by jumps.
        if deeper > LEVELS / 2 && thread.has_given_up(&begun) {
            return;
        }
        thread.give_up_since(&begun, moment.now);
        let regions = thread.regions();
        let is_inside = |at: &usize| {
            let start = regions.slots[*at].begun().start;
            (start.wrapping_sub(begun.start) as i64) >= 0
        };
        let from = (0..regions.open()).find(is_inside).unwrap_or_else(|| regions.open());
        regions.give_up(from);
        thread.set_level(place.wrapping_add(LEVEL));
    }
    // What recursion has added since is inside the span.
    let inclusive = Inclusive::Beyond(inside);
    // Of no meaning: a guard that has its notes has its cell.
    let control = Control::default();
    finish(thread, point, Ending { begun, moment, inclusive, latch: false, control, amounts });
}

/// The entry whose inclusive total a guard has noted, if that still holds: unless contexts
/// were switched since.
fn noted<'a>(thread: &'a Thread, point: &Point, begun: &Begun) -> Option<&'a Entry> {
    (!thread.clock.was_resumed(begun.switches)).then(|| thread.entry(point.index()))
}

/// What was added to an inclusive total since a guard has noted it; 0 if none was noted.
fn added_since(noted: Option<&Entry>, begun: &Begun) -> u64 {
    noted.map_or(0, |entry| entry.total().wrapping_sub(begun.inclusive))
}

/// The innermost region, which ends on the long way.
struct Ending<'a> {
    begun: Begun,
    moment: Moment,
    inclusive: Inclusive,
    latch: bool,
    /// The point's word at the begin, if its cell is only known now.
    control: Control,
    /// What it carries, if its point sums that or finds its cell by it.
    amounts: Option<&'a Amounts>,
}

/// What a region does to the point's inclusive ticks.
enum Inclusive {
    /// It is inside another region of the point, which will count it.
    Inner,
    /// It adds its span.
    Add,
    /// It adds what its span has beyond what was added inside of it.
    Beyond(u64),
}

fn finish(thread: &Thread, point: &'static Point, ending: Ending<'_>) {
    let Ending { begun, moment, inclusive, latch, control, amounts } = ending;
    let part = thread.part(&begun, moment);
    measure::give_back(thread, part.child, part.net);
    // It may have no record.
    thread.show_end(moment.now);
    let sum = Sum {
        own: part.own(),
        inclusive: match inclusive {
            Inclusive::Inner => 0,
            Inclusive::Add => part.span(),
            Inclusive::Beyond(inside) => part.span().wrapping_sub(inside),
        },
        off: part.off,
        switches: part.switches,
    };
    thread.add_to_total(point.offset(), sum.inclusive);
    let regions = thread.regions();
    // A point with amounts latches zeros at least: the place may still hold another thread's.
    let kept = point.timed().map(|_| amounts.copied().unwrap_or_default());
    if latch && thread.busy(|| regions.latch(point, sum, kept.as_ref())) == Some(true) {
        return;
    }
    if latch {
        thread.count(|tally| &tally.refused);
    }
    let start = begun.start;
    // A region that a lap began starts a little after the stamp.
    let elapsed = (moment.now.wrapping_sub(start) as i64).max(0) as u64;
    match point.timed() {
        None => finish_with(thread, point, sum, (start, elapsed), amounts),
        Some(timed) => finish_timed(thread, timed, control, sum, (start, elapsed), amounts),
    }
}

/// Records a sum of a point with amounts, and what waits of it.
#[cold]
#[inline(never)]
fn finish_timed(
    thread: &Thread,
    timed: &'static Timed,
    control: Control,
    mut sum: Sum,
    (start, elapsed): (u64, u64),
    amounts: Option<&Amounts>,
) {
    let mut amounts = amounts.copied().unwrap_or_default();
    if !thread.position().is_free() {
        let regions = thread.regions();
        let waiting = thread.busy(|| regions.unlatch(timed.point(), Some(&mut amounts)));
        sum.add(waiting.unwrap_or_default());
    }
    let Some((variant, is_rest)) = timed.choose_for_good(&amounts) else {
        return process::miss();
    };
    follow(thread, variant, control);
    finish_with(thread, variant, sum, (start, elapsed), is_rest.then_some(&amounts));
}

/// Has the thread's cell of a variant follow the word that the whole had when the region
/// began, as the cell of a point that is known at the begin does by then: a reset since
/// is not the region's. One that follows the word as it is now has more recent regions.
fn follow(thread: &Thread, variant: &'static Point, control: Control) {
    let at = thread.cell(variant.index()).map(Cell::control);
    let follows = at == Some(control) || at == Some(variant.control().meant());
    if !follows
        && !thread.overflows()
        && let Some(process) = process::current()
    {
        let _ = thread.busy(|| thread.ready_cell(process, variant, control));
    }
}

/// Records a sum, with what waits of the point.
fn finish_with(
    thread: &Thread,
    point: &'static Point,
    mut sum: Sum,
    (start, elapsed): (u64, u64),
    amounts: Option<&Amounts>,
) {
    let busy = thread.is_busy();
    if !busy && !thread.position().is_free() {
        let regions = thread.regions();
        sum.add(thread.busy(|| regions.unlatch(point, None)).unwrap_or_default());
    }
    let away = Away { off_cpu: sum.off, switches: sum.switches };
    let exclusive = sum.own.min(LIMIT - 1);
    let measured = Measurement { exclusive, inclusive: sum.inclusive, away: Some(away) };
    let index = point.index();
    // A context that came from another thread may not have a cell here yet.
    let missing = !busy && !thread.overflows() && thread.cell(index).is_none();
    if missing {
        let _ = thread::prepare(point);
    }
    let entry = thread.entry(index);
    let is_recorded = !busy && entry.cell().is_some() && {
        // The region is closed already, so the thread's place is the region's.
        let what = measure::what(thread, point, thread.place.load(Relaxed));
        let times = (start, elapsed, what);
        thread.busy(|| thread.record_counted(entry, measured, times, amounts)).is_some()
    };
    if !is_recorded {
        match thread.shared_cell(point) {
            Some(cell) => {
                if let (Some(sums), Some(amounts)) = (thread.sums(cell), amounts) {
                    Cell::add_amounts_shared(sums, amounts);
                }
                let bucket = thread.shared_bucket(cell, exclusive);
                cell.record_shared(measured, bucket);
                thread.count(|tally| &tally.unrecorded);
            }
            None => process::miss(),
        }
    }
    if !busy && let Some(process) = process::current() {
        process.catch_up();
    }
}

/// Records `ticks` from `start` on that a device or the clock has measured, for a point of its
/// own. The record has a number of the timer's where others have a context, since the thread
/// was elsewhere.
pub(crate) fn record_of_a_device(point: &'static Point, start: u64, ticks: u64, number: u32) {
    let ready = match measure::ready(point, point.control()) {
        Some(ready) => Some(Ok(ready)),
        None => thread::prepare(point),
    };
    let exclusive = ticks.min(LIMIT - 1);
    let thread = match ready {
        // Switched off meanwhile.
        None => return,
        Some(Ok((thread, entry))) => {
            let measured = Measurement { exclusive, inclusive: exclusive, away: None };
            let recorded = thread.busy(|| {
                let what = What::new(point.index() as u32, 0, ELSEWHERE, number);
                thread.record_counted(entry, measured, (start, exclusive, what), None);
            });
            if recorded.is_some() {
                return;
            }
            // A signal handler that interrupts the recording of another one.
            thread
        }
        Some(Err(Unready::Overflow(thread))) => thread,
        Some(Err(Unready::Never)) => return process::miss(),
    };
    let Some(cell) = thread.shared_cell(point) else { return process::miss() };
    let bucket = thread.shared_bucket(cell, exclusive);
    cell.record_shared(Measurement { exclusive, inclusive: exclusive, away: None }, bucket);
    thread.count(|tally| &tally.unrecorded);
}

/// Records what the calling thread has spent outside its regions, once it is over. The region
/// that is open around it has it as a child, if `is_inside`.
pub(crate) fn record_past(point: &'static Point, past: &Past, is_inside: bool) {
    let ready = match measure::ready(point, point.control()) {
        Some(ready) => Some(Ok(ready)),
        None => thread::prepare(point),
    };
    let thread = match ready {
        // Switched off meanwhile.
        None => return,
        Some(Ok((thread, _)) | Err(Unready::Overflow(thread))) => thread,
        Some(Err(Unready::Never)) => return process::miss(),
    };
    let own = past.on_cpu.min(past.ticks);
    if is_inside {
        thread.cover(own);
    }
    thread.add_to_total(point.offset(), own);
    let sum = Sum { own, inclusive: own, off: past.ticks - own, switches: 0 };
    finish_with(thread, point, sum, (past.start, past.span), None);
}

/// What the polls of a future have measured so far and nobody has recorded; none before
/// the first of them, and after the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polls(Option<Unrecorded>);

#[derive(Clone, Copy, Debug)]
struct Unrecorded {
    sum: Sum,
    /// The counter when the first of them began.
    start: u64,
}

/// Ends a region that was begun for one poll of a future, and adds what it
/// measured to what its polls before did; records the sum with the last.
///
/// Inclusive ticks are the point's poll by poll: then each poll drops what the polls of
/// the same point inside it have added, as recursive calls do, whenever those futures end.
///
/// With amounts the point's cells have the sums of those.
#[inline(never)]
pub(crate) fn end_poll(
    point: &'static Point,
    guard: &Guard,
    polls: &mut Polls,
    last: bool,
    amounts: Option<&Amounts>,
) {
    let Some(thread) = thread::current().filter(|thread| thread.is_alive()) else { return };
    let (begun, place, recursive) = if let Some(&begun) = guard.begun() {
        (begun, guard.tag() & LEVELS, false)
    } else {
        let regions = thread.regions();
        let Some(at) = regions.innermost(point) else { return };
        let slot = &regions.slots[at];
        let recursive = slot.recursive.load(Relaxed) != 0;
        regions.give_up(at);
        (slot.begun(), slot.place.load(Relaxed), recursive)
    };
    let (moment, inside) = thread.moment(None, || {
        let noted = guard.begun().and_then(|begun| noted(thread, point, begun));
        added_since(noted, &begun)
    });
    thread.set_level(place.wrapping_add(LEVEL));
    let part = thread.part(&begun, moment);
    measure::give_back(thread, part.child, part.net);
    thread.show_end(moment.now);
    let unrecorded =
        polls.0.get_or_insert_with(|| Unrecorded { sum: Sum::default(), start: begun.start });
    let inclusive = if recursive { 0 } else { part.span().wrapping_sub(inside) };
    // At once, so that a poll around this one finds it.
    thread.add_to_total(point.offset(), inclusive);
    unrecorded.sum.add(Sum { own: part.own(), inclusive, off: part.off, switches: part.switches });
    if last && let Some(Unrecorded { sum, start }) = polls.0.take() {
        let elapsed = moment.now.wrapping_sub(start);
        finish_polls(thread, point, sum, (start, elapsed), amounts);
    }
}

/// Records all polls of a future. One that is measured by a point with amounts, as if that had
/// none, has amounts of 0.
fn finish_polls(
    thread: &Thread,
    point: &'static Point,
    sum: Sum,
    times: (u64, u64),
    amounts: Option<&Amounts>,
) {
    match point.timed() {
        None => finish_with(thread, point, sum, times, amounts),
        Some(timed) => finish_timed(thread, timed, point.control(), sum, times, amounts),
    }
}

impl Polls {
    /// Before the first.
    pub(crate) const NONE: Self = Self(None);

    /// Whether some poll was measured and is not recorded yet.
    #[inline(always)]
    pub(crate) fn wait(&self) -> bool {
        self.0.is_some()
    }

    /// Records what polls have measured of a future that will have no more.
    #[cold]
    pub(crate) fn record(&mut self, point: &'static Point, amounts: Option<&Amounts>) {
        let Some(Unrecorded { sum, start }) = self.0.take() else { return };
        let Some(thread) =
            thread::current().filter(|thread| thread.is_alive()).or_else(thread::get)
        else {
            return process::miss();
        };
        let elapsed = (thread.stamp().wrapping_sub(start) as i64).max(0) as u64;
        finish_polls(thread, point, sum, (start, elapsed), amounts);
    }
}

#[cfg(all(test, feature = "cuda", not(miri)))]
mod tests {
    use super::*;

    /// One that comes while its thread records something else is recorded beside that.
    #[test]
    fn what_a_device_has_measured_is_recorded_in_a_handler_too() {
        static DEVICE: Point = Point::new("device").of_the_clock();
        let _one = crate::engine::oracle::one_at_a_time();
        record_of_a_device(&DEVICE, 0, 5, 1);
        let thread = thread::get().expect("there is a lane");
        thread.busy(|| record_of_a_device(&DEVICE, 0, 7, 1));
        let stats = DEVICE.stats().expect("it has measured");
        assert_eq!((stats.count, stats.exclusive, stats.min, stats.max), (2, 12, 5, 7));
    }
}
