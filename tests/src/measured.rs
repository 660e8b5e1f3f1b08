//! The segment's figures of a point, to compare with exported figures.

use std::collections::BTreeMap;

use pfp_shm_layout::cell::Sums;
use pfp_shm_layout::reader::{BucketCount, Picture};

/// The segment's figures of a point, summed over all threads.
#[derive(Clone, Debug, Default)]
pub struct Own {
    /// Finished measurements.
    pub count: u64,
    /// Seconds on a CPU, without nested regions.
    pub exclusive: f64,
    /// Seconds on a CPU, including nested regions.
    pub inclusive: f64,
    /// Seconds off the CPU between begin and end.
    pub off_cpu: f64,
    /// Number of context switches between begin and end.
    pub switches: u64,
    /// Number of measurements by bucket; the key is the bucket's end and its start, in ticks.
    buckets: BTreeMap<(u64, u64), u64>,
    ticks_per_second: f64,
}

/// The figures of the point with this name in a picture.
///
/// # Panics
///
/// Panics if the picture has no such point.
#[must_use]
pub fn own(picture: &Picture, name: &str) -> Own {
    let id = picture.points.iter().find(|point| point.name == name).expect("it has run").id;
    let seconds = |ticks: u64| ticks as f64 / picture.clock.ticks_per_second;
    let mut own = Own { ticks_per_second: picture.clock.ticks_per_second, ..Own::default() };
    for cell in picture.cells.iter().filter(|cell| cell.point == id) {
        for Sums { count, exclusive, inclusive, off_cpu, switches, .. } in
            [&cell.live, &cell.retired]
        {
            own.count += count;
            own.exclusive += seconds(*exclusive);
            own.inclusive += seconds(*inclusive);
            own.off_cpu += seconds(*off_cpu);
            own.switches += switches;
        }
        for BucketCount { low, width, count } in cell.histogram.iter() {
            *own.buckets.entry((low + width, low)).or_default() += count;
        }
    }
    own
}

impl Own {
    /// The increase since an earlier reading.
    ///
    /// # Panics
    ///
    /// Panics if a bucket has fewer measurements than before.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        for (end, count) in &before.buckets {
            let left = buckets.get_mut(end).filter(|now| **now >= *count);
            *left.expect("a histogram only grows") -= count;
        }
        Self {
            count: self.count - before.count,
            exclusive: self.exclusive - before.exclusive,
            inclusive: self.inclusive - before.inclusive,
            off_cpu: self.off_cpu - before.off_cpu,
            switches: self.switches - before.switches,
            buckets,
            ticks_per_second: self.ticks_per_second,
        }
    }

    /// The sum of both. Their figures must come from the same clock.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        for (bucket, count) in &other.buckets {
            *buckets.entry(*bucket).or_default() += count;
        }
        Self {
            count: self.count + other.count,
            exclusive: self.exclusive + other.exclusive,
            inclusive: self.inclusive + other.inclusive,
            off_cpu: self.off_cpu + other.off_cpu,
            switches: self.switches + other.switches,
            buckets,
            ticks_per_second: self.ticks_per_second,
        }
    }

    /// The number of measurements that were certainly at most `seconds` long, and the number that
    /// may have been.
    #[must_use]
    pub fn up_to(&self, seconds: f64) -> (u64, u64) {
        let ticks = seconds * self.ticks_per_second;
        let sum = |passes: &dyn Fn(&(u64, u64)) -> bool| {
            self.buckets.iter().filter(|(bucket, _)| passes(bucket)).map(|(_, count)| count).sum()
        };
        (sum(&|(end, _)| *end as f64 <= ticks), sum(&|(_, low)| *low as f64 <= ticks))
    }

    /// The duration in seconds at this quantile: nearest rank, by counting.
    ///
    /// # Panics
    ///
    /// Panics if there are no measurements.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> f64 {
        let all: u64 = self.buckets.values().sum();
        let rank = (quantile * all as f64).ceil() as u64;
        let mut so_far = 0;
        let found = self.buckets.iter().find(|(_, count)| {
            so_far += *count;
            so_far >= rank
        });
        found.expect("it has measured").0.0 as f64 / self.ticks_per_second
    }
}

/// Whether a figure deviates from the expected one by at most this share of it.
#[must_use]
pub fn is_near(found: f64, expected: f64, share: f64) -> bool {
    (found - expected).abs() <= expected.abs() * share + 1e-9
}
