//! How long a thread waits for others: at most a millisecond in its whole life, except in
//! [`brief_wait`].

use super::local;
use crate::clock::calibrate::monotonic_ns;

/// Total time for which a thread waits for others.
const PATIENCE_NS: u64 = 900_000;

/// Nanoseconds that the thread may still wait.
fn left() -> u64 {
    local::get().map_or(0, |local| PATIENCE_NS - local.waited_ns.get())
}

/// The iterations for which a thread may wait for another one. The thread keeps its CPU: if it
/// yielded, it would get the CPU back only after all others.
pub(crate) fn patience() -> impl Iterator<Item = ()> {
    bounded_spin(left()).map(|left| {
        if let Some(local) = local::get() {
            local.waited_ns.set(PATIENCE_NS - left);
        }
    })
}

/// The iterations for which a thread may wait once for something that other threads hold for a
/// moment. Its caller asks for it explicitly, and learns that it did not get it.
pub(crate) fn brief_wait() -> impl Iterator<Item = ()> {
    bounded_spin(PATIENCE_NS).map(drop)
}

/// Iterations until some time has passed, each with the time left; the last one has none left.
fn bounded_spin(ns: u64) -> impl Iterator<Item = u64> {
    /// Bound in case the clock does not advance.
    const MAX_TURNS: u32 = 1_000_000;
    let start = monotonic_ns();
    let mut is_over = ns == 0;
    (0..MAX_TURNS).map_while(move |turn| {
        if is_over {
            return None;
        }
        let left = ns.saturating_sub(monotonic_ns().saturating_sub(start));
        is_over = left == 0;
        std::hint::spin_loop();
        Some(if turn == MAX_TURNS - 1 { 0 } else { left })
    })
}
