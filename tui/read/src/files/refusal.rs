//! Errors that have their own exit status, such as a missing process.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A reason that scripts can distinguish; each has its own exit status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// No process can be watched, or the requested one cannot be found.
    NoTarget(String),
    /// The process exists, but this user may not watch it.
    Permission(String),
    /// The segment or file has a version that this program cannot read.
    Version(String),
    /// Some of several processes did not carry out a change; the others did.
    Partly(String),
}

impl Refusal {
    /// The exit status for this reason.
    pub fn exit_status(&self) -> u8 {
        match self {
            Self::NoTarget(_) => 3,
            Self::Permission(_) => 4,
            Self::Version(_) => 5,
            Self::Partly(_) => 2,
        }
    }

    /// Whether some of the processes carried out the change.
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
