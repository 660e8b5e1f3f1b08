//! What can lie over a screen.

use super::prompt::Prompt;

/// What lies over the body and takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys and what they do, scrolled down by this many lines.
    Help(usize),
    /// What the points shown must have is being typed.
    Filter(Prompt),
    /// Alpha of this point's EWMA is being typed.
    Alpha(u32, Prompt),
    /// The columns to choose from, with the cursor on the one of this key.
    Columns(&'static str),
    /// The columns to sort by, with the cursor on the one of this key.
    Sort(&'static str),
    /// What the screen is to look for is being typed.
    Find(Prompt),
    /// Something that changes many points waits for a yes.
    Ask(Question),
    /// The moment of the recording to go to is being typed.
    Seek(Prompt),
    /// The path of the snapshot to write is being typed.
    Write(Prompt),
    /// The file of that path exists: may it be replaced?
    Replace(Prompt),
}

impl Overlay {
    /// The line that is being typed.
    pub fn prompt(&self) -> Option<&Prompt> {
        match self {
            Self::Filter(prompt)
            | Self::Alpha(_, prompt)
            | Self::Find(prompt)
            | Self::Seek(prompt)
            | Self::Write(prompt) => Some(prompt),
            _ => None,
        }
    }

    pub(crate) fn prompt_mut(&mut self) -> Option<&mut Prompt> {
        match self {
            Self::Filter(prompt)
            | Self::Alpha(_, prompt)
            | Self::Find(prompt)
            | Self::Seek(prompt)
            | Self::Write(prompt) => Some(prompt),
            _ => None,
        }
    }
}

/// Something that changes more than one point, and waits for a yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Switch these points on, or off.
    Switch {
        /// Their ids.
        ids: Vec<u32>,
        /// On.
        on: bool,
    },
    /// Start the figures of these points afresh.
    Reset {
        /// Their ids.
        ids: Vec<u32>,
    },
}

impl Question {
    pub(crate) fn ids(&self) -> &[u32] {
        let (Self::Switch { ids, .. } | Self::Reset { ids }) = self;
        ids
    }
}
