//! What the clocks of all threads have in common.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use pfp_shm_layout::header::ClockKind;

use super::rseq;

/// What the clocks of all threads have in common.
#[derive(Debug)]
pub(super) struct ClockState {
    /// The kind of clock that this process uses, a [`ClockKind`].
    pub(super) kind: AtomicU8,
    /// A word that is watched where nothing is: it has the value 0 as long as the counter
    /// is what is read, and never the value 1.
    pub(super) still: AtomicU64,
    pub(super) calibration: Calibration,
    pub(super) counter: Counter,
    pub(super) rseq: rseq::Rseq,
}

/// The counter's rate, and since when it is measured.
#[derive(Debug)]
pub(super) struct Calibration {
    /// Ticks per nanosecond, in 2^-32.
    pub(super) ticks_per_ns: AtomicU64,
    /// Ticks per second, the bits of an `f64`; 0 while nobody has measured that.
    pub(super) rate: AtomicU64,
    /// The instant since which the rate is measured; there once `has_origin` says so.
    pub(super) origin_ticks: AtomicU64,
    pub(super) origin_ns: AtomicU64,
    pub(super) has_origin: AtomicBool,
    /// Whether some thread sees to that.
    pub(super) claimed: AtomicBool,
    /// How long after it the rate was made more exact for the last time.
    pub(super) refined_ns: AtomicU64,
}

/// What stamps are read from, and why.
#[derive(Debug)]
pub(super) struct Counter {
    /// What stamps are read from, see [`super::counter`].
    pub(super) source: AtomicU8,
    /// Whether somebody starts the fallback clock.
    pub(super) starting: AtomicBool,
    /// How often the counter went astray.
    pub(super) astray: AtomicU32,
    pub(super) last_astray_ns: AtomicU64,
    /// The fallback clock goes on where the counter was given up, and at its rate, so that what
    /// was measured before and after adds up.
    pub(super) from_ticks: AtomicU64,
    pub(super) from_ns: AtomicU64,
    /// Ticks per nanosecond, in 2^-32.
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

/// The kind of clock that this process uses.
pub(crate) fn kind() -> ClockKind {
    ClockKind::from_word(u64::from(state().kind.load(Relaxed)))
}

/// Has every stamp of those that watch nothing take the slow path.
pub(super) fn watch_closely() {
    state().still.store(2, Relaxed);
}

/// The rate that CPU time is converted with, in ticks per 2^-32 nanoseconds.
pub(super) fn ticks_per_ns_fixed() -> u64 {
    state().calibration.ticks_per_ns.load(Relaxed)
}
