//! Points that are off and have never measured. Their rows are hidden until the user asks for them.

use std::collections::HashSet;

use crate::screens::prelude::*;

/// The name of the probe's calibration point, which every program has.
const CALIBRATION: &str = "pfp.overhead";

/// Decides which rows are hidden.
#[derive(Debug, Default)]
pub(super) struct Idle {
    /// Whether the user has asked for the hidden rows.
    are_shown: bool,
    /// Points that were once on or had figures: their rows stay, even after they are switched off
    /// and reset.
    seen: HashSet<u32>,
    hidden: HashSet<u32>,
}

impl Idle {
    /// Updates the state with all points. With a filter, all points that pass are shown.
    pub(super) fn look(&mut self, points: &[Figures], is_filtered: bool) {
        let is_idle = |point: &&Figures| {
            point.state() == PointState::Off && !point.is_used() && point.open().is_none()
        };
        self.seen.extend(points.iter().filter(|point| !is_idle(point)).map(Figures::id));
        self.hidden.clear();
        let is_own = |point: &Figures| point.point().name != CALIBRATION;
        let mut others = points.iter().filter(|point| self.seen.contains(&point.id()));
        // If all points start off, they are shown.
        if !self.are_shown && !is_filtered && others.any(is_own) {
            let hidden = points.iter().filter(is_idle).map(Figures::id);
            self.hidden.extend(hidden.filter(|id| !self.seen.contains(id)));
        }
    }

    pub(super) fn hides(&self, figures: &Figures) -> bool {
        self.hidden.contains(&figures.id())
    }

    pub(super) fn hidden(&self) -> usize {
        self.hidden.len()
    }

    /// Shows the hidden rows, or hides them again; returns whether they are shown.
    pub(super) fn turn(&mut self) -> bool {
        self.are_shown = !self.are_shown;
        self.are_shown
    }

    /// Drops the state of the previous process.
    pub(super) fn forget(&mut self) {
        self.seen.clear();
        self.hidden.clear();
    }
}
