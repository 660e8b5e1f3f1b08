//! A row of the table, for pfp or a peer.

use pfp_bench::Case;

pub(crate) struct Row {
    /// Description of the setup, without versions.
    pub(crate) name: &'static str,
    /// Packages whose versions the row shows.
    pub(crate) packages: &'static [&'static str],
    pub(crate) on: Subject,
    /// Case in which the peer is switched off by its own means, at run time or at the start.
    pub(crate) off: Option<Subject>,
    /// How the peer is switched off.
    pub(crate) switch: &'static str,
    /// Data that the peer records, and when they can be read.
    pub(crate) records: &'static str,
}

/// Program in which a case is measured.
pub(crate) enum Subject {
    /// In this program.
    Here(Case),
    /// A separate program with this name.
    Apart(&'static str),
}

impl Row {
    /// The cases of the row.
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
