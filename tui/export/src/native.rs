//! Native histograms of Prometheus and OpenTelemetry, with exponential buckets.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::series::ProcessSeries;
use pfp_model::histogram;
use pfp_read::snapshot::Cell;

/// The schema (in OpenTelemetry, the scale) 3: each bucket's end is 2^(1/8) times the previous one.
pub(super) const SCHEMA: i32 = 3;
const OCTAVE: f64 = (1 << SCHEMA) as f64;
/// Times up to this many seconds count as zero: far below a tick.
pub(super) const ZERO: f64 = 1e-12;

/// A histogram of exclusive time with exponential buckets, eight per power of two.
#[derive(Debug, Default)]
pub(super) struct Native {
    pub(super) zero: u64,
    /// The buckets that are not empty, in rising order: bucket `number` counts the measurements
    /// longer than 2^((number - 1) / 8) seconds and up to 2^(number / 8).
    pub(super) buckets: BTreeMap<i32, u64>,
}

impl Native {
    pub(super) fn of(part: &ProcessSeries, cells: &[Arc<Cell>]) -> Self {
        let mut native = Self::default();
        for bucket in cells.iter().flat_map(|cell| &cell.histogram) {
            let middle = part.seconds(histogram::middle(bucket));
            let count = match middle <= ZERO {
                true => &mut native.zero,
                false => native.buckets.entry((middle.log2() * OCTAVE).ceil() as i32).or_default(),
            };
            *count = count.saturating_add(bucket.count);
        }
        native
    }
}
