//! What all screens draw with: colours, signs, small charts, and a list that scrolls below its
//! heading.

pub(crate) mod chart;
mod colors;
mod palette;
mod theme;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use crate::grid::{Grid, Sorted};
use crate::text;

pub use colors::ChosenColors;
pub use palette::{Terminal, ThemeName};
pub use theme::{Glyphs, Styles, Theme};

/// Draws a heading that stays and lines below it that scroll. If not all lines fit, the heading
/// shows at its right which ones are visible.
pub(crate) fn draw_scrolled(
    frame: &mut Frame,
    area: Rect,
    heading: Line<'_>,
    lines: Vec<Line<'_>>,
    offset: usize,
) {
    let [head, body] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let rows = usize::from(body.height);
    let seen_to = offset.saturating_add(rows).min(lines.len());
    let place = format!(" {}-{seen_to}/{} PgDn", offset.saturating_add(1), lines.len());
    frame.render_widget(heading, head);
    if lines.len() > rows {
        frame.render_widget(Line::from(place).right_aligned(), head);
    }
    let seen: Vec<Line> = lines.into_iter().skip(offset).take(rows).collect();
    frame.render_widget(Paragraph::new(seen), body);
}

/// Wraps a text into lines of this style.
pub(crate) fn wrapped(text: &str, width: usize, style: Style) -> Vec<Line<'static>> {
    text::wrapped(text, width).into_iter().map(|line| Line::styled(line, style)).collect()
}

impl Grid {
    /// The row of the titles over the whole width, with a sign at the column that rows are sorted
    /// by.
    pub fn heading(&self, sorted: Option<Sorted>, width: usize, styles: &Styles) -> Line<'static> {
        let theme = &styles.theme;
        let mut spans = Vec::new();
        let mut left = width;
        let mut push = |text: String, style| {
            // An ellipsis shows that something is cut.
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
