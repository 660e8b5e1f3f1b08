//! The begin and end of a guard, and the doors out of them.
//!
//! Begins differ in where their caller wants the guard: in place, returned, or where a compiler's
//! hooks have room.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;

use super::door::{self, Unready};
use super::guard::Guard;
use super::measure::{
    begin_fenced_in, begin_in, begin_noted, end_at, must_note_again, note, note_late, ready,
    ready_fenced, show,
};
use super::overhead::overhead;
use super::process::entries::miss_unregistered;
use super::region::{Door, End, RegionStart};
use super::state::UNREGISTERED;
use super::thread::ring::begins_page;
use super::thread::{self, Entry, Thread, lane};
use super::{by_hand, current, ending, process, room};
use crate::clock::{ticks, ticks_or_stamp};
use crate::point::Point;

impl Guard {
    /// Begins a region of a point.
    #[inline(always)]
    pub(crate) fn begin(point: &'static Point) -> Self {
        let control = point.control();
        if control.enabled() { Self::begin_returned(point, control) } else { Self::none() }
    }

    /// Begins a region in a guard that has none and stays where it is.
    #[inline(always)]
    pub(crate) fn begin_where(point: &'static Point, guard: &mut Self) {
        let control = point.control();
        if control.enabled() {
            guard.begin_on(point, control);
        }
    }

    /// The guard comes first, since it is needed after the counter is read, which overwrites the
    /// register of the third argument.
    #[inline(never)]
    pub(crate) fn begin_on(&mut self, point: &'static Point, control: Control) {
        // SAFETY: one that has no region drops nothing, and it is filled with a valid one.
        let guard = unsafe { &mut *ptr::from_mut(self).cast::<MaybeUninit<Self>>() };
        Self::begin_in_place(point, control, guard);
    }

    /// For a compiler's hooks, which cost more than a scope does: the region starts
    /// so much later, and what is around it has that much less. Fills the guard only
    /// here and in what is out of line, where it will stay.
    #[inline(always)]
    pub(crate) fn begin_function(point: &'static Point, word: u64, guard: &mut MaybeUninit<Self>) {
        let control = Control(word);
        let Some((thread, entry)) = ready(point, control) else {
            return Self::begin_function_fenced(point, guard);
        };
        let tag = thread.place.load(Relaxed);
        thread.cover(overhead().hooks_pair.load(Relaxed));
        let begun = note(thread, entry, point);
        if must_note_again(thread, &begun) {
            return Self::begin_function_late(point, thread, entry, tag, guard);
        }
        show(thread, tag, begun.start);
        guard.write(Self::of(point, tag, begun.of_a_function()));
    }

    #[cold]
    #[inline(never)]
    fn begin_function_late(
        point: &'static Point,
        thread: &Thread,
        entry: &Entry,
        tag: u64,
        guard: &mut MaybeUninit<Self>,
    ) {
        if !thread.is_alive() {
            guard.write(Self::none());
        } else if !thread.has_room() {
            thread.leave_out(tag);
            guard.write(Self::none());
        } else {
            let begun = note_late(thread, entry, tag, point);
            guard.write(Self::of(point, tag, begun.of_a_function()));
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_function_slow(point: &'static Point, guard: &mut MaybeUninit<Self>) {
        guard.write(Self::begin_slow(point));
    }

    #[cold]
    #[inline(never)]
    fn begin_function_fenced(point: &'static Point, guard: &mut MaybeUninit<Self>) {
        let ready = ready_fenced(point).filter(|(thread, _)| thread.has_room());
        let Some((thread, entry)) = ready else {
            return Self::begin_function_slow(point, guard);
        };
        let tag = thread.place.load(Relaxed) | thread::FENCED;
        thread.cover(overhead().hooks_pair.load(Relaxed));
        guard.write(Self::of(point, tag, begin_fenced_in(thread, entry, point).of_a_function()));
    }

    /// Fills a guard where it stays. The caller has read the word of the point, and
    /// found it on.
    #[inline(always)]
    pub(crate) fn begin_in_place(
        point: &'static Point,
        control: Control,
        guard: &mut MaybeUninit<Self>,
    ) {
        let Some(thread) = current::near() else {
            return Self::begin_function_slow(point, guard);
        };
        let of = (point.offset(), control);
        match begin_noted(thread, point, of, guard) {
            Some((_, Some(_))) => {}
            Some((tag, None)) => Self::begin_in_place_late(guard, point, tag),
            None => Self::begin_function_slow(point, guard),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_in_place_late(guard: &mut MaybeUninit<Self>, point: &'static Point, tag: u64) {
        guard.write(match current::thread() {
            Some(thread) => Self::begin_late(point, thread, tag),
            None => Self::none(),
        });
    }

    /// For C, which has read the word of the point, and found it on.
    #[inline(always)]
    pub(crate) fn begin_into(point: &'static Point, word: u64, guard: &mut MaybeUninit<Self>) {
        Self::begin_in_place(point, Control(word), guard);
    }

    /// Fills the guard where the caller will have it: a copy of what was just written would wait
    /// for the counter.
    #[inline(never)]
    pub(crate) fn begin_returned(point: &'static Point, control: Control) -> Self {
        let Some(thread) = current::near() else { return Self::begin_slow(point) };
        let mut begun = RegionStart::default();
        match begin_noted(thread, point, (point.offset(), control), &mut begun) {
            Some((tag, Some(_))) => Self::of(point, tag, begun),
            Some((tag, None)) => Self::begin_late(point, thread, tag),
            None => Self::begin_slow(point),
        }
    }

    /// The door out of `begin`: what was read of the clock is out of date. Looks the entry up
    /// again, so that the short way has a register less to save.
    #[cold]
    #[inline(never)]
    fn begin_late(point: &'static Point, thread: &Thread, tag: u64) -> Self {
        if !thread.is_alive() {
            return Self::none();
        }
        if !thread.has_room() {
            thread.leave_out(tag);
            return Self::none();
        }
        Self::of(point, tag, note_late(thread, thread.entry(point), tag, point))
    }

    /// A region of a fenced point. Its tag is no cell's, so it ends on a way of its own, too.
    #[inline(never)]
    pub(super) fn begin_fenced(point: &'static Point, thread: &Thread, entry: &Entry) -> Self {
        let tag = thread.place.load(Relaxed) | thread::FENCED;
        Self::of(point, tag, begin_fenced_in(thread, entry, point))
    }

    /// The door out of `begin`: something is not there yet, or has changed, or the point is
    /// fenced.
    #[cold]
    #[inline(never)]
    pub(super) fn begin_slow(point: &'static Point) -> Self {
        if room::has_room() {
            return Self::begin_slowly(point);
        }
        match point.control().0 {
            UNREGISTERED => miss_unregistered(point),
            _ => process::miss(),
        }
        Self::none()
    }

    #[inline(never)]
    fn begin_slowly(point: &'static Point) -> Self {
        if let Some((thread, entry)) = ready_fenced(point) {
            return Self::begin_fenced(point, thread, entry);
        }
        // The cell of a point with amounts is only known at the end, so nothing is missing.
        let is_known = point.has_amounts() && point.control().0 != UNREGISTERED;
        let ready = match current::thread().filter(|thread| is_known && thread.is_alive()) {
            Some(thread) => Some(Err(Unready::Overflow(thread))),
            None => door::prepare(point),
        };
        match ready {
            None => Self::none(),
            Some(Err(Unready::Never)) => {
                process::miss();
                Self::none()
            }
            Some(Err(Unready::Overflow(thread))) => {
                let kept = by_hand::begin_kept(thread, point);
                kept.map_or_else(Self::none, |start| Self::of_kept(point, start))
            }
            Some(Ok((thread, entry))) if point.control().fenced() => {
                Self::begin_fenced(point, thread, entry)
            }
            Some(Ok((thread, entry))) => {
                let tag = thread.place.load(Relaxed);
                Self::of(point, tag, begin_in(thread, entry, point))
            }
        }
    }

    /// Ends the region.
    #[inline(never)]
    pub(crate) fn end_on(&mut self) {
        match current::near() {
            Some(thread) => self.end_in(thread, ticks),
            None => self.end_far(),
        }
    }

    #[cold]
    #[inline(never)]
    fn end_far(&mut self) {
        match current::thread() {
            Some(thread) => self.end_in(thread, ticks_or_stamp),
            None => end_elsewhere(),
        }
    }

    #[inline(always)]
    fn end_in(&mut self, thread: &'static Thread, ticks: impl FnOnce() -> u64) {
        let covered = thread.covered();
        // As early as that: the counter is read when everything before it is done, and
        // what comes after it goes on side by side with what waits for the reading.
        let now = ticks();
        // Word by word, in registers.
        end_at::<false, _>(self, thread, End { now, covered }, None, |guard, door, marked| {
            if marked {
                guard.end_marked(door);
            } else {
                guard.end_slow(door);
            }
        });
    }

    /// Ends a region of a point whose cells have sums of amounts.
    #[inline(never)]
    pub(crate) fn end_rest(&mut self, amounts: &Amounts) {
        let Some(thread) = current::thread() else { return end_elsewhere() };
        let covered = thread.covered();
        let end = End { now: ticks_or_stamp(), covered };
        end_at::<false, _>(self, thread, end, Some(amounts), |guard, door, marked| {
            let end = guard.end_by(door, marked);
            ending::end_guard(guard, end, Some(amounts));
        });
    }

    /// The door out of `end`.
    #[cold]
    #[inline(never)]
    fn end_slow(&mut self, door: Door) {
        let end = self.end_by(door, false);
        ending::end_guard(self, end, None);
    }

    /// [`Self::end_slow`] on a thread that is marked.
    #[cold]
    #[inline(never)]
    fn end_marked(&mut self, door: Door) {
        let end = self.end_by(door, true);
        ending::end_guard(self, end, None);
    }

    /// Ends the region on the short way, or says when it ended.
    #[inline(always)]
    pub(super) fn end_shortly(&mut self, thread: &Thread, end: End) -> Result<(), End> {
        let mut door = None;
        end_at::<false, _>(self, thread, end, None, |_, found, marked| {
            door = Some((found, marked))
        });
        match door {
            None => Ok(()),
            Some((door, marked)) => self.end_less_shortly(thread, door, marked),
        }
    }

    #[cold]
    #[inline(never)]
    fn end_less_shortly(&mut self, thread: &Thread, door: Door, marked: bool) -> Result<(), End> {
        let end = self.end_by(door, marked);
        self.end_turned(thread, end)
    }

    /// Ends the region if all that was in the way is that its record is the first of a page.
    pub(super) fn end_turned(&mut self, thread: &Thread, end: End) -> Result<(), End> {
        let is_first = thread.inner_place() == self.place() && begins_page(thread.written());
        if is_first && ending::end_turned(thread, self, end) { Ok(()) } else { Err(end) }
    }

    /// Begins a region of a point whose cells have sums of amounts. The guard is full with the
    /// amounts, so the context keeps the rest.
    pub(super) fn begin_with_sums(point: &'static Point, amounts: &Amounts) -> Self {
        if !room::has_room() {
            process::miss();
            return Self::none();
        }
        Self::begin_with_sums_slowly(point, amounts)
    }

    #[inline(never)]
    fn begin_with_sums_slowly(point: &'static Point, amounts: &Amounts) -> Self {
        let kept = match door::ready(point) {
            Some(Ok((thread, _)) | Err(Unready::Overflow(thread))) => {
                by_hand::begin_kept(thread, point)
            }
            Some(Err(Unready::Never)) => {
                process::miss();
                None
            }
            None => None,
        };
        kept.map_or_else(Self::none, |start| Self::of_kept_with(point, start, amounts))
    }
}

/// Slow path of an end on a thread that has no lane: another thread has begun the region.
#[cold]
#[inline(never)]
fn end_elsewhere() {
    // A forked child has no process, and the region that it ends is its parent's.
    if let Some(thread) = process::current().and_then(lane::of) {
        thread.count(|counters| &counters.mismatched);
    }
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if self.tag != 0 {
            self.end_on();
        }
    }
}
