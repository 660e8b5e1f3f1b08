//! Reasons to read a point's figures with care.

use super::figures::Figures;
use pfp_read::snapshot::PointState;

/// A reason for care with a point's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PointWarning {
    /// The point was begun twice without an end.
    Invalid,
    /// Threads without a lane of their own have measured it.
    Overflow,
    /// The point's time is a device's.
    Device,
    /// The point's time is the wall clock's.
    Wall,
    /// The point's measurements are so short that the cost of measuring dominates their length.
    Short,
}

/// A mean below this many times the cost of a begin and end is not exact.
///
/// Reading the counter does not wait for a region's work to finish, and a processor may have some
/// 500 instructions in flight. A chain of multiplications of 91 ns was measured as 43, one of 182
/// ns as 136, with a begin and end costing 19.
const SHORT: f64 = 10.0;

impl PointWarning {
    /// A word, a few words, and an explanation with advice.
    fn texts(self) -> [&'static str; 3] {
        match self {
            Self::Invalid => [
                "invalid",
                "invalid: begun twice",
                "Invalid: the program began it twice without an end, for instance by leaving a \
                 region early. It no longer measures; its older figures stay. Switch it on to make \
                 it valid again.",
            ],
            Self::Overflow => [
                "shared lane",
                "shared lane",
                "More threads ran than the segment has lanes. Measurements of threads without a \
                 lane are counted, but summed under (overflow) below.",
            ],
            Self::Device => [
                "device",
                "device time",
                "Its times were measured by a device, such as a GPU. No thread spent them, so they \
                 are in no load and in no thread's share.",
            ],
            Self::Wall => [
                "wall",
                "wall time",
                "Its times are wall-clock times from each begin to its end, on any threads. No \
                 thread spent them, so there is no exclusive time. If they overlap, the load \
                 exceeds 100 %; the sum of loads leaves it out.",
            ],
            Self::Short => [
                "short",
                "short: mean not exact",
                "Its mean is less than ten times the cost of measuring. The CPU overlaps such a \
                 short region with the measuring code, so up to all of its time may be charged to \
                 the enclosing region. The count is exact.",
            ],
        }
    }

    /// The warning in one word, for short room.
    pub fn word(self) -> &'static str {
        self.texts()[0]
    }

    /// The warning in a few words.
    pub fn words(self) -> &'static str {
        self.texts()[1]
    }

    /// An explanation, with advice.
    pub fn explanation(self) -> &'static str {
        self.texts()[2]
    }
}

impl Figures {
    /// Warnings about its figures, if any.
    pub fn warnings(&self) -> Vec<PointWarning> {
        let invalid = self.state() == PointState::InvalidBeginBegin;
        invalid.then_some(PointWarning::Invalid).into_iter().collect()
    }

    /// Warnings, and remarks about figures that are right but unusual.
    pub fn remarks(&self) -> Vec<PointWarning> {
        let mut remarks = self.warnings();
        match (self.point().wall, self.point().device) {
            (true, _) => remarks.push(PointWarning::Wall),
            (false, true) => remarks.push(PointWarning::Device),
            (false, false) => {}
        }
        if self.is_short() {
            remarks.push(PointWarning::Short);
        }
        if self.is_shared() {
            remarks.push(PointWarning::Overflow);
        }
        remarks
    }

    /// Whether the point's measurements are too short for an exact mean.
    pub fn is_short(&self) -> bool {
        let least = SHORT * self.snapshot.clock.overhead_pair as f64;
        // A device takes its own timestamps.
        !self.point().device && self.mean().is_some_and(|mean| mean < least)
    }
}
