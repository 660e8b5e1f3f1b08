//! Leases: work that one thread at a time does, in a [cold section](super::cold::section).
//!
//! A word holds the id of the thread that does the work, and the time at which the work began:
//!
//! ```text
//! 31          22 21                            0
//! +-------------+------------------------------+
//! | since       | kernel id                    |   0: no thread, [`DONE`]: done for good
//! +-------------+------------------------------+
//! ```
//!
//! No thread waits for a holder that has ended or has jumped out of its section. In a forked child
//! the parent's other threads count as ended. Taking over from a thread that is merely slow must be
//! harmless, so all work under a lease is published by one exchange. Work that cannot be published
//! in this way needs an [exclusive](Lease::acquire_exclusive) lease, which is never taken from a
//! slow thread.

use std::ptr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::owner::{exists, tid};
use super::{local, section, spin};
use crate::clock::calibrate::monotonic_ns;

const FREE: u32 = 0;
const DONE: u32 = u32::MAX;

/// Bits of a kernel id: the kernel assigns no greater ids.
const ID_BITS: u32 = 22;
const IDS: u32 = (1 << ID_BITS) - 1;
/// Number of different values of `since`: one fewer than its bits allow, so that no word equals
/// [`DONE`].
const INTERVALS: u64 = (1 << (u32::BITS - ID_BITS)) - 1;
/// An interval lasts an eighth of a second.
const INTERVAL_BITS: u32 = 27;
/// A lease expires after this many intervals, a second.
const EXPIRES_AFTER: u64 = 8;

/// Interval at which threads that do not wait check whether the holder still exists.
const CHECK_NS: u64 = 10_000_000;
static CHECKED_NS: AtomicU64 = AtomicU64::new(0);

/// A lease: the thread that does some work, and the time at which the work began.
#[derive(Debug)]
pub(crate) struct Lease(AtomicU32);

/// Why a thread could not acquire a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAcquired {
    /// The work is done.
    Done,
    /// Another thread does the work.
    HeldByOther,
    /// The calling thread does the work: the caller is a signal handler that has interrupted it.
    HeldByCaller,
}

/// A lease that the calling thread holds. Dropping this releases the lease.
#[derive(Debug)]
pub(crate) struct LeaseGuard {
    lease: &'static Lease,
    word: u32,
    /// The innermost lease that the thread already held; null without one.
    around: *const Lease,
}

fn interval() -> u64 {
    (monotonic_ns() >> INTERVAL_BITS) % INTERVALS
}

impl Lease {
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    /// A lease whose work counts as done from the start.
    pub(crate) const fn already_done() -> Self {
        Self(AtomicU32::new(DONE))
    }

    /// Whether the work is done. Then its results are visible.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        // Pairs with the stores in `set_done` and `complete`.
        self.0.load(Acquire) == DONE
    }

    /// Whether a thread seems to hold the lease. Makes no system call. From time to time the result
    /// is false for a held lease, too, so that the caller checks whether the holder exists.
    pub(crate) fn is_held(&self) -> bool {
        let word = self.0.load(Relaxed);
        if word == FREE || word == DONE {
            return false;
        }
        let (now, checked) = (monotonic_ns(), CHECKED_NS.load(Relaxed));
        let is_time = now.saturating_sub(checked) > CHECK_NS
            && CHECKED_NS.compare_exchange(checked, now, Relaxed, Relaxed).is_ok();
        !is_time
    }

    /// Acquires the lease, in a cold section. Spins while another thread holds it, but only within
    /// the [budget](spin::spin_budget) of the calling thread.
    pub(crate) fn acquire(&'static self) -> Result<LeaseGuard, NotAcquired> {
        self.acquire_as(tid())
    }

    /// [`Self::acquire`] for a caller that knows the kernel id of its thread.
    pub(crate) fn acquire_as(&'static self, me: u32) -> Result<LeaseGuard, NotAcquired> {
        self.acquire_from(me, FREE, true)
    }

    /// [`Self::acquire`] in a forked child, where work that was done in the parent is done again.
    pub(crate) fn acquire_anew(&'static self) -> Result<LeaseGuard, NotAcquired> {
        self.acquire_from(tid(), DONE, true)
    }

    /// [`Self::acquire`] without waiting. Never takes the lease from a thread that is merely slow,
    /// because that thread may still continue the work.
    pub(crate) fn acquire_exclusive(&'static self) -> Result<LeaseGuard, NotAcquired> {
        self.acquire_from(tid(), FREE, false)
    }

    fn acquire_from(
        &'static self,
        me: u32,
        also: u32,
        waits: bool,
    ) -> Result<LeaseGuard, NotAcquired> {
        let is_over = |word| waits && has_expired(word);
        let me = me & IDS;
        let word = (interval() as u32) << ID_BITS | me;
        let mut spins = None;
        let mut checked = None;
        loop {
            let found = self.0.load(Acquire);
            let may = match found {
                FREE => true,
                DONE if also == DONE => true,
                DONE => return Err(NotAcquired::Done),
                _ if found & IDS == me => section::is_outermost() || is_over(found),
                // Each holder is checked once: if it exists now, it counts as existing until this
                // call returns.
                _ if checked != Some(found) => {
                    checked = Some(found);
                    is_over(found) || !exists(found & IDS)
                }
                _ => false,
            };
            if may {
                // Pairs with the stores in `set_done`, `complete` and `drop`: the work of the last
                // holder is visible.
                if self.0.compare_exchange(found, word, Acquire, Relaxed).is_ok() {
                    return Ok(LeaseGuard { lease: self, word, around: replace_innermost(self) });
                }
                continue;
            }
            if found & IDS == me {
                return Err(NotAcquired::HeldByCaller);
            }
            if !waits || spins.get_or_insert_with(spin::spin_budget).next().is_none() {
                return Err(NotAcquired::HeldByOther);
            }
        }
    }

    /// Marks the work as done for good, even if another thread holds the lease.
    pub(crate) fn set_done(&self) {
        // Pairs with the loads in `is_done` and `acquire_from`.
        self.0.store(DONE, Release);
    }

    /// Releases the lease if `is_gone`, called with the holder's id, returns true.
    pub(super) fn release_if(&self, is_gone: impl FnOnce(u32) -> bool) {
        let word = self.0.load(Relaxed);
        if word != DONE && is_gone(word & IDS) {
            let _ = self.0.compare_exchange(word, FREE, Relaxed, Relaxed);
        }
    }

    /// Makes the lease look as if a thread had ended while it held the lease.
    #[cfg(test)]
    pub(crate) fn hold_as_dead_thread(&self) {
        self.0.store((interval() as u32) << ID_BITS | (IDS - 1), Relaxed);
    }
}

fn has_expired(word: u32) -> bool {
    let since = u64::from(word >> ID_BITS);
    (interval() + INTERVALS - since) % INTERVALS > EXPIRES_AFTER
}

impl LeaseGuard {
    /// Marks the work as done for good, unless another thread has taken it over.
    pub(crate) fn complete(self) {
        // Pairs with the loads in `is_done` and `acquire_from`.
        let _ = self.lease.0.compare_exchange(self.word, DONE, Release, Relaxed);
    }
}

impl Drop for LeaseGuard {
    fn drop(&mut self) {
        replace_innermost(self.around);
        // Pairs with the exchange in `acquire_from`. The exchange here fails if the work is done,
        // or another thread holds the lease.
        let _ = self.lease.0.compare_exchange(self.word, FREE, Release, Relaxed);
    }
}

/// Stores the innermost lease that the thread holds, and returns the one it replaces.
fn replace_innermost(lease: *const Lease) -> *const Lease {
    local::get().map_or(ptr::null(), |local| local.lease.replace(lease))
}

/// Releases the lease that the calling thread held in a section that it has jumped out of.
pub(super) fn release_after_jump() {
    let innermost = replace_innermost(ptr::null());
    // SAFETY: the pointer is null, or from the `&'static Lease` that `acquire_from` received.
    if let Some(lease) = unsafe { innermost.as_ref() } {
        let me = tid() & IDS;
        lease.release_if(|holder| holder == me);
    }
}
