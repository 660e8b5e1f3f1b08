//! The guard: a region that lasts as long as a value does, and the doors of its begin and end.
//!
//! Begins differ in where their caller wants the guard: in place, returned, or where a compiler's
//! hooks have room.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;

use super::measure::{
    Begun, Door, End, Notes, Region, begin_fenced_in, begin_in, begin_noted, end_at,
    must_note_again, note, note_late, ready, ready_fenced, show,
};
use super::overhead::overhead;
use super::thread::{self, Entry, Thread, Unready};
use super::{busy, by_hand, ending, process};
use crate::clock::ticks;
use crate::mark;
use crate::point::Point;

/// Measures a region until it is dropped; see [`Point::measure`].
///
/// It belongs to its thread: it cannot be sent to another one.
///
/// Each region has a test and a call inline. What is noted is noted out of line, so a region that
/// is off has no register to save.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
#[repr(C)]
pub struct Guard {
    /// The region's [`Thread::place`]; 0 if it is not measured, [`LONG_WAY`] if
    /// the context keeps it. While the region ends, a [`mark`]. First, as C's inline
    /// functions expect it.
    pub(super) tag: u64,
    /// Undefined if the tag is 0: a region that is off does not even clear it.
    pub(super) point: MaybeUninit<&'static Point>,
    /// Undefined if the tag is 0, and without meaning with [`LONG_WAY`].
    pub(super) begun: MaybeUninit<Begun>,
    thread_bound: PhantomData<*const ()>,
}

/// The tag of a region that the context keeps: no place, whose highest bit is 1, and without
/// [`thread::FENCED`].
const LONG_WAY: u64 = 4;
/// The same where the guard has the amounts of the region, in place of what `begin`
/// notes of others.
const LONG_WAY_WITH: u64 = 12;

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
            return;
        }
        let begun = note_late(thread, entry, tag, point);
        guard.write(Self::of(point, tag, begun.of_a_function()));
    }

    #[cold]
    #[inline(never)]
    fn begin_function_slow(point: &'static Point, guard: &mut MaybeUninit<Self>) {
        guard.write(Self::begin_slow(point));
    }

    #[cold]
    #[inline(never)]
    fn begin_function_fenced(point: &'static Point, guard: &mut MaybeUninit<Self>) {
        let Some((thread, entry)) = ready_fenced(point) else {
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
        let Some(thread) = thread::current() else {
            return Self::begin_function_slow(point, guard);
        };
        let of = (point.offset(), control);
        match begin_noted(thread, point, of, guard) {
            Some((_, Some(_))) => {}
            Some((tag, None)) => Self::begin_in_place_late(thread, tag, guard),
            None => Self::begin_function_slow(point, guard),
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_in_place_late(thread: &Thread, tag: u64, guard: &mut MaybeUninit<Self>) {
        // SAFETY: written just now; one register less to save than if it were passed on.
        let point = unsafe { (*guard.as_ptr()).point.assume_init() };
        guard.write(Self::begin_late(point, thread, tag));
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
        let Some((thread, entry)) = ready(point, control) else { return Self::begin_slow(point) };
        let tag = thread.place.load(Relaxed);
        let begun = note(thread, entry, point);
        if must_note_again(thread, &begun) {
            return Self::begin_late(point, thread, tag);
        }
        show(thread, tag, begun.start);
        Self::of(point, tag, begun)
    }

    /// The door out of `begin`: what was read of the clock is out of date. Looks the entry up
    /// again, so that the short way has a register less to save.
    #[cold]
    #[inline(never)]
    fn begin_late(point: &'static Point, thread: &Thread, tag: u64) -> Self {
        if !thread.is_alive() {
            return Self::none();
        }
        Self::of(point, tag, note_late(thread, thread.entry(point.index()), tag, point))
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
        if let Some((thread, entry)) = ready_fenced(point) {
            return Self::begin_fenced(point, thread, entry);
        }
        // The cell of a point with amounts is only known at the end, so nothing is missing.
        let is_known = point.timed().is_some() && point.control().0 != crate::c::UNREGISTERED;
        let ready = match thread::current().filter(|thread| is_known && thread.is_alive()) {
            Some(thread) => Some(Err(Unready::Overflow(thread))),
            None => thread::prepare(point),
        };
        match ready {
            None => Self::none(),
            Some(Err(Unready::Never)) => {
                process::miss();
                Self::none()
            }
            Some(Err(Unready::Overflow(thread))) => {
                let kept = by_hand::begin_kept(thread, point);
                Self::of(point, if kept { LONG_WAY } else { 0 }, Begun::default())
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

    /// A guard that has no region.
    #[inline(always)]
    pub(crate) fn none() -> Self {
        Self {
            tag: 0,
            point: MaybeUninit::uninit(),
            begun: MaybeUninit::uninit(),
            thread_bound: PhantomData,
        }
    }

    #[inline(always)]
    pub(super) fn of(point: &'static Point, tag: u64, begun: Begun) -> Self {
        let (point, begun) = (MaybeUninit::new(point), MaybeUninit::new(begun));
        Self { tag, point, begun, thread_bound: PhantomData }
    }

    /// Ends the region.
    #[inline(never)]
    pub(crate) fn end_on(&mut self) {
        let Some(thread) = thread::current() else { return };
        let covered = thread.covered();
        // As early as that: the counter is read when everything before it is done, and
        // what comes after it goes on side by side with what waits for the reading.
        let now = ticks();
        // Word by word, in registers.
        end_at::<false, _>(self, thread, End { now, covered }, None, |guard, door| {
            guard.end_slow(door.elapsed, door.covered, door.marked);
        });
    }

    /// Ends a region of a point whose cells have sums of amounts.
    #[inline(never)]
    pub(crate) fn end_rest(&mut self, amounts: &Amounts) {
        let Some(thread) = thread::current() else { return };
        let covered = thread.covered();
        let now = ticks();
        end_at::<false, _>(self, thread, End { now, covered }, Some(amounts), |guard, door| {
            let end = guard.end_by(door);
            ending::end_guard(guard, end, Some(amounts));
        });
    }

    /// The door out of `end`.
    #[cold]
    #[inline(never)]
    fn end_slow(&mut self, elapsed: u64, covered: u64, marked: u64) {
        let end = self.end_by(Door { elapsed, covered, marked });
        ending::end_guard(self, end, None);
    }

    /// Ends the region on the short way, or says when it ended.
    #[inline(always)]
    pub(super) fn end_shortly(&mut self, thread: &Thread, end: End) -> Result<(), End> {
        let mut door = None;
        end_at::<false, _>(self, thread, end, None, |_, found| door = Some(found));
        match door {
            None => Ok(()),
            Some(door) => self.end_less_shortly(thread, door),
        }
    }

    #[cold]
    #[inline(never)]
    fn end_less_shortly(&mut self, thread: &Thread, door: Door) -> Result<(), End> {
        let end = self.end_by(door);
        self.end_turned(thread, end)
    }

    /// Ends the region if all that was in the way is that its record is the first of a page.
    pub(super) fn end_turned(&mut self, thread: &Thread, end: End) -> Result<(), End> {
        let is_first =
            thread.inner_place() == self.place() && thread::begins_page(thread.written());
        if is_first && ending::end_turned(thread, self, end) { Ok(()) } else { Err(end) }
    }

    /// Puts right what the short way has done, and says when the region ended.
    pub(super) fn end_by(&mut self, Door { elapsed, covered, marked }: Door) -> End {
        if marked != 0
            && let Some(thread) = thread::current()
        {
            busy::take_back(thread, &mut self.tag, marked);
        }
        End { now: self.start().wrapping_add(elapsed), covered }
    }

    /// From now on it ends as if its point were not fenced.
    pub(super) fn forget_fence(&mut self) {
        self.tag = self.place();
    }

    /// The tag without [`thread::FENCED`].
    pub(crate) fn place(&self) -> u64 {
        self.tag & !thread::FENCED
    }

    /// Leaves out ticks that were covered since it began but not inside, and ticks that were added
    /// to the inclusive total of its point.
    pub(super) fn leave_out(&mut self, covered: u64, added: u64) {
        // SAFETY: asked of a guard that has the tag of a place.
        let begun = unsafe { self.begun.assume_init_mut() };
        begun.covered = begun.covered.wrapping_add(covered);
        begun.inclusive = begun.inclusive.wrapping_add(added);
    }

    /// It begins later.
    pub(super) fn delay(&mut self, ticks: u64) {
        // SAFETY: as above.
        let begun = unsafe { self.begun.assume_init_mut() };
        begun.start = begun.start.wrapping_add(ticks);
    }

    /// Whether it ends by a stamp that waits, if it is not kept by the context.
    pub(crate) fn is_fenced(&self) -> bool {
        self.tag & thread::FENCED != 0
    }

    /// What `begin` noted; none if the context has it, or nothing is open.
    #[inline(always)]
    pub(crate) fn begun(&self) -> Option<&Begun> {
        // SAFETY: with the tag of a place it was filled.
        (self.tag & thread::IS_PLACE != 0).then(|| unsafe { self.begun.assume_init_ref() })
    }

    /// The amounts of a region that the context keeps, if the guard has them.
    pub(crate) fn kept_amounts(&self) -> Option<Amounts> {
        (self.tag == LONG_WAY_WITH).then(|| {
            // SAFETY: filled in `begin_with_sums`, with this tag.
            let Begun { start, covered, off, switches, .. } = unsafe { self.begun.assume_init() };
            [start, covered, off, switches]
        })
    }

    /// Begins a region of a point whose cells have sums of amounts, in a guard that has
    /// room for no more than it has: the context keeps the rest.
    pub(super) fn begin_with_sums(point: &'static Point, amounts: &Amounts) -> Self {
        let ready = ready(point, point.control()).map(Ok);
        let kept = match ready.or_else(|| thread::prepare(point)) {
            Some(Ok((thread, _)) | Err(Unready::Overflow(thread))) => {
                by_hand::begin_kept(thread, point)
            }
            Some(Err(Unready::Never)) => {
                process::miss();
                false
            }
            None => false,
        };
        if !kept {
            return Self::none();
        }
        let [start, covered, off, switches] = *amounts;
        Self::of(point, LONG_WAY_WITH, Begun { start, covered, off, switches, inclusive: 0 })
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

/// Of a guard that may be uninitialised.
impl Notes for MaybeUninit<Guard> {
    #[inline(always)]
    fn point(&mut self, point: &'static Point) {
        // SAFETY: a word of the guard's.
        unsafe { (*self.as_mut_ptr()).point = MaybeUninit::new(point) };
    }

    #[inline(always)]
    fn covered(&mut self, ticks: u64) {
        // SAFETY: as `begun_of` has it, here and below.
        unsafe { (*begun_of(self)).covered = ticks };
    }

    #[inline(always)]
    fn clock(&mut self, off: u64, switches: u64) {
        let begun = begun_of(self);
        // SAFETY: as above.
        unsafe { ((*begun).off, (*begun).switches) = (off, switches) };
    }

    #[inline(always)]
    fn inclusive(&mut self, ticks: u64) {
        // SAFETY: as above.
        unsafe { (*begun_of(self)).inclusive = ticks };
    }

    #[inline(always)]
    fn whole(&mut self, start: u64, tag: u64) {
        // SAFETY: as above, and a word of the guard's.
        unsafe { ((*begun_of(self)).start, (*self.as_mut_ptr()).tag) = (start, tag) };
    }
}

/// The words of a guard that may be uninitialised, and may be written.
#[inline(always)]
fn begun_of(guard: &mut MaybeUninit<Guard>) -> *mut Begun {
    // SAFETY: an address within the guard.
    unsafe { (&raw mut (*guard.as_mut_ptr()).begun).cast() }
}

/// Of a guard that has been filled.
impl Region for Guard {
    #[inline(always)]
    fn tag(&self) -> u64 {
        self.tag
    }

    #[inline(always)]
    fn point(&self) -> &'static Point {
        // SAFETY: filled, here and below.
        unsafe { self.point.assume_init() }
    }

    #[inline(always)]
    fn start(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.begun.assume_init_ref() }.start
    }

    #[inline(always)]
    fn covered(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.begun.assume_init_ref() }.covered
    }

    #[inline(always)]
    fn inclusive(&self) -> u64 {
        // SAFETY: as above.
        unsafe { self.begun.assume_init_ref() }.inclusive
    }

    #[inline(always)]
    fn prepare_mark(&mut self) -> u64 {
        mark::prepare(&mut self.tag)
    }

    #[inline(always)]
    fn drop_mark(&mut self, tag: u64) {
        self.tag = tag;
    }

    #[inline(always)]
    fn was_read(&mut self) {}
}
