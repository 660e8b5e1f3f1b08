//! Regions begun by hand, and the long way for all others: whatever the hot path
//! of [`super::measure`] leaves to its doors.

use std::ptr;
use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::{Away, Cell, Measurement};
use pfp_shm_layout::control::{Change, Control};
use pfp_shm_layout::histogram::LIMIT;
#[cfg(feature = "cuda")]
use pfp_shm_layout::ring::Record;

use super::measure::{self, Begun, Destination, Guard, Part};
use super::process;
use super::regions::{Regions, Slot, Sum};
use super::thread::{self, LEVEL, LEVELS, Thread, Unready};
use crate::clock::{self, Stamps, ticks};
use crate::point::Point;
use crate::timed::Timed;

/// In [`Thread::detour`]: an end is under way.
pub(super) const BUSY: u64 = 1;

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

    /// Brings the clock up to date, and counts if that had gone astray.
    pub(super) fn refresh(&self) -> Stamps {
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
        self.place.store(self.place.load(Relaxed) & !LEVELS | level & LEVELS, Relaxed);
    }

    /// What a region measured that ends at `now`.
    fn part(&self, begun: &Begun, child: u64, now: u64) -> Part {
        let off = self.clock.off();
        let elapsed = now.wrapping_sub(begun.ticks());
        if measure::ran_backwards(elapsed) {
            self.note_anomaly();
        }
        // Below zero although the counter went on: of time that the kernel has
        // taken off the thread without a switch, a hypervisor's most of all, the
        // clock may know only now, up to a millisecond late. What is more than this
        // region has is taken from the region around it, whose span is that much
        // shorter.
        let raw = (now.wrapping_sub(off).wrapping_sub(begun.start) as i64).max(0) as u64;
        Part {
            span: raw.saturating_sub(measure::OVERHEAD.inside()),
            child,
            // Less than before, if the counter ran backwards.
            off: (off.wrapping_sub(begun.off) as i64).max(0) as u64,
            switches: self.clock.switches_since(begun.switches),
        }
    }

    /// Says how many latched parts wait, and leaves it whether an end is under
    /// way.
    pub(super) fn set_waiting(&self, waiting: u64) {
        self.detour.store(waiting | self.detour.load(Relaxed) & BUSY, Relaxed);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.detour.load(Relaxed) & BUSY != 0
    }

    /// Does something that a signal handler of this thread must not do at the
    /// same time.
    pub(crate) fn busy<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = self.detour.load(Relaxed);
        self.detour.store(before | BUSY, Relaxed);
        compiler_fence(SeqCst);
        let result = work();
        compiler_fence(SeqCst);
        let after = self.detour.load(Relaxed) & !BUSY;
        self.detour.store(after | before & BUSY, Relaxed);
        result
    }
}
/// Begins a region that the context keeps. With `once`, a point that is open
/// already is switched off as invalid: the rule of the numeric interface.
#[inline]
pub(crate) fn begin(point: &'static Point, once: bool) {
    let control = point.control();
    if !control.enabled() {
        return;
    }
    let mut recursive = false;
    if let Some(thread) = thread::current() {
        let regions = thread.regions();
        if let Some(at) = regions.innermost(point) {
            recursive = true;
            if once {
                return invalidate(thread, point, at);
            }
        }
    }
    let Some((thread, cell)) = measure::ready(point, control).or_else(|| prepare(point, control))
    else {
        return;
    };
    keep(thread, point, &measure::begin_in(thread, cell), recursive, None);
}

/// What a begin by hand needs, if it was not there; none if the region is off, or
/// begun already on the long way.
#[cold]
fn prepare(point: &'static Point, control: Control) -> Option<(&'static Thread, &'static Cell)> {
    // Its cell is only known at the end, so nothing is missing.
    if point.timed().is_some()
        && control.0 != crate::c::UNREGISTERED
        && let Some(thread) = thread::current().filter(|thread| thread.is_alive())
    {
        begin_kept(thread, point);
        return None;
    }
    match thread::prepare(point)? {
        Ok(ready) => Some(ready),
        Err(Unready::Never) => {
            process::miss();
            None
        }
        Err(Unready::Overflow(thread)) => {
            begin_kept(thread, point);
            None
        }
    }
}

/// Notes a begun region among those of the context, with the control word if its cell is
/// only known at the end; false if there is no room.
#[inline(always)]
fn keep(
    thread: &Thread,
    point: &'static Point,
    begun: &Begun,
    recursive: bool,
    control: Option<Control>,
) -> bool {
    let regions = thread.regions();
    let at = regions.open.load(Relaxed) as usize;
    let Some(slot) = regions.slots.get(at) else { return refuse(thread, begun) };
    // Reserved first, so that a signal handler takes the next one, and nobody's
    // until it is filled.
    slot.point.store(ptr::null_mut(), Relaxed);
    compiler_fence(SeqCst);
    regions.open.store(at as u64 + 1, Relaxed);
    compiler_fence(SeqCst);
    slot.place.store(thread.inner_place() & LEVELS, Relaxed);
    slot.recursive.store(u64::from(recursive), Relaxed);
    slot.fill(begun);
    if let Some(control) = control {
        slot.control.store(control.0, Relaxed);
    }
    compiler_fence(SeqCst);
    slot.point.store(ptr::from_ref(point).cast_mut(), Relaxed);
    true
}

/// Undoes a begin for which there is no room.
#[cold]
fn refuse(thread: &Thread, begun: &Begun) -> bool {
    thread.place.store(thread.inner_place(), Relaxed);
    thread.child.store(begun.child, Relaxed);
    thread.count(|tally| &tally.refused);
    false
}

#[cold]
fn invalidate(thread: &Thread, point: &'static Point, at: usize) {
    point.change(Change::Invalidate);
    let regions = thread.regions();
    let place = regions.slots[at].place.load(Relaxed);
    let child = regions.give_up(at).wrapping_add(thread.child.load(Relaxed));
    thread.child.store(child, Relaxed);
    thread.set_level(place);
}

/// Begins a region on the long way: the thread has no lane of its own, or is
/// interrupted in the middle of something, or its cell is only known at the end. False
/// if there is no room for it.
pub(crate) fn begin_kept(thread: &Thread, point: &'static Point) -> bool {
    let recursive = thread.regions().innermost(point).is_some();
    let mut begun =
        Begun { start: 0, child: thread.child.swap(0, Relaxed), off: 0, switches: 0, inclusive: 0 };
    thread.place.store(thread.place.load(Relaxed).wrapping_add(LEVEL), Relaxed);
    let now = thread.stamp();
    begun.off = thread.clock.off();
    begun.switches = thread.clock.switches();
    begun.start = now.wrapping_sub(begun.off);
    // It was on just now.
    let control = point.control().meant().with(Change::Enable);
    keep(thread, point, &begun, recursive, Some(control))
}

/// Ends the innermost region of a point that was begun by hand. Without one it
/// does nothing.
#[inline]
pub(crate) fn end(point: &'static Point, latch: bool) {
    end_in(point, latch, None, |thread, _| {
        Some(Recorded { cell: thread.cell(point.index())?, index: point.index(), sums: None })
    });
}

/// The same for a point with amounts, which are those of the region.
#[inline]
pub(crate) fn end_with(timed: &'static Timed, latch: bool, amounts: &Amounts) {
    end_in(timed.whole(), latch, Some(amounts), |thread, slot| {
        let (variant, is_rest) = timed.known(amounts)?;
        let (cell, index) = (thread.cell(variant.index())?, variant.index());
        // Else it has not followed the point since the region began.
        (cell.control().0 == slot.control.load(Relaxed)).then_some(Recorded {
            cell,
            index,
            sums: is_rest.then_some(amounts),
        })
    });
}

/// Ends a region of a guard that the context keeps; with amounts if its cell sums those.
fn end_kept(point: &'static Point, amounts: Option<&Amounts>) {
    end_in(point, false, amounts, |thread, _| {
        Some(Recorded { cell: thread.cell(point.index())?, index: point.index(), sums: amounts })
    });
}

/// Where a region that was begun by hand is recorded.
struct Recorded<'a> {
    cell: &'a Cell,
    /// Number of the point that the cell is of.
    index: usize,
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
    let now = ticks();
    // The same tests as at the end of a guard: then it is as short.
    let off = thread.clock.off();
    if !thread.clock.is_outdated(now)
        && !latch
        && thread.detour.load(Relaxed) == 0
        && slot.off.load(Relaxed) == off
        && thread.inner_place() & LEVELS == slot.place.load(Relaxed)
        && slot.recursive.load(Relaxed) == 0
        && let Some(Recorded { cell, index, sums }) = find(thread, slot)
    {
        let start = slot.start.load(Relaxed).wrapping_add(off);
        let around = slot.child.load(Relaxed);
        // Read first: a signal handler may take the place.
        compiler_fence(SeqCst);
        regions.open.store(at as u64, Relaxed);
        let inclusive = cell.inclusive_total();
        let to = Destination { thread, cell, control: cell.control(), index };
        return measure::close(to, now, around, inclusive, start, sums);
    }
    end_at(thread, point, at, now, latch, amounts);
}

#[cold]
fn end_at(
    thread: &Thread,
    point: &'static Point,
    at: usize,
    now: u64,
    latch: bool,
    amounts: Option<&Amounts>,
) {
    let now = thread.stamp_after(now);
    let regions = thread.regions();
    let slot = &regions.slots[at];
    let begun = slot.begun();
    let place = slot.place.load(Relaxed);
    let recursive = slot.recursive.load(Relaxed) != 0;
    let control = Control(slot.control.load(Relaxed));
    let mut child = thread.child.load(Relaxed);
    if thread.inner_place() & LEVELS != place {
        // Regions inside were not ended: they are given up.
        child = child.wrapping_add(regions.give_up(at + 1));
        thread.count(|tally| &tally.mismatched);
    }
    regions.open.store(at as u64, Relaxed);
    thread.set_level(place.wrapping_add(LEVEL));
    let inclusive = if recursive { Inclusive::Inner } else { Inclusive::Add };
    finish(thread, point, Ending { begun, child, now, inclusive, latch, control, amounts });
}

/// The door out of a guard's end: what the hot path could not end.
#[cold]
#[inline(never)]
pub(crate) fn end_guard(point: &'static Point, guard: &Guard, now: u64, amounts: Option<&Amounts>) {
    let Some(thread) = thread::current().filter(|thread| thread.is_alive()) else { return };
    let Some(&begun) = guard.begun() else {
        let kept = guard.kept_amounts();
        return end_kept(point, amounts.or(kept.as_ref()));
    };
    let now = thread.stamp_after(now);
    let mut child = thread.child.load(Relaxed);
    // Regions between this one and the innermost, of as many as are counted.
    let deeper = thread.inner_place().wrapping_sub(guard.tag() & LEVELS) & LEVELS;
    if deeper != 0 {
        thread.count(|tally| &tally.mismatched);
        if deeper > LEVELS / 2 {
            // An end of something around has given this region up.
            return;
        }
        let place = thread.inner_place().wrapping_sub(deeper) & LEVELS;
        let regions = thread.regions();
        let from = (0..regions.open())
            .find(|&at| regions.slots[at].place.load(Relaxed) > place)
            .unwrap_or_else(|| regions.open());
        child = child.wrapping_add(regions.give_up(from));
        thread.set_level(place.wrapping_add(LEVEL));
    }
    let noted = noted(thread, point, guard, &begun).is_some();
    let inclusive = if noted { Inclusive::Since(begun.inclusive) } else { Inclusive::Add };
    // Of no meaning: a guard that has its notes has its cell.
    let control = Control::default();
    finish(thread, point, Ending { begun, child, now, inclusive, latch: false, control, amounts });
}

/// The cell whose inclusive total a guard has noted, if that still holds: unless the cell
/// was restarted or contexts were switched since. Of switches the tag has too few bits to
/// tell for sure.
fn noted<'a>(thread: &'a Thread, point: &Point, guard: &Guard, begun: &Begun) -> Option<&'a Cell> {
    let cell = thread.cell(point.index()).filter(|_| !thread.clock.was_resumed(begun.switches))?;
    (thread::tag(cell.control(), thread.inner_place()) == guard.tag()).then_some(cell)
}

/// The innermost region, which ends on the long way.
struct Ending<'a> {
    begun: Begun,
    child: u64,
    now: u64,
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
    /// The total is what it was at begin, plus the span.
    Since(u64),
}

fn finish(thread: &Thread, point: &'static Point, ending: Ending<'_>) {
    let Ending { begun, child, now, inclusive, latch, control, amounts } = ending;
    let part = thread.part(&begun, child, now);
    measure::give_back(thread, begun.child, part.span);
    let sum = Sum {
        own: part.own(),
        inclusive: if matches!(inclusive, Inclusive::Inner) { 0 } else { part.span },
        off: part.off,
        switches: part.switches,
    };
    let regions = thread.regions();
    if latch && !thread.is_busy() && thread.busy(|| regions.latch(point, sum, amounts)) {
        return thread.set_waiting(regions.detour());
    }
    if latch {
        thread.count(|tally| &tally.refused);
    }
    let start = begun.ticks();
    let since = match inclusive {
        Inclusive::Since(total) => Some(total),
        Inclusive::Inner | Inclusive::Add => None,
    };
    // A region that a lap began starts a little after the stamp.
    let elapsed = (now.wrapping_sub(start) as i64).max(0) as u64;
    match point.timed() {
        None => finish_with(thread, point, sum, since, (start, elapsed), amounts),
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
    if !thread.is_busy() && thread.detour.load(Relaxed) != 0 {
        let regions = thread.regions();
        sum.add(thread.busy(|| regions.unlatch(timed.whole(), Some(&mut amounts))));
        thread.set_waiting(regions.detour());
    }
    let Some((variant, is_rest)) = timed.choose_for_good(&amounts) else {
        return process::miss();
    };
    follow(thread, variant, control);
    finish_with(thread, variant, sum, None, (start, elapsed), is_rest.then_some(&amounts));
}

/// Has the thread's cell of a variant follow the word that the whole had when the region
/// began, as the cell of a point that is known at the begin does by then: a reset since
/// is not the region's. One that follows the word as it is now has more recent regions.
fn follow(thread: &Thread, variant: &'static Point, control: Control) {
    let at = thread.cell(variant.index()).map(Cell::control);
    let follows = at == Some(control) || at == Some(variant.control().meant());
    if !follows
        && !thread.is_busy()
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
    since: Option<u64>,
    (start, elapsed): (u64, u64),
    amounts: Option<&Amounts>,
) {
    let busy = thread.is_busy();
    if !busy && thread.detour.load(Relaxed) != 0 {
        let regions = thread.regions();
        sum.add(thread.busy(|| regions.unlatch(point, None)));
        thread.set_waiting(regions.detour());
    }
    let away = Away { off_cpu: sum.off, switches: sum.switches };
    let mut measured = Measurement {
        exclusive: sum.own.min(LIMIT - 1),
        inclusive_total: sum.inclusive,
        away: Some(away),
    };
    let index = point.index();
    // A context that came from another thread may not have a cell here yet.
    let missing = !busy && !thread.overflows() && thread.cell(index).is_none();
    if missing {
        let _ = thread::prepare(point);
    }
    match thread.cell(index).filter(|_| !busy) {
        Some(cell) => {
            let total = since.unwrap_or_else(|| cell.inclusive_total());
            measured.inclusive_total = total.wrapping_add(sum.inclusive);
            let to = Destination { thread, cell, control: cell.control(), index };
            record_slow(to, measured, start, elapsed, amounts);
        }
        None => match thread.shared_cell(point) {
            Some(cell) => {
                if let (Some(sums), Some(amounts)) = (thread.sums(cell), amounts) {
                    Cell::add_amounts_shared(sums, amounts);
                }
                let bucket = thread.shared_bucket(cell, measured.exclusive);
                cell.record_shared(measured, bucket);
                thread.count(|tally| &tally.unrecorded);
            }
            None => process::miss(),
        },
    }
    if !busy && let Some(process) = process::current() {
        process.catch_up();
    }
}

/// Records what a device has measured, for a point of its own: `ticks` from `start` on. In
/// the place of a context the record has a number of the timer's, since the thread was
/// elsewhere.
#[cfg(feature = "cuda")]
pub(crate) fn record_of_a_device(point: &'static Point, start: u64, ticks: u64, number: u32) {
    let ready = match measure::ready(point, point.control()) {
        Some(ready) => Some(Ok(ready)),
        None => thread::prepare(point),
    };
    let exclusive = ticks.min(LIMIT - 1);
    let thread = match ready {
        // Switched off meanwhile.
        None => return,
        Some(Ok((thread, cell))) if !thread.is_busy() => {
            return thread.busy(|| {
                let inclusive_total = cell.inclusive_total().wrapping_add(exclusive);
                let bucket = thread.last_bucket(cell);
                cell.record(Measurement { exclusive, inclusive_total, away: None }, bucket);
                let what = Record::pack(point.index() as u32, 0, number);
                thread.record(start, exclusive, exclusive, what);
            });
        }
        // A signal handler that interrupts the recording of another one.
        Some(Ok((thread, _)) | Err(Unready::Overflow(thread))) => thread,
        Some(Err(Unready::Never)) => return process::miss(),
    };
    let Some(cell) = thread.shared_cell(point) else { return process::miss() };
    let bucket = thread.shared_bucket(cell, exclusive);
    let inclusive_total = exclusive;
    cell.record_shared(Measurement { exclusive, inclusive_total, away: None }, bucket);
    thread.count(|tally| &tally.unrecorded);
}

/// Records a measurement into a cell whose histogram may lack a part.
fn record_slow(
    to: Destination<'_>,
    measured: Measurement,
    start: u64,
    elapsed: u64,
    amounts: Option<&Amounts>,
) {
    let Destination { thread, cell, .. } = to;
    thread.busy(|| {
        let bucket = thread.last_bucket(cell);
        match measure::with_sums(to, amounts) {
            None => cell.record(measured, bucket),
            Some(amounts) => cell.record_amounts(cell.control(), measured, bucket, amounts),
        }
        // The region is closed already, so the thread's place is the region's.
        let place = thread.place.load(Relaxed);
        let own = measured.exclusive;
        measure::note_record(to, own, start, elapsed, place);
    });
}

/// The door out of [`measure::close`]: a part of the histogram is missing, or
/// the counter ran backwards.
///
/// Given what is needed word by word: a [`Destination`] would go through memory, and on
/// the short way too.
#[cold]
#[inline(never)]
pub(crate) fn close_slow(
    thread: &Thread,
    cell: &Cell,
    now: u64,
    around: u64,
    inclusive: u64,
    start: u64,
    amounts: Option<&Amounts>,
) {
    let to = Destination { thread, cell, control: cell.control(), index: cell.point() as usize };
    let mut elapsed = now.wrapping_sub(start);
    if (elapsed as i64) < 0 {
        if measure::ran_backwards(elapsed) {
            thread.note_anomaly();
        }
        elapsed = 0;
    }
    let span = elapsed.saturating_sub(measure::OVERHEAD.inside());
    let own = span.saturating_sub(thread.child.load(Relaxed));
    measure::give_back(thread, around, span);
    let inclusive_total = inclusive.wrapping_add(span);
    let measured = Measurement { exclusive: own.min(LIMIT - 1), inclusive_total, away: None };
    record_slow(to, measured, start, elapsed, amounts);
}

/// What the polls of a future have measured so far and nobody has recorded; none before
/// the first of them, and after the last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Polls(Option<Unrecorded>);

#[derive(Clone, Copy, Debug)]
struct Unrecorded {
    /// Less the inclusive ticks that the cell has already.
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
    let now = thread.stamp();
    let (begun, place, child, recursive) = if let Some(&begun) = guard.begun() {
        (begun, guard.tag() & LEVELS, thread.child.load(Relaxed), false)
    } else {
        let regions = thread.regions();
        let Some(at) = regions.innermost(point) else { return };
        let slot = &regions.slots[at];
        let child = thread.child.load(Relaxed).wrapping_add(regions.give_up(at + 1));
        regions.open.store(at as u64, Relaxed);
        let recursive = slot.recursive.load(Relaxed) != 0;
        (slot.begun(), slot.place.load(Relaxed), child, recursive)
    };
    thread.set_level(place.wrapping_add(LEVEL));
    let noted = guard.begun().and_then(|begun| noted(thread, point, guard, begun));
    let part = thread.part(&begun, child, now);
    measure::give_back(thread, begun.child, part.span);
    let unrecorded =
        polls.0.get_or_insert_with(|| Unrecorded { sum: Sum::default(), start: begun.ticks() });
    let mut inclusive = if recursive { 0 } else { part.span };
    if let Some(cell) = noted.filter(|_| !thread.is_busy()) {
        let total = begun.inclusive.wrapping_add(inclusive);
        thread.busy(|| cell.set_inclusive_total(total));
        inclusive = 0;
    }
    unrecorded.sum.add(Sum { own: part.own(), inclusive, off: part.off, switches: part.switches });
    if last && let Some(Unrecorded { sum, start }) = polls.0.take() {
        finish_with(thread, point, sum, None, (start, now.wrapping_sub(start)), amounts);
    }
}

impl Polls {
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
        finish_with(thread, point, sum, None, (start, elapsed), amounts);
    }
}

#[cfg(all(test, feature = "cuda", not(miri)))]
mod tests {
    use super::*;

    /// One that comes while its thread records something else is recorded beside that.
    #[test]
    fn what_a_device_has_measured_is_recorded_in_a_handler_too() {
        static DEVICE: Point = Point::new("device").of_a_device();
        let _one = crate::engine::oracle::one_at_a_time();
        record_of_a_device(&DEVICE, 0, 5, 1);
        let thread = thread::get().expect("there is a lane");
        thread.busy(|| record_of_a_device(&DEVICE, 0, 7, 1));
        let stats = DEVICE.stats().expect("it has measured");
        assert_eq!((stats.count, stats.exclusive, stats.min, stats.max), (2, 12, 5, 7));
    }
}
