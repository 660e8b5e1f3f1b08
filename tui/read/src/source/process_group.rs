//! Which processes are shown as one.

use serde::{Deserialize, Serialize};

use super::{Candidate, Which};
use crate::pattern::NamePattern;

/// The processes to show as one, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessGroup {
    /// The processes.
    pub members: Selector,
    /// Whether points of the same name become one.
    pub sum: bool,
}

/// The processes to show as one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Selector {
    /// All processes that run, now or later, and whose names match this pattern.
    All(String),
    /// The processes that the user has named.
    Named(Vec<Which>),
    /// The processes with these segment ids.
    Segments(Vec<String>),
}

impl ProcessGroup {
    /// Whether the group contains this process; `among` has all processes that were found.
    pub fn admits(&self, candidate: &Candidate, among: &[Candidate]) -> bool {
        match &self.members {
            Selector::All(name) => {
                (candidate.runs() || candidate.awaited) && NamePattern::means(name, &candidate.name)
            }
            Selector::Named(all) => all.iter().any(|which| which.admits(candidate, among)),
            Selector::Segments(ids) => ids.contains(&candidate.segment_id),
        }
    }

    /// Whether more processes may join at any time.
    pub fn is_open(&self) -> bool {
        matches!(self.members, Selector::All(_))
    }
}
