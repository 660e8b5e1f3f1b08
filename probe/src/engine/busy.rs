//! Work of a thread that its signal handlers and other fibres must not do at the same time.

use std::sync::atomic::{
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use super::boxes;
use super::fold;
use super::process;
use super::thread::Thread;
use crate::marker::{self, Holder};

impl Thread {
    /// Whether the caller is a signal handler that has interrupted an end, a fold, or other
    /// [busy](Self::busy) work.
    pub(crate) fn is_busy(&self) -> bool {
        match marker::holder(&self.position) {
            Holder::None => false,
            Holder::Live => true,
            Holder::Gone => self.recover(),
        }
    }

    /// Repairs the work that a signal handler has interrupted and left by a jump. Returns false:
    /// the thread is not busy any more.
    #[cold]
    fn recover(&self) -> bool {
        let Some(process) = process::current().filter(|_| self.is_alive()) else { return false };
        let mut marker = marker::new();
        marker::set(&mut marker, &self.position);
        self.suspended.store(0, Relaxed);
        fold::recover(process, self);
        boxes::give_up(process, self);
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
        let mut marker = marker::new();
        marker::set(&mut marker, &self.position);
        // Since the call of `is_busy`, a handler may have suspended another fibre in the middle of
        // such work.
        if marker::holder(&self.suspended) == Holder::Live {
            remove_marker(self);
            return None;
        }
        let result = work();
        self.done();
        Some(result)
    }
}

/// Removes a marker whose work is not done. If the removed marker had replaced a suspended fibre's
/// marker, restores the fibre's marker.
#[cold]
#[inline(never)]
fn remove_marker(thread: &Thread) {
    loop {
        let suspended = thread.suspended.load(Relaxed);
        match suspended {
            0 => thread.done(),
            marker => thread.position.store(marker, Relaxed),
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
pub(super) fn unmark(thread: &Thread, marked: bool) {
    // A forked child writes nothing.
    if marked && thread.is_alive() {
        remove_marker(thread);
    }
}
