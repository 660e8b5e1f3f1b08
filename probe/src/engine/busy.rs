//! Work of a thread that its signal handlers and other fibres must not do at the same time.

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use super::fold;
use super::process;
use super::thread::Thread;
use crate::mark::{self, Holder};

impl Thread {
    /// Whether the caller is a signal handler that has interrupted such work.
    pub(crate) fn is_busy(&self) -> bool {
        match mark::holder(&self.position) {
            Holder::Nobody => false,
            Holder::AtWork => true,
            Holder::Gone => self.recover(),
        }
    }

    /// Repairs the work that a jump out of a signal handler has left in the middle. Returns false.
    #[cold]
    fn recover(&self) -> bool {
        let Some(process) = process::current().filter(|_| self.is_alive()) else { return false };
        let mut mark = mark::new();
        mark::set(&mut mark, &self.position);
        self.suspended.store(0, Relaxed);
        fold::recover(process, self);
        self.done();
        self.count(|counters| &counters.mismatched);
        false
    }

    /// Does work that a signal handler or another fibre of this thread must not do at the same
    /// time. `None` if the caller has interrupted such work.
    pub(crate) fn busy<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        if self.is_busy() {
            return None;
        }
        let mut mark = mark::new();
        mark::set(&mut mark, &self.position);
        // Since `is_busy`, a handler may have put another fibre aside in the middle of such work.
        if mark::holder(&self.suspended) == Holder::AtWork {
            unmark(self);
            return None;
        }
        let result = work();
        self.done();
        Some(result)
    }
}

/// Removes a marker that was set in vain. If it was set over the marker of a suspended fibre, the
/// latter is restored.
#[cold]
#[inline(never)]
fn unmark(thread: &Thread) {
    loop {
        let suspended = thread.suspended.load(Relaxed);
        match suspended {
            0 => thread.done(),
            mark => thread.position.store(mark, Relaxed),
        }
        compiler_fence(SeqCst);
        // The word differs if a handler switched to other fibres and back.
        if thread.suspended.load(Relaxed) == suspended {
            return;
        }
    }
}

/// Removes the marker of an end that has to leave the fast path, if it was set.
#[inline]
pub(super) fn take_back(thread: &Thread, marked: bool) {
    // A forked child writes nothing.
    if marked && thread.is_alive() {
        unmark(thread);
    }
}
