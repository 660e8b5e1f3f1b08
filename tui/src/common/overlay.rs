//! Overlays, which are shown over a screen.

use super::prompt::Prompt;

/// An overlay over the body. It gets the keys first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys and what they do, scrolled down by this many lines.
    Help(usize),
    /// A line that is being typed.
    Typed(Prompt),
    /// The columns to choose from, with the cursor on the one of this key.
    Columns(&'static str),
    /// The columns to sort by, with the cursor on the one of this key.
    Sort(&'static str),
    /// A question about a change of many points.
    Ask(Question),
    /// Whether to replace an existing file of that path.
    Replace(Prompt),
    /// Whether to end the program that was started for this viewer. The program still runs.
    Leave(String),
}

/// A change of more than one point, which waits for a yes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Switch these points on, or off.
    Switch {
        /// Their ids.
        ids: Vec<u32>,
        /// Whether to switch them on.
        on: bool,
    },
    /// Reset the figures of these points.
    Reset {
        /// Their ids.
        ids: Vec<u32>,
    },
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
