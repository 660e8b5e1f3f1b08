//! Laps: a guard ends its region and begins another one with the same stamp.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;

use super::guard::Guard;
use super::region::{Region, not_below_zero};
use super::thread::Thread;
use super::thread::ring::begins_page;
use super::{busy, clock_reading, copies, current, overhead};
use crate::clock::ticks;
use crate::engine::metered::MeteredPoint;
use crate::marker;
use crate::point::Point;

/// Stores the inclusive total of the next point again, because another fibre may have run since the
/// lap read it.
#[cold]
#[inline(never)]
fn note_total_again(thread: &Thread, region: &Region, next: &Point) {
    region.set_inclusive(thread.entry(next).total());
}

impl Guard {
    /// Ends the region and begins one of another point; see [`Self::lap`].
    #[inline(always)]
    pub(crate) fn lap_to(&mut self, next: &'static Point) {
        let control = next.control();
        if self.tag() != 0 && control.enabled() {
            self.lap_on::<false>(next, control);
        } else if self.tag() != 0 || control.enabled() {
            self.lap_slow(next);
        }
    }

    #[inline(never)]
    fn lap_on<const TURNED: bool>(&mut self, next: &'static Point, next_control: Control) {
        let Some(thread) = current::near() else { return self.lap_slow(next) };
        let tag = self.tag();
        let next_offset = next.offset();
        if !thread.follows(next_offset, next_control) || !thread.is_in(tag) {
            return self.lap_slow(next);
        }
        let region = thread.region(tag);
        // SAFETY: an open region has begun.
        let point = unsafe { region.point_of_open() };
        let covered = thread.covered();
        let now = ticks();
        let elapsed = region.elapsed(now);
        // These are read before the marker is set, so that the tests below notice a handler or
        // fibre that measures after the reads and adds to the totals.
        let offset = point.offset();
        let inside = thread.less_total(offset, region.inclusive());
        let (position, switches) = (thread.position(), thread.clock.switches());
        let may_be_written = if TURNED { position.is_free() } else { position.is_in_page() };
        // A clock that is up to date was read less than 2^21 ticks ago, and before this region
        // began. So the region took less than 2^21 ticks, which fit into a record.
        if thread.clock.is_outdated(now) || !may_be_written {
            return match TURNED {
                true => self.lap_slow(next),
                false => self.lap_turned(next),
            };
        }
        // From here on, signal handlers and other fibres do not use the ring; see
        // `measure::record`.
        let marker = &mut marker::new();
        if !thread.mark_at(position, marker::prepare(marker)) {
            return self.lap_slow(next);
        }
        // A handler that has measured since the stamp has changed the covered ticks. What a handler
        // measures from now on is inside the next region.
        let next_total = thread.entry_at(next_offset).total();
        if !thread.has_covered(covered) {
            busy::unmark(thread, true);
            return self.lap_slow(next);
        }
        // If a handler jumps out from here on, dropping this guard ends no region.
        self.set_tag(0);
        compiler_fence(SeqCst);
        // Each word is stored as soon as it is known, and words of the region are loaded again, so
        // that few registers are in use.
        region.set_point(next);
        let slot = thread.slot_at(position);
        slot.fill_place(tag as u32);
        let at = thread.open_at(tag);
        slot.fill_names(at.names(offset.bytes()));
        let open = at.region();
        open.rename(next_offset.bytes());
        // If the region starts later than the stamp, its elapsed ticks are below zero.
        slot.fill_times(region.start(), not_below_zero(elapsed));
        // There is nothing between the two regions, so the ended region gets all elapsed ticks,
        // including the overhead. The overhead of recording falls into the next region. The start
        // of that region is delayed by this overhead, so the enclosing region is not charged for
        // it.
        let start = overhead::with_late(now);
        region.set_start(start);
        open.begin(start);
        let (net, span) = overhead::less_inside(elapsed);
        let inclusive = span.wrapping_add(inside);
        thread.add_to_total(offset, inclusive);
        let ended_too = if offset == next_offset { inclusive } else { 0 };
        region.set_inclusive(next_total.wrapping_add(ended_too));
        let own = region.plus_covered(net.wrapping_sub(covered));
        slot.fill_figures(own, inclusive);
        let ended = overhead::with_lap(own);
        region.set_covered(covered.wrapping_add(ended));
        thread.cover(ended);
        thread.publish(position);
        compiler_fence(SeqCst);
        self.set_tag(tag);
        if thread.clock.switches() != switches {
            note_total_again(thread, region, next);
        }
    }

    /// A lap to a region with amounts; see [`Self::lap_with`].
    pub(crate) fn lap_to_amounts(&mut self, next: &'static MeteredPoint, amounts: &Amounts) {
        match next.tuple(amounts) {
            Some(tuple) => self.lap_to(tuple),
            None => {
                *self = Self::none();
                *self = next.begin_with(*amounts);
            }
        }
    }

    /// A lap whose record may be the first of a page.
    #[cold]
    #[inline(never)]
    fn lap_turned(&mut self, next: &'static Point) {
        if let Some(thread) = current::thread()
            && thread.is_in(self.tag())
            && begins_page(thread.written())
            && let region = thread.region(self.tag())
            && let Some(took) =
                region.point().and_then(|point| clock_reading::turn_page(thread, region, point))
        {
            // The begin of the region moves by the time that turning the page took.
            region.delay(took);
            return self.lap_on::<true>(next, next.control());
        }
        self.lap_slow(next);
    }

    /// Slow path of `lap`: an end and a begin.
    #[cold]
    #[inline(never)]
    fn lap_slow(&mut self, next: &'static Point) {
        if let Some(leader) = copies::followed().filter(|_| self.tag() != 0) {
            return self.set_tag(leader.lap_to(next, self.tag()));
        }
        *self = Self::none();
        *self = Self::begin(next);
    }
}
