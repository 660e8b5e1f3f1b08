//! Histograms: merged buckets of several lanes, quantiles, and the few log-scaled bars that fit on
//! a screen.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use hdrhistogram::Histogram;

use pfp_read::snapshot::{Bucket, HeapSamples, SIZES, sizes_of};

/// The quantiles of a point's exclusive ticks that the table shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quantiles {
    /// The median.
    pub p50: u64,
    /// The 90th percentile.
    pub p90: u64,
    /// The 99th percentile.
    pub p99: u64,
}

/// The buckets of several histograms as one, in the order of their values.
pub fn merge<'a>(histograms: impl IntoIterator<Item = &'a [Bucket]>) -> Vec<Bucket> {
    let mut merged = BTreeMap::new();
    for bucket in histograms.into_iter().flatten() {
        let count: &mut u64 = merged.entry((bucket.low, bucket.width)).or_default();
        *count = count.saturating_add(bucket.count);
    }
    merged.into_iter().map(|((low, width), count)| Bucket { low, width, count }).collect()
}

/// The growth of a histogram from `before` to `now`. Both must be sorted and without duplicates, as
/// [`merge`] returns them.
pub fn subtract(now: &[Bucket], before: &[Bucket]) -> Vec<Bucket> {
    let mut before = before.iter().peekable();
    let more = now.iter().filter_map(|bucket| {
        let place = (bucket.low, bucket.width);
        while before.next_if(|then| (then.low, then.width) < place).is_some() {}
        let then = before.next_if(|then| (then.low, then.width) == place);
        let count = bucket.count.saturating_sub(then.map_or(0, |then| then.count));
        (count > 0).then_some(Bucket { count, ..*bucket })
    });
    more.collect()
}

/// A range of sizes of allocations, and the bytes that were allocated in such sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeRange {
    /// The least size.
    pub low: u64,
    /// The first size beyond the range. `None` for the last range.
    pub end: Option<u64>,
    /// Bytes of all these allocations, estimated by samples.
    pub bytes: f64,
}

/// The allocated bytes by the size of the allocations: ranges with a factor of four, from the first
/// one with bytes to the last one.
pub fn sizes(heap: &HeapSamples) -> Vec<SizeRange> {
    let ranges = heap.sizes.chunks(2).enumerate().map(|(place, pair)| {
        let (low, _) = sizes_of(2 * place);
        let (last, count) = sizes_of(2 * place + 1);
        let end = (2 * place + 2 < SIZES).then_some(last + count);
        SizeRange { low, end, bytes: pair.iter().map(|bytes| *bytes as f64).sum() }
    });
    let ranges: Vec<_> = ranges.collect();
    let is_used = |range: &SizeRange| range.bytes > 0.0;
    let first = ranges.iter().position(is_used).unwrap_or(0);
    let end = ranges.iter().rposition(is_used).map_or(0, |last| last + 1);
    ranges[first..end].to_vec()
}

/// The middle of a bucket, which represents all its values.
#[inline]
pub fn middle(bucket: &Bucket) -> u64 {
    bucket.low.saturating_add(bucket.width.saturating_sub(1) / 2)
}

/// Buckets in an octave of the segment's histograms.
const OCTAVE: u64 = 32;
/// Upper bound of bucket numbers.
const NUMBERS: u64 = 2047;

/// The number of the bucket that contains a value. As in the segment, each octave of `value + 32`
/// has 32 buckets of equal width.
#[inline]
pub(crate) fn number_of(value: u64) -> u64 {
    let shifted = value.saturating_add(OCTAVE);
    let octave = u64::from(shifted.ilog2() - OCTAVE.ilog2());
    octave * OCTAVE + (shifted >> octave) % OCTAVE
}

/// The middle of the bucket with this number.
fn middle_of(number: u64) -> u64 {
    let (octave, place) = (number / OCTAVE, number % OCTAVE);
    ((OCTAVE + place) << octave) - OCTAVE + ((1 << octave) - 1) / 2
}

/// The least value of the bucket with this number, and the first value beyond it.
pub(crate) fn edges_of(number: u64) -> (f64, f64) {
    let (octave, place) = (number / OCTAVE, number % OCTAVE);
    let width = 2_f64.powi(octave as i32);
    let low = (OCTAVE + place) as f64 * width - OCTAVE as f64;
    (low, low + width)
}

/// The values at these quantiles, limited to the measured extremes, since a bucket's middle may be
/// beyond them. `None` while the buckets are empty.
///
/// An hdrhistogram finds the quantiles. It records bucket numbers, counted from the first bucket in
/// use, and not values: there are fewer than 2,048 numbers, which an hdrhistogram of three digits
/// stores exactly, in 16 KiB. All lanes' buckets are first added up in plain counters, and one
/// hdrhistogram serves all points, so that a table of 1,000 points can be sorted by a quantile
/// within a frame.
pub fn quantiles<'a, const N: usize>(
    buckets: impl Iterator<Item = &'a Bucket>,
    extremes: (u64, u64),
    wanted: [f64; N],
) -> Option<[u64; N]> {
    SCRATCH.with_borrow_mut(|scratch| scratch.as_mut()?.quantiles(buckets, extremes, wanted))
}

/// The number of measurements by bucket number, in rising order.
pub(super) fn spread<'a>(buckets: impl Iterator<Item = &'a Bucket>) -> Vec<(u64, f64)> {
    SCRATCH.with_borrow_mut(|scratch| {
        let Some(scratch) = scratch else { return Vec::new() };
        let Some(numbers) = scratch.add(buckets) else { return Vec::new() };
        let counts = (*numbers.start() as u64..).zip(&mut scratch.counts[numbers]);
        let full = counts.filter(|(_, count)| **count > 0);
        full.map(|(number, count)| (number, std::mem::take(count) as f64)).collect()
    })
}

thread_local! {
    static SCRATCH: RefCell<Option<Scratch>> = RefCell::new(Scratch::new());
}

/// Reused memory for computing quantiles. It is all zero between uses.
struct Scratch {
    counts: Box<[u64]>,
    numbers: Histogram<u64>,
}

impl Scratch {
    fn new() -> Option<Self> {
        let numbers = Histogram::new_with_max(NUMBERS, 3).ok()?;
        Some(Self { counts: vec![0; NUMBERS as usize].into(), numbers })
    }

    /// Adds up buckets. Returns the numbers of the first and the last bucket that are not empty.
    fn add<'a>(
        &mut self,
        buckets: impl Iterator<Item = &'a Bucket>,
    ) -> Option<RangeInclusive<usize>> {
        let (mut first, mut last) = (NUMBERS, 0);
        // Use `for_each`, since calling `next` on several lists costs twice as much.
        buckets.filter(|bucket| bucket.count > 0).for_each(|bucket| {
            let number = number_of(middle(bucket));
            (first, last) = (first.min(number), last.max(number));
            let count = &mut self.counts[number as usize];
            *count = count.saturating_add(bucket.count);
        });
        (first <= last).then_some(first as usize..=last as usize)
    }

    fn quantiles<'a, const N: usize>(
        &mut self,
        buckets: impl Iterator<Item = &'a Bucket>,
        (min, max): (u64, u64),
        wanted: [f64; N],
    ) -> Option<[u64; N]> {
        let places = self.add(buckets)?;
        let first = *places.start() as u64;
        self.numbers.reset();
        let counts = &mut self.counts[places];
        // The counts of a damaged file may add up to more than hdrhistogram can sum.
        let mut room = u64::MAX / 4;
        for (number, count) in (0..).zip(counts).filter(|(_, count)| **count > 0) {
            let count = std::mem::take(count).min(room);
            room -= count;
            self.numbers.saturating_record_n(number, count);
        }
        Some(wanted.map(|quantile| {
            let value = middle_of(first + self.numbers.value_at_quantile(quantile));
            value.min(max).max(min.min(max))
        }))
    }
}

/// The bulk of the measurements, for [`bulk_bars`], is between these two quantiles.
const BULK: (f64, f64) = (0.01, 0.999);

/// One bar: the measurements between two values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HistogramBar {
    /// Least value, ticks.
    pub low: f64,
    /// First value beyond the bar, ticks.
    pub high: f64,
    /// Measurements in it.
    pub count: u64,
    /// Share of all measurements in this bar and those before it.
    pub cumulative: f64,
}

/// The histogram as at most `rows` bars of equal width on a logarithmic scale, up to the last
/// bucket in use.
///
/// The first bar contains the shortest thousandth, whatever its range: otherwise, a single tiny
/// measurement would squeeze all others into a few bars. The longest measurements are never
/// squeezed together, since they matter most.
pub fn log_bars(buckets: &[Bucket], rows: usize) -> Vec<HistogramBar> {
    let full = || buckets.iter().filter(|bucket| bucket.count > 0);
    let all = full().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count));
    let mut so_far = 0_u64;
    let beyond_thousandth = |bucket: &&Bucket| {
        so_far = so_far.saturating_add(bucket.count);
        so_far > all / 1000
    };
    let (Some(shortest), Some(first), rows @ 1..) =
        (full().next(), full().find(beyond_thousandth), rows)
    else {
        return Vec::new();
    };
    let last = full().next_back().unwrap_or(first);
    // Zero has no logarithm, so it counts as one.
    let log = |value: u64| (value.max(1) as f64).ln();
    let low = log(first.low);
    let high = log(last.low.saturating_add(last.width)).max(low + f64::EPSILON);
    // A bar is at least as wide as its buckets.
    let narrowest = log(last.low.saturating_add(last.width)) - log(last.low);
    let most = if narrowest > 0.0 { ((high - low) / narrowest).ceil() as usize } else { 1 };
    let rows = rows.min(most.max(1));
    let step = (high - low) / rows as f64;

    let mut bars: Vec<HistogramBar> = (0..rows)
        .map(|row| HistogramBar {
            low: (low + step * row as f64).exp(),
            high: (low + step * (row + 1) as f64).exp(),
            count: 0,
            cumulative: 0.0,
        })
        .collect();
    for bucket in buckets {
        let row = (log(middle(bucket)) - low) / step;
        let bar = &mut bars[(row.max(0.0) as usize).min(rows - 1)];
        bar.count = bar.count.saturating_add(bucket.count);
    }
    bars[0].low = bars[0].low.min(shortest.low.max(1) as f64);
    cumulated(bars)
}

/// Computes the cumulative shares of the bars.
fn cumulated(mut bars: Vec<HistogramBar>) -> Vec<HistogramBar> {
    let all: f64 = bars.iter().map(|bar| bar.count as f64).sum();
    let mut so_far = 0.0;
    for bar in &mut bars {
        so_far += bar.count as f64;
        bar.cumulative = so_far / all;
    }
    bars
}

/// The histogram as at most `rows` bars: one below the 1st percentile, one beyond the 99.9th, and
/// [`log_bars`] between them, so that a few odd measurements do not squeeze all others into two
/// rows.
pub fn bulk_bars(buckets: &[Bucket], rows: usize) -> Vec<HistogramBar> {
    let all = buckets.iter().fold(0_u64, |sum, bucket| sum.saturating_add(bucket.count)) as f64;
    let mut so_far = 0.0;
    // Each bucket with the cumulative share before it and after it.
    let shares = buckets.iter().map(|bucket| {
        let below = so_far;
        so_far += bucket.count as f64;
        (below / all, so_far / all)
    });
    let shares: Vec<(f64, f64)> = shares.collect();
    let first = shares.partition_point(|(_, with)| *with <= BULK.0);
    let behind = shares.partition_point(|(below, _)| *below < BULK.1).max(first);
    let (below, beyond) = (&buckets[..first], &buckets[behind..]);
    let ends = [below, beyond].iter().filter(|end| end.iter().any(|b| b.count > 0)).count();
    if rows <= ends {
        return log_bars(buckets, rows);
    }
    let one = |end: &[Bucket]| log_bars(end, 1).into_iter();
    let middle = log_bars(&buckets[first..behind], rows - ends);
    cumulated(one(below).chain(middle).chain(one(beyond)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::synthetic::bucket_of;

    fn buckets(values: &[u64]) -> Vec<Bucket> {
        let single: Vec<_> =
            values.iter().map(|&value| Bucket { count: 1, ..bucket_of(value) }).collect();
        merge([single.as_slice()])
    }

    #[test]
    fn merging_adds_equal_buckets_and_sorts() {
        let a = buckets(&[5, 1000, 70]);
        let b = buckets(&[70, 5, 5]);
        let merged = merge([a.as_slice(), &b]);
        let counts: Vec<_> = merged.iter().map(|b| (b.low, b.count)).collect();
        assert_eq!(counts, [(5, 3), (70, 2), (992, 1)]);
    }

    /// The simple way: sort, and take the value at the index.
    fn naive_quantile(sorted: &[u64], quantile: f64) -> u64 {
        let rank = (quantile * sorted.len() as f64).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1]
    }

    #[test]
    fn quantiles_agree_with_sorting_within_a_bucket() {
        let mut seed = 7_u64;
        for round in 0..50 {
            let mut values: Vec<u64> = (0..1 + round * 37)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (seed >> 40) >> (seed % 20)
                })
                .collect();
            values.sort_unstable();
            let (min, max) = (values[0], *values.last().unwrap());
            let wanted = [0.5, 0.9, 0.99, 0.999];
            let found = quantiles(buckets(&values).iter(), (min, max), wanted).unwrap();
            for (quantile, found) in wanted.into_iter().zip(found) {
                let expected = naive_quantile(&values, quantile);
                let error = found.abs_diff(expected) as f64 / expected.max(1) as f64;
                assert!(error <= 0.018, "round {round} p{quantile}: {found} for {expected}");
            }
        }
    }

    #[test]
    fn every_bucket_of_the_segment_has_a_number_of_its_own() {
        let mut number = 0;
        let mut value = 0_u64;
        while value < u64::MAX / 4 {
            let bucket = bucket_of(value);
            assert_eq!(number_of(bucket.low), number);
            assert_eq!(number_of(bucket.low + bucket.width - 1), number);
            assert_eq!(middle_of(number), middle(&bucket));
            let edges = (bucket.low as f64, (bucket.low + bucket.width) as f64);
            assert_eq!(edges_of(number), edges);
            number += 1;
            value = bucket.low + bucket.width;
        }
        assert!(number_of(u64::MAX) < NUMBERS && middle_of(number_of(u64::MAX)) > u64::MAX / 2);
    }

    #[test]
    fn bars_lose_no_measurement() {
        let values: Vec<u64> = (0..5000).map(|i| i * i / 7).collect();
        let buckets = buckets(&values);
        for rows in 1..40 {
            let bars = log_bars(&buckets, rows);
            assert!(bars.len() <= rows);
            assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), 5000);
            assert_eq!(bars[0].low, 1.0);
            assert!((bars.last().unwrap().cumulative - 1.0).abs() < 1e-9);
            assert!(bars.is_sorted_by(|a, b| a.high <= b.low * 1.000_001));
        }
        assert!(log_bars(&[], 5).is_empty());
        assert_eq!(log_bars(&buckets, 0).len(), 0);
    }

    #[test]
    fn one_outlier_does_not_squeeze_the_bars() {
        let mut values: Vec<u64> = (0..5000).map(|i| 100_000 + 10 * i).collect();
        values.push(0);
        let bars = log_bars(&buckets(&values), 10);
        assert_eq!((bars.len(), bars[0].low), (10, 1.0));
        assert!(bars.iter().all(|bar| bar.count > 0), "{bars:?}");
    }

    #[test]
    fn the_bulk_has_all_but_the_two_outer_bars() {
        // Nine in ten thousand take a thousand times as long as the others.
        let mut values: Vec<u64> = (0..10_000).map(|i| 100_000 + 10 * i).collect();
        values.extend([100; 50]);
        values.extend([100_000_000; 9]);
        let buckets = buckets(&values);
        for rows in 3..20 {
            let bars = bulk_bars(&buckets, rows);
            assert!(bars.len() <= rows, "{bars:?}");
            assert_eq!(bars.iter().map(|bar| bar.count).sum::<u64>(), values.len() as u64);
            assert!((bars.last().unwrap().cumulative - 1.0).abs() < 1e-9);
            assert_eq!(bars.last().unwrap().count, 9, "{bars:?}");
            assert!(bars[0].count >= 50 && bars[0].count < 150, "{bars:?}");
            let bulk = &bars[1..bars.len() - 1];
            assert!(bulk.iter().all(|bar| bar.count > 0 && bar.high < 300_000.0), "{bars:?}");
            assert!(rows < 12 || bulk.len() >= 8, "{bars:?}");
        }
        assert!(bulk_bars(&[], 5).is_empty());
        let same = super::tests::buckets(&[7; 100]);
        assert_eq!(bulk_bars(&same, 13).len(), 1);
    }

    #[test]
    fn hostile_buckets_are_survived() {
        let hostile = [
            Bucket { low: 0, width: 0, count: u64::MAX },
            Bucket { low: u64::MAX, width: u64::MAX, count: u64::MAX },
        ];
        assert!(quantiles(hostile.iter(), (u64::MAX, 0), [0.5]).is_some());
        assert!(!log_bars(&hostile, 10).is_empty() && !bulk_bars(&hostile, 10).is_empty());
        let same = [Bucket { low: 9, width: 0, count: 1 }];
        assert_eq!(log_bars(&same, 10).len(), 1);
    }
}
