//! Native histograms, and the protobuf format, which is the only one that has them.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use prometheus_client::encoding::{
    MetricEncoder, NativeHistogram, NativeHistogramBuckets, NoLabelSet, prometheus_protobuf,
};
use prometheus_client::registry::Registry;

use crate::native::{Native, SCHEMA, ZERO};
use crate::series::ProcessSeries;
use pfp_read::snapshot::Cell;

/// Writes everything as protobuf.
pub(super) fn write(registry: &Registry, out: &mut dyn Write) -> io::Result<()> {
    let bytes = prometheus_protobuf::encode_to_vec(registry).map_err(io::Error::other)?;
    out.write_all(&bytes)
}

/// Encodes a histogram with both kinds of buckets.
pub(super) fn encode(
    series: &mut MetricEncoder<'_>,
    part: &ProcessSeries,
    cells: &[Arc<Cell>],
    sum: f64,
    count: u64,
    buckets: &[(f64, u64)],
) -> fmt::Result {
    let native = Encoded::of(&Native::of(part, cells));
    let native = native.histogram();
    series.encode_histogram_with_native::<NoLabelSet>(sum, count, buckets, None, native)
}

/// The buckets of a native histogram in Prometheus's form.
#[derive(Debug, Default)]
struct Encoded {
    zero: u64,
    /// Runs of buckets: how many are skipped, and how many follow.
    spans: Vec<(i32, u32)>,
    /// The difference of each bucket's count from the previous one.
    deltas: Vec<i64>,
}

impl Encoded {
    fn of(native: &Native) -> Self {
        let mut encoded = Self { zero: native.zero, ..Self::default() };
        let (mut next, mut last) = (0, 0);
        for (&number, &count) in &native.buckets {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            match encoded.spans.last_mut() {
                Some((_, length)) if number == next => *length += 1,
                _ => encoded.spans.push((number - next, 1)),
            }
            encoded.deltas.push(count.saturating_sub(last));
            (next, last) = (number + 1, count);
        }
        encoded
    }

    fn histogram(&self) -> NativeHistogram<'_> {
        NativeHistogram {
            schema: SCHEMA,
            zero_threshold: ZERO,
            zero_count: self.zero,
            negative: NativeHistogramBuckets { spans: &[], deltas: &[] },
            positive: NativeHistogramBuckets { spans: &self.spans, deltas: &self.deltas },
            created: None,
        }
    }
}
