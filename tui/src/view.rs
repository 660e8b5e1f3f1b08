//! The screen, drawn from the app. Drawing changes nothing.
//!
//! ```text
//! header    pfp-top  my_app[4711]  up 00:12:31  8 thr  ...       LIVE
//! summary   CPU 131 % of 2 ██████▌░░░  parse 56.8 % ...   (above the table)
//! notice    lost: 7 ring records overwritten unread        (if any)
//! body      table | detail | threads | timeline | diff | log | roofline | picker | waiting | help
//! tabs      1 Points  2 Detail [3 Threads] 4 Timeline ...  (if there is room)
//! footer    Space pause  Enter open  ...  ? help  q quit
//! ```

mod chart;
mod chooser;
mod detail;
mod diff;
mod footer;
mod header;
mod help;
mod hit;
mod load;
mod log;
mod palette;
mod picker;
mod roofline;
mod summary;
mod table;
mod tabs;
mod theme;
mod threads;
mod timeline;
mod waiting;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

pub use hit::hit;
pub use palette::{Terminal, ThemeName};
pub use theme::{Glyphs, Look, Theme};

use crate::app::{App, Overlay, Room, Screen};

/// Draws the whole screen.
pub fn draw(frame: &mut Frame, app: &App, look: &Look) {
    let parts = Parts::of(app, frame.area());
    header::draw(frame, parts.header, app, look);
    summary::draw(frame, parts.summary, app, look);
    header::draw_notice(frame, parts.notice, app, look);
    match (&app.overlay, app.screen) {
        (Some(Overlay::Help(offset)), _) => help::draw(frame, parts.body, app, *offset, look),
        (_, Screen::Waiting) => waiting::draw(frame, parts.body, app),
        (_, Screen::Points) => table::draw(frame, parts.body, app, look),
        (_, Screen::Detail) => detail::draw(frame, parts.body, app, look),
        (_, Screen::Threads) => threads::draw(frame, parts.body, app, look),
        (_, Screen::Timeline) => timeline::draw(frame, parts.body, app, look),
        (_, Screen::Picker) => picker::draw(frame, parts.body, app, look),
        (_, Screen::Diff) => diff::draw(frame, parts.body, app, look),
        (_, Screen::Log) => log::draw(frame, parts.body, app, look),
        (_, Screen::Roofline) => roofline::draw(frame, parts.body, app, look),
    }
    tabs::draw(frame, parts.tabs, app, look);
    if let Some(overlay) = &app.overlay {
        chooser::draw(frame, parts.body, app, overlay, look);
    }
    footer::draw(frame, parts.footer, app, look);
}

/// What a screen of this size has room for.
pub fn room(app: &App, look: &Look, area: Rect) -> Room {
    let body = Parts::of(app, area).body;
    let rows = match (&app.overlay, app.screen) {
        (None, Screen::Timeline) => timeline::rows(body),
        (None, Screen::Threads) => threads::rows(app, body),
        (None, Screen::Roofline) => roofline::rows(app, body),
        (None, Screen::Diff) => body.height.saturating_sub(diff::HEAD),
        (None, Screen::Log) => log::rows(app, body, look).0 as u16,
        (_, Screen::Points) => body.height.saturating_sub(1 + table::totals(app, body)),
        // The first line of the body is a heading.
        _ => body.height.saturating_sub(1),
    };
    let mut load = None;
    let lines = match (&app.overlay, app.screen) {
        (Some(Overlay::Help(_)), _) => help::lines(app, look, usize::from(body.width)).len(),
        (_, Screen::Detail) => {
            let text = detail::Text::of(app, look, body.as_size());
            load = Some(text.load);
            text.lines.len()
        }
        (_, Screen::Threads) => threads::lines(app, body),
        (None, Screen::Log) => usize::from(rows) + log::rows(app, body, look).1,
        _ => 0,
    };
    Room { rows: rows.into(), lines, load }
}

/// Where each part of the screen goes.
struct Parts {
    header: Rect,
    summary: Rect,
    notice: Rect,
    body: Rect,
    tabs: Rect,
    footer: Rect,
}

impl Parts {
    fn of(app: &App, area: Rect) -> Self {
        let notice = u16::from(header::notice(app).is_some());
        let tabs = u16::from(tabs::has_room(app, area.height));
        let summary = u16::from(summary::has_room(app, area.height));
        let [header, summary, notice, body, tabs, footer] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(summary),
            Constraint::Length(notice),
            Constraint::Fill(1),
            Constraint::Length(tabs),
            Constraint::Length(1),
        ])
        .areas(area);
        Self { header, summary, notice, body, tabs, footer }
    }
}

/// A heading that stays, and lines below it that scroll. The heading tells at
/// its right which lines are seen when not all are.
fn draw_scrolled(
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

#[cfg(test)]
mod tests;
