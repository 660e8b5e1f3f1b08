//! The columns to choose from, over the right side of the table.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::Clear;

use super::{Look, draw_scrolled};
use crate::app::App;
use crate::columns::Column;
use crate::text;

/// Columns of the screen that it takes at most.
const WIDTH: u16 = 58;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, cursor: Column, look: &Look) {
    let width = area.width.min(WIDTH);
    let panel = Rect { x: area.right() - width, width, ..area };
    let fit = super::table::fit(app, area.width.into());
    let choices = app.column_choices();
    let place = choices.iter().position(|column| *column == cursor).unwrap_or(0);
    let lines = choices.iter().map(|column| {
        let selected = *column == cursor;
        let chosen = app.columns.contains(column);
        let mark = if selected { look.glyphs.cursor } else { ' ' };
        let check = if chosen { 'x' } else { ' ' };
        let room = if chosen && !fit.columns.contains(column) { "(no room) " } else { "" };
        let row = format!("{mark}[{check}] {:<6} {room}{}", column.title(), column.meaning());
        let style = if selected { look.theme.selected } else { look.theme.header };
        Line::styled(text::fit(&row, width.into(), look.glyphs.ellipsis), style)
    });
    let heading = text::fit(" Columns, from left to right", width.into(), look.glyphs.ellipsis);
    let rows = usize::from(area.height.saturating_sub(1)).max(1);
    frame.render_widget(Clear, panel);
    let heading = Line::styled(heading, look.theme.heading);
    draw_scrolled(frame, panel, heading, lines.collect(), (place + 1).saturating_sub(rows));
}
