//! The process, its threads and its contexts, as the program names them.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::clock;
use crate::engine::context::{self, Switched};
use crate::engine::{calibrate, process, thread};
use crate::{InitError, Point};

/// Makes the segment now instead of at the first region.
///
/// A program that measures less without it need not look at the error:
/// `pfp::init().ok();`. One that wants to say why it is not measured can print it.
///
/// ```
/// if let Err(error) = pfp::init() {
///     eprintln!("not profiled: {error}");
/// }
/// ```
///
/// # Errors
///
/// The process cannot be measured, or not yet: [`InitError`] says why and what to do.
pub fn init() -> Result<(), InitError> {
    process::get().map(drop).ok_or_else(process::why_none)
}

/// Names the program as the viewer shows it; the executable's name otherwise.
pub fn set_program_name(name: &str) {
    process::set_name(name);
}

/// Names the calling thread as the viewer shows it; up to 32 bytes. The thread's
/// name in the kernel otherwise.
pub fn register_thread(name: &str) {
    thread::set_name(name);
}

/// All points that the program has met, the newest first.
///
/// A point is met when it is first begun, asked or steered; one that was never reached is not
/// here. Points by number are, and those of C and of hooked functions, if the program links
/// the library statically. A library that was linked with a pfp of its own has its own list.
///
/// ```
/// static PARSE: pfp::Point = pfp::Point::new("parse");
///
/// drop(PARSE.measure());
/// for point in pfp::points() {
///     if let Some(stats) = point.stats() {
///         println!("{} ({}:{}): {:?}", point.name(), point.file(), point.line(), stats.mean());
///     }
/// }
/// # #[cfg(not(miri))]
/// assert!(pfp::points().any(|point| point.name() == "parse"));
/// ```
pub fn points() -> impl Iterator<Item = &'static Point> {
    process::points().filter(|point| point.is_listed())
}

/// Switches all measuring off, and on again. Off takes effect at each point's next
/// begin, and for points that are met later; on switches those points on that this
/// has switched off, so that one that was off before stays so. Meanwhile a point can
/// still be switched on by itself.
///
/// ```
/// {
///     pfp::scope!("work");
/// }
/// pfp::set_enabled(false);
/// {
///     pfp::scope!("not measured");
/// }
/// pfp::set_enabled(true);
/// ```
pub fn set_enabled(on: bool) {
    process::pause(!on);
}

/// Whether [`set_enabled`] has not switched all measuring off.
#[must_use]
pub fn is_enabled() -> bool {
    process::is_enabled()
}

/// [`ticks`] per second, as calibrated: more exactly the longer the program runs. Also
/// where nothing can be measured, for want of shared memory, say.
#[must_use]
pub fn ticks_per_second() -> f64 {
    match process::get() {
        Some(process) => process.refine_rate(),
        None => clock::calibrate::refine(),
    }
    clock::calibrate::ticks_per_second()
}

/// The time-stamp counter, or what stands in for it where it cannot be relied on.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    clock::counter::stamp()
}

/// The calling thread's on-CPU clock: ticks that it, or the [context](ExecutionContext)
/// that is current on it, has run. Only differences mean anything. None where
/// the thread cannot have a lane.
#[inline]
#[must_use]
pub fn on_cpu_ticks() -> Option<u64> {
    let thread = thread::current().filter(|thread| thread.is_alive()).or_else(thread::get)?;
    Some(thread.stamp_beside().wrapping_sub(thread.clock.off()))
}

/// What measuring costs, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// What falls inside a region; taken out of the region.
    pub inside: u64,
    /// A whole begin and end; taken out of the region around it.
    pub pair: u64,
    /// What falls inside a region that a [lap](crate::lap) began; taken out of
    /// the region.
    pub lap: u64,
}

/// Measures what measuring costs, over `pairs` begins and ends of point 0, and
/// takes it out of all figures from now on. Done once at the start, so this is
/// only for doing it again: on a machine that was busy then, say. None if
/// nothing can be measured.
pub fn calibrate(pairs: u32) -> Option<Overhead> {
    process::get()?;
    let calibrate::Costs { inside, pair, lap } = calibrate::calibrate(pairs)?;
    Some(Overhead { inside, pair, lap })
}

/// An execution object of the program's own: a task, a fibre, an interrupt
/// handler of a user-level scheduler.
///
/// The regions that are open in a context stop when it is put aside and go on
/// when it is resumed, also on another thread; while it is aside, its time counts
/// as off-CPU. A thread that names no context has one of its own.
///
/// A context is at most one thread's at a time: the one on which it is current, or
/// on which an interrupt has put it aside. Signals are blocked while contexts are
/// switched, so that a handler finds the one or the other. A task that is switched
/// away from in a signal handler may have been interrupted in the middle of a begin
/// or end, and must go on on the same thread. In a forked child a context has
/// nothing open: what was is its parent's.
///
/// ```
/// static POINT: pfp::Point = pfp::Point::new("task work");
///
/// let (idle, task) = (pfp::ExecutionContext::new(), pfp::ExecutionContext::new());
/// pfp::task_switch(&idle, &task);
/// POINT.begin();
/// pfp::task_switch(&task, &idle); // the task is pre-empted
/// pfp::task_switch(&idle, &task);
/// POINT.end();
/// pfp::task_switch(&task, &idle);
/// ```
#[derive(Clone, Debug)]
pub struct ExecutionContext {
    shared: Arc<context::Shared>,
}

impl Default for ExecutionContext {
    fn default() -> Self {
        Self::new()
    }
}

impl ExecutionContext {
    /// A context without open regions.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: context::Shared::new() }
    }

    /// The number that records of its regions have; never 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.number()
    }

    pub(crate) fn shared(&self) -> &Arc<context::Shared> {
        &self.shared
    }

    /// Makes this the calling thread's context until [`Entered`] is dropped, as
    /// an interrupt handler does: what was current is put aside and then resumed.
    /// None if it is a thread's already, current or interrupted.
    pub fn enter(&self) -> Option<Entered> {
        context::enter(&self.shared)
            .then(|| Entered { context: self.clone(), thread_bound: PhantomData })
    }
}

/// A context that was entered; dropping it leaves.
///
/// It belongs to its thread: it cannot be sent to another one.
#[must_use = "the context is left at once if this is not bound to a name"]
#[derive(Debug)]
pub struct Entered {
    context: ExecutionContext,
    thread_bound: PhantomData<*const ()>,
}

impl Drop for Entered {
    fn drop(&mut self) {
        context::leave(&self.context.shared);
    }
}

/// Tells pfp that the program's scheduler switches the calling thread from one
/// task to another: `next` takes the place of `prev`, or of what runs instead of
/// it. If `prev` was put aside by a context that was [entered](ExecutionContext::enter), an
/// interrupt, it takes effect when that is left. False if `next` is a thread's
/// already, current or interrupted, which is counted as a mismatch; then nothing
/// changes.
///
/// To be called just before or after the stacks are switched, on the thread that
/// does it, also in a signal handler.
pub fn task_switch(prev: &ExecutionContext, next: &ExecutionContext) -> bool {
    context::switch(Some(&prev.shared), Some(&next.shared)) != Switched::Refused
}
