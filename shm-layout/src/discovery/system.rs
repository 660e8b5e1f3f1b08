//! System calls that several modules need.

use std::io;

/// How often an interrupted call is repeated before it counts as refused.
pub(super) const RETRIES: u32 = 64;

/// Bytes of a page of memory.
pub(crate) fn page_size() -> usize {
    // SAFETY: the argument is a plain number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Id of the calling process.
pub(crate) fn current_pid() -> libc::pid_t {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::getpid() }
}

/// Why the last call failed.
pub(super) fn errno() -> libc::c_int {
    io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Nanoseconds since the Unix epoch, from the kernel: the C library reads the processor's counter,
/// which the program may be forbidden to read.
pub(super) fn unix_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let clock = libc::CLOCK_REALTIME;
    // SAFETY: the kernel fills the structure that we own.
    let failed = unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) } != 0;
    let [seconds, ns] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    if failed { 0 } else { seconds * 1_000_000_000 + ns }
}
