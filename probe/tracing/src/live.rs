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

use crate::fields::{Amounts, MOST};
use crate::settings;
use crate::site::Site;

/// Spans that can be kept; a power of two.
const SPANS: usize = 1 << 14;
/// Places to look at for one. Where all are taken nothing is kept of it, which is counted.
const REACH: usize = 16;

const FREE: u64 = 0;
/// No span's number: the largest one.
const BUSY: u64 = u64::MAX;

/// A span.
pub(crate) struct Live {
    id: AtomicU64,
    site: AtomicPtr<Site>,
    amounts: [AtomicU64; MOST],
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
        amounts: [const { AtomicU64::new(0) }; MOST],
        begun: AtomicU64::new(0),
        handles: AtomicU32::new(0),
        is_lent: AtomicBool::new(false),
        parts: UnsafeCell::new(Parts::new()),
    }
}; SPANS];

#[inline]
fn places(id: u64) -> impl Iterator<Item = &'static Live> {
    (0..REACH).map(move |step| &ALL[(mix(id) as usize).wrapping_add(step) % SPANS])
}

/// Keeps a new span.
#[inline]
pub(crate) fn keep(id: u64, site: &'static Site, amounts: Option<&Amounts>) {
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
    if let Some(amounts) = amounts {
        for (to, value) in live.amounts.iter().zip(amounts.values) {
            to.store(value, Relaxed);
        }
    }
    // Meets `find`: all is there.
    live.id.store(id, Release);
}

/// The live span of this id, with what it has measured.
#[inline]
pub(crate) fn find(id: u64) -> Option<&'static Live> {
    places(id).find(|live| live.id.load(Acquire) == id)
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
    pub(crate) fn amounts(&self) -> [u64; MOST] {
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
