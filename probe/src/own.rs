//! State of a thread on the heap, because a library that is loaded at run time has only some
//! hundred bytes of thread-local storage.

use std::alloc::{Layout, alloc};
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::ptr;

pub use pfp_shm_layout::heap;
use pfp_shm_layout::heap::{Grow, has_room};

use crate::errno;

/// A place in thread-local storage for a value that is created at its first use, and freed when the
/// thread ends. The place itself needs no destructor, so a use need not check whether one has run.
pub struct Own<T: 'static>(Cell<*mut T>);

/// Uninitialized memory for a large value. `None` if memory runs out.
#[must_use]
pub fn room<T>() -> Option<Box<MaybeUninit<T>>> {
    let layout = Layout::new::<T>();
    assert!(layout.size() > 0, "it takes memory");
    // SAFETY: the size is not 0.
    let room = unsafe { alloc(layout) };
    // SAFETY: the allocation has the layout of the box, and the contents may be uninitialized.
    (!room.is_null()).then(|| unsafe { Box::from_raw(room.cast()) })
}

/// Calls these functions when the thread ends. Each frees one value of the thread.
struct Left(RefCell<Vec<Box<dyn FnOnce()>>>);

thread_local! {
    static LEFT: Left = const { Left(RefCell::new(Vec::new())) };
}

impl<T> Default for Own<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Own<T> {
    /// A place without a value.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }

    /// The thread's value, created by `make` at the first use. `None` while the thread ends, or if
    /// memory runs out.
    #[inline(always)]
    pub fn get(&'static self, make: fn() -> Option<Box<T>>) -> Option<&'static T> {
        let own = self.0.get();
        // SAFETY: the pointer is null, or from the box that `first` makes, which is freed only when
        // the thread ends.
        match unsafe { own.as_ref() } {
            None => self.first(make),
            found => found,
        }
    }

    #[cold]
    fn first(&'static self, make: fn() -> Option<Box<T>>) -> Option<&'static T> {
        let made = || {
            LEFT.try_with(|left| {
                // The allocation may have taken the last memory.
                let own = Box::into_raw(make().filter(|_| has_room())?);
                let leave = move || {
                    self.0.set(ptr::null_mut());
                    // SAFETY: the pointer is from a box, and this runs once: when the thread ends,
                    // or below before the pointer is stored.
                    drop(unsafe { Box::from_raw(own) });
                };
                let keep = |leave| left.0.borrow_mut().try_push(leave);
                if heap::boxed(leave).and_then(|leave| keep(leave as Box<_>)).is_err() {
                    leave();
                    return None;
                }
                self.0.set(own);
                // SAFETY: the pointer is from a box that is freed only when the thread ends.
                Some(unsafe { &*own })
            })
        };
        // `LEFT` registers a destructor at its first use, and the C library ends the program if it
        // has no memory for that. So check for memory first.
        errno::preserve(|| has_room().then(made))?.ok().flatten()
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        for goes in self.0.take() {
            goes();
        }
    }
}
