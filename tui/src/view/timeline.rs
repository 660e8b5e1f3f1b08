//! What the threads did in the last moments.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::Look;
use crate::app::App;

pub(super) fn draw(frame: &mut Frame, area: Rect, _app: &App, look: &Look) {
    frame.render_widget(Line::styled(" no measurement yet", look.theme.faint), area);
}
