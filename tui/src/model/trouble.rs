//! What makes the figures of a point other than they seem.

use super::{Figures, LaneFigures};
use crate::snapshot::{LaneKind, PointState};

/// Something about a point that its figures alone do not tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It was begun twice without an end.
    Invalid,
    /// The process died in the middle of a measurement of it.
    DiedInside,
    /// Threads without a lane of their own measured it.
    Overflow,
    /// Its time is a device's.
    Device,
}

impl Trouble {
    /// In a word, where there is no room for more.
    pub fn word(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::DiedInside => "died",
            Self::Overflow => "shared lane",
            Self::Device => "device",
        }
    }

    /// In a few words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Invalid => "invalid: begun twice",
            Self::DiedInside => "died inside",
            Self::Overflow => "shared lane",
            Self::Device => "device time",
        }
    }

    /// What it means, and what can be done.
    pub fn explanation(self) -> &'static str {
        match self {
            Self::Invalid => {
                "Invalid: the program began it again before it had ended it, as code does that \
                 leaves a region early. It measures no more; its figures are those from before. \
                 The key e makes it valid again."
            }
            Self::DiedInside => {
                "The process died in the middle of a measurement of it: totals may hold a part \
                 of that one, the count does not."
            }
            Self::Overflow => {
                "More threads ran than the segment has lanes. What those without one measured \
                 stands together under (overflow) below: it is counted, but not by thread."
            }
            Self::Device => {
                "Its times are a device's, such as a GPU's, by that device's own events: no \
                 thread has spent them, so they are in no load and no thread's share."
            }
        }
    }
}

impl Figures {
    /// What is wrong with its figures; mostly nothing.
    pub fn trouble(&self) -> Vec<Trouble> {
        let invalid = self.state() == PointState::InvalidBeginBegin;
        let found = [(invalid, Trouble::Invalid), (self.in_flight(), Trouble::DiedInside)];
        found.into_iter().filter(|(is, _)| *is).map(|(_, trouble)| trouble).collect()
    }

    /// The same, and what is to be known of figures that are right as they stand.
    pub fn remarks(&self) -> Vec<Trouble> {
        let is_overflow = |lane: LaneFigures| lane.lane.map(|l| l.kind) == Some(LaneKind::Overflow);
        let mut remarks = self.trouble();
        if self.point().device {
            remarks.push(Trouble::Device);
        }
        if self.lanes().any(is_overflow) {
            remarks.push(Trouble::Overflow);
        }
        remarks
    }
}
