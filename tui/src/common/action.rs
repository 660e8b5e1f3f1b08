//! What the user can ask for, whichever key asks for it.

use super::screen::Screen;

/// Declares the actions and the list of all of them, so that no test can
/// forget one.
macro_rules! actions {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What the user can ask for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $($(#[$doc])* $name,)*
            /// Show this screen of the watched process.
            Show(Screen),
        }

        impl Action {
            /// Every action but those that show a screen.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

impl Action {
    /// Its name in the settings file, such as `page-up` and `show-points`.
    pub fn word(self) -> String {
        let mut word = String::new();
        for c in format!("{self:?}").chars().filter(|c| c.is_alphabetic()) {
            if c.is_uppercase() && !word.is_empty() {
                word.push('-');
            }
            word.push(c.to_ascii_lowercase());
        }
        word
    }
}

actions! {
    /// Leave the program.
    Quit,
    /// To the shell for a while.
    Suspend,
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
    /// Show the points of a thread below the list, or no more.
    Below,
    /// Close it again.
    Back,
    /// Type what the points shown must have.
    Filter,
    /// Show all points again.
    Unfilter,
    /// Sort by the column to the left.
    SortLeft,
    /// Sort by the column to the right.
    SortRight,
    /// Choose the column to sort by.
    Sort,
    /// Sort the other way round.
    Invert,
    /// Switch the point on or off.
    Toggle,
    /// Start the point's figures afresh.
    Reset,
    /// Switch all points shown off, or on.
    ToggleAll,
    /// Start the figures of all points shown afresh.
    ResetAll,
    /// Set the weight of the point's exponential average.
    Weight,
    /// Have the stamps of the point wait, or not.
    Fence,
    /// Show the points that are off and never measured, or hide them.
    ShowIdle,
    /// Copy the row.
    Copy,
    /// Choose the columns.
    Columns,
    /// Show a column, or hide it.
    Check,
    /// Move a column to the left.
    ColumnLeft,
    /// Move a column to the right.
    ColumnRight,
    /// Let the figures stand still, or go on.
    Pause,
    /// Show the histogram of other measurements.
    Window,
    /// Count from now on.
    Moment,
    /// Poll less often.
    Slower,
    /// Poll more often.
    Faster,
    /// Show time or cycles.
    Units,
    /// Write a snapshot to a file.
    Write,
    /// Make what was measured so far the baseline.
    Baseline,
    /// Choose another process.
    Processes,
    /// Measure what the machine can do at most.
    MeasureCeilings,
    /// Show the next screen.
    NextScreen,
    /// Show the screen before.
    PreviousScreen,
    /// To the region before on the timeline.
    Earlier,
    /// To the next region on the timeline.
    Later,
    /// Half a screen back in time.
    MuchEarlier,
    /// Half a screen on in time.
    MuchLater,
    /// To the next earlier region that was looked for.
    FindNext,
    /// To the longest region of the point under the cursor.
    Slowest,
    /// Show more of the beginnings of long names.
    ScrollLeft,
    /// Show more of the ends of long names.
    ScrollRight,
    /// Draw the whole screen anew.
    Redraw,
    /// Show the call tree as a flame graph, or as lines.
    Flame,
    /// Turn the call tree round.
    Callers,
    /// Show CPU time or sampled stacks.
    TreeSource,
    /// A call tree for each thread, or one of all.
    ByThread,
    /// Unfold what is under the cursor, or step inside.
    Unfold,
    /// Fold what is under the cursor, or step outside.
    Fold,
    /// Unfold all below the cursor, or fold it.
    UnfoldAll,
    /// Show only what is below the cursor, or all again.
    Zoom,
    /// To the oldest region on the timeline.
    Oldest,
    /// To what happens now, and follow it.
    Newest,
    /// Look at a shorter part of the time.
    ZoomIn,
    /// Look at a longer part of the time.
    ZoomOut,
    /// To the snapshot before in a recording.
    StepBack,
    /// To the next snapshot in a recording.
    StepOn,
    /// A minute back in a recording.
    MinuteBack,
    /// A minute on in a recording.
    MinuteOn,
    /// To the first snapshot of a recording.
    RecordingBegin,
    /// To the last snapshot of a recording.
    RecordingEnd,
    /// Type the moment of a recording to go to.
    Seek,
    /// Play a recording more slowly.
    PlaySlower,
    /// Play a recording faster.
    PlayFaster,
    /// Mark a process, to watch several as one.
    Mark,
    /// Open the marked processes with points of the same name summed.
    OpenSummed,
    /// Take what was typed, or say yes.
    Accept,
    /// Drop what was typed, or say no.
    Cancel,
}
