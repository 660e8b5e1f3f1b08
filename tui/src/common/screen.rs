//! The names of the screens. `screens` has the screens themselves.

/// What fills the body of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// The table of points.
    Points,
    /// One point in full.
    Detail,
    /// The threads.
    Threads,
    /// What the threads did in the last moments.
    Timeline,
    /// The points beside their baseline.
    Diff,
    /// What was noticed, and what measuring costs.
    Log,
    /// What the machine can do at most, and the points below that.
    Roofline,
    /// What called what, and how much of all it took there.
    Tree,
    /// The processes to choose from.
    Picker,
    /// There is no process yet; it is looked for.
    Waiting,
}

/// A screen of the watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tab {
    /// Which.
    pub screen: Screen,
    /// What it is called.
    pub name: &'static str,
}

const fn tab(screen: Screen, name: &'static str) -> Tab {
    Tab { screen, name }
}

impl Screen {
    /// Every screen.
    pub const ALL: [Self; 10] = [
        Self::Points,
        Self::Detail,
        Self::Threads,
        Self::Timeline,
        Self::Diff,
        Self::Log,
        Self::Roofline,
        Self::Tree,
        Self::Picker,
        Self::Waiting,
    ];

    /// The screens that show the watched process, in the order of their numbers.
    pub const TABS: [Tab; 8] = [
        tab(Self::Points, "Points"),
        tab(Self::Detail, "Detail"),
        tab(Self::Threads, "Threads"),
        tab(Self::Timeline, "Timeline"),
        tab(Self::Diff, "Diff"),
        tab(Self::Log, "Log"),
        tab(Self::Roofline, "Roofline"),
        tab(Self::Tree, "Tree"),
    ];

    /// Its place among [`Self::TABS`]; none for a screen that is shown while nothing is
    /// watched, or to choose what is.
    pub fn tab(self) -> Option<usize> {
        Self::TABS.iter().position(|tab| tab.screen == self)
    }
}
