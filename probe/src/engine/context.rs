//! Contexts that the program names: execution objects of its own, such as the
//! tasks of a user-level scheduler.
//!
//! While a context is put aside its clock does not run: when it resumes, on
//! whatever thread, the clock's offset is set so that it reads on from where it
//! stopped. So a switch by the kernel and a switch by the program's own scheduler
//! are one mechanism.
//!
//! An interrupt keeps what it has put aside, which may be an interrupt too:
//!
//! ```text
//! thread --current--> interrupt --interrupted--> interrupt --interrupted--> task
//! ```
//!
//! The whole chain belongs to the thread. A switch of tasks takes effect at the task's link of the
//! chain: at once, or when the interrupts end.

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    fence,
};

use pfp_shm_layout::heap::{self, NoMemory};

use super::common;
use super::copies::{self, by_leader};
use super::current;
use super::owner;
use super::prepare;
use super::process;
pub(crate) use super::regions::Shared;
use super::regions::{NOTHING_COVERED, Paused, Regions};
use super::suspend::{put_aside, release, replace_current, resume, undisturbed};
use super::thread::Thread;

/// Value of [`Shared::held_by`] while a context is made ready for another execution object.
const RENEWING: u32 = u32::MAX;

/// A counted reference to a context. `Arc` would end the program if memory runs out.
#[derive(Debug)]
pub(crate) struct Handle(NonNull<Counted>);

/// A number that no context has yet.
pub(crate) fn next_context() -> u32 {
    by_leader!(next_context());
    common::next_context()
}

/// A context and how many handles hold it.
#[repr(C)]
#[derive(Debug)]
struct Counted {
    // First, so that a pointer to it is also a pointer to the `Counted`.
    shared: Shared,
    handles: AtomicUsize,
}

/// The context that a program gets if memory runs out. It counts as held, so every use of it is
/// refused and counted. The extra handle keeps it from being freed.
static NO_CONTEXT: Counted =
    Counted { shared: Shared::of_number(u32::MAX, RENEWING), handles: AtomicUsize::new(1) };

// SAFETY: a handle is a pointer to atomics, and an atomic counts the handles.
unsafe impl Send for Handle {}
// SAFETY: a handle is a pointer to atomics, and an atomic counts the handles.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn new() -> Self {
        if let Some(leader) = copies::followed() {
            // SAFETY: the leader has called `into_raw`.
            return unsafe { Self::from_raw(leader.new_context().cast()) };
        }
        let shared = Shared::of_number(next_context(), 0);
        let made = heap::boxed(Counted { shared, handles: AtomicUsize::new(1) });
        match made {
            // SAFETY: a box is not null.
            Ok(made) => Self(unsafe { NonNull::new_unchecked(Box::into_raw(made)) }),
            Err(NoMemory) => {
                NO_CONTEXT.handles.fetch_add(1, Relaxed);
                Self(NonNull::from(&NO_CONTEXT))
            }
        }
    }

    /// The context, which this copy of pfp has made.
    fn counted(&self) -> &Counted {
        // SAFETY: the context is not freed before its last handle is dropped.
        unsafe { self.0.as_ref() }
    }

    fn shared(&self) -> &Shared {
        &self.counted().shared
    }

    pub(crate) fn as_ptr(&self) -> *const Shared {
        self.0.as_ptr().cast_const().cast()
    }

    pub(crate) fn number(&self) -> u32 {
        by_leader!(number_of_context(self));
        self.shared().number()
    }

    /// Whether it has a context of its own, and is not [`NO_CONTEXT`].
    pub(crate) fn is_real(&self) -> bool {
        by_leader!(is_real(self));
        !ptr::eq(self.counted(), &raw const NO_CONTEXT)
    }

    /// Whether it is current on the calling thread.
    pub(crate) fn is_current(&self) -> bool {
        by_leader!(is_current(self));
        alive().is_some_and(|thread| thread.current.load(Relaxed) == self.as_ptr().cast_mut())
    }

    /// Makes it the context of another execution object: nothing is open in it.
    /// False if it is current somewhere, or interrupted there.
    pub(crate) fn renew(&self) -> bool {
        by_leader!(renew(self));
        self.shared().renew()
    }

    /// The handle as a pointer, which [`Self::from_raw`] makes a handle again.
    pub(crate) fn into_raw(self) -> *const Shared {
        ManuallyDrop::new(self).as_ptr()
    }

    /// # Safety
    ///
    /// The pointer is from [`Self::into_raw`], and is used once.
    pub(crate) unsafe fn from_raw(shared: *const Shared) -> Self {
        // SAFETY: `into_raw` never returns null.
        Self(unsafe { NonNull::new_unchecked(shared.cast_mut().cast()) })
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        if let Some(leader) = copies::followed() {
            leader.keep_context(self);
            return Self(self.0);
        }
        self.counted().handles.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        by_leader!(drop_context(self));
        // Pairs with the fence: what other handles have done was before.
        if self.counted().handles.fetch_sub(1, Release) == 1 {
            fence(Acquire);
            // SAFETY: from a box, and this was the last handle.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

impl Shared {
    const fn of_number(number: u32, held_by: u32) -> Self {
        Self {
            number: AtomicU32::new(number),
            regions: Regions::new(),
            held_by: AtomicU32::new(held_by),
            entered: AtomicBool::new(false),
            interrupted: AtomicPtr::new(ptr::null_mut()),
            process: AtomicPtr::new(ptr::null_mut()),
            drop: drop_shared,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number.load(Relaxed)
    }

    fn renew(&self) -> bool {
        if !self.hold(RENEWING) {
            return false;
        }
        self.number.store(next_context(), Relaxed);
        self.forget();
        // Meets the exchange in `hold`.
        self.held_by.store(0, Release);
        true
    }

    /// Makes it the calling thread's; false if it is some thread's already.
    fn take(&self, thread: &Thread) -> bool {
        if !self.hold(thread.tid.load(Relaxed) as u32) {
            return false;
        }
        // What was open in the parent is the parent's.
        let here = process::current().map_or(ptr::null(), ptr::from_ref).cast_mut().cast();
        let before = self.process.swap(here, Relaxed);
        if !before.is_null() && before != here {
            self.forget();
        }
        true
    }

    fn hold(&self, by: u32) -> bool {
        // Meets `Release` in `release` and `renew`: what another thread left in it.
        let Err(holder) = self.held_by.compare_exchange(0, by, AcqRel, Acquire) else {
            return true;
        };
        // A thread of the parent's that this process was forked from holds nothing
        // here.
        holder != RENEWING
            && !owner::exists(holder)
            && self.held_by.compare_exchange(holder, by, AcqRel, Acquire).is_ok()
            && {
                self.forget();
                true
            }
    }

    /// Nothing is open in it any more.
    fn forget(&self) {
        self.regions.clear();
        let Paused { is_paused, clock, switches, place, at_work, refreshing, .. } =
            &self.regions.paused;
        is_paused.store(true, Relaxed);
        for word in [clock, switches, place, at_work, refreshing] {
            word.store(0, Relaxed);
        }
        self.regions.paused.covered.store(NOTHING_COVERED, Relaxed);
        self.entered.store(false, Relaxed);
        // What it had interrupted, if anything, is as lost as its thread.
        self.interrupted.store(ptr::null_mut(), Relaxed);
    }
}

/// The calling thread's state, if it has any in this process.
fn alive() -> Option<&'static Thread> {
    current::thread().filter(|thread| thread.is_alive())
}

/// Where in the thread's chain a context stands, null for the thread's own. If it
/// does not, where the task does that no interrupt has put aside.
fn link(thread: &'static Thread, context: *const Shared) -> &'static AtomicPtr<Shared> {
    let mut link = &thread.current;
    loop {
        let at = link.load(Relaxed);
        // SAFETY: null, or a context that its place in the chain keeps alive.
        match unsafe { at.as_ref() } {
            Some(interrupt) if !ptr::eq(at, context) && interrupt.entered.load(Relaxed) => {
                link = &interrupt.interrupted;
            }
            _ => return link,
        }
    }
}

fn pointer(context: Option<&Handle>) -> *const Shared {
    context.map_or(ptr::null(), Handle::as_ptr)
}

/// What a switch came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switched {
    Done,
    /// Done, although another context than the one named ran.
    InPlaceOfAnother,
    /// The next context already belongs to a thread, and the mismatch was counted; or memory ran
    /// out.
    Refused,
}

/// [`switch`] from one context of the program's to another; false if it was refused.
pub(crate) fn switch_to(prev: &Handle, next: &Handle) -> bool {
    switch(Some(prev), Some(next)) != Switched::Refused
}

/// Replaces `prev`, or the context that runs in its place, by `next`. `None` is the thread's own
/// context.
pub(crate) fn switch(prev: Option<&Handle>, next: Option<&Handle>) -> Switched {
    if let Some(leader) = copies::followed() {
        return match leader.switch(pointer(prev).cast(), pointer(next).cast()) {
            0 => Switched::Done,
            1 => Switched::InPlaceOfAnother,
            _ => Switched::Refused,
        };
    }
    let Some(thread) = prepare::thread() else { return Switched::Refused };
    undisturbed(|| {
        let link = link(thread, pointer(prev));
        let from = link.load(Relaxed);
        let fits = ptr::eq(from, pointer(prev));
        let done = if fits { Switched::Done } else { Switched::InPlaceOfAnother };
        if ptr::eq(from, pointer(next)) {
            return done;
        }
        if next.is_some_and(|next| !next.shared().take(thread)) {
            thread.count(|counters| &counters.mismatched);
            return Switched::Refused;
        }
        let next = next.map_or(ptr::null(), |next| Handle::into_raw(next.clone())).cast_mut();
        if ptr::eq(link, &raw const thread.current) {
            let now = put_aside(thread);
            replace_current(thread, next);
            resume(thread, now);
        } else {
            // An interrupt runs, and has put it aside already.
            link.store(next, Relaxed);
        }
        release(from);
        done
    })
}

unsafe extern "C" fn drop_shared(context: *const Shared) {
    // SAFETY: `context` is from `Handle::into_raw` of this copy of pfp, and `release` calls this
    // once for it.
    drop(unsafe { Handle::from_raw(context) });
}

/// Puts the current context aside for an interrupt's; [`leave`] resumes it. False
/// if the interrupt is some thread's already.
pub(crate) fn enter(to: &Handle) -> bool {
    by_leader!(enter(to));
    let Some(thread) = prepare::thread() else { return false };
    undisturbed(|| {
        // An interrupt that was entered and then put aside by a switch still keeps the context that
        // it has interrupted.
        let shared = to.shared();
        if shared.entered.load(Relaxed) || !shared.take(thread) {
            thread.count(|counters| &counters.mismatched);
            return false;
        }
        let now = put_aside(thread);
        let entered = Handle::into_raw(to.clone()).cast_mut();
        shared.interrupted.store(replace_current(thread, entered), Relaxed);
        shared.entered.store(true, Relaxed);
        resume(thread, now);
        true
    })
}

/// Resumes what [`enter`] put aside, or what a switch has put in its place; false
/// if the context is not current here, or was not entered.
pub(crate) fn leave(from: &Handle) -> bool {
    by_leader!(leave(from));
    let left = alive().is_some_and(|thread| {
        undisturbed(|| {
            if !from.is_current() || !from.shared().entered.swap(false, Relaxed) {
                return false;
            }
            let now = put_aside(thread);
            let interrupted = from.shared().interrupted.swap(ptr::null_mut(), Relaxed);
            // SAFETY: null, or a context that its place in the chain keeps alive.
            if let Some(interrupted) = unsafe { interrupted.as_ref() } {
                // Another thread may have entered `from`, if it was switched since.
                interrupted.held_by.store(thread.tid.load(Relaxed) as u32, Relaxed);
            }
            release(replace_current(thread, interrupted));
            resume(thread, now);
            true
        })
    });
    if !left {
        count_mismatch();
    }
    left
}

/// Counts a hook that does not fit what is current on the calling thread.
pub(crate) fn count_mismatch() {
    by_leader!(count_mismatch());
    if let Some(thread) = prepare::thread() {
        thread.count(|counters| &counters.mismatched);
    }
}

/// Counts a region that could not begin.
#[cold]
pub(crate) fn count_refusal() {
    by_leader!(count_refusal());
    // It may be the first thing that the thread does.
    match alive().or_else(prepare::thread) {
        Some(thread) => thread.count(|counters| &counters.refused),
        None => process::miss(),
    }
}
