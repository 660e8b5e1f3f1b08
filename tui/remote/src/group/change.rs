//! A change that several processes of a group make.

use anyhow::{Error, Result, bail};

use super::ENDED;
use pfp_read::snapshot::{PointState, Process};
use pfp_read::source::{Change, Refusal};
use pfp_read::text::first_names;

/// A change in the members of a group, and the answers of members so far.
pub(super) struct GroupChange {
    /// The change, with the group's id of the point.
    pub(super) change: Change,
    /// The members that have not answered yet, by segment id, with the change that each makes.
    pub(super) requested: Vec<(String, Change)>,
    /// Whether members have ended, so that they cannot be changed.
    pub(super) is_over: bool,
    /// Number of members that made the change.
    done: usize,
    /// The state to restore later. A sum is on if any of its points is on.
    found: Option<PointState>,
    /// The members that refused the change, and why.
    refused: Vec<(String, Error)>,
}

impl GroupChange {
    pub(super) fn new(change: Change) -> Self {
        let (requested, refused) = (Vec::new(), Vec::new());
        Self { change, requested, is_over: false, done: 0, found: None, refused }
    }

    /// Whether a member, by its segment id, has not answered yet.
    pub(super) fn awaits(&self, asked: &(String, Change)) -> bool {
        self.requested.contains(asked)
    }

    /// Adds the answer of a member.
    pub(super) fn add(&mut self, process: &Process, answer: Result<Option<PointState>>) {
        match answer {
            Ok(found) => {
                self.done += 1;
                let is_on = found == Some(PointState::On);
                self.found = if is_on { found } else { self.found.or(found) };
            }
            Err(error) => self.refused.push((process.to_string(), error)),
        }
    }

    /// The answer of the group, after all members have answered.
    pub(super) fn result(self) -> Result<Option<PointState>> {
        let (failed, all) = (self.refused.len(), self.done + self.refused.len());
        let names: Vec<String> = self.refused.iter().map(|(name, _)| name.clone()).collect();
        match (self.done, self.refused.into_iter().next()) {
            (0, Some((_, error))) => Err(error),
            (_, Some((_, error))) => bail!(Refusal::Partly(format!(
                "{failed} of {all} processes did not follow ({}): {error:#}",
                first_names(&names)
            ))),
            (0, None) if self.is_over => bail!(ENDED),
            (0, None) => bail!("no process has that point"),
            (_, None) => Ok(self.found),
        }
    }
}
