//! What the C library needs besides the public interface.
//!
//! C lacks guards and counted references, so libpfp keeps both in the memory that C provides. This
//! module has the parts that it makes them of.

use std::ffi::{CStr, OsStr};
use std::mem::{ManuallyDrop, offset_of};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pfp_shm_layout::amounts::MAX_AMOUNTS;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::heap;

use crate::engine::context::{self, Switched};
pub use crate::engine::facts::word;
use crate::engine::figures::Histogram;
pub use crate::engine::local::Functions;
use crate::engine::process::entries;
use crate::engine::process::memory;
pub use crate::engine::process::switches::Switch;
pub use crate::engine::state::UNREGISTERED;
use crate::engine::thread::given;
use crate::engine::{
    by_hand, calibrate, copies, current, image, local, measure, numeric, room, spin,
};
pub use crate::file::File;
pub use crate::loaded::{Loaded, Mapping, each_mapping};
use crate::{ExecutionContext, Guard, MeteredPoint, Point, Stats};
use crate::{clock, errno};

/// Begins a region of a point whose word was read, and said that the point is on. Returns its tag; 0
/// if it is not measured.
#[inline(always)]
#[must_use]
pub fn begin(point: &'static Point, word: u64) -> u64 {
    measure::begin::<{ measure::SCOPE }>(point, Control(word))
}

/// [`begin`] for a point whose word was not read: 0 if it is off.
#[must_use]
pub fn begin_if_on(point: &'static Point) -> u64 {
    tag_of(point.measure())
}

fn tag_of(guard: Guard) -> u64 {
    ManuallyDrop::new(guard).tag()
}

/// Ends a region by the tag that its begin has returned.
#[inline(always)]
pub fn end_tag(tag: u64) {
    measure::end(tag);
}

/// Begins a region with amounts. Returns its tag; 0 if the point is off.
#[inline(always)]
#[must_use]
pub fn begin_metered(metered: &'static MeteredPoint, amounts: Amounts<u64>) -> u64 {
    tag_of(metered.begin_with(amounts))
}

/// [`begin_metered`] for a point that came from [`MeteredPoint::point`]. `None` for other points.
#[must_use]
pub fn begin_metered_of(point: &'static Point, amounts: Amounts<u64>) -> Option<u64> {
    Some(begin_metered(point.metered()?, amounts))
}

/// Ends a region of a point that came from [`MeteredPoint::point`], and records its amounts.
/// Returns false for other points.
pub fn end_with(point: &'static Point, latch: bool, amounts: &[u64]) -> bool {
    let Some(metered) = point.metered() else { return false };
    let amounts = std::array::from_fn(|at| amounts.get(at).copied().unwrap_or(0));
    by_hand::end_with(metered, latch, &amounts);
    true
}

/// Sums of each amount over all regions of a point that came from [`MeteredPoint::point`]. `None`
/// for other points.
#[must_use]
pub fn amounts(point: &'static Point) -> Option<Amounts<u128>> {
    Some(point.metered()?.sums_in_order())
}

/// A number for each amount that a point may have.
type Amounts<T> = [T; MAX_AMOUNTS];

/// [`begin`] for a function that a compiler's hooks begin.
#[inline(always)]
#[must_use]
pub fn begin_function(point: &'static Point, word: u64) -> u64 {
    measure::begin::<{ measure::FUNCTION }>(point, Control(word))
}

/// Measures what the hooks cost: `call` calls a function that is [`calibration`] and
/// does nothing. False if nothing came of it.
pub fn calibrate_hooks(call: fn(), again: bool) -> bool {
    calibrate::calibrate_hooks(call, again)
}

/// The point that is measured in calibrations.
#[must_use]
pub fn calibration() -> &'static Point {
    &numeric::POINTS[0]
}

/// Whether [`begin`] has all that it needs, so that it calls nothing of the
/// program's: no allocator, say.
#[inline(always)]
#[must_use]
pub fn is_ready(point: &'static Point, word: u64) -> bool {
    measure::ready(point, Control(word)).is_some()
        || measure::ready_fenced(point).is_some()
        || copies::followed().is_some_and(|leader| leader.knows(point))
}

/// The value of a variable of the program's own user; none in a set-user-id program.
#[must_use]
pub fn environment(name: &CStr) -> Option<&'static OsStr> {
    pfp_shm_layout::environment::variable(name)
}

/// Leaves the caller's `errno` as it was.
pub fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    errno::preserve(work)
}

/// Maps memory of zeros, which reads as zeros again in a forked child.
#[must_use]
pub fn private_pages(bytes: usize) -> Option<*mut u8> {
    memory::private_pages(bytes)
}

/// Whether the point is on, or is not known yet, as while other threads make points.
#[inline]
#[must_use]
pub fn may_measure(point: &'static Point) -> bool {
    point.control().enabled() || point.is_enabled()
}

/// Makes the segment now, so that no thread has to wait for it later. Called as a library starts,
/// for which its host waits anyway.
pub fn get_ready() {
    let _ = keeping_errno(crate::init);
}

/// Does before an end by `_exit`, which runs no handlers, what pfp does at `exit`: notes in the
/// segment that the process ends in order, and writes the last figures if the settings ask for
/// a file for each process.
pub fn end_in_order() {
    keeping_errno(image::at_immediate_exit);
}

/// Names a thread of this process, which may have measured nothing so far.
pub fn name_thread(tid: u32, name: &str) {
    keeping_errno(|| given::name_thread(tid, name));
}

/// Whether the stack has room to make the point of a place in the source. To be called by a
/// function with a small frame.
#[must_use]
pub fn has_room() -> bool {
    room::has_room()
}

/// Counts a region that [`has_room`] has refused.
pub fn miss() {
    entries::miss_unknown();
}

/// Counts a region that found too little room on the calling thread.
pub fn count_refusal() {
    context::count_refusal();
}

/// Iterations that spin until another thread releases a lock, for a millisecond at most.
pub fn brief_spin() -> impl Iterator<Item = ()> {
    spin::brief_spin()
}

/// The calling thread's state for functions that a compiler instruments. `None` if memory for it
/// cannot be mapped.
#[inline(always)]
#[must_use]
pub fn functions() -> Option<&'static Functions> {
    local::get().map(|local| &local.functions)
}

/// Whether thread-local storage is allocated and filled. A hook that a resolver of an indirect
/// function calls comes earlier, and must not use it.
#[must_use]
pub fn has_started() -> bool {
    static HAS_STARTED: AtomicBool = AtomicBool::new(false);
    if HAS_STARTED.load(Relaxed) {
        return true;
    }
    // Until it is filled, it reads 0.
    let has = clock::has_thread_pointer()
        && functions().is_some_and(|functions| functions.sp.load(Relaxed) != 0);
    if has {
        HAS_STARTED.store(true, Relaxed);
    }
    has
}

/// Distance of [`functions`] from the thread pointer. `None` if it differs between threads.
#[must_use]
pub fn functions_distance() -> Option<isize> {
    local::distance().map(|distance| distance + offset_of!(local::Local, functions) as isize)
}

/// Counts a hook or handle that does not fit what is current on the calling
/// thread.
pub fn count_mismatch() {
    context::count_mismatch();
}

/// [`Point::end`] or [`Point::end_latched`].
#[inline]
pub fn end(point: &'static Point, latch: bool) {
    if latch { by_hand::end_latched(point) } else { by_hand::end(point) }
}

/// The point of a number; none beyond the range, which counts as a refusal.
#[must_use]
pub fn numbered(id: u32) -> Option<&'static Point> {
    numeric::point(id)
}

/// A point's statistics without quantiles, which C does not have.
#[must_use]
pub fn stats(point: &'static Point) -> Option<Stats> {
    point.stats_with(Histogram::LeftOut)
}

/// Makes a context that is never freed. `None` if memory runs out.
#[must_use]
pub fn new_context() -> Option<&'static ExecutionContext> {
    let context = ExecutionContext::new();
    context.shared.is_real().then_some(())?;
    errno::preserve(|| heap::boxed(context)).ok().map(|context| &*Box::leak(context))
}

/// Whether a context is current on the calling thread.
#[must_use]
pub fn is_current(context: &ExecutionContext) -> bool {
    context.shared.is_current()
}

/// Makes a context, or the thread's own, run on the calling thread in place of
/// `prev`; that another one ran is counted as a mismatch. While an interrupt is
/// current, it takes effect when that ends. False if `next` is a thread's already.
pub fn switch(prev: Option<&ExecutionContext>, next: Option<&ExecutionContext>) -> bool {
    let switched = context::switch(prev.map(|prev| &prev.shared), next.map(|next| &next.shared));
    if switched == Switched::InPlaceOfAnother {
        context::count_mismatch();
    }
    switched != Switched::Refused
}

/// Puts what is current aside for an interrupt's context; false if that is a
/// thread's already.
pub fn enter(to: &ExecutionContext) -> bool {
    context::enter(&to.shared)
}

/// Resumes what [`enter`] put aside; false if `from` is not current here.
pub fn leave(from: &ExecutionContext) -> bool {
    context::leave(&from.shared)
}

/// Makes a context that of another execution object, with nothing open; false if
/// it is a thread's: current, or interrupted.
pub fn renew(context: &ExecutionContext) -> bool {
    context.shared.renew()
}

/// Ticks that the calling thread has spent on folding its ring; they are in no region's
/// exclusive time. For tests.
#[must_use]
pub fn folding() -> u64 {
    let thread = current::thread().filter(|thread| thread.is_alive());
    thread.map_or(0, |thread| thread.counters().folding.load(Relaxed))
}
