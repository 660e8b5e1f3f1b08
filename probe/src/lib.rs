//! Profile points show live how many CPU cycles a region of a program takes *itself*, without
//! nested regions, pre-emption and blocking.
//!
//! ```
//! fn parse(line: &str) -> Vec<&str> {
//!     pfp::scope!("parse"); // to the end of the block
//!     line.split(',').collect()
//! }
//!
//! #[pfp::function] // a whole function, also an async one
//! fn work(text: &str) -> usize {
//!     text.lines().map(|line| parse(line).len()).sum()
//! }
//!
//! assert_eq!(work("a,b\nc"), 3);
//! ```
//!
//! Run `pfp-top` beside the program to watch the points `parse` and `work`, to switch them on and
//! off, and to save their figures.
//!
//! # Overhead
//!
//! The unit is the time of two bare readings of the time-stamp counter (`rdtsc`), some 17 to 23 ns
//! on the machines below.
//!
//! | | AMD Zen 3 | AMD Zen 5 | AMD Zen 4 | Intel Xeon |
//! |---|---:|---:|---:|---:|
//! | [`scope!`] | 1.20 | 1.13 | 1.19 | 1.76 |
//! | [`scope!`] with two amounts | 1.26 | 1.10 | | 1.78 |
//! | [`lap!`], per region | 1.14 | 0.65 | 0.79 | 1.18 |
//! | 64 points in turn | 2.28 | 1.32 | 1.22 | 1.95 |
//! | async function, per poll | 1.37 | 1.12 | 1.06 | 1.71 |
//! | a region that is off, in addition to an empty loop | 0.6 ns | 0.24 ns | 0.27 ns | 0.00 ns |
//!
//! A region that is off takes four instructions, or eight if it contains a call. A measured future
//! whose point is off costs 2 to 4 ns a poll. The figures are from quiet machines. The column of
//! Zen 5 was measured with this version, in which a region has some 148 instructions; Zen 3 with an
//! older version (172 instructions), and the others with a still older version (222). The first
//! region of a process takes up to 1.3 ms, and the first region of a thread up to 120 us.
//! `docs/costs.md` in the repository has all figures, and how to repeat them. In a build without
//! optimization, a region costs some 700 ns: set `opt-level = 3` for the packages `pfp-probe` and
//! `pfp-shm-layout` in its profile.
//!
//! # Guarantees
//!
//! - **The program comes first.** The library starts no thread, opens no port, installs no signal
//!   handler, prints nothing and does not panic. If it cannot measure (no space in `/dev/shm`, too
//!   many points), it skips the measurement and counts it as refused.
//! - **A region takes no lock and allocates nothing.** It makes only two kinds of system calls: it
//!   reads the CPU time after each switch of the thread and once a millisecond, and it asks the
//!   kernel for the next page of its memory.
//! - **Memory is bounded**: by default to a sixteenth of the process's memory limit, 253 MiB at most.
//!   Pages are allocated as points and threads need them.
//! - **Figures are consistent at every instruction**, so they are readable while the program runs and
//!   after it was killed. They count every call that had returned by then.
//! - **Signal handlers** may measure once the thread has run a region outside of them. Call [`init`]
//!   early if the first region might be in a handler, or before a seccomp filter is set.
//! - **A forked child** gets a segment (the shared memory with the figures) of its own at its first
//!   region, and never writes to its parent's.
//! - **Copies** of pfp in one process (a program and its plugins) find each other and share one
//!   segment, even if different compilers have built them.
//!
//! There is one danger that the library cannot avert without a signal handler: if this user, or
//! root, truncates the program's segment in `/dev/shm`, the next region that touches the missing
//! part ends the program with SIGBUS. For the library's other effects on its host, see
//! `docs/in-a-host.md` and `RELIABILITY.md` in the repository.
//!
//! # Ways to measure
//!
//! | | |
//! |---|---|
//! | to the end of a block | [`scope!`], [`function_scope!`] |
//! | a function, sync or async; all functions of a module or `impl` | [`#[function]`](macro@function); [`#[all_functions]`](macro@all_functions) with [`#[skip]`](macro@skip) |
//! | one region after the other | [`laps!`] and [`lap!`], [`Guard::lap`] |
//! | a closure; a future | [`Point::measure`]; [`Point::measure_async`] |
//! | begun and ended by hand | [`Point::begin`], [`Point::end`], [`Point::end_latched`] |
//! | by number, as in the PFP of real-time systems | [`Point::numbered`], [`Point::begin_once`] |
//! | a scheduler's tasks, interrupts | [`task_switch`], [`ExecutionContext`] |
//! | with the allocations of each region | [`Alloc`], [`Point::counting_allocs`] |
//! | with bytes, flops, items | `scope!("name", bytes = n)`, [`MeteredPoint`] |
//! | stopwatch; repeated runs; phases that begin together; a GPU's streams | the package `pfp-timing` |
//! | reading the figures in the program | [`Point::stats`], [`snapshot_to`], [`show`] |
//!
//! The macros [`scope!`], [`function_scope!`], [`#[function]`](macro@function),
//! [`#[all_functions]`](macro@all_functions), [`#[skip]`](macro@skip), [`register_thread!`] and
//! [`finish_frame!`] have the syntax of the crate `profiling`.
//!
//! With laps, consecutive regions need one reading of the clock between them instead of two:
//!
//! ```
//! let mut lines = "a,b\nc".lines();
//! let mut fields = Vec::new();
//!
//! pfp::laps!(); // or `pfp::laps!("name")`, which begins a region at once
//! loop {
//!     pfp::lap!("read");
//!     let Some(line) = lines.next() else { break };
//!     pfp::lap!("split"); // ends "read"; the next lap "read" ends "split"
//!     fields.extend(line.split(','));
//! } // the end of the block that contains `laps!` ends the last lap
//! assert_eq!(fields, ["a", "b", "c"]);
//! ```
//!
//! # Figures
//!
//! All times are **ticks** of the processor's time-stamp counter; [`ticks_per_second`] converts
//! them. Each point has, for each thread:
//!
//! - **exclusive**: ticks on a CPU between begin and end, minus the nested regions, minus the
//!   calibrated overhead;
//! - **inclusive**: ticks on a CPU with the nested regions; recursion counted once. Code without a
//!   region, or with a region whose point is off, counts for the enclosing region, in both figures;
//! - **off-CPU**: the ticks in which the thread was blocked or pre-empted, or its
//!   [context](ExecutionContext) was suspended;
//! - count, switches, minimum, maximum, last value and variance of the exclusive ticks, their
//!   exponential average if requested, and a histogram. A measurement counts for at most 2^47
//!   exclusive ticks: 13 hours at 3 GHz.
//!
//! On-CPU time is what the kernel counts as the thread's CPU time. A thread that measures reads its
//! CPU time after each switch. It also reads the CPU time once a millisecond, because a hypervisor
//! can steal time without a switch. If the kernel subtracts stolen time from the CPU time, pfp
//! subtracts that time from the region in which it was stolen. Time that is stolen less than a
//! millisecond after a reading may be noticed only at the next reading, and is then subtracted from
//! a later region. If the subtraction leaves nothing of a region, the minimum and the histogram
//! count the region like the shortest region that was never off the CPU. The clock `wall` (see
//! `PFP_CLOCK` below) notices no switches, so its figures include off-CPU time, and the viewer says
//! so.
//!
//! The overhead is the time of a begin and an end with nothing between them. A processor executes a
//! part of it in parallel with the work of the enclosing region, but all of it is subtracted from
//! that region. So an enclosing region may read too low, for each nested region by up to the cost
//! of a pair, some 20 ns. This matters only if the region does little else. Very short regions have
//! an error, too: see [`Point::fenced`].
//!
//! # Environment
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `PFP_DEFAULT=off` | points start switched off | on |
//! | `PFP_ENABLE` | names of points that start switched on nevertheless: `parse*,io_?` | none |
//! | `PFP_ALLOCS=1` | all points count what their regions allocate, see [`Point::counting_allocs`] | they do not |
//! | `PFP_ALLOC_SAMPLE` | bytes between two samples of live memory | 524288 |
//! | `PFP_FENCE=1` | clock readings wait for the work before them, see [`Point::fenced`] | they do not wait |
//! | `PFP_CLOCK` | `rseq`, `perf`, `cputime` or `wall`: the best clock to try | rseq |
//! | `PFP_DIR` | directory for the beacons by which viewers find the program | `$XDG_RUNTIME_DIR/pfp`, else `/tmp/pfp-UID` |
//! | `PFP_POINTS`, `PFP_LANES` | maximum number of points, and of lanes: a lane holds the figures and records of one thread, and further threads share one | 10240, 128; fewer where memory is limited |
//! | `PFP_SNAPSHOT` | file for a snapshot at an orderly exit, as by [`snapshot_to`]; `%p` in it is the process's id. Never replaces a file | none |
//! | `PFP_CUDA_LIBRARY` | with the feature `cuda`: the CUDA driver's library | `libcuda.so.1` |
//! | `PFP_MEMORY_MB` | maximum of shared memory, in MiB; allocated only as needed | a sixteenth of the memory limit of the process, at most 253 |
//!
//! # Compiled out
//!
//! With `default-features = false` the feature `enabled` is off: the whole API stays and compiles
//! to nothing. To disable all measuring at run time, call [`set_enabled`]`(false)`.

// No function of the library may end its host when memory runs out; see clippy.toml.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::disallowed_macros))]

/// Runs the examples of the README and of the pages in docs/.
#[cfg(all(doctest, feature = "enabled"))]
mod pages {
    #[doc = include_str!("../../README.md")]
    struct Readme;
    #[doc = include_str!("../README.md")]
    struct OfThePackage;
    #[doc = include_str!("../../docs/manual.md")]
    struct Manual;
    #[doc = include_str!("../../docs/amounts.md")]
    struct Amounts;
}

// The macros' paths begin with `pfp`. This makes them work in this crate's own tests and examples.
extern crate self as pfp;

pub use pfp_macros::{all_functions, function, lap, laps, measure, skip};

mod alloc;
mod amount;
mod api;
/// Used by the C library; not part of the public interface.
#[cfg(feature = "enabled")]
#[doc(hidden)]
pub mod c;
#[cfg(feature = "enabled")]
mod clock;
#[cfg(feature = "enabled")]
mod doubles;
#[cfg_attr(not(feature = "enabled"), path = "none.rs")]
mod engine;
#[cfg(feature = "enabled")]
mod errno;
mod errors;
#[cfg(feature = "enabled")]
mod file;
#[cfg(feature = "enabled")]
mod frame;
mod future;
mod guard;
#[cfg(feature = "enabled")]
mod loaded;
#[cfg(feature = "enabled")]
mod marker;
mod metered;
/// Used by libraries that implement another tool's interface; not part of the public interface.
#[cfg(feature = "enabled")]
#[doc(hidden)]
pub mod own;
/// Used by libraries that record what another tool's interface reports; not part of the public
/// interface.
#[cfg(feature = "enabled")]
#[doc(hidden)]
pub mod past;
mod point;
/// Used by the package of timers; not part of the public interface.
#[doc(hidden)]
pub mod reading;
#[cfg(feature = "enabled")]
mod snapshot;
/// Used by libraries that implement another tool's interface; not part of the public interface.
#[cfg(feature = "enabled")]
#[doc(hidden)]
pub mod stack;
mod stats;
/// Used by libraries that implement another tool's interface; not part of the public interface.
#[cfg(feature = "enabled")]
#[doc(hidden)]
pub mod table;
#[cfg(feature = "enabled")]
mod word;

pub use self::{
    alloc::Alloc,
    amount::Amount,
    api::{
        Entered, ExecutionContext, Overhead, calibrate, init, is_enabled, keep, on_cpu_ticks,
        points, register_thread, set_enabled, set_program_name, show, snapshot_over, snapshot_to,
        task_switch, ticks, ticks_per_second,
    },
    engine::{__finish_frame, Guard, MeteredPoint},
    errors::{AlphaError, InitError},
    future::{Measured, MeteredFuture},
    point::{NUMERIC, Point},
    stats::Stats,
};

/// Used by [`function_scope!`]: the name of the function that contains `inner`.
#[doc(hidden)]
#[must_use]
pub fn __name_around<F>(_inner: F) -> &'static str {
    let path = std::any::type_name::<F>();
    let around = path.rsplit_once("::").map_or(path, |(around, _)| around);
    let around = around.trim_end_matches("::{{closure}}");
    around.rsplit_once("::").map_or(around, |(_, name)| name)
}

/// Measures from here to the end of the block.
///
/// The name is a literal. Each place in the source is a point of its own.
///
/// ```
/// {
///     pfp::scope!("outer");
///     {
///         pfp::scope!("inner");
///     }
/// }
/// ```
///
/// A region may have amounts: one to four named numbers that state how much work it does. They are
/// evaluated at the region's begin, even if its point is off. The viewer computes rates from them:
/// `bytes` becomes bytes per second, and `flops` floating-point operations per second. It also
/// shows measurements of different amounts separately; see [`MeteredPoint`].
///
/// ```
/// fn send(requests: &[&str]) {
///     pfp::scope!("send", requests = requests.len(), bytes = requests.concat().len());
/// }
/// send(&["a", "bc"]);
/// ```
///
/// # Do not hold a region across `.await`
///
/// A region belongs to its thread, not to a task. A future that holds one across an
/// `.await` is not `Send`, so most executors refuse it:
///
/// ```compile_fail
/// fn spawn(_task: impl Future + Send) {}
///
/// spawn(async {
///     pfp::scope!("request");
///     std::future::ready(()).await;
/// });
/// ```
///
/// If it compiles, for example on a local set, the region stays open while the executor runs other
/// tasks. It then includes the thread's other work, and the other tasks' regions count as nested in
/// it. If tasks take turns, such regions end in the wrong order: inner regions are abandoned, and
/// count as mismatches. Measure the future instead, by [`#[pfp::function]`](macro@crate::function)
/// on an `async fn`, or by [`Point::measure_async`], which leaves the waiting out:
///
/// ```
/// static REQUEST: pfp::Point = pfp::Point::new("request");
///
/// fn spawn(_task: impl Future + Send) {}
///
/// spawn(REQUEST.measure_async(async {
///     {
///         pfp::scope!("parse"); // ends before the wait
///     }
///     std::future::ready(()).await;
/// }));
/// ```
#[macro_export]
macro_rules! scope {
    ($name:expr) => {
        // The static is in a block of its own, so that a block can contain several `scope!`.
        let __pfp_guard = {
            static __PFP_POINT: $crate::Point = $crate::Point::new($name);
            __PFP_POINT.measure()
        };
    };
    ($name:expr, $($amount:ident = $value:expr),+ $(,)?) => {
        let __pfp_guard = {
            static __PFP_POINT: $crate::MeteredPoint =
                $crate::MeteredPoint::new($name, &[$(stringify!($amount)),+]);
            __PFP_POINT.measure([$($crate::Amount::amount($value)),+])
        };
    };
}

/// Measures from here to the end of the block, under the name of the function.
///
/// ```
/// fn work() {
///     pfp::function_scope!(); // or with amounts: `function_scope!(items = n)`
/// }
/// work();
/// ```
#[macro_export]
macro_rules! function_scope {
    () => {
        let __pfp_guard = {
            // The type name of this inner function is the caller's path and `::__pfp_here`.
            fn __pfp_here() {}
            fn __pfp_name() -> &'static str {
                $crate::__name_around(__pfp_here)
            }
            static __PFP_POINT: $crate::Point = $crate::Point::in_function(__pfp_name);
            __PFP_POINT.measure()
        };
    };
    ($($amount:ident = $value:expr),+ $(,)?) => {
        let __pfp_guard = {
            // The type name of this inner function is the caller's path and `::__pfp_here`.
            fn __pfp_here() {}
            fn __pfp_name() -> &'static str {
                $crate::__name_around(__pfp_here)
            }
            static __PFP_POINT: $crate::MeteredPoint =
                $crate::MeteredPoint::in_function(__pfp_name, &[$(stringify!($amount)),+]);
            __PFP_POINT.measure([$($crate::Amount::amount($value)),+])
        };
    };
}

/// Sets the calling thread's name in the viewer: `register_thread!("name")`, or
/// `register_thread!()` for the name of its [`std::thread`], if it has one.
///
/// ```
/// std::thread::Builder::new().name("decoder".into()).spawn(|| {
///     pfp::register_thread!();
///     pfp::scope!("decode");
/// })?.join().expect("it only decodes");
/// # Ok::<(), std::io::Error>(())
/// ```
#[macro_export]
macro_rules! register_thread {
    () => {
        if let Some(name) = ::std::thread::current().name() {
            $crate::register_thread(name);
        }
    };
    ($name:expr $(,)?) => {
        $crate::register_thread($name)
    };
}

/// Ends a frame of the calling thread and begins the next one. The wall-clock time between two
/// calls is one measurement of the point `frame`.
///
/// ```
/// for _ in 0..4 {
///     pfp::scope!("round of the main loop");
///     // update, draw, and wait for the screen
///     pfp::finish_frame!();
/// }
/// # #[cfg(all(feature = "enabled", not(miri)))]
/// # {
/// let frame = pfp::points().find(|point| point.name() == "frame").expect("it was met");
/// let stats = frame.stats().expect("the first call begins, the others end");
/// assert_eq!(stats.count, 3);
/// println!("{:?} a frame, 99 % below {:?}", stats.mean(), stats.quantile(0.99));
/// # }
/// ```
///
/// In the viewer, the row `frame` has the number of frames, and their mean, minimum, maximum and
/// quantiles, like any other row. Waiting is part of a frame. A frame is not a region: it may end
/// while regions are open, and takes no time from them. The viewer's loads and shares of threads
/// leave out the time of frames, so that nothing is counted twice; the row is marked `(device)`.
/// All threads share the point.
#[macro_export]
macro_rules! finish_frame {
    () => {
        $crate::__finish_frame()
    };
}
