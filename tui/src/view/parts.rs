//! The areas of the parts of the screen.

use ratatui::layout::Rect;
use ratatui::macros::{horizontal, vertical};

use super::{header, summary, tabs};
use crate::app::App;
use crate::common::{Overlay, Screen};

/// Width of the area beside the table of points, where the figures and the histogram of a point are
/// side by side.
const BESIDE: u16 = 81;
/// Minimum width of the table beside it.
const TABLE: u16 = 100;

/// The areas of the parts of the screen.
pub(super) struct Parts {
    pub(super) header: Rect,
    pub(super) summary: Rect,
    pub(super) notice: Rect,
    pub(super) body: Rect,
    /// The selected point in full, beside the table of points. Empty on a narrow screen.
    pub(super) beside: Rect,
    pub(super) tabs: Rect,
    pub(super) footer: Rect,
}

impl Parts {
    pub(super) fn of(app: &App, area: Rect) -> Self {
        let notice = u16::from(header::notice(app, 0, ' ').is_some());
        let tabs = u16::from(tabs::has_room(app, area.height));
        let summary = u16::from(summary::has_room(app, area.height));
        let [header, summary, notice, body, tabs, footer] =
            vertical![==1, ==summary, ==notice, *=1, ==tabs, ==1].areas(area);
        let [body, beside] = horizontal![*=1, ==beside(app, body.width)].areas(body);
        Self { header, summary, notice, body, beside, tabs, footer }
    }
}

/// Width of the area beside a body of this width; 0 if the table would lose one of its usual or
/// chosen columns, and while the help is open.
fn beside(app: &App, width: u16) -> u16 {
    let left = width.saturating_sub(BESIDE);
    let chosen = app.screens.points.columns();
    let columns = |width: u16| {
        let fit = app.screens.points.fit(&app.common, width.into(), ' ');
        fit.columns.iter().filter(|column| chosen.contains(column)).count()
    };
    let has_room = app.screen == Screen::Points
        && app.common.selected().is_some()
        && !matches!(app.overlay, Some(Overlay::Help(_)))
        && left >= TABLE
        && columns(left) == columns(width);
    if has_room { BESIDE } else { 0 }
}
