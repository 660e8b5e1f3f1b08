//! Preserves the caller's `errno`.

/// Runs `work`, whose system calls may fail, and restores `errno` afterwards: the host may be
/// between a call of its own and the check of its `errno`.
pub(crate) fn preserve<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the call has no preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the location is valid as long as the thread runs.
    let before = unsafe { errno.read() };
    let result = work();
    // SAFETY: the location is valid as long as the thread runs, and this is the same thread.
    unsafe { errno.write(before) };
    result
}
