//! Actions of the user, independent of the keys for them.

use super::screen::Screen;

/// Declares the actions and a list of all, so that no test can miss one.
macro_rules! actions {
    ($($name:ident,)*) => {
        /// An action of the user. The help explains each: see [`super::keys`].
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $($name,)*
            /// Show this screen of the watched process.
            Show(Screen),
        }

        impl Action {
            /// All actions except those that show a screen.
            pub const ALL: &[Self] = &[$(Self::$name,)*];
        }
    };
}

impl Action {
    /// The action's name in the settings file, such as `page-up` and `show-points`.
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
    Quit, Suspend, Redraw, Help, Palette,
    Up, Down, PageUp, PageDown, Top, Bottom, Open, Below, Back,
    NextScreen, PreviousScreen, Processes, Mark, OpenSummed,
    Filter, Unfilter, ShowIdle, ShowTimes, ScrollLeft, ScrollRight,
    Sort, SortLeft, SortRight, Invert, Columns, Check, ColumnLeft, ColumnRight,
    Toggle, Reset, ToggleAll, ResetAll, Weight, Fence, CountAllocs, Limit, Undo,
    Copy, Write, Baseline, Units, MeasureCeilings,
    Pause, Slower, Faster, Window, Moment,
    StepBack, StepOn, MinuteBack, MinuteOn, RecordingBegin, RecordingEnd, Seek, PlaySlower, PlayFaster,
    Earlier, Later, MuchEarlier, MuchLater, Oldest, Newest, ZoomIn, ZoomOut, FindNext, Slowest,
    Flame, Callers, TreeSource, ByThread, Unfold, Fold, UnfoldAll, Zoom,
    Accept, Cancel, LeaveRunning, EndProgram,
}
