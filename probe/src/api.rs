//! The process, its threads and its contexts, as the program names them.

use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;

use crate::engine::program::Existing;
use crate::engine::{context, program, reading};
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
    program::init()
}

/// Names the program as the viewer shows it; the executable's name otherwise.
pub fn set_program_name(name: &str) {
    program::set_name(name);
}

/// Names the calling thread as the viewer shows it; up to 32 bytes. The thread's
/// name in the kernel otherwise.
///
/// It also allocates all memory for the thread's records, 64 KiB, which regions allocate page by page
/// otherwise. A thread that enters a sandbox calls it before.
pub fn register_thread(name: &str) {
    program::register_thread(name);
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
/// # #[cfg(all(feature = "enabled", not(miri)))]
/// assert!(pfp::points().any(|point| point.name() == "parse"));
/// ```
pub fn points() -> impl Iterator<Item = &'static Point> {
    program::listed()
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
    program::pause(!on);
}

/// Whether [`set_enabled`] has not switched all measuring off.
#[must_use]
pub fn is_enabled() -> bool {
    program::is_enabled()
}

/// [`ticks`] per second, as calibrated: more exactly the longer the program runs. Also
/// where nothing can be measured, for want of shared memory, say.
#[must_use]
pub fn ticks_per_second() -> f64 {
    program::ticks_per_second()
}

/// The time-stamp counter, or what stands in for it where it cannot be relied on.
#[inline]
#[must_use]
pub fn ticks() -> u64 {
    reading::stamp()
}

/// The calling thread's on-CPU clock: ticks that it, or the [context](ExecutionContext)
/// that is current on it, has run. Only differences mean anything. None where
/// the thread cannot have a lane.
#[inline]
#[must_use]
pub fn on_cpu_ticks() -> Option<u64> {
    reading::on_cpu_ticks()
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
    program::calibrate(pairs)
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
    pub(crate) shared: context::Handle,
}

impl Default for ExecutionContext {
    fn default() -> Self {
        Self::new()
    }
}

impl ExecutionContext {
    /// A context without open regions. If memory runs out, every use of it counts as a
    /// mismatch.
    #[must_use]
    pub fn new() -> Self {
        Self { shared: context::Handle::new() }
    }

    /// The number that records of its regions have; never 0.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.shared.number()
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
    context::switch_to(&prev.shared, &next.shared)
}

/// Writes the figures of this process to a file, which was not there: everything
/// that `pfp-top snapshot` saves, in the same format, for `pfp-top open` and
/// `pfp-top diff`.
///
/// The file is written whole or not at all, whatever happens meanwhile; other
/// threads go on measuring. It takes memory and time for as much as there is to
/// write, so it is nothing for signal handlers.
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
/// `AlreadyExists` if there is a file of that name: [`snapshot_over`] replaces
/// it; `Unsupported` if nothing can be measured here, or pfp is compiled out; else
/// what the system answered, `StorageFull` say.
pub fn snapshot_to(path: impl AsRef<Path>) -> io::Result<()> {
    program::write_snapshot(path.as_ref(), Existing::Keep)
}

/// As [`snapshot_to`], in place of the file that is there, if there is one; that
/// stays as it is if the new one cannot be written.
///
/// # Errors
///
/// As of [`snapshot_to`], but for `AlreadyExists`.
pub fn snapshot_over(path: impl AsRef<Path>) -> io::Result<()> {
    program::write_snapshot(path.as_ref(), Existing::Replace)
}

/// Writes the figures of this process as JSON: an array of threads, of each an object
/// with an array for each label, of each tuple of amounts an object with `Bytes`,
/// `Flops`, `Calls`, and `Min`, `Max`, `Avg`, `Stddev` of a call's exclusive time in
/// seconds. `Bytes` and `Flops` are of one call, 0 where a region does not tell; of
/// calls whose amounts are not told apart, the mean. Other amounts stand under their
/// own names. A line of its own, complete or not at all as far as `out` goes.
///
/// Threads that had the same lane one after the other are one.
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
/// `Unsupported` if nothing can be measured here, or pfp is compiled out; else what
/// writing to `out` has answered.
pub fn show(out: &mut impl Write) -> io::Result<()> {
    program::show(out)
}
