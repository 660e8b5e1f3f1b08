//! Putting a context aside, and going on with it.

use std::ptr;
use std::sync::atomic::Ordering::{Relaxed, Release};

use super::cold;
use super::common::next_run;
use super::regions::{Regions, Shared, Slot};
use super::thread::Thread;
use crate::clock::counter::stamp;
use crate::mark;

/// Does something while no signal handler of this thread can come in between:
/// what it would find is neither the one context nor the other, and a hook in it
/// would put that aside.
pub(super) fn undisturbed<R>(work: impl FnOnce() -> R) -> R {
    cold::section(work)
}

/// Keeps what the thread holds of its current context; the moment at which that
/// stopped.
pub(super) fn put_aside(thread: &Thread) -> u64 {
    let now = thread.stamp();
    keep(thread, now);
    now
}

fn keep(thread: &Thread, now: u64) {
    let regions = thread.regions();
    let paused = &regions.paused;
    keep_added(regions, thread);
    paused.clock.store(now.wrapping_sub(thread.clock.off()), Relaxed);
    paused.switches.store(thread.clock.switches(), Relaxed);
    paused.covered.store(thread.covered(), Relaxed);
    let (run, level) = thread.kept_place();
    paused.run.store(run, Relaxed);
    paused.place.store(level, Relaxed);
    thread.keep_open(&paused.open, level);
    mark::put_aside(&thread.position, &paused.at_work);
    mark::put_aside(&thread.clock.refreshing, &paused.refreshing);
}

/// Keeps what was added to inclusive totals: the next thread has others.
fn keep_added(regions: &Regions, thread: &Thread) {
    for slot in regions.noted() {
        if let Some(total) = total(slot, thread) {
            slot.kept.store(total.wrapping_sub(slot.inclusive.load(Relaxed)), Relaxed);
        }
    }
}

/// Has the regions go on with the totals of a thread.
fn go_on_in(regions: &Regions, thread: &Thread) {
    for slot in regions.noted() {
        if let Some(total) = total(slot, thread) {
            slot.inclusive.store(total.wrapping_sub(slot.kept.load(Relaxed)), Relaxed);
        }
    }
}

/// The current inclusive total of the slot's point. `None` for a point with amounts, whose slot has
/// the control word in `kept`.
fn total(slot: &Slot, thread: &Thread) -> Option<u64> {
    // SAFETY: null, or a point, which is never freed.
    let point = unsafe { slot.point.load(Relaxed).as_ref() };
    let point = point.filter(|point| !point.has_amounts())?;
    Some(thread.entry(point).total())
}

/// Goes on with the context that has become current, from the moment `now`.
pub(super) fn resume(thread: &Thread, now: u64) {
    let current = thread.current.load(Relaxed);
    // SAFETY: null, or a context that being current keeps alive.
    let number = unsafe { current.as_ref() }.map_or(0, Shared::number);
    let regions = thread.regions();
    let paused = &regions.paused;
    thread.clock.set_off(now.wrapping_sub(paused.clock.load(Relaxed)));
    let run = next_run();
    thread.clock.set_switches(paused.switches.load(Relaxed), run);
    thread.set_covered(paused.covered.load(Relaxed));
    // The regions of a thread's own context note its first run, which therefore goes on.
    thread.begin_run(if number == 0 { paused.run.load(Relaxed) } else { run }, number);
    go_on_in(regions, thread);
    let level = paused.place.load(Relaxed);
    thread.set_level(level);
    thread.show_again(now, &paused.open, level);
    thread.rest();
    let suspended = mark::resume(&thread.position, &paused.at_work);
    thread.suspended.store(suspended, Relaxed);
    mark::resume(&thread.clock.refreshing, &paused.refreshing);
    // A begin or end that a handler's hooks have interrupted starts again.
    thread.clock.disturb();
}

/// Gives up a context that has left a chain. Null is ignored.
pub(super) fn release(context: *const Shared) {
    // SAFETY: null, or a context that is counted until the call below.
    if let Some(held) = unsafe { context.as_ref() } {
        let drop = held.drop;
        // Meets the exchange in `hold`.
        held.held_by.store(0, Release);
        // SAFETY: the pointer came into the chain from `Handle::into_raw` as a counted reference,
        // which this call consumes.
        unsafe { drop(context) };
    }
}

/// The thread ends: the contexts that are its own can go on elsewhere.
pub(super) fn leave_all(thread: &Thread) {
    undisturbed(|| {
        if !thread.current.load(Relaxed).is_null() {
            // Its clock was stopped.
            keep(thread, stamp());
        }
        let mut at = thread.set_current(ptr::null_mut());
        // SAFETY: null, or a context that its place in the chain keeps alive.
        while let Some(context) = unsafe { at.as_ref() } {
            let around = context.interrupted.swap(ptr::null_mut(), Relaxed);
            context.entered.store(false, Relaxed);
            release(at);
            at = around;
        }
    });
}

impl Thread {
    /// Has a context become current, null for the thread's own. Returns the one that was.
    pub(super) fn set_current(&self, context: *mut Shared) -> *mut Shared {
        // SAFETY: null, or a context that the caller keeps alive while it is current.
        let regions = unsafe { context.as_ref() }.map_or(&self.own, |context| &context.regions);
        self.regions.store(ptr::from_ref(regions).cast_mut(), Relaxed);
        self.current.swap(context, Relaxed)
    }
}
