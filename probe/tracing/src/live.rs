//! Spans that are alive, where something is kept of them: amounts, and what their entries measure
//! together. By their numbers, without a lock.

use std::cell::UnsafeCell;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pfp::stack::Parts;
use pfp::table::mix;

use crate::fields::{Amounts, MAX_AMOUNTS};
use crate::settings;
use crate::site::Site;

/// Spans that can be kept; a power of two.
const SPANS: usize = 1 << 14;
/// Places to look at for one: near the one before it, and then far from one another, as those that
/// live long may lie in a row. Where all are taken nothing is kept of it, which is counted.
const NEAR: usize = 4;
const FAR: usize = 16;

const FREE: u64 = 0;
/// No span's number: the largest one.
const BUSY: u64 = u64::MAX;

/// A span.
pub(crate) struct Live {
    id: AtomicU64,
    site: AtomicPtr<Site>,
    amounts: [AtomicU64; MAX_AMOUNTS],
    /// The counter when it was made.
    begun: AtomicU64,
    /// Handles that the program has, as far as this counts them.
    handles: AtomicU32,
    /// Whether a thread has the parts.
    is_lent: AtomicBool,
    /// What its entries have measured so far, where these are one measurement.
    parts: UnsafeCell<Parts>,
}

// SAFETY: who has set `is_lent` is alone with the parts.
unsafe impl Sync for Live {}

static ALL: [Live; SPANS] = [const {
    Live {
        id: AtomicU64::new(FREE),
        site: AtomicPtr::new(ptr::null_mut()),
        amounts: [const { AtomicU64::new(0) }; MAX_AMOUNTS],
        begun: AtomicU64::new(0),
        handles: AtomicU32::new(0),
        is_lent: AtomicBool::new(false),
        parts: UnsafeCell::new(Parts::new()),
    }
}; SPANS];

static IS_USED: AtomicBool = AtomicBool::new(false);

#[inline]
fn places(id: u64) -> impl Iterator<Item = &'static Live> {
    let from = |first: u64, places, apart| {
        (0..places).map(move |step| &ALL[(first as usize).wrapping_add(step * apart) % SPANS])
    };
    // The low bits of numbers follow one another, or come again; those in the middle are a thread's.
    let thread = (id >> 20) % (1 << 30);
    from(id.wrapping_add(thread.wrapping_mul(5077)), NEAR, 1).chain(from(mix(id), FAR, 1021))
}

/// Whether a span was ever kept.
#[inline]
pub(crate) fn is_used() -> bool {
    IS_USED.load(Relaxed)
}

/// Keeps a new span.
#[inline]
pub(crate) fn keep(id: u64, site: &'static Site, amounts: &Amounts) {
    if !is_used() {
        IS_USED.store(true, Relaxed);
    }
    let taken = places(id).find(|live| {
        // Acquire meets the release of `forget`.
        live.id.load(Relaxed) == FREE
            && live.id.compare_exchange(FREE, BUSY, Acquire, Relaxed).is_ok()
    });
    let Some(live) = taken else { return pfp::c::count_refusal() };
    live.site.store(ptr::from_ref(site).cast_mut(), Relaxed);
    live.handles.store(1, Relaxed);
    if settings().lifetimes {
        live.begun.store(pfp::ticks(), Relaxed);
    }
    for (to, value) in live.amounts.iter().zip(amounts.values) {
        to.store(value, Relaxed);
    }
    // Meets `find`: all is there.
    live.id.store(id, Release);
}

/// The live span of this id, with what it has measured.
#[inline]
pub(crate) fn find(id: u64) -> Option<&'static Live> {
    let is_its = |live: &&'static Live| live.id.load(Acquire) == id;
    // Nearly all are in the first place.
    places(id).next().filter(is_its).or_else(|| find_further(id))
}

#[inline(never)]
fn find_further(id: u64) -> Option<&'static Live> {
    places(id).skip(1).find(|live| live.id.load(Acquire) == id)
}

/// Lends the parts of a span.
pub(crate) fn lend(id: usize, take: &mut dyn FnMut(&mut Parts)) -> bool {
    find(id as u64).is_some_and(|live| live.lend(take))
}

impl Live {
    #[inline]
    pub(crate) fn site(&self) -> Option<&'static Site> {
        // SAFETY: null, or never freed.
        unsafe { self.site.load(Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn amounts(&self) -> [u64; MAX_AMOUNTS] {
        self.amounts.each_ref().map(|amount| amount.load(Relaxed))
    }

    /// Takes over what a span says after it was made.
    pub(crate) fn amend(&self, amounts: &Amounts) {
        for ((to, value), said) in self.amounts.iter().zip(amounts.values).zip(amounts.said) {
            if said {
                to.store(value, Relaxed);
            }
        }
    }

    /// One more handle.
    pub(crate) fn share(&self) {
        self.handles.fetch_add(1, Relaxed);
    }

    /// One handle less; whether it was the last.
    pub(crate) fn release(&self) -> bool {
        // Each meets the others: what they did with the span is done.
        self.handles.fetch_sub(1, AcqRel) == 1
    }

    /// Lends the parts to one thread at a time; false if another one has them.
    fn lend(&self, take: impl FnOnce(&mut Parts)) -> bool {
        // Acquire meets the release of who had them before.
        let is_mine = !self.is_lent.swap(true, Acquire);
        if is_mine {
            // SAFETY: nobody else has them.
            take(unsafe { &mut *self.parts.get() });
            self.is_lent.store(false, Release);
        }
        is_mine
    }

    /// The span is gone: what its entries have measured together is recorded, and its lifetime.
    #[inline]
    pub(crate) fn forget(&self) {
        if settings().per_span
            && let Some(point) = self.site().and_then(Site::point)
        {
            self.lend(|parts| parts.record(point));
        }
        if settings().lifetimes
            && let Some(site) = self.site()
        {
            site.record_lifetime(self.begun.load(Relaxed));
        }
        // Meets the next `keep`.
        self.id.store(FREE, Release);
    }
}
