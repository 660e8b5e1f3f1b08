//! Figures that a program requests about itself.

use std::collections::HashMap;
use std::path::Path;
use std::ptr;

use pfp::Stats;
use pyo3_ffi::{
    PyFloat_FromDouble, PyList_Append, PyList_New, PyLong_FromUnsignedLongLong, PyObject,
    PyObject_IsTrue, PyTuple_GetItem, PyTuple_New, PyTuple_SetItem, PyTuple_Size,
    PyUnicode_FromStringAndSize,
};

use crate::object::{ErrorClass, Owned, fail, none, text};

/// Returns a list of the names of all points with measurements, and the sums of their figures.
///
/// # Safety
///
/// The caller holds the interpreter's lock.
pub(crate) unsafe extern "C" fn stats(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    all().map_or(ptr::null_mut(), Owned::give)
}

fn all() -> Option<Owned> {
    let mut by_name = Vec::<(_, Stats)>::new();
    let mut places = HashMap::new();
    for point in pfp::points() {
        let Some(stats) = point.stats() else { continue };
        let place = *places.entry(point.name()).or_insert(by_name.len());
        match by_name.get_mut(place) {
            Some((_, sum)) => sum.merge(&stats),
            None => by_name.push((point.name(), stats)),
        }
    }
    // SAFETY: the interpreter's lock is held; each new object is either owned or passed to its
    // container.
    unsafe {
        let list = Owned::take(PyList_New(0))?;
        for (name, stats) in by_name {
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
            if PyList_Append(list.get(), tuple.get()) < 0 {
                return None;
            }
        }
        Some(list)
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
        Err(error) => fail(ErrorClass::Os, &format!("{path}: {error}")).unwrap_or(ptr::null_mut()),
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
