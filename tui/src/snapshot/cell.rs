//! The statistics of a point on a lane.

use std::fmt;
use std::iter::Sum;
use std::sync::Arc;

use pfp_shm_layout::cell;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

/// The statistics of one point on one lane since the point's last reset.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Id of the point.
    pub point: u32,
    /// Id of the lane.
    pub lane: u32,
    /// Figures of the thread that owns the lane now.
    pub stats: Stats,
    /// Figures of threads that owned the lane before and have ended.
    pub retired: Stats,
    /// Exclusive ticks of every measurement since the last reset, of `stats`
    /// and `retired` together, by bucket, in the order of the buckets.
    #[serde(deserialize_with = "buckets")]
    pub histogram: Vec<Bucket>,
    /// The measurements by their amounts, if the point has amounts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<Variant>,
}

impl Cell {
    /// The order of a snapshot's cells: by point, then lane.
    #[inline]
    pub fn key(&self) -> (u32, u32) {
        (self.point, self.lane)
    }

    /// All measurements, those of ended threads too.
    pub fn total(&self) -> Stats {
        [&self.retired, &self.stats].into_iter().sum()
    }
}

/// The measurements of a cell that have certain amounts, or all others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Variant {
    /// The amounts of each measurement, in the order of [`super::Point::amounts`]; empty for all
    /// other measurements, whose amounts differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<u64>,
    /// Sums of the amounts of all other measurements; empty for the rest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<u64>,
    /// Its figures, over all threads that have owned the lane.
    pub stats: Stats,
}

impl Variant {
    /// The sum of the amount at this place.
    pub fn sum(&self, place: usize) -> u128 {
        let each =
            self.each.get(place).map(|each| u128::from(*each) * u128::from(self.stats.count));
        each.or_else(|| self.sums.get(place).map(|sum| u128::from(*sum))).unwrap_or(0)
    }
}

/// A bucket of a histogram: measurements of `low..low + width` ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 3]", into = "[u64; 3]")]
pub struct Bucket {
    /// Least value in the bucket, ticks.
    pub low: u64,
    /// Number of different values in the bucket, ticks.
    pub width: u64,
    /// Measurements in it.
    pub count: u64,
}

impl From<[u64; 3]> for Bucket {
    fn from([low, width, count]: [u64; 3]) -> Self {
        Self { low, width, count }
    }
}

impl From<Bucket> for [u64; 3] {
    fn from(bucket: Bucket) -> Self {
        [bucket.low, bucket.width, bucket.count]
    }
}

/// Sums over measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Finished measurements.
    pub count: u64,
    /// Ticks of the regions themselves, on a CPU.
    pub exclusive: u64,
    /// Ticks with nested regions, on a CPU; recursion counted once.
    pub inclusive: u64,
    /// Ticks between begin and end in which the thread did not run.
    pub off_cpu: u64,
    /// Switches noticed between begin and end.
    pub switches: u64,
    /// Least exclusive ticks of one measurement; `u64::MAX` while none.
    pub min: u64,
    /// Most exclusive ticks of one measurement.
    pub max: u64,
    /// Exclusive ticks of the last measurement.
    pub last: u64,
    /// Sum of the squares of exclusive ticks, exact. A decimal string in the
    /// file, since JSON's numbers are too short for it.
    #[serde(with = "decimal")]
    pub squares: u128,
    /// EWMA of exclusive ticks; 0 while it is off.
    pub average: f64,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            count: 0,
            exclusive: 0,
            inclusive: 0,
            off_cpu: 0,
            switches: 0,
            min: u64::MAX,
            max: 0,
            last: 0,
            squares: 0,
            average: 0.0,
        }
    }
}

/// All measurements together. Two figures have no exact sum: `average` is the mean of the averages,
/// weighted by their counts; `last` is that of the thread with most measurements.
impl<'a> Sum<&'a Self> for Stats {
    fn sum<I: Iterator<Item = &'a Self>>(parts: I) -> Self {
        let mut sum = Self::default();
        let mut most = 0;
        let mut weighted = 0.0;
        for part in parts {
            if part.count == 0 {
                continue;
            }
            // A year of eight threads' ticks fits; only nonsense saturates.
            sum.count = sum.count.saturating_add(part.count);
            sum.exclusive = sum.exclusive.saturating_add(part.exclusive);
            sum.inclusive = sum.inclusive.saturating_add(part.inclusive);
            sum.off_cpu = sum.off_cpu.saturating_add(part.off_cpu);
            sum.switches = sum.switches.saturating_add(part.switches);
            sum.squares = sum.squares.saturating_add(part.squares);
            sum.min = sum.min.min(part.min);
            sum.max = sum.max.max(part.max);
            weighted += part.average * part.count as f64;
            if part.count >= most {
                most = part.count;
                sum.last = part.last;
            }
        }
        if sum.count > 0 {
            sum.average = weighted / sum.count as f64;
        }
        sum
    }
}

/// All measurements of these cells, those of ended threads too.
impl<'a> Sum<&'a Arc<Cell>> for Stats {
    fn sum<I: Iterator<Item = &'a Arc<Cell>>>(cells: I) -> Self {
        cells.flat_map(|cell| [&cell.retired, &cell.stats]).sum()
    }
}

impl Stats {
    /// The growth since then; none if a figure fell, as when threads' figures were lost. Extremes,
    /// last and average are those of now.
    pub fn since(&self, then: &Self) -> Option<Self> {
        Some(Self {
            count: self.count.checked_sub(then.count)?,
            exclusive: self.exclusive.checked_sub(then.exclusive)?,
            squares: self.squares.checked_sub(then.squares)?,
            inclusive: self.inclusive.saturating_sub(then.inclusive),
            off_cpu: self.off_cpu.saturating_sub(then.off_cpu),
            switches: self.switches.saturating_sub(then.switches),
            ..self.clone()
        })
    }

    /// Mean exclusive ticks; none without a measurement.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.exclusive as f64 / self.count as f64)
    }

    /// Standard deviation of exclusive ticks, of a sample; none for fewer than two measurements.
    pub fn deviation(&self) -> Option<f64> {
        let Self { count, exclusive, squares, min, max, .. } = *self;
        cell::variance(count, exclusive, squares, min..=max).map(f64::sqrt)
    }

    /// Share of the span between begin and end in which the thread did not run; none without a span.
    pub fn off_share(&self) -> Option<f64> {
        let span = self.off_cpu as f64 + self.inclusive as f64;
        (span > 0.0).then(|| self.off_cpu as f64 / span)
    }
}

/// Reads buckets into exactly as much memory as they need: a large file has very many.
pub(super) fn buckets<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Bucket>, D::Error> {
    struct Buckets;

    impl<'de> Visitor<'de> for Buckets {
        type Value = Vec<Bucket>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of buckets")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Bucket>, A::Error> {
            // Most histograms have no more.
            let mut first = [Bucket { low: 0, width: 0, count: 0 }; 64];
            for count in 0..first.len() {
                match list.next_element()? {
                    Some(bucket) => first[count] = bucket,
                    None => return Ok(first[..count].to_vec()),
                }
            }
            let mut all = first.to_vec();
            while let Some(bucket) = list.next_element()? {
                all.push(bucket);
            }
            Ok(all)
        }
    }

    input.deserialize_seq(Buckets)
}

/// `u128` as a decimal string.
mod decimal {
    use serde::de::{Deserialize, Deserializer, Error};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(value: &u128, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u128, D::Error> {
        // Digits need no escapes, so the text can be borrowed.
        let text = <&str>::deserialize(input)?;
        text.parse().map_err(|_| D::Error::custom("expected a decimal number in a string"))
    }
}
