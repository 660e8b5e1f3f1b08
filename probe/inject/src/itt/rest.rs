//! Resting domains: clients do not call for a domain while all of its points are off.
//!
//! A client reads a domain's flag before it calls. After this module sets the flag to 0, the client
//! no longer calls for the domain, so the viewer must set the flag again. Therefore the flag is a
//! [`Switch`], a word that the viewer can write; the domain's other fields follow that word in
//! private memory. A domain rests only while none of its tasks and spans is open, since a client
//! that finds the flag cleared does not report their ends.

use std::ffi::{c_char, c_int};
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
    compiler_fence,
};

use pfp::c::Switch;
use pfp::own::{Own, heap};

use super::abi;
use crate::names::{self, Domain, Named};

/// Value of a domain's `extra` if its `more` points to a [`Rest`].
const OURS: c_int = 0x7066_7030;
/// Maximum number of domains that can rest. Clients always call for further domains.
const MAX_TASKS: usize = 64;
/// A thread checks whether a domain can rest after this many calls for points that are off.
const CALLS: u32 = 1 << 16;

/// State of a domain that can rest.
pub(super) struct Rest {
    switch: Switch,
    number: usize,
    domain: &'static Domain,
    /// Number of open spans.
    spans: AtomicU32,
}

/// Creates the ITT domain that clients read.
pub(super) fn make(name: *const c_char, domain: &'static Domain) -> Option<*const abi::IttDomain> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let behind = |rest: *const Rest| abi::Behind {
        name,
        wide_name: ptr::null(),
        extra: if rest.is_null() { 0 } else { OURS },
        more: rest.cast(),
        next: ptr::null(),
    };
    let number = MADE.fetch_add(1, Relaxed) as usize;
    let Some(switch) = (number < MAX_TASKS).then(Switch::new).flatten() else {
        let made = abi::IttDomain { flags: 1.into(), rest: behind(ptr::null()) };
        return heap::boxed(made).ok().map(|made| Box::into_raw(made).cast_const());
    };
    let place = switch.place().cast::<abi::IttDomain>();
    let rest = Rest { switch, number, domain, spans: AtomicU32::new(0) };
    let rest = Box::leak(heap::boxed(rest).ok()?);
    // SAFETY: `place` is aligned for a domain; its flags are the switch's word, and a page of
    // private memory follows.
    unsafe { (&raw mut (*place).rest).write(behind(rest)) };
    Some(place.cast_const())
}

/// The resting state of a domain. `None` if the domain cannot rest.
#[inline]
pub(super) fn of(its: &abi::IttDomain) -> Option<&'static Rest> {
    // SAFETY: if `extra` is `OURS`, `make` has stored a pointer to a leaked `Rest` in `more`.
    (its.rest.extra == OURS).then(|| unsafe { &*its.rest.more.cast() })
}

/// Open tasks of a thread in each domain that can rest. Never freed, because other threads read it.
struct Open {
    next: *const Self,
    is_taken: AtomicBool,
    tasks: [AtomicU32; MAX_TASKS],
    /// Number of calls that found their point off.
    calls: AtomicU32,
}

static ALL: AtomicPtr<Open> = AtomicPtr::new(ptr::null_mut());

fn all() -> impl Iterator<Item = &'static Open> {
    // SAFETY: null, or a node that is never freed. Acquire pairs with the release in `take`.
    let first = unsafe { ALL.load(Acquire).as_ref() };
    // SAFETY: `next` is null or another node of the list, and nodes are never freed.
    std::iter::successors(first, |open| unsafe { open.next.as_ref() })
}

/// Ownership of an [`Open`], which ends with the thread.
struct Mine(&'static Open);

impl Mine {
    fn take() -> Option<Box<Self>> {
        let is_free = |open: &&Open| !open.is_taken.swap(true, Acquire);
        if let Some(open) = all().find(is_free) {
            return heap::boxed(Self(open)).ok();
        }
        let made = || {
            let mut open = heap::boxed(Open {
                next: ptr::null(),
                is_taken: AtomicBool::new(true),
                tasks: [const { AtomicU32::new(0) }; MAX_TASKS],
                calls: AtomicU32::new(0),
            })
            .ok()?;
            open.next = ALL.load(Relaxed);
            let open = Box::into_raw(open);
            // SAFETY: `open` comes from a box, and no other thread can reach it before the
            // exchange.
            let next = unsafe { &mut (*open).next };
            // Release publishes the node to `all`.
            while let Err(first) = ALL.compare_exchange(next.cast_mut(), open, AcqRel, Relaxed) {
                *next = first;
            }
            // SAFETY: the node is never freed, and after the exchange no thread makes a mutable
            // reference to it.
            Some(unsafe { &*open })
        };
        heap::boxed(Self(made()?)).ok()
    }
}

impl Drop for Mine {
    fn drop(&mut self) {
        self.0.tasks.iter().for_each(|tasks| tasks.store(0, Relaxed));
        self.0.is_taken.store(false, Release);
    }
}

thread_local! {
    static OPEN: Own<Mine> = const { Own::new() };
}

/// The open tasks of the calling thread. `None` while the thread ends.
#[inline]
fn mine() -> Option<&'static Open> {
    // SAFETY: the thread-local value outlives this call, and only its own thread uses it.
    let own = OPEN.with(|own| unsafe { &*ptr::from_ref(own) });
    own.get(Mine::take).map(|mine| mine.0)
}

impl Rest {
    /// Whether the domain rests. A client that read the flag before it was cleared may still call.
    #[cold]
    pub(super) fn rests(&self) -> bool {
        self.switch.rests()
    }

    /// Counts a call that found its point off, and lets the domain rest after enough such calls.
    /// Returns whether the domain rests now. If so, the client does not report the end of this
    /// call's region.
    #[cold]
    #[inline(never)]
    pub(super) fn is_off(&self) -> bool {
        let Some(mine) = mine() else { return false };
        let calls = mine.calls.load(Relaxed).wrapping_add(1);
        mine.calls.store(calls, Relaxed);
        calls.is_multiple_of(CALLS) && self.switch.rest(|| self.is_idle())
    }

    fn is_idle(&self) -> bool {
        self.spans.load(SeqCst) == 0
            && all().all(|open| open.tasks[self.number].load(Relaxed) == 0)
            && names::are_off(self.domain)
    }

    /// Counts a task that begins on the calling thread.
    #[inline]
    pub(super) fn task_begins(&self) {
        if let Some(mine) = mine() {
            let tasks = &mine.tasks[self.number];
            tasks.store(tasks.load(Relaxed).wrapping_add(1), Relaxed);
            self.has_begun();
        }
    }

    #[inline]
    pub(super) fn task_ends(&self) {
        if let Some(mine) = mine() {
            let tasks = &mine.tasks[self.number];
            tasks.store(tasks.load(Relaxed).saturating_sub(1), Relaxed);
        }
    }

    pub(super) fn span_begins(&self) {
        self.spans.fetch_add(1, SeqCst);
        self.has_begun();
    }

    pub(super) fn span_ends(&self) {
        self.spans.fetch_sub(1, SeqCst);
    }

    /// Wakes the domain if it rests, because the client must report the end of the region that just
    /// began. `Switch::rest` issues a barrier on all threads: either it sees the new region, or
    /// this thread sees that the domain rests.
    #[inline]
    fn has_begun(&self) {
        compiler_fence(SeqCst);
        if self.switch.rests() {
            self.switch.wake();
        }
    }
}

/// Counts a call without an end, such as a marker, if its point is off.
#[inline]
pub(super) fn calls(its: &abi::IttDomain, named: &'static Named) {
    if !named.is_on()
        && let Some(rest) = of(its)
    {
        rest.is_off();
    }
}
