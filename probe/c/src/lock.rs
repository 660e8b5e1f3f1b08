//! Locks that cannot hang the host.

use std::sync::{Mutex, MutexGuard, TryLockError};

/// Takes a lock; none after a second or so. It may never be given back: a signal
/// handler may have interrupted its holder, or a fork have left the holder behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..100_000 {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}
