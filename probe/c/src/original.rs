//! Points by number, as in the original interface.

use std::ffi::{c_char, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use probe::{NUMERIC, Point};

use crate::status::Status;
use crate::{hooks, stats, text};

/// Whether `pfpCreate` was called. Relaxed order is enough: until a thread sees the store, its
/// calls return `NotCreated`.
static CREATED: AtomicBool = AtomicBool::new(false);

#[inline(always)]
pub(crate) fn created() -> Result<(), Status> {
    if CREATED.load(Relaxed) { Ok(()) } else { Err(Status::NotCreated) }
}

/// The point with the caller's number.
#[inline(always)]
fn point(id: c_int) -> Result<&'static Point, Status> {
    created()?;
    // As a `u32`, a negative number is out of range.
    probe::c::numbered(id as u32).ok_or(Status::NoSuchPoint)
}

fn with(id: c_int, act: impl FnOnce(&'static Point) -> Status) -> c_int {
    point(id).map_or_else(|refused| refused, act).code()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpCreate() -> c_int {
    if probe::init().is_err() {
        return Status::NoSpace.code();
    }
    CREATED.store(true, Relaxed);
    Status::Ok.code()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpCalibrate(loopcnt: c_int, reset: c_int) -> c_int {
    with(0, |overhead| {
        if reset != 0 {
            overhead.reset();
        }
        let pairs = u32::try_from(loopcnt).unwrap_or(0).max(1);
        if probe::calibrate(pairs).is_some() { Status::Ok } else { Status::NoSpace }
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpBegin(id: c_int, exhandle: *mut c_void) -> c_int {
    if id as u32 >= NUMERIC || !exhandle.is_null() || created().is_err() {
        return begin_slow(id, exhandle);
    }
    Point::numbered(id as u32).begin_once();
    Status::Ok.code()
}

#[cold]
#[inline(never)]
fn begin_slow(id: c_int, exhandle: *mut c_void) -> c_int {
    with(id, |_| {
        if !exhandle.is_null() && !hooks::is_current(exhandle) {
            probe::c::count_mismatch();
            return Status::Handle;
        }
        Point::numbered(id as u32).begin_once();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpEnd(id: c_int, latch: c_int) -> c_int {
    if id as u32 >= NUMERIC || created().is_err() {
        return with(id, |_| Status::Ok);
    }
    probe::c::end(Point::numbered(id as u32), latch != 0);
    Status::Ok.code()
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpEnable(id: c_int) -> c_int {
    with(id, |point| {
        point.enable();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpDisable(id: c_int) -> c_int {
    with(id, |point| {
        point.disable();
        Status::Ok
    })
}

/// See `pfp.h`.
///
/// # Safety
///
/// `to` is null or valid for writes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfpGetStats(
    id: c_int,
    to: *mut MaybeUninit<stats::Stats>,
) -> c_int {
    // SAFETY: the caller passes null or a pointer that is valid for writes.
    let to = unsafe { to.as_mut() };
    with(id, |point| stats::fill(point, to))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpResetStats(id: c_int) -> c_int {
    with(id, |point| {
        point.reset();
        Status::Ok
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSetAlpha(id: c_int, alpha: f32) -> c_int {
    with(id, |point| weigh(point.set_alpha(f64::from(alpha))))
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpSetAverage(id: c_int, period: f64, tau: f64) -> c_int {
    with(id, |point| {
        // The caller chooses the unit, so these are numbers and not `Duration`s, which have a
        // limited range and resolution.
        let times = period > 0.0 && tau > 0.0;
        weigh(point.set_alpha(if times { period / tau } else { 0.0 }))
    })
}

/// See `pfp.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn pfpClearAlpha(id: c_int) -> c_int {
    with(id, |point| {
        point.clear_alpha();
        Status::Ok
    })
}

/// See `pfp.h`.
///
/// # Safety
///
/// `name` is null or ends with a zero byte.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn pfpSetName(id: c_int, name: *const c_char) -> c_int {
    // SAFETY: by the caller's promise, `name` is null or ends with a zero byte.
    let name = unsafe { text::of(name) };
    with(id, |_| match name {
        Ok(name) => {
            Point::numbered(id as u32).set_name(name.as_str());
            Status::Ok
        }
        Err(refused) => refused,
    })
}

pub(crate) fn weigh(result: Result<(), probe::AlphaError>) -> Status {
    if result.is_ok() { Status::Ok } else { Status::Alpha }
}
