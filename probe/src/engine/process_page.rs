//! The page with the pointer to the process, which reads as zeros in a forked child.

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{
    AtomicI32, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// The page that leads to this process's [`super::process::Process`]. It reads zero in a forked
/// child, even after a raw clone that runs no handler, so that the child does not use its parent's
/// process.
#[repr(C)]
#[derive(Debug)]
pub(super) struct ProcessPage {
    /// The process; null before it exists.
    pub(super) process: AtomicPtr<c_void>,
    /// 1 if this process made the page; 0 in a forked child.
    pub(super) is_ours: AtomicU64,
    /// The page that was published before this one, of this process or a parent; or null.
    pub(super) before: AtomicPtr<Self>,
    /// Id of the process whose memory the page is in.
    pub(super) pid: AtomicI32,
}

/// The page that was published last, by this process or by a parent; null before the first one.
static PUBLISHED: AtomicPtr<ProcessPage> = AtomicPtr::new(ptr::null_mut());

/// The page in [`PUBLISHED`].
#[inline]
pub(super) fn published() -> *mut ProcessPage {
    // Pairs with the exchange in `publish`.
    PUBLISHED.load(Acquire)
}

/// The process; null if there is none, and in a forked child.
#[inline]
pub(super) fn process() -> *mut c_void {
    // SAFETY: the pointer is null, or leads to a page that is never unmapped.
    unsafe { published().as_ref() }.map_or(ptr::null_mut(), |page| page.process.load(Acquire))
}

/// A word that is 1 in this process and 0 in its forked children. `None` without a process.
pub(super) fn is_ours() -> Option<*const AtomicU64> {
    // SAFETY: the pointer is null, or leads to a page that is never unmapped.
    let page = unsafe { published().as_ref() }?;
    Some(&raw const page.is_ours)
}

/// Id of the process whose memory this is. `None` without a process, and in a forked child.
pub(super) fn pid() -> Option<libc::pid_t> {
    // SAFETY: the pointer is null, or leads to a page that is never unmapped.
    let page = unsafe { published().as_ref() }?;
    Some(page.pid.load(Relaxed)).filter(|pid| *pid != 0)
}

/// Publishes a page in place of the one before it. Any number of threads may do so.
pub(super) fn publish(page: &'static ProcessPage) {
    let before = page.before.load(Relaxed);
    // Pairs with the load in `published`. The exchange fails if the page is published already.
    let _ = PUBLISHED.compare_exchange(before, ptr::from_ref(page).cast_mut(), Release, Relaxed);
}
