//! Objects of the interpreter: owned references, texts and errors.

use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pyo3_ffi::{
    Py_DecRef, Py_GetVersion, Py_IncRef, Py_None, PyErr_SetString, PyExc_OSError, PyExc_TypeError,
    PyExc_ValueError, PyObject, PyUnicode_AsUTF8AndSize, PyUnicode_Check,
};

/// A reference that is given back as this is dropped.
pub(crate) struct Owned(NonNull<PyObject>);

impl Owned {
    /// Takes over a new reference; none if an error was set instead.
    pub(crate) fn take(object: *mut PyObject) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    pub(crate) fn get(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// Gives the reference to whoever asked for it.
    pub(crate) fn give(self) -> *mut PyObject {
        let object = self.0.as_ptr();
        std::mem::forget(self);
        object
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: the reference is this one's, and its holder has the interpreter's lock.
        unsafe { Py_DecRef(self.0.as_ptr()) }
    }
}

/// A new reference to an object.
pub(crate) fn shared(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller has one, and the interpreter's lock.
    unsafe { Py_IncRef(object) };
    object
}

/// Whether None, True and False need no references: from Python 3.12 on.
static ARE_IMMORTAL: AtomicBool = AtomicBool::new(false);

/// Asks the interpreter how it counts.
pub(crate) fn look_at_version() {
    // SAFETY: a text that ends, such as "3.12.1 (main)".
    let version = unsafe { CStr::from_ptr(Py_GetVersion()) }.to_bytes();
    let mut numbers = version.split(|byte| !byte.is_ascii_digit());
    let minor = numbers.nth(1).and_then(|it| str::from_utf8(it).ok()?.parse::<u32>().ok());
    ARE_IMMORTAL.store(minor.is_some_and(|minor| minor >= 12), Relaxed);
}

/// A new reference to None, True or False.
#[inline]
pub(crate) fn lasting(object: *mut PyObject) -> *mut PyObject {
    if ARE_IMMORTAL.load(Relaxed) { object } else { shared(object) }
}

#[inline]
pub(crate) fn none() -> *mut PyObject {
    // SAFETY: it is always there.
    lasting(unsafe { Py_None() })
}

/// The text of an object; none if it is no text, or none that UTF-8 has, with an error set.
pub(crate) fn text<'a>(object: *mut PyObject, what: &str) -> Option<&'a str> {
    // SAFETY: an object of the caller's, which lives as long as the text is used; the text lies in
    // the object.
    unsafe {
        if object.is_null() || PyUnicode_Check(object) == 0 {
            return fail(Error::Type, &format!("expected {what}, which is a str"));
        }
        let mut len = 0;
        let bytes = PyUnicode_AsUTF8AndSize(object, &raw mut len);
        if bytes.is_null() {
            return None;
        }
        let bytes = std::slice::from_raw_parts(bytes.cast::<u8>(), len as usize);
        Some(std::str::from_utf8_unchecked(bytes))
    }
}

/// Classes of errors.
pub(crate) enum Error {
    Os,
    Type,
    Value,
}

/// Sets an error.
pub(crate) fn fail<T>(class: Error, said: &str) -> Option<T> {
    let said = CString::new(said.replace('\0', " ")).unwrap_or_default();
    // SAFETY: a class of the interpreter's, and a text that ends.
    unsafe {
        let class = match class {
            Error::Os => PyExc_OSError,
            Error::Type => PyExc_TypeError,
            Error::Value => PyExc_ValueError,
        };
        PyErr_SetString(class, said.as_ptr());
    }
    None
}
