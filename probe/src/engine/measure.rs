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
//! everything rare leaves by a door of its own: [`Guard::begin_slow`],
//! [`Guard::begin_late`], [`ending::end_guard`].

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::Measurement;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::ring::{MOST_TICKS, What};

use super::overhead::{self, overhead};
use super::thread::{self, Entry, Thread, Unready};
use super::{busy, by_hand, ending, moment, process};
use crate::clock::{fenced_ticks, ticks};
use crate::mark;
use crate::point::Point;
use crate::timed::Timed;

/// What `begin` notes of a region, for `end`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Begun {
    /// The counter.
    pub(crate) start: u64,
    /// What was covered.
    pub(crate) covered: u64,
    /// The clock's offset, to know the time off the CPU.
    pub(crate) off: u64,
    /// Switches until then.
    pub(crate) switches: u64,
    /// The inclusive total; see [`Entry`].
    pub(crate) inclusive: u64,
}

impl Begun {
    /// With what the hooks of a function cost taken out.
    #[inline(always)]
    fn of_a_function(mut self) -> Self {
        self.start = self.start.wrapping_add(overhead().hooks_inside.load(Relaxed));
        self
    }
}

/// Where a begin notes its region word by word, each where it stays as soon as it is known, so
/// that few registers are needed: a guard, or a slot of a context.
pub(super) trait Notes: Copy {
    fn point(self, point: &'static Point);
    fn covered(self, ticks: u64);
    fn clock(self, off: u64, switches: u64);
    fn inclusive(self, ticks: u64);
    /// All else is there: when it began, and its tag.
    fn whole(self, start: u64, tag: u64);
}

/// What an end reads of its region, which was noted; see [`Notes`].
pub(super) trait Region {
    fn tag(&self) -> u64;
    fn point(&self) -> &'static Point;
    fn start(&self) -> u64;
    fn covered(&self) -> u64;
    fn inclusive(&self) -> u64;
    /// Has a word of the caller's frame hold its own [`mark`].
    fn prepare_mark(&mut self) -> u64;
    /// The mark is not used.
    fn drop_mark(&mut self, tag: u64);
    /// All was read of it, and it will be recorded.
    fn was_read(&mut self);
}

/// Measures a region until it is dropped; see [`Point::measure`].
///
/// It belongs to its thread: it cannot be sent to another one.
///
/// What stands at every region is a test, and a call of what is out of line and
/// has room for all that is noted: a region that is off has no register to save.
#[must_use = "a guard that is not bound to a name ends its region at once"]
#[derive(Debug)]
#[repr(C)]
pub struct Guard {
    /// The region's [`Thread::place`]; 0 if it is not measured, [`LONG_WAY`] if
    /// the context keeps it. While the region ends, a [`mark`]. First, as C's inline
    /// functions expect it.
    tag: u64,
    /// Defined unless the tag is 0: a region that is off shall not even clear it.
    point: MaybeUninit<&'static Point>,
    /// As the point. Of no meaning with [`LONG_WAY`].
    begun: MaybeUninit<Begun>,
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

    /// The guard is the first argument, and the last that is needed: so each stands in a register
    /// that the counter is not read into.
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
        let offset = point.offset();
        if !thread.follows(offset, control) {
            return Self::begin_function_slow(point, guard);
        }
        if let (tag, None) = begin_noted(thread, point, offset, guard.as_mut_ptr()) {
            Self::begin_in_place_late(thread, tag, guard);
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
        let is_first = thread.inner_place() == self.tag() && thread::begins_page(thread.written());
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

    /// Ends the region and begins one of another point; see [`Self::lap`].
    #[inline(always)]
    pub(crate) fn lap_to(&mut self, next: &'static Point) {
        let control = next.control();
        if self.tag != 0 && control.enabled() {
            self.lap_on::<false>(next, control);
        } else if self.tag != 0 || control.enabled() {
            self.lap_slow(next);
        }
    }

    #[inline(never)]
    fn lap_on<const TURNED: bool>(&mut self, next: &'static Point, next_control: Control) {
        let Some(thread) = thread::current() else { return self.lap_slow(next) };
        let tag = self.tag;
        let next_offset = next.offset();
        if !thread.follows(next_offset, next_control) || !thread.is_in(tag) {
            return self.lap_slow(next);
        }
        // SAFETY: a guard with the tag of a place has been filled.
        let (point, begun) = unsafe { (self.point.assume_init(), self.begun.assume_init_ref()) };
        let covered = thread.covered();
        // What a handler adds from now on is inside the next region, or the lap starts again.
        let next_total = thread.entry_at(next_offset).total();
        let now = ticks();
        let elapsed = now.wrapping_sub(begun.start);
        let offset = point.offset();
        let inside = thread.less_total(offset, begun.inclusive);
        let position = thread.position();
        // It may end before it starts, if that is later than the stamp.
        let is_short =
            !thread.clock.is_outdated(now) && elapsed.wrapping_add(overhead().late()) <= MOST_TICKS;
        let may_be_written = if TURNED { position.is_free() } else { position.is_in_page() };
        if !is_short || !may_be_written {
            return match TURNED {
                true => self.lap_slow(next),
                false => self.lap_turned(next, next_control),
            };
        }
        // As in `end_at`. Whoever jumps out from here on leaves nothing open.
        if !thread.mark_at(position, self.prepare_mark()) {
            self.tag = tag;
            return self.lap_slow(next);
        }
        if !thread.has_covered(covered) {
            busy::take_back(thread, &mut self.tag, tag);
            return self.lap_slow(next);
        }
        // SAFETY: as above; looked at anew, so that few registers do.
        let begun = unsafe { self.begun.assume_init_mut() };
        let slot = thread.slot_at(position);
        slot.fill_place(tag as u32);
        slot.fill_names(offset, thread.caller(tag));
        slot.fill_times(begun.start, not_below_zero(elapsed));
        let (net, span) = overhead::less_inside(elapsed);
        let inclusive = span.wrapping_add(inside);
        thread.add_to_total(offset, inclusive);
        let own = net.wrapping_add(begun.covered).wrapping_sub(covered);
        slot.fill_figures(own, inclusive);
        // Between two regions there is nothing, so all of what has elapsed is the region's: what
        // measuring adds is part of it. What recording takes is inside the next one, which starts
        // that much later; the region around both must not pay for it.
        let ended = own.wrapping_add(overhead().lap());
        begun.covered = covered.wrapping_add(ended);
        begun.start = now.wrapping_add(overhead().late());
        let ended_too = if offset == next_offset { inclusive } else { 0 };
        begun.inclusive = next_total.wrapping_add(ended_too);
        self.point.write(next);
        let open = thread.open_region(tag);
        open.name(next_offset, begun.off);
        open.begin(begun.start);
        thread.cover(ended);
        thread.publish(position);
        compiler_fence(SeqCst);
        self.tag = tag;
    }

    /// A lap to a region with amounts; see [`Self::lap_with`].
    pub(crate) fn lap_to_amounts(&mut self, next: &'static Timed, amounts: &Amounts) {
        match next.choose(amounts) {
            Some((variant, false)) => self.lap_to(variant),
            Some((rest, true)) => {
                *self = Self::none();
                *self = Self::begin_with_sums(rest, amounts);
            }
            None => *self = Self::none(),
        }
    }

    /// A lap whose record may be the first of a page.
    #[cold]
    #[inline(never)]
    fn lap_turned(&mut self, next: &'static Point, next_control: Control) {
        if let Some(thread) = thread::current()
            && thread.inner_place() == self.tag
            && thread::begins_page(thread.written())
            && let Some(took) = ending::turn_page(thread, self)
        {
            // As if it had begun that much later.
            self.delay(took);
            return self.lap_on::<true>(next, next_control);
        }
        self.lap_slow(next);
    }

    /// The door out of `lap`: an end and a begin.
    #[cold]
    #[inline(never)]
    fn lap_slow(&mut self, next: &'static Point) {
        if self.tag != 0 {
            self.end_on();
            self.tag = 0;
        }
        *self = Self::begin(next);
    }

    /// See the field.
    #[inline(always)]
    pub(super) fn place(&self) -> u64 {
        self.tag
    }

    /// From now on it ends as if its point were not fenced.
    pub(super) fn forget_fence(&mut self) {
        self.tag = self.tag();
    }

    /// See the field; without [`thread::FENCED`].
    pub(crate) fn tag(&self) -> u64 {
        self.tag & !thread::FENCED
    }

    /// So much was covered since it began that was not inside, and so much was added to the
    /// inclusive total of its point.
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
    fn begin_with_sums(point: &'static Point, amounts: &Amounts) -> Self {
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

impl Notes for *mut Guard {
    #[inline(always)]
    fn point(self, point: &'static Point) {
        // SAFETY: a guard of whoever begins, here and below; it may be uninitialised.
        unsafe { (*self).point = MaybeUninit::new(point) };
    }

    #[inline(always)]
    fn covered(self, ticks: u64) {
        // SAFETY: as above.
        unsafe { (*begun_of(self)).covered = ticks };
    }

    #[inline(always)]
    fn clock(self, off: u64, switches: u64) {
        // SAFETY: as above.
        unsafe { ((*begun_of(self)).off, (*begun_of(self)).switches) = (off, switches) };
    }

    #[inline(always)]
    fn inclusive(self, ticks: u64) {
        // SAFETY: as above.
        unsafe { (*begun_of(self)).inclusive = ticks };
    }

    #[inline(always)]
    fn whole(self, start: u64, tag: u64) {
        // SAFETY: as above.
        unsafe { ((*begun_of(self)).start, (*self).tag) = (start, tag) };
    }
}

/// The words of a guard that may be uninitialised.
#[inline(always)]
fn begun_of(guard: *mut Guard) -> *mut Begun {
    // SAFETY: an address within the guard.
    unsafe { (&raw mut (*guard).begun).cast() }
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

/// The calling thread and its entry of a point, if there is a cell that follows the
/// control word.
#[inline(always)]
pub(crate) fn ready(
    point: &'static Point,
    control: Control,
) -> Option<(&'static Thread, &'static Entry)> {
    let thread = thread::current()?;
    let offset = point.offset();
    if thread.follows(offset, control) { Some((thread, thread.entry_at(offset))) } else { None }
}

/// The same of a fenced point, whose word no cell equals.
pub(crate) fn ready_fenced(point: &'static Point) -> Option<(&'static Thread, &'static Entry)> {
    let control = point.control();
    let is_fenced = control.fenced() && control.enabled() && control.0 != crate::c::UNREGISTERED;
    if is_fenced { ready(point, control.meant()) } else { None }
}

/// Opens a region: the thread is in it from now on. The caller asks whether the
/// thread was switched out before that.
#[inline(always)]
pub(super) fn note(thread: &Thread, entry: &Entry, point: &Point) -> Begun {
    note_by(thread, entry, point, ticks)
}

#[inline(always)]
fn note_by(thread: &Thread, entry: &Entry, point: &Point, ticks: impl FnOnce() -> u64) -> Begun {
    let covered = thread.covered();
    let off = thread.clock.off();
    let switches = thread.clock.switches();
    let inclusive = entry.total();
    // Before it is inside, so that what a signal handler measures knows its caller.
    thread.open_region(thread.place.load(Relaxed)).name(point.offset(), off);
    thread.deepen();
    // Last, so that as little as possible of this is inside the region.
    let start = ticks();
    Begun { start, covered, off, switches, inclusive }
}

/// Whether what [`note`] noted does not belong together: a signal handler has measured
/// in between, this is a forked child, or the thread was switched out before.
#[inline(always)]
pub(super) fn must_note_again(thread: &Thread, begun: &Begun) -> bool {
    !thread.has_covered(begun.covered) || thread.clock.is_outdated(begun.start)
}

/// Shows that a region of a place is open.
#[inline(always)]
pub(super) fn show(thread: &Thread, place: u64, start: u64) {
    thread.open_region(place).begin(start);
}

/// What [`note`] should have noted of a region of a place, which is shown.
#[inline(never)]
pub(super) fn note_late(thread: &Thread, entry: &Entry, place: u64, point: &Point) -> Begun {
    moment::note_long(thread, place, point, || entry.total())
}

/// Opens a region, after a switch too.
#[inline(always)]
pub(crate) fn begin_in(thread: &Thread, entry: &Entry, point: &Point) -> Begun {
    let begun = note(thread, entry, point);
    let place = thread.inner_place();
    if must_note_again(thread, &begun) {
        return note_late(thread, entry, place, point);
    }
    show(thread, place, begun.start);
    begun
}

/// The same with a stamp that waits for the work before.
pub(super) fn begin_fenced_in(thread: &Thread, entry: &Entry, point: &Point) -> Begun {
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

/// Begins a region of a point that the thread has a cell for. Returns its tag, and when that was
/// and what was covered then; none if it must be begun again, since the clock is old, a signal
/// handler has measured in between, or this is a forked child.
#[inline(always)]
pub(super) fn begin_noted(
    thread: &Thread,
    point: &'static Point,
    offset: u32,
    notes: impl Notes,
) -> (u64, Option<End>) {
    let tag = thread.place.load(Relaxed);
    let covered = thread.covered();
    let open = thread.innermost_open();
    notes.point(point);
    notes.covered(covered);
    let off = thread.clock.off();
    open.name(offset, off);
    notes.clock(off, thread.clock.switches());
    notes.inclusive(thread.entry_at(offset).total());
    // The caller of what a signal handler measures from now on.
    thread.deepen();
    // Last, so that as little as possible of this is inside the region.
    let now = ticks();
    if !thread.has_covered(covered) || thread.clock.is_outdated(now) {
        return (tag, None);
    }
    open.begin(now);
    notes.whole(now, tag);
    (tag, Some(End { now, covered }))
}

/// Ends a region on the short way, if it can be; else by `slow`. With `TURNED`, there is room for
/// its record, and what that took was covered since. Amounts have no place in the ring: a region
/// that has some goes into its cell.
#[inline(always)]
pub(super) fn end_at<const TURNED: bool, R: Region>(
    region: &mut R,
    thread: &Thread,
    at: End,
    amounts: Option<&Amounts>,
    mut slow: impl FnMut(&mut R, Door),
) {
    let End { now, covered } = at;
    let tag = region.tag();
    let point = region.point();
    let elapsed = now.wrapping_sub(region.start());
    let door = Door { elapsed, covered, marked: 0 };
    // A forked child finds no place: its pages are wiped.
    if !thread.is_in(tag) {
        return slow(region, door);
    }
    let offset = point.offset();
    // What regions of the point inside have added, below zero. Before the clock is asked: that
    // tells whether another fibre has run meanwhile, which may have added to it.
    let inside = thread.less_total(offset, region.inclusive());
    if thread.clock.is_outdated_after(elapsed) {
        return slow(region, door);
    }
    let position = thread.position();
    let may_be_written = match TURNED || amounts.is_some() {
        true => position.is_free(),
        false => position.is_in_page(),
    };
    if !may_be_written {
        return slow(region, door);
    }
    // From here on signal handlers and other fibres leave the ring alone. One that has
    // written a record since the position was read has moved it; one that has measured since
    // the counter was read has covered something; a child that one has forked finds nothing
    // covered. Then nothing of this holds, and nothing may be written.
    if !thread.mark_at(position, region.prepare_mark()) {
        region.drop_mark(tag);
        return slow(region, door);
    }
    if !thread.has_covered(covered) {
        return slow(region, Door { marked: tag, ..door });
    }
    let slot = thread.slot_at(position);
    // Each figure goes where it belongs as soon as it is known, and words of the region are
    // looked at anew, so that few registers do.
    if amounts.is_none() {
        slot.fill_place(tag as u32);
        slot.fill_names(offset, thread.caller(tag));
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

/// What the short way of an end leaves to the long one.
#[derive(Clone, Copy)]
pub(super) struct Door {
    /// Ticks since the region began.
    pub(super) elapsed: u64,
    /// What was covered before the counter was read.
    pub(super) covered: u64,
    /// The region's tag, if a mark was set, which a guard holds instead; else 0.
    pub(super) marked: u64,
}

/// What an end reads first.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The counter.
    pub(crate) now: u64,
    /// What was covered before that.
    pub(crate) covered: u64,
}

/// What a record says of a region of a place beside its ticks.
#[inline(always)]
pub(crate) fn what(thread: &Thread, point: &Point, place: u64) -> What {
    What::at(point.offset(), thread.caller(place), place as u32)
}

/// A difference of two stamps, or 0 if it is negative: what calibration takes
/// out may be a tick more than a short region took.
#[inline(always)]
fn not_below_zero(ticks: u64) -> u64 {
    (ticks as i64).max(0) as u64
}

/// What one begin and end measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Part {
    /// On-CPU ticks from begin to end, less what measuring costs: below zero where that is more.
    pub(crate) net: u64,
    /// Ticks of the regions inside.
    pub(crate) child: u64,
    /// Ticks off the CPU.
    pub(crate) off: u64,
    /// Switches.
    pub(crate) switches: u64,
}

impl Part {
    /// Exclusive ticks. Never negative: what calibration takes out may be a
    /// tick more than a short region took.
    #[inline(always)]
    pub(crate) fn own(&self) -> u64 {
        not_below_zero(self.net.wrapping_sub(self.child))
    }

    /// Ticks with those of the regions inside.
    #[inline(always)]
    pub(crate) fn span(&self) -> u64 {
        not_below_zero(self.net)
    }
}

/// Closes the innermost region, which has had `child` ticks of regions inside, for the
/// one around it.
#[inline(always)]
pub(crate) fn give_back(thread: &Thread, child: u64, net: u64) {
    thread.cover(net.wrapping_add(overhead().pair()).wrapping_sub(child));
    thread.rise();
}

/// Whether this many ticks from begin to end say that the counter ran backwards,
/// not only that a region that a lap or a hook began was left at once.
pub(crate) fn ran_backwards(elapsed: u64) -> bool {
    let late = overhead().hooks_inside.load(Relaxed) + overhead().fence_inside.load(Relaxed);
    let late = late.max(overhead().late());
    (elapsed as i64) < -(late as i64)
}
