//! Regions that a program marks: scopes by name, with or without amounts.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

use pfp::own::heap::{self, NoMemory};
use pfp::{MeteredPoint, Point, own, past, stack};
use pyo3_ffi::{
    METH_FASTCALL, METH_NOARGS, Py_EQ, Py_False, Py_TPFLAGS_DEFAULT,
    Py_TPFLAGS_DISALLOW_INSTANTIATION, Py_TYPE, Py_ssize_t, Py_tp_dealloc, Py_tp_descr_get,
    Py_tp_doc, Py_tp_methods, PyCFunction_New, PyDict_GetItemWithError, PyDict_New, PyDict_SetItem,
    PyErr_Occurred, PyEval_GetFrame, PyFloat_AsDouble, PyFrame_GetCode, PyFrame_GetLineNumber,
    PyLong_AsLong, PyLong_AsUnsignedLongLong, PyLong_Check, PyMethodDef, PyMethodDefPointer as Of,
    PyModule_AddObjectRef, PyObject, PyObject_Free, PyObject_GetAttrString,
    PyObject_RichCompareBool, PyObject_SetAttrString, PyTuple_GetItem, PyTuple_Size,
    PyType_FromSpec, PyType_GenericAlloc, PyType_Slot, PyType_Spec, PyTypeObject, descrgetfunc,
    destructor,
};

use crate::greenlets;
use crate::object::{ErrorClass, Owned, fail, lasting, no_memory, none, shared, text};
use crate::places;
use crate::{Kept, method};

/// Maximum number of amounts of a region.
const MAX_AMOUNTS: usize = 4;

/// The point of a name.
enum Named {
    Plain(&'static Point),
    /// A point with amounts, the number of amounts, and a tuple of their names. The tuple is never
    /// freed.
    MeteredPoint(&'static MeteredPoint, usize, AtomicPtr<PyObject>),
}

impl Named {
    /// The address that identifies the point's regions on a thread.
    fn owner(&'static self) -> usize {
        ptr::from_ref(self).addr()
    }

    #[inline]
    fn begin(&'static self, amounts: &[u64; MAX_AMOUNTS]) {
        greenlets::check();
        match self {
            Self::Plain(point) => stack::push_one(self.owner(), |open| open.measure(point)),
            Self::MeteredPoint(metered, count, _) => self.begin_with(metered, *count, *amounts),
        }
    }

    fn begin_with(
        &'static self,
        metered: &'static MeteredPoint,
        count: usize,
        amounts: [u64; MAX_AMOUNTS],
    ) {
        let [first, second, ..] = amounts;
        stack::push_one(self.owner(), |open| match count {
            1 | 2 => open.measure_with(metered, [first, second]),
            _ => open.measure_with(metered, amounts),
        });
    }

    #[inline]
    fn end(&'static self) {
        greenlets::check();
        if stack::pop(self.owner()).is_none() {
            pfp::c::count_mismatch();
        }
    }
}

/// A scope object in Python.
#[repr(C)]
struct Scope {
    base: PyObject,
    named: &'static Named,
    amounts: [u64; MAX_AMOUNTS],
    /// Methods that are bound to the scope; null for a scope that is not stored by name.
    bound: [*mut PyObject; 2],
}

/// Python's type of scopes.
static TYPE: AtomicPtr<PyTypeObject> = AtomicPtr::new(ptr::null_mut());
/// Dictionary of all scopes by name.
static ALL: AtomicPtr<PyObject> = AtomicPtr::new(ptr::null_mut());

static METHODS: Kept<[PyMethodDef; 3]> = Kept(UnsafeCell::new([
    method(c"__enter__", Of { PyCFunction: enter }, METH_NOARGS, c"Begins the region."),
    method(c"__exit__", Of { PyCFunctionFast: exit }, METH_FASTCALL, c"Ends the region."),
    PyMethodDef::zeroed(),
]));

/// Descriptor in place of a method of [`Scope`]. Each `with` looks up the method, and gets the
/// bound method that the scope stores, instead of a new one.
#[repr(C)]
struct Binding {
    base: PyObject,
    /// The unbound method.
    method: *mut PyObject,
    /// Index of the method in [`METHODS`].
    at: usize,
}

/// Adds the types to the module. `None`, with an error set, if the interpreter fails.
///
/// # Safety
///
/// The caller holds the interpreter's lock, passes the new module, and calls this once.
pub(crate) unsafe fn add_types(module: *mut PyObject) -> Option<()> {
    // SAFETY: the caller holds the interpreter's lock; slots and sizes match the types, and are
    // static.
    unsafe {
        let scope = add_type::<Scope>(
            c"pfp.Scope",
            [
                (Py_tp_doc, c"A region of the program, for `with`.".as_ptr() as _),
                (Py_tp_methods, METHODS.0.get().cast()),
                (Py_tp_dealloc, free as destructor as _),
            ],
        )?;
        let binding = add_type::<Binding>(
            c"pfp.Binding",
            [
                (Py_tp_doc, c"A method of scopes.".as_ptr() as _),
                (Py_tp_descr_get, bound as descrgetfunc as _),
                (Py_tp_dealloc, free as destructor as _),
            ],
        )?;
        for (at, name) in [c"__enter__", c"__exit__"].into_iter().enumerate() {
            let method = Owned::take(PyObject_GetAttrString(scope.get(), name.as_ptr()))?;
            let made = Owned::take(PyType_GenericAlloc(binding.get().cast(), 0))?;
            let its = made.get().cast::<Binding>();
            (&raw mut (*its).method).write(method.give());
            (&raw mut (*its).at).write(at);
            if PyObject_SetAttrString(scope.get(), name.as_ptr(), made.get()) < 0 {
                return None;
            }
        }
        if PyModule_AddObjectRef(module, c"Scope".as_ptr(), scope.get()) < 0 {
            return None;
        }
        TYPE.store(scope.give().cast(), Relaxed);
        ALL.store(Owned::take(PyDict_New())?.give(), Relaxed);
    }
    Some(())
}

/// Creates a type whose objects only this library creates.
///
/// # Safety
///
/// The caller holds the interpreter's lock. Each slot has a value of the slot's kind, which lives
/// as long as the library.
unsafe fn add_type<T>(name: &'static CStr, slots: [(c_int, *mut c_void); 3]) -> Option<Owned> {
    let [one, two, three] = slots.map(|(slot, pfunc)| PyType_Slot { slot, pfunc });
    let mut slots = [one, two, three, PyType_Slot { slot: 0, pfunc: ptr::null_mut() }];
    let mut spec = PyType_Spec {
        name: name.as_ptr(),
        basicsize: size_of::<T>() as c_int,
        itemsize: 0,
        flags: (Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION) as _,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the caller holds the interpreter's lock, and its slots are valid; `spec` outlives the
    // call.
    Owned::take(unsafe { PyType_FromSpec(&raw mut spec) })
}

/// Returns a scope's bound method, or the unbound method without a scope.
unsafe extern "C" fn bound(
    binding: *mut PyObject,
    object: *mut PyObject,
    _: *mut PyObject,
) -> *mut PyObject {
    // SAFETY: the interpreter passes an initialized `Binding`, and null or a live object.
    unsafe {
        let Binding { method, at, .. } = *binding.cast::<Binding>();
        if object.is_null() || !ptr::eq(Py_TYPE(object), TYPE.load(Relaxed)) {
            return shared(method);
        }
        let kept = (*object.cast::<Scope>()).bound[at];
        if kept.is_null() { bind(object, at) } else { shared(kept) }
    }
}

/// Binds a method to a scope.
///
/// # Safety
///
/// The caller holds the interpreter's lock, `scope` is a scope, and `at` is an index of
/// [`METHODS`].
unsafe fn bind(scope: *mut PyObject, at: usize) -> *mut PyObject {
    // SAFETY: the methods are static, and the caller passes an index of them and a live scope.
    unsafe { PyCFunction_New(METHODS.0.get().cast::<PyMethodDef>().add(at), scope) }
}

unsafe extern "C" fn free(object: *mut PyObject) {
    // SAFETY: the object has no references left; its type is on the heap, and each object has a
    // reference to it.
    unsafe {
        let its_type = Py_TYPE(object);
        PyObject_Free(object.cast());
        drop(Owned::take(its_type.cast()));
    }
}

/// Creates an object for a region.
fn new(named: &'static Named, amounts: [u64; MAX_AMOUNTS]) -> Option<Owned> {
    // SAFETY: `add_types` has created the type, and the object is initialized before it is shared.
    unsafe {
        let made = Owned::take(PyType_GenericAlloc(TYPE.load(Relaxed), 0))?;
        let scope = made.get().cast::<Scope>();
        (&raw mut (*scope).named).write(named);
        (&raw mut (*scope).amounts).write(amounts);
        Some(made)
    }
}

/// Creates an object that is never freed, because it and its bound methods refer to each other.
fn kept(named: &'static Named) -> Option<Owned> {
    let made = new(named, [0; MAX_AMOUNTS])?;
    for at in 0..2 {
        // SAFETY: `made` is a live scope, which is not shared yet.
        unsafe {
            let method = Owned::take(bind(made.get(), at))?;
            (&raw mut (*made.get().cast::<Scope>()).bound[at]).write(method.give());
        }
    }
    Some(made)
}

/// The scope for an object, which is a scope or a scope's name.
#[inline]
fn of<'a>(object: *mut PyObject) -> Option<&'a Scope> {
    // SAFETY: the caller keeps the object alive; an object of this type is an initialized scope.
    unsafe {
        if ptr::eq(Py_TYPE(object), TYPE.load(Relaxed)) {
            return Some(&*object.cast::<Scope>());
        }
    }
    let found = by_name(object, ptr::null_mut())?;
    // The dictionary keeps the scope alive.
    // SAFETY: the dictionary contains only scopes.
    Some(unsafe { &*found.cast::<Scope>() })
}

/// The scope of a name, created if it is new. The dictionary owns the returned reference.
#[inline]
fn by_name(name: *mut PyObject, names: *mut PyObject) -> Option<*mut PyObject> {
    // SAFETY: the interpreter's lock is held; `add_types` has created the dictionary.
    let found = unsafe { PyDict_GetItemWithError(ALL.load(Relaxed), name) };
    if found.is_null() { make(name, names, None) } else { Some(found) }
}

/// Creates the scope of a name. Its place is `place`, or else the line of the program that called.
#[cold]
fn make(
    name: *mut PyObject,
    names: *mut PyObject,
    place: Option<(&str, u32)>,
) -> Option<*mut PyObject> {
    // SAFETY: the interpreter's lock is held.
    if !unsafe { PyErr_Occurred() }.is_null() {
        return None;
    }
    let said = text(name, "a name")?;
    // This reference keeps the file's text alive.
    let (of_caller, its_line) = if place.is_none() { caller() } else { (None, 0) };
    let (file, line) = place.unwrap_or_else(|| {
        let file = of_caller.as_ref().and_then(|file| text(file.get(), "a file"));
        (file.unwrap_or_default(), its_line)
    });
    let named = if names.is_null() {
        let point = places::point(said, file, line)?;
        if let Some(known) = scope_of(name, point) {
            return Some(known);
        }
        Named::Plain(point)
    } else {
        // SAFETY: the interpreter's lock is held; `names` is a tuple of the interpreter.
        let count = unsafe { PyTuple_Size(names) } as usize;
        if count > MAX_AMOUNTS {
            return fail(
                ErrorClass::Type,
                format_args!("expected at most {MAX_AMOUNTS} amounts, found {count}"),
            );
        }
        let mut all = [""; MAX_AMOUNTS];
        for (at, name) in all.iter_mut().enumerate().take(count) {
            // SAFETY: the index is less than the tuple's size.
            *name = text(unsafe { PyTuple_GetItem(names, at as Py_ssize_t) }, "a name")?;
        }
        let metered = metered(said, file, line, &all[..count]).ok().or_else(no_memory)?;
        Named::MeteredPoint(metered, count, AtomicPtr::new(shared(names)))
    };
    let made = kept(Box::leak(heap::boxed(named).ok().or_else(no_memory)?))?;
    // SAFETY: the interpreter's lock is held, and `ALL` is a dictionary, which takes references of
    // its own.
    unsafe {
        let all = ALL.load(Relaxed);
        if PyDict_SetItem(all, name, made.get()) < 0 {
            return None;
        }
        // The interpreter may have released its lock in between, so another thread may have stored
        // a scope of this name.
        let kept = PyDict_GetItemWithError(all, name);
        (!kept.is_null()).then_some(kept)
    }
}

/// Creates a point with amounts, which is never freed.
fn metered(
    name: &str,
    file: &str,
    line: u32,
    amounts: &[&str],
) -> Result<&'static MeteredPoint, NoMemory> {
    let room = own::room::<MeteredPoint>().ok_or(NoMemory)?;
    let mut all = heap::collect(amounts.iter().map(|_| ""))?;
    let (name, file) = (heap::text(name)?, heap::text(&places::absolute(file)?)?);
    let mut texts = [const { String::new() }; MAX_AMOUNTS];
    for (to, amount) in texts.iter_mut().zip(amounts) {
        *to = heap::text(amount)?;
    }
    for (to, text) in all.iter_mut().zip(texts) {
        *to = text.leak();
    }
    let point = Point::at(name.leak(), file.leak(), line);
    Ok(Box::leak(Box::write(room, past::metered(point, all.leak()))))
}

/// The scope of a name, if it measures this point.
fn scope_of(name: *mut PyObject, point: &'static Point) -> Option<*mut PyObject> {
    // SAFETY: `add_types` has created the dictionary, which contains only scopes.
    unsafe {
        let known = PyDict_GetItemWithError(ALL.load(Relaxed), name);
        let scope = known.cast::<Scope>().as_ref()?;
        matches!(scope.named, Named::Plain(its) if ptr::eq(*its, point)).then_some(known)
    }
}

/// File and line of the program that is running. The file is `None` if it is unknown.
fn caller() -> (Option<Owned>, u32) {
    // SAFETY: the interpreter's lock is held, and the frame stays alive during this call.
    unsafe {
        let frame = PyEval_GetFrame();
        if frame.is_null() {
            return (None, 0);
        }
        let line = PyFrame_GetLineNumber(frame).max(0) as u32;
        let code = Owned::take(PyFrame_GetCode(frame).cast());
        let file = code.and_then(|code| {
            Owned::take(PyObject_GetAttrString(code.get(), c"co_filename".as_ptr()))
        });
        (file, line)
    }
}

/// `scope(name, **amounts)`.
///
/// # Safety
///
/// The caller holds the interpreter's lock. `arguments` points to `count` live objects, followed by
/// one for each element of the tuple `names`, which may be null.
pub(crate) unsafe extern "C" fn scope(
    _: *mut PyObject,
    arguments: *const *mut PyObject,
    count: Py_ssize_t,
    names: *mut PyObject,
) -> *mut PyObject {
    if count != 1 {
        let said =
            format_args!("expected one name and amounts by keyword, found {count} arguments");
        return fail(ErrorClass::Type, said).unwrap_or(ptr::null_mut());
    }
    // SAFETY: `count` is 1, and one value for each name follows.
    let (name, amounts) = unsafe { (*arguments, arguments.add(1)) };
    let found = match names.is_null() {
        true => by_name(name, names).map(shared),
        // SAFETY: there are as many values as names.
        false => unsafe { with_amounts(name, names, amounts) },
    };
    found.unwrap_or(ptr::null_mut())
}

/// Creates a scope with these amounts.
///
/// # Safety
///
/// `values` points to as many live objects as `names` has elements.
unsafe fn with_amounts(
    name: *mut PyObject,
    names: *mut PyObject,
    values: *const *mut PyObject,
) -> Option<*mut PyObject> {
    let whole = by_name(name, names)?;
    // SAFETY: the dictionary contains only scopes.
    let named = unsafe { &*whole.cast::<Scope>() }.named;
    let Named::MeteredPoint(_, count, known) = named else {
        return fail(ErrorClass::Value, "expected no amounts: the scope had none before");
    };
    let known = known.load(Relaxed);
    // SAFETY: the interpreter's lock is held; both are live tuples.
    let is_same =
        ptr::eq(known, names) || unsafe { PyObject_RichCompareBool(known, names, Py_EQ) } == 1;
    if !is_same {
        let said = "expected the amounts that the scope had before, in that order";
        return fail(ErrorClass::Value, said);
    }
    let mut amounts = [0; MAX_AMOUNTS];
    for (at, amount) in amounts.iter_mut().enumerate().take(*count) {
        // SAFETY: the caller passes as many values as names, and their number is `count`.
        *amount = unsafe { number(*values.add(at)) }?;
    }
    new(named, amounts).map(Owned::give)
}

/// Converts an amount to the nearest whole number.
pub(crate) unsafe fn number(value: *mut PyObject) -> Option<u64> {
    // SAFETY: the interpreter's lock is held, and the caller keeps the object alive.
    unsafe {
        let number = match PyLong_Check(value) {
            0 => PyFloat_AsDouble(value).round() as u64,
            _ => PyLong_AsUnsignedLongLong(value),
        };
        PyErr_Occurred().is_null().then_some(number)
    }
}

/// `scope_at(name, file, line)`.
///
/// # Safety
///
/// The caller holds the interpreter's lock, and `arguments` points to `count` live objects.
pub(crate) unsafe extern "C" fn scope_at(
    _: *mut PyObject,
    arguments: *mut *mut PyObject,
    count: Py_ssize_t,
) -> *mut PyObject {
    if count != 3 {
        return fail(ErrorClass::Type, "expected a name, a file and a line")
            .unwrap_or(ptr::null_mut());
    }
    // SAFETY: `count` is 3.
    let [name, file, line] = unsafe { [*arguments, *arguments.add(1), *arguments.add(2)] };
    let make = || {
        let file = text(file, "a file")?;
        // SAFETY: the interpreter's lock is held, and the caller keeps the object alive.
        let line = unsafe { PyLong_AsLong(line) }.max(0) as u32;
        make(name, ptr::null_mut(), Some((file, line))).map(shared)
    };
    make().unwrap_or(ptr::null_mut())
}

/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn begin(_: *mut PyObject, object: *mut PyObject) -> *mut PyObject {
    let Some(scope) = of(object) else { return ptr::null_mut() };
    scope.named.begin(&scope.amounts);
    none()
}

/// # Safety
///
/// The caller holds the interpreter's lock, and passes a live object.
pub(crate) unsafe extern "C" fn end(_: *mut PyObject, object: *mut PyObject) -> *mut PyObject {
    let Some(scope) = of(object) else { return ptr::null_mut() };
    scope.named.end();
    none()
}

unsafe extern "C" fn enter(object: *mut PyObject, _: *mut PyObject) -> *mut PyObject {
    // SAFETY: the interpreter calls this method only for objects of its type, which are scopes.
    let scope = unsafe { &*object.cast::<Scope>() };
    scope.named.begin(&scope.amounts);
    shared(object)
}

unsafe extern "C" fn exit(
    object: *mut PyObject,
    _: *mut *mut PyObject,
    _: Py_ssize_t,
) -> *mut PyObject {
    // SAFETY: the interpreter calls this method only for objects of its type, which are scopes.
    unsafe { &*object.cast::<Scope>() }.named.end();
    // False makes the interpreter continue with the exception, if any.
    // SAFETY: the object lives as long as the interpreter.
    lasting(unsafe { Py_False() })
}
