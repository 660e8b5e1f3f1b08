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
    end_at::<true, _>(guard, thread, End { covered, ..end }, None, |guard, door, marked| {
        guard.end_by(door, marked);
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
    let point = guard.point();
    if guard.begun().is_none() {
        let kept = guard.kept_amounts();
        return end_kept(thread, point, guard.kept_start(), amounts.or(kept.as_ref()));
    }
    // The region belongs to another thread or context, which has figures of its own; or this is a
    // forked child.
    if thread.is_foreign(guard.place()) {
        return thread.count(|counters| &counters.mismatched);
    }
    if thread.has_room() {
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
        if thread.has_given_up(place, &begun, deeper) {
            return;
        }
        thread.give_up_since(place, &begun, moment.now);
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
    /// Gives up the regions inside the region of a place, which has ended. The end of such a region
    /// finds out later that it began before `now`.
    pub(super) fn give_up_since(&self, place: u64, begun: &RegionStart, now: u64) {
        let [since, until] = &self.gave_up;
        since.store(begun.start, Relaxed);
        until.store(now, Relaxed);
        let inside = self.given_up().iter().skip(level_of(place) + 1);
        inside.for_each(|until| until.store(now, Relaxed));
    }

    /// Whether the region at a place was given up, if `deeper` regions are counted inside it.
    ///
    /// This is exact for up to 255 open regions. Levels repeat after 256: the level of a region that
    /// was given up may become the innermost one, and then its end measures.
    fn has_given_up(&self, place: u64, begun: &RegionStart, deeper: u64) -> bool {
        // After a switch, `gave_up` is about other contexts. Only the count remains: it is this
        // high if an end has given this region up, or if jumps have left as many regions.
        if self.clock.was_resumed(begun.switches) {
            return deeper > LEVELS / 2;
        }
        let start = begun.start;
        let [since, until] = self.gave_up.each_ref().map(|word| word.load(Relaxed));
        // First the last end that gave up regions, then the last end that gave up this level.
        let level_until = self.given_up()[level_of(place)].load(Relaxed);
        start.wrapping_sub(since) < until.wrapping_sub(since)
            || level_until != 0 && (level_until.wrapping_sub(start) as i64) > 0
    }
}

/// How many regions are open around one of a place, modulo 256.
fn level_of(place: u64) -> usize {
    ((place & LEVELS) / LEVEL) as usize
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::hint::black_box;
    use std::mem::ManuallyDrop;
    use std::sync::atomic::Ordering::Relaxed;
    use std::thread;

    use super::*;
    use crate::engine::oracle::one_at_a_time;
    use crate::engine::process;
    use crate::{MeteredGuard, MeteredPoint};

    /// What C++ allows: a scope in memory that another thread reaches.
    struct Sent<T>(T);
    // SAFETY: the test ends the scope on another thread on purpose.
    unsafe impl<T> Send for Sent<T> {}

    impl<T> Sent<T> {
        fn get(self) -> T {
            self.0
        }
    }

    fn mismatched() -> u64 {
        let process = process::current().expect("it has measured");
        let lanes = 0..process.segment.counters().lanes_used.load(Relaxed) as usize;
        let lanes = lanes.filter_map(|number| process.segment.lane(number));
        lanes.map(|lane| lane.counters.mismatched.load(Relaxed)).sum()
    }

    fn count(point: &'static Point) -> u64 {
        point.stats().map_or(0, |stats| stats.count)
    }

    fn work() {
        black_box((0..1000).map(black_box::<u32>).sum::<u32>());
    }

    /// An end on another thread is a mismatch: it measures nothing, and the regions that are open
    /// there have their own time.
    #[test]
    fn a_guard_that_ends_on_another_thread_measures_nothing() {
        static BEGUN: Point = Point::new("begun here");
        static NEXT: Point = Point::new("next there");
        static METERED: MeteredPoint = MeteredPoint::new("metered here", &["items"]);
        static OUTER: Point = Point::new("outer there");
        static INNER: Point = Point::new("inner there");
        fn end_all(guards: Sent<[Guard; 3]>, metered: Sent<[MeteredGuard; 2]>) {
            let [guard, mut lap, kept] = guards.get();
            drop((guard, kept));
            lap.lap_to(&NEXT);
            drop(lap);
            metered.get().into_iter().for_each(drop);
        }
        let _one = one_at_a_time();
        // More different amounts than there are variants.
        for items in 0..100u64 {
            drop(METERED.measure([items]));
        }
        let of_metered = count(METERED.point());
        let begin = || {
            let guards = [&BEGUN, &BEGUN, METERED.point()].map(Guard::begin);
            (Sent(guards), Sent([METERED.measure([1]), METERED.measure([1000])]))
        };
        let before = mismatched();
        // The first thread has a lane and regions, the second nothing.
        let (guards, metered) = begin();
        let other = thread::spawn(move || {
            let start = crate::ticks();
            let outer = Guard::begin(&OUTER);
            METERED.begin();
            for _ in 0..200 {
                let _inner = Guard::begin(&INNER);
                work();
            }
            end_all(guards, metered);
            METERED.end([1]);
            drop(outer);
            crate::ticks().wrapping_sub(start)
        });
        let lasted = other.join().expect("it ends");
        let (guards, metered) = begin();
        thread::spawn(move || end_all(guards, metered)).join().expect("it ends");
        assert_eq!(mismatched() - before, 10);
        assert_eq!([&BEGUN, &NEXT, &OUTER, &INNER].map(count), [0, 2, 1, 200]);
        assert_eq!(count(METERED.point()), of_metered + 1);
        let [outer, inner] = [&OUTER, &INNER].map(|point| point.stats().expect("it has ended"));
        assert!(outer.inclusive <= lasted && inner.inclusive <= outer.inclusive, "{outer:?}");
        assert!(outer.exclusive <= outer.inclusive - inner.inclusive, "{outer:?} {inner:?}");
    }

    /// Up to 255 regions that are given up count as mismatched, whatever is given up in between.
    #[test]
    fn guards_that_are_dropped_front_to_back_measure_once() {
        static FIRST: Point = Point::new("front to back");
        static OTHER: Point = Point::new("front to back beside it");
        let _one = one_at_a_time();
        for many in [3, 130, 200, 254, 255] {
            let (before, lost) = (count(&FIRST), mismatched());
            let guards: Vec<_> = (0..many).map(|_| Guard::begin(&FIRST)).collect();
            drop(guards);
            assert_eq!((count(&FIRST) - before, mismatched() - lost), (1, many), "{many}");
        }
        for many in [2, 100, 200] {
            let before = [&FIRST, &OTHER].map(count);
            let begin = |point| (0..many).map(|_| Guard::begin(point)).collect::<Vec<_>>();
            let mut first = begin(&FIRST).into_iter();
            drop(first.next());
            let mut other = begin(&OTHER).into_iter();
            drop(other.next());
            drop((first, other));
            let after = [&FIRST, &OTHER].map(count);
            assert_eq!([after[0] - before[0], after[1] - before[1]], [1, 1], "{many}");
        }
        let around = Guard::begin(&OTHER);
        drop((0..200).map(|_| Guard::begin(&FIRST)).collect::<Vec<_>>());
        let before = count(&OTHER);
        drop(around);
        assert_eq!(count(&OTHER), before + 1, "the region around them is open");
    }

    /// Regions that were left by jumps, however many, do not keep one around them from its end.
    #[test]
    fn a_region_around_many_that_were_left_is_measured() {
        static AROUND: Point = Point::new("around what was left");
        static LEFT: Point = Point::new("left");
        let _one = one_at_a_time();
        for many in [1, 127, 128, 129, 200, 254] {
            let before = count(&AROUND);
            let around = Guard::begin(&AROUND);
            (0..many).for_each(|_| _ = ManuallyDrop::new(Guard::begin(&LEFT)));
            drop(around);
            assert_eq!((count(&AROUND), count(&LEFT)), (before + 1, 0), "{many}");
        }
    }

    /// What a child ends of its parent's regions measures nothing, however deep they are.
    #[test]
    fn a_child_measures_none_of_its_parents_regions() {
        static DEEP: Point = Point::new("deep at a fork");
        static OWN: Point = Point::new("of the child");
        let _one = one_at_a_time();
        drop(Guard::begin(&OWN));
        for depth in [1, 128, 129, 140, 300] {
            let before = count(&DEEP);
            let mut guards: Vec<_> = (0..depth).map(|_| Guard::begin(&DEEP)).collect();
            // SAFETY: the child measures, and ends.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(Guard::begin(&OWN));
                while guards.pop().is_some() {}
                let is_right = count(&DEEP) == 0 && count(&OWN) == 1;
                // SAFETY: ends the child at once.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            let mut status = 0;
            // SAFETY: the status is ours to write.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "{depth}");
            while guards.pop().is_some() {}
            assert_eq!(count(&DEEP), before + depth);
        }
    }
}
