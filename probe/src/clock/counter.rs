//! Decides whether the tick counter is reliable. If it is not, the system's clock replaces it, at
//! the price of a call.
//!
//! The hot path does not know which clock is used. While the fallback clock is used, the word that
//! a thread watches never has the expected value, so every stamp takes the cold path, which reads
//! the clock here.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};
use std::{mem, ptr};

use super::shared::{self, Counter};
use super::{arch, source};
use crate::errno;
use crate::file::File;

/// The facts about the counter before it is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    /// Whether the processor reports that the counter has a constant rate, independent of the
    /// core's.
    pub(crate) invariant: bool,
    /// The clocksource that the kernel uses, such as `tsc`. `None` if it cannot be read.
    pub(crate) source: Option<&'a str>,
    /// The clocksources that the kernel could use, separated by spaces.
    pub(crate) available: &'a str,
}

/// The kernel's clocksources that are the counter itself, or are computed from it.
const COUNTERS: [&str; 6] =
    ["tsc", "tsc-early", "arch_sys_counter", "kvm-clock", "xen", "hyperv_clocksource_tsc_page"];

/// Whether the counter may be used. The kernel knows more than the processor: it compares the
/// counter with another clock and with the other cores, and most virtual machines hide whether the
/// counter is invariant.
pub(crate) fn is_steady(facts: Facts<'_>) -> bool {
    match facts.source {
        None => facts.invariant,
        // The kernel withdraws a counter that it found unsteady. A counter stays available if the
        // user only chose another clocksource.
        Some(source) => {
            COUNTERS.contains(&source)
                || facts.available.split_whitespace().any(|source| source == "tsc")
        }
    }
}

/// [`is_steady`] for the counter of this machine.
fn is_steady_here() -> bool {
    const CURRENT: &CStr = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    const AVAILABLE: &CStr = c"/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let (mut current, mut available) = ([0; 256], [0; 256]);
    let source = read(CURRENT, &mut current);
    let available = match source {
        Some(source) if !COUNTERS.contains(&source) => read(AVAILABLE, &mut available),
        _ => None,
    };
    is_steady(Facts {
        invariant: arch::is_invariant(),
        source,
        available: available.unwrap_or_default(),
    })
}

/// Reads a file of one line.
fn read<'a>(path: &CStr, to: &'a mut [u8]) -> Option<&'a str> {
    let len = File::open(path)?.read_next(to)?;
    Some(str::from_utf8(to.get(..len)?).ok()?.trim())
}

/// The source of stamps before the first stamp is read.
const UNDECIDED: u8 = 0;
const COUNTER: u8 = 1;
/// The system's clock replaces the counter.
const FALLBACK: u8 = 2;
/// Another copy of pfp reads stamps for this one.
const FOLLOWED: u8 = 3;

/// The function by which the leading copy of pfp reads a stamp. Null before there is a leader.
static STAMP_OF_LEADER: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Makes this copy of pfp read its stamps from the leading copy, so that both use the same clock.
pub(crate) fn follow(stamp: unsafe extern "C" fn() -> u64) {
    STAMP_OF_LEADER.store(stamp as *mut c_void, Relaxed);
    // fallback-clock: pairs with the load in `stamp_slow`.
    state().source.store(FOLLOWED, Release);
}

fn stamp_of_leader() -> u64 {
    let stamp = STAMP_OF_LEADER.load(Relaxed);
    // SAFETY: `follow` has stored a function of this type before it changed the source.
    unsafe { mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u64>(stamp)() }
}

fn state() -> &'static Counter {
    &shared::state().counter
}

/// Whether the system's clock replaces the counter.
#[inline]
pub(crate) fn is_replaced() -> bool {
    // fallback-clock: pairs with the store in `replace`.
    state().source.load(Acquire) == FALLBACK
}

/// Reads the counter, or the fallback clock that replaces it;
/// [`super::calibrate::ticks_per_second`] is the rate of either. All code except the hot path reads
/// its stamps here, with or without a segment.
#[inline]
pub(crate) fn stamp() -> u64 {
    // fallback-clock: pairs with the store in `replace`.
    if state().source.load(Acquire) == COUNTER { source::ticks() } else { stamp_slow() }
}

/// Reads a stamp, and returns the CPU on which it was read, too.
pub(crate) fn stamp_and_cpu() -> (u64, Option<u32>) {
    if arch::is_forbidden() {
        return (stamp(), arch::cpu());
    }
    let (ticks, cpu) = arch::ticks_and_cpu();
    // fallback-clock: pairs with the store in `replace`.
    (if state().source.load(Acquire) == COUNTER { ticks } else { stamp_slow() }, cpu)
}

/// The counter, or the fallback clock if reading the counter would raise SIGSEGV. In the latter
/// case, no thread takes the fast paths, which read the counter directly; see `engine::local`.
#[inline(always)]
pub(crate) fn ticks_or_stamp() -> u64 {
    if arch::is_forbidden() { stamp() } else { source::ticks() }
}

#[cold]
#[inline(never)]
fn stamp_slow() -> u64 {
    decide();
    match state().source.load(Acquire) {
        COUNTER => source::ticks(),
        FALLBACK => fallback(),
        FOLLOWED => stamp_of_leader(),
        // No decision yet: another thread is about to select the fallback clock. That clock starts
        // at the value of CLOCK_MONOTONIC_RAW, so the stamps agree.
        _ => arch::monotonic_ns(),
    }
}

/// Decides whether the counter may be used, unless it was decided before.
fn decide() {
    if state().source.load(Relaxed) != UNDECIDED {
        return;
    }
    if !arch::is_forbidden() && errno::preserve(is_steady_here) {
        // Relaxed, because no other word is published with the decision.
        let _ = state().source.compare_exchange(UNDECIDED, COUNTER, Relaxed, Relaxed);
    } else {
        // From here on, a tick is a nanosecond.
        replace(arch::monotonic_ns());
    }
}

fn fallback() -> u64 {
    let state = state();
    let passed = arch::system_ns().saturating_sub(state.from_ns.load(Relaxed));
    let ticks = (u128::from(passed) * u128::from(state.rate.load(Relaxed))) >> 32;
    state.from_ticks.load(Relaxed).wrapping_add(ticks as u64)
}

/// Replaces the counter by the system's clock for good. The fallback clock continues from `ticks`
/// at the calibrated rate, or at one tick a nanosecond if there was no calibration.
pub(crate) fn replace(ticks: u64) {
    let state = state();
    if state.starting.swap(true, Relaxed) {
        return;
    }
    state.from_ticks.store(ticks, Relaxed);
    state.from_ns.store(arch::system_ns(), Relaxed);
    state.rate.store(shared::ticks_per_ns_fixed(), Relaxed);
    // fallback-clock: a thread that sees this store also sees the start and the rate of the
    // fallback clock.
    state.source.store(FALLBACK, Release);
    shared::watch_closely();
}

/// The counter is replaced when it goes astray for the eighth time. All reports within
/// [`ONE_TIME_NS`] count as one: after a suspend or a move to another machine, all threads of a
/// program report at the same time.
const TIMES: u32 = 8;
const ONE_TIME_NS: u64 = 100_000_000;

/// Counts that the counter went astray. True if it did so too often, and is replaced now.
pub(crate) fn doubt() -> bool {
    if is_replaced() {
        return false;
    }
    let (state, now) = (state(), arch::system_ns());
    let last = state.last_astray_ns.load(Relaxed);
    if now.saturating_sub(last) < ONE_TIME_NS
        || state.last_astray_ns.compare_exchange(last, now, Relaxed, Relaxed).is_err()
        || state.astray.fetch_add(1, Relaxed) + 1 < TIMES
    {
        return false;
    }
    replace(source::ticks());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_believed_before_the_processor() {
        for (source, available, invariant, steady) in [
            (Some("tsc"), "", true, true),
            (Some("tsc"), "", false, true),
            (Some("kvm-clock"), "", false, true),
            (Some("arch_sys_counter"), "", true, true),
            // The kernel has given the counter up.
            (Some("hpet"), "hpet acpi_pm", true, false),
            (Some("acpi_pm"), "acpi_pm", false, false),
            (Some("hyperv_clocksource_msr"), "hyperv_clocksource_msr acpi_pm", true, false),
            // The counter was not given up: the user chose another source.
            (Some("hpet"), "tsc hpet acpi_pm", false, true),
            // The kernel reports nothing.
            (None, "", true, true),
            (None, "", false, false),
        ] {
            let found = is_steady(Facts { invariant, source, available });
            assert_eq!(found, steady, "{source:?} of {available:?}, invariant {invariant}");
        }
    }
}
