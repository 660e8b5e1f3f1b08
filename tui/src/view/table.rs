//! The table of points.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::{Look, chart};
use crate::app::App;
use crate::columns::Column;
use crate::model::Figures;
use crate::snapshot::PointState;
use crate::text;
use crate::units::Scale;

/// Polls whose greatest load is the full height of a trend. More than the trend
/// shows, so that a load that fell stays low instead of filling its row again.
pub(super) const TREND_TOP: usize = 60;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let (columns, name_width) = Column::fitting(area.width.into());
    let table = Table { app, look, columns, name_width };
    frame.render_widget(table.heading(usize::from(area.width)), head);
    let seen = app.order.iter().skip(app.offset).take(body.height.into());
    let rows: Vec<Line> =
        seen.filter_map(|id| app.model.point(*id)).map(|figures| table.row(figures)).collect();
    if rows.is_empty() {
        let text = " no point yet: the program has not reached any";
        frame.render_widget(Line::styled(text, look.theme.faint), body);
    } else {
        frame.render_widget(Paragraph::new(rows), body);
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

    fn row(&self, figures: &Figures) -> Line<'static> {
        let theme = &self.look.theme;
        let selected = self.app.selected == Some(figures.id());
        let state = figures.state();
        let mut spans = Vec::new();
        for column in &self.columns {
            let (text, style) = match column {
                Column::On => (self.mark(state, selected), theme.header),
                Column::Trend => (self.trend(figures), theme.bar),
                Column::Name if figures.point().name.is_empty() => {
                    (column.text(figures, &self.scale()), theme.faint)
                }
                other => (other.text(figures, &self.scale()), theme.header),
            };
            spans.push(Span::styled(self.aligned(*column, &text), style));
            spans.push(Span::raw(" "));
        }
        let line = Line::from(spans);
        // One look for the whole row: the parts' own colours would break it.
        let style = match (selected, state) {
            (true, _) => theme.selected,
            (false, PointState::On) => return line,
            (false, PointState::Off) => theme.faint,
            (false, PointState::InvalidBeginBegin) => theme.warn,
        };
        let whole: String = line.spans.iter().map(|span| span.content.as_ref()).collect();
        Line::styled(whole, style)
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
