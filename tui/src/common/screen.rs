//! The list of the screens. The screens themselves are in `screens`.

/// Passes the screens to a macro, one per line: name, and field and type of its state in `screens`.
/// For a screen of the watched process also its title, its keys, and help.
macro_rules! every_screen {
    ($declare:ident) => {
        $declare! {
            tabs {
                Points points PointsView, "Points", [Char('1')], "the table of points";
                Detail detail DetailView, "Detail", [Char('2')], "one point in full";
                Threads threads ThreadsView, "Threads", [Char('3')], "the threads";
                Timeline timeline TimelineView, "Timeline", [Char('4')],
                    "the latest regions of each thread";
                Diff diff DiffView, "Diff", [Char('5')], "what changed since the baseline";
                Log log LogView, "Log", [Char('6')],
                    "the log, and what measuring costs";
                Roofline roofline RooflineView, "Roofline", [Char('7')],
                    "how close points come to the machine's ceilings";
                Tree tree TreeView, "Tree", [Char('8'), Char('t'), Named(KeyCode::F(5))],
                    "the call tree; f there: a flame graph";
                Waits waits WaitsView, "Waits", [Char('9')],
                    "what the threads wait for, and who holds it";
                Slow slow SlowView, "Slow", [Char('0')], "the slow calls that were kept, and why";
            }
            others {
                /// The processes to choose from.
                Picker picker PickerView;
                /// The screen while no process is found yet.
                Waiting waiting WaitingView;
            }
        }
    };
}
pub(crate) use every_screen;

macro_rules! declare {
    (
        tabs { $($tab:ident $f:ident $t:ty, $name:literal, $keys:tt, $help:literal;)* }
        others { $($(#[$other_doc:meta])* $other:ident $g:ident $u:ty;)* }
    ) => {
        /// A screen, which fills the body.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Screen {
            $(#[doc = $help] $tab,)*
            $($(#[$other_doc])* $other,)*
        }

        impl Screen {
            /// Every screen.
            pub const ALL: [Self; [$(stringify!($tab),)* $(stringify!($other),)*].len()] =
                [$(Self::$tab,)* $(Self::$other,)*];

            /// The screens that show the watched process, in the order of their numbers.
            pub const TABS: [Tab; [$($name,)*].len()] =
                [$(Tab { screen: Self::$tab, name: $name },)*];
        }
    };
}

every_screen!(declare);

/// A screen of the watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tab {
    /// The screen that the tab shows.
    pub screen: Screen,
    /// The title in the line of tabs.
    pub name: &'static str,
}

impl Screen {
    /// The screen's index in [`Self::TABS`]. `None` for the screens that are shown while no process
    /// is watched or while the user chooses one; on these, each poll also looks for processes.
    pub fn tab(self) -> Option<usize> {
        Self::TABS.iter().position(|tab| tab.screen == self)
    }
}
