//! Futures: each poll is a region, and their sum is one measurement.

use std::mem;

use pfp_shm_layout::amounts::Amounts;

use super::allocs;
use super::copies;
use super::current;
use super::finish::{finish_with, pop_and_cover};
use super::prepare;
use super::process;
use super::region::{ALLOCS, Region, level_of, not_below_zero};
use super::regions::PartSum;
use super::thread::Thread;
use crate::point::Point;

/// Polls of a future that are not recorded yet. It has C's layout, because copies of pfp pass it to
/// one another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) enum Polls {
    #[default]
    None,
    Some {
        sum: PartSum,
        /// The counter when the first of these polls began.
        start: u64,
    },
}

/// Ends a region that was begun for one poll of a future, and adds its measurement to the earlier
/// polls' sum; records the sum with the last poll.
///
/// Inclusive ticks are added to the point's total after each poll. So each poll can exclude the
/// ticks that inner polls of the same point have added, as for recursive calls, no matter when the
/// inner futures end.
#[inline(never)]
pub(crate) fn end_poll(tag: u64, polls: &mut Polls, last: bool) {
    let Some(thread) = current::thread().filter(|thread| thread.is_alive()) else {
        if let Some(leader) = copies::followed() {
            leader.end_poll(tag, polls, last);
        }
        return;
    };
    match thread.find(tag) {
        // The region belongs to another context or thread, or to the parent of this forked child.
        None => thread.count(|counters| &counters.mismatched),
        Some(region) if thread.has_room() => end_part(thread, region, polls, last),
        Some(_) => thread.leave_out(tag),
    }
}

#[inline(never)]
fn end_part(thread: &Thread, region: &Region, polls: &mut Polls, last: bool) {
    let tag = region.tag();
    // SAFETY: an open region has begun.
    let point = unsafe { region.point_of_open() };
    let amounts = thread.amounts_of(tag);
    if tag & ALLOCS != 0 {
        prepare::missing_cell(thread, point);
        allocs::end(thread, region, point, last);
    }
    let total = || thread.entry(point).total();
    let (end, inside) = thread.read_clock(None, || total().wrapping_sub(region.inclusive()));
    let begun = region.begun(end.off, end.switches);
    if level_of(tag) + 1 != thread.level() {
        thread.abandon_from(level_of(tag) + 1);
    }
    region.close();
    let part = thread.part(&begun, end);
    pop_and_cover(thread, part.child, part.net);
    thread.show_end(end.now);
    let (mut sum, start) = polls.take().unwrap_or_else(|| (PartSum::default(), begun.start));
    let inclusive = part.span().wrapping_sub(inside);
    // The ticks are added at once, so that an enclosing poll of the same point can exclude them.
    thread.add_to_total(point.offset(), inclusive);
    sum.add(PartSum { own: part.own(), inclusive, off: part.off, switches: part.switches });
    if last {
        let elapsed = not_below_zero(end.now.wrapping_sub(start));
        finish_with(thread, point, sum, (start, elapsed), amounts);
    } else {
        *polls = Polls::Some { sum, start };
    }
}

impl Polls {
    /// Removes and returns the sum, and the counter when the first poll began.
    fn take(&mut self) -> Option<(PartSum, u64)> {
        match mem::take(self) {
            Self::None => None,
            Self::Some { sum, start } => Some((sum, start)),
        }
    }

    /// Whether some poll was measured that is not recorded yet.
    #[inline(always)]
    pub(crate) fn wait(&self) -> bool {
        matches!(self, Self::Some { .. })
    }

    /// Records the measured polls of a future that is dropped.
    #[cold]
    pub(crate) fn record(&mut self, point: &'static Point, amounts: Option<Amounts>) {
        if !self.wait() {
            return;
        }
        if let Some(leader) = copies::followed() {
            return match amounts {
                Some(amounts) => leader.record_polls_with(point, self, &amounts),
                None => leader.record_polls(point, self),
            };
        }
        let Some((sum, start)) = self.take() else { return };
        let Some(thread) =
            current::thread().filter(|thread| thread.is_alive()).or_else(prepare::thread)
        else {
            return process::miss();
        };
        let elapsed = (thread.stamp_beside().wrapping_sub(start) as i64).max(0) as u64;
        finish_with(thread, point, sum, (start, elapsed), amounts);
    }
}
