//! The comparison with a baseline: which one, and in which order its rows stand.

use std::collections::HashSet;
use std::time::Instant;

use super::{App, Screen};
use crate::model::compare::{Baseline, Comparison, Row};

/// What the figures are compared with, and how they do.
#[derive(Debug, Default)]
pub struct Diff {
    /// None until one is taken or read from a file.
    pub baseline: Option<Baseline>,
    /// None without a baseline, and until something can have been measured since.
    pub comparison: Option<Comparison>,
    /// Ids of the points in the order of the rows.
    pub order: Vec<u32>,
}

impl App {
    /// Compares with this baseline from now on.
    pub fn compare_with(&mut self, baseline: Baseline) {
        self.diff.baseline = Some(baseline);
        self.diff.comparison = None;
        self.compare();
        self.arrange();
    }

    /// Makes what was measured since the baseline the next one; the first one is
    /// everything so far.
    pub(super) fn take_baseline(&mut self, now: Instant) {
        let Some(snapshot) = self.common.model.snapshot() else {
            return;
        };
        if self.common.replay.is_some() {
            // Of a recording any moment may be the baseline, whichever was before.
            let time = crate::local_time::time_of_day(snapshot.taken_unix_ns);
            self.compare_with(Baseline::of(snapshot.clone(), Some(time.clone())));
            return self
                .common
                .say(now, format!("later moments are compared with {time}; 5 shows it"));
        }
        let next = match &self.diff.baseline {
            Some(baseline) => baseline.next(snapshot),
            None => Some(Baseline::of(snapshot.clone(), None)),
        };
        match next {
            Some(baseline) => {
                self.compare_with(baseline);
                self.common.log.note(self.common.unix_ns(now), "baseline taken");
                let tell = if self.screen == Screen::Diff { "" } else { "; 5 compares" };
                self.common
                    .say(now, format!("baseline taken: what comes is compared with it{tell}"));
            }
            None => self.common.complain(now, "nothing was measured since the last baseline"),
        }
    }

    pub(super) fn begin_diff(&mut self) {
        self.offset = 0;
        self.compare();
        self.arrange();
    }

    /// Brings the comparison up to date, where somebody sees it.
    pub(super) fn compare(&mut self) {
        let seen = self.screen == Screen::Diff;
        let snapshots =
            self.diff.baseline.as_ref().zip(self.common.model.snapshot()).filter(|_| seen);
        let known = self.diff.comparison.take();
        self.diff.comparison = snapshots
            .and_then(|(baseline, snapshot)| Comparison::new_after(baseline, snapshot, known));
    }

    /// Puts the rows in order, or keeps them where they are while the cursor moves.
    pub(super) fn arrange(&mut self) {
        let all = self.diff.comparison.as_ref().map_or(&[][..], |comparison| &comparison.rows);
        // What only the baseline has cannot be looked at by a filter.
        let passes = |row: &&Row| match self.common.model.point(row.id) {
            Some(figures) => self.common.filter.admits(figures),
            None => !self.common.filter.is_on(),
        };
        let rows: Vec<&Row> = all.iter().filter(passes).collect();
        if self.common.frozen_until.is_some() {
            let order = &mut self.diff.order;
            let there: HashSet<u32> = rows.iter().map(|row| row.id).collect();
            order.retain(|id| there.contains(id));
            if order.len() < rows.len() {
                let placed: HashSet<u32> = order.iter().copied().collect();
                order.extend(rows.iter().map(|row| row.id).filter(|id| !placed.contains(id)));
            }
        } else {
            self.diff.order = rows.iter().map(|row| row.id).collect();
        }
        let is_shown = |id| self.diff.order.contains(&id);
        if self.screen == Screen::Diff && !self.common.selected.is_some_and(is_shown) {
            self.common.selected = self.diff.order.first().copied().or(self.common.selected);
        }
    }

    /// The points of the list on the screen, in the order of its rows.
    pub(super) fn listed(&self) -> &[u32] {
        match self.screen {
            Screen::Diff => &self.diff.order,
            Screen::Roofline => self.roofline.order(),
            _ => &self.common.order,
        }
    }
}
