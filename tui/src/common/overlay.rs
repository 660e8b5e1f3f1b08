//! What can lie over a screen.

use super::prompt::Prompt;

/// What lies over the body and takes the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Overlay {
    /// The keys and what they do, scrolled down by this many lines.
    Help(usize),
    /// Something is being typed.
    Typed(Prompt),
    /// The columns to choose from, with the cursor on the one of this key.
    Columns(&'static str),
    /// The columns to sort by, with the cursor on the one of this key.
    Sort(&'static str),
    /// Something that changes many points waits for a yes.
    Ask(Question),
    /// The file of that path exists: may it be replaced?
    Replace(Prompt),
    /// The program that this viewer started still runs: what happens to it when the viewer is left?
    Leave(String),
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

impl Prompt {
    /// Stays, and says what is wrong with it.
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
