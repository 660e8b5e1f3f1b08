//! Turns: work that one thread at a time does, in a [cold section](super::cold::section).
//!
//! A word holds the thread that does it, and the time since when:
//!
//! ```text
//! 31          22 21                            0
//! +-------------+------------------------------+
//! | since       | kernel id                    |   0: no thread, [`DONE`]: done for good
//! +-------------+------------------------------+
//! ```
//!
//! A turn never waits for a thread that has ended or has jumped out of it. In a forked child the
//! parent's other threads count as ended. Taking over from a thread that is merely slow must be
//! harmless, so all work in a turn is published by one exchange. Work that cannot be published so
//! is done [alone](Turn::take_alone), and is left to a slow thread.

use std::ptr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::owner::{exists, tid};
use super::{local, patience, section};
use crate::clock::calibrate::monotonic_ns;

const FREE: u32 = 0;
const DONE: u32 = u32::MAX;

/// The kernel has no greater ids.
const ID_BITS: u32 = 22;
const IDS: u32 = (1 << ID_BITS) - 1;
/// Number of different moments, so that no word equals [`DONE`].
const MOMENTS: u64 = (1 << (u32::BITS - ID_BITS)) - 1;
/// A moment lasts an eighth of a second.
const MOMENT_BITS: u32 = 27;
/// A turn that has lasted this many moments, a second, counts as abandoned.
const LONG: u64 = 8;

/// Interval in which the threads that do not wait check whether the holder still exists.
const ASK_NS: u64 = 10_000_000;
static ASKED_NS: AtomicU64 = AtomicU64::new(0);

/// Work that one thread does.
#[derive(Debug)]
pub(crate) struct Turn(AtomicU32);

/// Why a thread does not get a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The work is done.
    Done,
    /// Another thread does it.
    Others,
    /// The calling thread does it, in code that its handler interrupted.
    Own,
}

/// A turn that the calling thread holds. Dropping it releases the turn.
#[derive(Debug)]
pub(crate) struct Taken {
    turn: &'static Turn,
    word: u32,
    /// The turn that the thread held before.
    around: *const Turn,
}

fn moment() -> u64 {
    (monotonic_ns() >> MOMENT_BITS) % MOMENTS
}

impl Turn {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// A turn for work that never needs to be done.
    pub(crate) const fn done_already() -> Self {
        Self(AtomicU32::new(DONE))
    }

    /// Whether the work is done. Then its results are visible.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        // Pairs with the store in `done`.
        self.0.load(Acquire) == DONE
    }

    /// Whether a thread seems to hold the turn. The system is not asked; from time to time this
    /// returns false, so that the caller asks it.
    pub(crate) fn is_held(&self) -> bool {
        let word = self.0.load(Relaxed);
        if word == FREE || word == DONE {
            return false;
        }
        let (now, asked) = (monotonic_ns(), ASKED_NS.load(Relaxed));
        let is_time = now.saturating_sub(asked) > ASK_NS
            && ASKED_NS.compare_exchange(asked, now, Relaxed, Relaxed).is_ok();
        !is_time
    }

    /// Takes the turn, in a cold section. Waits for another thread, but only as long as the calling
    /// one has patience.
    pub(crate) fn take(&'static self) -> Result<Taken, Denied> {
        self.take_by(tid())
    }

    /// [`Self::take`] for a caller that knows the kernel id of its thread.
    pub(crate) fn take_by(&'static self, me: u32) -> Result<Taken, Denied> {
        self.take_from(me, FREE, true)
    }

    /// [`Self::take`] in a forked child, which also takes a turn that was done in the parent.
    pub(crate) fn take_anew(&'static self) -> Result<Taken, Denied> {
        self.take_from(tid(), DONE, true)
    }

    /// [`Self::take`] without waiting, and never from a thread that may go on with the turn.
    pub(crate) fn take_alone(&'static self) -> Result<Taken, Denied> {
        self.take_from(tid(), FREE, false)
    }

    fn take_from(&'static self, me: u32, also: u32, waits: bool) -> Result<Taken, Denied> {
        let is_left = |word| waits && is_old(word);
        let me = me & IDS;
        let word = (moment() as u32) << ID_BITS | me;
        let mut turns = None;
        let mut asked = None;
        loop {
            let found = self.0.load(Acquire);
            let may = match found {
                FREE => true,
                DONE if also == DONE => true,
                DONE => return Err(Denied::Done),
                _ if found & IDS == me => section::is_outermost() || is_left(found),
                // Checked once: a thread that exists now counts as existing as long as this waits.
                _ if asked != Some(found) => {
                    asked = Some(found);
                    is_left(found) || !exists(found & IDS)
                }
                _ => false,
            };
            if may {
                // Pairs with the stores in `done` and `drop`: the work of the last holder is
                // visible.
                if self.0.compare_exchange(found, word, Acquire, Relaxed).is_ok() {
                    return Ok(Taken { turn: self, word, around: replace_last(self) });
                }
                continue;
            }
            if found & IDS == me {
                return Err(Denied::Own);
            }
            if !waits || turns.get_or_insert_with(patience::patience).next().is_none() {
                return Err(Denied::Others);
            }
        }
    }

    /// Marks the work as done for good, whichever thread does it.
    pub(crate) fn set_done(&self) {
        // Pairs with the loads in `is_done` and `take_from`.
        self.0.store(DONE, Release);
    }

    /// Takes the turn from its holder if `thread`, called with the holder's id, returns true.
    pub(super) fn forget(&self, thread: impl FnOnce(u32) -> bool) {
        let word = self.0.load(Relaxed);
        if word != DONE && thread(word & IDS) {
            let _ = self.0.compare_exchange(word, FREE, Relaxed, Relaxed);
        }
    }

    /// Leaves the turn as held by a thread that has ended.
    #[cfg(test)]
    pub(crate) fn left_by_nobody(&self) {
        self.0.store((moment() as u32) << ID_BITS | (IDS - 1), Relaxed);
    }
}

fn is_old(word: u32) -> bool {
    let since = u64::from(word >> ID_BITS);
    (moment() + MOMENTS - since) % MOMENTS > LONG
}

impl Taken {
    /// Marks the work as done for good, unless another thread has taken it over.
    pub(crate) fn done(self) {
        // Pairs with the loads in `is_done` and `take_from`.
        let _ = self.turn.0.compare_exchange(self.word, DONE, Release, Relaxed);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        replace_last(self.around);
        // Pairs with the exchange in `take_from`. It fails if the work is done, or another thread
        // has the turn.
        let _ = self.turn.0.compare_exchange(self.word, FREE, Release, Relaxed);
    }
}

/// Notes the turn that the thread holds, and returns the turn that it took before.
fn replace_last(turn: *const Turn) -> *const Turn {
    local::get().map_or(ptr::null(), |local| local.turn.replace(turn))
}

/// The calling thread has jumped out of a section: releases the turn that it held there.
pub(super) fn give_back_what_was_left() {
    let last = replace_last(ptr::null());
    // SAFETY: null, or from the `&'static Turn` that `take_from` received.
    if let Some(turn) = unsafe { last.as_ref() } {
        let me = tid() & IDS;
        turn.forget(|thread| thread == me);
    }
}
