//! The interface of a screen to the app, and what screens with a table have in common.

use std::sync::Arc;
use std::time::Duration;

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::widgets::Paragraph;

use crate::common::keys::KeyMap;
use crate::common::{Action, Common, MouseTarget, Overlay, Prompt, Screen};
use crate::styles::{Styles, wrapped};
use pfp_model::compare::Baseline;
use pfp_model::filter::Filter;
use pfp_model::grid::{Grid, TableLayout};
use pfp_read::snapshot::{SlowCall, Snapshot};
use pfp_read::source::{Candidate, ProcessGroup};
use pfp_read::waits::WaitNeeds;

/// The next step of the app after a screen has handled an action.
pub enum Outcome {
    /// The screen did not handle the action.
    Pass,
    /// The screen has handled the action.
    Done,
    /// Sort the rows again.
    Arrange,
    /// Show another screen.
    Show(Screen),
    /// Show the screen from which this one was opened.
    Back,
    /// Carry out this action.
    Act(Action),
    /// Show this overlay.
    Ask(Overlay),
    /// Watch this process.
    Attach(Candidate),
    /// Watch these processes together.
    AttachGroup(ProcessGroup),
    /// Show the moment of this slow call on the timeline.
    ShowCall(Arc<SlowCall>),
    /// Show the points that pass this filter, with a message.
    ShowPoints(Filter, String),
}

/// Implements the methods that return the user's choices for a screen's table.
macro_rules! has_table {
    ($self:ident.$($field:tt).+) => {
        fn table(&$self) -> Option<&TableLayout> {
            Some(&$self.$($field).+)
        }

        fn table_mut(&mut $self) -> Option<&mut TableLayout> {
            Some(&mut $self.$($field).+)
        }
    };
}
pub(super) use has_table;

/// A screen. The methods' defaults suit most screens.
pub trait View {
    /// The keys of the screen.
    fn keys(&self) -> KeyMap;

    /// Draws the screen. Drawing changes nothing.
    fn draw(&self, frame: &mut Frame, body: Rect, common: &Common);

    /// Signs and words on the screen that the help explains.
    fn legend(&self, _styles: &Styles) -> Vec<(String, &'static str)> {
        Vec::new()
    }

    /// Handles an action, if it is one of the screen's own.
    fn act(&mut self, _action: Action, _common: &mut Common) -> Outcome {
        Outcome::Pass
    }

    /// Whether the key to go back has an effect now. The key closes a part of the screen, or shows
    /// another screen.
    fn leads_back(&self, _common: &Common) -> bool {
        true
    }

    /// If the rows are not points: their filter, and a word for them, such as "threads".
    fn own_filter(&mut self) -> Option<(&mut Filter, &'static str)> {
        None
    }

    /// Handles the text from a prompt for
    /// [`PromptSubject::Find`](crate::common::PromptSubject::Find).
    fn find(&mut self, typed: Prompt, _common: &mut Common) -> Outcome {
        match self.own_filter() {
            Some((filter, _)) => filter_by(filter, typed),
            None => Outcome::Done,
        }
    }

    /// The points of the rows, which pass the filter. `None` if the rows are not points.
    fn points(&self, _common: &Common) -> Option<Vec<u32>> {
        None
    }

    /// Row of the cursor and number of rows.
    fn cursor(&self, common: &Common) -> (usize, usize) {
        let points = self.points(common).unwrap_or_default();
        let place = points.iter().position(|id| Some(*id) == common.selected);
        (place.unwrap_or(0), points.len())
    }

    /// Puts the cursor on the row with this index.
    fn select(&mut self, place: usize, common: &mut Common) {
        if let Some(points) = self.points(common) {
            common.selected = points.get(place).copied();
            common.freeze();
        }
    }

    /// Moves the cursor by rows; down is positive.
    fn walk(&mut self, rows: isize, common: &mut Common) {
        let (place, len) = self.cursor(common);
        let place = place.saturating_add_signed(rows).min(len.saturating_sub(1));
        self.select(place, common);
    }

    /// Scrolls by lines, for the wheel and the page keys.
    fn scroll(&mut self, lines: isize, common: &mut Common) {
        self.walk(lines, common);
    }

    /// The user's choices for the screen's table, if it has one.
    fn table(&self) -> Option<&TableLayout> {
        None
    }

    /// The user's choices for the screen's table, mutable.
    fn table_mut(&mut self) -> Option<&mut TableLayout> {
        None
    }

    /// Whether a column of the table has something to show here.
    fn offers(&self, _key: &str, _common: &Common) -> bool {
        true
    }

    /// The columns of the table at this width.
    fn grid(&self, _width: usize, _common: &Common) -> Option<Grid> {
        None
    }

    /// The name and the text of the row under the cursor, for the clipboard. `None` to copy the
    /// point that the keys act on instead.
    fn copied(&self, _common: &Common) -> Option<(String, String)> {
        None
    }

    /// The area of the rows on a body; empty if the screen has no rows.
    fn rows(&self, body: Rect) -> Rect {
        Rect { height: 0, ..body }
    }

    /// The key of the heading at this column, if rows can be sorted by it.
    fn heading_at(&self, x: u16, body: Rect, common: &Common) -> Option<&'static str> {
        let key = self.grid(body.width.into(), common)?.key_at(x.into());
        key.filter(|key| self.table().is_some_and(|table| table.sorts(key)))
    }

    /// The object at a position.
    fn hit(&self, at: Position, body: Rect, common: &Common) -> MouseTarget {
        hit_table(self, at, body, common)
    }

    /// Handles a click: it selects a row, opens the selected row, or sorts by a heading.
    fn click(&mut self, target: MouseTarget, common: &mut Common) -> Outcome {
        click_table(self, target, common)
    }

    /// Handles a notch of the wheel over an object. If the screen does not handle it
    /// ([`Outcome::Pass`]), the wheel scrolls.
    fn wheel(&mut self, _up: bool, _target: MouseTarget, _common: &mut Common) -> Outcome {
        Outcome::Pass
    }

    /// Handles a drag from the object where the button was pressed to the object under the mouse.
    fn drag(&mut self, _from: MouseTarget, _to: MouseTarget, _common: &mut Common) -> Outcome {
        Outcome::Pass
    }

    /// The point that the keys act on.
    fn target_point(&self, common: &Common) -> Option<u32> {
        common.selected
    }

    /// Whether the screen shows a single point, which stays even if its row in the table
    /// disappears.
    fn holds_point(&self) -> bool {
        false
    }

    /// Whether the screen is the main table. Only the main table has a line about the process above
    /// its rows, and only on these rows does Enter explain losses.
    fn is_table(&self) -> bool {
        false
    }

    /// Whether the screen shows the rings' records. The records are read only while the visible
    /// screen shows them.
    fn wants_records(&self) -> bool {
        false
    }

    /// Takes the rings' records from a snapshot.
    fn take_records(&mut self, _snapshot: &Snapshot) {}

    /// Handles the result of looking for processes.
    fn discovered(&mut self, _common: &mut Common) -> Outcome {
        Outcome::Done
    }

    /// Drops the state of the previous process when another one is watched.
    fn forget(&mut self) {}

    /// Prepares the screen for being shown.
    fn begin(&mut self, _common: &mut Common) {}

    /// Handles new figures while the screen is shown.
    fn update(&mut self, _common: &mut Common) -> Outcome {
        Outcome::Done
    }

    /// Handles a jump to another moment of a recording.
    fn jump(&mut self, _common: &mut Common) {}

    /// Lengths of the periods before the cursor of a recording that the screen shows. The snapshot
    /// at the start of each is read.
    fn windows(&self) -> &'static [Duration] {
        &[]
    }

    /// Takes the snapshots at the starts of the [windows](Self::windows).
    fn look_back(&mut self, _starts: Vec<Snapshot>, _common: &mut Common) {}

    /// Sorts the rows, or keeps their order while the cursor moves, and makes sure that the cursor
    /// is on a row.
    fn arrange(&mut self, common: &mut Common) {
        common.select_among(&self.points(common).unwrap_or_default());
    }

    /// Sets the baseline for comparisons.
    fn compare_with(&mut self, _baseline: &Baseline, _common: &Common) {}

    /// What the screen shows of the waits: at least a summary.
    fn wait_needs(&self) -> WaitNeeds {
        WaitNeeds::Summary
    }

    /// Whether a background task is running that [`Self::tick`] will finish.
    fn is_busy(&self) -> bool {
        false
    }

    /// Called at each poll, whichever screen is shown.
    fn tick(&mut self, _common: &mut Common) {}

    /// Adapts to the size of the body. `Common::rows` is already the height of [`Self::rows`].
    fn settle(&mut self, _body: Rect, _common: &mut Common) {}

    /// The line that must be in sight, and the number of lines.
    fn in_sight(&self, common: &Common) -> (usize, usize) {
        self.cursor(common)
    }
}

/// The object at a position of a screen that is a table: a heading, or a row.
pub(super) fn hit_table<V: View + ?Sized>(
    view: &V,
    at: Position,
    body: Rect,
    common: &Common,
) -> MouseTarget {
    let rows = view.rows(body);
    if at.y + 1 == rows.y && rows.height > 0 {
        let heading = view.heading_at(at.x - body.x, body, common);
        return heading.map_or(MouseTarget::Nothing, MouseTarget::Heading);
    }
    let place = common.scroll.offset + usize::from(at.y.saturating_sub(rows.y));
    match rows.contains(at) && place < view.cursor(common).1 {
        true => MouseTarget::Row(place),
        false => MouseTarget::Nothing,
    }
}

/// Handles a click on a screen that is a table.
pub(super) fn click_table<V: View + ?Sized>(
    view: &mut V,
    target: MouseTarget,
    common: &mut Common,
) -> Outcome {
    match target {
        MouseTarget::Row(place) if place == view.cursor(common).0 => {
            return Outcome::Act(Action::Open);
        }
        MouseTarget::Row(place) => view.select(place, common),
        MouseTarget::Heading(key) => {
            if let Some(table) = view.table_mut() {
                table.click(key);
            }
            return Outcome::Arrange;
        }
        _ => return Outcome::Pass,
    }
    Outcome::Done
}

/// Filters a screen's own rows by the typed text, or shows the error in it.
pub(super) fn filter_by(filter: &mut Filter, typed: Prompt) -> Outcome {
    match Filter::new(&typed.text()) {
        Ok(new) => {
            *filter = new;
            Outcome::Arrange
        }
        Err(why) => Outcome::Ask(typed.refused(why)),
    }
}

/// Draws a message in place of missing rows.
pub(super) fn draw_empty(frame: &mut Frame, area: Rect, text: &str, common: &Common) {
    let lines = wrapped(text, area.width.into(), common.styles.theme.faint);
    frame.render_widget(Paragraph::new(lines), area);
}

/// A message if the filter hides all rows, or else `otherwise`.
pub(super) fn why_no_point(common: &Common, otherwise: &str) -> String {
    match (common.filter.is_on(), common.filter.unknown_words()) {
        (false, _) => otherwise.to_owned(),
        (true, None) => " no point passes the filter; Esc on screen 1 clears it".into(),
        (true, Some(why)) => {
            format!(" no point passes the filter; Esc on screen 1 clears it; {why}")
        }
    }
}

/// A message if the screen's own filter hides all rows, or else `otherwise`.
pub(super) fn why_none(what: &str, filter: &Filter, otherwise: &str) -> String {
    match filter.is_on() {
        true => format!(" no {what} passes {}; Esc shows all", filter.text()),
        false => otherwise.to_owned(),
    }
}
