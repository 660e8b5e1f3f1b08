//! Entries of spans as regions of the threads.

use std::cell::Cell;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use pfp::stack;

use crate::site::Site;

/// Ids of the last spans that were exited on a thread that had not entered them.
static STRAYED: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];
/// Two counters of such exits: how many have claimed an element of [`STRAYED`], and how many have
/// also stored their span's id there.
static STRAYS: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];
/// Whether any span was exited on another thread, or before a span inside it.
static IS_AMISS: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Value of `STRAYS[1]` when this thread last handled the spans in [`STRAYED`].
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

/// The calling thread exits a span. If this thread has not entered the span, either another thread
/// has entered it, or the entry was discarded. Both happen if a guard is held across an `await`.
/// Nothing is recorded then.
#[inline]
pub(crate) fn exit(id: u64) {
    match stack::pop(id as usize) {
        None => stray(id),
        Some(ended) if !ended.was_innermost => out_of_order(),
        Some(_) => {}
    }
}

/// Counts an exit of a span inside which another span is still entered. Either the program drops
/// the outer span's guard first, or it holds the inner span's guard across an `await`, and the
/// outer span is exited at the end of the poll.
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
    // Release pairs with the acquire in `look_for_strays`, which then finds the id in `STRAYED`.
    STRAYS[1].fetch_add(1, Release);
    IS_AMISS.store(true, Relaxed);
}

#[cold]
fn look_for_strays(entered: u64) {
    // If this span was exited on this thread while spans inside it were open, a new poll of its
    // task begins now. Those spans are left over from the previous poll, so they are discarded.
    stack::forget_inside(entered as usize);
    let all = STRAYS[1].load(Acquire);
    // Fails while the thread ends.
    let is_news = SEEN.try_with(|seen| seen.replace(all) != all).unwrap_or(false);
    if is_news {
        stack::forget(|owner| STRAYED.iter().any(|id| id.load(Relaxed) == owner as u64));
    }
}
