//! Figures that a program requests about itself.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::path::Path;
use std::ptr;
use std::time::Duration;
use std::{fmt, io};

use pfp::Stats;
use pfp::own::heap::{Grow, NoMemory};
use pyo3_ffi::{
    PyErr_Occurred, PyFloat_FromDouble, PyList_Append, PyList_New, PyLong_FromUnsignedLongLong,
    PyObject, PyObject_IsTrue, PyTuple_GetItem, PyTuple_New, PyTuple_SetItem, PyTuple_Size,
    PyUnicode_FromStringAndSize,
};

use crate::object::{ErrorClass, Owned, fail, no_memory, none, text};
use crate::regions::number;

/// Returns a list of the names of all points with measurements, and the sums of their figures.
///
/// # Safety
///
/// The caller holds the interpreter's lock.
pub(crate) unsafe extern "C" fn stats(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    all().map_or(ptr::null_mut(), Owned::give)
}

/// The names of all points with measurements, and the sums of their figures.
fn sums() -> Result<Vec<(Cow<'static, str>, Stats)>, NoMemory> {
    let mut sums = Vec::<(_, Stats)>::new();
    let mut places = HashMap::new();
    for point in pfp::points() {
        let Some(stats) = point.stats() else { continue };
        places.try_reserve(1)?;
        let place = *places.entry(point.name()).or_insert(sums.len());
        match sums.get_mut(place) {
            Some((_, sum)) => sum.merge(&stats),
            None => sums.try_push((point.name(), stats))?,
        }
    }
    Ok(sums)
}

fn all() -> Option<Owned> {
    let Ok(sums) = sums() else { return no_memory() };
    // SAFETY: the interpreter's lock is held; each new object is either owned or passed to its
    // container.
    unsafe {
        let list = Owned::take(PyList_New(0))?;
        for (name, stats) in sums {
            let seconds = |ticks: u64| ticks as f64 / pfp::ticks_per_second();
            let tuple = Owned::take(PyTuple_New(10))?;
            let name = PyUnicode_FromStringAndSize(name.as_ptr().cast(), name.len() as isize);
            PyTuple_SetItem(tuple.get(), 0, name);
            PyTuple_SetItem(tuple.get(), 1, PyLong_FromUnsignedLongLong(stats.count));
            let quantile = |share| stats.quantile(share).unwrap_or_default().as_secs_f64();
            let times = [
                seconds(stats.exclusive),
                seconds(stats.inclusive),
                seconds(stats.off_cpu),
                stats.mean().as_secs_f64(),
                seconds(stats.min),
                seconds(stats.max),
                quantile(0.5),
                quantile(0.99),
            ];
            for (at, time) in (2..).zip(times) {
                PyTuple_SetItem(tuple.get(), at, PyFloat_FromDouble(time));
            }
            // Creating an object of the tuple may have failed.
            if PyList_Append(list.get(), tuple.get()) < 0 || !PyErr_Occurred().is_null() {
                return None;
            }
        }
        Some(list)
    }
}

unsafe extern "C" {
    fn strerror(code: c_int) -> *const c_char;
}

/// Formats an error like the standard library, which ends the program if there is no memory for the
/// text.
struct ErrorText<'a>(&'a io::Error);

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(code) = self.0.raw_os_error() else { return self.0.fmt(out) };
        // SAFETY: the text ends with NUL. It is valid until the next call, which would be made
        // under the interpreter's lock, too.
        let text = unsafe { CStr::from_ptr(strerror(code)) };
        write!(out, "{} (os error {code})", text.to_str().unwrap_or_default())
    }
}

/// Writes a snapshot to the file `path`. Replaces an existing file.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn snapshot(_: *mut PyObject, path: *mut PyObject) -> *mut PyObject {
    let Some(path) = text(path, "a path") else { return ptr::null_mut() };
    match pfp::snapshot_over(Path::new(path)) {
        Ok(()) => none(),
        Err(error) if NoMemory::is_in(&error) => no_memory().unwrap_or(ptr::null_mut()),
        Err(error) => fail(ErrorClass::Os, format_args!("{path}: {}", ErrorText(&error)))
            .unwrap_or(ptr::null_mut()),
    }
}

/// Records that the process exits in an orderly way, and writes its last figures if the settings
/// require it.
///
/// # Safety
///
/// The caller holds the interpreter's lock.
pub(crate) unsafe extern "C" fn end_in_order(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    pfp::c::end_in_order();
    none()
}

/// Switches all points with a name on or off. Returns their number.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn switch(_: *mut PyObject, given: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's lock is held; `given` is checked to be a tuple of two.
    unsafe {
        if PyTuple_Size(given) != 2 {
            return fail(ErrorClass::Type, "expected a name, and on or off")
                .unwrap_or(ptr::null_mut());
        }
        let Some(name) = text(PyTuple_GetItem(given, 0), "a name") else { return ptr::null_mut() };
        let is_on = PyObject_IsTrue(PyTuple_GetItem(given, 1)) == 1;
        let mut count = 0;
        for point in pfp::points().filter(|point| point.name() == name) {
            if is_on {
                point.enable();
            } else {
                point.disable();
            }
            count += 1;
        }
        PyLong_FromUnsignedLongLong(count)
    }
}

/// Sets the time in nanoseconds from which on the calls of all points with a name are kept; 0 for
/// none. Returns the number of points.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn keep_over(_: *mut PyObject, given: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter's lock is held; `given` is checked to be a tuple of two.
    unsafe {
        if PyTuple_Size(given) != 2 {
            return fail(ErrorClass::Type, "expected a name and nanoseconds")
                .unwrap_or(ptr::null_mut());
        }
        let Some(name) = text(PyTuple_GetItem(given, 0), "a name") else { return ptr::null_mut() };
        let Some(ns) = number(PyTuple_GetItem(given, 1)) else { return ptr::null_mut() };
        let limit = (ns > 0).then(|| Duration::from_nanos(ns));
        let points = pfp::points().filter(|point| point.name() == name);
        PyLong_FromUnsignedLongLong(points.map(|point| point.keep_over(limit)).count() as u64)
    }
}

/// Keeps the innermost open region of the calling thread, with a reason.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn keep(_: *mut PyObject, why: *mut PyObject) -> *mut PyObject {
    let Some(why) = text(why, "a reason") else { return ptr::null_mut() };
    pfp::keep(why);
    none()
}
