//! What lies under the mouse.

use super::action::Action;
use super::screen::Screen;

/// What lies under the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This row of the list, counted from its first.
    Row(usize),
    /// This line of the timeline, at a moment.
    Moment(usize, u64),
    /// The name of a screen.
    Tab(Screen),
    /// A key that is hinted at in the last line.
    Key(Action),
    /// The heading of a column that the rows can be sorted by.
    Heading(&'static str),
    /// Nothing that minds it.
    Nothing,
}
