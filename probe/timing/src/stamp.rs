//! Time stamps, and cycle counts from the time when all members have arrived.

use super::group::{ProcessGroup, Synced, ThreadGroup};
use pfp::Point;
use pfp::reading::{stamp_and_cpu, thread_id};

/// A reading of the tick counter, with the CPU and the thread that read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStamp {
    /// The counter that [`pfp::ticks`] reads: the time-stamp counter, or a clock in its place. If
    /// the time-stamp counter is invariant, readings on different CPUs of a machine are comparable.
    /// [`pfp::ticks_per_second`] converts differences to seconds.
    pub ticks: u64,
    /// The kernel's number of the CPU. On x86-64, one instruction reads it together with the
    /// counter. `None` if the CPU is unknown.
    pub cpu: Option<u32>,
    /// The kernel's id of the thread.
    pub thread: u32,
}

/// Reads the tick counter now.
#[must_use]
pub fn cycle_stamp() -> CycleStamp {
    let thread = thread_id();
    let (ticks, cpu) = stamp_and_cpu();
    CycleStamp { ticks, cpu, thread }
}

/// The members that must arrive before a phase is measured.
#[derive(Clone, Copy, Debug)]
pub enum SyncScope<'a> {
    /// Do not wait.
    None,
    /// All threads of a group.
    Internal(&'a ThreadGroup),
    /// All processes of a group. One thread of each process calls.
    External(&'a ProcessGroup),
    /// All threads of the first group in each process of the second group.
    Global(&'a ThreadGroup, &'a ProcessGroup),
}

/// Waits until all members have arrived. The wait is a measurement of the point `wait:NAME`, where
/// NAME is the group's name. With [`SyncScope::Global`], the thread group's point measures the wait
/// for threads, and the process group's point measures the wait for processes.
pub fn synchronize(scope: SyncScope<'_>) -> Synced {
    match scope {
        SyncScope::None => Synced::default(),
        SyncScope::Internal(ThreadGroup { threads }) => threads.wait().1,
        SyncScope::External(ProcessGroup { processes }) => processes.wait(None),
        SyncScope::Global(ThreadGroup { threads }, ProcessGroup { processes }) => {
            let (round, inside) = threads.wait();
            let outside = processes.wait(Some((threads.key(), round)));
            inside.and(outside)
        }
    }
}

/// Result of [`cycle_count`]. All ticks have the unit of [`pfp::ticks`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CycleCount<R> {
    /// Return value of the work.
    pub result: R,
    /// Stamp just before the work, after the wait.
    pub start: CycleStamp,
    /// Stamp just after the work.
    pub end: CycleStamp,
    /// Ticks between the stamps in which the thread was on a CPU. With the `wall` clock source, all
    /// ticks between the stamps.
    pub on_cpu: u64,
    /// Outcome of the wait.
    pub synced: Synced,
}

impl<R> CycleCount<R> {
    /// Ticks from start to end, by the wall clock.
    #[must_use]
    pub fn elapsed(&self) -> u64 {
        self.end.ticks.saturating_sub(self.start.ticks)
    }

    /// Ticks from the last arrival to the end. All members count from the same time, even if they
    /// woke up later. Without a wait, ticks from the start.
    #[must_use]
    pub fn since_all_came(&self) -> u64 {
        let from = self.synced.all_came.unwrap_or(self.start.ticks);
        self.end.ticks.saturating_sub(from)
    }

    /// Whether the work ended on the CPU that it began on.
    #[must_use]
    pub fn stayed(&self) -> bool {
        self.start.cpu.is_some() && self.start.cpu == self.end.cpu
    }
}

/// Waits for all members of `scope`, then counts the ticks of `work`. The work is also a
/// measurement of `point`.
///
/// ```
/// static PHASE: pfp::Point = pfp::Point::new("phase");
///
/// let group = pfp_timing::ThreadGroup::named("solvers", 2);
/// std::thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| {
///             let count = pfp_timing::cycle_count(&PHASE, pfp_timing::SyncScope::Internal(&group), || 6 * 7);
///             assert_eq!(count.result, 42);
///             assert!(count.since_all_came() >= count.elapsed());
///         });
///     }
/// });
/// ```
pub fn cycle_count<R>(
    point: &'static Point,
    scope: SyncScope<'_>,
    work: impl FnOnce() -> R,
) -> CycleCount<R> {
    let synced = synchronize(scope);
    let guard = point.measure();
    let begun = pfp::on_cpu_ticks();
    let start = cycle_stamp();
    let result = work();
    let end = cycle_stamp();
    let ended = pfp::on_cpu_ticks();
    drop(guard);
    let elapsed = end.ticks.saturating_sub(start.ticks);
    // The CPU clock was read outside the stamps, so its difference can be larger than theirs.
    let on_cpu = begun.zip(ended).map_or(elapsed, |(from, to)| to.saturating_sub(from));
    CycleCount { result, start, end, on_cpu: on_cpu.min(elapsed), synced }
}
