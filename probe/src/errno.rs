//! The caller's `errno`.

/// Does something that may ask the system in vain, and leaves `errno` as it was: the
/// host may stand between a call of its own and the question why that failed.
pub(crate) fn preserve<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: no preconditions; the place is valid as long as the thread runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: see above.
    let before = unsafe { errno.read() };
    let result = work();
    // SAFETY: see above; this is the same thread.
    unsafe { errno.write(before) };
    result
}
