//! How fast the counter and the core run.
//!
//! The rate is measured against CLOCK_MONOTONIC_RAW, roughly when the process
//! starts, and more exactly whenever a cold path comes by later: the first instant is kept, so
//! the error of two readings shrinks with the time between them.

use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use pfp_shm_layout::time_namespace;

use super::arch;
use super::counter::{self, stamp};
use super::shared::{self, Calibration};
use crate::errno;

fn state() -> &'static Calibration {
    &shared::state().calibration
}

/// How far a more exact rate may be from the one before: what is further away shows
/// that one of the clocks went on while the other did not.
const RATE_NEAR: f64 = 0.005;

/// Ticks per second of [`stamp`], with or without a segment; measured when it is first
/// asked for, which takes 0.2 ms.
pub(crate) fn ticks_per_second() -> f64 {
    match state().rate.load(Relaxed) {
        0 => first_ticks_per_second(),
        bits => f64::from_bits(bits),
    }
}

#[cold]
fn first_ticks_per_second() -> f64 {
    let origin = origin();
    let rate = match first_rate(origin) {
        _ if counter::is_replaced() => 1e9,
        Some(rate) => rate,
        None => {
            // It stood still or jumped, before anything was measured.
            counter::replace(origin.ticks);
            1e9
        }
    };
    set(rate);
    rate
}

/// Begins to measure the rate, if nobody has: asked for later, it is there at once.
/// Returns this instant.
pub(crate) fn begin() -> Instant {
    origin();
    instant()
}

/// The instant since which the rate is measured.
fn origin() -> Instant {
    // origin: meets the store below.
    if state().has_origin.load(Acquire) {
        return Instant {
            ticks: state().origin_ticks.load(Relaxed),
            ns: state().origin_ns.load(Relaxed),
        };
    }
    let now = instant();
    if !state().claimed.swap(true, Relaxed) {
        state().origin_ticks.store(now.ticks, Relaxed);
        state().origin_ns.store(now.ns, Relaxed);
        // origin: meets the loads in `origin` and `refine`.
        state().has_origin.store(true, Release);
    }
    now
}

fn set(ticks_per_second: f64) {
    state().ticks_per_ns.store((ticks_per_second / 1e9 * (1u64 << 32) as f64) as u64, Relaxed);
    state().rate.store(ticks_per_second.to_bits(), Relaxed);
}

/// Makes the rate more exact, if enough time has passed for that to be worth it.
/// Cold paths call this.
pub(crate) fn refine() {
    // origin: meets the store in `origin`.
    if !state().has_origin.load(Acquire) || counter::is_replaced() {
        return;
    }
    let origin = origin();
    let now_ns = arch::monotonic_ns().saturating_sub(origin.ns);
    let refined_ns = state().refined_ns.load(Relaxed);
    if now_ns < refined_ns.saturating_mul(2).max(2_000_000)
        || state().refined_ns.compare_exchange(refined_ns, now_ns, Relaxed, Relaxed).is_err()
    {
        return;
    }
    let (now, known) = (instant(), ticks_per_second());
    match rate_between(origin, now) {
        Some(rate) if (rate / known - 1.0).abs() < RATE_NEAR => set(rate),
        // One of the clocks went on while the other did not, as in a suspended
        // machine: what was known holds, and is made more exact from here on.
        _ => {
            state().origin_ticks.store(now.ticks, Relaxed);
            state().origin_ns.store(now.ns, Relaxed);
            state().refined_ns.store(0, Relaxed);
        }
    }
}

/// An instant on both clocks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instant {
    pub(crate) ticks: u64,
    pub(crate) ns: u64,
}

/// Reads both clocks at nearly one moment: the tightest of a few tries.
pub(crate) fn instant() -> Instant {
    let mut best = (u64::MAX, Instant::default());
    for _ in 0..8 {
        let before = stamp();
        let ns = arch::monotonic_ns();
        let width = stamp().wrapping_sub(before);
        if width < best.0 {
            best = (width, Instant { ticks: before.wrapping_add(width / 2), ns });
        }
    }
    best.1
}

/// What a counter may run at, in ticks per second: everything else is none that
/// stood still or jumped.
const RATES: std::ops::RangeInclusive<f64> = 1e6..=1e11;

/// Ticks per second between two instants; none if they are too near each other
/// or a clock did not move as clocks do.
fn rate_between(start: Instant, end: Instant) -> Option<f64> {
    let ns = end.ns.checked_sub(start.ns)?;
    let ticks = end.ticks.checked_sub(start.ticks)?;
    let rate = ticks as f64 * 1e9 / ns as f64;
    (ns >= 50_000 && RATES.contains(&rate)).then_some(rate)
}

/// Waits long enough after `start` for a first rate good to some 100 ppm.
fn first_rate(start: Instant) -> Option<f64> {
    // Bounded in steps, not in time, in case the clock stands still.
    for _ in 0..100_000 {
        let end = instant();
        if end.ns.saturating_sub(start.ns) >= 150_000 {
            return rate_between(start, end);
        }
    }
    None
}

/// The core's true clock in hertz, given the counter's rate: how many dependent
/// additions, one cycle each, it does in a counted number of ticks. Takes about
/// 20 microseconds.
pub(crate) fn core_hz(ticks_per_second: f64) -> Option<f64> {
    const ROUNDS: u32 = 256;
    let mut best = u64::MAX;
    for _ in 0..4 {
        let start = stamp();
        arch::dependent_adds(ROUNDS);
        let passed = stamp().wrapping_sub(start);
        // Skips a round in which the clock stopped or ran backwards.
        if passed as i64 > 0 {
            best = best.min(passed);
        }
    }
    let cycles = f64::from(ROUNDS) * 64.0;
    (arch::HAS_DEPENDENT_ADDS && best < u64::MAX).then(|| cycles / best as f64 * ticks_per_second)
}

/// CLOCK_MONOTONIC_RAW as the first time namespace reads it, in nanoseconds: other processes compare
/// this time with theirs.
pub(crate) fn shared_ns() -> u64 {
    to_shared(arch::monotonic_ns())
}

/// Converts a reading of CLOCK_MONOTONIC_RAW to what the first time namespace reads.
pub(crate) fn to_shared(ns: u64) -> u64 {
    let offset = match OFFSET_NS.load(Relaxed) {
        UNKNOWN => find_offset(),
        offset => offset,
    };
    ns.saturating_add_signed(offset.saturating_neg())
}

/// What the time namespace of this process adds to CLOCK_MONOTONIC_RAW.
static OFFSET_NS: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MIN;

/// Asks the kernel for the offset. A forked child may be in another namespace than its parent.
pub(crate) fn find_offset() -> i64 {
    let offset = errno::preserve(time_namespace::monotonic_offset_ns);
    OFFSET_NS.store(offset, Relaxed);
    offset
}

pub(crate) use arch::{is_invariant, monotonic_ns, reported_rate, unix_ns};

// Miri has no system to ask.
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    /// A multiplication of 64 bits waits three cycles for the one before, on every
    /// processor of this kind since 2008, and none of them is left out.
    #[test]
    fn the_cores_clock_is_what_multiplications_say() {
        const ROUNDS: u64 = 256;
        let by_multiplications = |ticks_per_second: f64| {
            let start = stamp();
            arch::chain!("imul {result}, {operand}", ROUNDS);
            let passed = stamp().wrapping_sub(start);
            (ROUNDS * 64 * 3) as f64 / passed as f64 * ticks_per_second
        };
        let rate = 1e9;
        let mut seen = (0.0, 0.0);
        // Whatever else the machine does makes one of the two too slow, now and then.
        let agree = (0..1_000).any(|_| {
            seen = (core_hz(rate).expect("it can be measured"), by_multiplications(rate));
            (seen.0 / seen.1 - 1.0).abs() < 0.05
        });
        assert!(agree, "hertz by additions and by multiplications: {seen:?}");
    }
}
