//! Laps: a guard ends its region and begins another one at the same stamp.

use std::sync::atomic::{Ordering::SeqCst, compiler_fence};

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;

use super::guard::Guard;
use super::overhead;
use super::region::{Region, not_below_zero};
use super::thread::ring::begins_page;
use super::{busy, current, moment};
use crate::clock::ticks;
use crate::engine::variants::MeteredPoint;
use crate::mark;
use crate::point::Point;

impl Guard {
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
        let Some(thread) = current::near() else { return self.lap_slow(next) };
        let tag = self.tag;
        let next_offset = next.offset();
        if !thread.follows(next_offset, next_control) || !thread.is_in(tag) {
            return self.lap_slow(next);
        }
        // SAFETY: a guard with the tag of a place has been filled.
        let (point, begun) = unsafe { (self.point.assume_init(), self.begun.assume_init_ref()) };
        let covered = thread.covered();
        let now = ticks();
        let elapsed = now.wrapping_sub(begun.start);
        // Before the mark: what a handler or another fibre measures behind it is in the totals, too.
        let offset = point.offset();
        let inside = thread.less_total(offset, begun.inclusive);
        let position = thread.position();
        let may_be_written = if TURNED { position.is_free() } else { position.is_in_page() };
        // A clock that is up to date was read before this region began, less than 2^21 ticks ago, so
        // a record holds what has elapsed.
        if thread.clock.is_outdated(now) || !may_be_written {
            return match TURNED {
                true => self.lap_slow(next),
                false => self.lap_turned(next),
            };
        }
        // As in `end_at`. A handler that jumps out from here on leaves no region open.
        let mark = &mut mark::new();
        if !thread.mark_at(position, mark::prepare(mark)) {
            return self.lap_slow(next);
        }
        // What a handler has added since the stamp has covered something; what one adds from now on is
        // inside the next region.
        let next_total = thread.entry_at(next_offset).total();
        if !thread.has_covered(covered) {
            busy::take_back(thread, true);
            return self.lap_slow(next);
        }
        self.tag = 0;
        compiler_fence(SeqCst);
        // Each word goes where it belongs as soon as it is known, and words of the region are looked
        // at anew, so that few registers do.
        self.point.write(next);
        // SAFETY: the guard had the tag of a place until now, so it is filled.
        let begun = unsafe { self.begun.assume_init_mut() };
        begun.inclusive = next_total;
        let slot = thread.slot_at(position);
        slot.fill_place(tag as u32);
        let at = thread.open_at(tag);
        slot.fill_names(at.names(offset.bytes()));
        let open = at.region();
        open.rename(next_offset.bytes());
        // It may end before it starts, if that is later than the stamp.
        slot.fill_times(begun.start, not_below_zero(elapsed));
        // Between two regions there is nothing, so all of what has elapsed is the region's: what
        // measuring adds is part of it. What recording takes is inside the next one, which starts
        // that much later; the region around both must not pay for it.
        begun.start = overhead::with_late(now);
        open.begin(begun.start);
        let (net, span) = overhead::less_inside(elapsed);
        let inclusive = span.wrapping_add(inside);
        thread.add_to_total(offset, inclusive);
        let ended_too = if offset == next_offset { inclusive } else { 0 };
        begun.inclusive = begun.inclusive.wrapping_add(ended_too);
        let own = net.wrapping_add(begun.covered).wrapping_sub(covered);
        slot.fill_figures(own, inclusive);
        let ended = overhead::with_lap(own);
        begun.covered = covered.wrapping_add(ended);
        thread.cover(ended);
        thread.publish(position);
        compiler_fence(SeqCst);
        self.tag = tag;
    }

    /// A lap to a region with amounts; see [`Self::lap_with`].
    pub(crate) fn lap_to_amounts(&mut self, next: &'static MeteredPoint, amounts: &Amounts) {
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
    fn lap_turned(&mut self, next: &'static Point) {
        if let Some(thread) = current::thread()
            && thread.inner_place() == self.tag
            && begins_page(thread.written())
            && let Some((took, added)) = moment::turn_page(thread, self.point())
        {
            self.leave_out(took, added);
            // As if it had begun that much later.
            self.delay(took);
            return self.lap_on::<true>(next, next.control());
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
}
