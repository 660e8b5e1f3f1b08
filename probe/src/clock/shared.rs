//! The state that the clocks of all threads share.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::header::ClockKind;

use super::rseq;

/// The state that the clocks of all threads share.
#[derive(Debug)]
pub(super) struct ClockState {
    /// The process's clock source, a [`ClockKind`].
    pub(super) kind: AtomicU8,
    /// The word that a clock watches if its source has none. It is 0 until the fallback clock
    /// replaces the counter, and never 1.
    pub(super) still: AtomicU64,
    pub(super) calibration: Calibration,
    pub(super) counter: Counter,
    pub(super) rseq: rseq::Rseq,
}

/// The counter's rate, and when its measurement started.
#[derive(Debug)]
pub(super) struct Calibration {
    /// Ticks per nanosecond, in units of 2^-32.
    pub(super) ticks_per_ns: AtomicU64,
    /// Ticks per second as the bits of an `f64`; 0 before the first measurement.
    pub(super) rate: AtomicU64,
    /// The instant at which the measurement started. Valid once `has_origin` is set.
    pub(super) origin_ticks: AtomicU64,
    pub(super) origin_ns: AtomicU64,
    pub(super) has_origin: AtomicBool,
    /// Whether a thread is storing the origin.
    pub(super) claimed: AtomicBool,
    /// Time from the origin to the last measurement by `refine`; 0 before the first.
    pub(super) refined_ns: AtomicU64,
}

/// The source of stamps, and its fallback.
#[derive(Debug)]
pub(super) struct Counter {
    /// The source of stamps, see [`super::counter`].
    pub(super) source: AtomicU8,
    /// Whether a thread is starting the fallback clock.
    pub(super) starting: AtomicBool,
    /// How often the counter went astray.
    pub(super) astray: AtomicU32,
    pub(super) last_astray_ns: AtomicU64,
    /// Start of the fallback clock, in ticks and in nanoseconds of the system's clock. The fallback
    /// clock continues from the counter's last value and at its rate, so that figures from before
    /// and after can be added.
    pub(super) from_ticks: AtomicU64,
    pub(super) from_ns: AtomicU64,
    /// Ticks per nanosecond, in units of 2^-32.
    pub(super) rate: AtomicU64,
}

impl ClockState {
    const fn new() -> Self {
        Self {
            kind: AtomicU8::new(ClockKind::Wall as u8),
            still: AtomicU64::new(0),
            calibration: Calibration {
                ticks_per_ns: AtomicU64::new(1 << 32),
                rate: AtomicU64::new(0),
                origin_ticks: AtomicU64::new(0),
                origin_ns: AtomicU64::new(0),
                has_origin: AtomicBool::new(false),
                claimed: AtomicBool::new(false),
                refined_ns: AtomicU64::new(0),
            },
            counter: Counter {
                source: AtomicU8::new(0),
                starting: AtomicBool::new(false),
                astray: AtomicU32::new(0),
                last_astray_ns: AtomicU64::new(0),
                from_ticks: AtomicU64::new(0),
                from_ns: AtomicU64::new(0),
                rate: AtomicU64::new(0),
            },
            rseq: rseq::Rseq::new(),
        }
    }
}

static STATE: ClockState = ClockState::new();

pub(super) fn state() -> &'static ClockState {
    &STATE
}

/// The process's clock source.
pub(crate) fn kind() -> ClockKind {
    ClockKind::from_word(u64::from(state().kind.load(Relaxed)))
}

/// Makes every stamp take the slow path, for the clocks whose source has no word.
pub(super) fn watch_closely() {
    state().still.store(2, Relaxed);
}

/// The rate for converting CPU time, in units of 2^-32 ticks per nanosecond.
pub(super) fn ticks_per_ns_fixed() -> u64 {
    state().calibration.ticks_per_ns.load(Relaxed)
}
