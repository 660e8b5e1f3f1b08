//! Memory for the state of threads, used if thread-local storage is dynamic.
//!
//! A thread takes a place at its first region and releases it as it ends. Nothing here locks or
//! allocates, except that glibc allocates memory for a thread's value if the process had already
//! made more than 31 keys.

use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use super::{Local, make_key};
use crate::engine::owner::tid;
use crate::engine::section;
use crate::errno;

/// Maximum number of threads with a place at the same time.
const PLACES: usize = 1 << 12;

/// Memory for one thread.
#[repr(C, align(128))]
struct Place {
    local: Local,
    is_taken: AtomicBool,
}

const BYTES: usize = PLACES * size_of::<Place>();

/// The places; null before the first is taken. They are never unmapped.
static POOL: AtomicPtr<Place> = AtomicPtr::new(ptr::null_mut());
/// One more than the key whose value is a thread's place; 0 before the key is made.
static KEY: AtomicU32 = AtomicU32::new(0);

/// The calling thread's state; `None` before its first region.
#[cold]
#[inline(never)]
pub(super) fn known() -> Option<&'static Local> {
    let key = KEY.load(Relaxed).checked_sub(1)?;
    // SAFETY: the key is never deleted.
    let place = unsafe { libc::pthread_getspecific(key) }.cast::<Place>();
    let pool = POOL.load(Acquire);
    // In a namespace of `dlmopen`, another copy of the C library may have stored this value, for
    // its own key of the same number.
    if pool.is_null() || place.addr().wrapping_sub(pool.addr()) >= BYTES {
        return None;
    }
    // SAFETY: `place` is in the pool, which is never unmapped, and this thread took it.
    Some(unsafe { &(*place).local })
}

/// The calling thread's state; `None` if all places are taken or no memory can be mapped.
#[cold]
#[inline(never)]
pub(super) fn get() -> Option<&'static Local> {
    // Signals are blocked, because a handler between taking a place and setting the value would
    // take a second place.
    known().or_else(|| errno::preserve(|| section::blocking(|| known().or_else(take))))
}

#[cold]
fn take() -> Option<&'static Local> {
    let key = make_key(&KEY, release).ok()?;
    let pool = pool()?;
    // The search starts at the thread's id, so that threads that begin together mostly try
    // different places.
    let first = tid() as usize;
    let mut places = (0..PLACES).map(|at| pool.wrapping_add((first + at) % PLACES));
    let place = places.find(|place| {
        // SAFETY: `place` is within the pool, which is never unmapped, and all threads may use the
        // atomic.
        let is_taken = unsafe { &(**place).is_taken };
        // Acquire pairs with the release in `release`: the last owner has finished with the
        // place.
        is_taken.compare_exchange(false, true, Acquire, Relaxed).is_ok()
    })?;
    // SAFETY: `is_taken` was set just now, so no other thread uses the rest of the place.
    unsafe { (&raw mut (*place).local).write(Local::new()) };
    // SAFETY: the key is never deleted; its destructor expects a place in the pool.
    if unsafe { libc::pthread_setspecific(key, place.cast()) } != 0 {
        // SAFETY: `place` is within the pool.
        unsafe { &(*place).is_taken }.store(false, Release);
        return None;
    }
    // SAFETY: `place` is within the pool, and was initialized just now.
    Some(unsafe { &(*place).local })
}

/// The places, which the first call maps. `None` if no memory can be mapped.
fn pool() -> Option<*mut Place> {
    let known = POOL.load(Acquire);
    if !known.is_null() {
        return Some(known);
    }
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the call makes a new mapping, at an address that the kernel chooses.
    let pages = unsafe { libc::mmap(ptr::null_mut(), BYTES, protection, flags, -1, 0) };
    if pages == libc::MAP_FAILED {
        return None;
    }
    // Release pairs with the loads of `POOL`.
    match POOL.compare_exchange(ptr::null_mut(), pages.cast(), Release, Acquire) {
        Ok(_) => Some(pages.cast()),
        Err(found) => {
            // SAFETY: `pages` were mapped just now, and are not published.
            unsafe { libc::munmap(pages, BYTES) };
            Some(found)
        }
    }
}

/// Releases a thread's place as the thread ends.
unsafe extern "C" fn release(value: *mut libc::c_void) {
    // SAFETY: only `take` sets values of this key, to places in the pool.
    let place = unsafe { &*value.cast::<Place>() };
    if place.local.thread.get().is_null() {
        // Release pairs with the acquire in `take`.
        place.is_taken.store(false, Release);
    } else if let Some(key) = KEY.load(Relaxed).checked_sub(1) {
        // The thread still has its lane: the destructor that releases the lane, and clears this
        // pointer, may run after this one. Setting the value again makes the threads library call
        // this destructor once more.
        // SAFETY: the key is never deleted; the value is a place in the pool.
        unsafe { libc::pthread_setspecific(key, value) };
    }
}
