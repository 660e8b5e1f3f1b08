//! The figures of a cell: [`figures!`](crate::figures) declares each of them once.
//!
//! From the list, [`declare!`] makes all code that treats the figures alike: the struct [`Sums`],
//! its zero, sums, differences and JSON, and the words of a cell that hold the figures. The
//! functions that add a measurement take the figures apart by name, so a new figure does not
//! compile until each of these functions counts it.

use std::fmt;

use super::{get, put};
use crate::sync::{AtomicU64, Ordering::Relaxed};

/// Passes the list of a cell's figures to a macro of the caller.
///
/// The group of a figure determines which words hold it:
///
/// | group | words |
/// |---|---|
/// | `live`, `extreme` | in the line that each fold writes, and in the retired figures |
/// | `latest` | only in the line that each fold writes: the figure is not added up |
/// | `rare` | among the words that most folds leave alone, and in the retired figures |
/// | `average` | only among the words that most folds leave alone: the figure is not added up |
/// | `wide` | the low half as in `live`, the high half as in `rare` |
///
/// The kind of a figure follows the colon: a `number` or `ticks` are added up, `least` and `most`
/// are extremes.
#[macro_export]
macro_rules! figures {
    ($declare:ident) => {
        $declare! {
            live {
                /// Finished measurements.
                count: number,
                /// Ticks of the regions themselves.
                exclusive: ticks,
                /// Ticks with nested regions, recursion counted once.
                inclusive: ticks,
            }
            rare {
                /// Ticks that threads were off the CPU between begin and end.
                off_cpu: ticks,
                /// Context switches that were noticed between begin and end.
                switches: number,
                /// Most ticks by the clock from begin to end, among the measurements that were off
                /// the CPU or took longer than about a millisecond; 0 if there are none. For a
                /// future, the ticks from its first poll to its last. For a region in parts, the
                /// ticks of its last part.
                longest: most,
            }
            extreme {
                /// Least exclusive ticks; `u64::MAX` before the first measurement.
                min: least,
                /// Most exclusive ticks.
                max: most,
            }
            latest {
                /// Exclusive ticks of the last measurement.
                last,
            }
            wide {
                /// Sum of the squares of exclusive ticks.
                squares: squares_low squares_high,
            }
            average {
                /// Exponential average in 2^-16 ticks; [`Self::average_ticks`] converts it.
                average,
            }
        }
    };
}

/// The value of a figure before the first measurement.
macro_rules! zero {
    (least) => {
        u64::MAX
    };
    ($other:ident) => {
        0
    };
}

/// Merges a figure of two sets of measurements. `$add` is the method that adds sums.
macro_rules! together {
    (least $add:ident $one:expr, $other:expr) => {
        $one.min($other)
    };
    (most $add:ident $one:expr, $other:expr) => {
        $one.max($other)
    };
    ($sum:ident $add:ident $one:expr, $other:expr) => {
        $one.$add($other)
    };
}

/// Subtracts the figure of an earlier moment, if the figure is a sum.
macro_rules! grown {
    (least $now:expr, $then:expr) => {
        $now
    };
    (most $now:expr, $then:expr) => {
        $now
    };
    ($sum:ident $now:expr, $then:expr) => {
        $now.saturating_sub($then)
    };
}

/// Adds a figure to a word that many threads write.
macro_rules! add_shared {
    (least $word:expr, $figure:expr) => {
        $word.fetch_min($figure, Relaxed)
    };
    (most $word:expr, $figure:expr) => {
        $word.fetch_max($figure, Relaxed)
    };
    ($sum:ident $word:expr, $figure:expr) => {
        if $figure != 0 {
            $word.fetch_add($figure, Relaxed);
        }
    };
}

/// Converts a figure by `$convert` if it counts ticks.
macro_rules! converted {
    (number $convert:ident $figure:expr) => {
        $figure
    };
    ($ticks:ident $convert:ident $figure:expr) => {
        $convert($figure)
    };
}

macro_rules! declare {
    (
        live { $($(#[$live_doc:meta])* $live:ident: $live_kind:ident,)* }
        rare { $($(#[$rare_doc:meta])* $rare:ident: $rare_kind:ident,)* }
        extreme { $($(#[$extreme_doc:meta])* $extreme:ident: $extreme_kind:ident,)* }
        latest { $($(#[$latest_doc:meta])* $latest:ident,)* }
        wide { $($(#[$wide_doc:meta])* $wide:ident: $low:ident $high:ident,)* }
        average { $(#[$average_doc:meta])* $average:ident, }
    ) => {
        /// Sums over measurements, in ticks unless stated otherwise.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Sums {
            $($(#[$live_doc])* pub $live: u64,)*
            $($(#[$rare_doc])* pub $rare: u64,)*
            $($(#[$extreme_doc])* pub $extreme: u64,)*
            $($(#[$latest_doc])* pub $latest: u64,)*
            $($(#[$wide_doc])* pub $wide: u128,)*
            $(#[$average_doc])* pub $average: u64,
        }

        impl Default for Sums {
            fn default() -> Self {
                Self {
                    $($live: zero!($live_kind),)*
                    $($rare: zero!($rare_kind),)*
                    $($extreme: zero!($extreme_kind),)*
                    $($latest: 0,)*
                    $($wide: 0,)*
                    $average: 0,
                }
            }
        }

        impl Sums {
            /// Adds the figures that are sums, and merges the extremes.
            #[inline(always)]
            pub fn merge(&mut self, other: &Self) {
                $(self.$live = together!($live_kind wrapping_add self.$live, other.$live);)*
                $(self.$rare = together!($rare_kind wrapping_add self.$rare, other.$rare);)*
                $(self.$extreme = together!($extreme_kind wrapping_add self.$extreme, other.$extreme);)*
                $(self.$wide = together!(sum wrapping_add self.$wide, other.$wide);)*
            }

            /// Like [`Self::merge`], but sums saturate: a damaged file may hold any numbers.
            pub(super) fn merge_saturating(&mut self, other: &Self) {
                $(self.$live = together!($live_kind saturating_add self.$live, other.$live);)*
                $(self.$rare = together!($rare_kind saturating_add self.$rare, other.$rare);)*
                $(self.$extreme = together!($extreme_kind wrapping_add self.$extreme, other.$extreme);)*
                $(self.$wide = together!(sum saturating_add self.$wide, other.$wide);)*
            }

            /// Takes the last value and the average from later measurements, since neither is a
            /// sum.
            #[inline(always)]
            pub(super) fn take_latest(&mut self, later: &Self) {
                $(self.$latest = later.$latest;)*
                self.$average = later.$average;
            }

            /// Subtracts the sums of an earlier moment, and leaves the other figures unchanged.
            pub(super) fn less(&self, then: &Self) -> Self {
                Self {
                    $($live: grown!($live_kind self.$live, then.$live),)*
                    $($rare: grown!($rare_kind self.$rare, then.$rare),)*
                    $($extreme: grown!($extreme_kind self.$extreme, then.$extreme),)*
                    $($latest: self.$latest,)*
                    $($wide: self.$wide.saturating_sub(then.$wide),)*
                    $average: self.$average,
                }
            }

            /// The figures with all ticks converted by `ticks`, and squares of ticks by `squares`.
            #[must_use]
            pub fn converted(
                &self,
                mut ticks: impl FnMut(u64) -> u64,
                squares: impl Fn(u128) -> u128,
            ) -> Self {
                Self {
                    $($live: converted!($live_kind ticks self.$live),)*
                    $($rare: converted!($rare_kind ticks self.$rare),)*
                    $($extreme: converted!($extreme_kind ticks self.$extreme),)*
                    $($latest: ticks(self.$latest),)*
                    $($wide: squares(self.$wide),)*
                    $average: ticks(self.$average),
                }
            }

            /// Calls `field` with the name that each figure has in a snapshot file, and its value
            /// in JSON.
            ///
            /// # Errors
            ///
            /// The first error that `field` returns.
            pub fn to_json<E>(
                &self,
                mut field: impl FnMut(&'static str, fmt::Arguments<'_>) -> Result<(), E>,
            ) -> Result<(), E> {
                $(field(stringify!($live), format_args!("{}", self.$live))?;)*
                $(field(stringify!($rare), format_args!("{}", self.$rare))?;)*
                $(field(stringify!($extreme), format_args!("{}", self.$extreme))?;)*
                $(field(stringify!($latest), format_args!("{}", self.$latest))?;)*
                // A number in JSON is too short for 128 bits.
                $(field(stringify!($wide), format_args!("\"{}\"", self.$wide))?;)*
                field(stringify!($average), format_args!("{}", self.average_ticks()))
            }

            /// The live figures in these words.
            #[inline(always)]
            pub(super) fn get(live: &LiveWords, rare: &RareWords) -> Self {
                Self {
                    $($live: get(&live.$live),)*
                    $($rare: get(&rare.$rare),)*
                    $($extreme: get(&live.$extreme),)*
                    $($latest: get(&live.$latest),)*
                    $($wide: u128::from(get(&rare.$high)) << 64 | u128::from(get(&live.$low)),)*
                    $average: get(&rare.$average),
                }
            }

            /// Writes live figures.
            #[inline(always)]
            pub(crate) fn put(&self, live: &LiveWords, rare: &RareWords) {
                $(put(&live.$live, self.$live);)*
                $(put(&rare.$rare, self.$rare);)*
                $(put(&live.$extreme, self.$extreme);)*
                $(put(&live.$latest, self.$latest);)*
                $(
                    put(&live.$low, self.$wide as u64);
                    put(&rare.$high, (self.$wide >> 64) as u64);
                )*
                put(&rare.$average, self.$average);
            }

            /// Adds live figures to words that other threads add to at the same time. The average
            /// stays.
            pub(crate) fn add_shared(&self, live: &LiveWords, rare: &RareWords) {
                $(add_shared!($live_kind &live.$live, self.$live);)*
                $(add_shared!($rare_kind &rare.$rare, self.$rare);)*
                $(add_shared!($extreme_kind &live.$extreme, self.$extreme);)*
                $(live.$latest.store(self.$latest, Relaxed);)*
                $(
                    let low = self.$wide as u64;
                    let before = live.$low.fetch_add(low, Relaxed);
                    let carry = u64::from(before.checked_add(low).is_none());
                    rare.$high.fetch_add((self.$wide >> 64) as u64 + carry, Relaxed);
                )*
            }

            /// The retired figures in these words.
            #[inline(always)]
            pub(super) fn get_retired(words: &RetiredWords) -> Self {
                Self {
                    $($live: get(&words.$live),)*
                    $($rare: get(&words.$rare),)*
                    $($extreme: get(&words.$extreme),)*
                    $($latest: 0,)*
                    $($wide: u128::from(get(&words.$high)) << 64 | u128::from(get(&words.$low)),)*
                    $average: 0,
                }
            }

            /// Writes retired figures.
            pub(super) fn retire(&self, words: &RetiredWords) {
                $(put(&words.$live, self.$live);)*
                $(put(&words.$rare, self.$rare);)*
                $(put(&words.$extreme, self.$extreme);)*
                $(
                    put(&words.$low, self.$wide as u64);
                    put(&words.$high, (self.$wide >> 64) as u64);
                )*
            }
        }

        /// Words of live figures that each fold writes.
        #[repr(C)]
        #[derive(Debug, Default)]
        pub(crate) struct LiveWords {
            $(pub(crate) $live: AtomicU64,)*
            $(pub(crate) $low: AtomicU64,)*
            $(pub(crate) $latest: AtomicU64,)*
            $(pub(crate) $extreme: AtomicU64,)*
        }

        /// The words of live figures that seldom change.
        #[repr(C)]
        #[derive(Debug, Default)]
        pub(crate) struct RareWords {
            $(pub(crate) $high: AtomicU64,)*
            pub(crate) $average: AtomicU64,
            $(pub(crate) $rare: AtomicU64,)*
        }

        impl RareWords {
            #[inline(always)]
            pub(super) fn equals(&self, other: &Self) -> bool {
                let differ = |one: &AtomicU64, other: &AtomicU64| get(one) ^ get(other);
                let all = differ(&self.$average, &other.$average)
                    $(| differ(&self.$high, &other.$high))*
                    $(| differ(&self.$rare, &other.$rare))*;
                all == 0
            }
        }

        /// Words of retired figures.
        #[repr(C)]
        #[derive(Debug, Default)]
        pub(super) struct RetiredWords {
            $($live: AtomicU64,)*
            $($rare: AtomicU64,)*
            $($extreme: AtomicU64,)*
            $($low: AtomicU64,)*
            $($high: AtomicU64,)*
        }
    };
}

figures!(declare);
