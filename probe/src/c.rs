//! Functions for the C library in addition to the public interface.
//!
//! C has no destructors and no counted references. So a C caller stores a guard as a tag, the word
//! that identifies an open region, and the contexts that libpfp makes are never freed. A point's
//! word is its control word, whose lowest bit is set while the point is on.

use std::ffi::{CStr, OsStr};
use std::mem::{ManuallyDrop, offset_of};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use pfp_shm_layout::amounts::MAX_AMOUNTS;
use pfp_shm_layout::control::Control;
use pfp_shm_layout::heap;

pub use crate::alloc::{count_alloc, count_free};
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
    by_hand, calibrate, copies, current, image, local, measure, numeric, room, settings, spin,
};
pub use crate::file::File;
pub use crate::loaded::{Loaded, Mapping, each_mapping};
use crate::{ExecutionContext, Guard, MeteredPoint, Point, Stats};
use crate::{clock, errno};

/// Begins a region of a point that is on. `word` is the point's word, which the caller has read.
/// Returns the region's tag; 0 if the region is not measured.
#[inline(always)]
#[must_use]
pub fn begin(point: &'static Point, word: u64) -> u64 {
    measure::begin::<{ measure::SCOPE }>(point, Control(word))
}

/// Like [`begin`], but reads the point's word itself. Returns 0 if the point is off.
#[must_use]
pub fn begin_if_on(point: &'static Point) -> u64 {
    tag_of(point.measure())
}

fn tag_of(guard: Guard) -> u64 {
    ManuallyDrop::new(guard).tag()
}

/// Ends the region of a tag that [`begin`] returned.
#[inline(always)]
pub fn end_tag(tag: u64) {
    measure::end(tag);
}

/// Begins a region with amounts. Returns its tag; 0 if the point is off.
#[inline(always)]
#[must_use]
pub fn begin_metered(metered: &'static MeteredPoint, amounts: PerAmount<u64>) -> u64 {
    tag_of(metered.begin_with(amounts))
}

/// [`begin_metered`] for a point that came from [`MeteredPoint::point`]. `None` for other points.
#[must_use]
pub fn begin_metered_of(point: &'static Point, amounts: PerAmount<u64>) -> Option<u64> {
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
pub fn amounts(point: &'static Point) -> Option<PerAmount<u128>> {
    Some(point.metered()?.sums_in_order())
}

/// A number for each amount that a point may have.
type PerAmount<T> = [T; MAX_AMOUNTS];

/// Like [`begin`], for a function that a compiler's hooks begin.
#[inline(always)]
#[must_use]
pub fn begin_function(point: &'static Point, word: u64) -> u64 {
    measure::begin::<{ measure::FUNCTION }>(point, Control(word))
}

/// Measures the cost of the hooks that a compiler inserts into functions. `call` calls an empty
/// function that is measured as the point [`calibration`]. With `again`, the result replaces the
/// known cost only if it is less. False if the measurement failed.
pub fn calibrate_hooks(call: fn(), again: bool) -> bool {
    calibrate::calibrate_hooks(call, again)
}

/// The point that the calibration measures: number 0.
#[must_use]
pub fn calibration() -> &'static Point {
    &numeric::POINTS[0]
}

/// Whether [`begin`] has all that it needs (a lane of the thread, and a cell for the point), so
/// that it calls no function that the program may have replaced, such as an allocator.
#[inline(always)]
#[must_use]
pub fn is_ready(point: &'static Point, word: u64) -> bool {
    measure::ready(point, Control(word)).is_some()
        || measure::ready_flagged(point).is_some()
        || copies::followed().is_some_and(|leader| leader.knows(point))
}

/// The value of an environment variable. `None` in a set-user-id program.
#[must_use]
pub fn environment(name: &CStr) -> Option<&'static OsStr> {
    pfp_shm_layout::environment::variable(name)
}

/// The working directory of the process; empty if it is unknown. `None` if memory runs out.
#[must_use]
pub fn current_folder() -> Option<PathBuf> {
    settings::current_folder().ok()
}

/// Runs `work`, and restores the caller's `errno` afterwards.
pub fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    errno::preserve(work)
}

/// Maps zeroed memory, which is zeroed again in a forked child.
#[must_use]
pub fn private_pages(bytes: usize) -> Option<*mut u8> {
    memory::private_pages(bytes)
}

/// Whether the point is on. Also true for a point that is not registered yet, since its word reads
/// as on.
#[inline]
#[must_use]
pub fn may_measure(point: &'static Point) -> bool {
    point.control().enabled() || point.is_enabled()
}

/// Makes the segment now, so that no thread has to wait for it later. Called when the library is
/// loaded, because the host waits for the loading anyway.
pub fn get_ready() {
    let _ = keeping_errno(crate::init);
}

/// Does pfp's work at the end of the process, before `_exit`, which runs no exit handlers: records
/// an orderly exit in the segment, and writes the last figures if the settings name a file.
pub fn end_in_order() {
    keeping_errno(image::at_immediate_exit);
}

/// Names a thread of this process, which need not have measured anything yet.
pub fn name_thread(tid: u32, name: &str) {
    keeping_errno(|| given::name_thread(tid, name));
}

/// Whether the stack has room for registering a point. The stack is measured from the caller's
/// frame, which must be small.
#[must_use]
pub fn has_room() -> bool {
    room::has_room()
}

/// Counts a region that was not measured because [`has_room`] returned false.
pub fn miss() {
    entries::miss_unknown();
}

/// Counts a region that could not begin.
pub fn count_refusal() {
    context::count_refusal();
}

/// Number of iterations to spin for a lock that another thread holds, at most a millisecond in
/// total.
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

/// Whether thread-local storage is allocated and initialized. The resolver of an indirect function
/// can call a hook earlier; such a hook must not use the storage.
#[must_use]
pub fn has_started() -> bool {
    static HAS_STARTED: AtomicBool = AtomicBool::new(false);
    if HAS_STARTED.load(Relaxed) {
        return true;
    }
    // The storage reads 0 until it is initialized.
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

/// Counts a mismatch: a hook or handle names another region or context than the current one of the
/// calling thread.
pub fn count_mismatch() {
    context::count_mismatch();
}

/// Calls [`Point::end`], or [`Point::end_latched`] if `latch` is set.
#[inline]
pub fn end(point: &'static Point, latch: bool) {
    if latch { by_hand::end_latched(point) } else { by_hand::end(point) }
}

/// The point of a number. `None` beyond the range, which counts as a refusal.
#[must_use]
pub fn numbered(id: u32) -> Option<&'static Point> {
    numeric::point(id)
}

/// A point's statistics without quantiles, which the C interface does not have.
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

/// Makes `next` current on the calling thread in place of `prev`; `None` means the thread's own
/// context. If another context than `prev` ran, a mismatch is counted. While an interrupt's context
/// is current, the switch takes effect when the interrupt's context is left. False if `next`
/// already belongs to a thread, or if memory runs out.
pub fn switch(prev: Option<&ExecutionContext>, next: Option<&ExecutionContext>) -> bool {
    let switched = context::switch(prev.map(|prev| &prev.shared), next.map(|next| &next.shared));
    if switched == Switched::InPlaceOfAnother {
        context::count_mismatch();
    }
    switched != Switched::Refused
}

/// Suspends the current context, and makes an interrupt's context current. False if the interrupt's
/// context already belongs to a thread.
pub fn enter(to: &ExecutionContext) -> bool {
    context::enter(&to.shared)
}

/// Resumes the context that [`enter`] suspended. False if `from` is not current on this thread.
pub fn leave(from: &ExecutionContext) -> bool {
    context::leave(&from.shared)
}

/// Reuses a context for another unit of execution, with no open regions. False if it belongs to a
/// thread, as its current or an interrupted context.
pub fn renew(context: &ExecutionContext) -> bool {
    context.shared.renew()
}

/// Ticks that the calling thread has spent on adding its records to its cells, which count for no
/// region. For tests.
#[must_use]
pub fn folding() -> u64 {
    let thread = current::thread().filter(|thread| thread.is_alive());
    thread.map_or(0, |thread| thread.counters().folding.load(Relaxed))
}
