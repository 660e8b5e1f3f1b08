//! Chooses the best clock source on the ladder that works here, and replaces it if it fails.

use std::sync::atomic::Ordering::Relaxed;

use pfp_shm_layout::header::ClockKind;

use super::shared::{kind, state};
use super::{arch, counter, perf, rseq};
use crate::errno;

/// Looks up the C library's symbols for the clock sources, once, when the program is loaded.
pub(crate) fn look_up() {
    rseq::prepare();
}

/// Chooses the best clock source that works here, but none above the source that `wanted` names.
/// Takes about 0.1 ms.
pub(crate) fn choose(wanted: Option<&str>) -> ClockKind {
    // A clock source that notices a switch still needs the CPU time, to measure how long the switch
    // took.
    let wanted = if arch::cpu_time_ns().is_some() { wanted } else { Some("wall") };
    let ladder = [ClockKind::Rseq, ClockKind::Perf, ClockKind::Cputime, ClockKind::Wall];
    let first = match wanted {
        Some("perf") => 1,
        Some("cputime") => 2,
        Some("wall") => 3,
        _ => 0,
    };
    let works = |kind: &ClockKind| match kind {
        ClockKind::Rseq => state().rseq.works(),
        ClockKind::Perf => perf::works(),
        ClockKind::Cputime => arch::cpu_time_ns().is_some(),
        ClockKind::Wall => true,
    };
    // Without the counter, every stamp is a system call anyway, so noticing switches saves nothing.
    let works = |kind: &ClockKind| {
        let notices = matches!(kind, ClockKind::Rseq | ClockKind::Perf);
        !(notices && counter::is_replaced()) && works(kind)
    };
    let kind = ladder[first..].iter().copied().find(works).unwrap_or_default();
    state().kind.store(kind as u8, Relaxed);
    kind
}

/// Replaces a clock source that has missed a switch by the next lower source that works. Threads
/// use the new source from their next refresh on.
pub(crate) fn demote(from: ClockKind) {
    let to = match from {
        ClockKind::Rseq if errno::preserve(perf::works) => ClockKind::Perf,
        ClockKind::Rseq | ClockKind::Perf => ClockKind::Cputime,
        _ => return,
    };
    // If several threads find the missed switch, the first one decides. The exchange fails for the
    // others.
    let _ = state().kind.compare_exchange(from as u8, to as u8, Relaxed, Relaxed);
}

/// Reports that the counter went astray: it has decreased, or stood still. True if the system's
/// clock replaces the counter for that reason. Threads then read that clock from their next refresh
/// on.
pub(crate) fn doubt() -> bool {
    let given_up = errno::preserve(counter::doubt);
    if given_up && kind() != ClockKind::Wall {
        state().kind.store(ClockKind::Cputime as u8, Relaxed);
    }
    given_up
}
