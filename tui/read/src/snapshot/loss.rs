//! Kinds and counts of losses: what was lost, refused or repaired since a process began.

use std::collections::BTreeMap;
use std::ops::{Index, IndexMut};

use pfp_shm_layout::reader;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Declares the kinds: the name here, the name in files and in the segment, the words for a count,
/// and an explanation with advice.
macro_rules! losses {
    ($($(#[doc = $doc:literal])* $(#[serde($serde:ident)])? $kind:ident $name:ident $words:literal, $meaning:literal;)*) => {
        /// A kind of loss.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Loss {
            $($(#[doc = $doc])* $kind,)*
        }

        impl Loss {
            /// All kinds.
            pub const ALL: [Self; [$(stringify!($kind)),*].len()] = [$(Self::$kind,)*];

            /// The kind's name in files and exports.
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => stringify!($name),)* }
            }

            /// The words that follow a count, in the plural.
            pub fn words(self) -> &'static str {
                match self { $(Self::$kind => $words,)* }
            }

            /// An explanation, with advice.
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$kind => $meaning,)* }
            }
        }

        /// The losses as they are written to files.
        #[derive(Serialize, Deserialize)]
        struct WrittenLosses {
            $($(#[serde($serde)])? $name: u64,)*
        }

        impl From<WrittenLosses> for Losses {
            fn from(written: WrittenLosses) -> Self {
                Self([$(written.$name,)*])
            }
        }

        impl From<Losses> for WrittenLosses {
            fn from(losses: Losses) -> Self {
                Self { $($name: losses[Loss::$kind],)* }
            }
        }

        impl From<&reader::Losses> for Losses {
            fn from(losses: &reader::Losses) -> Self {
                Self([$(losses.$name,)*])
            }
        }
    };
}

losses! {
    /// Points that found no free entry in the point table.
    PointsRefused points_refused "points not measured: table full",
        "the table of points was full, so they have no row; restart the program with PFP_POINTS=N \
         for N points";
    /// Cells, rings and histogram parts that found no space: their measurements are not recorded.
    SpaceRefused space_refused "cells not recorded: no space",
        "there was no memory left for them in /dev/shm or within PFP_MEMORY_MB; what was \
         measured there is missing from the figures, or from their histograms";
    /// Threads that found no lane and share the overflow lane.
    LanesOverflowed lanes_overflowed "threads share the overflow lane",
        "more threads ran than there are lanes; their measurements are counted, but summed; \
         restart the program with PFP_LANES=N for N threads";
    /// Ends that matched no open region, or not the innermost one.
    MismatchedEnds mismatched_ends "mismatched ends",
        "an end without its begin measures nothing; an end that comes before the ends of inner \
         regions discards those regions, so they are not counted";
    /// Begins refused because too many regions were open.
    BeginsRefused begins_refused "begins nested too deep",
        "more regions were open than a thread has room for, as in deep recursion or by begins \
         without an end; those further in are not measured";
    /// Readings of the counter that were before the previous one, equal to it, or too far ahead.
    ClockAnomalies clock_anomalies "clock anomalies",
        "the time-stamp counter was less than before, stood still or jumped, as on a machine \
         whose cores disagree or that was suspended or moved; such a measurement counts with \
         the CPU time, or as no time";
    /// Records of rings that were overwritten before this reader read them. This is not a fault: a
    /// ring keeps the last records by design.
    RecordsLost records_lost "records overwritten", "a ring keeps the last ones";
    /// Cells that could not be read consistently this time; they keep their last figures.
    CellsBusy cells_busy "cells not read consistently just now", "they are read at the next poll";
    /// Begins that were not measured, because memory ran out, or because a signal handler made them
    /// while the interrupted thread created the segment, claimed its lane or entered the point.
    #[serde(default)]
    BeginsMissed begins_missed "begins not measured",
        "there was no memory for the thread's lane or for a cell of it, or a signal handler came \
         while its thread made the segment, claimed its lane or entered the point; these calls are \
         missing from the figures";
    /// Measurements without a record, because there was no memory for the ring or no ring to write
    /// to. All figures include them.
    #[serde(default)]
    RecordsMissed records_missed "measurements without a record",
        "there was no memory for the ring, or the thread has none, or a signal handler \
         interrupted pfp itself; they are in the figures, and missing from timeline and traces";
}

/// The count of each kind of loss.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenLosses", into = "WrittenLosses")]
pub struct Losses([u64; Loss::ALL.len()]);

impl Index<Loss> for Losses {
    type Output = u64;

    fn index(&self, kind: Loss) -> &u64 {
        &self.0[kind as usize]
    }
}

impl IndexMut<Loss> for Losses {
    fn index_mut(&mut self, kind: Loss) -> &mut u64 {
        &mut self.0[kind as usize]
    }
}

impl FromIterator<(Loss, u64)> for Losses {
    fn from_iter<T: IntoIterator<Item = (Loss, u64)>>(counts: T) -> Self {
        let mut losses = Self::default();
        counts.into_iter().for_each(|(kind, count)| losses[kind] = count);
        losses
    }
}

impl Losses {
    /// The kinds whose count is not zero, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Loss, u64)> {
        Loss::ALL.into_iter().map(|kind| (kind, self[kind])).filter(|(_, count)| *count > 0)
    }

    /// Losses that affect the figures. Rings overwrite records by design, and a busy cell is read
    /// the next time, so these are left out.
    pub fn lasting(&self) -> impl Iterator<Item = (Loss, u64)> {
        self.iter().filter(|(kind, _)| !matches!(kind, Loss::RecordsLost | Loss::CellsBusy))
    }

    /// Whether nothing happened.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the losses of another process.
    pub fn add(&mut self, more: &Self) {
        self.change_by(more, u64::saturating_add);
    }

    /// Losses since `before`. Busy cells are not accumulated, so their number is copied from
    /// `self`.
    pub fn since(&self, before: &Self) -> Self {
        let mut since = self.clone();
        since.change_by(before, u64::saturating_sub);
        since[Loss::CellsBusy] = self[Loss::CellsBusy];
        since
    }

    fn change_by(&mut self, other: &Self, put: fn(u64, u64) -> u64) {
        self.0.iter_mut().zip(other.0).for_each(|(own, other)| *own = put(*own, other));
    }
}

/// The kinds that a lane counts.
const OF_LANE: [Loss; 4] =
    [Loss::MismatchedEnds, Loss::BeginsRefused, Loss::ClockAnomalies, Loss::RecordsMissed];

/// Writes the losses of one lane, by their names.
pub(super) fn serialize_lane<S: Serializer>(losses: &Losses, out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(OF_LANE.map(|kind| (kind.name(), losses[kind])))
}

/// Reads the losses of one lane.
pub(super) fn deserialize_lane<'de, D: Deserializer<'de>>(input: D) -> Result<Losses, D::Error> {
    let found = BTreeMap::<String, u64>::deserialize(input)?;
    let count = |kind: Loss| Some((kind, *found.get(kind.name())?));
    Ok(OF_LANE.into_iter().filter_map(count).collect())
}
