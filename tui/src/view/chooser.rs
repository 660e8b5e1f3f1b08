//! The columns to choose from, or to sort by, over the right side of the table.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear};

use super::{Look, draw_scrolled};
use crate::app::{App, Overlay};
use crate::text;

/// A border for terminals without lines.
const ASCII_BORDER: symbols::border::Set = symbols::border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};

/// Columns of the screen that it takes at most.
const WIDTH: u16 = 60;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, overlay: &Overlay, look: &Look) {
    let (cursor, title, sorts) = match *overlay {
        Overlay::Columns(cursor) => (cursor, " Columns, from left to right", false),
        Overlay::Sort(cursor) => (cursor, " Sort by", true),
        _ => return,
    };
    let points = &app.screens.points;
    let fit = points.fit(&app.common, area.width.into());
    let choices = points.choices(&app.common, sorts);
    let place = choices.iter().position(|column| *column == cursor).unwrap_or(0);
    let height = area.height.min(choices.len() as u16 + 3).max(area.height.min(4));
    let width = area.width.min(WIDTH);
    let panel = Rect { x: area.right() - width, width, height, ..area };
    let inner = usize::from(width.saturating_sub(2));
    let lines = choices.iter().map(|column| {
        let selected = *column == cursor;
        let chosen = points.columns.contains(column);
        let mark = if selected { look.glyphs.cursor } else { ' ' };
        let row = if sorts {
            let glyphs = &look.glyphs;
            let way = match points.sorting.column == *column {
                true if points.sorting.descending => glyphs.down,
                true => glyphs.up,
                false => ' ',
            };
            format!("{mark}{way} {:<6} {}", column.title(), column.meaning())
        } else {
            let check = if chosen { 'x' } else { ' ' };
            let has_room = !chosen || fit.columns.contains(column);
            let room = if has_room { "" } else { "(no room) " };
            format!("{mark}[{check}] {:<6} {room}{}", column.title(), column.meaning())
        };
        let style = if selected { look.theme.selected } else { look.theme.header };
        Line::styled(text::fit(&row, inner, look.glyphs.ellipsis), style)
    });
    let lines: Vec<Line> = lines.collect();
    let border = if look.glyphs.on.is_ascii() { ASCII_BORDER } else { symbols::border::PLAIN };
    let block = Block::bordered().border_set(border).border_style(look.theme.faint);
    let body = block.inner(panel);
    frame.render_widget(Clear, panel);
    frame.render_widget(block, panel);
    let rows = usize::from(body.height.saturating_sub(1)).max(1);
    let heading = text::fit(title, inner, look.glyphs.ellipsis);
    let heading = Line::styled(heading, look.theme.heading);
    draw_scrolled(frame, body, heading, lines, (place + 1).saturating_sub(rows));
}
