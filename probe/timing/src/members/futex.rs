//! Sleeping on a word, and waking the sleepers.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while the word equals `seen`, until a wake-up or the end of `time`, which is less than a
/// second. If `private`, only threads of this process can wake the sleeper.
pub(super) fn wait(word: &AtomicU32, seen: u32, time: Duration, private: bool) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    // SAFETY: the word and the time outlive the call, which only reads them.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | flag(private),
            seen,
            &raw const time,
        );
    }
}

/// Wakes all threads that sleep on a word.
pub(super) fn wake(word: &AtomicU32, private: bool) {
    // SAFETY: the word outlives the call, which does not access it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE | flag(private),
            libc::c_int::MAX,
        );
    }
}

fn flag(private: bool) -> libc::c_int {
    if private { libc::FUTEX_PRIVATE_FLAG } else { 0 }
}
