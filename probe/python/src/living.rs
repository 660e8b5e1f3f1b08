//! A table from objects of the interpreter to values, which are dropped when the objects die.
//!
//! A weak reference to each object runs a callback before the object's address can be used again.
//! So the table keeps no object alive, and code that a program makes and drops leaves no entry.

use std::cell::{Cell, UnsafeCell};
use std::ptr;

use pfp::own::{self, heap::Grow};
use pfp::table::mix;
use pyo3_ffi::{
    METH_O, PyCFunction, PyCFunction_New, PyLong_AsVoidPtr, PyLong_FromVoidPtr, PyMethodDef,
    PyMethodDefPointer, PyObject, PyWeakref_NewRef,
};

use crate::object::Owned;
use crate::{Kept, method};

/// Number of slots at first; a power of two, as all later numbers are.
const FIRST_SLOTS: usize = 256;

/// A hash table with linear probing, at most half full.
pub(crate) struct Living<T: 'static> {
    slots: UnsafeCell<Vec<*mut Entry<T>>>,
    count: Cell<usize>,
    callback: Kept<PyMethodDef>,
}

struct Entry<T> {
    /// Borrowed: the entry is removed before the object is freed.
    object: *mut PyObject,
    /// The weak reference, whose callback removes this entry.
    reference: *mut PyObject,
    value: T,
}

// SAFETY: every use holds the interpreter's lock.
unsafe impl<T> Sync for Living<T> {}

impl<T> Living<T> {
    /// An empty table. The interpreter calls `forget` when an object dies, and `forget` must call
    /// [`Self::forget`].
    pub(crate) const fn new(forget: PyCFunction) -> Self {
        let call = PyMethodDefPointer { PyCFunction: forget };
        Self {
            slots: UnsafeCell::new(Vec::new()),
            count: Cell::new(0),
            callback: Kept(UnsafeCell::new(method(c"forget", call, METH_O, c"An object is gone."))),
        }
    }

    /// The value of an object. The caller must not use it after the object is gone.
    #[inline]
    pub(crate) fn get(&self, object: *mut PyObject) -> Option<&T> {
        // SAFETY: nothing changes the slots while this reads them: the lock is held, and no
        // function of the interpreter is called.
        let slots = unsafe { &*self.slots.get() };
        let mut at = hash(object);
        loop {
            let slot = *slots.get(at & slots.len().wrapping_sub(1))?;
            // SAFETY: null, or an entry, which stays until its object is gone.
            let entry = unsafe { slot.as_ref() }?;
            if ptr::eq(entry.object, object) {
                return Some(&entry.value);
            }
            at = at.wrapping_add(1);
        }
    }

    /// Stores a value until the object dies. If the object already has a value, that value stays.
    /// Returns `None`, with an error set, if memory runs out, or if the object does not support
    /// weak references.
    pub(crate) fn insert(&self, object: *mut PyObject, value: T) -> Option<&T> {
        if self.get(object).is_some() {
            return self.get(object);
        }
        let entry = Box::into_raw(own::room::<Entry<T>>()?).cast::<Entry<T>>();
        // SAFETY: `entry` points to memory for one entry, allocated just now.
        unsafe { entry.write(Entry { object, reference: ptr::null_mut(), value }) };
        // SAFETY: the caller holds the interpreter's lock and a reference to the object; the method
        // is as static as the table.
        let reference = unsafe {
            Owned::take(PyLong_FromVoidPtr(entry.cast())).and_then(|address| {
                let callback = PyCFunction_New(self.callback.0.get(), address.get());
                let callback = Owned::take(callback)?;
                Owned::take(PyWeakref_NewRef(object, callback.get()))
            })
        };
        // The interpreter may have run a finalizer, which may have added this object.
        let is_new = self.get(object).is_none();
        match reference.filter(|_| is_new && self.has_room()) {
            Some(reference) => {
                // SAFETY: the entry was filled above, and no table has it yet.
                unsafe { (*entry).reference = reference.give() };
                self.put(entry);
                self.count.set(self.count.get() + 1);
            }
            // SAFETY: `entry` comes from a box, and was not put into a table.
            None => drop(unsafe { Box::from_raw(entry) }),
        }
        self.get(object)
    }

    /// All values.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        // SAFETY: the lock is held, and the caller changes no entry while it iterates.
        let slots = unsafe { &*self.slots.get() };
        // SAFETY: null, or an entry, which stays until its object is gone.
        slots.iter().filter_map(|slot| unsafe { slot.as_ref() }).map(|entry| &entry.value)
    }

    /// Drops the value of a dead object. `address` is the number to which its callback is bound.
    pub(crate) fn forget(&self, address: *mut PyObject) {
        // SAFETY: `address` is the number that `insert` has bound to the callback.
        let entry = unsafe { PyLong_AsVoidPtr(address) }.cast::<Entry<T>>();
        // SAFETY: the callback of an entry runs once, and only this function frees entries of the
        // table; the lock is held, so nothing else borrows the slots.
        let gone = unsafe {
            let slots = &mut *self.slots.get();
            let Some(at) = place(slots, (*entry).object) else { return };
            close_gap(slots, at);
            Box::from_raw(entry)
        };
        self.count.set(self.count.get() - 1);
        // Drops the last reference to the weak reference, since its object is gone.
        drop(Owned::take(gone.reference));
    }

    /// Grows the table if needed. Returns whether one more entry fits.
    fn has_room(&self) -> bool {
        // SAFETY: the lock is held, so nothing else borrows the slots.
        let slots = unsafe { &mut *self.slots.get() };
        if 2 * (self.count.get() + 1) <= slots.len() {
            return true;
        }
        let length = (2 * slots.len()).max(FIRST_SLOTS);
        let mut larger = Vec::new();
        if larger.try_resize_with(length, ptr::null_mut).is_err() {
            return false;
        }
        let before = std::mem::replace(slots, larger);
        before.into_iter().filter(|entry| !entry.is_null()).for_each(|entry| self.put(entry));
        true
    }

    /// Puts an entry into the first empty slot of its search. The caller has made room for it.
    fn put(&self, entry: *mut Entry<T>) {
        // SAFETY: the lock is held, so nothing else borrows the slots; the entry is filled.
        let (slots, object) = unsafe { (&mut *self.slots.get(), (*entry).object) };
        let mask = slots.len() - 1;
        let mut at = hash(object) & mask;
        while !slots[at].is_null() {
            at = (at + 1) & mask;
        }
        slots[at] = entry;
    }
}

#[inline]
fn hash(object: *mut PyObject) -> usize {
    // Objects are aligned to 16 bytes.
    mix(object.addr() as u64 >> 4) as usize
}

/// Index of the slot with an object.
fn place<T>(slots: &[*mut Entry<T>], object: *mut PyObject) -> Option<usize> {
    let mask = slots.len().wrapping_sub(1);
    let mut at = hash(object) & mask;
    loop {
        // SAFETY: null, or an entry of the table.
        let entry = unsafe { slots.get(at)?.as_ref() }?;
        if ptr::eq(entry.object, object) {
            return Some(at);
        }
        at = (at + 1) & mask;
    }
}

/// Empties a slot, and moves the entries that follow into the gap, so that a search for them does
/// not end there.
fn close_gap<T>(slots: &mut [*mut Entry<T>], mut gap: usize) {
    let mask = slots.len() - 1;
    let mut at = gap;
    loop {
        at = (at + 1) & mask;
        // SAFETY: null, or an entry of the table.
        let Some(entry) = (unsafe { slots[at].as_ref() }) else { break };
        let first = hash(entry.object) & mask;
        // The entry can move to the gap unless a search for it begins beyond the gap.
        if at.wrapping_sub(first) & mask >= at.wrapping_sub(gap) & mask {
            slots[gap] = slots[at];
            gap = at;
        }
    }
    slots[gap] = ptr::null_mut();
}
