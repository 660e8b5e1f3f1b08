//! Begin and end: the hot path.
//!
//! Exclusive time needs no stack of frames and no last time stamp. The thread
//! keeps one number, the ticks of the regions that ended inside the one now
//! open (`child`):
//!
//! ```text
//!            A begins        B begins      B ends           A ends
//! ticks      |----- own -----|=== B =======|------ own -----|
//! child      0 (saved: c)    0 (saved: 0)  0 + B            c + A
//! recorded                                 B - 0            A - B
//! ```
//!
//! What it costs is the longest chain of dependent instructions after the
//! counter is read, so everything that does not depend on it is done before, and
//! everything rare leaves by a door that is out of line: [`begin_slow`],
//! [`end_slow`].

use std::mem::MaybeUninit;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::cell::{Cell, Measurement};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::histogram::LIMIT;
use pfp_shm_layout::ring::Record;

use super::ending;
use super::thread::{self, Thread, Unready};
use crate::clock::ticks;
use crate::point::Point;

/// Ticks that measuring adds inside a region.
pub(crate) static INSIDE: AtomicU64 = AtomicU64::new(0);
/// Ticks of a begin and end pair, `INSIDE` among them.
pub(crate) static PAIR: AtomicU64 = AtomicU64::new(0);

/// Whether some thread calibrates.
static CALIBRATING: AtomicBool = AtomicBool::new(false);

/// An open region: what `begin` leaves for `end`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Open {
    /// See [`thread::tag`]; 0 if the region is not measured, [`LONG_WAY`] if
    /// `end` has to look among the regions of the context.
    pub(crate) tag: u64,
    /// The rest. Left undefined with these two tags: a region that is off shall
    /// not even clear it.
    begun: MaybeUninit<Begun>,
}

/// The tag of a region that the context keeps: not a control word that is on.
pub(crate) const LONG_WAY: u64 = 2;

/// What is known of an open region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    /// The context's clock.
    pub(crate) start: u64,
    /// `child` of the region around it.
    pub(crate) child: u64,
    /// The clock's offset, to know the time off the CPU.
    pub(crate) off: u64,
    /// Switches until then.
    pub(crate) switches: u64,
    /// The cell's inclusive total; see [`Cell::inclusive_total`].
    pub(crate) inclusive: u64,
}

impl Open {
    /// A region of which nothing but the tag is known: 0 or [`LONG_WAY`].
    #[inline(always)]
    fn without(tag: u64) -> Self {
        Self { tag, begun: MaybeUninit::uninit() }
    }

    /// What `begin` noted; none if it is not there.
    #[inline(always)]
    pub(crate) fn begun(&self) -> Option<&Begun> {
        // SAFETY: with any other tag than these two, `begin` has filled it.
        (self.tag & !LONG_WAY != 0).then(|| unsafe { self.begun.assume_init_ref() })
    }
}

/// Begins a region of a point.
#[inline(always)]
pub(crate) fn begin(point: &'static Point) -> Open {
    let control = point.control();
    if !control.enabled() {
        return Open::without(0);
    }
    let (thread, cell, control) = if let Some(thread) = thread::current()
        && let Some(cell) = thread.cell(point.index())
        && cell.control() == control
    {
        (thread, cell, control)
    } else {
        // Back from there with a thread only: the region itself is built in one
        // place, or the compiler would build it twice and copy.
        let (thread, tag) = begin_slow(point);
        let Some(thread) = thread else { return Open::without(tag) };
        let Some(cell) = thread.cell(point.index()) else { return Open::without(0) };
        (thread, cell, cell.control())
    };
    begin_in(thread, cell, control)
}

#[inline(always)]
fn begin_in(thread: &Thread, cell: &Cell, control: Control) -> Open {
    let place = thread.place.load(Relaxed);
    let tag = thread::tag(control, place);
    let child = thread.child.load(Relaxed);
    let inclusive = cell.inclusive_total();
    thread.place.store(place.wrapping_add(thread::LEVEL), Relaxed);
    thread.child.store(0, Relaxed);
    // Last, so that as little as possible of this is inside the region.
    let mut now = ticks();
    if thread.clock.was_switched() {
        now = thread.clock.refresh_late();
    }
    let off = thread.clock.off();
    let switches = thread.clock.switches();
    let start = now.wrapping_sub(off);
    Open { tag, begun: MaybeUninit::new(Begun { start, child, off, switches, inclusive }) }
}

/// The door out of `begin`: something is not there yet, or has changed. Gives a
/// thread whose cell of the point is ready, or the tag of a region of which no
/// more is known.
#[cold]
#[inline(never)]
fn begin_slow(point: &'static Point) -> (Option<&'static Thread>, u64) {
    match thread::prepare(point) {
        None | Some(Err(Unready::Never)) => (None, 0),
        Some(Err(Unready::Overflow(thread))) => {
            let kept = ending::begin_kept(thread, point);
            (None, if kept { LONG_WAY } else { 0 })
        }
        Some(Ok(thread)) => (Some(thread), 0),
    }
}

/// Ends a region that `begin` began in this thread.
///
/// Only this is inlined at every region, down to the stamp and the tests for
/// everything rare. It is short enough for the compiler to inline also where a
/// guard's destructor calls it, and what it hands to [`close`] fits into
/// registers.
#[inline(always)]
pub(crate) fn end(point: &'static Point, open: &Open) {
    if open.tag == 0 {
        return;
    }
    // First of all: the counter is read when everything before it is done, and
    // what comes after it, the way to the cell among it, goes on side by side
    // with what waits for the reading.
    let now = ticks();
    if let Some(thread) = thread::current()
        // A forked child finds no cell: its pages are wiped.
        && let Some(cell) = thread.cell(point.index())
        && thread::tag(cell.control(), thread.inner_place()) == open.tag
        && let Some(begun) = open.begun()
    {
        let off = thread.clock.off();
        if !thread.clock.was_switched() && thread.detour.load(Relaxed) == 0 && off == begun.off {
            let start = begun.start.wrapping_add(off);
            return close(thread, cell, now, begun.child, begun.inclusive, start);
        }
    }
    end_slow(point, *open, now);
}

/// Takes a region's figures out of its stamps and records them. The region was
/// not off the CPU.
///
/// `start` and `now` are the counter at begin and end, `around` is `child` of the
/// region around it, and `inclusive` the inclusive total at begin.
#[inline(never)]
pub(crate) fn close(
    thread: &Thread,
    cell: &Cell,
    now: u64,
    around: u64,
    inclusive: u64,
    start: u64,
) {
    let elapsed = now.wrapping_sub(start);
    // Also a counter that ran backwards: that is beyond the histogram.
    if elapsed >= LIMIT {
        return ending::close_slow(thread, cell, now, around, inclusive, start);
    }
    // Of the measurement before: known before the counter is read.
    let Some(bucket) = thread.bucket(cell, cell.last()) else {
        return ending::close_slow(thread, cell, now, around, inclusive, start);
    };
    let inside = start.wrapping_add(INSIDE.load(Relaxed));
    // Straight from the counter, since everything else waits for it.
    let own = not_below_zero(now.wrapping_sub(inside.wrapping_add(thread.child.load(Relaxed))));
    let span = not_below_zero(now.wrapping_sub(inside));
    thread.detour.store(1, Relaxed);
    compiler_fence(SeqCst);
    give_back(thread, around, span);
    let inclusive_total = inclusive.wrapping_add(span);
    let measured = Measurement { exclusive: own, inclusive_total, away: None };
    record(thread, cell, Some(bucket), measured, start, elapsed);
    compiler_fence(SeqCst);
    thread.detour.store(0, Relaxed);
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

/// Closes the innermost region for the one around it, which has had `around`
/// ticks of regions inside so far.
#[inline(always)]
pub(crate) fn give_back(thread: &Thread, around: u64, span: u64) {
    let child = around.wrapping_add(span).wrapping_add(PAIR.load(Relaxed));
    thread.child.store(child, Relaxed);
    thread.place.store(thread.inner_place(), Relaxed);
}

/// Writes one measurement into its cell and into the ring. The region is closed
/// already, so the thread's place is the region's.
#[inline(always)]
pub(crate) fn record(
    thread: &Thread,
    cell: &Cell,
    bucket: Option<&AtomicU64>,
    measured: Measurement,
    start: u64,
    elapsed: u64,
) {
    let own = measured.exclusive;
    cell.record(measured, bucket);
    let depth = (thread.place.load(Relaxed) / thread::LEVEL) as u8;
    let what = Record::pack(cell.point(), depth, 0) | thread.context.load(Relaxed);
    thread.record(start, elapsed, own, what);
}

/// The door out of `end`.
#[cold]
#[inline(never)]
fn end_slow(point: &'static Point, open: Open, now: u64) {
    ending::end_guard(point, &open, now);
}

/// Measures what measuring costs and takes it out of all figures from now on;
/// see [`crate::calibrate`].
pub(crate) fn calibrate(pairs: u32) -> Option<(u64, u64)> {
    let point = &crate::numeric::POINTS[0];
    // One at a time: a second one would take the zeros of the first for figures.
    if CALIBRATING.swap(true, Relaxed) {
        return None;
    }
    let measured = calibrate_alone(point, pairs);
    CALIBRATING.store(false, Relaxed);
    measured
}

fn calibrate_alone(point: &'static Point, pairs: u32) -> Option<(u64, u64)> {
    // The first pair registers and claims.
    end(point, &begin(point));
    // Switched off, it would give the price of that.
    if !point.control().enabled() {
        return None;
    }
    let before = (INSIDE.swap(0, Relaxed), PAIR.swap(0, Relaxed));
    let Some(thread) = thread::current().filter(|thread| thread.cell(point.index()).is_some())
    else {
        INSIDE.store(before.0, Relaxed);
        PAIR.store(before.1, Relaxed);
        return None;
    };
    const BATCH: usize = 32;
    let (mut inside, mut pair) = (u64::MAX, u64::MAX);
    let batches = (pairs as usize).div_ceil(BATCH).max(1);
    for _ in 0..batches {
        let mut own = [0; BATCH];
        let switches = thread.clock.switches();
        let start = ticks();
        for own in &mut own {
            let open = begin(point);
            end(point, &open);
            *own = thread.cell(point.index()).map_or(0, |cell| cell.last());
        }
        let all = ticks().wrapping_sub(start);
        if thread.clock.switches() != switches {
            continue;
        }
        own.sort_unstable();
        // Medians within, the least between: what the machine can do when it is
        // left alone.
        inside = inside.min(own[BATCH / 2]);
        pair = pair.min(all / BATCH as u64);
    }
    if inside == u64::MAX {
        (inside, pair) = before;
    }
    let pair = pair.max(inside);
    INSIDE.store(inside, Relaxed);
    PAIR.store(pair, Relaxed);
    if let Some(process) = super::process::current() {
        process.segment.ledger().overhead_inside.store(inside, Relaxed);
        process.segment.ledger().overhead_pair.store(pair, Relaxed);
    }
    Some((inside, pair))
}
