//! Keeps the probe's descriptors above the standard three, which belong to the program even if it
//! has closed them.
//!
//! The kernel gives a new descriptor the lowest free number. If a file of the probe got number 1,
//! other threads would print into it. So placeholders occupy the free ones of the three while the
//! file is opened: descriptors of `/` with `O_PATH`, which cannot be read or written.

use std::os::fd::RawFd;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// The numbers below are the program's: standard input, output and error.
const FIRST: RawFd = 3;
/// Kernel id of the thread that opens something; 0 if there is none.
static OPENING: AtomicU32 = AtomicU32::new(0);
/// Maximum number of attempts to wait for another thread; all of them take less than a millisecond.
/// The wait is bounded because in a forked child that thread may exist only in the parent.
const TURN_ATTEMPTS: u32 = 10_000;

/// Runs `open`, whose descriptors get numbers from 3 on.
pub fn above_standard<R>(open: impl FnOnce() -> R) -> R {
    // One thread at a time, so that no thread closes the placeholders while another one opens its
    // file.
    let me = take_turn();
    let mut taken = [None; FIRST as usize];
    if has_free() {
        taken = taken.map(|_: Option<RawFd>| placeholder());
    }
    let result = open();
    // SAFETY: the location is valid as long as the thread runs.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: `errno` points to this thread's own errno, which lasts as long as the thread.
    let before = unsafe { errno.read() };
    for descriptor in taken.into_iter().flatten() {
        give_back(descriptor);
    }
    // SAFETY: `errno` points to this thread's own errno, which lasts as long as the thread.
    unsafe { errno.write(before) };
    if let Some(me) = me {
        // Release pairs with the acquire in `take_turn`: the placeholders are closed.
        let _ = OPENING.compare_exchange(me, 0, Release, Relaxed);
    }
    result
}

/// Waits until no other thread opens anything, and returns the calling thread's id; `None` in a
/// signal handler that interrupted its own thread here.
fn take_turn() -> Option<u32> {
    // SAFETY: the call has no arguments and touches no memory.
    let me = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    for _ in 0..TURN_ATTEMPTS {
        // Acquire pairs with the release in `above_standard`.
        match OPENING.compare_exchange(0, me, Acquire, Relaxed) {
            Ok(_) => return Some(me),
            Err(found) if found == me => return None,
            Err(_) => std::hint::spin_loop(),
        }
    }
    // The other thread has ended, or is very slow.
    OPENING.store(me, Relaxed);
    Some(me)
}

/// Whether one of the standard three numbers is free.
fn has_free() -> bool {
    // SAFETY: `F_GETFD` reads a flag of a number and touches no memory.
    (0..FIRST).any(|number| unsafe { libc::fcntl(number, libc::F_GETFD) } == -1)
}

/// Occupies the lowest free number, if it is one of the standard three.
fn placeholder() -> Option<RawFd> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // Bare system calls, because the C library's functions end a thread that is to be cancelled.
    // SAFETY: a NUL-terminated path and plain numbers.
    let number =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, c"/".as_ptr(), flags) } as RawFd;
    if number >= FIRST {
        close(number);
    }
    (0..FIRST).contains(&number).then_some(number)
}

/// Closes a placeholder, unless the program has put a file in its place.
fn give_back(number: RawFd) {
    // SAFETY: `F_GETFL` reads flags of a number and touches no memory.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFL) };
    if flags != -1 && flags & libc::O_PATH != 0 {
        close(number);
    }
}

/// Closes a descriptor that [`placeholder`] has opened.
fn close(number: RawFd) {
    // SAFETY: `close` takes a plain number. The caller has checked that the number is a
    // placeholder's.
    unsafe { libc::syscall(libc::SYS_close, number) };
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::fs::File;
    use std::os::fd::AsRawFd;

    use super::*;

    /// The test runs in a child, which may close its own descriptors.
    #[test]
    fn nothing_is_opened_below_three() {
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: `close` takes plain numbers, and the descriptors belong to the child alone.
            (0..FIRST).for_each(|number| unsafe {
                libc::close(number);
            });
            let opened = || File::open("/dev/null").map(|file| file.as_raw_fd());
            let kept = above_standard(|| File::open("/dev/null"));
            let is_above = kept.is_ok_and(|file| file.as_raw_fd() >= FIRST);
            let all_free = opened().is_ok_and(|number| number == 0);
            // SAFETY: ends the child.
            unsafe { libc::_exit(if is_above && all_free { 7 } else { 1 }) };
        }
        let mut status = 0;
        // SAFETY: waits for the child that was made above.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(libc::WEXITSTATUS(status), 7);
    }
}
