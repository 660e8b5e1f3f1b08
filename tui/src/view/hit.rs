//! What lies at a place on the screen, for the mouse.

use ratatui::layout::{Position, Rect};

use super::{Parts, diff, footer, roofline, room, table, tabs, timeline};
use crate::app::mouse::Target;
use crate::app::{App, Overlay, Screen};
use crate::view::Look;

/// What lies at `place` on a screen of this size.
pub fn hit(app: &App, look: &Look, area: Rect, place: Position) -> Target {
    let parts = Parts::of(app, area);
    let nothing = Target::Nothing;
    let (width, column) = (usize::from(area.width), usize::from(place.x.saturating_sub(area.x)));
    // A line that is being typed stands where the hints are, and so does a question.
    let has_hints = matches!(
        app.overlay,
        None | Some(Overlay::Help(_) | Overlay::Columns(_) | Overlay::Sort(_))
    );
    if parts.footer.contains(place) && has_hints {
        return footer::hit(app, width, column).map_or(nothing, Target::Key);
    }
    if parts.tabs.contains(place) && app.overlay.is_none() {
        return tabs::hit(app, width, column).map_or(nothing, Target::Tab);
    }
    let body = parts.body;
    if app.overlay.is_some() || !body.contains(place) {
        return nothing;
    }
    let row = usize::from(place.y - body.y);
    // Where the rows of the list begin.
    let first = match app.screen {
        Screen::Points if row == 0 => {
            return table::column_at(app, body.width.into(), column)
                .map_or(nothing, Target::Heading);
        }
        Screen::Points | Screen::Picker | Screen::Timeline => 1,
        Screen::Threads if app.threads.opened && room(app, look, area).rows == 0 => return nothing,
        Screen::Threads => 1,
        Screen::Diff => usize::from(diff::HEAD),
        Screen::Roofline => usize::from(roofline::list(app, body).y - body.y),
        Screen::Waiting | Screen::Detail | Screen::Log => return nothing,
    };
    if row < first || row - first >= room(app, look, area).rows {
        return nothing;
    }
    let place = app.offset + row - first;
    match app.screen {
        _ if place >= app.cursor().1 => nothing,
        Screen::Timeline => match timeline::moment_at(app, body, column) {
            Some(moment) => Target::Moment(place, moment),
            None => Target::Row(place),
        },
        _ => Target::Row(place),
    }
}
