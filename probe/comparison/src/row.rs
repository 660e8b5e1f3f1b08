//! What there is to say of pfp or of a peer.

use pfp_bench::Case;

pub(crate) struct Row {
    /// What the row says was set up, without versions.
    pub(crate) name: &'static str,
    /// The packages whose versions it shows.
    pub(crate) packages: &'static [&'static str],
    pub(crate) on: Subject,
    /// Switched off in the peer's own way, while the program runs or at its start.
    pub(crate) off: Option<Subject>,
    /// How it is switched off.
    pub(crate) switch: &'static str,
    /// What is recorded, and who can read it when.
    pub(crate) records: &'static str,
}

/// Where a case is measured.
pub(crate) enum Subject {
    /// In this program.
    Here(Case),
    /// In a program of its own, of this name.
    Apart(&'static str),
}

impl Row {
    /// What is measured for it.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &Subject> {
        std::iter::once(&self.on).chain(&self.off)
    }
}

impl Subject {
    pub(crate) fn case(&self) -> Option<Case> {
        match self {
            Self::Here(case) => Some(*case),
            Self::Apart(_) => None,
        }
    }
}
