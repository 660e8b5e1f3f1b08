//! Overlays, which are shown over a screen.

use super::prompt::Prompt;

/// An overlay over the body. It gets the keys first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys and what they do, scrolled down by this many lines.
    Help(usize),
    /// A line that is being typed.
    Typed(Prompt),
    /// The actions that match the typed text, with the index of the one to carry out.
    Palette(Prompt, usize),
    /// The columns to show, with the cursor on the column with this key.
    Columns(&'static str),
    /// The columns to sort by, with the cursor on the column with this key.
    Sort(&'static str),
    /// A question whether to make a change.
    Ask(Question),
    /// A question whether to replace the existing file at the typed path.
    Replace(Prompt),
    /// A question whether to end the program that was started for this viewer and still runs, with
    /// the program's name and id.
    Leave(String),
}

/// A change of points that waits for the user's yes: a reset, or a switch of several points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Switch these points on, or off.
    Switch {
        /// Ids of the points.
        ids: Vec<u32>,
        /// Whether to switch the points on.
        on: bool,
    },
    /// Reset the figures of these points.
    Reset {
        /// Ids of the points.
        ids: Vec<u32>,
    },
}

impl Overlay {
    /// The line that is being typed.
    pub fn prompt(&self) -> Option<&Prompt> {
        match self {
            Self::Typed(prompt) | Self::Palette(prompt, _) => Some(prompt),
            _ => None,
        }
    }

    /// The line that is being typed, mutable.
    pub(crate) fn prompt_mut(&mut self) -> Option<&mut Prompt> {
        match self {
            Self::Typed(prompt) | Self::Palette(prompt, _) => Some(prompt),
            _ => None,
        }
    }
}

impl Prompt {
    /// The prompt again, with an error message about its text.
    pub(crate) fn refused(mut self, why: String) -> Overlay {
        self.error = Some(why);
        Overlay::Typed(self)
    }
}

impl Question {
    pub(crate) fn ids(&self) -> &[u32] {
        let (Self::Switch { ids, .. } | Self::Reset { ids }) = self;
        ids
    }
}
