//! The ends of guards that the hot path of [`super::measure`] leaves to its doors.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;

use super::by_hand::end_kept;
use super::current;
use super::finish::{Ending, Inclusive, finish};
use super::guard::Guard;
use super::measure::end_at;
use super::moment::{fenced_end, turn_page};
use super::region::{End, Region, RegionStart};
use super::thread::{Entry, LEVEL, LEVELS, Thread};
use crate::point::Point;

/// Ends a region on the short way whose record is the first of a page.
pub(super) fn end_turned(thread: &Thread, guard: &mut Guard, end: End) -> bool {
    let Some((took, added)) = turn_page(thread, guard.point()) else { return false };
    guard.leave_out(took, added);
    let covered = end.covered.wrapping_add(took);
    let mut is_short = true;
    end_at::<true, _>(guard, thread, End { covered, ..end }, None, |guard, door| {
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
    let Some(thread) = current::thread().filter(|thread| thread.is_alive()) else { return };
    if guard.begun().is_none() {
        let kept = guard.kept_amounts();
        end_kept(guard.point(), amounts.or(kept.as_ref()));
    } else if thread.has_room() {
        end_slowly(thread, guard, end, amounts);
    } else {
        thread.leave_out(guard.place());
    }
}

/// Ends a region of a guard that the context does not keep.
#[inline(never)]
fn end_slowly(thread: &Thread, guard: &mut Guard, end: End, amounts: Option<&Amounts>) {
    let point = guard.point();
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
    let deeper = thread.inner_place().wrapping_sub(guard.place() & LEVELS) & LEVELS;
    let place = thread.inner_place().wrapping_sub(deeper);
    let (moment, inside) = thread.moment(Some(end), || {
        // A handler may have switched to another fibre and back since the last try.
        added_since(noted(thread, point, &begun), &begun)
    });
    // Regions between this one and the innermost, of as many as are counted.
    if deeper != 0 {
        thread.count(|counters| &counters.mismatched);
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
pub(super) fn noted<'a>(
    thread: &'a Thread,
    point: &Point,
    begun: &RegionStart,
) -> Option<&'a Entry> {
    (!thread.clock.was_resumed(begun.switches)).then(|| thread.entry(point))
}

/// What was added to an inclusive total since a guard has noted it; 0 if none was noted.
pub(super) fn added_since(noted: Option<&Entry>, begun: &RegionStart) -> u64 {
    noted.map_or(0, |entry| entry.total().wrapping_sub(begun.inclusive))
}

impl Thread {
    /// Regions inside one that has ended were not: what is to end one of them later finds
    /// that it was begun within that time.
    pub(super) fn give_up_since(&self, begun: &RegionStart, now: u64) {
        let [since, until] = &self.gave_up;
        since.store(begun.start, Relaxed);
        until.store(now, Relaxed);
    }

    /// Whether a region was given up so, is another context's, or was begun before the
    /// thread had its lane, as what a forked child has of its parent.
    fn has_given_up(&self, begun: &RegionStart) -> bool {
        let [since, until] = self.gave_up.each_ref().map(|word| word.load(Relaxed));
        let claimed = self.claimed.load(Relaxed);
        let start = begun.start;
        start.wrapping_sub(since) < until.wrapping_sub(since)
            || (start.wrapping_sub(claimed) as i64) < 0
            || self.clock.was_resumed(begun.switches)
    }
}
