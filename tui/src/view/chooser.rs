//! The columns to choose from, or to sort by, over the right side of the table.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::symbols;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear};

use super::{Look, draw_scrolled};
use crate::app::{App, Overlay};
use crate::columns::Column;
use crate::grid::Sorted;
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
    let (title, rows, place) = match *overlay {
        Overlay::Columns(cursor) => {
            let (rows, place) = to_show(app, cursor, area.width.into());
            (" Columns, from left to right", rows, place)
        }
        Overlay::Sort(cursor) => {
            let (rows, place) = to_sort(app, cursor, look);
            (" Sort by", rows, place)
        }
        _ => return,
    };
    let height = area.height.min(rows.len() as u16 + 3).max(area.height.min(4));
    let width = area.width.min(WIDTH);
    let panel = Rect { x: area.right() - width, width, height, ..area };
    let inner = usize::from(width.saturating_sub(2));
    let lines = rows.iter().enumerate().map(|(row, text)| {
        let selected = row == place;
        let mark = if selected { look.glyphs.cursor } else { ' ' };
        let style = if selected { look.theme.selected } else { look.theme.header };
        Line::styled(text::fit(&format!("{mark}{text}"), inner, look.glyphs.ellipsis), style)
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

/// The columns that the table of points can have, and the place of the cursor.
fn to_show(app: &App, cursor: Column, width: usize) -> (Vec<String>, usize) {
    let points = &app.screens.points;
    let fit = points.fit(&app.common, width);
    let all = points.choices(&app.common);
    let rows = all.iter().map(|column| {
        let chosen = points.columns.contains(column);
        let check = if chosen { 'x' } else { ' ' };
        let has_room = !chosen || fit.columns.contains(column);
        let room = if has_room { "" } else { "(no room) " };
        format!("[{check}] {:<6} {room}{}", column.title(), column.meaning())
    });
    (rows.collect(), all.iter().position(|column| *column == cursor).unwrap_or(0))
}

/// What the rows of the screen can be sorted by, and the place of the cursor.
fn to_sort(app: &App, cursor: &str, look: &Look) -> (Vec<String>, usize) {
    let all = app.view().sort_columns(&app.common);
    let sorted = app.view().sorted();
    let rows = all.iter().map(|column| {
        let sign = match sorted.filter(|sorted| sorted.key == column.key) {
            Some(Sorted { descending: true, .. }) => look.glyphs.down,
            Some(_) => look.glyphs.up,
            None => ' ',
        };
        format!("{sign} {:<6} {}", column.title, column.meaning)
    });
    (rows.collect(), all.iter().position(|column| column.key == cursor).unwrap_or(0))
}
