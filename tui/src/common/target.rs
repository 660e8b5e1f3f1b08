//! The object under the mouse.

use super::action::Action;
use super::screen::Screen;

/// The object under the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MouseTarget {
    /// A row of the list, counted from the first row.
    Row(usize),
    /// The mark of a row's point, which shows whether the point is on.
    Mark(usize),
    /// The line of the timeline, if any, and a moment on the timeline or in the load history.
    Moment(Option<usize>, u64),
    /// A tab in the line of tabs.
    Tab(Screen),
    /// A key in the hints of the last line.
    Key(Action),
    /// The heading of a column that the rows can be sorted by.
    Heading(&'static str),
    /// Nothing that reacts to the mouse.
    Nothing,
}
