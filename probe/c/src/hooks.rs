//! Execution objects of a user-level scheduler, by handle.
//!
//! A handle is any pointer with which the program identifies an object. A hash table leads from the
//! handle to the object's context. Hooks may read the table in signal handlers at any time:
//!
//! ```text
//! hash of the handle --> slot | handle | kind | context |
//!                        next | ...                     |   until one is empty
//! ```
//!
//! Creating and deleting objects takes a lock. The context of a slot is created once and renewed
//! for the slot's next object, so there are never more contexts than slots.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use probe::ExecutionContext;

use crate::lock::{Held, Mutex};
use crate::original::created;
use crate::status::Status;

/// Maximum number of objects at a time: `PFP_OBJECTS` of `pfp.h`.
const OBJECTS: usize = 1024;
/// Twice as many slots as objects, so that probe sequences stay short.
const SLOTS: usize = 2 * OBJECTS;

/// Handle of a slot whose object was deleted. Probe sequences continue past it.
const DELETED: *mut c_void = ptr::without_provenance_mut(1);

/// The kind of object that a handle identifies: a task, a software or a hardware interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Kind {
    Task = 1,
    Swi = 2,
    Hwi = 3,
}

struct Slot {
    handle: AtomicPtr<c_void>,
    kind: AtomicU32,
    /// Never freed, since a signal handler may still use it.
    context: AtomicPtr<ExecutionContext>,
}

static SLOTS_OF_OBJECTS: [Slot; SLOTS] = [const {
    Slot {
        handle: AtomicPtr::new(ptr::null_mut()),
        kind: AtomicU32::new(0),
        context: AtomicPtr::new(ptr::null_mut()),
    }
}; SLOTS];

/// Number of objects; locked while an object is created or deleted.
static COUNT: Mutex<usize> = Mutex::new(0);

/// Locks the number of objects. A time-out counts as a mismatch.
fn count() -> Result<Held<'static, usize>, Status> {
    COUNT.hold().ok_or_else(|| {
        probe::c::count_mismatch();
        Status::Busy
    })
}

/// Probe sequence of a handle.
fn probe_sequence(handle: *mut c_void) -> impl Iterator<Item = &'static Slot> {
    // Fibonacci hashing, because addresses have similar low bits.
    let hash = (handle.addr() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let first = (hash >> 32) as usize;
    (0..SLOTS).map(move |step| &SLOTS_OF_OBJECTS[(first + step) % SLOTS])
}

fn slot(handle: *mut c_void) -> Option<&'static Slot> {
    // Acquire pairs with the release in `create`, which publishes kind and context.
    probe_sequence(handle)
        .map(|slot| (slot, slot.handle.load(Acquire)))
        .take_while(|(_, found)| !found.is_null())
        .find(|&(_, found)| found == handle)
        .map(|(slot, _)| slot)
}

impl Slot {
    fn context(&self) -> Option<&'static ExecutionContext> {
        // SAFETY: null, or made from a box that is never freed.
        unsafe { self.context.load(Acquire).as_ref() }
    }
}

/// The context of an object of this kind.
fn object(handle: *mut c_void, kind: Kind) -> Result<&'static ExecutionContext, Status> {
    created()?;
    if handle.is_null() {
        return Err(Status::Null);
    }
    slot(handle)
        .filter(|slot| slot.kind.load(Relaxed) == kind as u32)
        .and_then(Slot::context)
        .ok_or_else(refused)
}

/// Counts a mismatch, and returns the status of a call with an unsuitable handle.
fn refused() -> Status {
    probe::c::count_mismatch();
    Status::Handle
}

/// Whether a handle names the object that the calling thread runs.
pub(crate) fn is_current(handle: *mut c_void) -> bool {
    slot(handle).and_then(Slot::context).is_some_and(probe::c::is_current)
}

fn create(handle: *mut c_void, kind: Kind) -> Result<(), Status> {
    created()?;
    if handle.is_null() {
        return Err(Status::Null);
    }
    if handle == DELETED {
        return Err(refused());
    }
    let mut count = count()?;
    if let Some(known) = slot(handle) {
        // A hook may report an object again, in which case the object stays as it is.
        let same = known.kind.load(Relaxed) == kind as u32;
        return if same { Ok(()) } else { Err(refused()) };
    }
    if *count == OBJECTS {
        probe::c::count_mismatch();
        return Err(Status::Full);
    }
    let free = |slot: &&Slot| {
        let handle = slot.handle.load(Relaxed);
        // The slot is not free while a thread still runs the context of the deleted object.
        (handle.is_null() || handle == DELETED) && slot.context().is_none_or(probe::c::renew)
    };
    let slot = probe_sequence(handle).find(free).ok_or(Status::Full)?;
    if slot.context().is_none() {
        let context = probe::c::new_context().ok_or(Status::NoSpace)?;
        slot.context.store(ptr::from_ref(context).cast_mut(), Release);
    }
    slot.kind.store(kind as u32, Relaxed);
    // Release pairs with the acquire in `slot`.
    slot.handle.store(handle, Release);
    *count += 1;
    Ok(())
}

/// Deletes an object. Its open regions are not measured.
fn delete(handle: *mut c_void, kind: Kind) -> Result<(), Status> {
    let mut count = count()?;
    // Looked up under the lock, so that no other thread deletes the object.
    let context = object(handle, kind)?;
    // Fails if the object is running.
    if !probe::c::renew(context) {
        return Err(refused());
    }
    let slot = slot(handle).ok_or(Status::Handle)?;
    slot.handle.store(DELETED, Release);
    *count -= 1;
    Ok(())
}

/// Status of an operation on a context.
fn done(fits: bool) -> Result<(), Status> {
    // An operation that fails has already counted a mismatch.
    if fits { Ok(()) } else { Err(Status::Handle) }
}

fn code(result: Result<(), Status>) -> c_int {
    Status::from(result).code()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpTaskRegister(_hookset: c_int) -> c_int {
    code(created())
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpTaskCreate(task: *mut c_void) -> c_int {
    code(create(task, Kind::Task))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpTaskDelete(task: *mut c_void) -> c_int {
    code(delete(task, Kind::Task))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpTaskReady(task: *mut c_void) -> c_int {
    code(object(task, Kind::Task).map(|_| ()))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpTaskSwitch(prev: *mut c_void, next: *mut c_void) -> c_int {
    // Null means the thread's own context, in which the scheduler runs.
    let context = |task: *mut c_void| {
        if task.is_null() { created().map(|()| None) } else { object(task, Kind::Task).map(Some) }
    };
    code(context(prev).and_then(|prev| done(probe::c::switch(prev, context(next)?))))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSwiRegister(_hookset: c_int) -> c_int {
    code(created())
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSwiCreate(swi: *mut c_void) -> c_int {
    code(create(swi, Kind::Swi))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSwiDelete(swi: *mut c_void) -> c_int {
    code(delete(swi, Kind::Swi))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSwiReady(swi: *mut c_void) -> c_int {
    code(object(swi, Kind::Swi).map(|_| ()))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSwiBegin(swi: *mut c_void) -> c_int {
    code(object(swi, Kind::Swi).and_then(|swi| done(probe::c::enter(swi))))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSwiEnd(swi: *mut c_void) -> c_int {
    code(object(swi, Kind::Swi).and_then(|swi| done(probe::c::leave(swi))))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpHwiRegister(_hookset: c_int) -> c_int {
    code(created())
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpHwiCreate(hwi: *mut c_void) -> c_int {
    code(create(hwi, Kind::Hwi))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpHwiDelete(hwi: *mut c_void) -> c_int {
    code(delete(hwi, Kind::Hwi))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpHwiReady(hwi: *mut c_void) -> c_int {
    code(object(hwi, Kind::Hwi).map(|_| ()))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpHwiBegin(hwi: *mut c_void) -> c_int {
    code(object(hwi, Kind::Hwi).and_then(|hwi| done(probe::c::enter(hwi))))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpHwiEnd(hwi: *mut c_void) -> c_int {
    code(object(hwi, Kind::Hwi).and_then(|hwi| done(probe::c::leave(hwi))))
}
