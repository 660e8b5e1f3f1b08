//! What the user can ask for, whichever key asks for it.

/// Declares the actions and the list of all of them, so that no test can
/// forget one.
macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the user can ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $($(#[$doc])* $name,)*
        }

        impl Action {
            /// Every action.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

actions! {
    /// Leave the program.
    Quit,
    /// Show the keys and what they do.
    Help,
    /// One row up.
    Up,
    /// One row down.
    Down,
    /// One screen up.
    PageUp,
    /// One screen down.
    PageDown,
    /// To the first row.
    Top,
    /// To the last row.
    Bottom,
    /// Open what is under the cursor.
    Open,
    /// Close it again.
    Back,
    /// Sort by the column to the left.
    SortLeft,
    /// Sort by the column to the right.
    SortRight,
    /// Sort the other way round.
    Invert,
    /// Switch the point on or off.
    Toggle,
    /// Start the point's figures afresh.
    Reset,
    /// Let the figures stand still, or go on.
    Pause,
    /// Poll less often.
    Slower,
    /// Poll more often.
    Faster,
    /// Show time or cycles.
    Units,
    /// Write a snapshot to a file.
    Write,
    /// Choose another process.
    Processes,
    /// Mark a process, to watch several as one.
    Mark,
    /// Open the marked processes with points of the same name summed.
    OpenSummed,
    /// Take what was typed, or say yes.
    Accept,
    /// Drop what was typed, or say no.
    Cancel,
}
