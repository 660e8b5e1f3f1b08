//! Locks that cannot hang the host, and that ThreadSanitizer sees.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

/// A value of which one thread at a time has hold.
///
/// The system's mutex and not Rust's: a program under ThreadSanitizer is told of
/// what it orders, although the library itself is not instrumented.
pub(crate) struct Mutex<T> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    value: UnsafeCell<T>,
}

// SAFETY: only who holds the mutex comes to the value.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// A hold of the value, given back when dropped.
pub(crate) struct Held<'a, T> {
    mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    /// For statics alone, since it must stay where it is.
    pub(crate) const fn new(value: T) -> Self {
        Self {
            raw: UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes hold of the value; none after a second or so. It may never be given
    /// back: a signal handler may have interrupted its holder, or a fork have left
    /// the holder behind.
    pub(crate) fn hold(&'static self) -> Option<Held<'static, T>> {
        for _ in 0..100_000 {
            // SAFETY: it was initialized and is never moved or destroyed.
            if unsafe { libc::pthread_mutex_trylock(self.raw.get()) } == 0 {
                return Some(Held { mutex: self });
            }
            std::thread::yield_now();
        }
        None
    }
}

impl<T> Deref for Held<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this holds the mutex.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Held<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this holds the mutex, and is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T> Drop for Held<'_, T> {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        unsafe { libc::pthread_mutex_unlock(self.mutex.raw.get()) };
    }
}
