//! What lies at a place on the screen, for the mouse.

use ratatui::layout::{Position, Rect};

use super::{Parts, room, table};
use crate::app::mouse::Target;
use crate::app::{App, Screen};
use crate::view::Look;

/// What lies at `place` on a screen of this size.
pub fn hit(app: &App, look: &Look, area: Rect, place: Position) -> Target {
    let body = Parts::of(app, area).body;
    if app.overlay.is_some() || !body.contains(place) {
        return Target::Nothing;
    }
    let row = usize::from(place.y - body.y);
    match app.screen {
        Screen::Points if row == 0 => {
            table::column_at(app, body.width.into(), (place.x - body.x).into())
                .map_or(Target::Nothing, Target::Heading)
        }
        Screen::Points | Screen::Picker if row >= 1 && row <= room(app, look, area).rows => {
            let place = app.offset + row - 1;
            if place < app.cursor().1 { Target::Row(place) } else { Target::Nothing }
        }
        _ => Target::Nothing,
    }
}
