//! Locks that cannot block the host program for long, and that ThreadSanitizer sees.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A value that one thread at a time can access.
///
/// Wraps a pthread mutex instead of Rust's. ThreadSanitizer intercepts pthread's functions, so it
/// knows which accesses the lock orders, although this library is not instrumented.
pub(crate) struct Mutex<T> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    /// Whether an attempt has timed out since the last successful one.
    is_hopeless: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that has locked `raw` accesses `value`.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Guard of the value, which unlocks the mutex when dropped.
pub(crate) struct Held<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// Creates a mutex for a static: a pthread mutex must not be moved after its first use.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            raw: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            is_hopeless: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Locks the value. `None` after a millisecond. After such a time-out, each call tries only
    /// once until a try succeeds, because the lock may never be released: the thread that holds it
    /// may be interrupted by this signal handler, or may not exist in this forked child.
    pub(crate) fn hold(&'static self) -> Option<Held<'static, T>> {
        let mut spins = None;
        loop {
            // SAFETY: the mutex is initialized, and a static is never moved or destroyed.
            if unsafe { libc::pthread_mutex_trylock(self.raw.get()) } == 0 {
                self.is_hopeless.store(false, Relaxed);
                return Some(Held { mutex: self });
            }
            if self.is_hopeless.load(Relaxed) {
                return None;
            }
            if spins.get_or_insert_with(probe::c::brief_spin).next().is_none() {
                self.is_hopeless.store(true, Relaxed);
            }
        }
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this guard holds the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the mutex and is borrowed mutably.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the guard's thread locked the mutex.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}
