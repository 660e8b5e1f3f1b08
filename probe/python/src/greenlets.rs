//! Greenlets: each has open regions and a context of its own, which stop when greenlet switches to
//! another one.
//!
//! greenlet calls a trace function after each switch of a thread. pfp sets its own trace function
//! on a thread at the thread's first region after the import of greenlet. The program may replace
//! that function, so each begin and end checks which greenlet runs. After a missed switch, the open
//! regions of both greenlets are discarded and count as mismatches.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::ffi::c_void;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pfp::ExecutionContext;
use pfp::stack::{self, Suspended};
use pyo3_ffi::{
    METH_FASTCALL, Py_DecRef, Py_None, Py_ssize_t, PyCFunction_GetFunction, PyCFunction_New,
    PyCapsule_GetPointer, PyErr_Clear, PyErr_WriteUnraisable, PyMethodDef, PyMethodDefPointer,
    PyObject, PyObject_CallFunctionObjArgs, PyObject_GetAttrString, PyTuple_GetItem, PyTuple_Size,
};

use crate::living::Living;
use crate::object::{Owned, none};
use crate::{Kept, method};

/// Index of `PyGreenlet_GetCurrent` in greenlet's table of functions.
const GET_CURRENT: usize = 4;

type GetCurrent = unsafe extern "C" fn() -> *mut PyObject;

/// `PyGreenlet_GetCurrent`; null until greenlet is imported.
static CURRENT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// `greenlet.settrace`, to which this library holds a reference for ever.
static SET_TRACE: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());

/// The tasks of greenlets that have run under pfp.
static ALL: Living<Task> = Living::new(forget);

struct Task {
    /// `None` for a thread's main greenlet, which uses the thread's own context.
    context: Option<ExecutionContext>,
    suspended: RefCell<Suspended>,
}

thread_local! {
    /// The greenlet whose regions are open on the thread; null before the first check.
    static RUNNING: Cell<*mut PyObject> = const { Cell::new(ptr::null_mut()) };
}

static TRACE: Kept<PyMethodDef> = Kept(UnsafeCell::new(method(
    c"traced",
    PyMethodDefPointer { PyCFunctionFast: traced },
    METH_FASTCALL,
    c"For greenlet.settrace.",
)));

unsafe extern "C" fn forget(address: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    ALL.forget(address);
    none()
}

/// `follow_greenlets(module)`: stores the functions of greenlet's native half, which was imported.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn follow(_: *mut PyObject, module: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter passes a live module and its lock is held; the method table is
    // static.
    unsafe {
        let Some(settrace) = attribute(module, c"settrace") else { return ptr::null_mut() };
        let Some(capsule) = attribute(module, c"_C_API") else { return ptr::null_mut() };
        let table = PyCapsule_GetPointer(capsule.get(), c"greenlet._C_API".as_ptr());
        let Some(table) = table.cast::<[*mut c_void; GET_CURRENT + 1]>().as_ref() else {
            return ptr::null_mut();
        };
        if SET_TRACE.load(Relaxed).is_null() {
            SET_TRACE.store(settrace.give(), Relaxed);
        }
        CURRENT.store(table[GET_CURRENT], Relaxed);
    }
    check();
    none()
}

fn attribute(object: *mut PyObject, name: &std::ffi::CStr) -> Option<Owned> {
    // SAFETY: the caller holds the interpreter's lock and a reference to `object`.
    Owned::take(unsafe { PyObject_GetAttrString(object, name.as_ptr()) })
}

/// Switches to the regions of the running greenlet if a switch was missed. Called before each begin
/// and end.
#[inline(always)]
pub(crate) fn check() {
    let current = CURRENT.load(Relaxed);
    if !current.is_null() {
        check_by(current);
    }
}

fn check_by(get_current: *mut c_void) {
    // SAFETY: greenlet's table has a function of this type there.
    let get_current = unsafe { mem::transmute::<*mut c_void, GetCurrent>(get_current) };
    // SAFETY: the interpreter's lock is held. The greenlet runs, so it outlives this reference to
    // it.
    unsafe {
        let current = get_current();
        if current.is_null() {
            // The interpreter is shutting down.
            return PyErr_Clear();
        }
        Py_DecRef(current);
        if !ptr::eq(current, RUNNING.get()) {
            missed(current);
        }
    }
}

/// Handles a greenlet that runs although no switch to it was reported, because pfp's trace function
/// is not set.
#[cold]
fn missed(current: *mut PyObject) {
    let before = RUNNING.get();
    if before.is_null() {
        // This is the thread's first check. The open regions began in the thread's main greenlet,
        // which no longer runs if greenlet has switched before.
        let main = main_of(current);
        if !ptr::eq(main, current) {
            switch(main, current, Heard::Late);
        }
    } else {
        switch(before, current, Heard::Late);
    }
    RUNNING.set(current);
    set_trace();
}

/// The main greenlet of the thread to which `greenlet` belongs.
fn main_of(greenlet: *mut PyObject) -> *mut PyObject {
    let mut at = greenlet;
    // A greenlet keeps its parent alive, so `at` stays valid without a reference of its own.
    while let Some(parent) = attribute(at, c"parent").filter(|it| !is_none(it.get())) {
        at = parent.get();
    }
    // A failed look-up has set an error.
    // SAFETY: the interpreter's lock is held.
    unsafe { PyErr_Clear() };
    at
}

fn is_none(object: *mut PyObject) -> bool {
    // SAFETY: the object `None` lives as long as the interpreter.
    ptr::eq(object, unsafe { Py_None() })
}

/// When pfp noticed a switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// During the switch.
    AtOnce,
    /// Some time later, so the open regions of both greenlets have wrong times.
    Late,
}

/// Switches the calling thread's regions from one greenlet to another. If this happens late, `from`
/// may have been freed.
fn switch(from: *mut PyObject, to: *mut PyObject, heard: Heard) {
    let mut unknown = Suspended::default();
    let before = match heard {
        Heard::AtOnce => task(from),
        Heard::Late => ALL.get(from),
    };
    let mut held = before.and_then(|task| task.suspended.try_borrow_mut().ok());
    let left = held.as_deref_mut().unwrap_or(&mut unknown);
    stack::suspend(left);
    let after = task(to).and_then(|task| Some((task, task.suspended.try_borrow_mut().ok()?)));
    let Some((after, mut resumed)) = after else {
        return abandon(left);
    };
    let context = before.and_then(|task| task.context.as_ref());
    let is_switched = pfp::c::switch(context, after.context.as_ref());
    if heard == Heard::Late || !is_switched {
        abandon(left);
        abandon(&mut resumed);
    }
    stack::resume(&mut resumed);
}

/// Drops regions without a record, since their times would be wrong.
fn abandon(regions: &mut Suspended) {
    (0..regions.abandon()).for_each(|_| pfp::c::count_mismatch());
}

/// Finds or creates a greenlet's task. `None` if memory runs out.
fn task<'a>(greenlet: *mut PyObject) -> Option<&'a Task> {
    let make = || {
        let is_main = ptr::eq(main_of(greenlet), greenlet);
        let context = (!is_main).then(ExecutionContext::new);
        ALL.insert(greenlet, Task { context, suspended: RefCell::default() })
    };
    let task = ALL.get(greenlet).or_else(make);
    if task.is_none() {
        // SAFETY: the interpreter's lock is held. The error is not the program's, so it is cleared.
        unsafe { PyErr_Clear() };
    }
    task
}

/// Sets pfp's trace function on the calling thread. pfp's trace function in turn calls the trace
/// function that the program had set, if any.
fn set_trace() {
    let set = SET_TRACE.load(Relaxed);
    // SAFETY: the interpreter's lock is held; the method is static.
    unsafe {
        let end = ptr::null_mut::<PyObject>();
        let done = (|| {
            let before = Owned::take(PyObject_CallFunctionObjArgs(set, Py_None(), end))?;
            let ours = match is_ours(before.get()) {
                true => before,
                false => Owned::take(PyCFunction_New(TRACE.0.get(), before.get()))?,
            };
            Owned::take(PyObject_CallFunctionObjArgs(set, ours.get(), end))
        })();
        if done.is_none() {
            PyErr_WriteUnraisable(set);
            PyErr_Clear();
        }
    }
}

/// Whether a trace function is pfp's. pfp's function may already be set although a switch was
/// missed, since greenlet calls no trace function for switches inside a trace function.
fn is_ours(function: *mut PyObject) -> bool {
    // SAFETY: the interpreter's lock is held. If `function` is not a C function, the call sets an
    // error and returns null.
    let function = unsafe {
        let function = PyCFunction_GetFunction(function);
        PyErr_Clear();
        function
    };
    let ours: unsafe extern "C" fn(_, _, _) -> _ = traced;
    function.is_some_and(|function| function as usize == ours as usize)
}

/// The trace function: `traced(event, (from, to))`, bound to the program's own trace function or
/// None.
unsafe extern "C" fn traced(
    before: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count != 2 {
        return none();
    }
    // SAFETY: `count` is 2, so the array has two objects.
    let (event, pair) = unsafe { (*arguments, *arguments.add(1)) };
    // SAFETY: the interpreter's lock is held, and `pair` lives during this call.
    let [from, to] = match unsafe { PyTuple_Size(pair) } {
        // SAFETY: both indexes are below the tuple's size.
        2 => [0, 1].map(|at| unsafe { PyTuple_GetItem(pair, at) }),
        _ => return ptr::null_mut(),
    };
    let running = RUNNING.replace(to);
    if !ptr::eq(running, to) {
        let heard = if ptr::eq(running, from) { Heard::AtOnce } else { Heard::Late };
        switch(running, to, heard);
    }
    if is_none(before) {
        return none();
    }
    // SAFETY: the interpreter's lock is held. greenlet handles an error of the program's function.
    unsafe { PyObject_CallFunctionObjArgs(before, event, pair, ptr::null_mut::<PyObject>()) }
}
