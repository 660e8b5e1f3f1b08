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

/// Frees the value when the thread ends.
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
    /// No value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }

    /// The thread's value. `None` while the thread ends, or if memory runs out.
    #[inline(always)]
    pub fn get(&'static self, make: fn() -> Option<Box<T>>) -> Option<&'static T> {
        let own = self.0.get();
        // SAFETY: null, or from the box made below, which is freed only when the thread ends.
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
                    // SAFETY: the pointer is from a box, and the thread ends.
                    drop(unsafe { Box::from_raw(own) });
                };
                let keep = |leave| left.0.borrow_mut().try_push(leave);
                if heap::boxed(leave).and_then(|leave| keep(leave as Box<_>)).is_err() {
                    leave();
                    return None;
                }
                self.0.set(own);
                // SAFETY: the pointer was made just now.
                Some(unsafe { &*own })
            })
        };
        // The C library ends the program if it has no memory for a destructor of a thread. So check
        // first.
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
