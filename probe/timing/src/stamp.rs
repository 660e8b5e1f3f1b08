//! Stamps, and counts of cycles from the moment at which all have come.

use super::group::{ProcessGroup, Synced, ThreadGroup};
use pfp::Point;
use pfp::reading::{stamp_and_cpu, thread_id};

/// A reading of the tick counter, and where it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CycleStamp {
    /// As [`pfp::ticks`] reads it: ticks of the time-stamp counter, which is one for all
    /// CPUs of a machine where it is invariant, or of what stands in for it;
    /// [`pfp::ticks_per_second`] converts differences.
    pub ticks: u64,
    /// The CPU it was read on, by the kernel's number; on x86-64 read by the same
    /// instruction as the counter. None where nobody tells.
    pub cpu: Option<u32>,
    /// The thread that read it, by the kernel's id.
    pub thread: u32,
}

/// Stamps this moment.
#[must_use]
pub fn cycle_stamp() -> CycleStamp {
    let thread = thread_id();
    let (ticks, cpu) = stamp_and_cpu();
    CycleStamp { ticks, cpu, thread }
}

/// Who must have come before a phase is measured.
#[derive(Clone, Copy, Debug)]
pub enum SyncScope<'a> {
    /// Nobody.
    None,
    /// All threads of a group.
    Internal(&'a ThreadGroup),
    /// All processes of a group. One thread of each calls.
    External(&'a ProcessGroup),
    /// All threads of the first, in each process of the second.
    Global(&'a ThreadGroup, &'a ProcessGroup),
}

/// Waits until all have come. The wait is a measurement of the point `wait:NAME`, of
/// the name of the group; of [`SyncScope::Global`] that of the threads has what is waited for
/// threads, and that of the processes the rest.
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

/// What [`cycle_count`] has counted. All ticks are of the time-stamp counter.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CycleCount<R> {
    /// What the work returned.
    pub result: R,
    /// Just before the work, after the wait.
    pub start: CycleStamp,
    /// Just after it.
    pub end: CycleStamp,
    /// Ticks that the thread was on a CPU in between. On the `wall` clock source
    /// all of them.
    pub on_cpu: u64,
    /// Who was waited for, and for how long.
    pub synced: Synced,
}

impl<R> CycleCount<R> {
    /// Ticks from start to end, by the wall clock.
    #[must_use]
    pub fn elapsed(&self) -> u64 {
        self.end.ticks.saturating_sub(self.start.ticks)
    }

    /// Ticks from the moment at which the last one came to the end: the same moment for
    /// all members, also for those that were woken later. From the start, where nobody
    /// was waited for.
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

/// Waits for all that `sync` names, then counts the ticks of `work`, which are a
/// measurement of `point` too.
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
    // The readings of that clock are around the stamps: never more than those.
    let on_cpu = begun.zip(ended).map_or(elapsed, |(from, to)| to.saturating_sub(from));
    CycleCount { result, start, end, on_cpu: on_cpu.min(elapsed), synced }
}
