//! Bounds of a thread's stack.
//!
//! The C library's function for this allocates. The kernel's list of mappings can be read even in a
//! signal handler.

use probe::c::Mapping;

use super::frames::Range;

/// Space below the mapped part of the main thread's stack that is counted as stack, because the
/// stack grows by an unknown amount.
const GROWTH: usize = 1 << 30;

/// The stack of the calling thread, whose stack pointer is `sp`. Empty if the stack is not found.
pub(super) fn own(sp: usize) -> Range {
    // SAFETY: the call takes no arguments and touches no memory.
    let (this, pid, tid) =
        unsafe { (libc::pthread_self() as usize, libc::getpid(), libc::syscall(libc::SYS_gettid)) };
    // On a stack that the C library has allocated, the thread's control block is at the upper end.
    // The process's first thread runs on a stack that the kernel has mapped.
    let first = libc::c_long::from(pid) == tid;
    let mut labelled = Range::EMPTY;
    let mut last_end = 0;
    let mut found = Range::EMPTY;
    probe::c::each_mapping(|&Mapping { start, end, path, .. }| {
        if (start..end).contains(&this) && (!first || (start..end).contains(&sp)) {
            // The memory above the control block may be part of the same mapping.
            found = Range { start, end: this };
        }
        if path == b"[stack]" {
            labelled = Range { start: last_end.max(end.saturating_sub(GROWTH)), end };
        }
        last_end = end;
    });
    if found.end != 0 || !first { found } else { labelled }
}
