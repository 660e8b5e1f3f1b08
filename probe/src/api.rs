//! Public functions for the whole process, its threads and its execution contexts.

use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;

use crate::engine::program::Existing;
use crate::engine::{boxes, context, program, reading};
use crate::{InitError, Point};

/// Makes the segment now instead of at the first region.
///
/// A program that also works without measurements can ignore the error: `pfp::init().ok();`. A
/// program that wants to report why it is not measured can print it.
///
/// ```
/// if let Err(error) = pfp::init() {
///     eprintln!("not profiled: {error}");
/// }
/// ```
///
/// # Errors
///
/// The process cannot be measured now or at all: [`InitError`] gives the reason and advice.
pub fn init() -> Result<(), InitError> {
    program::init()
}

/// Sets the program's name in the viewer. The default is the executable's name.
pub fn set_program_name(name: &str) {
    program::set_name(name);
}

/// Sets the calling thread's name in the viewer, up to 32 bytes. The default is the thread's name
/// in the kernel.
///
/// The call also allocates all memory for the thread's records, 64 KiB, which regions otherwise
/// allocate page by page. So call it before the thread enters a sandbox.
pub fn register_thread(name: &str) {
    program::register_thread(name);
}

/// All points that the program has registered, the newest first.
///
/// A point is registered when it is first measured, read or changed. Points by number are listed,
/// too. Points of C and of hooked functions are listed if the program links the library statically.
/// A library that contains its own pfp has its own list.
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
/// # #[cfg(all(feature = "enabled", not(miri)))]
/// assert!(pfp::points().any(|point| point.name() == "parse"));
/// ```
pub fn points() -> impl Iterator<Item = &'static Point> {
    program::listed()
}

/// Disables or enables all measuring. Disabling takes effect at each point's next begin, and also
/// for points that are registered later. Enabling switches on the points that this function has
/// switched off; a point that was off before stays off. While measuring is disabled, single points
/// can still be switched on.
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
    program::pause(!on);
}

/// True unless [`set_enabled`] has disabled all measuring.
#[must_use]
pub fn is_enabled() -> bool {
    program::is_enabled()
}

/// Keeps what explains the innermost open region of the calling thread as it is now, as if it had
/// reached its point's [limit](Point::keep_over). `pfp-top slow` shows the first 64 bytes of the
/// reason. Without an open region, nothing is kept.
///
/// ```
/// fn answer(request: &str) {
///     pfp::scope!("answer");
///     if request.is_empty() {
///         pfp::keep("an empty request");
///     }
/// }
/// # answer("");
/// ```
///
/// A panic hook keeps the region that panics:
///
/// ```
/// let next = std::panic::take_hook();
/// std::panic::set_hook(Box::new(move |panic| {
///     pfp::keep(&panic.to_string());
///     next(panic);
/// }));
/// ```
pub fn keep(why: &str) {
    boxes::keep_open(why);
}

/// The calibrated number of [`ticks`] per second. The longer the program runs, the more exact the
/// number. It is valid even if nothing can be measured, for example without shared memory.
#[must_use]
pub fn ticks_per_second() -> f64 {
    program::ticks_per_second()
}

/// The time-stamp counter, or its replacement on machines where the counter is unreliable.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    reading::stamp()
}

/// The calling thread's on-CPU clock: the ticks that the thread, or the current
/// [context](ExecutionContext) on it, has run. Only differences are meaningful. `None` if the
/// thread cannot be measured.
#[inline]
#[must_use]
pub fn on_cpu_ticks() -> Option<u64> {
    reading::on_cpu_ticks()
}

/// The calibrated overhead of measuring, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// The part of a begin and an end that falls inside the region, and is subtracted from it.
    pub inside: u64,
    /// A whole begin and end, which is subtracted from the enclosing region.
    pub pair: u64,
    /// The part that falls inside a region that a [lap](crate::lap) began, and is subtracted from
    /// it.
    pub lap: u64,
}

/// Measures the overhead with `pairs` begins and ends of point 0, and subtracts it from all figures
/// from now on. pfp measures the overhead once at the start. Call this function only to repeat that
/// measurement, for example if the machine was busy at the start. `None` if nothing can be
/// measured, if point 0 is off or fenced, or if another thread is calibrating.
pub fn calibrate(pairs: u32) -> Option<Overhead> {
    program::calibrate(pairs)
}

/// A unit of execution that the program defines: a task, a fibre, or an interrupt handler of a
/// user-level scheduler.
///
/// The open regions of a context are suspended and resumed with it, and may resume on another
/// thread. Time in which a context is suspended counts as off-CPU. A thread on which the program
/// has made no context current runs in a context of its own.
///
/// A context belongs to at most one thread at a time: the thread on which it is current, or on
/// which an interrupt has suspended it. Signals are blocked while contexts are switched, so a
/// handler finds either the previous or the next context. If a signal handler switches away from a
/// task, that task may have been interrupted in the middle of a begin or end, so it must continue
/// on the same thread. In a forked child a context has no open regions, since those belong to the
/// parent.
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
    pub(crate) shared: context::Handle,
}

impl Default for ExecutionContext {
    fn default() -> Self {
        Self::new()
    }
}

impl ExecutionContext {
    /// A new context without open regions. If memory runs out, every use of it counts as a
    /// mismatch.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: context::Handle::new() }
    }

    /// The number of the context in the records of its regions; never 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.number()
    }

    /// Makes this the calling thread's context until [`Entered`] is dropped, as for an interrupt
    /// handler: the current context is suspended, and then resumed. `None` if the context already
    /// belongs to a thread, as its current or an interrupted one.
    pub fn enter(&self) -> Option<Entered> {
        context::enter(&self.shared)
            .then(|| Entered { context: self.clone(), thread_bound: PhantomData })
    }
}

/// An entered context. Dropping this value leaves the context.
///
/// The value cannot be sent to another thread.
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

/// Tells pfp that the program's scheduler switches the calling thread from one task to another:
/// `next` replaces `prev`. If another context than `prev` is current, `next` replaces that one. If
/// `prev` was interrupted by a context that was [entered](ExecutionContext::enter), the switch
/// takes effect when that context is left. If `next` already belongs to a thread, as its current or
/// an interrupted context, nothing changes, a mismatch is counted, and the result is false.
///
/// Call it just before or after the stacks are switched, on the same thread. It may be called in a
/// signal handler.
pub fn task_switch(prev: &ExecutionContext, next: &ExecutionContext) -> bool {
    context::switch_to(&prev.shared, &next.shared)
}

/// Writes the figures of this process to a new file: the contents and format of `pfp-top snapshot`,
/// for `pfp-top open` and `pfp-top diff`.
///
/// The file appears whole or not at all, and other threads continue to measure. The call allocates
/// memory and takes time in proportion to the figures, so do not call it in a signal handler.
///
/// ```
/// # if cfg!(not(feature = "enabled")) { return Ok(()) }
/// # let folder = std::env::temp_dir().join(format!("pfp-doc-{}", std::process::id()));
/// # std::fs::create_dir(&folder)?;
/// # let path = folder.join("run.json");
/// {
///     pfp::scope!("work");
/// }
/// pfp::snapshot_to(&path)?;
/// # assert!(std::fs::read_to_string(&path)?.contains("\"name\":\"work\""));
/// # assert!(pfp::snapshot_to(&path).is_err());
/// # std::fs::remove_dir_all(&folder)?;
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `AlreadyExists` if the file exists: [`snapshot_over`] replaces it. `Unsupported` if nothing can
/// be measured, or pfp is compiled out. Else the system's error, for example `StorageFull`.
pub fn snapshot_to(path: impl AsRef<Path>) -> io::Result<()> {
    program::write_snapshot(path.as_ref(), Existing::Keep)
}

/// Like [`snapshot_to`], but replaces an existing file. If the new file cannot be written, the old
/// one stays as it is.
///
/// # Errors
///
/// The errors of [`snapshot_to`], except `AlreadyExists`.
pub fn snapshot_over(path: impl AsRef<Path>) -> io::Result<()> {
    program::write_snapshot(path.as_ref(), Existing::Replace)
}

/// Writes the figures of this process as one line of JSON: an array with an object for each thread.
/// The object has an array for each name of a point. The array has an object for each tuple of
/// amounts, with `Bytes`, `Flops`, `Calls`, and `Min`, `Max`, `Avg` and `Stddev` of a call's
/// exclusive time in seconds. `Bytes` and `Flops` are the amounts of one call, 0 for regions
/// without them, and the mean for calls that are summed without their tuples. Other amounts appear
/// under their own names. The line is written whole, unless writing to `out` fails.
///
/// A thread and a later thread that reuses its memory for figures (its lane) count as one thread.
///
/// ```
/// # if cfg!(not(feature = "enabled")) { return Ok(()) }
/// {
///     pfp::scope!("triad", bytes = 2400, flops = 200);
/// }
/// let mut out = Vec::new();
/// pfp::show(&mut out)?;
/// # #[cfg(all(feature = "enabled", not(miri)))]
/// assert!(String::from_utf8_lossy(&out).contains(r#""triad":[{"Bytes":2400,"Flops":200,"Calls":1"#));
/// # std::io::Result::Ok(())
/// ```
///
/// # Errors
///
/// `Unsupported` if nothing can be measured, or pfp is compiled out; else the error of writing to
/// `out`.
pub fn show(out: &mut impl Write) -> io::Result<()> {
    program::show(out)
}
