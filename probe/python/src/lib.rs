//! The native half of the Python package `pfp`: regions that a program marks, and functions that
//! the interpreter reports.
//!
//! ```text
//! with pfp.scope(...)          --> regions ---\
//! sys.monitoring, the profile hook --> calls --+--> pfp::stack
//! ```
//!
//! Uses only the stable ABI of Python 3.10, so one library works with all later versions.

// As in the probe, no function may end its host when memory runs out; see ../clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

mod calls;
mod figures;
mod greenlets;
mod living;
mod object;
mod places;
mod regions;

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::ptr;

use pyo3_ffi::{
    METH_FASTCALL, METH_KEYWORDS, METH_NOARGS, METH_O, METH_VARARGS, Py_DecRef, PyMethodDef,
    PyMethodDefPointer, PyModule_Create, PyModuleDef, PyModuleDef_HEAD_INIT, PyObject,
};

/// Data that the interpreter reads, and partly writes, under its own lock.
pub(crate) struct Kept<T>(pub(crate) UnsafeCell<T>);

// SAFETY: all accesses to the value are made under the interpreter's lock.
unsafe impl<T> Sync for Kept<T> {}

pub(crate) const fn method(
    name: &'static CStr,
    call: PyMethodDefPointer,
    flags: i32,
    doc: &'static CStr,
) -> PyMethodDef {
    PyMethodDef { ml_name: name.as_ptr(), ml_meth: call, ml_flags: flags, ml_doc: doc.as_ptr() }
}

static METHODS: Kept<[PyMethodDef; 22]> = {
    use PyMethodDefPointer as Of;
    Kept(UnsafeCell::new([
        method(
            c"scope",
            Of { PyCFunctionFastWithKeywords: regions::scope },
            METH_FASTCALL | METH_KEYWORDS,
            c"scope(name, **amounts)\n--\n\nA region of this name, for `with`, begin and end. \
              Up to four keyword arguments are amounts, such as bytes=n.",
        ),
        method(
            c"scope_at",
            Of { PyCFunctionFast: regions::scope_at },
            METH_FASTCALL,
            c"scope_at(name, file, line)\n--\n\nA region at a place of the source.",
        ),
        method(
            c"begin",
            Of { PyCFunction: regions::begin },
            METH_O,
            c"begin(scope)\n--\n\nBegins a region: of a scope, or of a name.",
        ),
        method(
            c"end",
            Of { PyCFunction: regions::end },
            METH_O,
            c"end(scope)\n--\n\nEnds the scope's last open region on this thread.",
        ),
        method(c"stats", Of { PyCFunction: figures::stats }, METH_NOARGS, c"For pfp.stats."),
        method(c"snapshot", Of { PyCFunction: figures::snapshot }, METH_O, c"For pfp.snapshot."),
        method(
            c"end_in_order",
            Of { PyCFunction: figures::end_in_order },
            METH_NOARGS,
            c"For os._exit.",
        ),
        method(
            c"switch",
            Of { PyCFunction: figures::switch },
            METH_VARARGS,
            c"For pfp.enable and pfp.disable.",
        ),
        method(
            c"keep_over",
            Of { PyCFunction: figures::keep_over },
            METH_VARARGS,
            c"For pfp.keep_over.",
        ),
        method(c"keep", Of { PyCFunction: figures::keep }, METH_O, c"For pfp.keep."),
        method(c"decide_by", Of { PyCFunction: calls::decide_by }, METH_O, c"For pfp._watch."),
        method(
            c"name_function",
            Of { PyCFunctionFast: calls::name_function },
            METH_FASTCALL,
            c"For pfp._watch.",
        ),
        method(
            c"set_disable",
            Of { PyCFunction: calls::set_disable },
            METH_VARARGS,
            c"For pfp._watch.",
        ),
        method(
            c"forget_disabled",
            Of { PyCFunction: calls::forget_disabled },
            METH_NOARGS,
            c"For pfp._watch.",
        ),
        method(
            c"is_on_again",
            Of { PyCFunction: calls::is_on_again },
            METH_NOARGS,
            c"For pfp._watch.",
        ),
        method(
            c"enter",
            Of { PyCFunctionFast: calls::enter },
            METH_FASTCALL,
            c"For sys.monitoring.",
        ),
        method(
            c"throw",
            Of { PyCFunctionFast: calls::throw },
            METH_FASTCALL,
            c"For sys.monitoring.",
        ),
        method(
            c"leave",
            Of { PyCFunctionFast: calls::leave },
            METH_FASTCALL,
            c"For sys.monitoring.",
        ),
        method(
            c"unwind",
            Of { PyCFunctionFast: calls::unwind },
            METH_FASTCALL,
            c"For sys.monitoring.",
        ),
        method(
            c"follow_greenlets",
            Of { PyCFunction: greenlets::follow },
            METH_O,
            c"For pfp._greenlets.",
        ),
        method(
            c"profile_here",
            Of { PyCFunction: calls::profile_here },
            METH_VARARGS,
            c"For sys.setprofile: installs the native profile hook.",
        ),
        PyMethodDef::zeroed(),
    ]))
};

static MODULE: Kept<PyModuleDef> = Kept(UnsafeCell::new(PyModuleDef {
    m_base: PyModuleDef_HEAD_INIT,
    m_name: c"_pfp".as_ptr(),
    m_doc: c"The native half of pfp.".as_ptr(),
    m_size: -1,
    m_methods: METHODS.0.get().cast(),
    m_slots: ptr::null_mut(),
    m_traverse: None,
    m_clear: None,
    m_free: None,
}));

/// Called by the interpreter when it imports `pfp._pfp`.
#[unsafe(no_mangle)]
pub extern "C" fn PyInit__pfp() -> *mut PyObject {
    // SAFETY: the interpreter calls this once, under its lock; all arguments are static.
    unsafe {
        object::look_at_version();
        places::look_at_directory();
        let module = PyModule_Create(MODULE.0.get());
        if !module.is_null() && regions::add_types(module).is_none() {
            Py_DecRef(module);
            return ptr::null_mut();
        }
        pfp::c::get_ready();
        module
    }
}
