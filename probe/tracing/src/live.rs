//! Data of live spans: amounts, and the sum of the measurements of their entries. Data are found by
//! span id, without a lock.

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

/// Number of slots for spans; a power of two.
const SPANS: usize = 1 << 14;
/// Number of slots that are probed for an id: `NEAR` adjacent ones, and then `FAR` distant ones,
/// because long-lived spans may occupy adjacent slots. If all of them are taken, no data of the
/// span are stored, and the span counts as refused.
const NEAR: usize = 4;
const FAR: usize = 16;

const FREE: u64 = 0;
/// Marks a slot that is being filled. It is not an id, because ids never reach the maximum.
const BUSY: u64 = u64::MAX;

/// Data of a live span.
pub(crate) struct Live {
    id: AtomicU64,
    site: AtomicPtr<Site>,
    amounts: [AtomicU64; MAX_AMOUNTS],
    /// Counter at the creation of the span.
    begun: AtomicU64,
    /// Number of the program's handles to the span. Only the subscriber counts them: for a layer,
    /// the registry does.
    handles: AtomicU32,
    /// Whether a thread has borrowed the parts.
    is_lent: AtomicBool,
    /// Sum of the measurements of the span's entries, if these are one measurement.
    parts: UnsafeCell<Parts>,
}

// SAFETY: only the thread that has changed `is_lent` from false to true accesses `parts`.
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
    // The low bits of ids are successive or reused, so the spans of a thread get adjacent slots.
    // The middle bits identify the thread, and move each thread's spans to other slots.
    let thread = (id >> 20) % (1 << 30);
    from(id.wrapping_add(thread.wrapping_mul(5077)), NEAR, 1).chain(from(mix(id), FAR, 1021))
}

/// Whether data of any span were ever stored.
#[inline]
pub(crate) fn is_used() -> bool {
    IS_USED.load(Relaxed)
}

/// Stores data of a new span until [`Live::forget`]. Counts a refusal if all slots for its id are
/// taken.
#[inline]
pub(crate) fn keep(id: u64, site: &'static Site, amounts: &Amounts) {
    if !is_used() {
        IS_USED.store(true, Relaxed);
    }
    let taken = places(id).find(|live| {
        // Acquire pairs with the release in `forget`.
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
    // Release publishes the data to `find`.
    live.id.store(id, Release);
}

/// The data of the live span with this id.
#[inline]
pub(crate) fn find(id: u64) -> Option<&'static Live> {
    let is_its = |live: &&'static Live| live.id.load(Acquire) == id;
    // Nearly all spans are in the first slot.
    places(id).next().filter(is_its).or_else(|| find_further(id))
}

#[inline(never)]
fn find_further(id: u64) -> Option<&'static Live> {
    places(id).skip(1).find(|live| live.id.load(Acquire) == id)
}

/// Passes the parts of a span to `take`. Returns false if no data of the span are stored, or its
/// parts are lent.
pub(crate) fn lend(id: usize, take: &mut dyn FnMut(&mut Parts)) -> bool {
    find(id as u64).is_some_and(|live| live.lend(take))
}

impl Live {
    #[inline]
    pub(crate) fn site(&self) -> Option<&'static Site> {
        // SAFETY: null, or a site that is never freed.
        unsafe { self.site.load(Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn amounts(&self) -> [u64; MAX_AMOUNTS] {
        self.amounts.each_ref().map(|amount| amount.load(Relaxed))
    }

    /// Stores the values of fields that were recorded after the span's creation.
    pub(crate) fn amend(&self, amounts: &Amounts) {
        for ((to, value), has_value) in
            self.amounts.iter().zip(amounts.values).zip(amounts.has_value)
        {
            if has_value {
                to.store(value, Relaxed);
            }
        }
    }

    /// Counts another handle.
    pub(crate) fn share(&self) {
        self.handles.fetch_add(1, Relaxed);
    }

    /// Counts one handle less. Returns true for the last one.
    pub(crate) fn release(&self) -> bool {
        // AcqRel, so that the last thread sees all that the other threads did with the span.
        self.handles.fetch_sub(1, AcqRel) == 1
    }

    /// Passes the parts to `take`. Returns false if they are lent to another thread.
    fn lend(&self, take: impl FnOnce(&mut Parts)) -> bool {
        // Acquire pairs with the release store by the previous borrower.
        let is_mine = !self.is_lent.swap(true, Acquire);
        if is_mine {
            // SAFETY: this thread has set `is_lent`, so no other thread accesses the parts.
            take(unsafe { &mut *self.parts.get() });
            self.is_lent.store(false, Release);
        }
        is_mine
    }

    /// Records the span's lifetime and the sum of its entries, and frees the slot.
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
        // Release pairs with the acquire in the next `keep`.
        self.id.store(FREE, Release);
    }
}
