//! The slow paths of begins and ends, for rare cases and for state that is missing or has changed.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::amounts::Amounts;
use pfp_shm_layout::control::Control;

use super::clock_reading::{Stamp, fenced_end, note, turn_page};
use super::facts::Offset;
use super::finish::{Ending, finish};
use super::measure::{self, FUNCTION, HAND, SCOPE, flags_of};
use super::overhead::overhead;
use super::prepare::{self, Target};
use super::process::entries::miss_unregistered;
use super::region::{
    ALLOCS, AMOUNTS, BY_HAND, End, FENCED, IS_PLACE, LEVEL, LEVELS, Region, level_of,
};
use super::state::UNREGISTERED;
use super::thread::ring::begins_page;
use super::thread::{Thread, lane};
use super::{allocs, busy, copies, current, process, room};
use crate::point::Point;

/// Begins a region on a thread whose state is more than two loads away, as in a copy of pfp that
/// follows another.
#[cold]
#[inline(never)]
pub(super) fn begin_far<const HOW: u64>(point: &'static Point) -> u64 {
    match copies::followed() {
        Some(leader) => leader.begin(point, HOW, None),
        None => begin::<HOW>(point),
    }
}

/// Begins a region for which state is missing or has changed, or which needs special treatment.
/// Returns its tag; 0 if it is not measured.
#[cold]
#[inline(never)]
pub(super) fn begin<const HOW: u64>(point: &'static Point) -> u64 {
    let control = point.control();
    if control.only_counts_allocs()
        && let Some(thread) = current::near()
        && thread.follows(point.offset(), control.sanitized())
        && !thread.is_full(thread.place())
    {
        return begin_counting::<HOW>(thread, point, control.sanitized());
    }
    if room::has_room() {
        return begin_slowly(point, HOW);
    }
    match point.control().0 {
        UNREGISTERED => miss_unregistered(point),
        _ => process::miss(),
    }
    0
}

/// Begins a region that counts its allocations, if the point has no other flag and its cell is
/// ready.
#[inline(always)]
pub(super) fn begin_counting<const HOW: u64>(
    thread: &'static Thread,
    point: &'static Point,
    control: Control,
) -> u64 {
    let [inside, pair] = overhead().beyond(ALLOCS);
    thread.cover(pair);
    let tag = measure::begin_in::<HOW>(thread, point, control);
    // The test fails if the begin has taken the slow path and has set flags there.
    if !thread.is_in(tag) || !allocs::begin(thread, point, tag) {
        return tag;
    }
    let region = thread.region(tag);
    region.delay(inside);
    region.mark_counting();
    tag | ALLOCS
}

#[inline(never)]
fn begin_slowly(point: &'static Point, how: u64) -> u64 {
    if let Some((thread, flags)) = measure::ready_flagged(point) {
        return push(thread, point, how | flags);
    }
    match prepare::point(point) {
        Target::Off => 0,
        Target::Missing => {
            process::miss();
            0
        }
        // A region that begins without a cell must end on the slow path, too.
        Target::Late(thread) => push(thread, point, how | SLOW),
        Target::Cell(thread, _) => push(thread, point, how | flags_of(point.control())),
    }
}

/// Flag in `how`: the region ends on the slow path.
const SLOW: u64 = IS_PLACE;
/// Flags in `how` and in tags: the region is fenced, and counts its allocations.
pub(super) const FLAGS: u64 = FENCED | ALLOCS;

/// Pushes a region on the slow path. `how` may have [`FLAGS`]. Returns the region's tag; 0 if it is
/// refused.
#[inline(never)]
pub(super) fn push(thread: &Thread, point: &'static Point, how: u64) -> u64 {
    if thread.is_full(thread.place()) && !thread.make_room() {
        thread.count(|counters| &counters.refused);
        return 0;
    }
    // The enclosing region does not pay for fences and for counting.
    let [_, pair] = overhead().beyond(how & FLAGS);
    if pair != 0 {
        thread.cover(pair);
    }
    // Clear the slot, so that an old tag with the same value does not match the new region.
    thread.region(thread.place()).close();
    thread.push();
    begin_pushed(thread, point, how)
}

/// Begins the region that was pushed last. Returns 0 in a forked child, whose place is wiped.
fn begin_pushed(thread: &Thread, point: &'static Point, how: u64) -> u64 {
    let Some(place) = thread.last_place() else { return 0 };
    let region = thread.region(place);
    let stamp = if how & FENCED == 0 { Stamp::Plain } else { Stamp::Fenced };
    region.set_point(point);
    let mut flags = how & FLAGS;
    if flags & ALLOCS != 0 && !allocs::begin(thread, point, place) {
        flags &= !ALLOCS;
    }
    let of_place = |place: u64| match how & SLOW {
        0 => place | flags,
        _ => place & !IS_PLACE,
    };
    let [mut late, _] = overhead().beyond(flags);
    if how & !(BY_HAND | FLAGS | SLOW) == FUNCTION {
        late += overhead().hooks_inside.load(Relaxed);
    }
    let Some(tag) = note(thread, point, region, stamp, of_place) else { return 0 };
    region.delay(late);
    region.mark(how & BY_HAND);
    tag
}

/// Begins a pushed region again, because the clock was outdated, or a signal handler has measured
/// in the meantime.
#[cold]
#[inline(never)]
pub(super) fn begin_again<const HOW: u64>(point: &'static Point) -> u64 {
    let Some(thread) = current::thread().filter(|thread| thread.is_alive()) else { return 0 };
    if !thread.has_room() {
        thread.leave_out(thread.inner_place());
        return 0;
    }
    begin_pushed(thread, point, HOW)
}

/// Ends the region of a tag that the fast path could not end.
#[cold]
#[inline(never)]
pub(super) fn end(tag: u64, now: u64, covered: u64) {
    let place = tag & !ALLOCS;
    if place != tag
        && let Some(thread) = current::near()
        && thread.is_in(place)
    {
        return end_counting(thread, tag, place, End { now, covered });
    }
    end_of(tag, now, covered, false);
}

/// Ends the innermost region, which counts its allocations, on the fast path if possible.
#[inline(always)]
fn end_counting(thread: &Thread, tag: u64, place: u64, end: End) {
    let region = thread.region(place);
    // SAFETY: a region that is open has begun.
    let point = unsafe { region.point_of_open() };
    let slow = |marked, now| end_of(tag, now, end.covered, marked);
    let when_marked = || _ = allocs::end_marked(thread, region, point, true);
    measure::record::<false, SCOPE>(
        thread,
        region,
        place,
        [point.offset(); 2],
        end,
        slow,
        when_marked,
    );
}

/// [`end`] on a thread whose position the caller has marked.
#[cold]
#[inline(never)]
pub(super) fn end_marked(tag: u64, now: u64, covered: u64) {
    end_of(tag, now, covered, true);
}

fn end_of(tag: u64, now: u64, covered: u64, marked: bool) {
    let Some(thread) = current::thread() else { return end_elsewhere() };
    busy::unmark(thread, marked);
    if !thread.is_alive() {
        return;
    }
    match thread.find(tag) {
        Some(region) => _ = end_region(thread, region, End { now, covered }, Extra::default()),
        // The region was abandoned, or it belongs to another thread, another context, or this
        // process's parent.
        None => thread.count(|counters| &counters.mismatched),
    }
}

/// Slow path of an end on a thread without a lane. Another thread must have begun the region.
#[cold]
#[inline(never)]
pub(super) fn end_elsewhere() {
    // A forked child has no process yet, and the region belongs to its parent.
    if let Some(thread) = process::current().and_then(lane::of) {
        thread.count(|counters| &counters.mismatched);
    }
}

/// Options of an end on the slow path.
#[derive(Default)]
pub(super) struct Extra<'a> {
    pub(super) latch: bool,
    pub(super) amounts: Option<&'a Amounts>,
}

/// Ends an open region. Returns the time of the end. `None` if the stack has too little room for
/// the end.
#[inline(never)]
pub(super) fn end_region(
    thread: &Thread,
    region: &Region,
    end: End,
    extra: Extra<'_>,
) -> Option<u64> {
    if thread.has_room() {
        return Some(end_slowly(thread, region, end, extra));
    }
    thread.leave_out(region.tag());
    None
}

#[inline(never)]
fn end_slowly(thread: &Thread, region: &Region, end: End, extra: Extra<'_>) -> u64 {
    let tag = region.tag();
    // SAFETY: a region that is open has begun.
    let point = unsafe { region.point_of_open() };
    let mut end = if tag & FENCED == 0 { end } else { fenced_end(thread) };
    if tag & ALLOCS != 0 {
        prepare::missing_cell(thread, point);
        allocs::end(thread, region, point, !extra.latch);
    }
    let is_plain =
        !extra.latch && extra.amounts.is_none() && tag & (AMOUNTS | IS_PLACE) == IS_PLACE;
    if is_plain {
        match end_turned(thread, region, [point; 2], end) {
            Ok(()) => return end.now,
            Err(later) => end = later,
        }
    }
    let kept = thread.amounts_of(tag);
    let total = || thread.entry(point).total();
    let (end, inside) = thread.read_clock(Some(end), || total().wrapping_sub(region.inclusive()));
    let begun = region.begun(end.off, end.switches);
    let inside_of_it = (tag & LEVELS).wrapping_add(LEVEL);
    if thread.place() & LEVELS != inside_of_it {
        // Regions inside have not ended.
        thread.count(|counters| &counters.mismatched);
        thread.abandon_from(level_of(inside_of_it));
    }
    region.close();
    let amounts = extra.amounts.or(kept.as_ref());
    let latch = extra.latch;
    finish(thread, point, Ending { begun, end, inside, latch, amounts });
    end.now
}

/// Tries to end a region on the fast path, if its record is the first of a page, or if it has
/// [`FLAGS`]. If that fails, returns the time of the end. The record is for `point`, and `own` is the
/// region's point.
pub(super) fn end_turned(
    thread: &Thread,
    region: &Region,
    [point, own]: [&Point; 2],
    end: End,
) -> Result<(), End> {
    let place = region.tag() & !(FLAGS | BY_HAND);
    let of = [point, own].map(Point::offset);
    if region.tag() & FLAGS != 0 && is_recorded::<false>(thread, region, place, of, end) {
        return Ok(());
    }
    if !thread.is_in(place) || !begins_page(thread.written()) {
        return Err(end);
    }
    let Some(took) = turn_page(thread, region, own) else { return Err(end) };
    let turned = End { covered: end.covered.wrapping_add(took), ..end };
    if is_recorded::<true>(thread, region, place, of, turned) {
        return Ok(());
    }
    // The next stamp is later by the time that turning the page took, so the region's begin moves
    // by the same time.
    region.delay(took);
    Err(end)
}

/// Ends the innermost region on the fast path, if possible; see [`measure::record`].
#[inline(always)]
pub(super) fn is_recorded<const TURNED: bool>(
    thread: &Thread,
    region: &Region,
    place: u64,
    of: [Offset; 2],
    end: End,
) -> bool {
    // The test fails in a child that was forked while the page was turned, because its place is 0.
    if !thread.is_in(place) {
        return false;
    }
    let mut is_recorded = true;
    let slow = |marked, _| {
        busy::unmark(thread, marked);
        is_recorded = false;
    };
    measure::record::<TURNED, HAND>(thread, region, place, of, end, slow, || ());
    is_recorded
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
    use crate::{Guard, MeteredPoint};

    /// In C++, another thread can reach a scope in memory. This wrapper does the same in Rust.
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

    /// An end on another thread is a mismatch: it measures nothing, and does not change the times
    /// of the regions that are open on that thread.
    #[test]
    fn a_guard_that_ends_on_another_thread_measures_nothing() {
        static BEGUN: Point = Point::new("begun here");
        static NEXT: Point = Point::new("next there");
        static METERED: MeteredPoint = MeteredPoint::new("metered here", &["items"]);
        static OUTER: Point = Point::new("outer there");
        static INNER: Point = Point::new("inner there");
        fn end_all(guards: Sent<[Guard; 3]>, metered: Sent<[Guard; 2]>) {
            let [guard, mut lap, kept] = guards.get();
            drop((guard, kept));
            lap.lap_to(&NEXT);
            drop(lap);
            metered.get().into_iter().for_each(drop);
        }
        let _one = one_at_a_time();
        // More different amounts than there is room for tuples.
        for items in 0..100u64 {
            drop(METERED.measure([items]));
        }
        let of_metered = count(METERED.point());
        let begin = || {
            let guards = [&BEGUN, &BEGUN, METERED.point()].map(Guard::begin);
            (Sent(guards), Sent([METERED.measure([1]), METERED.measure([1000])]))
        };
        let before = mismatched();
        // The first thread has a lane and regions, the second one does not.
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

    /// If guards are dropped in the order of their creation, the first drop abandons all later
    /// regions. It counts as a mismatch, and so does each later drop.
    #[test]
    fn guards_that_are_dropped_front_to_back_measure_once() {
        static FIRST: Point = Point::new("front to back");
        static OTHER: Point = Point::new("front to back beside it");
        let _one = one_at_a_time();
        for many in [3, 130, 200, 255, 256, 300, 4000] {
            let (before, lost) = (count(&FIRST), mismatched());
            let guards: Vec<_> = (0..many).map(|_| Guard::begin(&FIRST)).collect();
            drop(guards);
            assert_eq!((count(&FIRST) - before, mismatched() - lost), (1, many), "{many}");
        }
        for many in [2, 100, 256, 2000] {
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
        // The tag of an abandoned region matches no later region at its level.
        let [first, stale] = [0; 2].map(|_| Guard::begin(&FIRST));
        drop(first);
        let before = [&FIRST, &OTHER].map(count);
        let [outer, inner] = [0; 2].map(|_| Guard::begin(&OTHER));
        drop(stale);
        drop((inner, outer));
        let after = [&FIRST, &OTHER].map(count);
        assert_eq!([after[0] - before[0], after[1] - before[1]], [0, 2]);
        let around = Guard::begin(&OTHER);
        drop((0..200).map(|_| Guard::begin(&FIRST)).collect::<Vec<_>>());
        let before = count(&OTHER);
        drop(around);
        assert_eq!(count(&OTHER), before + 1, "the region around them is open");
    }

    /// A region can still end after many regions inside it were left by jumps.
    #[test]
    fn a_region_around_many_that_were_left_is_measured() {
        static AROUND: Point = Point::new("around what was left");
        static LEFT: Point = Point::new("left");
        let _one = one_at_a_time();
        for many in [1, 127, 128, 129, 254, 255, 256, 1000, 4000] {
            let before = count(&AROUND);
            let around = Guard::begin(&AROUND);
            (0..many).for_each(|_| _ = ManuallyDrop::new(Guard::begin(&LEFT)));
            drop(around);
            assert_eq!((count(&AROUND), count(&LEFT)), (before + 1, 0), "{many}");
        }
    }

    /// A loop that leaves a region by a jump in each round still measures, even when the stack is
    /// full of such regions.
    #[test]
    fn a_stack_that_is_full_of_what_was_left_is_used_again() {
        static FULL: Point = Point::new("on a full stack");
        let _one = one_at_a_time();
        for _ in 0..10_000 {
            let before = count(&FULL);
            let _left = ManuallyDrop::new(Guard::begin(&FULL));
            drop(Guard::begin(&FULL));
            assert!(count(&FULL) == before + 1);
        }
        // The next test finds an empty stack.
        current::thread().expect("it has measured").abandon_from(0);
    }

    /// If a child ends regions of its parent, nothing is measured, however deep the regions are.
    #[test]
    fn a_child_measures_none_of_its_parents_regions() {
        static DEEP: Point = Point::new("deep at a fork");
        static OWN: Point = Point::new("of the child");
        let _one = one_at_a_time();
        drop(Guard::begin(&OWN));
        for depth in [1, 128, 129, 140, 300, 1000] {
            let before = count(&DEEP);
            let mut guards: Vec<_> = (0..depth).map(|_| Guard::begin(&DEEP)).collect();
            // SAFETY: the child only measures, which any forked child may do, and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                drop(Guard::begin(&OWN));
                while guards.pop().is_some() {}
                let is_right = count(&DEEP) == 0 && count(&OWN) == 1;
                // SAFETY: the call ends the child at once.
                unsafe { libc::_exit(i32::from(!is_right)) };
            }
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert_eq!(status, 0, "{depth}");
            while guards.pop().is_some() {}
            assert_eq!(count(&DEEP), before + depth);
        }
    }
}
