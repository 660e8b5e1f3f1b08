//! Why there is nothing to show: the errors that have an exit status.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason that matters to scripts; each has its own exit status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no process to watch, or not the wanted one.
    NoTarget(String),
    /// The process is there, but this user may not watch it.
    Permission(String),
    /// The segment or file is of a version that this program does not read.
    Version(String),
    /// Some of several processes did not follow a change; the others did.
    Partly(String),
}

impl Refusal {
    /// The exit status of a program that fails for this reason.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NoTarget(_) => 3,
            Self::Permission(_) => 4,
            Self::Version(_) => 5,
            Self::Partly(_) => 2,
        }
    }

    /// Whether a change was made by some of the processes.
    pub fn is_partly(error: &anyhow::Error) -> bool {
        matches!(error.downcast_ref(), Some(Self::Partly(_)))
    }

    pub(crate) fn words_mut(&mut self) -> &mut String {
        let (Self::NoTarget(why) | Self::Permission(why) | Self::Version(why) | Self::Partly(why)) =
            self;
        why
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::NoTarget(why) | Self::Permission(why) | Self::Version(why) | Self::Partly(why)) =
            self;
        f.write_str(why)
    }
}

impl std::error::Error for Refusal {}
