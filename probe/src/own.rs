//! What a thread has for itself, on the heap: a library that is loaded into a program that runs
//! has some hundred bytes of thread-local storage left.

use std::alloc::{Layout, alloc};
use std::cell::{Cell, RefCell};
use std::mem::MaybeUninit;
use std::ptr;

pub use pfp_shm_layout::heap;
use pfp_shm_layout::heap::{Grow, has_room};

use crate::errno;

/// A place in thread-local storage for something that is made when it is first used, and goes
/// with the thread. It has nothing to drop itself, so a use need not ask whether it was.
pub struct Own<T: 'static>(Cell<*mut T>);

/// Memory for something large, which is not filled; none where there is no more.
#[must_use]
pub fn room<T>() -> Option<Box<MaybeUninit<T>>> {
    let layout = Layout::new::<T>();
    assert!(layout.size() > 0, "it takes memory");
    // SAFETY: of a size that is not 0.
    let room = unsafe { alloc(layout) };
    // SAFETY: allocated just now as a box is, and nothing need be filled.
    (!room.is_null()).then(|| unsafe { Box::from_raw(room.cast()) })
}

/// What goes as the thread ends.
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
    /// Nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }

    /// The thread's; none when it ends, and while there is no memory for it.
    #[inline(always)]
    pub fn get(&'static self, make: fn() -> Option<Box<T>>) -> Option<&'static T> {
        let own = self.0.get();
        // SAFETY: null, or made below and freed only as the thread ends.
        match unsafe { own.as_ref() } {
            None => self.first(make),
            found => found,
        }
    }

    #[cold]
    fn first(&'static self, make: fn() -> Option<Box<T>>) -> Option<&'static T> {
        let made = || {
            LEFT.try_with(|left| {
                // That may have been the last.
                let own = Box::into_raw(make().filter(|_| has_room())?);
                let leave = move || {
                    self.0.set(ptr::null_mut());
                    // SAFETY: from a box, and the thread ends.
                    drop(unsafe { Box::from_raw(own) });
                };
                let keep = |leave| left.0.borrow_mut().try_push(leave);
                if heap::boxed(leave).and_then(|leave| keep(leave as Box<_>)).is_err() {
                    leave();
                    return None;
                }
                self.0.set(own);
                // SAFETY: made just now.
                Some(unsafe { &*own })
            })
        };
        // The C library, too, ends a program that has no memory for what is to end with a thread.
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
