//! The page with the pointer to the process, which reads as zeros in a forked child.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A page that reads zero in a forked child, even after a raw clone that runs no handler, because
/// the process that a child inherits is not its own.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ProcessPage {
    /// The [`super::process::Process`]; null before it exists.
    pub(super) process: AtomicPtr<c_void>,
    /// Whether this process made it.
    pub(super) is_ours: AtomicU64,
    /// The page that this one replaces.
    pub(super) before: AtomicPtr<Self>,
    /// Id of the process whose memory the page is in.
    pub(super) pid: AtomicI32,
}

/// The published page: this process's, a parent's, or null.
static PUBLISHED: AtomicPtr<ProcessPage> = AtomicPtr::new(ptr::null_mut());

/// The published page: this process's, a parent's, or null.
#[inline]
pub(super) fn published() -> *mut ProcessPage {
    // Pairs with the exchange in `publish`.
    PUBLISHED.load(Acquire)
}

/// The process; null if there is none, and in a forked child.
#[inline]
pub(super) fn process() -> *mut c_void {
    // SAFETY: null, or a page that is never unmapped.
    unsafe { published().as_ref() }.map_or(ptr::null_mut(), |page| page.process.load(Acquire))
}

/// Id of the process whose memory this is. `None` without a process, and in a forked child.
pub(super) fn pid() -> Option<libc::pid_t> {
    // SAFETY: null, or a page that is never unmapped.
    let page = unsafe { published().as_ref() }?;
    Some(page.pid.load(Relaxed)).filter(|pid| *pid != 0)
}

/// Publishes a page in place of the one before it. Any number of threads may do so.
pub(super) fn publish(page: &'static ProcessPage) {
    let before = page.before.load(Relaxed);
    // Pairs with the load in `published`. The exchange fails if the page is published already.
    let _ = PUBLISHED.compare_exchange(before, ptr::from_ref(page).cast_mut(), Release, Relaxed);
}
