//! Objects of the interpreter: owned references, texts and errors.

use std::ffi::CStr;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pfp::own::heap;
use pyo3_ffi::{
    Py_DecRef, Py_GetVersion, Py_IncRef, Py_None, PyErr_NoMemory, PyErr_SetObject, PyExc_OSError,
    PyExc_TypeError, PyExc_ValueError, PyObject, PyUnicode_AsUTF8AndSize, PyUnicode_Check,
    PyUnicode_FromStringAndSize,
};

/// A reference to an object, released when dropped.
pub(crate) struct Owned(NonNull<PyObject>);

impl Owned {
    /// Takes ownership of a new reference. `None` if `object` is null, which means that an error
    /// was set.
    pub(crate) fn take(object: *mut PyObject) -> Option<Self> {
        NonNull::new(object).map(Self)
    }

    pub(crate) fn get(&self) -> *mut PyObject {
        self.0.as_ptr()
    }

    /// Releases ownership of the reference to the caller.
    pub(crate) fn give(self) -> *mut PyObject {
        let object = self.0.as_ptr();
        std::mem::forget(self);
        object
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: this value owns the reference, and its holder holds the interpreter's lock.
        unsafe { Py_DecRef(self.0.as_ptr()) }
    }
}

/// A new reference to an object.
pub(crate) fn shared(object: *mut PyObject) -> *mut PyObject {
    // SAFETY: the caller has a reference to the object, and holds the interpreter's lock.
    unsafe { Py_IncRef(object) };
    object
}

/// Whether None, True and False are immortal and need no reference counts: from Python 3.12 on.
static ARE_IMMORTAL: AtomicBool = AtomicBool::new(false);

/// Reads the interpreter's version.
pub(crate) fn look_at_version() {
    // SAFETY: the interpreter returns a static string that ends with NUL, such as "3.12.1 (main)".
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
    // SAFETY: the object lives as long as the interpreter.
    lasting(unsafe { Py_None() })
}

/// The text of a `str` object. `None`, with an error set, if the object is not a `str` or cannot be
/// encoded as UTF-8.
pub(crate) fn text<'a>(object: *mut PyObject, what: &str) -> Option<&'a str> {
    // SAFETY: the caller holds the interpreter's lock, and keeps the object alive while it uses the
    // text, which is inside the object.
    unsafe {
        if object.is_null() || PyUnicode_Check(object) == 0 {
            return fail(ErrorClass::Type, format_args!("expected {what}, which is a str"));
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

/// Classes of Python's errors.
pub(crate) enum ErrorClass {
    Os,
    Type,
    Value,
}

/// Sets a `MemoryError`, and returns `None`.
pub(crate) fn no_memory<T>() -> Option<T> {
    // SAFETY: the caller holds the interpreter's lock.
    unsafe { PyErr_NoMemory() };
    None
}

/// Sets an error, and returns `None`.
pub(crate) fn fail<T>(class: ErrorClass, said: impl fmt::Display) -> Option<T> {
    let Ok(said) = heap::format(format_args!("{said}")) else { return no_memory() };
    // SAFETY: the caller holds the interpreter's lock; the classes are static, and the text is
    // valid for its length.
    unsafe {
        let text = PyUnicode_FromStringAndSize(said.as_ptr().cast(), said.len() as isize);
        let text = Owned::take(text)?;
        let class = match class {
            ErrorClass::Os => PyExc_OSError,
            ErrorClass::Type => PyExc_TypeError,
            ErrorClass::Value => PyExc_ValueError,
        };
        PyErr_SetObject(class, text.get());
    }
    None
}
