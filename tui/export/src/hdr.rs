//! A point's histogram as an HdrHistogram, of nanoseconds.
//!
//! The segment's buckets are up to a thirty-second of their value wide. A measurement counts at the
//! middle of its bucket, clamped to the shortest and the longest measurement, with three
//! significant digits. The shortest and the longest measurement themselves count at their exact
//! values.

use std::io;

use hdrhistogram::{CreationError, Histogram};

use super::subject::{ExportedPoint, Subject};

/// Number of significant decimal digits of the values in a histogram.
const DIGITS: u8 = 3;

/// The points that have measured, with their exclusive times.
pub(super) fn histograms<'a>(
    subject: &'a Subject<'a>,
) -> impl Iterator<Item = io::Result<(&'a ExportedPoint<'a>, Histogram<u64>)>> {
    subject.points().iter().filter_map(|shown| match histogram(subject, shown) {
        Ok(found) => Some(Ok((shown, found?))),
        Err(error) => Some(Err(io::Error::other(error))),
    })
}

/// The exclusive times of a point. `None` if the point has never measured.
fn histogram(
    subject: &Subject<'_>,
    shown: &ExportedPoint<'_>,
) -> Result<Option<Histogram<u64>>, CreationError> {
    let sums = shown.figures.total();
    let mut buckets = shown.figures.buckets();
    buckets.retain(|bucket| bucket.count > 0);
    let (Some(first), Some(last)) = (buckets.first(), buckets.last()) else {
        return Ok(None);
    };
    let (min, max) = (sums.min.min(sums.max), sums.max);
    let longest = subject.whole_ns(last.low.saturating_add(last.width).max(max));
    // HdrHistogram accepts only half the range of its integers.
    let mut histogram = Histogram::new_with_bounds(1, longest.clamp(2, u64::MAX / 2), DIGITS)?;
    let within = |value: u64, bucket: &pfp_read::snapshot::Bucket| {
        (bucket.low..=bucket.low.saturating_add(bucket.width.saturating_sub(1))).contains(&value)
    };
    let extremes = [(min, within(min, first)), (max, within(max, last) && sums.count > 1)];
    let extremes: Vec<u64> =
        extremes.iter().filter(|(_, is)| *is).map(|(value, _)| *value).collect();
    // This limit on the total count keeps sums of a damaged file from overflowing. No real program
    // reaches it.
    let mut room = u64::MAX / 4;
    for bucket in &buckets {
        let mut count = bucket.count.min(room);
        room -= count;
        for value in extremes.iter().filter(|value| within(**value, bucket)) {
            if count > 0 {
                count -= 1;
                histogram.saturating_record(subject.whole_ns(*value));
            }
        }
        let middle = pfp_model::histogram::middle(bucket).clamp(min, max);
        histogram.saturating_record_n(subject.whole_ns(middle), count);
    }
    Ok(Some(histogram))
}
