//! The clock: a thread's on-CPU time at the price of reading the tick counter.
//!
//! A thread's on-CPU clock is `ticks - off`, where `off` is the time the thread
//! has spent off the CPU. `off` changes only when the kernel switches the thread
//! out, so it is kept in the thread's private memory and refreshed only after a
//! switch. How a switch is noticed is a **rung** of a ladder; all rungs come
//! down to one word that the thread watches:
//!
//! | rung | the word | noticed because |
//! |---|---|---|
//! | rseq | `rseq_cs` of the thread's restartable-sequence area | the kernel clears it when the thread was switched out or took a signal |
//! | perf | `lock` of a self-monitoring perf event's page | the kernel moves it at every switch |
//! | cputime | a word that never has the value expected | the CPU time is read at every stamp |
//! | wall | a word that always has it | it is not: figures are wall-clock time |
//!
//! So the hot path is the same for all: read the counter, load the word, compare.
//! The counter is read *before* the word: a switch between the two shows.
//!
//! Where the counter cannot be relied on, the system's clock stands in for it
//! ([`counter`]); then the word never has the value expected either.

mod arch;
pub(crate) mod calibrate;
pub(crate) mod counter;
#[cfg(test)]
#[cfg_attr(miri, allow(dead_code, reason = "what winds it asks the system for more"))]
pub(crate) mod mock;
mod perf;
mod rseq;
mod thread;

pub(crate) use arch::{cpu_time_ns, fenced_ticks, ticks, wall_ns};
pub(crate) use thread::{Stamps, ThreadClock, switches_between};

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::header::ClockKind;

use crate::engine::copies;
use crate::errno;

/// What the clocks of all threads have in common.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct State {
    /// The rung in force in this process, a [`ClockKind`].
    kind: AtomicU8,
    /// A word that is watched where nothing is: it has the value 0 as long as the counter
    /// is what is read, and never the value 1.
    still: AtomicU64,
    calibration: calibrate::State,
    counter: counter::State,
    rseq: rseq::State,
}

impl State {
    pub(crate) const fn new() -> Self {
        Self {
            kind: AtomicU8::new(ClockKind::Wall as u8),
            still: AtomicU64::new(0),
            calibration: calibrate::State::new(),
            counter: counter::State::new(),
            rseq: rseq::State::new(),
        }
    }
}

fn state() -> &'static State {
    &copies::common().clock
}

/// The rung in force.
pub(crate) fn kind() -> ClockKind {
    ClockKind::from_word(u64::from(state().kind.load(Relaxed)))
}

/// Looks up in the C library what a rung needs: once, as the program is loaded.
pub(crate) fn look_up() {
    rseq::prepare();
}

/// Chooses the highest rung that works here, or the one that `wanted` names if
/// it works; anything else steps down from the top. Takes about 0.1 ms.
pub(crate) fn choose(wanted: Option<&str>) -> ClockKind {
    // Whoever notices a switch still has to ask how long it was.
    let wanted = if arch::cpu_time_ns().is_some() { wanted } else { Some("wall") };
    let ladder = [ClockKind::Rseq, ClockKind::Perf, ClockKind::Cputime, ClockKind::Wall];
    let first = match wanted {
        Some("perf") => 1,
        Some("cputime") => 2,
        Some("wall") => 3,
        _ => 0,
    };
    let works = |kind: &ClockKind| match kind {
        ClockKind::Rseq => rseq::works(),
        ClockKind::Perf => perf::works(),
        ClockKind::Cputime => arch::cpu_time_ns().is_some(),
        ClockKind::Wall => true,
    };
    // Without the counter every stamp is a call anyway.
    let works = |kind: &ClockKind| {
        let notices = matches!(kind, ClockKind::Rseq | ClockKind::Perf);
        !(notices && counter::is_replaced()) && works(kind)
    };
    let kind = ladder[first..].iter().copied().find(works).unwrap_or_default();
    state().kind.store(kind as u8, Relaxed);
    kind
}

/// Steps down from a rung that was caught missing a switch. Threads take the new
/// rung when they next refresh.
pub(crate) fn demote(from: ClockKind) {
    let to = match from {
        ClockKind::Rseq if errno::kept(perf::works) => ClockKind::Perf,
        ClockKind::Rseq | ClockKind::Perf => ClockKind::Cputime,
        _ => return,
    };
    // Whoever is first decides; the others find the word changed.
    let _ = state().kind.compare_exchange(from as u8, to as u8, Relaxed, Relaxed);
}

/// The counter went astray: it was less than before, or stood still. True if it was
/// given up for that; threads then read the system's clock from their next refresh on.
pub(crate) fn doubt() -> bool {
    let given_up = errno::kept(counter::doubt);
    if given_up && kind() != ClockKind::Wall {
        state().kind.store(ClockKind::Cputime as u8, Relaxed);
    }
    given_up
}
