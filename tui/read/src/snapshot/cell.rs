//! The statistics of a point on a lane.

use std::fmt;
use std::sync::Arc;

pub use pfp_shm_layout::allocs::{AllocSums as Allocs, HeapSamples, SIZES, sizes_of};
pub use pfp_shm_layout::cell::Sums as Stats;
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
    #[serde(with = "CellFigures")]
    pub stats: Stats,
    /// Figures of threads that owned the lane before and have ended.
    #[serde(with = "CellFigures")]
    pub retired: Stats,
    /// Exclusive ticks of every measurement since the last reset, of `stats` and `retired`
    /// together, by bucket, in the order of the buckets.
    #[serde(deserialize_with = "buckets")]
    pub histogram: Vec<Bucket>,
    /// The measurements by their amounts, if the point has amounts. Files that earlier builds wrote
    /// call this field `variants`.
    #[serde(default, alias = "variants", skip_serializing_if = "Vec::is_empty")]
    pub tuples: Vec<AmountTuple>,
    /// What the regions have allocated, of `stats` and `retired` together. Zeros if they have not
    /// counted it.
    #[serde(default, with = "AllocFigures", skip_serializing_if = "has_no_allocs")]
    pub allocs: Allocs,
    /// The estimates by samples of these allocations.
    #[serde(default, with = "HeapFigures", skip_serializing_if = "has_no_samples")]
    pub heap: HeapSamples,
}

fn has_no_samples(heap: &HeapSamples) -> bool {
    !heap.is_any()
}

fn has_no_allocs(allocs: &Allocs) -> bool {
    !allocs.is_any()
}

/// How a snapshot file represents [`Allocs`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "Allocs")]
struct AllocFigures {
    calls: u64,
    allocs: u64,
    bytes: u64,
    freed: u64,
    allocs_inclusive: u64,
    bytes_inclusive: u64,
    freed_inclusive: u64,
    largest: u64,
}

/// How a snapshot file represents [`HeapSamples`].
#[derive(Serialize, Deserialize)]
#[serde(remote = "HeapSamples", default = "HeapSamples::default")]
struct HeapFigures {
    live_bytes: u64,
    live_samples: u64,
    live_births: u64,
    sizes: [u64; SIZES],
}

impl Cell {
    /// The order of a snapshot's cells: by point, then lane.
    #[inline]
    pub fn key(&self) -> (u32, u32) {
        (self.point, self.lane)
    }

    /// Whether it has measurements, or allocations of a region that is still open.
    pub fn has_figures(&self) -> bool {
        self.stats.count > 0 || self.retired.count > 0 || self.allocs.is_any() || self.heap.is_any()
    }

    /// The cell without the memory that is not freed yet.
    #[must_use]
    pub fn without_live(self: &Arc<Self>) -> Arc<Self> {
        let mut cell = Arc::clone(self);
        if cell.heap.live_samples > 0 {
            Arc::make_mut(&mut cell).heap = self.heap.without_live();
        }
        cell
    }

    /// The figures of all measurements, also by ended threads.
    pub fn total(&self) -> Stats {
        [&self.retired, &self.stats].into_iter().sum()
    }

    /// These measurements together with later ones of the same point and lane. The earlier ones are
    /// added to [`Self::retired`], so that the figures of a running thread stay as they are.
    #[must_use]
    pub fn with(&self, later: &Self) -> Self {
        let mut tuples = later.tuples.clone();
        for earlier in &self.tuples {
            match tuples.iter_mut().find(|tuple| tuple.each == earlier.each) {
                Some(tuple) => {
                    tuple.stats = [&earlier.stats, &tuple.stats].into_iter().sum();
                    for (sum, more) in tuple.sums.iter_mut().zip(&earlier.sums) {
                        *sum = sum.saturating_add(*more);
                    }
                }
                None => tuples.push(earlier.clone()),
            }
        }
        let mut histogram = self.histogram.clone();
        for bucket in &later.histogram {
            match histogram.binary_search_by_key(&bucket.low, |known| known.low) {
                Ok(place) => {
                    let count = &mut histogram[place].count;
                    *count = count.saturating_add(bucket.count);
                }
                Err(place) => histogram.insert(place, *bucket),
            }
        }
        let retired = [&self.retired, &self.stats, &later.retired].into_iter().sum();
        let allocs = self.allocs.plus(&later.allocs);
        let heap = self.heap.plus(&later.heap);
        Self { stats: later.stats.clone(), retired, histogram, tuples, allocs, heap, ..*later }
    }
}

/// Memory that was allocated in a process and is not freed yet, estimated by samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heap {
    /// Bytes now.
    pub live_bytes: u64,
    /// Samples now. The relative standard error of the bytes is one over the square root of this.
    pub live_samples: u64,
    /// The most bytes so far.
    pub peak_bytes: u64,
}

impl Heap {
    /// The memory of two processes. Their peaks are added, although they may be of different
    /// moments.
    #[must_use]
    pub fn plus(self, more: Self) -> Self {
        Self {
            live_bytes: self.live_bytes.saturating_add(more.live_bytes),
            live_samples: self.live_samples.saturating_add(more.live_samples),
            peak_bytes: self.peak_bytes.saturating_add(more.peak_bytes),
        }
    }
}

/// The figures of all measurements of these cells, also by ended threads.
pub fn total<'a>(cells: impl IntoIterator<Item = &'a Arc<Cell>>) -> Stats {
    cells.into_iter().flat_map(|cell| [&cell.retired, &cell.stats]).sum()
}

/// The measurements of a cell that have equal amounts; or, as one entry, the remaining
/// measurements, whose amounts differ.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct AmountTuple {
    /// The amounts of each measurement, in the order of [`super::Point::amounts`]. Empty in the
    /// entry of the remaining measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<u64>,
    /// Sums of the amounts of the remaining measurements. Empty in entries that have `each`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<u64>,
    /// The figures of these measurements, over all threads that have owned the lane.
    #[serde(with = "CellFigures")]
    pub stats: Stats,
}

impl AmountTuple {
    /// The sum of an amount over these measurements; `place` is its index in
    /// [`super::Point::amounts`].
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

/// Declares how a snapshot file represents the figures that `pfp_shm_layout::figures!` lists.
macro_rules! declare {
    (
        live { $($(#[$_live:meta])* $live:ident: $_live_kind:ident,)* }
        rare { $($(#[$_rare:meta])* $rare:ident: $_rare_kind:ident,)* }
        extreme { $($(#[$_extreme:meta])* $extreme:ident: $_extreme_kind:ident,)* }
        latest { $($(#[$_latest:meta])* $latest:ident,)* }
        wide { $($(#[$_wide:meta])* $wide:ident: $($_half:ident)*,)* }
        average { $(#[$_average:meta])* $average:ident, }
    ) => {
        /// The figures of a cell in a snapshot file. A figure that an older file lacks gets the
        /// value of a cell without measurements.
        #[derive(Serialize, Deserialize)]
        #[serde(remote = "Stats", default = "Stats::default")]
        struct CellFigures {
            $($live: u64,)*
            $($rare: u64,)*
            $($extreme: u64,)*
            $($latest: u64,)*
            $(#[serde(with = "decimal")] $wide: u128,)*
            #[serde(with = "average")]
            $average: u64,
        }

        /// The differences between a cell's figures and its later ones, modulo 2^64. A connection
        /// to another place carries these, since small numbers take few bytes.
        #[derive(Debug, Serialize, Deserialize)]
        pub struct FigureChanges {
            $($live: i64,)*
            $($rare: i64,)*
            $($extreme: i64,)*
            $($latest: i64,)*
            $($wide: i128,)*
            $average: i64,
        }

        impl FigureChanges {
            /// The changes from `old` to `new`.
            pub fn between(old: &Stats, new: &Stats) -> Self {
                let change = |old: u64, new: u64| new.wrapping_sub(old).cast_signed();
                let wide = |old: u128, new: u128| new.wrapping_sub(old).cast_signed();
                Self {
                    $($live: change(old.$live, new.$live),)*
                    $($rare: change(old.$rare, new.$rare),)*
                    $($extreme: change(old.$extreme, new.$extreme),)*
                    $($latest: change(old.$latest, new.$latest),)*
                    $($wide: wide(old.$wide, new.$wide),)*
                    $average: change(old.$average, new.$average),
                }
            }

            /// The later figures; `old` has the earlier ones.
            pub fn after(&self, old: &Stats) -> Stats {
                Stats {
                    $($live: old.$live.wrapping_add_signed(self.$live),)*
                    $($rare: old.$rare.wrapping_add_signed(self.$rare),)*
                    $($extreme: old.$extreme.wrapping_add_signed(self.$extreme),)*
                    $($latest: old.$latest.wrapping_add_signed(self.$latest),)*
                    $($wide: old.$wide.wrapping_add_signed(self.$wide),)*
                    $average: old.$average.wrapping_add_signed(self.$average),
                }
            }
        }
    };
}

pfp_shm_layout::figures!(declare);

/// Reads buckets into exactly as much memory as they need: a large file has very many.
pub(super) fn buckets<'de, D: Deserializer<'de>>(input: D) -> Result<Vec<Bucket>, D::Error> {
    struct Buckets;

    impl<'de> Visitor<'de> for Buckets {
        type Value = Vec<Bucket>;

        fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
            out.write_str("a list of buckets")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Bucket>, A::Error> {
            // Most histograms have at most this many buckets.
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

/// The average, in ticks with a fraction.
mod average {
    use pfp_shm_layout::cell::{average_of, average_ticks};
    use serde::de::{Deserialize, Deserializer};
    use serde::ser::Serializer;

    pub(super) fn serialize<S: Serializer>(average: &u64, out: S) -> Result<S::Ok, S::Error> {
        out.serialize_f64(average_ticks(*average))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<u64, D::Error> {
        f64::deserialize(input).map(average_of)
    }
}
