//! Execution contexts that the program defines, such as the tasks of a user-level scheduler.
//!
//! While a context is suspended, its clock does not run. When any thread resumes it, the clock's
//! offset is set so that the clock continues from where it stopped. So a switch by the kernel and a
//! switch by the program's own scheduler use one mechanism.
//!
//! An interrupt's context keeps a pointer to the context that it has interrupted. The interrupted
//! context can belong to an interrupt, too:
//!
//! ```text
//! thread --current--> interrupt --interrupted--> interrupt --interrupted--> task
//! ```
//!
//! The whole chain belongs to the thread. A switch of tasks replaces the task at the end of the
//! chain: immediately without interrupts, else when the interrupts end.

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

/// Value of [`Shared::held_by`] while a context is reset for another unit of execution.
const RENEWING: u32 = u32::MAX;

/// A counted reference to a context. `Arc` would end the program if memory runs out.
#[derive(Debug)]
pub(crate) struct Handle(NonNull<Counted>);

/// The number of a new context.
pub(crate) fn next_context() -> u32 {
    by_leader!(next_context());
    common::next_context()
}

/// A context and the number of its handles.
#[repr(C)]
#[derive(Debug)]
struct Counted {
    // The first field, so that a pointer to it is also a pointer to the `Counted`.
    shared: Shared,
    handles: AtomicUsize,
}

/// The context of a handle that could not be allocated. It counts as held, so every use of it is
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

    /// Whether the handle has a context of its own, and not [`NO_CONTEXT`].
    pub(crate) fn is_real(&self) -> bool {
        by_leader!(is_real(self));
        !ptr::eq(self.counted(), &raw const NO_CONTEXT)
    }

    /// Whether the context is current on the calling thread.
    pub(crate) fn is_current(&self) -> bool {
        by_leader!(is_current(self));
        alive().is_some_and(|thread| thread.current.load(Relaxed) == self.as_ptr().cast_mut())
    }

    /// Resets the context for another unit of execution, with no open regions. False if the context
    /// is current or interrupted on a thread.
    pub(crate) fn renew(&self) -> bool {
        by_leader!(renew(self));
        self.shared().renew()
    }

    /// Converts the handle to a pointer; [`Self::from_raw`] converts it back.
    pub(crate) fn into_raw(self) -> *const Shared {
        ManuallyDrop::new(self).as_ptr()
    }

    /// # Safety
    ///
    /// The pointer is from [`Self::into_raw`], and no other call gets it.
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
        // Pairs with the fence below, so that the freeing thread sees all changes through other
        // handles.
        if self.counted().handles.fetch_sub(1, Release) == 1 {
            fence(Acquire);
            // SAFETY: the pointer is from a box, and this was the last handle.
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
        // Pairs with the exchange in `hold`.
        self.held_by.store(0, Release);
        true
    }

    /// Makes the context the calling thread's. False if it belongs to a thread already.
    fn take(&self, thread: &Thread) -> bool {
        if !self.hold(thread.tid.load(Relaxed) as u32) {
            return false;
        }
        // If the context last ran in the parent, its open regions belong to the parent.
        let here = process::current().map_or(ptr::null(), ptr::from_ref).cast_mut().cast();
        let before = self.process.swap(here, Relaxed);
        if !before.is_null() && before != here {
            self.forget();
        }
        true
    }

    fn hold(&self, by: u32) -> bool {
        // Pairs with `Release` in `release` and `renew`, so that the state that another thread left
        // is visible.
        let Err(holder) = self.held_by.compare_exchange(0, by, AcqRel, Acquire) else {
            return true;
        };
        // After a fork, the holder may be a thread of the parent, which does not exist in this
        // process.
        holder != RENEWING
            && !owner::exists(holder)
            && self.held_by.compare_exchange(holder, by, AcqRel, Acquire).is_ok()
            && {
                self.forget();
                true
            }
    }

    /// Drops all open regions.
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
        // If this context had interrupted another one, the other one is lost with its thread.
        self.interrupted.store(ptr::null_mut(), Relaxed);
    }
}

/// The calling thread's state, if it has one in this process.
fn alive() -> Option<&'static Thread> {
    current::thread().filter(|thread| thread.is_alive())
}

/// The link of the thread's chain that leads to `context`, where null means the thread's own
/// context. If the chain does not contain `context`, returns its last link, which leads to the
/// task.
fn link(thread: &'static Thread, context: *const Shared) -> &'static AtomicPtr<Shared> {
    let mut link = &thread.current;
    loop {
        let at = link.load(Relaxed);
        // SAFETY: the pointer is null, or leads to a context that its place in the chain keeps
        // alive.
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

/// The result of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Switched {
    Done,
    /// The switch was made, but another context than `prev` ran.
    InPlaceOfAnother,
    /// The switch was not made: the next context already belongs to a thread, which was counted as
    /// a mismatch, or memory ran out.
    Refused,
}

/// Switches from one context of the program to another, see [`switch`]. False if the switch was
/// refused.
pub(crate) fn switch_to(prev: &Handle, next: &Handle) -> bool {
    switch(Some(prev), Some(next)) != Switched::Refused
}

/// Replaces `prev` by `next`. If another context than `prev` runs, replaces that one. `None` is the
/// thread's own context.
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
            // An interrupt is running, and has already suspended the task.
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

/// Suspends the current context, and makes an interrupt's context current; [`leave`] resumes the
/// suspended one. False if the interrupt's context already belongs to a thread.
pub(crate) fn enter(to: &Handle) -> bool {
    by_leader!(enter(to));
    let Some(thread) = prepare::thread() else { return false };
    undisturbed(|| {
        // If a switch has suspended an interrupt's context, that context still holds a pointer to
        // the context that it has interrupted, so it cannot be entered again.
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

/// Resumes the context that [`enter`] suspended, or the context that a switch has put in its place.
/// False if `from` is not current here, or was not entered.
pub(crate) fn leave(from: &Handle) -> bool {
    by_leader!(leave(from));
    let left = alive().is_some_and(|thread| {
        undisturbed(|| {
            if !from.is_current() || !from.shared().entered.swap(false, Relaxed) {
                return false;
            }
            let now = put_aside(thread);
            let interrupted = from.shared().interrupted.swap(ptr::null_mut(), Relaxed);
            // SAFETY: the pointer is null, or leads to a context that its place in the chain keeps
            // alive.
            if let Some(interrupted) = unsafe { interrupted.as_ref() } {
                // `from` may have been entered on another thread, and moved here by a switch.
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

/// Counts a hook that names another context or region than the current one of the calling thread.
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
    // The refused region may be the first action of the thread.
    match alive().or_else(prepare::thread) {
        Some(thread) => thread.count(|counters| &counters.refused),
        None => process::miss(),
    }
}
