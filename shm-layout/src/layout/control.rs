//! The control word: how a point is steered, in one 64-bit atomic.
//!
//! The viewer and the application write it, `begin` reads it once.
//!
//! ```text
//! 63                    36 35                15 14       13       12     2 1         0
//! +-----------------------+--------------------+--------+--------+--------+---------+---------+
//! | epoch: times reset    | alpha, in 2^-20    | fenced | allocs | limit  | invalid | enabled |
//! +-----------------------+--------------------+--------+--------+--------+---------+---------+
//! ```
//!
//! The *limit* is the time from which on a call is kept in a [box](crate::black_box). It has two
//! decimal digits: bits 2 to 8 are a number `n` of at least 10, and bits 9 to 11 an exponent `e`,
//! for `n * 10^e` tenths of a microsecond. `n` is 0 without a limit. Bit 12 is 1 for a
//! limit of the time on a CPU, and 0 for one of the time by the clock.
//!
//! A cell stores the control word that it follows. As long as the cell's word equals the point's,
//! nothing has changed. `begin` compares the two words, and pays nothing else for control.
//!
//! The clock readings of a *fenced* point wait until the processor has finished the work before
//! them. The regions of a point with the bit `allocs` count what they allocate. The cells of a
//! point follow its word without these two bits. So if one of them is set, no cell's word equals
//! the point's, and the point's regions do not begin on the usual path. Other points pay nothing.
//!
//! # When a point was reset
//!
//! A second word holds the time of the last reset, for readers alone: `begin` never reads it. A
//! thread that resets a point changes the control word first, then the second word, and may be
//! killed in between. So the second word also has the low bits of the reset's epoch, and its time
//! counts only if these bits agree with the epoch in the control word:
//!
//! ```text
//! 63                                                          8 7              0
//! +------------------------------------------------------------+----------------+
//! | time: microseconds of CLOCK_MONOTONIC_RAW                  | end of epoch   |
//! +------------------------------------------------------------+----------------+
//! ```
//!
//! The program and every viewer on its machine read the same clock. The header and the note of a
//! [copied](crate::copy) segment have a reading of this clock, too, so a reader on another machine
//! knows how long ago a reset was. A hostile viewer may write a wrong time. So readers
//! move a time before the segment's creation to the creation, and a time after their picture to the
//! moment of the picture.

use crate::sync::{AtomicU64, Ordering, ord};

const ENABLED: u64 = 1;
const INVALID: u64 = 2;
/// Flag: the point's clock readings wait until the processor has finished the work before them.
pub const FENCED: u64 = 1 << 14;
/// Flag: the point's regions count what they allocate.
pub const ALLOCS: u64 = 1 << 13;
const ALPHA_SHIFT: u32 = 15;
const ALPHA_MASK: u64 = (1 << 21) - 1;
/// Fraction bits of alpha.
pub(crate) const ALPHA_BITS: u32 = 20;
const EPOCH_SHIFT: u32 = 36;
const LIMIT_SHIFT: u32 = 2;
const LIMIT_MASK: u64 = (1 << 11) - 1;
/// Bits of the epoch in the word that holds the time of a reset.
const TIME_SHIFT: u32 = 8;
/// Attempts to store the time of a reset while other threads store theirs.
const RESET_TIME_ATTEMPTS: usize = 16;
/// The bits that have a meaning to cells.
const MEANT: u64 =
    !0 << EPOCH_SHIFT | ALPHA_MASK << ALPHA_SHIFT | LIMIT_MASK << LIMIT_SHIFT | INVALID | ENABLED;
/// Alpha 1.0.
const ALPHA_ONE: f64 = (1u32 << ALPHA_BITS) as f64;

/// A value of a point's control word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control(pub u64);

impl Control {
    /// Whether the point measures.
    #[inline(always)]
    #[must_use]
    pub const fn enabled(self) -> bool {
        self.0 & ENABLED != 0
    }

    /// Whether the point was switched off because it was begun again before its end.
    #[must_use]
    pub const fn invalid(self) -> bool {
        self.0 & INVALID != 0
    }

    /// Whether the point's clock readings wait for the work before them; see [`FENCED`].
    #[must_use]
    pub const fn fenced(self) -> bool {
        self.0 & FENCED != 0
    }

    /// Whether the point's regions count what they allocate; see [`ALLOCS`].
    #[must_use]
    pub const fn counts_allocs(self) -> bool {
        self.0 & ALLOCS != 0
    }

    /// Whether the point is on and has [`ALLOCS`] as its only flag.
    #[inline(always)]
    #[must_use]
    pub const fn only_counts_allocs(self) -> bool {
        self.0 & (ENABLED | FENCED | ALLOCS) == ENABLED | ALLOCS
    }

    /// The word without [`FENCED`] and [`ALLOCS`]. A cell follows a sanitized word, so a word that
    /// equals the cell's has these bits clear, too.
    #[inline(always)]
    #[must_use]
    pub const fn sanitized(self) -> Self {
        Self(self.0 & MEANT)
    }

    /// Number of resets so far, modulo 2^28.
    #[must_use]
    pub const fn epoch(self) -> u32 {
        (self.0 >> EPOCH_SHIFT) as u32
    }

    /// The weight of a new value in the exponential average, in units of
    /// 2^-20; 0 while averaging is off.
    #[inline(always)]
    #[must_use]
    pub const fn alpha_fixed(self) -> u32 {
        ((self.0 >> ALPHA_SHIFT) & ALPHA_MASK) as u32
    }

    /// The weight of a new value in the exponential average, in (0, 1]; `None` while averaging is
    /// off.
    #[must_use]
    pub fn alpha(self) -> Option<f64> {
        let fixed = self.alpha_fixed();
        (fixed != 0).then(|| (f64::from(fixed) / ALPHA_ONE).min(1.0))
    }

    /// The time from which on a call is kept in a [box](crate::black_box).
    #[must_use]
    pub const fn limit(self) -> Option<Limit> {
        Limit::from_bits((self.0 >> LIMIT_SHIFT) & LIMIT_MASK)
    }

    /// The word after a change.
    #[must_use]
    pub fn with(self, change: Change) -> Self {
        let word = self.0;
        Self(match change {
            Change::Enable => (word | ENABLED) & !INVALID,
            Change::Disable => word & !ENABLED,
            Change::Fence(true) => word | FENCED,
            Change::Fence(false) => word & !FENCED,
            Change::CountAllocs(true) => word | ALLOCS,
            Change::CountAllocs(false) => word & !ALLOCS,
            Change::Limit(limit) => {
                let bits = limit.map_or(0, Limit::bits);
                (word & !(LIMIT_MASK << LIMIT_SHIFT)) | bits << LIMIT_SHIFT
            }
            Change::Invalidate => (word & !ENABLED) | INVALID,
            // The epoch is the top of the word, so it wraps by itself.
            Change::Reset => word.wrapping_add(1 << EPOCH_SHIFT),
            Change::Alpha(alpha) => {
                (word & !(ALPHA_MASK << ALPHA_SHIFT)) | u64::from(alpha.fixed()) << ALPHA_SHIFT
            }
        })
    }
}

/// Whether `epoch` comes after `than`. Epochs wrap: the later one is less than half their range
/// ahead.
pub(crate) const fn is_newer(epoch: u32, than: u32) -> bool {
    (epoch.wrapping_sub(than) << (EPOCH_SHIFT - 32)) as i32 > 0
}

/// A change to a point's control word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// Switch the point on; an invalid point becomes valid.
    Enable,
    /// Switch it off.
    Disable,
    /// Set or clear [`FENCED`].
    Fence(bool),
    /// Set or clear [`ALLOCS`].
    CountAllocs(bool),
    /// Set the time from which on a call is kept in a [box](crate::black_box), or remove it.
    Limit(Option<Limit>),
    /// Switch it off because it was begun again before its end.
    Invalidate,
    /// Start its statistics afresh.
    Reset,
    /// Set the weight of a new value in the exponential average.
    Alpha(Alpha),
}

/// The time from which on a call of a point is kept in a [box](crate::black_box).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    ns: u64,
    is_cpu: bool,
}

impl Limit {
    /// The shortest and the longest limit, in nanoseconds.
    pub const RANGE: [u64; 2] = [1_000, 99_000_000_000];
    const CPU: u64 = 1 << 10;
    const EXPONENT_SHIFT: u32 = 7;
    /// Nanoseconds of the unit in which a limit is stored.
    const UNIT: u64 = 100;

    /// A limit of the time by the clock from begin to end, or with `is_cpu` of the time on a CPU,
    /// rounded down to two digits. `None` outside of [`Self::RANGE`].
    #[must_use]
    pub const fn new(ns: u64, is_cpu: bool) -> Option<Self> {
        let [least, most] = Self::RANGE;
        if ns < least || ns > most {
            return None;
        }
        let mut unit = Self::UNIT;
        while ns / unit >= 100 {
            unit *= 10;
        }
        Some(Self { ns: ns / unit * unit, is_cpu })
    }

    /// Like [`Self::new`], for the nearest time in [`Self::RANGE`].
    #[must_use]
    pub fn nearest(ns: u64, is_cpu: bool) -> Option<Self> {
        let [least, most] = Self::RANGE;
        Self::new(ns.clamp(least, most), is_cpu)
    }

    /// The time in nanoseconds.
    #[must_use]
    pub const fn ns(self) -> u64 {
        self.ns
    }

    /// Whether it is a limit of the time on a CPU, nested regions included, and not of the time by
    /// the clock.
    #[must_use]
    pub const fn is_cpu(self) -> bool {
        self.is_cpu
    }

    const fn bits(self) -> u64 {
        let (mut number, mut exponent) = (self.ns / Self::UNIT, 0);
        while number >= 100 {
            (number, exponent) = (number / 10, exponent + 1);
        }
        let is_cpu = if self.is_cpu { Self::CPU } else { 0 };
        is_cpu | exponent << Self::EXPONENT_SHIFT | number
    }

    /// The limit that these bits encode; `None` if `n` is 0. Any other `n` is accepted, because
    /// another process may have written the bits.
    const fn from_bits(bits: u64) -> Option<Self> {
        let number = bits & ((1 << Self::EXPONENT_SHIFT) - 1);
        let exponent = (bits >> Self::EXPONENT_SHIFT) as u32 & 7;
        if number == 0 {
            return None;
        }
        let ns = number * Self::UNIT * 10_u64.pow(exponent);
        Some(Self { ns, is_cpu: bits & Self::CPU != 0 })
    }
}

/// The weight of a new value in the exponential average
/// `avg += alpha * (value - avg)`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Alpha(f64);

impl Alpha {
    /// No averaging.
    pub const OFF: Self = Self(0.0);

    /// A weight in (0, 1]; `None` for any other number, NaN included.
    #[must_use]
    pub fn new(alpha: f64) -> Option<Self> {
        (alpha > 0.0 && alpha <= 1.0).then_some(Self(alpha))
    }

    /// The weight as a number, 0 for [`Self::OFF`].
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// The weight in units of 2^-20. A weight above 0 is not rounded down to 0, which means "off".
    fn fixed(self) -> u32 {
        let fixed = (self.0 * ALPHA_ONE).round() as u32;
        if self.0 > 0.0 { fixed.max(1) } else { 0 }
    }
}

/// Changes a control word that other threads may change at the same time; returns the word before.
///
/// Relaxed: the word is complete in itself, and publishes nothing else.
pub fn apply(word: &AtomicU64, change: Change) -> Control {
    let mut before = word.load(Ordering::Relaxed);
    loop {
        let after = Control(before).with(change).0;
        match word.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return Control(before),
            Err(found) => before = found,
        }
    }
}

/// Encodes that a point was reset to this epoch at this time, in nanoseconds of
/// CLOCK_MONOTONIC_RAW.
#[must_use]
pub const fn reset_word(epoch: u32, monotonic_ns: u64) -> u64 {
    (monotonic_ns / 1000) << TIME_SHIFT | (epoch & ((1 << TIME_SHIFT) - 1)) as u64
}

/// When a point was last reset, in nanoseconds of CLOCK_MONOTONIC_RAW; `None` if it never was, or
/// if the time is not known. `time` may be any value.
#[must_use]
pub const fn reset_ns(control: Control, time: u64) -> Option<u64> {
    let epoch = control.epoch();
    let agrees = (time as u32 ^ epoch) & ((1 << TIME_SHIFT) - 1) == 0;
    // A time of 0 is an unwritten word, whatever the epoch.
    if epoch == 0 || time == 0 || !agrees {
        return None;
    }
    Some((time >> TIME_SHIFT).saturating_mul(1000))
}

/// Resets a point and stores the time beside its control word; returns that word as it was before.
/// The caller reads the time before the reset, so no later figure is older than that time.
///
/// If several threads reset at the same time, the time of the last reset stays. A writer that dies
/// in between, or loses every attempt, leaves a time that belongs to no current epoch.
pub fn reset(word: &AtomicU64, time: &AtomicU64, monotonic_ns: u64) -> Control {
    let before = apply(word, Change::Reset);
    let epoch = before.with(Change::Reset).epoch();
    for _ in 0..RESET_TIME_ATTEMPTS {
        // reset-time-seen: pairs with reset-time. A thread that finds the time of a later reset
        // sees that reset's epoch in the control word.
        let known = time.load(ord!("reset-time-seen", Acquire));
        if Control(word.load(Ordering::Relaxed)).epoch() != epoch {
            break;
        }
        let new = reset_word(epoch, monotonic_ns);
        // reset-time: pairs with reset-time-seen.
        let success = ord!("reset-time", Release);
        if time.compare_exchange(known, new, success, Ordering::Relaxed).is_ok() {
            break;
        }
    }
    before
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_leaves_its_time_and_no_other_time_counts() {
        let (word, time) = (AtomicU64::new(ENABLED), AtomicU64::new(0));
        let known =
            || reset_ns(Control(word.load(Ordering::Relaxed)), time.load(Ordering::Relaxed));
        assert_eq!(known(), None, "never reset");
        for epoch in 1..600_u64 {
            reset(&word, &time, epoch * 5_000_000 + 999);
            assert_eq!(known(), Some(epoch * 5_000_000), "whole microseconds");
        }
        // The writer was killed before it stored the time.
        apply(&word, Change::Reset);
        assert_eq!(known(), None);
        reset(&word, &time, u64::MAX);
        assert_eq!(known(), Some(u64::MAX / 1000 * 1000));
        // An unwritten word, though the epoch ends in zeros.
        assert_eq!(reset_ns(Control(256 << EPOCH_SHIFT), 0), None);
        assert!(reset_ns(Control(256 << EPOCH_SHIFT), u64::MAX << 8).is_some());
    }

    #[test]
    fn changes_touch_only_their_own_field() {
        let word = Control(0)
            .with(Change::Alpha(Alpha::new(0.2).unwrap()))
            .with(Change::Enable)
            .with(Change::Reset)
            .with(Change::Reset);
        assert!(word.enabled() && !word.invalid());
        assert_eq!(word.epoch(), 2);
        assert!((word.alpha().unwrap() - 0.2).abs() < 1e-6);

        let fenced = word.with(Change::Fence(true)).with(Change::Reset);
        assert!(fenced.fenced() && fenced.enabled() && fenced.alpha() == word.alpha());
        assert_eq!(fenced.sanitized(), word.with(Change::Reset));
        assert_eq!(fenced.with(Change::Fence(false)), fenced.sanitized());

        let off = word.with(Change::Invalidate);
        assert!(!off.enabled() && off.invalid());
        assert_eq!((off.epoch(), off.alpha()), (word.epoch(), word.alpha()));
        assert_eq!(off.with(Change::Enable), word);
        assert_eq!(word.with(Change::Alpha(Alpha::OFF)).alpha(), None);
    }

    #[test]
    fn a_limit_has_two_digits() {
        let stored = |ns, is_cpu| {
            Limit::new(ns, is_cpu).map(|limit| {
                let word = Control(u64::MAX << EPOCH_SHIFT).with(Change::Limit(Some(limit)));
                assert_eq!(word.with(Change::Limit(None)), Control(u64::MAX << EPOCH_SHIFT));
                assert_eq!(word.sanitized(), word);
                assert_eq!(word.limit(), Some(limit));
                (limit.ns(), limit.is_cpu())
            })
        };
        let [least, most] = Limit::RANGE;
        assert_eq!(stored(least - 1, false), None);
        assert_eq!(stored(most + 1, false), None);
        for (ns, expected) in [
            (least, least),
            (5_000_000, 5_000_000),
            (1_234_567, 1_200_000),
            (999_999, 990_000),
            (250_000_000, 250_000_000),
            (most, most),
        ] {
            assert_eq!(stored(ns, false), Some((expected, false)));
            assert_eq!(stored(ns, true), Some((expected, true)));
        }
        // A hostile process may write any bits.
        for bits in 0..=LIMIT_MASK {
            let _ = Control(bits << LIMIT_SHIFT).limit();
        }
    }

    #[test]
    fn the_epoch_wraps_and_leaves_the_rest_alone() {
        let last = Control(u64::MAX << EPOCH_SHIFT | ENABLED);
        assert_eq!(last.with(Change::Reset), Control(ENABLED));
        assert!(is_newer(0, last.epoch()) && !is_newer(last.epoch(), 0));
        assert!(is_newer(2, 1) && !is_newer(1, 2) && !is_newer(1, 1));
    }

    #[test]
    fn alpha_is_in_its_range() {
        for bad in [0.0, -0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert!(Alpha::new(bad).is_none(), "{bad}");
        }
        for good in [1e-12, 0.5, 1.0] {
            let word = Control(0).with(Change::Alpha(Alpha::new(good).unwrap()));
            assert!(word.alpha().is_some_and(|alpha| alpha > 0.0 && alpha <= 1.0), "{good}");
        }
    }
}
