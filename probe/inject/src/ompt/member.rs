//! What a thread does in the regions that it is a member of.
//!
//! ```text
//! first thread   fork ---- begin ======== barrier ........ join
//! other thread        ..... begin === barrier ........................ told of the end
//!                                                         ^ what counts as the end
//! = busy   . wait
//! ```
//!
//! A runtime notifies a thread that a region's last barrier has ended only when the thread gets new
//! work, which may be much later. So each thread remembers when it reached the barrier, and records
//! its wait up to the end that the first thread saw.

use std::cell::Cell;
use std::ptr;

use pfp::Point;
use pfp::own::{Own, heap};
use pfp::past::{self, Past};

use super::team::{RegionStart, Team};

/// Regions inside one another that are followed; those inside are not.
const DEPTH: usize = 8;

/// The counter, and the ticks that the thread was on a CPU until then.
#[derive(Clone, Copy, Default)]
struct ClockReading {
    now: u64,
    on_cpu: u64,
}

impl ClockReading {
    fn now() -> Self {
        let now = pfp::ticks();
        // Without a lane there is nothing to record either.
        Self { now, on_cpu: pfp::on_cpu_ticks().unwrap_or(now) }
    }

    /// Where a region began or ended, so that what comes before or after it has no gap to it.
    fn of(stamp: Option<u64>) -> Self {
        let now = Self::now();
        Self { now: stamp.unwrap_or(now.now), ..now }
    }
}

#[derive(Clone, Copy)]
enum State {
    Busy,
    /// In a barrier since then; the last one of the region, or one before.
    Waits {
        since: ClockReading,
        is_last: bool,
    },
    /// At a task in a barrier.
    Task {
        is_last: bool,
    },
    /// All is recorded.
    Done,
}

/// A thread's part in a region.
#[derive(Clone, Copy)]
struct Part {
    team: &'static Team,
    begun: RegionStart,
    is_first: bool,
    state: State,
    /// Ticks from the fork, or from a wait, to the work after it, to be recorded with the next
    /// wait, and how many of those it was on a CPU.
    before: (u64, u64),
}

/// Where a thread is.
pub(super) struct Member {
    parts: [Cell<Option<Part>>; DEPTH],
    depth: Cell<usize>,
    /// The last fork.
    fork: Cell<ClockReading>,
    /// The mutex that was asked for last, and when. The runtime says no more of a try that fails, or
    /// of a nested lock that its owner takes again.
    asked: Cell<Option<(u64, ClockReading)>>,
}

thread_local! {
    static MEMBER: Own<Member> = const { Own::new() };
}

/// Does something with the calling thread's; nothing when it ends.
pub(super) fn with(work: impl FnOnce(&Member)) {
    // SAFETY: of the calling thread, which uses it before it ends.
    let own = MEMBER.with(|own| unsafe { &*ptr::from_ref(own) });
    own.get(Member::new).map(work);
}

impl Member {
    fn new() -> Option<Box<Self>> {
        let member = Self {
            parts: [const { Cell::new(None) }; DEPTH],
            depth: Cell::new(0),
            fork: Cell::new(ClockReading::default()),
            asked: Cell::default(),
        };
        heap::boxed(member).ok()
    }

    /// The thread meets a region: when.
    pub(super) fn fork(&self) -> u64 {
        let fork = ClockReading::now();
        self.fork.set(fork);
        fork.now
    }

    /// The thread asks for a mutex.
    pub(super) fn ask(&self, mutex: u64) {
        self.asked.set(Some((mutex, ClockReading::now())));
    }

    /// The thread has got a mutex that it asked for: it has waited until now.
    pub(super) fn got(&self, mutex: u64, point: &'static Point) {
        if let Some((_, from)) = self.asked.take().filter(|(asked, _)| *asked == mutex) {
            let until = ClockReading::now();
            let span = since(until.now, from.now);
            let on_cpu = since(until.on_cpu, from.on_cpu).min(span);
            past::record(point, &Past { start: from.now, span, ticks: span, on_cpu }, true);
        }
    }

    /// The thread that met a region has come to its end.
    pub(super) fn join(&self, team: &'static Team) {
        let end = ClockReading::now();
        // Its part has ended, and its wait ends now.
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

    /// The thread begins its part in a region.
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
            // The fork was in another thread.
            part.before.1 = 0;
        }
        slot.set(Some(part));
    }

    /// The thread has come to a barrier.
    pub(super) fn barrier(&self, is_last: impl FnOnce(RegionStart) -> bool) {
        self.change(|part| {
            if let State::Busy = part.state {
                let is_last = is_last(part.begun);
                part.wait(is_last);
            }
        });
    }

    /// The thread goes on behind a barrier.
    pub(super) fn on(&self) {
        self.change(|part| match part.state {
            State::Waits { is_last: false, .. } => {
                part.waited(ClockReading::now());
                part.state = State::Busy;
            }
            // The first thread is behind it at the end of its part.
            State::Waits { is_last: true, .. } if !part.is_first => part.close(),
            _ => {}
        });
    }

    /// In a barrier, the thread takes up a task, or has done all that there were.
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

    /// The thread's part in a region ends.
    pub(super) fn end(&self) {
        let Some(depth) = self.depth.get().checked_sub(1) else { return };
        self.change(Part::close);
        self.depth.set(depth);
    }

    /// The thread ends: it may never have been told of the end of its part.
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
    /// Begins to work. All time before `after` is recorded.
    fn work(&mut self, after: ClockReading) {
        let begun = ClockReading::of(past::begin(&self.begun.region.busy));
        self.before = (since(begun.now, after.now), since(begun.on_cpu, after.on_cpu));
    }

    /// Begins to wait; at the last barrier it is busy no more.
    fn wait(&mut self, is_last: bool) {
        let busy = &self.begun.region.busy;
        let since = ClockReading::of(if is_last { past::end(busy) } else { None });
        self.state = State::Waits { since, is_last };
    }

    /// Records its wait, which lasted until `until`.
    fn waited(&mut self, until: ClockReading) {
        let State::Waits { since: from, is_last } = self.state else { return };
        let span = since(until.now, from.now);
        let (before, on_cpu) = std::mem::take(&mut self.before);
        let past = Past {
            start: from.now,
            span,
            ticks: span + before,
            // It spins first and sleeps then, so what it has run since is this wait's.
            on_cpu: since(until.on_cpu, from.on_cpu).min(span) + on_cpu,
        };
        // Around the last barrier the first thread has the regions of the program, and the
        // others have none.
        past::record(&self.begun.region.wait, &past, self.is_first || !is_last);
    }

    /// Records what is left to record.
    fn close(&mut self) {
        match self.state {
            State::Busy | State::Task { is_last: true } => {
                // A region of one thread has no barrier.
                self.wait(true);
            }
            // A part that is given up in the middle.
            State::Task { is_last: false } | State::Waits { is_last: false, .. } => {
                self.begun.region.busy.end();
            }
            State::Waits { is_last: true, .. } => {}
            State::Done => return,
        }
        if self.is_first {
            // Until the region ends.
            return;
        }
        let mut until = ClockReading::now();
        // There is none yet if another thread's region takes up this one before the end.
        if let Some(end) = self.team.end().filter(|&end| since(until.now, end) > 0) {
            until.now = end;
        }
        self.waited(until);
        self.state = State::Done;
        self.team.leave();
    }
}

/// Ticks between two readings; 0 if another CPU's counter is behind.
fn since(now: u64, then: u64) -> u64 {
    (now.wrapping_sub(then) as i64).max(0) as u64
}
