//! Regions of spans on the threads that are in them.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::stack;

use crate::site::Site;

/// Spans that were left on another thread than the one that is in them, the last ones.
static STRAYED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// How many there were, and how many of them are in the list.
static STRAYS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Whether a span was ever left on another thread, or before those inside.
static IS_AMISS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// How many of those this thread has looked at.
    static SEEN: Cell<usize> = const { Cell::new(0) };
}

/// The calling thread enters a span.
#[inline]
pub(crate) fn enter(id: u64, site: &'static Site) {
    if IS_AMISS.load(Relaxed) {
        look_for_strays(id);
    }
    stack::push_one(id as usize, |open| site.begin(open, id));
}

/// The calling thread leaves a span. One that it is not in was entered by another thread, or given
/// up, as happens where a guard is held across an `await`: it is not recorded.
#[inline]
pub(crate) fn exit(id: u64) {
    match stack::pop(id as usize) {
        None => stray(id),
        Some(ended) if !ended.was_innermost => out_of_order(),
        Some(_) => {}
    }
}

/// Guards end in another order than they began, or one is held across an `await`, and what is
/// around it ends with the poll.
#[cold]
fn out_of_order() {
    pfp::c::count_mismatch();
    IS_AMISS.store(true, Relaxed);
}

#[cold]
fn stray(id: u64) {
    pfp::c::count_mismatch();
    let place = STRAYS[0].fetch_add(1, Relaxed);
    STRAYED[place % STRAYED.len()].store(id, Relaxed);
    // Meets the load below: the number is there.
    STRAYS[1].fetch_add(1, Release);
    IS_AMISS.store(true, Relaxed);
}

#[cold]
fn look_for_strays(entered: u64) {
    // A task is polled again while what it entered in the poll before is open.
    stack::forget_inside(entered as usize);
    let all = STRAYS[1].load(Acquire);
    // None when the thread ends.
    let is_news = SEEN.try_with(|seen| seen.replace(all) != all).unwrap_or(false);
    if is_news {
        stack::forget(|owner| STRAYED.iter().any(|id| id.load(Relaxed) == owner as u64));
    }
}
