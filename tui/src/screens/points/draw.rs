//! The table of points, drawn.

use ratatui::buffer::Buffer;
use ratatui::widgets::Paragraph;

use super::super::detail::losses;
use super::super::name::NameCell;
use super::super::view::why_no_point;
use super::PointsView;
use crate::screens::prelude::*;
use pfp_model::PointWarning;
use pfp_model::columns::{self, Column, Fit, Kind};

const NO_POINT: &str = " no points yet: each appears here once the program reaches it; `pfp-top \
                        doctor PID` explains what may be missing";

pub(super) fn draw(points: &PointsView, frame: &mut Frame, area: Rect, common: &Common) {
    let styles = &common.styles;
    let [head, body] = vertical![==1, *=1].areas(area);
    let below = points.totals(area);
    let rows = usize::from(body.height.saturating_sub(below));
    let fit = points.fit(common, area.width.into(), styles.glyphs.ellipsis);
    let (top, has_totals) = (common.model.load_scale(), below > 0);
    let table = PointsTable { points, common, styles, fit, top, has_totals };
    frame.render_widget(table.heading(usize::from(area.width), rows), head);
    let seen =
        common.order.iter().skip(common.scroll.offset).filter_map(|id| common.model.point(*id));
    let seen: Vec<&Figures> = seen.take(rows).collect();
    if seen.is_empty() {
        let width = area.width.into();
        let mut lines = wrapped(&why_no_point(common, NO_POINT), width, styles.theme.faint);
        if !common.filter.is_on() {
            lines.extend(losses(common, width));
        }
        frame.render_widget(Paragraph::new(lines), body);
    }
    for (row, figures) in body.rows().zip(&seen) {
        table.draw_row(frame.buffer_mut(), row, figures);
    }
    if below > 0 && !seen.is_empty() {
        let foot = Rect { y: body.y + seen.len() as u16, height: below, ..body };
        frame.render_widget(Paragraph::new(vec![table.totals(seen.len()), table.hidden()]), foot);
    }
}

struct PointsTable<'a> {
    points: &'a PointsView,
    common: &'a Common,
    styles: &'a Styles,
    fit: Fit,
    /// The load at which a bar has its full length and a trend its full height, in all rows.
    top: f64,
    has_totals: bool,
}

impl PointsTable<'_> {
    /// The titles of the columns, above this many rows.
    fn heading(&self, width: usize, rows: usize) -> Line<'static> {
        let mut grid = self.fit.grid.clone();
        for (slot, column) in grid.slots.iter_mut().zip(&self.fit.columns) {
            slot.title = self.title(*column, rows).into();
        }
        grid.heading(Some(self.points.table.sorted()), width, self.styles)
    }

    /// The title of a column. For the bar, it includes the load at full length.
    fn title(&self, column: Column, rows: usize) -> String {
        let all = self.common.order.len();
        match column {
            Column::Bar => {
                let end = format!("{:.0}%", self.top * 100.0);
                format!("0{end:>width$}", width = self.fit.width(column).saturating_sub(1))
            }
            // The line of sums has the numbers of the visible rows. Without that line, the title
            // has them.
            Column::Name if rows < all && !self.has_totals => {
                format!("Name {}", self.seen(rows).replace(" of ", "/"))
            }
            other => other.title().to_owned(),
        }
    }

    /// `1-19 of 24`: the visible rows, and the number of all rows.
    fn seen(&self, rows: usize) -> String {
        let (first, all) = (self.common.scroll.offset, self.common.order.len());
        format!("{}-{} of {all}", first + 1, (first + rows).min(all))
    }

    /// Draws cell by cell. Drawing rows is most of the viewer's cost, and intermediate spans and
    /// lines would double this cost.
    fn draw_row(&self, buffer: &mut Buffer, area: Rect, figures: &Figures) {
        let theme = &self.styles.theme;
        let selected = self.common.selected == Some(figures.id());
        let state = figures.state();
        // The whole row has one style; colours of its parts would interrupt it.
        let whole = match (selected, state) {
            (true, _) => Some(theme.selected),
            (false, PointState::On) if figures.is_ended() => Some(theme.faint),
            (false, PointState::On) => None,
            (false, PointState::Off) => Some(theme.faint),
            (false, PointState::InvalidBeginBegin) => Some(theme.warn),
        };
        if let Some(style) = whole {
            buffer.set_style(area, style);
        }
        let scale = self.common.scale();
        let mut left = usize::from(area.x);
        for column in &self.fit.columns {
            let plain = NameCell::without;
            let (mut cell, style) = match column {
                Column::On => (plain(self.mark(figures, selected)), theme.header),
                Column::Load => {
                    let load = figures.load().unwrap_or(0.0);
                    (plain(column.text(figures, &scale)), theme.heat(load))
                }
                Column::Bar => {
                    let load = figures.load().unwrap_or(0.0);
                    let room = self.fit.width(Column::Bar);
                    let bar = chart::bar(load / self.top, room, &self.styles.glyphs);
                    (plain(bar), theme.heat(load))
                }
                Column::Trend => (plain(self.trend(figures)), theme.bar),
                Column::Name => self.name(figures, &scale),
                other => (plain(other.text(figures, &scale)), theme.header),
            };
            let room = self.fit.width(*column);
            let used = text::width(&cell.text);
            let is_left = column.spec().is_left;
            if is_left {
                cell.cut_end(room, self.styles.glyphs.ellipsis);
            }
            let blank = if is_left { 0 } else { room.saturating_sub(used) };
            let at = Position { x: (left + blank) as u16, y: area.y };
            put(buffer, area, at, &cell.text, whole.unwrap_or(style));
            cell.mark(buffer, area, at, theme.found);
            left += room + 1;
        }
    }

    /// The cursor, the state, and a mark if the load has changed much.
    fn mark(&self, figures: &Figures, selected: bool) -> String {
        let glyphs = &self.styles.glyphs;
        let cursor = if selected { glyphs.cursor } else { ' ' };
        let state = glyphs.state(figures.state());
        let changed = match figures.rises() {
            None => ' ',
            Some(true) => glyphs.changed[0],
            Some(false) => glyphs.changed[1],
        };
        String::from_iter([cursor, state, changed])
    }

    /// The name, followed by its warnings or the time of an open region, and the style of both.
    fn name(&self, figures: &Figures, scale: &Scale) -> (NameCell, Style) {
        let (theme, room) = (&self.styles.theme, self.fit.width(Column::Name));
        let ellipsis = self.styles.glyphs.ellipsis;
        let cell = |text| NameCell::new(text, &figures.name(), &self.common.filter);
        let (words, style) = match columns::open_mark(figures, scale) {
            _ if !figures.warnings().is_empty() => (Some(self.warnings(figures)), theme.warn),
            None if figures.point().name.is_empty() => (None, theme.faint),
            open => (open, theme.header),
        };
        let mut name = match words {
            None => cell(Column::Name.text(figures, scale)),
            // If room is short, the name is cut first.
            Some(words) => {
                let mut name = cell(figures.name());
                let left = room.saturating_sub(words.len() + 1).max(room / 3);
                name.cut(left, 0, ellipsis);
                name.text += &format!(" {words}");
                name
            }
        };
        if !self.fit.columns.contains(&Column::Process)
            && let Some(process) = figures.process()
        {
            name.prefix(&format!("{} ", process.pid));
        }
        name.cut(room, self.points.name_offset, ellipsis);
        (name, style)
    }

    /// The point's warnings, in words that fit to the right of the name.
    fn warnings(&self, figures: &Figures) -> String {
        let (warnings, room) = (figures.warnings(), self.fit.width(Column::Name));
        let words = |of: fn(PointWarning) -> &'static str| {
            warnings.iter().map(|warning| of(*warning)).collect::<Vec<_>>().join(", ")
        };
        let long = words(PointWarning::words);
        let fits = text::width(&figures.name()) + 1 + long.len() <= room;
        if fits { long } else { words(PointWarning::word) }
    }

    /// The number of hidden rows, and the key that shows them.
    fn hidden(&self) -> Line<'static> {
        let hidden = self.points.idle.hidden();
        if hidden == 0 {
            return Line::default();
        }
        let points = text::counted(hidden, "idle point");
        let text = format!(" {points} hidden (off, never measured): press o");
        Line::styled(text, self.styles.theme.faint)
    }

    /// The sums of all rows, including those out of view.
    fn totals(&self, seen: usize) -> Line<'static> {
        let rows = || self.common.order.iter().filter_map(|id| self.common.model.point(*id));
        let off = rows().filter(|row| row.state() != PointState::On).count();
        let count = rows().count();
        let mut name = match seen < count {
            true => self.seen(seen),
            false => text::counted(count, "point"),
        };
        let more = format!(", {off} off");
        if off > 0 && name.len() + more.len() <= self.fit.width(Column::Name) {
            name += &more;
        }
        let scale = self.common.scale();
        let cells = self.fit.columns.iter().map(|column| {
            // The time of devices and of the wall clock is not CPU time.
            let is_of_cpus = matches!(column, Column::Excl | Column::Load);
            let counts = |row: &&Figures| !is_of_cpus || !row.point().device;
            let values = rows().filter(counts).filter_map(|row| column.value(row));
            match (column, column.kind()) {
                (Column::Name, _) => name.clone(),
                (other, _) if !other.spec().is_summed => String::new(),
                (_, kind) => match values.reduce(|sum, more| sum + more) {
                    // No sum if there is nothing to add up.
                    None => units::NONE.into(),
                    Some(sum) if kind == Kind::Share => units::percent(sum),
                    Some(sum) if kind == Kind::Sum => scale.ticks(sum),
                    Some(sum) => units::si(sum),
                },
            }
        });
        Line::styled(self.fit.grid.line(cells), self.styles.theme.process)
    }

    fn trend(&self, figures: &Figures) -> String {
        let width = self.fit.width(Column::Trend);
        let loads: Vec<_> = figures.history().last(width).map(|sample| sample.load).collect();
        format!("{:>width$}", chart::trend(&loads, self.top, &self.styles.glyphs))
    }
}

/// Writes a text into an area, from this position on.
fn put(buffer: &mut Buffer, area: Rect, at: Position, text: &str, style: Style) {
    let room = usize::from(area.right().saturating_sub(at.x));
    if text::is_plain(text) {
        // ASCII needs no search for grapheme clusters.
        for (x, byte) in (at.x..).zip(text.bytes().take(room)) {
            buffer[(x, at.y)].set_char(char::from(byte)).set_style(style);
        }
    } else {
        buffer.set_stringn(at.x, at.y, text, room, style);
    }
}
