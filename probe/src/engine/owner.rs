//! Decides whose memory the caller runs in.
//!
//! A child of `vfork`, and of any `clone` with CLONE_VM, runs in its parent's memory under an id of
//! its own. A segment that it made would remain with the parent but carry the child's id, and a
//! lane that it claimed would belong to a thread that has ended. So all code that ties memory to
//! the calling process or thread asks here first.
//!
//! If there is a [`super::process::Process`], the page that leads to it shows the owner, because it
//! reads as zeros in a copy of the memory. Without a process, the C library shows the owner. It
//! stores each thread's kernel id in the thread's memory, and updates it in a child of `fork`. If
//! that id is not the caller's, the caller runs in that thread's memory, or in a copy that the
//! library does not know (a bare `clone`). Such a caller makes no process.

use super::process_page;
use crate::errno;

/// Whether the caller runs in another process's memory, or in a copy of such memory that the C
/// library does not know.
pub(super) fn is_anothers() -> bool {
    errno::preserve(|| library_tid().is_some_and(|known| known != tid()))
}

/// Kernel id of the calling thread.
pub(crate) fn tid() -> u32 {
    // A seccomp filter may refuse even this call, and set `errno`.
    // SAFETY: no preconditions.
    let result = errno::preserve(|| unsafe { libc::syscall(libc::SYS_gettid) });
    // A result of 0 or less is not a thread's id: the call was refused.
    if result > 0 { result as u32 } else { library_tid().unwrap_or(1) }
}

/// Whether a thread with the kernel id `tid` shares the caller's memory. If the caller is a child
/// in its parent's memory, only the parent's threads count.
pub(crate) fn exists(tid: u32) -> bool {
    errno::preserve(|| {
        // SAFETY: signal 0 is not sent, the call only finds out whether the thread exists; getpid
        // has no preconditions.
        let refused = unsafe {
            let process = process_page::pid().unwrap_or_else(|| libc::getpid());
            libc::syscall(libc::SYS_tgkill, process, tid, 0) != 0
        };
        !refused || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
    })
}

/// The kernel id of the calling thread, as the C library has stored it; `None` if it does not
/// report one.
pub(super) fn library_tid() -> Option<u32> {
    let mut clock = 0;
    // SAFETY: the calling thread exists, and `clock` is valid for writes.
    let refused = unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) };
    // The kernel's id of a thread's clock is the thread's id, inverted, above three other bits.
    let id = !(clock >> 3);
    (refused == 0 && id > 0).then_some(id as u32)
}
