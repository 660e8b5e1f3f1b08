//! Opening the gate to a process that was made.
//!
//! Several threads may each make one. Which of them is the process is decided as one is announced;
//! from then on any thread can open its gate.

use std::sync::atomic::Ordering::{Relaxed, Release};
use std::{io, ptr};

use super::memory::{map_private, uninterrupted};
use super::{NEWEST, PAGE, Process, newest};
use crate::engine::gate::{self, Page};

/// A [`gate`] that is not open yet. Its page is never unmapped.
pub(super) struct Gate {
    page: &'static Page,
    /// The process that a parent has announced, or null.
    newest_before: *mut Process,
}

impl Gate {
    /// Maps a page for the gate.
    ///
    /// # Errors
    ///
    /// What the system answered.
    pub(super) fn map() -> io::Result<Self> {
        let page: *mut Page = uninterrupted(|| map_private(PAGE))?.cast();
        // SAFETY: a new page of zeros, which is aligned, a valid value of atomics, and never unmapped.
        let page = unsafe { &*page };
        page.is_ours.store(1, Relaxed);
        // SAFETY: no preconditions.
        page.pid.store(unsafe { libc::getpid() }, Relaxed);
        // A process that this one has announced must stay the newest: `announce` expects null and
        // fails.
        let parents = newest().filter(|newest| !is_ours(newest.gate));
        let newest_before = parents.map_or(ptr::null(), ptr::from_ref).cast_mut();
        // Read after the newest, so that `announce` fails if another process was published in
        // between.
        page.before.store(gate::in_force(), Relaxed);
        Ok(Self { page, newest_before })
    }

    pub(super) fn page(&self) -> &'static Page {
        self.page
    }

    /// False in a child that was forked since, and has come back into the middle of this.
    pub(super) fn is_ours(&self) -> bool {
        is_ours(self.page)
    }

    /// Announces a process. A child that is forked from here on has private memory in place of the
    /// segment; a child that was forked before writes nothing. False if another thread has
    /// announced a process first.
    pub(super) fn announce(&self, process: &'static Process) -> bool {
        let new = ptr::from_ref(process).cast_mut();
        // Meets the load in `newest`.
        NEWEST.compare_exchange(self.newest_before, new, Release, Relaxed).is_ok()
    }
}

/// Whether this process made a page: not in a forked child, where it reads zero.
fn is_ours(page: &Page) -> bool {
    page.is_ours.load(Relaxed) != 0
}

/// Publishes a process that this process has announced. Several threads may do so, since the thread
/// that announced it may not get the CPU.
pub(super) fn open(process: &'static Process) {
    let page = process.gate;
    page.process.store(ptr::from_ref(process).cast_mut().cast(), Release);
    if !is_ours(page) {
        // This is a child that was forked just now.
        page.process.store(ptr::null_mut(), Relaxed);
        return;
    }
    gate::open(page);
}

/// Opens the gate of the process that another thread of this one has announced, if one has.
pub(super) fn open_announced() {
    if let Some(process) = newest().filter(|process| is_ours(process.gate)) {
        open(process);
    }
}
