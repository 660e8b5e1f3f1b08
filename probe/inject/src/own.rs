//! What a thread has for itself, on the heap: the library is loaded into programs that run,
//! where thread-local storage has some hundred bytes left.

use std::cell::Cell;
use std::ptr;

/// A place in thread-local storage for something that is made when it is first used, and goes
/// with the thread.
pub(crate) struct Own<T>(Cell<*mut T>);

impl<T> Own<T> {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(ptr::null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self, make: fn() -> Box<T>) -> &T {
        if self.0.get().is_null() {
            self.0.set(pfp::c::keeping_errno(|| Box::into_raw(make())));
        }
        // SAFETY: made above, and freed only below.
        unsafe { &*self.0.get() }
    }
}

impl<T> Drop for Own<T> {
    fn drop(&mut self) {
        let own = self.0.replace(ptr::null_mut());
        if !own.is_null() {
            // SAFETY: from a box, and the thread ends.
            drop(unsafe { Box::from_raw(own) });
        }
    }
}
