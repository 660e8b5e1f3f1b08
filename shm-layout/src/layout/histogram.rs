//! The bucket of a duration in a log-linear histogram.
//!
//! Each octave has 32 buckets, so a value is at most 1.6 % from its bucket's middle,
//! and values below 64 have a bucket each. The histogram is cut into **parts**
//! of 32 buckets, so that only the octaves that occur take space:
//!
//! ```text
//! ticks   0..32   32..96   96..224   224..480   480..992  ...
//! part    0       1        2         3          4
//! width   1       2        4         8          16
//! ```
//!
//! The part is computed from `v = ticks + 32`: it is `log2(v) - 5`, and the bucket is the five bits
//! after the leading 1 bit of `v`. With the added 32, the formula holds for the first part, too.

/// Buckets in a part.
pub const BUCKETS: usize = 32;
/// Parts of a histogram.
pub const PARTS: usize = 42;
/// Durations from this limit on are counted in the last bucket: 2^47 - 32 ticks, more than 13 hours
/// at 3 GHz.
pub const LIMIT: u64 = (1 << (PARTS + 5)) - BUCKETS as u64;

/// The part and the bucket in that part which count a duration of `ticks`. The caller has checked
/// that the duration is below [`LIMIT`].
#[inline(always)]
#[must_use]
pub const fn locate(ticks: u64) -> (usize, usize) {
    let number = number(ticks);
    (number / BUCKETS, number % BUCKETS)
}

/// The number of the bucket, counted over all parts.
#[inline(always)]
#[must_use]
pub const fn number(ticks: u64) -> usize {
    octave_number(ticks as i64 as f64) - FIRST_OCTAVE_NUMBER
}

/// The bucket's [`number`] plus [`FIRST_OCTAVE_NUMBER`], a multiple of [`BUCKETS`].
#[inline(always)]
#[must_use]
pub const fn octave_number(ticks: f64) -> usize {
    // A double holds every duration below `LIMIT` exactly, and its octave and the digits after the
    // leading 1 are adjacent bits. Reading them is faster than searching for the leading 1.
    ((ticks + BUCKETS as f64).to_bits() >> OCTAVE_BIT) as usize
}

/// The [`octave_number`] of 0 ticks.
pub const FIRST_OCTAVE_NUMBER: usize = ((BUCKETS as f64).to_bits() >> OCTAVE_BIT) as usize;
const _: () = assert!(FIRST_OCTAVE_NUMBER.is_multiple_of(BUCKETS));
/// Bits of a double below those that [`octave_number`] takes.
pub const OCTAVE_BIT: i32 = (f64::MANTISSA_DIGITS - 1 - BUCKETS.ilog2()) as i32;

/// The least value of a bucket and the number of values in it, in ticks.
#[must_use]
pub const fn bounds(part: usize, bucket: usize) -> (u64, u64) {
    let low = ((BUCKETS + bucket) as u64) << part;
    (low - BUCKETS as u64, 1 << part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_tile_the_range_and_hold_their_values() {
        let mut expected_low = 0;
        for part in 0..PARTS {
            for bucket in 0..BUCKETS {
                let (low, width) = bounds(part, bucket);
                assert_eq!(low, expected_low);
                assert_eq!(locate(low), (part, bucket));
                assert_eq!(locate(low + width - 1), (part, bucket));
                expected_low = low + width;
            }
        }
        assert_eq!(expected_low, LIMIT);
    }

    #[test]
    fn values_are_near_the_middle_of_their_bucket() {
        for part in 0..PARTS {
            for bucket in 0..BUCKETS {
                let (low, width) = bounds(part, bucket);
                let half = (width - 1) as f64 / 2.0;
                assert!(half <= 0.016 * (low as f64 + half), "part {part} bucket {bucket}");
            }
        }
    }
}
