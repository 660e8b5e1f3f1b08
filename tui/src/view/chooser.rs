//! The menus over the right side of the body: of columns, to show or to sort by, and of actions.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear};

use crate::app::App;
use crate::common::Overlay;
use crate::styles::draw_scrolled;
use pfp_model::grid::{Heading, Sorted, TableLayout};
use pfp_read::text;

/// Maximum width of the menu.
const WIDTH: u16 = 60;

/// Maximum height of a menu without a border.
const BORDER_FROM: u16 = 4;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, overlay: &Overlay) {
    let styles = &app.common.styles;
    let (title, rows, place) = match overlay {
        Overlay::Columns(cursor) => {
            let (rows, place) = to_show(app, cursor, area.width.into());
            (" Columns, from left to right", rows, place)
        }
        Overlay::Sort(cursor) => {
            let (rows, place) = to_sort(app, cursor);
            (" Sort by", rows, place)
        }
        Overlay::Palette(prompt, place) => (" Actions", to_carry_out(app, &prompt.text()), *place),
        _ => return,
    };
    let height = area.height.min(rows.len() as u16 + 3).max(area.height.min(BORDER_FROM));
    let width = area.width.min(WIDTH);
    let panel = Rect { x: area.right() - width, width, height, ..area };
    let inner = usize::from(width.saturating_sub(2));
    let lines = rows.iter().enumerate().map(|(row, text)| {
        let selected = row == place;
        let mark = if selected { styles.glyphs.cursor } else { ' ' };
        let style = if selected { styles.theme.selected } else { styles.theme.header };
        Line::styled(text::fit(&format!("{mark}{text}"), inner, styles.glyphs.ellipsis), style)
    });
    let lines: Vec<Line> = lines.collect();
    let block = Block::bordered().border_set(styles.border()).border_style(styles.theme.faint);
    // In a panel of at most `BORDER_FROM` lines, a border would leave no row to choose from.
    let has_border = panel.height > BORDER_FROM;
    let body = if has_border { block.inner(panel) } else { panel };
    frame.render_widget(Clear, panel);
    if has_border {
        frame.render_widget(block, panel);
    }
    let rows = usize::from(body.height.saturating_sub(1)).max(1);
    let heading = text::fit(title, inner, styles.glyphs.ellipsis);
    let heading = Line::styled(heading, styles.theme.heading);
    draw_scrolled(frame, body, heading, lines, (place + 1).saturating_sub(rows));
}

/// The columns that the table on the screen can have, and the index of the cursor.
fn to_show(app: &App, cursor: &str, width: usize) -> (Vec<String>, usize) {
    let grid = app.view().grid(width, &app.common);
    let has_room =
        |key: &str| grid.as_ref().is_none_or(|grid| grid.slots.iter().any(|slot| slot.key == key));
    let all: Vec<_> = columns(app).collect();
    let titles = titles(&all);
    let rows = all.iter().map(|(column, is_shown)| {
        let check = if *is_shown { 'x' } else { ' ' };
        let room = if !is_shown || has_room(column.key) { "" } else { "(no room) " };
        format!("[{check}] {:<titles$} {room}{}", column.title, column.meaning)
    });
    (rows.collect(), all.iter().position(|(column, _)| column.key == cursor).unwrap_or(0))
}

/// The columns to sort by, and the index of the cursor.
fn to_sort(app: &App, cursor: &str) -> (Vec<String>, usize) {
    let styles = &app.common.styles;
    let sorted = app.view().table().map(TableLayout::sorted);
    let all: Vec<_> = columns(app).filter(|(column, _)| column.sorts.is_some()).collect();
    let titles = titles(&all);
    let rows = all.iter().map(|(column, _)| {
        let sign = match sorted.filter(|sorted| sorted.key == column.key) {
            Some(Sorted { descending: true, .. }) => styles.glyphs.down,
            Some(_) => styles.glyphs.up,
            None => ' ',
        };
        format!("{sign} {:<titles$} {}", column.title, column.meaning)
    });
    (rows.collect(), all.iter().position(|(column, _)| column.key == cursor).unwrap_or(0))
}

/// The actions that match the text, with their keys.
fn to_carry_out(app: &App, text: &str) -> Vec<String> {
    let found = app.palette(text);
    let keys = found.iter().map(|binding| text::width(&binding.key_name())).max().unwrap_or(0);
    found.iter().map(|it| format!(" {:<keys$}  {}", it.key_name(), it.help)).collect()
}

/// The maximum width of these titles.
fn titles(columns: &[(Heading, bool)]) -> usize {
    columns.iter().map(|(column, _)| text::width(column.title)).max().unwrap_or(0)
}

/// The columns that have something to show here.
fn columns(app: &App) -> impl Iterator<Item = (Heading, bool)> {
    let table = app.view().table().into_iter();
    let columns = table.flat_map(TableLayout::columns);
    columns.filter(|(column, _)| app.view().offers(column.key, &app.common))
}
