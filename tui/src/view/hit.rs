//! Finds the object at a position on the screen, for the mouse.

use ratatui::layout::{Position, Rect};

use super::parts::Parts;
use super::{footer, tabs};
use crate::app::App;
use crate::common::MouseTarget;
use crate::common::Overlay;

/// The object at `place` on a screen of this size.
pub fn hit(app: &App, area: Rect, place: Position) -> MouseTarget {
    let parts = Parts::of(app, area);
    let nothing = MouseTarget::Nothing;
    let (width, column) = (usize::from(area.width), usize::from(place.x.saturating_sub(area.x)));
    // A prompt or a question replaces the hints.
    let has_hints = matches!(
        app.overlay,
        None | Some(Overlay::Help(_) | Overlay::Columns(_) | Overlay::Sort(_))
    );
    if parts.footer.contains(place) && has_hints {
        return footer::hit(app, width, column).map_or(nothing, MouseTarget::Key);
    }
    if parts.tabs.contains(place) && app.overlay.is_none() {
        return tabs::hit(app, width, column).map_or(nothing, MouseTarget::Tab);
    }
    let body = parts.body;
    if app.overlay.is_some() || !body.contains(place) {
        return nothing;
    }
    app.view().hit(place, body, &app.common)
}
