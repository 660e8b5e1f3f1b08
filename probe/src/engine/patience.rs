//! How long a thread waits for others: no longer than a millisecond in its whole life.

use super::local;
use crate::clock::calibrate::monotonic_ns;

/// How long a thread waits for others, in its whole life.
const PATIENCE_NS: u64 = 900_000;

/// Nanoseconds that the thread may still wait.
fn left() -> u64 {
    local::get().map_or(0, |local| PATIENCE_NS - local.waited_ns.get())
}

/// The turns for which a thread may wait for another one. It keeps its CPU meanwhile: who
/// gave it away would be given it back whenever others have done with it.
pub(crate) fn patience() -> impl Iterator<Item = ()> {
    bounded_spin(left()).map(|left| {
        if let Some(local) = local::get() {
            local.waited_ns.set(PATIENCE_NS - left);
        }
    })
}

/// The turns for which a thread may wait once for what others hold for a moment: what it
/// asks for explicitly, and is told that it did not get.
pub(crate) fn brief_wait() -> impl Iterator<Item = ()> {
    bounded_spin(PATIENCE_NS).map(drop)
}

/// Turns until some time has passed, each with what is left of it: the last one with none.
fn bounded_spin(ns: u64) -> impl Iterator<Item = u64> {
    /// In case the clock stands still.
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
