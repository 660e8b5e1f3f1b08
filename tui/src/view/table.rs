//! The table of points.

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Position, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{Look, chart};
use crate::app::{App, Screen};
use crate::columns::{Column, Fit};
use crate::model::{Figures, Trouble};
use crate::snapshot::{PointState, ProcessState};
use crate::text;
use crate::units::{self, Scale};

/// Polls whose greatest load is the full height of a trend. More than the trend
/// shows, so that a load that fell stays low instead of filling its row again.
pub(super) const TREND_TOP: usize = 60;

/// Lines from which on the table also has one for its sums.
const LEAST_HEIGHT: u16 = 12;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let [head, body, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(totals(app, area)),
    ])
    .areas(area);
    let fit = fit(app, area.width.into());
    let table = Table { app, look, fit };
    frame.render_widget(table.heading(usize::from(area.width)), head);
    let seen = app.order.iter().skip(app.offset).filter_map(|id| app.model.point(*id));
    let mut rows = body.rows().zip(seen).peekable();
    if rows.peek().is_none() {
        let text = match app.filter.is_on() {
            true => " no point passes the filter; Esc shows all",
            false => " no point yet: the program has not reached any",
        };
        let mut lines = vec![Line::styled(text, look.theme.faint)];
        lines.extend(super::detail::losses(app, area.width.into(), look));
        frame.render_widget(Paragraph::new(lines), body);
    }
    for (row, figures) in rows {
        table.draw_row(frame.buffer_mut(), row, figures);
    }
    if !foot.is_empty() {
        let hidden = table.hidden();
        frame.render_widget(Paragraph::new(vec![table.totals(), hidden]), foot);
    }
}

/// Lines that the sums of all rows take, and the count of those that are hidden: one each,
/// where rows have enough.
pub(super) fn totals(app: &App, area: Rect) -> u16 {
    let have_room = app.screen == Screen::Points && area.height >= LEAST_HEIGHT;
    if have_room { 1 + u16::from(app.hidden() > 0) } else { 0 }
}

/// The column that is drawn at this place, counted from the left.
pub(super) fn column_at(app: &App, width: usize, place: usize) -> Option<Column> {
    let fit = fit(app, width);
    let mut right = 0;
    fit.columns.iter().copied().find(|column| {
        // With the blank behind it.
        right += fit.width(*column) + 1;
        place < right
    })
}

fn fit(app: &App, width: usize) -> Fit {
    Fit::new(&app.columns, width, app.model.has_processes())
}

struct Table<'a> {
    app: &'a App,
    look: &'a Look,
    fit: Fit,
}

impl Table<'_> {
    fn heading(&self, width: usize) -> Line<'static> {
        let theme = &self.look.theme;
        let sorting = self.app.sorting;
        let mut spans = Vec::new();
        for column in &self.fit.columns {
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
        for column in &self.fit.columns {
            let (mut text, style) = match column {
                Column::On => (self.mark(state, selected), theme.header),
                Column::Trend => (self.trend(figures), theme.bar),
                Column::Name if !figures.trouble().is_empty() => {
                    (self.name_in_trouble(figures), theme.warn)
                }
                Column::Name if figures.point().name.is_empty() => {
                    (column.text(figures, &scale), theme.faint)
                }
                other => (other.text(figures, &scale), theme.header),
            };
            if *column == Column::Name
                && !self.fit.columns.contains(&Column::Process)
                && let Some(process) = figures.process()
            {
                text = format!("{} {text}", process.pid);
            }
            let room = self.fit.width(*column);
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

    /// The name and what is wrong with the point; rather less of the name than of
    /// that.
    fn name_in_trouble(&self, figures: &Figures) -> String {
        let (trouble, room) = (figures.trouble(), self.fit.width(Column::Name));
        let words = |of: fn(Trouble) -> &'static str| {
            trouble.iter().map(|trouble| of(*trouble)).collect::<Vec<_>>().join(", ")
        };
        let (name, long) = (figures.name(), words(Trouble::words));
        let fits = text::width(&name) + 1 + long.len() <= room;
        let said = if fits { long } else { words(Trouble::word) };
        let left = room.saturating_sub(said.len() + 1).max(room / 3);
        format!("{} {said}", text::cut(&name, left, self.look.glyphs.ellipsis))
    }

    /// The sums of all rows, those out of sight included.
    /// What has no row, and how to have it.
    fn hidden(&self) -> Line<'static> {
        let hidden = self.app.hidden();
        let plural = if hidden == 1 { "" } else { "s" };
        let text = format!(" {hidden} point{plural} off and never measured: o shows them");
        Line::styled(text, self.look.theme.faint)
    }

    fn totals(&self) -> Line<'static> {
        let rows = || self.app.order.iter().filter_map(|id| self.app.model.point(*id));
        let off = rows().filter(|row| row.state() != PointState::On).count();
        let mut name = format!("{} points", rows().count());
        let more = format!(", {off} not on");
        if off > 0 && name.len() + more.len() <= self.fit.width(Column::Name) {
            name += &more;
        }
        let sum = |of: fn(&Figures) -> f64| rows().map(of).sum::<f64>();
        let scale = self.scale();
        let cells = self.fit.columns.iter().map(|column| {
            let text = match column {
                Column::Name => name.clone(),
                Column::Count => units::si(sum(|row| row.total().count as f64)),
                Column::Rate => units::si(sum(|row| row.rate().unwrap_or(0.0))),
                Column::Load => units::percent(sum(|row| row.load().unwrap_or(0.0))),
                // What devices took is no CPU's.
                Column::Excl => scale.ticks(sum(|row| match row.point().device {
                    true => 0.0,
                    false => row.total().exclusive as f64,
                })),
                Column::Switches => units::si(sum(|row| row.total().switches as f64)),
                _ => String::new(),
            };
            self.aligned(*column, &text)
        });
        Line::styled(cells.collect::<Vec<_>>().join(" "), self.look.theme.process)
    }

    fn trend(&self, figures: &Figures) -> String {
        let width = self.fit.width(Column::Trend);
        let loads = |n: usize| figures.history().last(n).map(|sample| sample.load);
        let top = chart::top(loads(TREND_TOP));
        let loads: Vec<_> = loads(width).collect();
        format!("{:>width$}", chart::trend(&loads, top, &self.look.glyphs))
    }

    fn aligned(&self, column: Column, content: &str) -> String {
        let width = self.fit.width(column);
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
