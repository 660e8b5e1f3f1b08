//! Functions of programs that were built with `-finstrument-functions`.
//!
//! The compiler calls two hooks, at the start and at the end of every function.
//! From the function's address to its point:
//!
//! ```text
//! address --> table ----------------------------> point --> its word: off, return
//!               | not there: its first call         | on
//!               +--> symbols of its object --> name +--> frames: the guard, until
//!                                                        the function's end
//! ```
//!
//! All points start off: nothing is measured until a viewer or the environment enables some. A
//! function may be called for the first time in a signal handler or in a forked child, so no code
//! here takes a lock or allocates: memory is mapped, files are read, lists grow by one exchange.

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

/// Where a hook was called from.
#[derive(Clone, Copy, Debug)]
struct Call {
    function: usize,
    /// Where the function was called, which is what it returns to.
    site: usize,
    /// The stack pointer when the hook began.
    sp: usize,
    /// What the hook returns to.
    to: usize,
    /// The frame pointer, which may be anything.
    fp: usize,
}

/// Runs work that may call functions of the program, such as its allocator, which may be
/// instrumented too: hooks that come in between run no work.
fn once_inside<R>(sp: usize, work: impl FnOnce() -> R) -> Option<R> {
    let inside = &top::top()?.inside;
    let outer = inside.get();
    // A marked frame deeper in the stack than this one was left by a jump.
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

/// The beginning of a function; the hook itself where it cannot be machine code of
/// our own. All that is passed on stays in registers, so that a function that is off
/// pays for no more than the tests.
///
/// # Safety
///
/// The hook's own arguments, and what [`entry`] adds to them.
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
    // SAFETY: a point.
    unsafe { word(point) & 1 != 0 }
}

/// The function is not in the first place of the table where it could be.
#[inline(never)]
extern "C" fn enter_further(function: usize, site: usize, sp: usize, to: usize, fp: usize) {
    if let Some(point) = table::known(function).or_else(|| enter_new(function, sp))
        && is_on(point)
    {
        enter_on(function, site, sp, to, fp, point);
    }
}

/// Makes the point of a function that is called for the first time.
#[cold]
#[inline(never)]
fn enter_new(function: usize, sp: usize) -> Option<&'static Point> {
    // The resolver of an indirect function runs before the program's relocation is finished. Without
    // room on the stack, the point is made at a later call.
    let can = probe::c::has_started() && probe::c::has_room() && !sanitizer::checks_every_value();
    if can { make_new(function, sp) } else { None }
}

#[inline(never)]
fn make_new(function: usize, sp: usize) -> Option<&'static Point> {
    let point = once_inside(sp, || {
        frames::prepare();
        let point = table::look_up(function)?;
        // Registers it, so that it can be seen and switched on.
        point.is_enabled().then_some(point)
    });
    point.flatten()
}

/// The function's point is on.
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
    // SAFETY: a point.
    let word = unsafe { word(point) };
    match Frames::current() {
        Some(frames) if probe::c::is_ready(point, word) => frames.begin(&call, point, word),
        _ => enter_unready(&call, point),
    }
}

/// [`enter_on`] where a stack of frames, a lane or a cell is missing.
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
        // SAFETY: a point.
        let word = unsafe { word(point) };
        // It may have been switched off just now.
        if word & 1 != 0
            && let Some(frames) = Frames::get(call.sp)
        {
            calibrate();
            frames.begin(call, point, word);
        }
    });
}

/// The end of a function, as [`enter`] is its beginning.
///
/// # Safety
///
/// As for that.
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

/// It may be that of a function that is measured.
#[inline(never)]
extern "C" fn exit_further(function: usize, site: usize, sp: usize, to: usize, fp: usize) {
    if let Some(frames) = Frames::current() {
        frames.end(&Call { function, site, sp, to, fp });
    }
}

/// What the hooks cost: at the first function that is measured, and a little of it
/// at others that are new, so that no slow moment decides.
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
        // Threads come and go; enough is known.
        _ => TIMES.store(1000, Relaxed),
    }
}

/// A function that does nothing, as a compiler builds it.
#[inline(never)]
fn empty() {
    let this = empty as *const () as usize;
    // Where it was called does not matter here.
    entry::begin(this, this);
    entry::end(this, this);
    // So that the last call is not made in its caller's place.
    black_box(());
}
