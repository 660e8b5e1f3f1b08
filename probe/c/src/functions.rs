//! Functions of programs that were built with `-finstrument-functions`.
//!
//! The compiler calls two hooks, at the start and at the end of every function. The address of the
//! function leads to its point:
//!
//! ```text
//! address --> table ----------------------------> point --> its word: if off, return
//!               | not there: first call             | if on
//!               +--> symbols of its object --> name +--> frames: the open region,
//!                                                        until the function's end
//! ```
//!
//! All points start off: nothing is measured until a viewer or the environment enables some. A
//! function may be called for the first time in a signal handler or in a forked child, so the code
//! here takes no lock and does not call the program's allocator. It maps memory, and publishes each
//! new entry of a table or list with one compare-exchange.

mod bounds;
mod entry;
mod frames;
mod objects;
mod sanitizer;
mod symbols;
mod table;
mod top;

use std::hint::black_box;
use std::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    compiler_fence,
};

use probe::Point;

use crate::named::word;
use frames::Frames;

/// Arguments of a hook, and the registers at its start.
#[derive(Clone, Copy, Debug)]
struct Call {
    function: usize,
    /// Call site of the function, which is its return address.
    site: usize,
    /// The stack pointer when the hook began.
    sp: usize,
    /// Return address of the hook.
    to: usize,
    /// Frame pointer register, which can hold any value.
    fp: usize,
}

/// Runs `work`, which may call instrumented functions of the program, such as its allocator. Hooks
/// that are called during `work` run no work themselves.
fn once_inside<R>(sp: usize, work: impl FnOnce() -> R) -> Option<R> {
    let inside = &top::top()?.inside;
    let outer = inside.get();
    // If `outer` is below `sp`, a jump has left the hook that stored `outer`, so the value is
    // stale.
    if outer != 0 && sp <= outer {
        return None;
    }
    inside.set(sp);
    compiler_fence(SeqCst);
    let result = probe::c::keeping_errno(work);
    compiler_fence(SeqCst);
    inside.set(0);
    Some(result)
}

/// Hook at the start of a function: checks whether the function's point is on. On x86-64, [`entry`]
/// makes these checks in assembly. All arguments stay in registers, so a function whose point is
/// off costs only the checks.
///
/// # Safety
///
/// Called only by [`entry`], with the hook's arguments and the registers at its start.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn enter(function: usize, site: usize, sp: usize, to: usize, fp: usize) {
    match table::first(function) {
        Some(point) if is_on(point) => enter_on(function, site, sp, to, fp, point),
        Some(_) => {}
        None => enter_further(function, site, sp, to, fp),
    }
}

#[inline(always)]
fn is_on(point: &'static Point) -> bool {
    // SAFETY: a reference to a point is valid.
    unsafe { word(point) & 1 != 0 }
}

/// Start of a function whose point is not in the first entry of the table.
#[inline(never)]
extern "C" fn enter_further(function: usize, site: usize, sp: usize, to: usize, fp: usize) {
    if let Some(point) = table::known(function).or_else(|| enter_new(function, sp))
        && is_on(point)
    {
        enter_on(function, site, sp, to, fp, point);
    }
}

/// Creates the point of a function that is called for the first time.
#[cold]
#[inline(never)]
fn enter_new(function: usize, sp: usize) -> Option<&'static Point> {
    // pfp cannot be used before the program is fully relocated, and the resolver of an indirect
    // function runs earlier. Without room on the stack, a later call makes the point.
    let can = probe::c::has_started() && probe::c::has_room() && !sanitizer::checks_every_value();
    if can { make_new(function, sp) } else { None }
}

#[inline(never)]
fn make_new(function: usize, sp: usize) -> Option<&'static Point> {
    let point = once_inside(sp, || {
        frames::prepare();
        let point = table::look_up(function)?;
        // Registers the point, so that the viewer shows it and can switch it on.
        point.is_enabled().then_some(point)
    });
    point.flatten()
}

/// Start of a function whose point is on.
#[inline(never)]
extern "C" fn enter_on(
    function: usize,
    site: usize,
    sp: usize,
    to: usize,
    fp: usize,
    point: &'static Point,
) {
    let call = Call { function, site, sp, to, fp };
    // SAFETY: a reference to a point is valid.
    let word = unsafe { word(point) };
    match Frames::current() {
        Some(frames) if probe::c::is_ready(point, word) => frames.begin(&call, point, word),
        _ => enter_unready(&call, point),
    }
}

/// [`enter_on`] for a thread that lacks frames, a lane or a cell.
#[cold]
#[inline(never)]
fn enter_unready(call: &Call, point: &'static Point) {
    if probe::c::has_room() {
        get_ready(call, point);
    } else {
        probe::c::miss();
    }
}

#[inline(never)]
fn get_ready(call: &Call, point: &'static Point) {
    once_inside(call.sp, || {
        // SAFETY: a reference to a point is valid.
        let word = unsafe { word(point) };
        // The point may have been switched off just now.
        if word & 1 != 0
            && let Some(frames) = Frames::get(call.sp)
        {
            calibrate();
            frames.begin(call, point, word);
        }
    });
}

/// Hook at the end of a function: checks whether a measured function may have ended. On x86-64,
/// [`entry`] makes these checks in assembly.
///
/// # Safety
///
/// Called only by [`entry`], with the hook's arguments and the registers at its start.
#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C" fn exit(function: usize, site: usize, sp: usize, to: usize, fp: usize) {
    if top::DISTANCE.load(Relaxed) == 0 {
        return;
    }
    let Some(top) = top::top() else { return };
    if function == top.function.load(Relaxed) || sp >= top.sp.load(Relaxed) {
        exit_further(function, site, sp, to, fp);
    }
}

/// End of a function that may be measured.
#[inline(never)]
extern "C" fn exit_further(function: usize, site: usize, sp: usize, to: usize, fp: usize) {
    if let Some(frames) = Frames::current() {
        frames.end(&Call { function, site, sp, to, fp });
    }
}

/// Calibrates the cost of the hooks: fully at the first measured function, and a little more at
/// each of the next new ones, so that the result does not depend on one slow measurement.
#[cold]
#[inline(never)]
fn calibrate() {
    static TIMES: AtomicU32 = AtomicU32::new(0);
    match TIMES.fetch_add(1, Relaxed) {
        0 => {
            if table::add(empty as *const () as usize, probe::c::calibration()) {
                probe::c::calibrate_hooks(empty, false);
            }
        }
        1..1000 => {
            probe::c::calibrate_hooks(empty, true);
        }
        // Keeps the counter from wrapping. Enough has been measured.
        _ => TIMES.store(1000, Relaxed),
    }
}

/// An empty function that calls both hooks, as a function that the compiler instruments does.
#[inline(never)]
fn empty() {
    let this = empty as *const () as usize;
    // The call site does not matter here.
    entry::begin(this, this);
    entry::end(this, this);
    // Prevents a tail call, which would replace this function's frame.
    black_box(());
}
