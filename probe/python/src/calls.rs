//! Measures the calls of functions that the interpreter reports: through `sys.monitoring` from
//! Python 3.12 on, and through its profile hook before.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use pfp::Point;
use pfp::stack;
use pyo3_ffi::{
    Py_False, Py_None, Py_True, Py_ssize_t, PyErr_Clear, PyErr_Occurred, PyErr_WriteUnraisable,
    PyFrame_GetCode, PyFrameObject, PyLong_AsLong, PyObject, PyObject_CallFunctionObjArgs,
    PyTuple_GetItem, PyTuple_Size,
};

use crate::greenlets;
use crate::living::Living;
use crate::object::{Error, Owned, fail, none, shared, text};
use crate::places;

/// A function, identified by its code object.
struct Function {
    /// The address of its code, which identifies its regions on a thread.
    owner: usize,
    /// None if it is not to be measured.
    point: Option<&'static Point>,
    /// Whether the program has given the function its name, or excluded it from measuring.
    is_named: bool,
    /// Whether the interpreter was asked to stop the function's events.
    is_told_off: Cell<bool>,
}

static ALL: Living<Function> = Living::new(forget);

unsafe extern "C" fn forget(address: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    ALL.forget(address);
    none()
}

static DECIDES: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());
static DISABLES: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());
/// Starts the thread that watches for points that are on again.
static STARTS_WATCHER: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());
/// Whether the interpreter was asked to stop the events of any function. The watcher runs while it
/// is set, since the function's point may be switched on again.
static IS_ANY_OFF: AtomicBool = AtomicBool::new(false);

impl Function {
    /// The function of a code object. Python is asked about a new one.
    #[inline]
    fn of<'a>(code: *mut PyObject) -> Option<&'a Self> {
        Self::known(code).or_else(|| Self::add(code, decided(code), false))
    }

    /// The function, if it is known.
    #[inline]
    fn known<'a>(code: *mut PyObject) -> Option<&'a Self> {
        ALL.get(code)
    }

    #[cold]
    fn add<'a>(
        code: *mut PyObject,
        point: Option<&'static Point>,
        is_named: bool,
    ) -> Option<&'a Self> {
        let function = Self { owner: code.addr(), point, is_named, is_told_off: Cell::new(false) };
        let added = ALL.insert(code, function);
        if added.is_none() {
            pfp::c::count_refusal();
            // SAFETY: the interpreter's lock is held. The error is not the program's, so it is
            // cleared.
            unsafe { PyErr_Clear() };
        }
        added
    }

    #[inline]
    fn enter(&self) -> bool {
        let Some(point) = self.point else { return false };
        greenlets::check();
        let mut is_on = true;
        stack::push_one(self.owner, |open| {
            open.measure(point);
            is_on = open.is_measured();
        });
        is_on || pfp::c::may_measure(point)
    }

    #[inline]
    fn leave(&self) {
        if self.point.is_some() {
            greenlets::check();
            stack::pop(self.owner);
        }
    }
}

/// Asks Python whether a function is to be a point.
#[cold]
fn decided(code: *mut PyObject) -> Option<&'static Point> {
    let point = decide(code);
    // What went wrong there is not the program's.
    // SAFETY: plain questions.
    unsafe {
        if !PyErr_Occurred().is_null() {
            PyErr_WriteUnraisable(DECIDES.load(Relaxed));
            PyErr_Clear();
        }
    }
    point
}

/// Asks Python for name, file and line. None if the function is not to be measured.
fn decide(code: *mut PyObject) -> Option<&'static Point> {
    let decides = DECIDES.load(Relaxed);
    if decides.is_null() {
        return None;
    }
    // SAFETY: objects of the interpreter's, with its lock.
    unsafe {
        let end = ptr::null_mut::<PyObject>();
        let found = Owned::take(PyObject_CallFunctionObjArgs(decides, code, end))?;
        if ptr::eq(found.get(), Py_None()) {
            return None;
        }
        let part = |at: Py_ssize_t| PyTuple_GetItem(found.get(), at);
        let (name, file) = (text(part(0), "a name")?, text(part(1), "a file")?);
        Some(places::point(name, file, PyLong_AsLong(part(2)).max(0) as u32))
    }
}

/// Tells the interpreter that this event of this function is not asked for.
#[cold]
fn told_off(function: Option<&Function>) -> *mut PyObject {
    if let Some(function) = function.filter(|function| function.point.is_some()) {
        function.is_told_off.set(true);
        if !IS_ANY_OFF.swap(true, Relaxed) {
            start_watcher();
        }
    }
    let disables = DISABLES.load(Relaxed);
    if disables.is_null() { none() } else { shared(disables) }
}

fn start_watcher() {
    let starts = STARTS_WATCHER.load(Relaxed);
    // SAFETY: objects of the interpreter's, with its lock. An error is nobody's to handle.
    unsafe {
        if Owned::take(PyObject_CallFunctionObjArgs(starts, ptr::null_mut::<PyObject>())).is_none()
        {
            IS_ANY_OFF.store(false, Relaxed);
            PyErr_WriteUnraisable(starts);
            PyErr_Clear();
        }
    }
}

/// A function begins, or goes on.
pub(crate) unsafe extern "C" fn enter(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count < 1 {
        return none();
    }
    // SAFETY: there is one.
    let function = Function::of(unsafe { *arguments });
    match function {
        Some(known) if known.enter() => none(),
        Some(known) => {
            known.leave();
            told_off(function)
        }
        None => told_off(None),
    }
}

/// A function goes on with an exception. The interpreter does not stop telling of this one.
pub(crate) unsafe extern "C" fn throw(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: there is one.
    if let Some(function) = (count > 0).then(|| Function::known(unsafe { *arguments })).flatten()
        && !function.is_told_off.get()
    {
        function.enter();
    }
    none()
}

/// A function ends, or waits.
pub(crate) unsafe extern "C" fn leave(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count < 1 {
        return none();
    }
    // SAFETY: there is one.
    let function = Function::of(unsafe { *arguments });
    match function {
        Some(known) if known.point.is_some() => {
            known.leave();
            match known.is_told_off.get() {
                true => told_off(function),
                false => none(),
            }
        }
        _ => told_off(None),
    }
}

/// A function is left by an exception.
pub(crate) unsafe extern "C" fn unwind(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: there is one.
    if let Some(function) = (count > 0).then(|| Function::known(unsafe { *arguments })).flatten() {
        function.leave();
    }
    none()
}

/// Takes the function that decides what is measured.
pub(crate) unsafe extern "C" fn decide_by(
    _: *mut PyObject,
    decides: *mut PyObject,
) -> *mut PyObject {
    let before = DECIDES.swap(shared(decides), Relaxed);
    drop(Owned::take(before));
    none()
}

/// `name_function(code, name, file, line)`: makes a function a point of this name, or leaves it out
/// if the name is None. False if the function is known already and has another name, or none.
pub(crate) unsafe extern "C" fn name_function(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count != 4 {
        let said = "expected code, a name, a file and a line";
        return fail(Error::Type, said).unwrap_or(ptr::null_mut());
    }
    // SAFETY: there are four.
    let [code, name, file, line] = std::array::from_fn(|at| unsafe { *arguments.add(at) });
    // SAFETY: it is always there.
    let name = match ptr::eq(name, unsafe { Py_None() }) {
        true => None,
        false => match text(name, "a name") {
            None => return ptr::null_mut(),
            name => name,
        },
    };
    // SAFETY: an object of the caller's.
    let line = unsafe { PyLong_AsLong(line) }.max(0) as u32;
    let Some(file) = text(file, "a file") else { return ptr::null_mut() };
    let function = Function::known(code).or_else(|| {
        let point = name.map(|name| places::point(name, file, line));
        Function::add(code, point, true)
    });
    // A function without an entry, for lack of memory, is not measured under any name.
    let is_that = function
        .is_none_or(|known| known.is_named && known.point.map(Point::name).as_deref() == name);
    // SAFETY: they are always there.
    shared(unsafe { if is_that { Py_True() } else { Py_False() } })
}

/// Takes what a callback answers that is not to be called again, and what starts the watcher.
pub(crate) unsafe extern "C" fn tell_off_by(
    _: *mut PyObject,
    given: *mut PyObject,
) -> *mut PyObject {
    for (at, kept) in (0..).zip([&DISABLES, &STARTS_WATCHER]) {
        // SAFETY: a tuple of the interpreter's.
        let object = unsafe { PyTuple_GetItem(given, at) };
        if object.is_null() {
            return ptr::null_mut();
        }
        drop(Owned::take(kept.swap(shared(object), Relaxed)));
    }
    none()
}

/// Returns whether a point was switched on again whose function's events were stopped. If so, the
/// interpreter is to send the events of all functions again, and each one whose point is still off
/// stops its events again.
pub(crate) unsafe extern "C" fn is_on_again(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let is_on_again = ALL.iter().any(|function| {
        function.is_told_off.get() && function.point.is_some_and(Point::is_enabled)
    });
    if is_on_again {
        forget_all();
    }
    // SAFETY: they are always there.
    shared(unsafe { if is_on_again { Py_True() } else { Py_False() } })
}

/// Marks all functions as reported.
pub(crate) unsafe extern "C" fn forget_told_off(
    _: *mut PyObject,
    _: *mut PyObject,
) -> *mut PyObject {
    forget_all();
    none()
}

fn forget_all() {
    ALL.iter().for_each(|function| function.is_told_off.set(false));
    IS_ANY_OFF.store(false, Relaxed);
}

// ---- the profile hook, before Python 3.12 ----

type Hook = unsafe extern "C" fn(*mut PyObject, *mut PyFrameObject, c_int, *mut PyObject) -> c_int;

unsafe extern "C" {
    /// Not of the stable interface, and there in all versions.
    fn PyEval_SetProfile(hook: Option<Hook>, object: *mut PyObject);
}

const CALL: c_int = 0;
const RETURN: c_int = 3;

unsafe extern "C" fn on_event(
    _: *mut PyObject,
    frame: *mut PyFrameObject,
    what: c_int,
    _: *mut PyObject,
) -> c_int {
    if what == CALL || what == RETURN {
        // SAFETY: the interpreter hands over a frame, with its lock.
        let code = unsafe { PyFrame_GetCode(frame) }.cast::<PyObject>();
        if let Some(function) = Function::of(code) {
            match what {
                CALL => drop(function.enter()),
                _ => function.leave(),
            }
        }
        drop(Owned::take(code));
    }
    0
}

/// Python's own hook of a thread, for its first event: the library's takes its place.
pub(crate) unsafe extern "C" fn profile_here(
    _: *mut PyObject,
    event: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: with the interpreter's lock; the arguments are a tuple of three.
    unsafe {
        PyEval_SetProfile(Some(on_event), ptr::null_mut());
        // The call that this came with is not told of again.
        if PyTuple_Size(event) == 3 && text(PyTuple_GetItem(event, 1), "an event") == Some("call") {
            on_event(ptr::null_mut(), PyTuple_GetItem(event, 0).cast(), CALL, ptr::null_mut());
        }
    }
    none()
}
