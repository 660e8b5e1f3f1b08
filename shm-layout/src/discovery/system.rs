//! Calls of the system that several modules need.

use std::io;

/// How often an interrupted call is repeated before it counts as refused.
pub(super) const RETRIES: u32 = 64;

/// Bytes of a page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes a plain number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Id of the calling process.
pub(crate) fn current_pid() -> libc::pid_t {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::getpid() }
}

/// Why the last call failed.
pub(super) fn errno() -> libc::c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}
