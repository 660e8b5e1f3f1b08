//! Opening the gate to a process that was made.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::{io, ptr};

use super::memory::{map_private, uninterrupted};
use super::{NEWEST, PAGE, Process};
use crate::engine::gate::{self, Page};

/// A [`gate`] that is not open yet.
pub(super) struct Gate {
    page: *mut Page,
    /// What there was before, in place of which it opens.
    before: *mut Page,
    newest_before: *mut Process,
}

impl Gate {
    pub(super) fn map() -> io::Result<Self> {
        let (before, newest_before) = (gate::in_force(), NEWEST.load(Acquire));
        let page = uninterrupted(|| map_private(PAGE))?.cast();
        let gate = Self { page, before, newest_before };
        gate.page().is_ours.store(1, Relaxed);
        // SAFETY: no preconditions.
        gate.page().pid.store(unsafe { libc::getpid() }, Relaxed);
        Ok(gate)
    }

    fn page(&self) -> &'static Page {
        // SAFETY: a page of our own, and of atomics. It is unmapped only if nobody has
        // seen it.
        unsafe { &*self.page }
    }

    /// False in a child that was forked since, and has come back into the middle of this.
    pub(super) fn is_ours(&self) -> bool {
        self.page().is_ours.load(Relaxed) != 0
    }

    /// From here on a child that is forked has private memory in place of the segment; one that
    /// was forked before writes nothing. False if another thread has made a process meanwhile.
    pub(super) fn announce(&self, process: &'static Process) -> bool {
        let new = ptr::from_ref(process).cast_mut();
        NEWEST.compare_exchange(self.newest_before, new, Release, Relaxed).is_ok()
    }

    /// Leads to the process from now on. False if another thread has made one meanwhile.
    pub(super) fn open(&self, process: &'static Process) -> bool {
        let page = self.page();
        let new = ptr::from_ref(process).cast_mut();
        page.process.store(new.cast(), Release);
        if !self.is_ours() {
            page.process.store(ptr::null_mut(), Relaxed);
        }
        let is_first = gate::open(self.page, self.before);
        if is_first {
            // Another thread may have announced one that it finds to be the second.
            NEWEST.store(new, Release);
        } else {
            let _ = NEWEST.compare_exchange(new, self.newest_before, Release, Relaxed);
        }
        is_first
    }

    pub(super) fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        // SAFETY: the page that was mapped, which nobody has seen.
        unsafe { libc::munmap(self.page.cast(), PAGE) };
    }
}
