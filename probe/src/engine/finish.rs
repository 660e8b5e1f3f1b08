//! The end of a region on the long way: what it measured goes into its cell, or waits.

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::{Away, Cell, Measurement};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::histogram::LIMIT;

use super::door;
use super::measure;
use super::moment::Moment;
use super::overhead::overhead;
use super::process;
use super::region::Begun;
use super::regions::Sum;
use super::thread::Thread;
use crate::clock;
use crate::engine::variants::MeteredPoint;
use crate::point::Point;

/// The innermost region, which ends on the long way.
pub(super) struct Ending<'a> {
    pub(super) begun: Begun,
    pub(super) moment: Moment,
    /// Ticks that were added to the point's inclusive total since the region began.
    pub(super) inside: u64,
    pub(super) latch: bool,
    /// The point's word at the begin, if its cell is only known now.
    pub(super) control: Control,
    /// What it carries, if its point sums that or finds its cell by it.
    pub(super) amounts: Option<&'a Amounts>,
}

/// Pops the innermost region, which has had `child` ticks of regions inside, and covers its ticks.
pub(super) fn give_back(thread: &Thread, child: u64, net: u64) {
    thread.cover(net.wrapping_add(overhead().pair()).wrapping_sub(child));
    thread.pop();
}

pub(super) fn finish(thread: &Thread, point: &'static Point, ending: Ending<'_>) {
    let Ending { begun, moment, inside, latch, control, amounts } = ending;
    let part = thread.part(&begun, moment);
    give_back(thread, part.child, part.net);
    // It may have no record.
    thread.show_end(moment.now);
    let sum = Sum {
        own: part.own(),
        inclusive: part.span().wrapping_sub(inside),
        off: part.off,
        switches: part.switches,
    };
    thread.add_to_total(point.offset(), sum.inclusive);
    let regions = thread.regions();
    // A point with amounts latches zeros at least: the place may still hold another thread's.
    let kept = point.metered().map(|_| amounts.copied().unwrap_or_default());
    if latch && thread.busy(|| regions.latch(point, sum, kept.as_ref())) == Some(true) {
        return;
    }
    if latch {
        thread.count(|counters| &counters.refused);
    }
    let start = begun.start;
    // A region that a lap began starts a little after the stamp.
    let elapsed = (moment.now.wrapping_sub(start) as i64).max(0) as u64;
    match point.metered() {
        None => finish_with(thread, point, sum, (start, elapsed), amounts),
        Some(metered) => finish_metered(thread, metered, control, sum, (start, elapsed), amounts),
    }
}

/// Records a sum of a point with amounts, and what waits of it.
#[cold]
#[inline(never)]
pub(super) fn finish_metered(
    thread: &Thread,
    metered: &'static MeteredPoint,
    control: Control,
    mut sum: Sum,
    (start, elapsed): (u64, u64),
    amounts: Option<&Amounts>,
) {
    let mut amounts = amounts.copied().unwrap_or_default();
    if !thread.position().is_free() {
        let regions = thread.regions();
        let waiting = thread.busy(|| regions.unlatch(metered.point(), Some(&mut amounts)));
        sum.add(waiting.unwrap_or_default());
    }
    let Some((variant, is_rest)) = metered.choose_for_good(&amounts) else {
        return process::miss();
    };
    follow(thread, variant, control);
    finish_with(thread, variant, sum, (start, elapsed), is_rest.then_some(&amounts));
}

/// Makes the thread's cell of a variant follow the control word that the whole point had when the
/// region began, as a cell that is known at the begin does. So the region counts in the window in
/// which it began, even after a reset. A cell that follows the current word stays, since it has
/// newer regions.
fn follow(thread: &Thread, variant: &'static Point, control: Control) {
    let at = thread.cell(variant).map(Cell::control);
    let follows = at == Some(control) || at == Some(variant.control().sanitized());
    // If the counter must not be read, no cell follows a word: see `door::prepare`.
    if !follows
        && !thread.overflows()
        && !clock::is_forbidden()
        && let Some(process) = process::current()
    {
        let _ = thread.busy(|| thread.ready_cell(process, variant, control));
    }
}

/// Records a sum, with what waits of the point.
pub(super) fn finish_with(
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
    // A context that came from another thread may not have a cell here yet.
    let missing = !busy && !thread.overflows() && thread.cell(point).is_none();
    if missing {
        let _ = door::prepare(point);
    }
    let entry = thread.entry(point);
    let is_recorded = !busy && entry.cell().is_some() && {
        // The region is closed already, so the thread's place is the region's.
        let what = measure::what(thread, point, thread.place());
        let times = (start, elapsed, what);
        thread.busy(|| thread.record_counted(entry, measured, times, amounts)).is_some()
    };
    if !is_recorded {
        match thread.shared_cell(point) {
            Some(cell) => thread.record_shared(&cell, measured, amounts),
            None => process::miss(),
        }
    }
    if !busy && let Some(process) = process::current() {
        process.catch_up();
    }
}
