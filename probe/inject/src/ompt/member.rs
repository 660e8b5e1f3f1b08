//! The time that each member of a parallel region works and waits.
//!
//! ```text
//! first thread   fork ---- begin ======== barrier ........ join
//! other thread        ..... begin === barrier ........................ end reported
//!                                                         ^ the end that is recorded
//! = busy   . wait
//! ```
//!
//! A runtime reports the end of a region's last barrier to a member only when the member gets new
//! work, which may be much later. So each thread remembers when it reached the barrier, and records
//! its wait up to the end that the first thread saw.

use std::cell::Cell;
use std::ptr;

use pfp::Point;
use pfp::own::{Own, heap};
use pfp::past::{self, Past};

use super::team::{RegionStart, Team};

/// Maximum depth of nested regions that are followed. Deeper regions are not measured.
const DEPTH: usize = 8;

/// A clock reading of a thread: the counter, and the thread's on-CPU time.
#[derive(Clone, Copy, Default)]
struct ClockReading {
    now: u64,
    on_cpu: u64,
}

impl ClockReading {
    fn now() -> Self {
        let now = pfp::ticks();
        // A thread without a lane records nothing, so any value will do.
        Self { now, on_cpu: pfp::on_cpu_ticks().unwrap_or(now) }
    }

    /// A clock reading with the time stamp of a region's begin or end, so that no gap is left
    /// between the region and the time before or after it.
    fn of(stamp: Option<u64>) -> Self {
        let now = Self::now();
        Self { now: stamp.unwrap_or(now.now), ..now }
    }
}

#[derive(Clone, Copy)]
enum State {
    Busy,
    /// The thread has waited in a barrier since `since`. `is_last` is true for the barrier at the
    /// end of the region.
    Waits {
        since: ClockReading,
        is_last: bool,
    },
    /// The thread runs an explicit task inside a barrier.
    Task {
        is_last: bool,
    },
    /// The thread's last wait has been recorded.
    Done,
}

/// A thread's membership in a region.
#[derive(Clone, Copy)]
struct Part {
    team: &'static Team,
    begun: RegionStart,
    is_first: bool,
    state: State,
    /// Ticks from the fork, or from the end of a wait, to the begin of `busy`, and how many of them
    /// were on a CPU. The next wait records them, too, because no point counts them yet.
    before: (u64, u64),
}

/// A thread's memberships in regions, and its wait for a mutex.
pub(super) struct Member {
    parts: [Cell<Option<Part>>; DEPTH],
    depth: Cell<usize>,
    /// Clock reading at the last fork.
    fork: Cell<ClockReading>,
    /// The mutex for which the thread last began to wait, and when. The value remains after the
    /// thread acquires a nested lock that it already holds, because the runtime does not report the
    /// end of such a wait.
    waiting_for: Cell<Option<(u64, ClockReading)>>,
}

thread_local! {
    static MEMBER: Own<Member> = const { Own::new() };
}

/// Calls `work` with the calling thread's member. Does nothing while the thread ends.
pub(super) fn with(work: impl FnOnce(&Member)) {
    // SAFETY: the thread-local value outlives this call, and only its own thread uses it.
    let own = MEMBER.with(|own| unsafe { &*ptr::from_ref(own) });
    own.get(Member::new).map(work);
}

impl Member {
    fn new() -> Option<Box<Self>> {
        let member = Self {
            parts: [const { Cell::new(None) }; DEPTH],
            depth: Cell::new(0),
            fork: Cell::new(ClockReading::default()),
            waiting_for: Cell::default(),
        };
        heap::boxed(member).ok()
    }

    /// The thread forks a region. Returns the counter.
    pub(super) fn fork(&self) -> u64 {
        let fork = ClockReading::now();
        self.fork.set(fork);
        fork.now
    }

    /// The thread begins to wait for a mutex.
    pub(super) fn wait_begins(&self, mutex: u64) {
        self.waiting_for.set(Some((mutex, ClockReading::now())));
    }

    /// The thread has acquired a mutex: records the wait.
    pub(super) fn acquired(&self, mutex: u64, point: &'static Point) {
        if let Some((_, from)) = self.waiting_for.take().filter(|(known, _)| *known == mutex) {
            let until = ClockReading::now();
            let span = since(until.now, from.now);
            let on_cpu = since(until.on_cpu, from.on_cpu).min(span);
            past::record(point, &Past { start: from.now, span, ticks: span, on_cpu }, true);
        }
    }

    /// The thread that forked a region reaches the region's join: records the thread's last wait
    /// and the region's wall time, and publishes the end of the region.
    pub(super) fn join(&self, team: &'static Team) {
        let end = ClockReading::now();
        // `end` has lowered the depth, but this thread's part is still in its slot, because its
        // last wait ends only now.
        if let Some(slot) = self.parts.get(self.depth.get())
            && let Some(mut part) = slot.take()
            && ptr::eq(part.team, team)
        {
            part.waited(end);
            part.team.leave();
        }
        if let Some(RegionStart { region, start }) = team.begun() {
            past::record_wall(&region.wall, start, since(end.now, start));
        }
        team.ended(end.now);
        team.leave();
    }

    /// The thread becomes a member of a region.
    pub(super) fn begin(&self, team: Option<&'static Team>, is_first: bool) {
        let depth = self.depth.get();
        self.depth.set(depth + 1);
        let Some(slot) = self.parts.get(depth) else { return };
        let Some((team, begun)) = team.and_then(|team| Some((team, team.begun()?))) else {
            return slot.set(None);
        };
        team.join();
        let mut part = Part { team, begun, is_first, state: State::Busy, before: (0, 0) };
        part.work(ClockReading { now: begun.start, ..self.fork.get() });
        if !is_first {
            // Another thread forked the region, so this thread has no reading of its own on-CPU
            // time at the fork.
            part.before.1 = 0;
        }
        slot.set(Some(part));
    }

    /// The thread reaches a barrier.
    pub(super) fn barrier(&self, is_last: impl FnOnce(RegionStart) -> bool) {
        self.change(|part| {
            if let State::Busy = part.state {
                let is_last = is_last(part.begun);
                part.wait(is_last);
            }
        });
    }

    /// The thread leaves a barrier.
    pub(super) fn leave_barrier(&self) {
        self.change(|part| match part.state {
            State::Waits { is_last: false, .. } => {
                part.waited(ClockReading::now());
                part.state = State::Busy;
            }
            // The first thread records its last wait in `join`.
            State::Waits { is_last: true, .. } if !part.is_first => part.close(),
            _ => {}
        });
    }

    /// Inside a barrier, the thread switches to an explicit task (`is_one`), or back to its
    /// implicit task.
    pub(super) fn task(&self, is_one: bool) {
        self.change(|part| match part.state {
            State::Waits { is_last, .. } if is_one => {
                let until = ClockReading::now();
                part.waited(until);
                if is_last {
                    part.work(until);
                }
                part.state = State::Task { is_last };
            }
            State::Task { is_last } if !is_one => part.wait(is_last),
            _ => {}
        });
    }

    /// The thread's membership in its innermost region ends.
    pub(super) fn end(&self) {
        let Some(depth) = self.depth.get().checked_sub(1) else { return };
        self.change(Part::close);
        self.depth.set(depth);
    }

    /// The thread ends. The runtime may not have reported the end of its memberships.
    pub(super) fn leave(&self) {
        while self.depth.get() > 0 {
            self.end();
        }
    }

    fn change(&self, change: impl FnOnce(&mut Part)) {
        let slot = self.depth.get().checked_sub(1).and_then(|depth| self.parts.get(depth));
        let Some(slot) = slot else { return };
        if let Some(mut part) = slot.take() {
            change(&mut part);
            slot.set(Some(part));
        }
    }
}

impl Part {
    /// Begins `busy`. The time since `after` is recorded with the next wait.
    fn work(&mut self, after: ClockReading) {
        let begun = ClockReading::of(past::begin(&self.begun.region.busy));
        self.before = (since(begun.now, after.now), since(begun.on_cpu, after.on_cpu));
    }

    /// Begins to wait. At the region's last barrier, `busy` ends.
    fn wait(&mut self, is_last: bool) {
        let busy = &self.begun.region.busy;
        let since = ClockReading::of(if is_last { past::end(busy) } else { None });
        self.state = State::Waits { since, is_last };
    }

    /// Records the wait, which ended at `until`.
    fn waited(&mut self, until: ClockReading) {
        let State::Waits { since: from, is_last } = self.state else { return };
        let span = since(until.now, from.now);
        let (before, on_cpu) = std::mem::take(&mut self.before);
        let past = Past {
            start: from.now,
            span,
            ticks: span + before,
            // A waiting thread spins first and then sleeps, so all its on-CPU time since `from`
            // belongs to this wait.
            on_cpu: since(until.on_cpu, from.on_cpu).min(span) + on_cpu,
        };
        // At the last barrier, the first thread is still inside the program's regions that enclose
        // the parallel region. Other threads are inside no region.
        past::record(&self.begun.region.wait, &past, self.is_first || !is_last);
    }

    /// Ends `busy` if it is still open, and records the last wait unless the thread is the first.
    fn close(&mut self) {
        match self.state {
            State::Busy | State::Task { is_last: true } => {
                // A region with a single thread has no barrier.
                self.wait(true);
            }
            // The runtime ends the membership in the middle of a region.
            State::Task { is_last: false } | State::Waits { is_last: false, .. } => {
                self.begun.region.busy.end();
            }
            State::Waits { is_last: true, .. } => {}
            State::Done => return,
        }
        if self.is_first {
            // `join` records the wait of the first thread.
            return;
        }
        let mut until = ClockReading::now();
        // The region ends when its first thread reaches the join. If this thread leaves for another
        // region before that, the end is not known, and the wait is recorded up to now.
        if let Some(end) = self.team.end().filter(|&end| since(until.now, end) > 0) {
            until.now = end;
        }
        self.waited(until);
        self.state = State::Done;
        self.team.leave();
    }
}

/// Ticks between two readings of the counter; 0 if the counter of the later reading's CPU is
/// behind.
fn since(now: u64, then: u64) -> u64 {
    (now.wrapping_sub(then) as i64).max(0) as u64
}
