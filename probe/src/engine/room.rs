//! Room on the stack for slow paths.
//!
//! A signal handler may run on a stack of a few kilobytes, with the program's own data below it.
//! The hot path uses little stack. A slow path uses more, so it first checks the room, in a
//! function with a small frame. If a region finds no room, it counts as missed.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::geometry::PAGE;

use super::region::level_of;
use super::thread::Thread;
use super::{cold, current, process};
use crate::clock::ticks;

/// Stack that the slow path of a begin or end uses, with some reserve.
const STACK: usize = 4 << 10;
/// Stack that a thread's first region uses, with some reserve.
const STACK_FOR_A_LANE: usize = 6 << 10;

/// Whether the calling thread's stack has room for the slow path of a begin. The caller must have a
/// small frame, and calls the function with the large frame afterwards.
#[inline(never)]
pub(crate) fn has_room() -> bool {
    match current::thread().filter(|thread| thread.is_alive()) {
        Some(thread) => thread.has_room(),
        None => !cold::has_less_stack(STACK_FOR_A_LANE),
    }
}

impl Thread {
    /// Whether the calling thread's stack has room for a slow path.
    ///
    /// Makes a system call, unless an earlier call has found the thread on the same page, or on the
    /// same stack for signal handlers. So a call does not notice if the program has put a stack for
    /// signal handlers on such a page since the earlier call.
    pub(crate) fn has_room(&self) -> bool {
        let here = 0u8;
        let here = (&raw const here).addr() as u64;
        let [start, end] = self.signal_stack.each_ref().map(|word| word.load(Relaxed));
        if (start..end).contains(&here) {
            return here - start >= STACK as u64;
        }
        let page = here / PAGE as u64;
        self.roomy_page(page).load(Relaxed) == page || self.look_for_room(page)
    }

    /// The word that stores a page that was found to have room. Adjacent pages have different
    /// words.
    fn roomy_page(&self, page: u64) -> &AtomicU64 {
        &self.roomy_pages[page as usize % 2]
    }

    #[cold]
    #[inline(never)]
    fn look_for_room(&self, page: u64) -> bool {
        let Some((stack, left)) = cold::signal_stack_left() else {
            self.roomy_page(page).store(page, Relaxed);
            return true;
        };
        let start = stack.ss_sp.addr() as u64;
        self.signal_stack[0].store(start, Relaxed);
        self.signal_stack[1].store(start.saturating_add(stack.ss_size as u64), Relaxed);
        left >= STACK
    }

    /// Abandons the region of a tag, and the regions inside it, because the stack has no room for
    /// its end. The region counts as missed, and its ticks count for the enclosing region.
    #[cold]
    #[inline(never)]
    pub(super) fn leave_out(&self, tag: u64) {
        self.abandon_from(level_of(tag));
        // The caller may be a signal handler that has interrupted a begin. The change of the
        // covered ticks shows the interrupted begin that its slot of the stack was used.
        self.cover(1);
        self.show_end(ticks());
        process::miss();
    }
}
