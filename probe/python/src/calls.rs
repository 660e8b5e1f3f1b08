//! Measures the calls of functions that the interpreter reports: through `sys.monitoring` from
//! Python 3.12 on, and through its profile hook before.

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::Relaxed};

use pfp::Point;
use pfp::stack;
use pyo3_ffi::{
    Py_False, Py_None, Py_True, Py_ssize_t, PyErr_Clear, PyErr_ExceptionMatches, PyErr_Occurred,
    PyErr_WriteUnraisable, PyExc_MemoryError, PyFrame_GetCode, PyFrameObject, PyLong_AsLong,
    PyObject, PyObject_CallFunctionObjArgs, PyTuple_GetItem, PyTuple_Size,
};

use crate::greenlets;
use crate::living::Living;
use crate::object::{ErrorClass, Owned, fail, none, shared, text};
use crate::places;

/// A function, identified by its code object.
struct Function {
    /// Address of the code object, which identifies the function's regions on a thread.
    owner: usize,
    /// Point of the function; `None` if it is not measured.
    point: Option<&'static Point>,
    /// Whether the program has given the function its name, or excluded it from measuring.
    is_named: bool,
    /// Whether the interpreter was asked to stop the function's events.
    is_disabled: Cell<bool>,
}

static ALL: Living<Function> = Living::new(forget);

unsafe extern "C" fn forget(address: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    ALL.forget(address);
    none()
}

static DECIDES: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());
static DISABLES: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());
/// Function that starts the watcher, a thread that checks whether points were switched on again.
static STARTS_WATCHER: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());
/// Whether the interpreter was asked to stop the events of any function. The watcher runs while
/// this is set, since the point of such a function may be switched on again.
static IS_ANY_OFF: AtomicBool = AtomicBool::new(false);

impl Function {
    /// The function of a code object. For a new one, the package's Python code decides whether it
    /// is measured.
    #[inline]
    fn of<'a>(code: *mut PyObject) -> Option<&'a Self> {
        Self::known(code).or_else(|| Self::add(code, decided(code), false))
    }

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
        let function = Self { owner: code.addr(), point, is_named, is_disabled: Cell::new(false) };
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

/// Asks Python whether to measure a function.
#[cold]
fn decided(code: *mut PyObject) -> Option<&'static Point> {
    let point = decide(code);
    // An error in that decision is not the program's, so it is reported and cleared. A lack of
    // memory only counts as a refusal.
    // SAFETY: the interpreter's lock is held.
    unsafe {
        if !PyErr_Occurred().is_null() {
            match PyErr_ExceptionMatches(PyExc_MemoryError) {
                0 => PyErr_WriteUnraisable(DECIDES.load(Relaxed)),
                _ => pfp::c::count_refusal(),
            }
            PyErr_Clear();
        }
    }
    point
}

/// Asks Python for name, file and line. `None` if the function is not measured.
fn decide(code: *mut PyObject) -> Option<&'static Point> {
    let decides = DECIDES.load(Relaxed);
    if decides.is_null() {
        return None;
    }
    // SAFETY: the interpreter's lock is held, and `code` and `decides` are live objects.
    unsafe {
        let end = ptr::null_mut::<PyObject>();
        let found = Owned::take(PyObject_CallFunctionObjArgs(decides, code, end))?;
        if ptr::eq(found.get(), Py_None()) {
            return None;
        }
        let part = |at: Py_ssize_t| PyTuple_GetItem(found.get(), at);
        let (name, file) = (text(part(0), "a name")?, text(part(1), "a file")?);
        places::point(name, file, PyLong_AsLong(part(2)).max(0) as u32)
    }
}

/// Returns the result with which a callback makes the interpreter stop this event of this function,
/// and records that the events are stopped.
#[cold]
fn disable_event(function: Option<&Function>) -> *mut PyObject {
    if let Some(function) = function.filter(|function| function.point.is_some()) {
        function.is_disabled.set(true);
        if !IS_ANY_OFF.swap(true, Relaxed) {
            start_watcher();
        }
    }
    let disables = DISABLES.load(Relaxed);
    if disables.is_null() { none() } else { shared(disables) }
}

fn start_watcher() {
    let starts = STARTS_WATCHER.load(Relaxed);
    // SAFETY: the interpreter's lock is held. An error is not the program's, so it is reported and
    // cleared.
    unsafe {
        if Owned::take(PyObject_CallFunctionObjArgs(starts, ptr::null_mut::<PyObject>())).is_none()
        {
            IS_ANY_OFF.store(false, Relaxed);
            PyErr_WriteUnraisable(starts);
            PyErr_Clear();
        }
    }
}

/// Called when a function begins or resumes.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and `arguments` points to `count` live objects.
pub(crate) unsafe extern "C" fn enter(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count < 1 {
        return none();
    }
    // SAFETY: `count` is at least 1.
    let function = Function::of(unsafe { *arguments });
    match function {
        Some(known) if known.enter() => none(),
        Some(known) => {
            known.leave();
            disable_event(function)
        }
        None => disable_event(None),
    }
}

/// Called when a function resumes with an exception. The interpreter cannot stop this event for a
/// single function.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and `arguments` points to `count` live objects.
pub(crate) unsafe extern "C" fn throw(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: `count` is at least 1.
    if let Some(function) = (count > 0).then(|| Function::known(unsafe { *arguments })).flatten()
        && !function.is_disabled.get()
    {
        function.enter();
    }
    none()
}

/// Called when a function ends or is suspended.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and `arguments` points to `count` live objects.
pub(crate) unsafe extern "C" fn leave(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count < 1 {
        return none();
    }
    // SAFETY: `count` is at least 1.
    let function = Function::of(unsafe { *arguments });
    match function {
        Some(known) if known.point.is_some() => {
            known.leave();
            match known.is_disabled.get() {
                true => disable_event(function),
                false => none(),
            }
        }
        _ => disable_event(None),
    }
}

/// Called when an exception leaves a function.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and `arguments` points to `count` live objects.
pub(crate) unsafe extern "C" fn unwind(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: `count` is at least 1.
    if let Some(function) = (count > 0).then(|| Function::known(unsafe { *arguments })).flatten() {
        function.leave();
    }
    none()
}

/// Sets the Python function that decides which functions are measured.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn decide_by(
    _: *mut PyObject,
    decides: *mut PyObject,
) -> *mut PyObject {
    let before = DECIDES.swap(shared(decides), Relaxed);
    drop(Owned::take(before));
    none()
}

/// `name_function(code, name, file, line)`: makes a point of this name for a function, or excludes
/// the function if the name is None. Returns False if the function already has another name or is
/// excluded.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and `arguments` points to `count` live objects.
pub(crate) unsafe extern "C" fn name_function(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count != 4 {
        let said = "expected code, a name, a file and a line";
        return fail(ErrorClass::Type, said).unwrap_or(ptr::null_mut());
    }
    // SAFETY: `count` is 4.
    let [code, name, file, line] = std::array::from_fn(|at| unsafe { *arguments.add(at) });
    // SAFETY: the object lives as long as the interpreter.
    let name = match ptr::eq(name, unsafe { Py_None() }) {
        true => None,
        false => match text(name, "a name") {
            None => return ptr::null_mut(),
            name => name,
        },
    };
    // SAFETY: the interpreter's lock is held, and the caller keeps the object alive.
    let line = unsafe { PyLong_AsLong(line) }.max(0) as u32;
    let Some(file) = text(file, "a file") else { return ptr::null_mut() };
    let mut function = Function::known(code);
    if function.is_none() {
        let point = name.and_then(|name| places::point(name, file, line));
        if name.is_some() && point.is_none() {
            return ptr::null_mut();
        }
        function = Function::add(code, point, true);
    }
    // A function without an entry, because memory ran out, is not measured, so its name does not
    // matter.
    let is_that = function
        .is_none_or(|known| known.is_named && known.point.map(Point::name).as_deref() == name);
    // SAFETY: both objects live as long as the interpreter.
    shared(unsafe { if is_that { Py_True() } else { Py_False() } })
}

/// `set_disable((disable, start_watcher))`: sets the result with which a callback stops an event,
/// and the function that starts the watcher.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn set_disable(
    _: *mut PyObject,
    given: *mut PyObject,
) -> *mut PyObject {
    for (at, kept) in (0..).zip([&DISABLES, &STARTS_WATCHER]) {
        // SAFETY: the interpreter's lock is held; the call checks that `given` is a tuple.
        let object = unsafe { PyTuple_GetItem(given, at) };
        if object.is_null() {
            return ptr::null_mut();
        }
        drop(Owned::take(kept.swap(shared(object), Relaxed)));
    }
    none()
}

/// Returns whether a point was switched on again while the events of its function were stopped. If
/// so, the interpreter must send the events of all functions again. Functions whose points are
/// still off then stop their events again.
///
/// # Safety
///
/// The caller holds the interpreter's lock.
pub(crate) unsafe extern "C" fn is_on_again(_: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    let is_on_again = ALL.iter().any(|function| {
        function.is_disabled.get() && function.point.is_some_and(Point::is_enabled)
    });
    if is_on_again {
        forget_all();
    }
    // SAFETY: both objects live as long as the interpreter.
    shared(unsafe { if is_on_again { Py_True() } else { Py_False() } })
}

/// Marks the events of all functions as not stopped.
///
/// # Safety
///
/// The caller holds the interpreter's lock.
pub(crate) unsafe extern "C" fn forget_disabled(
    _: *mut PyObject,
    _: *mut PyObject,
) -> *mut PyObject {
    forget_all();
    none()
}

fn forget_all() {
    ALL.iter().for_each(|function| function.is_disabled.set(false));
    IS_ANY_OFF.store(false, Relaxed);
}

// ---- the profile hook, before Python 3.12 ----

type Hook = unsafe extern "C" fn(*mut PyObject, *mut PyFrameObject, c_int, *mut PyObject) -> c_int;

unsafe extern "C" {
    /// Exists in all versions, although it is not part of the stable ABI.
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
        // SAFETY: the interpreter passes a live frame and holds its lock.
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

/// Profile hook that a thread calls for its first event. Replaces itself with the native hook
/// [`on_event`].
///
/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn profile_here(
    _: *mut PyObject,
    event: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter's lock is held; `event` is checked to be a tuple of three.
    unsafe {
        PyEval_SetProfile(Some(on_event), ptr::null_mut());
        // The interpreter does not report the current call to the new hook.
        if PyTuple_Size(event) == 3 && text(PyTuple_GetItem(event, 1), "an event") == Some("call") {
            on_event(ptr::null_mut(), PyTuple_GetItem(event, 0).cast(), CALL, ptr::null_mut());
        }
    }
    none()
}
