//! Measures the rates of the counter and of the core.
//!
//! The counter's rate is measured against CLOCK_MONOTONIC_RAW: roughly when the process starts, and
//! more exactly whenever a cold path runs later. Each measurement starts at the same first instant,
//! so the errors of the two readings matter less as the time between them grows.

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

/// Maximum relative change of the rate by a more exact measurement. A larger change means that the
/// counter or CLOCK_MONOTONIC_RAW stood still while the other one continued.
const RATE_NEAR: f64 = 0.005;

/// Ticks per second of [`stamp`], with or without a segment. The first call measures the rate,
/// which takes 0.2 ms.
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
            // The counter stood still or jumped, before anything was measured.
            counter::replace(origin.ticks);
            1e9
        }
    };
    set(rate);
    rate
}

/// Starts the measurement of the rate, unless it was started before. A later request for the rate
/// then need not wait. Returns the current instant.
pub(crate) fn begin() -> Instant {
    origin();
    instant()
}

/// The instant at which the measurement of the rate started.
fn origin() -> Instant {
    // origin: pairs with the store of `has_origin` below.
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
        // origin: pairs with the loads in `origin` and `refine`.
        state().has_origin.store(true, Release);
    }
    now
}

fn set(ticks_per_second: f64) {
    state().ticks_per_ns.store((ticks_per_second / 1e9 * (1u64 << 32) as f64) as u64, Relaxed);
    state().rate.store(ticks_per_second.to_bits(), Relaxed);
}

/// Measures the rate more exactly, if enough time has passed for a better result. Cold paths call
/// this.
pub(crate) fn refine() {
    // origin: pairs with the store in `origin`.
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
        // One of the clocks continued while the other stood still, as in a suspended machine. Keep
        // the known rate, and start a new measurement here.
        _ => {
            state().origin_ticks.store(now.ticks, Relaxed);
            state().origin_ns.store(now.ns, Relaxed);
            state().refined_ns.store(0, Relaxed);
        }
    }
}

/// One instant, by the counter and by CLOCK_MONOTONIC_RAW.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Instant {
    pub(crate) ticks: u64,
    pub(crate) ns: u64,
}

/// Reads the counter and CLOCK_MONOTONIC_RAW at nearly the same moment. The fastest of several
/// readings counts.
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

/// Plausible rates of a counter, in ticks per second. Any other rate means that the counter stood
/// still or jumped.
const RATES: std::ops::RangeInclusive<f64> = 1e6..=1e11;

/// Ticks per second between two instants. `None` if they are too close to each other, or a clock
/// stood still or jumped.
fn rate_between(start: Instant, end: Instant) -> Option<f64> {
    let ns = end.ns.checked_sub(start.ns)?;
    let ticks = end.ticks.checked_sub(start.ticks)?;
    let rate = ticks as f64 * 1e9 / ns as f64;
    (ns >= 50_000 && RATES.contains(&rate)).then_some(rate)
}

/// Waits long enough after `start` for a first rate with an error of some 100 ppm.
fn first_rate(start: Instant) -> Option<f64> {
    // The number of steps is bounded, not the time, because the clock may stand still.
    for _ in 0..100_000 {
        let end = instant();
        if end.ns.saturating_sub(start.ns) >= 150_000 {
            return rate_between(start, end);
        }
    }
    None
}

/// The core's clock rate in hertz, computed from the counter's rate: how many dependent additions,
/// one cycle each, the core executes in a counted number of ticks. Takes about 20 microseconds.
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

/// CLOCK_MONOTONIC_RAW in the initial time namespace, in nanoseconds. A process in another time
/// namespace can compare this time with its own.
pub(crate) fn shared_ns() -> u64 {
    to_shared(arch::monotonic_ns())
}

/// Converts a reading of CLOCK_MONOTONIC_RAW to the initial time namespace.
pub(crate) fn to_shared(ns: u64) -> u64 {
    let offset = match OFFSET_NS.load(Relaxed) {
        UNKNOWN => find_offset(),
        offset => offset,
    };
    ns.saturating_add_signed(offset.saturating_neg())
}

/// The offset that this process's time namespace adds to CLOCK_MONOTONIC_RAW.
static OFFSET_NS: AtomicI64 = AtomicI64::new(UNKNOWN);
const UNKNOWN: i64 = i64::MIN;

/// Asks the kernel for the offset. A forked child may be in another namespace than its parent.
pub(crate) fn find_offset() -> i64 {
    let offset = errno::preserve(time_namespace::monotonic_offset_ns);
    OFFSET_NS.store(offset, Relaxed);
    offset
}

pub(crate) use arch::{is_invariant, monotonic_ns, reported_rate, unix_ns};

// Miri does not execute assembly.
#[cfg(all(test, target_arch = "x86_64", not(miri)))]
mod tests {
    use super::*;

    /// In a chain of 64-bit multiplications, each takes three cycles on every x86-64 processor
    /// since 2008.
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
        // Other work on the machine makes one of the two measurements too slow now and then.
        let agree = (0..1_000).any(|_| {
            seen = (core_hz(rate).expect("it can be measured"), by_multiplications(rate));
            (seen.0 / seen.1 - 1.0).abs() < 0.05
        });
        assert!(agree, "hertz by additions and by multiplications: {seen:?}");
    }
}
