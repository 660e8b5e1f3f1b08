//! How long a thread spins for other threads: at most a millisecond in its whole life, except in
//! [`brief_spin`].

use super::local;
use crate::clock::calibrate::monotonic_ns;

/// Total time for which a thread spins.
const BUDGET_NS: u64 = 900_000;

/// Nanoseconds for which the thread may still spin.
fn left() -> u64 {
    local::get().map_or(0, |local| BUDGET_NS - local.waited_ns.get())
}

/// Iterations that spin while another thread works, until the calling thread's budget is used up.
/// The thread keeps its CPU: if it yielded, it would get the CPU back only after all others.
pub(crate) fn spin_budget() -> impl Iterator<Item = ()> {
    bounded_spin(left()).map(|left| {
        if let Some(local) = local::get() {
            local.waited_ns.set(BUDGET_NS - left);
        }
    })
}

/// Iterations that spin for a millisecond at most, outside of the budget, until another thread
/// releases a lock. If the iterations end first, the caller reports a failure.
pub(crate) fn brief_spin() -> impl Iterator<Item = ()> {
    bounded_spin(BUDGET_NS).map(drop)
}

/// Iterations that spin until `ns` nanoseconds have passed. Each item is the number of nanoseconds
/// that are left; the last item is 0.
fn bounded_spin(ns: u64) -> impl Iterator<Item = u64> {
    /// Bound in case the clock does not advance.
    const MAX_SPINS: u32 = 1_000_000;
    let start = monotonic_ns();
    let mut is_over = ns == 0;
    (0..MAX_SPINS).map_while(move |spin| {
        if is_over {
            return None;
        }
        let left = ns.saturating_sub(monotonic_ns().saturating_sub(start));
        is_over = left == 0;
        std::hint::spin_loop();
        Some(if spin == MAX_SPINS - 1 { 0 } else { left })
    })
}
