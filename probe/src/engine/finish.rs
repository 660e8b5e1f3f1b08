//! Slow path of an end: puts the measurement into its cell, or latches it.

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::cell::{Away, Measurement};
use pfp_shm_layout::histogram::LIMIT;

use super::boxes::{self, Call};
use super::clock_reading::ClockReading;
use super::measure;
use super::overhead::overhead;
use super::prepare;
use super::process;
use super::region::Begun;
use super::regions::PartSum;
use super::thread::Thread;
use crate::clock;
use crate::point::Point;

/// The innermost region, which ends on the slow path.
pub(super) struct Ending<'a> {
    pub(super) begun: Begun,
    pub(super) end: ClockReading,
    /// Ticks that were added to the point's inclusive total since the region began.
    pub(super) inside: u64,
    pub(super) latch: bool,
    /// The amounts of the region.
    pub(super) amounts: Option<&'a Amounts>,
}

/// Pops the innermost region, which has `child` ticks of regions inside. Adds its own ticks, and
/// the overhead of measuring it, to the covered ticks.
pub(super) fn pop_and_cover(thread: &Thread, child: u64, net: u64) {
    thread.cover(net.wrapping_add(overhead().pair()).wrapping_sub(child));
    thread.pop();
}

pub(super) fn finish(thread: &Thread, point: &'static Point, ending: Ending<'_>) {
    let Ending { begun, end, inside, latch, amounts } = ending;
    let part = thread.part(&begun, end);
    pop_and_cover(thread, part.child, part.net);
    // Shows the end to readers, because the region may write no record that would show it.
    thread.show_end(end.now);
    let sum = PartSum {
        own: part.own(),
        inclusive: part.span().wrapping_sub(inside),
        off: part.off,
        switches: part.switches,
    };
    thread.add_to_total(point.offset(), sum.inclusive);
    let regions = thread.regions();
    if latch && thread.busy(|| regions.latch(point, sum, amounts)) == Some(true) {
        return;
    }
    if latch {
        thread.count(|counters| &counters.refused);
    }
    let start = begun.start;
    // A region that a lap began starts a little after the lap's stamp, so the difference may be
    // negative.
    let elapsed = (end.now.wrapping_sub(start) as i64).max(0) as u64;
    finish_with(thread, point, sum, (start, elapsed), amounts.copied());
    let limit = point.control().limit();
    if limit.is_some_and(|limit| boxes::is_reached(limit, elapsed, part.span())) {
        boxes::keep(
            thread,
            &Call { point, begun, part, elapsed, around: thread.open_levels() },
            None,
        );
    }
}

/// Makes the thread's cell of a tuple follow the control word that its cell of the metered point
/// follows. So the region counts in the window in which it began, even if the point was reset
/// since. If the tuple's cell already follows the current word, it is left alone, since it has
/// newer regions.
fn follow(thread: &Thread, tuple: &'static Point, metered: &Point) {
    let [at, word] = [tuple, metered].map(|point| thread.entry(point).follows());
    // If the counter must not be read, no cell follows a word: see `prepare::point`.
    if at != word
        && at != tuple.control().sanitized()
        && thread.cell(metered).is_some()
        && !clock::is_forbidden()
        && let Some(process) = process::current()
    {
        let _ = thread.busy(|| thread.ready_cell(process, tuple, word));
    }
}

/// Records a sum, together with the latched parts of the point. With amounts, the sum is recorded
/// for their tuple, if the metered point has one.
pub(super) fn finish_with(
    thread: &Thread,
    mut point: &'static Point,
    mut sum: PartSum,
    (start, elapsed): (u64, u64),
    mut amounts: Option<Amounts>,
) {
    let busy = thread.is_busy();
    if !busy && !thread.position().is_free() {
        let regions = thread.regions();
        sum.add(thread.busy(|| regions.unlatch(point, &mut amounts)).unwrap_or_default());
    }
    if let (Some(metered), Some(these)) = (point.metered(), &amounts)
        && let Some(tuple) = metered.tuple(these)
    {
        follow(thread, tuple, point);
        (point, amounts) = (tuple, None);
    }
    let amounts = amounts.as_ref();
    let away = Away { off_cpu: sum.off, switches: sum.switches, elapsed };
    let exclusive = sum.own.min(LIMIT - 1);
    let measured = Measurement { exclusive, inclusive: sum.inclusive, away: Some(away) };
    prepare::missing_cell(thread, point);
    let entry = thread.entry(point);
    let is_recorded = !busy && entry.cell().is_some() && {
        // The region is popped already, so the thread's place is the region's.
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
