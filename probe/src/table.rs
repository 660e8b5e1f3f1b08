//! Values that are created once, never freed, and found without a lock: a single value, or a table
//! of them.

use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use pfp_shm_layout::heap;

use crate::{errno, own};

/// A table of values that are created once and never freed, indexed by a hash. `SLOTS` is a power
/// of two, and larger than the number of values.
pub struct Table<T: 'static, const SLOTS: usize> {
    slots: [AtomicPtr<T>; SLOTS],
    count: AtomicUsize,
}

impl<T, const SLOTS: usize> Default for Table<T, SLOTS> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const SLOTS: usize> Table<T, SLOTS> {
    /// An empty table.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            slots: [const { AtomicPtr::new(ptr::null_mut()) }; SLOTS],
            count: AtomicUsize::new(0),
        }
    }

    /// The value with this hash for which `is` returns true; created by `make` if there is no such
    /// value. `None` if the table already has `most` values, or memory runs out.
    #[inline(always)]
    pub fn get(
        &self,
        hash: u64,
        most: usize,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> Option<&'static T> {
        self.try_get(hash, most, is, || Some(make()))
    }

    /// [`Self::get`] for a `make` that may run out of memory.
    #[inline(always)]
    pub fn try_get(
        &self,
        hash: u64,
        most: usize,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        // Most values are in the first slot that is searched. Pairs with `Release` in `search`.
        let first = self.slots[hash as usize % SLOTS].load(Acquire);
        // SAFETY: the pointer is null, or leads to a value that is never freed.
        match unsafe { first.as_ref() } {
            Some(thing) if is(thing) => Some(thing),
            _ => self.search(hash, most, is, make),
        }
    }

    /// All values in the table.
    pub fn iter(&self) -> impl Iterator<Item = &'static T> {
        // Pairs with `Release` in `search`.
        // SAFETY: the pointer is null, or leads to a value that is never freed.
        self.slots.iter().filter_map(|slot| unsafe { slot.load(Acquire).as_ref() })
    }

    #[inline(never)]
    fn search(
        &self,
        hash: u64,
        most: usize,
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<&'static T> {
        let mut make = Some(make);
        let mut made: Option<Box<T>> = None;
        for step in 0..SLOTS {
            let slot = &self.slots[(hash as usize).wrapping_add(step) % SLOTS];
            // Pairs with `Release` below: a thread that finds the value sees all of it.
            let mut found = slot.load(Acquire);
            if found.is_null() {
                if made.is_none() {
                    if self.count.fetch_add(1, Relaxed) >= most || !heap::has_room() {
                        self.count.fetch_sub(1, Relaxed);
                        return None;
                    }
                    let make = make.take()?;
                    made = errno::preserve(|| filled(make));
                    if made.is_none() {
                        self.count.fetch_sub(1, Relaxed);
                        return None;
                    }
                }
                let new = made.take().map_or(ptr::null_mut(), Box::into_raw);
                match slot.compare_exchange(ptr::null_mut(), new, Release, Acquire) {
                    // SAFETY: made from a box just now, and never freed.
                    Ok(_) => return Some(unsafe { &*new }),
                    Err(other) => {
                        found = other;
                        // SAFETY: made from a box just now, and no other code has seen the pointer.
                        made = Some(unsafe { Box::from_raw(new) });
                    }
                }
            }
            // SAFETY: not null, and values in the table are never freed.
            let thing = unsafe { &*found };
            if is(thing) {
                if made.is_some() {
                    // Another thread has stored the value, so the one made here is dropped.
                    self.count.fetch_sub(1, Relaxed);
                }
                return Some(thing);
            }
        }
        None
    }
}

/// A value that is created once and never freed. No thread waits for another: several threads may
/// create a value at once, and the first one that is stored stays.
pub struct Once<T: 'static>(AtomicPtr<T>);

impl<T: Send + Sync> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + Sync> Once<T> {
    /// A place without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(ptr::null_mut()))
    }

    /// The value, if it was created.
    #[inline(always)]
    pub fn get(&self) -> Option<&'static T> {
        // Pairs with `AcqRel` in `keep`.
        // SAFETY: the pointer is null, or leads to a value that is never freed.
        unsafe { self.0.load(Acquire).as_ref() }
    }

    /// The value; created by `make` at the first call.
    #[inline(always)]
    pub fn get_or_make(&self, make: impl FnOnce() -> T) -> &'static T {
        self.get().unwrap_or_else(|| self.make(make))
    }

    /// [`Self::get_or_make`] for a `make` that may run out of memory. `None` if memory runs out.
    #[inline(always)]
    pub fn get_or_try(&self, make: impl FnOnce() -> Option<T>) -> Option<&'static T> {
        self.get().or_else(|| self.try_make(make))
    }

    #[cold]
    #[inline(never)]
    fn make(&self, make: impl FnOnce() -> T) -> &'static T {
        #[allow(clippy::disallowed_methods, reason = "the library's first small things")]
        errno::preserve(|| self.keep(Box::new(make())))
    }

    #[cold]
    #[inline(never)]
    fn try_make(&self, make: impl FnOnce() -> Option<T>) -> Option<&'static T> {
        errno::preserve(|| Some(self.keep(filled(make)?)))
    }

    fn keep(&self, new: Box<T>) -> &'static T {
        let new = Box::into_raw(new);
        match self.0.compare_exchange(ptr::null_mut(), new, AcqRel, Acquire) {
            // SAFETY: made from a box just now, and never freed.
            Ok(_) => unsafe { &*new },
            Err(first) => {
                // SAFETY: made from a box just now, and no other code has seen the pointer.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: not null, and the value is never freed.
                unsafe { &*first }
            }
        }
    }
}

/// Boxes the result of `make`, which may contain leaked memory. The box is allocated first, because
/// that memory would be lost if there were no box for the result. `None` if memory runs out.
fn filled<T>(make: impl FnOnce() -> Option<T>) -> Option<Box<T>> {
    let room = own::room()?;
    Some(Box::write(room, make()?))
}

/// Fibonacci hashing: the low bits of the result depend on all bits of the number.
#[inline]
#[must_use]
pub fn mix(number: u64) -> u64 {
    let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    product ^ product >> 32
}
