//! The areas of the parts of the screen.

use ratatui::layout::Rect;
use ratatui::macros::vertical;

use super::{header, summary, tabs};
use crate::app::App;

/// The areas of the parts of the screen.
pub(super) struct Parts {
    pub(super) header: Rect,
    pub(super) summary: Rect,
    pub(super) notice: Rect,
    pub(super) body: Rect,
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
        Self { header, summary, notice, body, tabs, footer }
    }
}
