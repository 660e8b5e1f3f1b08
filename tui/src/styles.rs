//! Drawing for all screens: colours, signs, small charts, and a list that scrolls below its
//! heading.

pub(crate) mod chart;
mod colors;
mod palette;
mod theme;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::macros::vertical;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use pfp_model::grid::{CellContext, Fitted, Grid, Kind, Sorted, TableLayout};
use pfp_read::text;

pub use colors::ChosenColors;
pub use palette::{Terminal, ThemeName};
pub use theme::{Glyphs, Styles, Theme};

/// Draws a fixed heading and lines below it that scroll. If not all lines fit, the right end of the
/// heading shows which lines are visible.
pub(crate) fn draw_scrolled(
    frame: &mut Frame,
    area: Rect,
    heading: Line<'_>,
    lines: Vec<Line<'_>>,
    offset: usize,
) {
    let [head, body] = vertical![==1, *=1].areas(area);
    let rows = usize::from(body.height);
    let seen_to = offset.saturating_add(rows).min(lines.len());
    let place = format!(" {}-{seen_to}/{} PgDn", offset.saturating_add(1), lines.len());
    frame.render_widget(heading, head);
    if rows > 0 && lines.len() > rows {
        frame.render_widget(Line::from(place).right_aligned(), head);
    }
    let seen: Vec<Line> = lines.into_iter().skip(offset).take(rows).collect();
    frame.render_widget(Paragraph::new(seen), body);
}

/// Joins two blocks of lines side by side; the second one begins at `column`.
pub(crate) fn beside(
    mut left: Vec<Line<'static>>,
    right: Vec<Line<'static>>,
    column: usize,
) -> Vec<Line<'static>> {
    left.resize(left.len().max(right.len()), Line::default());
    for (line, right) in left.iter_mut().zip(right) {
        line.push_span(" ".repeat(column.saturating_sub(line.width())));
        line.extend(right.spans);
    }
    left
}

/// Wraps a text into lines of this style.
pub(crate) fn wrapped(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    text::wrapped(text, width).into_iter().map(|line| Line::styled(line, style)).collect()
}

/// Draws the rows of a table.
pub(crate) trait DrawRows<R, C> {
    /// The row of the titles, with a sign at the column by which rows are sorted.
    fn heading(&self, chosen: &TableLayout, styles: &Styles) -> Line<'static>;
    /// The aligned cells of a row, its mark first. A [`Kind::Picture`] is drawn as a bar.
    fn cells(&self, mark: String, row: &R, with: &C, styles: &Styles) -> Vec<String>;
    /// A row over the whole width.
    fn line(&self, mark: String, row: &R, with: &C, styles: &Styles) -> String;
}

impl<R, C: CellContext> DrawRows<R, C> for Fitted<R, C> {
    fn heading(&self, chosen: &TableLayout, styles: &Styles) -> Line<'static> {
        self.grid.heading(Some(chosen.sorted()), self.width, styles)
    }

    fn cells(&self, mark: String, row: &R, with: &C, styles: &Styles) -> Vec<String> {
        let cells = self.columns.iter().zip(&self.grid.slots[1..]).map(|(column, slot)| {
            let share = || column.value(row, with).unwrap_or(0.0);
            match column.kind {
                Kind::Picture => {
                    chart::bar(share(), slot.width.min(column.width.1), &styles.glyphs)
                }
                _ => column.cell(row, with),
            }
        });
        self.grid.cells(std::iter::once(mark).chain(cells))
    }

    fn line(&self, mark: String, row: &R, with: &C, styles: &Styles) -> String {
        let line = self.cells(mark, row, with, styles).join(" ");
        text::fit(&line, self.width, styles.glyphs.ellipsis)
    }
}

/// Draws the heading of a grid.
pub(crate) trait DrawHeading {
    /// The row of the titles over the whole width, with a sign at the column by which rows are
    /// sorted.
    fn heading(&self, sorted: Option<Sorted>, width: usize, styles: &Styles) -> Line<'static>;
}

impl DrawHeading for Grid {
    fn heading(&self, sorted: Option<Sorted>, width: usize, styles: &Styles) -> Line<'static> {
        let theme = &styles.theme;
        let mut spans = Vec::new();
        let mut left = width;
        let mut push = |text: String, style| {
            // Without room, an ellipsis shows that the text is cut.
            let text = text::cut(&text, left, self.ellipsis);
            left -= text::width(&text).min(left);
            spans.push(Span::styled(text, style));
        };
        for slot in &self.slots {
            let sorted = sorted.filter(|sorted| sorted.key == slot.key && !slot.key.is_empty());
            let (title, style) = match sorted {
                None => (slot.title.to_string(), theme.heading),
                Some(Sorted { descending: true, .. }) => {
                    (format!("{}{}", slot.title, styles.glyphs.down), theme.sorted)
                }
                Some(_) => (format!("{}{}", slot.title, styles.glyphs.up), theme.sorted),
            };
            push(self.aligned(slot, &title), style);
            push(" ".into(), theme.heading);
        }
        spans.push(Span::styled(" ".repeat(left), theme.heading));
        Line::from(spans)
    }
}
