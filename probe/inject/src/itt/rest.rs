//! Domains that rest: nobody calls for them while all their points are off.
//!
//! A client looks at a domain's flag before it calls. So who has set it to 0 hears no more of the
//! domain, and a viewer must set it again. The flag is a [`Switch`], which the viewer reaches; what
//! else there is of a domain is private memory behind it. A domain rests only while nothing in it is
//! open, since clients do not report an end either.

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

/// In a domain's `extra`: what comes next is a [`Rest`].
const OURS: c_int = 0x7066_7030;
/// Domains that can rest. All others are called for ever.
const MAX_TASKS: usize = 64;
/// Calls of a thread that find their point off until one sees whether the domain can rest.
const CALLS: u32 = 1 << 16;

/// State of a domain that can rest.
pub(super) struct Rest {
    switch: Switch,
    number: usize,
    domain: &'static Domain,
    /// Spans of it that are open.
    spans: AtomicU32,
}

/// Makes a domain of this name, which clients look into.
pub(super) fn make(name: *const c_char, domain: &'static Domain) -> Option<*const abi::Domain> {
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
        let made = abi::Domain { flags: 1.into(), rest: behind(ptr::null()) };
        return heap::boxed(made).ok().map(|made| Box::into_raw(made).cast_const());
    };
    let place = switch.place().cast::<abi::Domain>();
    let rest = Rest { switch, number, domain, spans: AtomicU32::new(0) };
    let rest = Box::leak(heap::boxed(rest).ok()?);
    // SAFETY: the switch has the flags, and private memory behind them, aligned.
    unsafe { (&raw mut (*place).rest).write(behind(rest)) };
    Some(place.cast_const())
}

/// The state of a domain that can rest; none of others.
#[inline]
pub(super) fn of(its: &abi::Domain) -> Option<&'static Rest> {
    // SAFETY: `make` has put it there, for good.
    (its.rest.extra == OURS).then(|| unsafe { &*its.rest.more.cast() })
}

/// How many tasks a thread has open in each of these domains. Never freed: others look at it.
struct Open {
    next: *const Self,
    is_taken: AtomicBool,
    tasks: [AtomicU32; MAX_TASKS],
    /// Calls that found their point off.
    calls: AtomicU32,
}

static ALL: AtomicPtr<Open> = AtomicPtr::new(ptr::null_mut());

fn all() -> impl Iterator<Item = &'static Open> {
    // SAFETY: null, or never freed. Meets `take`.
    let first = unsafe { ALL.load(Acquire).as_ref() };
    // SAFETY: `next` is null or another node of the list, and nodes are never freed.
    std::iter::successors(first, |open| unsafe { open.next.as_ref() })
}

/// The open tasks of a thread, until it ends.
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
            // Meets `all`.
            while let Err(first) = ALL.compare_exchange(next.cast_mut(), open, AcqRel, Relaxed) {
                *next = first;
            }
            // SAFETY: never freed.
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

/// The open tasks of the calling thread; none when it ends.
#[inline]
fn mine() -> Option<&'static Open> {
    // SAFETY: of the calling thread, which uses it before it ends.
    let own = OPEN.with(|own| unsafe { &*ptr::from_ref(own) });
    own.get(Mine::take).map(|mine| mine.0)
}

impl Rest {
    /// Whether it rests: a call that comes all the same has begun before.
    #[cold]
    pub(super) fn rests(&self) -> bool {
        self.switch.rests()
    }

    /// A call finds its point off: from now on the domain may rest. Whether it does, so that the
    /// client is not going to report an end.
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

    /// A task begins on the calling thread.
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

    /// Its end is to come. Whoever puts the domain to rest has all threads see this, or this sees
    /// that it rests.
    #[inline]
    fn has_begun(&self) {
        compiler_fence(SeqCst);
        if self.switch.rests() {
            self.switch.wake();
        }
    }
}

/// A call that has no end finds its point on or off.
#[inline]
pub(super) fn calls(its: &abi::Domain, named: &'static Named) {
    if !named.is_on()
        && let Some(rest) = of(its)
    {
        rest.is_off();
    }
}
