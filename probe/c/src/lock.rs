//! Locks that cannot hang the host, and that ThreadSanitizer sees.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A value of which one thread at a time has hold.
///
/// The system's mutex and not Rust's: a program under ThreadSanitizer is told of
/// what it orders, although the library itself is not instrumented.
pub(crate) struct Mutex<T> {
    raw: UnsafeCell<libc::pthread_mutex_t>,
    /// Whether somebody has waited in vain, and nobody has taken it since.
    is_hopeless: AtomicBool,
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
            is_hopeless: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes hold of the value; none after a millisecond, and then at once until somebody
    /// has had it. It may never be given back: a signal handler may have interrupted its
    /// holder, or a fork have left the holder behind.
    pub(crate) fn hold(&'static self) -> Option<Held<'static, T>> {
        let mut spins = None;
        loop {
            // SAFETY: it was initialized and is never moved or destroyed.
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
