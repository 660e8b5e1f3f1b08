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
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::{Amounts, SumWords};
use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::{Control, FENCED};
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::ring::Record;

use super::calibrate::Costs;
use super::thread::{self, Thread, Unready};
use super::{ending, process};
use crate::Amount;
use crate::clock::{fenced_ticks, ticks};
use crate::mark::Mark;
use crate::point::Point;
use crate::timed::{self, Timed};

/// What is taken out of all figures. In one place, so that one address does.
pub(crate) static OVERHEAD: Overhead = Overhead {
    inside: AtomicU64::new(0),
    pair: AtomicU64::new(1),
    lap: AtomicU64::new(0),
    late: AtomicU64::new(0),
    hooks_inside: AtomicU64::new(0),
    hooks_pair: AtomicU64::new(0),
    fence_inside: AtomicU64::new(0),
    fence_pair: AtomicU64::new(0),
};

/// What measuring costs, in ticks.
#[derive(Debug)]
pub(crate) struct Overhead {
    /// What falls inside a region.
    pub(super) inside: AtomicU64,
    /// A begin and end pair, `inside` among them.
    pub(super) pair: AtomicU64,
    /// What falls inside a region that a lap began: the recording of the one
    /// before it as well.
    pub(super) lap: AtomicU64,
    /// By how much such a region starts after the stamp, so that taking out
    /// `inside` takes out all of `lap`.
    pub(super) late: AtomicU64,
    /// By how much more than `inside` falls inside a function that a compiler's
    /// hooks begin and end.
    pub(super) hooks_inside: AtomicU64,
    /// By how much more than `pair` such a function takes from the one around.
    pub(super) hooks_pair: AtomicU64,
    /// The same of a region of a fenced point.
    pub(super) fence_inside: AtomicU64,
    pub(super) fence_pair: AtomicU64,
}

impl Overhead {
    #[inline(always)]
    pub(crate) fn inside(&self) -> u64 {
        self.inside.load(Relaxed)
    }

    #[inline(always)]
    pub(super) fn pair(&self) -> u64 {
        self.pair.load(Relaxed)
    }

    #[inline(always)]
    fn lap(&self) -> u64 {
        self.lap.load(Relaxed)
    }

    #[inline(always)]
    fn late(&self) -> u64 {
        self.late.load(Relaxed)
    }

    /// Puts costs in force, and returns those that were.
    pub(crate) fn replace(&self, costs: Costs) -> Costs {
        let inside = self.inside.swap(costs.inside, Relaxed);
        let pair = self.pair.swap(costs.pair, Relaxed);
        let lap = self.lap.swap(costs.lap, Relaxed);
        self.late.store(costs.lap.saturating_sub(costs.inside), Relaxed);
        Costs { inside, pair, lap }
    }
}

/// What `begin` notes of a region, for `end`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Begun {
    /// The context's clock.
    pub(crate) start: u64,
    /// What was covered.
    pub(crate) covered: u64,
    /// The clock's offset, to know the time off the CPU.
    pub(crate) off: u64,
    /// Switches until then.
    pub(crate) switches: u64,
    /// The cell's inclusive total; see [`Cell::inclusive_total`].
    pub(crate) inclusive: u64,
}

impl Begun {
    /// The counter when the region began.
    #[inline(always)]
    pub(crate) fn ticks(&self) -> u64 {
        self.start.wrapping_add(self.off)
    }

    /// With what the hooks of a function cost taken out.
    #[inline(always)]
    fn of_a_function(mut self) -> Self {
        self.start = self.start.wrapping_add(OVERHEAD.hooks_inside.load(Relaxed));
        self
    }
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
    /// See [`thread::tag`]; 0 if the region is not measured, [`LONG_WAY`] if
    /// the context keeps it. First, as C's inline functions expect it.
    tag: u64,
    /// Defined unless the tag is 0: a region that is off shall not even clear it.
    point: MaybeUninit<&'static Point>,
    /// Defined if the tag is neither.
    begun: MaybeUninit<Begun>,
    thread_bound: PhantomData<*const ()>,
}

/// The tag of a region that the context keeps: not a control word that is on, whose
/// lowest bit is 1.
const LONG_WAY: u64 = 2;
/// The same where the guard has the amounts of the region, in place of what `begin`
/// notes of others.
const LONG_WAY_WITH: u64 = 6;

impl Guard {
    /// Begins a region of a point.
    #[inline(always)]
    pub(crate) fn begin(point: &'static Point) -> Self {
        let control = point.control();
        if control.enabled() { Self::begin_on(point, control) } else { Self::none() }
    }

    /// For a compiler's hooks, which cost more than a scope does: the region starts
    /// so much later, and what is around it has that much less. Fills the guard only
    /// here and in what is out of line, where it will stay.
    #[inline(always)]
    pub(crate) fn begin_function(point: &'static Point, word: u64, guard: &mut MaybeUninit<Self>) {
        let control = Control(word);
        let Some((thread, cell)) = ready(point, control) else {
            return Self::begin_function_fenced(point, guard);
        };
        let tag = thread::tag(control, thread.place.load(Relaxed));
        thread.cover(OVERHEAD.hooks_pair.load(Relaxed));
        let begun = note(thread, cell);
        if must_note_again(thread, &begun) {
            return Self::begin_function_late(point, thread, cell, tag, guard);
        }
        guard.write(Self::of(point, tag, begun.of_a_function()));
    }

    #[cold]
    #[inline(never)]
    fn begin_function_late(
        point: &'static Point,
        thread: &Thread,
        cell: &Cell,
        tag: u64,
        guard: &mut MaybeUninit<Self>,
    ) {
        if !thread.is_alive() {
            guard.write(Self::none());
            return;
        }
        let begun = note_late(thread, cell);
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
        let Some((thread, cell)) = ready_fenced(point) else {
            return Self::begin_function_slow(point, guard);
        };
        let tag = thread::tag(cell.control(), thread.place.load(Relaxed)) | FENCED;
        thread.cover(OVERHEAD.hooks_pair.load(Relaxed));
        guard.write(Self::of(point, tag, begin_fenced_in(thread, cell).of_a_function()));
    }

    /// Fills a guard where it stays. The caller has read the word of the point, and
    /// found it on.
    #[inline(always)]
    pub(crate) fn begin_in_place(
        point: &'static Point,
        control: Control,
        guard: &mut MaybeUninit<Self>,
    ) {
        let Some((thread, cell)) = ready(point, control) else {
            return Self::begin_function_slow(point, guard);
        };
        let tag = thread::tag(control, thread.place.load(Relaxed));
        let begun = note(thread, cell);
        if must_note_again(thread, &begun) {
            return Self::begin_in_place_late(point, thread, tag, guard);
        }
        guard.write(Self::of(point, tag, begun));
    }

    #[cold]
    #[inline(never)]
    fn begin_in_place_late(
        point: &'static Point,
        thread: &Thread,
        tag: u64,
        guard: &mut MaybeUninit<Self>,
    ) {
        guard.write(Self::begin_late(point, thread, tag));
    }

    /// For C, which has read the word of the point, and found it on.
    #[inline(always)]
    pub(crate) fn begin_into(point: &'static Point, word: u64, guard: &mut MaybeUninit<Self>) {
        guard.write(Self::begin_here(point, Control(word)));
    }

    #[inline(never)]
    pub(crate) fn begin_on(point: &'static Point, control: Control) -> Self {
        Self::begin_here(point, control)
    }

    /// Each of the ways fills the guard where it will stay: a copy of what was
    /// just written would wait for the counter.
    #[inline(always)]
    fn begin_here(point: &'static Point, control: Control) -> Self {
        let Some((thread, cell)) = ready(point, control) else { return Self::begin_slow(point) };
        let tag = thread::tag(control, thread.place.load(Relaxed));
        let begun = note(thread, cell);
        if must_note_again(thread, &begun) {
            return Self::begin_late(point, thread, tag);
        }
        Self::of(point, tag, begun)
    }

    /// The door out of `begin`: what was read of the clock is out of date. Looks the cell up
    /// again, so that the short way has a register less to save.
    #[cold]
    #[inline(never)]
    fn begin_late(point: &'static Point, thread: &Thread, tag: u64) -> Self {
        match thread.cell(point.index()) {
            Some(cell) if thread.is_alive() => Self::of(point, tag, note_late(thread, cell)),
            _ => Self::none(),
        }
    }

    /// A region of a fenced point. Its tag is no cell's, so it ends on a way of its own, too.
    #[inline(never)]
    pub(super) fn begin_fenced(point: &'static Point, thread: &Thread, cell: &Cell) -> Self {
        let tag = thread::tag(cell.control(), thread.place.load(Relaxed)) | FENCED;
        Self::of(point, tag, begin_fenced_in(thread, cell))
    }

    /// The door out of `begin`: something is not there yet, or has changed, or the point is
    /// fenced.
    #[cold]
    #[inline(never)]
    fn begin_slow(point: &'static Point) -> Self {
        if let Some((thread, cell)) = ready_fenced(point) {
            return Self::begin_fenced(point, thread, cell);
        }
        match thread::prepare(point) {
            None => Self::none(),
            Some(Err(Unready::Never)) => {
                process::miss();
                Self::none()
            }
            Some(Err(Unready::Overflow(thread))) => {
                let kept = ending::begin_kept(thread, point);
                let tag = if kept { LONG_WAY } else { 0 };
                Self { tag, point: MaybeUninit::new(point), ..Self::none() }
            }
            Some(Ok((thread, cell))) if point.control().fenced() => {
                Self::begin_fenced(point, thread, cell)
            }
            Some(Ok((thread, cell))) => {
                let tag = thread::tag(cell.control(), thread.place.load(Relaxed));
                Self::of(point, tag, begin_in(thread, cell))
            }
        }
    }

    #[inline(always)]
    fn none() -> Self {
        Self {
            tag: 0,
            point: MaybeUninit::uninit(),
            begun: MaybeUninit::uninit(),
            thread_bound: PhantomData,
        }
    }

    #[inline(always)]
    fn of(point: &'static Point, tag: u64, begun: Begun) -> Self {
        let (point, begun) = (MaybeUninit::new(point), MaybeUninit::new(begun));
        Self { tag, point, begun, thread_bound: PhantomData }
    }

    /// Ends the region.
    #[inline(never)]
    pub(crate) fn end_on(&self) {
        self.end_here(None);
    }

    /// Ends a region of a point whose cells have sums of amounts.
    #[inline(never)]
    pub(crate) fn end_rest(&self, amounts: &Amounts) {
        self.end_here(Some(amounts));
    }

    #[inline(always)]
    fn end_here(&self, amounts: Option<&Amounts>) {
        let Some(thread) = thread::current() else { return };
        let covered = thread.covered();
        // As early as that: the counter is read when everything before it is done, and
        // what comes after it, the way to the cell among it, goes on side by side
        // with what waits for the reading.
        let now = ticks();
        // SAFETY: this is called with a tag other than 0 only.
        let point = unsafe { self.point.assume_init() };
        // A forked child finds no cell: its pages are wiped.
        if let Some(cell) = thread.cell(point.index())
            && let control = cell.control()
            && thread::tag(control, thread.inner_place()) == self.tag
        {
            // SAFETY: no cell has a control word that gives any other tag.
            let begun = unsafe { self.begun.assume_init_ref() };
            let to = Destination { thread, cell, control, point };
            let at = End { now, covered };
            if close(to, at, begun, begun.inclusive, amounts, || ()) {
                return;
            }
        }
        ending::end_guard(point, self, End { now, covered }, amounts);
    }

    /// Ends the region and begins one of another point, with a single reading of
    /// the clock: where one stops, the next starts. That is what loops and phases
    /// want, and cheaper than an end and a begin. [`crate::lap!`] does it without
    /// a name for the guard.
    ///
    /// The regions are beside each other, not in each other. If the guard has no
    /// region, as after a lap to a point that is off, this only begins one.
    ///
    /// ```
    /// static READ: pfp::Point = pfp::Point::new("read");
    /// static PARSE: pfp::Point = pfp::Point::new("parse");
    ///
    /// let mut phase = READ.measure();
    /// let text = String::from("1,2");
    /// phase.lap(&PARSE);
    /// assert_eq!(text.split(',').count(), 2);
    /// ```
    #[inline(always)]
    pub fn lap(&mut self, next: &'static Point) {
        let control = next.control();
        if self.tag != 0 && control.enabled() {
            self.lap_on(next, control);
        } else if self.tag != 0 || control.enabled() {
            self.lap_slow(next);
        }
    }

    #[inline(never)]
    fn lap_on(&mut self, next: &'static Point, next_control: Control) {
        if let Some((thread, next_cell)) = ready(next, next_control) {
            // SAFETY: the tag is not 0.
            let point = unsafe { self.point.assume_init() };
            let place = thread.inner_place();
            if let Some(cell) = thread.cell(point.index())
                && let control = cell.control()
                && thread::tag(control, place) == self.tag
            {
                // SAFETY: no cell has a control word that gives any other tag.
                let begun = unsafe { self.begun.assume_init_mut() };
                let to = Destination { thread, cell, control, point };
                let covered = thread.covered();
                // Here and not first, as an end does: measured, it is cheaper.
                let now = ticks();
                let mark = Mark::new();
                if let Some(closing) = Closing::of(to, End { now, covered }, begun)
                    && closing.claim(&mark, begun, || ())
                {
                    // Whoever jumps out from here on leaves nothing open.
                    self.tag = 0;
                    compiler_fence(SeqCst);
                    // Between two regions there is nothing, so all of what has
                    // elapsed is the region's: what measuring adds is part of it. What
                    // recording takes is inside the next one, which starts that
                    // much later; the region around both must not pay for it.
                    let ended = closing.span.wrapping_add(OVERHEAD.lap());
                    begun.covered = begun.covered.wrapping_add(ended);
                    let late = OVERHEAD.late();
                    begun.start = now.wrapping_add(late).wrapping_sub(begun.off);
                    // What the recording will make of it, if both are of one point.
                    let total = begun.inclusive.wrapping_add(closing.span);
                    let again = std::ptr::eq(cell, next_cell);
                    begun.inclusive = if again { total } else { next_cell.inclusive_total() };
                    self.point.write(next);
                    thread.cover(ended.wrapping_sub(closing.child));
                    compiler_fence(SeqCst);
                    self.tag = thread::tag(next_control, place);
                    closing.record(total, None);
                    closing.note(place);
                    compiler_fence(SeqCst);
                    thread.detour.store(0, Relaxed);
                    return;
                }
                mark.wipe();
            }
        }
        self.lap_slow(next);
    }

    /// A lap to a region with amounts, as [`Timed::measure`] has them. What a lap begins
    /// whose amounts are none of the eight tuples that are told apart takes a reading of
    /// the clock of its own.
    ///
    /// ```
    /// static READ: pfp::Timed = pfp::Timed::new("read", &["bytes"]);
    /// static PARSE: pfp::Point = pfp::Point::new("parse");
    ///
    /// let mut phase = PARSE.measure();
    /// for text in ["1,2", "3"] {
    ///     phase.lap_with(&READ, [text.len()]);
    ///     let text = String::from(text);
    ///     phase.lap(&PARSE);
    ///     drop(text);
    /// }
    /// ```
    pub fn lap_with<A: Amount, const N: usize>(&mut self, next: &'static Timed, amounts: [A; N]) {
        let amounts = timed::in_order(amounts);
        match next.choose(&amounts) {
            Some((variant, false)) => self.lap(variant),
            Some((rest, true)) => {
                *self = Self::none();
                *self = Self::begin_with_sums(rest, &amounts);
            }
            None => *self = Self::none(),
        }
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

    /// A guard that has no region, for [`crate::laps!`].
    #[doc(hidden)]
    #[inline(always)]
    pub fn empty() -> Self {
        Self::none()
    }

    /// See [`thread::tag`]; without [`FENCED`].
    pub(crate) fn tag(&self) -> u64 {
        self.tag & !FENCED
    }

    /// Whether it ends by a stamp that waits. Also said of one so deep that levels come
    /// up to that bit.
    pub(crate) fn is_fenced(&self) -> bool {
        self.tag & FENCED != 0
    }

    /// What `begin` noted; none if the context has it, or nothing is open.
    #[inline(always)]
    pub(crate) fn begun(&self) -> Option<&Begun> {
        // SAFETY: with the tag of a word that is on it was filled.
        (self.tag & 1 != 0).then(|| unsafe { self.begun.assume_init_ref() })
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
                ending::begin_kept(thread, point)
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

/// The calling thread and its cell of a point, if there is such a cell and it
/// follows the control word.
#[inline(always)]
pub(crate) fn ready(
    point: &'static Point,
    control: Control,
) -> Option<(&'static Thread, &'static Cell)> {
    let thread = thread::current()?;
    let cell = thread.cell(point.index())?;
    (cell.control() == control).then_some((thread, cell))
}

/// The same of a fenced point, whose word no cell equals.
pub(crate) fn ready_fenced(point: &'static Point) -> Option<(&'static Thread, &'static Cell)> {
    let control = point.control();
    let is_fenced = control.fenced() && control.enabled() && control.0 != crate::c::UNREGISTERED;
    if is_fenced { ready(point, control.meant()) } else { None }
}

/// Opens a region: the thread is in it from now on. The caller asks whether the
/// thread was switched out before that.
#[inline(always)]
fn note(thread: &Thread, cell: &Cell) -> Begun {
    note_by(thread, cell, ticks)
}

#[inline(always)]
fn note_by(thread: &Thread, cell: &Cell, ticks: impl FnOnce() -> u64) -> Begun {
    let covered = thread.covered();
    let off = thread.clock.off();
    let switches = thread.clock.switches();
    let inclusive = cell.inclusive_total();
    thread.place.store(thread.place.load(Relaxed).wrapping_add(thread::LEVEL), Relaxed);
    // Last, so that as little as possible of this is inside the region.
    let start = ticks().wrapping_sub(off);
    Begun { start, covered, off, switches, inclusive }
}

/// Whether what [`note`] noted does not belong together: a signal handler has measured
/// in between, this is a forked child, or the thread was switched out before.
#[inline(always)]
fn must_note_again(thread: &Thread, begun: &Begun) -> bool {
    thread.covered() != begun.covered || thread.clock.is_outdated(begun.ticks())
}

/// What [`note`] should have noted.
#[inline(never)]
pub(super) fn note_late(thread: &Thread, cell: &Cell) -> Begun {
    ending::note_long(thread, || cell.inclusive_total())
}

/// Opens a region, after a switch too.
#[inline(always)]
pub(crate) fn begin_in(thread: &Thread, cell: &Cell) -> Begun {
    let begun = note(thread, cell);
    if must_note_again(thread, &begun) { note_late(thread, cell) } else { begun }
}

/// The same with a stamp that waits for the work before.
pub(super) fn begin_fenced_in(thread: &Thread, cell: &Cell) -> Begun {
    // What the fences cost the region around.
    thread.cover(OVERHEAD.fence_pair.load(Relaxed));
    let mut begun = note_by(thread, cell, fenced_ticks);
    if must_note_again(thread, &begun) {
        begun = note_late(thread, cell);
    }
    begun.start = begun.start.wrapping_add(OVERHEAD.fence_inside.load(Relaxed));
    begun
}

/// Where a region is recorded.
#[derive(Clone, Copy)]
pub(crate) struct Destination<'a> {
    pub(crate) thread: &'a Thread,
    /// The thread's cell of the point.
    pub(crate) cell: &'a Cell,
    /// What that follows.
    pub(crate) control: Control,
    /// Its number is in the cell, too, but on a cache line that nothing else here needs.
    pub(crate) point: &'a Point,
}

/// What an end reads first.
#[derive(Clone, Copy)]
pub(crate) struct End {
    /// The counter.
    pub(crate) now: u64,
    /// What was covered before that.
    pub(crate) covered: u64,
}

/// Takes a region's figures out of its stamps and records them; false if that has to go
/// the long way. The region was not off the CPU then, and nothing has come in between.
///
/// `inclusive` is the inclusive total at begin, and `leave` takes the region out of what
/// is open.
#[inline(always)]
pub(crate) fn close(
    to: Destination<'_>,
    at: End,
    begun: &Begun,
    inclusive: u64,
    amounts: Option<&Amounts>,
    leave: impl FnOnce(),
) -> bool {
    let thread = to.thread;
    let mark = Mark::new();
    let Some(closing) = Closing::of(to, at, begun) else {
        mark.wipe();
        return false;
    };
    // Next to the other costs, so that their address is loaded once.
    let around = OVERHEAD.pair().wrapping_sub(closing.child);
    if !closing.claim(&mark, begun, leave) {
        return false;
    }
    thread.cover(closing.span.wrapping_add(around));
    thread.place.store(thread.inner_place(), Relaxed);
    let total = inclusive.wrapping_add(closing.span);
    closing.record(total, amounts);
    closing.note(thread.place.load(Relaxed));
    compiler_fence(SeqCst);
    thread.detour.store(0, Relaxed);
    true
}

/// A region that is about to be recorded, on the short way.
struct Closing<'a> {
    to: Destination<'a>,
    at: End,
    start: u64,
    elapsed: u64,
    own: u64,
    span: u64,
    /// Ticks of the regions inside.
    child: u64,
    /// Of the measurement before, which is counted with this one.
    bucket: &'a AtomicU64,
}

impl<'a> Closing<'a> {
    /// None where something has to go the long way.
    #[inline(always)]
    fn of(to: Destination<'a>, at: End, begun: &Begun) -> Option<Self> {
        let thread = to.thread;
        let now = at.now;
        if thread.clock.is_outdated(now) || thread.detour.load(Relaxed) != 0 {
            return None;
        }
        let start = begun.ticks();
        let elapsed = now.wrapping_sub(start);
        // The histogram ends there. Also a counter that ran backwards: that is long, too.
        if elapsed >= LIMIT {
            return None;
        }
        // Of the measurement before: known before the counter is read.
        let bucket = thread.bucket(to.cell, to.cell.last())?;
        let inside = start.wrapping_add(OVERHEAD.inside());
        // Straight from the counter, since everything else waits for it.
        let child = at.covered.wrapping_sub(begun.covered);
        let own = not_below_zero(now.wrapping_sub(inside.wrapping_add(child)));
        let span = not_below_zero(now.wrapping_sub(inside));
        Some(Self { to, at, start, elapsed, own, span, child, bucket })
    }

    /// From here on signal handlers leave the cell alone. False if one has measured since
    /// the counter was read, or this is a child that one has forked: then nothing of this
    /// holds, and nothing may be written.
    #[inline(always)]
    fn claim(&self, mark: &Mark, begun: &Begun, leave: impl FnOnce()) -> bool {
        let thread = self.to.thread;
        mark.set(&thread.detour);
        leave();
        compiler_fence(SeqCst);
        if thread.covered() == self.at.covered && thread.clock.off() == begun.off {
            return true;
        }
        ending::unmark(thread);
        false
    }

    #[inline(always)]
    fn record(&self, inclusive_total: u64, amounts: Option<&Amounts>) {
        let measured = Measurement { exclusive: self.own, inclusive_total, away: None };
        let (control, bucket) = (self.to.control, Some(self.bucket));
        match with_sums(self.to, amounts) {
            None => self.to.cell.record_under(control, measured, bucket),
            Some(amounts) => self.to.cell.record_amounts(control, measured, bucket, amounts),
        }
    }

    /// Writes it into the ring, too; see [`note_record`].
    #[inline(always)]
    fn note(self, place: u64) {
        note_record(self.to, self.own, self.start, self.elapsed, place);
    }
}

/// Amounts with the sums that they are added to; none if there are none.
#[inline(always)]
pub(crate) fn with_sums<'a>(
    to: Destination<'a>,
    amounts: Option<&'a Amounts>,
) -> Option<(&'a SumWords, &'a Amounts)> {
    amounts.and_then(|amounts| Some((to.thread.sums(to.cell)?, amounts)))
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
    /// On-CPU ticks from begin to end, measuring taken out.
    pub(crate) span: u64,
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
        self.span.saturating_sub(self.child)
    }
}

/// Closes the innermost region, which has had `child` ticks of regions inside, for the
/// one around it.
#[inline(always)]
pub(crate) fn give_back(thread: &Thread, child: u64, span: u64) {
    thread.cover(span.wrapping_add(OVERHEAD.pair()).wrapping_sub(child));
    thread.place.store(thread.inner_place(), Relaxed);
}

/// Writes a finished measurement into the ring; see [`Thread::record`]. `place` is
/// the region's, as [`Thread::place`] was when it began.
#[inline(always)]
pub(crate) fn note_record(to: Destination<'_>, own: u64, start: u64, elapsed: u64, place: u64) {
    let depth = (place / thread::LEVEL) as u8;
    let what = Record::pack(to.point.index() as u32, depth, 0) | to.thread.context.load(Relaxed);
    to.thread.record(start, elapsed, own, what);
}

/// Whether this many ticks from begin to end say that the counter ran backwards,
/// not only that a region that a lap or a hook began was left at once.
pub(crate) fn ran_backwards(elapsed: u64) -> bool {
    let late = OVERHEAD.hooks_inside.load(Relaxed) + OVERHEAD.fence_inside.load(Relaxed);
    let late = late.max(OVERHEAD.late());
    (elapsed as i64) < -(late as i64)
}
