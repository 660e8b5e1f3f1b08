//! The table of points.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{Look, chart};
use crate::app::App;
use crate::columns::Column;
use crate::model::Figures;
use crate::snapshot::{PointState, ProcessState};
use crate::text;
use crate::units::Scale;

/// Polls whose greatest load is the full height of a trend. More than the trend
/// shows, so that a load that fell stays low instead of filling its row again.
pub(super) const TREND_TOP: usize = 60;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let (columns, name_width) =
        Column::fitting_processes(area.width.into(), app.model.has_processes());
    let table = Table { app, look, columns, name_width };
    frame.render_widget(table.heading(usize::from(area.width)), head);
    let seen = app.order.iter().skip(app.offset).filter_map(|id| app.model.point(*id));
    let mut rows = body.rows().zip(seen).peekable();
    if rows.peek().is_none() {
        let text = " no point yet: the program has not reached any";
        frame.render_widget(Line::styled(text, look.theme.faint), body);
    }
    for (row, figures) in rows {
        table.draw_row(frame.buffer_mut(), row, figures);
    }
}

struct Table<'a> {
    app: &'a App,
    look: &'a Look,
    columns: Vec<Column>,
    name_width: usize,
}

impl Table<'_> {
    fn heading(&self, width: usize) -> Line<'static> {
        let theme = &self.look.theme;
        let sorting = self.app.sorting;
        let mut spans = Vec::new();
        for column in &self.columns {
            let sorted = *column == sorting.column;
            let mut title = column.title().to_owned();
            if sorted {
                let glyphs = &self.look.glyphs;
                title.push(if sorting.descending { glyphs.down } else { glyphs.up });
            }
            let style = if sorted { theme.sorted } else { theme.heading };
            spans.push(Span::styled(self.aligned(*column, &title), style));
            spans.push(Span::styled(" ", theme.heading));
        }
        let rest = width.saturating_sub(spans.iter().map(Span::width).sum());
        spans.push(Span::styled(" ".repeat(rest), theme.heading));
        Line::from(spans)
    }

    /// Cell by cell onto the screen: most of what the viewer costs is here, and
    /// spans and lines in between would double it.
    fn draw_row(&self, buffer: &mut Buffer, area: Rect, figures: &Figures) {
        let theme = &self.look.theme;
        let selected = self.app.selected == Some(figures.id());
        let state = figures.state();
        // One look for the whole row: the parts' own colours would break it.
        let whole = match (selected, state) {
            (true, _) => Some(theme.selected),
            (false, PointState::On) if has_ended(figures) => Some(theme.faint),
            (false, PointState::On) => None,
            (false, PointState::Off) => Some(theme.faint),
            (false, PointState::InvalidBeginBegin) => Some(theme.warn),
        };
        if let Some(style) = whole {
            buffer.set_style(area, style);
        }
        let scale = self.scale();
        let mut left = usize::from(area.x);
        for column in &self.columns {
            let (mut text, style) = match column {
                Column::On => (self.mark(state, selected), theme.header),
                Column::Trend => (self.trend(figures), theme.bar),
                Column::Name if figures.point().name.is_empty() => {
                    (column.text(figures, &scale), theme.faint)
                }
                other => (other.text(figures, &scale), theme.header),
            };
            if *column == Column::Name
                && !self.columns.contains(&Column::Process)
                && let Some(process) = figures.process()
            {
                text = format!("{} {text}", process.pid);
            }
            let room = column.width().unwrap_or(self.name_width);
            let used = text::width(&text);
            let text = match used > room {
                true if column.is_text() => text::cut(&text, room, self.look.glyphs.ellipsis),
                _ => text,
            };
            let blank = if column.is_text() { 0 } else { room.saturating_sub(used) };
            let at = Position { x: (left + blank) as u16, y: area.y };
            put(buffer, area, at, &text, whole.unwrap_or(style));
            left += room + 1;
        }
    }

    fn scale(&self) -> Scale {
        super::detail::scale(self.app)
    }

    fn mark(&self, state: PointState, selected: bool) -> String {
        let glyphs = &self.look.glyphs;
        let cursor = if selected { glyphs.cursor } else { ' ' };
        let state = match state {
            PointState::On => glyphs.on,
            PointState::Off => glyphs.off,
            PointState::InvalidBeginBegin => glyphs.invalid,
        };
        format!("{cursor}{state} ")
    }

    fn trend(&self, figures: &Figures) -> String {
        let width = Column::Trend.width().unwrap_or(0);
        let loads = |n: usize| figures.history().last(n).map(|sample| sample.load);
        let top = chart::top(loads(TREND_TOP));
        let loads: Vec<_> = loads(width).collect();
        format!("{:>width$}", chart::trend(&loads, top, &self.look.glyphs))
    }

    fn aligned(&self, column: Column, content: &str) -> String {
        let width = column.width().unwrap_or(self.name_width);
        if column.is_text() {
            return text::fit(content, width, self.look.glyphs.ellipsis);
        }
        let missing = width.saturating_sub(text::width(content));
        " ".repeat(missing) + content
    }
}

/// Whether it is of a process that has ended while others run.
fn has_ended(figures: &Figures) -> bool {
    figures.process().is_some_and(|process| process.state != ProcessState::Running)
}

/// Writes a text into an area, from a place in it on.
fn put(buffer: &mut Buffer, area: Rect, at: Position, text: &str, style: Style) {
    let room = usize::from(area.right().saturating_sub(at.x));
    if text::is_plain(text) {
        // What is a column a byte needs no looking for graphemes.
        for (x, byte) in (at.x..).zip(text.bytes().take(room)) {
            buffer[(x, at.y)].set_char(char::from(byte)).set_style(style);
        }
    } else {
        buffer.set_stringn(at.x, at.y, text, room, style);
    }
}
