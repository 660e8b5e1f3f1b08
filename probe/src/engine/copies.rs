//! Several copies of pfp in one process, as they see each other.
//!
//! A Rust program and the plugins it loads, or a C library, may each bring a copy. Each
//! keeps its code, its points, and what measuring costs in it. One copy *leads*: it makes
//! the process and claims the lanes. The others *follow*: they use its process, and each
//! thread's state as it is, so that a thread has one lane and one stack of open regions,
//! whichever copy a region is of. A follower's regions take the same short way as the
//! leader's, since that only touches the thread's state.
//!
//! ```text
//!            leader                          follower
//!  Copy      process, thread  <-- asks --    (one pointer to the leader)
//!            list of followers -- tells -->  follow, pause, calibrate
//!  private   points, overhead                points, overhead
//!  shared    Process, Thread, contexts, Common
//! ```
//!
//! How they find each other is in [`super::leader`].

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::common::Common;
use super::gate::Page;
use super::thread::Thread;
use crate::clock;

/// One copy, as the others see it.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Copy {
    /// Whether it leads.
    pub(super) leads: AtomicBool,
    /// In the first copy in the loader's list: who was made the leader.
    pub(super) elected: AtomicPtr<Copy>,
    /// In the leader the first of its followers, in each of them the next.
    pub(super) next: AtomicPtr<Copy>,
    /// In the leader, how many have wanted to follow; in a follower its number, from 1.
    pub(super) number: AtomicU32,
    /// Of the leader: what all have in common.
    pub(super) clock: &'static clock::State,
    pub(super) common: &'static Common,
    /// Of the leader: makes the process if need be, and returns its gate, or null.
    pub(super) process: extern "C" fn() -> *mut Page,
    /// Of the leader: why it can never make it; 0 while it may.
    pub(super) failure: extern "C" fn() -> u64,
    /// Of the leader: the calling thread's state, or null. It clears the slot of the
    /// follower of that number when the thread ends.
    pub(super) thread: unsafe extern "C" fn(u32, *mut *const Thread) -> *const Thread,
    /// Makes the leader's process its own, and enters its points there.
    pub(super) follow: extern "C" fn(*mut Page) -> bool,
    /// Pauses its points or resumes them.
    pub(super) pause: extern "C" fn(bool),
    /// Names the program, by so many bytes of UTF-8.
    pub(super) name: unsafe extern "C" fn(*const u8, usize),
    /// Measures what measuring costs in it.
    pub(super) calibrate: extern "C" fn(),
}

/// This copy; null until it looks for others.
static OWN: AtomicPtr<Copy> = AtomicPtr::new(ptr::null_mut());
/// The copy that leads; null before that is known.
static LEADER: AtomicPtr<Copy> = AtomicPtr::new(ptr::null_mut());

fn own() -> *const Copy {
    OWN.load(Acquire)
}

fn leader() -> *const Copy {
    LEADER.load(Acquire)
}

/// From now on this copy knows of itself, and of the one that leads.
pub(super) fn settle(own: &'static Copy, leader: &'static Copy) {
    // Meets the load in `own`. First, so that whoever sees a leader knows whether it is this copy.
    OWN.store(ptr::from_ref(own).cast_mut(), Release);
    // Meets the load in `leader`.
    LEADER.store(ptr::from_ref(leader).cast_mut(), Release);
}

/// The copy that this one follows; none if it leads, or does neither yet.
fn followed() -> Option<&'static Copy> {
    let leader = leader();
    // SAFETY: null, or a copy whose object is not unloaded any more.
    unsafe { leader.as_ref() }.filter(|_| !ptr::eq(leader, own()))
}

/// Whether this copy follows another one.
pub(super) fn follows() -> bool {
    followed().is_some()
}

/// Whether this copy leads.
pub(super) fn leads() -> bool {
    let own = own();
    !own.is_null() && ptr::eq(leader(), own)
}

/// The page of the leader's process, which is made if need be: null if it cannot be. None if this
/// copy follows no other one.
pub(super) fn page_of_leader() -> Option<*mut Page> {
    followed().map(|leader| (leader.process)())
}

/// Why the leader will never make a process; 0 while it may: another thread is just making
/// it.
pub(super) fn failure() -> u64 {
    followed().map_or(0, |leader| (leader.failure)())
}

/// The calling thread's state, which the leader has; none if this copy leads.
pub(super) fn thread(slot: *mut *const Thread) -> Option<Option<&'static Thread>> {
    let leader = followed()?;
    // SAFETY: as `own` has it.
    let number = unsafe { own().as_ref() }?.number.load(Relaxed);
    // SAFETY: the slot is thread-local, so it is there until the thread ends, and the
    // result is null or the pages of a lane, as `current::thread` has it.
    Some(unsafe { (leader.thread)(number, slot).as_ref() })
}

/// Tells all followers of a new process.
pub(super) fn lead(page: *mut Page) {
    for copy in everyone().filter(|copy| !ptr::eq(*copy, own())) {
        (copy.follow)(page);
    }
}

/// Pauses the points of all copies, or resumes them; false before this copy knows of any.
pub(super) fn pause(pause: bool) -> bool {
    everyone().map(|copy| (copy.pause)(pause)).count() > 0
}

/// Measures in this copy what measuring costs.
pub(super) fn calibrate_own() {
    // SAFETY: null, or a static.
    if let Some(own) = unsafe { own().as_ref() } {
        (own.calibrate)();
    }
}

/// Measures in all copies what measuring costs.
pub(super) fn calibrate() {
    everyone().for_each(|copy| (copy.calibrate)());
}

/// Has the leader name the program; false if that is this copy.
pub(super) fn name(name: &str) -> bool {
    // SAFETY: so many bytes of UTF-8, which are there during the call.
    followed().map(|leader| unsafe { (leader.name)(name.as_ptr(), name.len()) }).is_some()
}

/// The leader and those that follow it; nobody before this copy knows of them.
fn everyone() -> impl Iterator<Item = &'static Copy> {
    // SAFETY: null, or a copy whose object is not unloaded any more.
    let next = |copy: &&'static Copy| unsafe { copy.next.load(Acquire).as_ref() };
    // SAFETY: as in `followed`.
    std::iter::successors(unsafe { leader().as_ref() }, next)
}
