//! Publishing a process that was made.
//!
//! Several threads may each make a process. The announcement decides which one is the process; from
//! then on any thread can publish it.

use std::cell::Cell;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::{io, ptr};

use super::memory::{map_private, uninterrupted};
use super::{NEWEST, PAGE, Process, newest};
use crate::engine::process_page::{self, ProcessPage};

/// A [page](process_page) that is not published yet. It is unmapped unless a process that refers to
/// it was announced.
pub(super) struct NewPage {
    page: *mut ProcessPage,
    is_kept: Cell<bool>,
    /// The newest process when this page was mapped, if a parent had announced it; else null.
    newest_before: *mut Process,
}

impl NewPage {
    /// Maps a page.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub(super) fn map() -> io::Result<Self> {
        let page = uninterrupted(|| map_private(PAGE))?.cast();
        // If this process has announced a process already, that process must stay the newest.
        // `newest_before` is then null, so that `announce` fails.
        let parents = newest().filter(|newest| !is_ours(newest.page));
        let newest_before = parents.map_or(ptr::null(), ptr::from_ref).cast_mut();
        let new_page = Self { page, is_kept: Cell::new(false), newest_before };
        let page = new_page.page();
        page.is_ours.store(1, Relaxed);
        // SAFETY: no preconditions.
        page.pid.store(unsafe { libc::getpid() }, Relaxed);
        // The published page is read after the newest process, so that `announce` fails if another
        // process was published in between.
        page.before.store(process_page::published(), Relaxed);
        Ok(new_page)
    }

    /// The page. A process that refers to it must be dropped before this, unless it is announced.
    pub(super) fn page(&self) -> &'static ProcessPage {
        // SAFETY: the page is aligned, and was mapped as zeros, which are a valid value of atomics.
        // It is unmapped only if no process that refers to it was announced.
        unsafe { &*self.page }
    }

    /// False in a child that was forked after [`Self::map`], and continues in the middle of making
    /// the process.
    pub(super) fn is_ours(&self) -> bool {
        is_ours(self.page())
    }

    /// Announces a process. A child that is forked from here on has private memory in place of the
    /// segment; a child that was forked before writes nothing.
    ///
    /// # Errors
    ///
    /// Returns the process if another thread has announced one.
    pub(super) fn announce(&self, process: Box<Process>) -> Result<&'static Process, Box<Process>> {
        let new = Box::into_raw(process);
        // Set before other threads can see the page.
        self.is_kept.set(true);
        // Pairs with the load in `newest`.
        match NEWEST.compare_exchange(self.newest_before, new, Release, Relaxed) {
            // SAFETY: the pointer is from a box, which nothing frees from here on.
            Ok(_) => Ok(unsafe { &*new }),
            Err(_) => {
                self.is_kept.set(false);
                // SAFETY: the pointer is from the box above, which no other thread has seen.
                Err(unsafe { Box::from_raw(new) })
            }
        }
    }
}

impl Drop for NewPage {
    fn drop(&mut self) {
        if !self.is_kept.get() {
            // SAFETY: the page was mapped by `map`, and only this thread has seen it.
            unsafe { libc::munmap(self.page.cast(), PAGE) };
        }
    }
}

/// Whether this process made a page: false in a forked child, where the page reads zero.
fn is_ours(page: &ProcessPage) -> bool {
    page.is_ours.load(Relaxed) != 0
}

/// Publishes a process that this process has announced, and makes viewers find it, before any
/// thread measures. Any thread may do so, because the thread that announced it may have to wait for
/// a CPU.
///
/// # Errors
///
/// The system's error from lighting its beacon. The process is published nevertheless.
pub(super) fn publish(process: &'static Process) -> io::Result<()> {
    let page = process.page;
    let lit = if is_ours(page) { process.light() } else { Ok(()) };
    page.process.store(ptr::from_ref(process).cast_mut().cast(), Release);
    if !is_ours(page) {
        // This is a child that was forked just now.
        page.process.store(ptr::null_mut(), Relaxed);
        return Ok(());
    }
    process_page::publish(page);
    lit
}

/// Publishes a process that another thread of this process has announced, if there is one.
pub(super) fn publish_announced() {
    if let Some(process) = newest().filter(|process| is_ours(process.page)) {
        // The thread that has made the process notes a failure.
        let _ = publish(process);
    }
}
