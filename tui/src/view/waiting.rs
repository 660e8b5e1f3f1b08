//! The screen while there is no process to watch: why not, and what to do.

use ratatui::Frame;
use ratatui::layout::{Margin, Rect};
use ratatui::text::Line;
use ratatui::widgets::{Paragraph, Wrap};

use crate::app::App;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let waiting = if app.common.discovery.instead.is_some() { "" } else { "waiting, " };
    // Where others are there, it is not true that there is none.
    let others = !app.common.discovery.candidates.is_empty() && !app.common.wanted().is_any();
    let mut lines = if others {
        let why = app.common.discovery.why_none(app.common.wanted());
        vec![Line::from(format!("{why}; {waiting}q quits"))]
    } else {
        vec![Line::from(format!("{}; {waiting}q quits", app.common.discovery.nothing_found()))]
    };
    if !app.common.wanted().is_any() && !others {
        let (wanted, why) =
            (app.common.wanted().describe(), app.common.discovery.why_none(app.common.wanted()));
        lines.push(Line::default());
        lines.push(Line::from(format!("Asked for {wanted}: {why}")));
    }
    lines.push(Line::default());
    lines.push(Line::from("`pfp-top demo` shows a program made to be watched."));
    let text = Paragraph::new(lines).wrap(Wrap { trim: true });
    let margin = Margin::new(2, u16::from(area.height > 8));
    frame.render_widget(text, area.inner(margin));
}
