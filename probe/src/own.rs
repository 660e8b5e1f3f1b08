//! What a thread has for itself, on the heap: a library that is loaded into a program that runs
//! has some hundred bytes of thread-local storage left.

use std::cell::{Cell, RefCell};
use std::ptr;

/// A place in thread-local storage for something that is made when it is first used, and goes
/// with the thread. It has nothing to drop itself, so a use need not ask whether it was.
pub struct Own<T: 'static>(Cell<*mut T>);

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

    /// The thread's; none when it ends.
    #[inline(always)]
    pub fn get(&'static self, make: fn() -> Box<T>) -> Option<&'static T> {
        let own = self.0.get();
        // SAFETY: null, or made below and freed only as the thread ends.
        match unsafe { own.as_ref() } {
            None => self.first(make),
            found => found,
        }
    }

    #[cold]
    fn first(&'static self, make: fn() -> Box<T>) -> Option<&'static T> {
        crate::c::keeping_errno(|| {
            LEFT.try_with(|left| {
                let own = Box::into_raw(make());
                self.0.set(own);
                left.0.borrow_mut().push(Box::new(move || {
                    self.0.set(ptr::null_mut());
                    // SAFETY: from a box, and the thread ends.
                    drop(unsafe { Box::from_raw(own) });
                }));
                // SAFETY: made just now.
                unsafe { &*own }
            })
            .ok()
        })
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        for goes in self.0.take() {
            goes();
        }
    }
}
