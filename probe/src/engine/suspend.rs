//! Suspends a context, and resumes it.

use std::ptr;
use std::sync::atomic::{
    Ordering::{Relaxed, Release, SeqCst},
    compiler_fence,
};

use pfp_shm_layout::calls::UNKNOWN;
use pfp_shm_layout::ring::POINT_SHIFT;

use super::allocs;
use super::cold;
use super::common::next_run;
use super::owner;
use super::region::{ALLOCS, LEVEL, Region};
use super::regions::Shared;
use super::thread::Thread;
use crate::clock::counter::stamp;
use crate::marker;
use crate::point::Point;

/// Runs work while no signal handler of this thread can interrupt it. A handler would find a state
/// between two contexts, and if it switched contexts, too, it would store that state.
pub(super) fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    cold::section(work)
}

/// Suspends the thread's current context: stores the thread's state in it. Returns the stamp at
/// which the context stops.
pub(super) fn put_aside(thread: &Thread) -> u64 {
    let now = thread.stamp();
    keep(thread, now, allocs::swap_stored);
    now
}

/// What happens to the counts of allocations of an open region.
type OfAllocs = fn(&Thread, &Region, &Point);

fn keep(thread: &Thread, now: u64, of_allocs: OfAllocs) {
    let paused = &thread.regions().paused;
    if paused.is_paused.load(Relaxed) {
        return;
    }
    keep_added(thread, of_allocs);
    thread.note_clock();
    paused.clock.store(now.wrapping_sub(thread.clock.off()), Relaxed);
    paused.switches.store(thread.clock.switches(), Relaxed);
    paused.covered.store(thread.covered(), Relaxed);
    let (run, level) = thread.kept_place();
    paused.run.store(run, Relaxed);
    paused.place.store(level, Relaxed);
    marker::put_aside(&thread.position, &paused.at_work);
    marker::put_aside(&thread.clock.refreshing, &paused.refreshing);
    compiler_fence(SeqCst);
    paused.is_paused.store(true, Relaxed);
}

/// Makes a context current after the current one was suspended; null means the thread's own.
/// Returns the context that was current. If a signal handler runs in between, it pushes above the
/// regions of both contexts.
pub(super) fn replace_current(thread: &Thread, next: *mut Shared) -> *mut Shared {
    // SAFETY: the pointer is null, or leads to a context that the caller keeps alive.
    let regions = unsafe { next.as_ref() }.map_or(&thread.own, |next| &next.regions);
    let level = regions.paused.place.load(Relaxed);
    thread.set_level(level.max(thread.level() * LEVEL));
    thread.set_current(next)
}

/// The open regions of the current context, the outermost first.
fn open(thread: &Thread) -> impl DoubleEndedIterator<Item = &'static Region> {
    (0..thread.open_levels()).map(|level| thread.region_at(level))
}

/// Stores in each open region the ticks that were added to its point's inclusive total since the
/// begin, and what it has allocated. The thread that resumes the context may have other totals.
fn keep_added(thread: &Thread, of_allocs: OfAllocs) {
    for region in open(thread).rev() {
        of_each(thread, region, of_allocs);
        if let Some(total) = total(region, thread) {
            region.kept.store(total.wrapping_sub(region.inclusive()), Relaxed);
        }
    }
}

/// Converts what `keep_added` has stored to the totals of the thread that resumes the context.
fn go_on_in(thread: &Thread) {
    for region in open(thread) {
        of_each(thread, region, allocs::swap_stored);
        if let Some(total) = total(region, thread) {
            region.set_inclusive(total.wrapping_sub(region.kept.load(Relaxed)));
        }
    }
}

fn of_each(thread: &Thread, region: &Region, of_allocs: OfAllocs) {
    if region.tag() & ALLOCS != 0
        && let Some(point) = region.point()
    {
        of_allocs(thread, region, point);
    }
}

/// The current inclusive total of the region's point. `None` if the begin has stored no point yet.
fn total(region: &Region, thread: &Thread) -> Option<u64> {
    Some(thread.entry(region.point()?).total())
}

/// Shows readers the open regions of a context that is resumed.
fn show(thread: &Thread, now: u64) {
    let Some(calls) = thread.calls() else { return };
    for (level, region) in open(thread).enumerate() {
        let point = region.point().map_or(UNKNOWN << POINT_SHIFT, |point| point.offset().bytes());
        let shown = calls.open(level);
        shown.name(point, region.off());
        shown.begin(region.start());
    }
    calls.resume(now, thread.level());
}

/// Resumes the context that has become current, from the moment `now`.
pub(super) fn resume(thread: &Thread, now: u64) {
    let current = thread.current.load(Relaxed);
    // SAFETY: the pointer is null, or leads to a context that stays alive while it is current.
    let number = unsafe { current.as_ref() }.map_or(0, Shared::number);
    let regions = thread.regions();
    let paused = &regions.paused;
    thread.clock.set_off(now.wrapping_sub(paused.clock.load(Relaxed)));
    let run = next_run();
    thread.clock.set_switches(paused.switches.load(Relaxed), run);
    thread.set_covered(paused.covered.load(Relaxed));
    // The tags of open regions in a thread's own context contain the number of its run, so a
    // resumed own context keeps that number. Other contexts get a new number.
    let run = if number == 0 { paused.run.load(Relaxed) } else { run };
    thread.begin_run(run, number, paused.place.load(Relaxed));
    go_on_in(thread);
    show(thread, now);
    thread.rest();
    let suspended = marker::resume(&thread.position, &paused.at_work);
    thread.suspended.store(suspended, Relaxed);
    marker::resume(&thread.clock.refreshing, &paused.refreshing);
    compiler_fence(SeqCst);
    paused.is_paused.store(false, Relaxed);
    // If a handler has switched contexts in the middle of a begin or end, the interrupted begin or
    // end must read the clock again.
    thread.clock.disturb();
}

/// Releases a context that has left a thread's [chain](super::context). Null is ignored.
pub(super) fn release(context: *const Shared) {
    // SAFETY: the pointer is null, or leads to a context that the chain keeps alive until the call
    // below.
    if let Some(held) = unsafe { context.as_ref() } {
        let drop = held.drop;
        // Pairs with the exchange in `hold`.
        held.held_by.store(0, Release);
        // SAFETY: the pointer came into the chain from `Handle::into_raw` as a counted reference,
        // which this call consumes.
        unsafe { drop(context) };
    }
}

/// Releases the contexts of a thread that ends, so that other threads can resume them. If the thread
/// has ended already, its counters are gone, and the open regions of its context stop counting.
pub(super) fn release_all(thread: &Thread) {
    let is_own = thread.kernel_id() == owner::tid();
    let of_allocs = if is_own { allocs::swap_stored } else { allocs::lose };
    undisturbed(|| {
        if !thread.current.load(Relaxed).is_null() {
            // The thread's clock was stopped before, so the stamp is read without it.
            keep(thread, stamp(), of_allocs);
        }
        let mut at = thread.set_current(ptr::null_mut());
        // SAFETY: the pointer is null, or leads to a context that its place in the chain keeps
        // alive.
        while let Some(context) = unsafe { at.as_ref() } {
            let around = context.interrupted.swap(ptr::null_mut(), Relaxed);
            context.entered.store(false, Relaxed);
            release(at);
            at = around;
        }
    });
}
