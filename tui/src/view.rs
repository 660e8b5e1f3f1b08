//! The screen, drawn from the app. Drawing changes nothing.
//!
//! ```text
//! header    pfp-top  my_app[4711]  up 00:12:31  8 threads  ...   LIVE
//! summary   CPU 131 % of 2 ██████▌░░░  parse 56.8 % ...   (above the table)
//! notice    node2 DOWN 40 s (the cable is out); lost: 7 ring records overwritten unread (if any)
//! body      table | detail | threads | timeline | diff | log | roofline | picker | waiting | help
//! tabs      1 Points  2 Detail [3 Threads] 4 Timeline ...  (if there is room)
//! footer    Space pause  Enter open  ...  ? help  q quit
//! ```

mod chooser;
mod footer;
mod header;
mod help;
mod hit;
mod parts;
mod sequences;
mod summary;
mod tabs;

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Borders};

pub use hit::hit;

use crate::app::App;
use crate::common::Overlay;
use parts::Parts;

/// Draws the whole screen.
pub fn draw(frame: &mut Frame, app: &App) {
    let parts = Parts::of(app, frame.area());
    header::draw(frame, parts.header, app);
    summary::draw(frame, parts.summary, app);
    header::draw_notice(frame, parts.notice, app);
    // Screens need not handle an empty body.
    if !parts.body.is_empty() {
        match &app.overlay {
            Some(Overlay::Help(offset)) => help::draw(frame, parts.body, app, *offset),
            _ => app.view().draw(frame, parts.body, &app.common),
        }
        if !parts.beside.is_empty() {
            draw_beside(frame, parts.beside, app);
        }
        if let Some(overlay) = &app.overlay {
            chooser::draw(frame, parts.body, app, overlay);
        }
    }
    tabs::draw(frame, parts.tabs, app);
    footer::draw(frame, parts.footer, app);
    sequences::simplify(frame.buffer_mut());
}

/// Draws the selected point in full, with a line that divides it from the table.
fn draw_beside(frame: &mut Frame, area: Rect, app: &App) {
    let styles = &app.common.styles;
    let block = Block::new()
        .borders(Borders::LEFT)
        .border_set(styles.border())
        .border_style(styles.theme.faint);
    let inner = block.inner(area);
    frame.render_widget(block, area);
    app.screens.detail.draw_beside(frame, inner, &app.common);
}

/// Updates the app with the time and the size of the terminal. Returns whether anything on the
/// screen changed.
pub fn settle(app: &mut App, area: Rect, now: Instant) -> bool {
    let has_expired = app.expire(now);
    let body = Parts::of(app, area).body;
    let help_lines = match &app.overlay {
        Some(Overlay::Help(_)) => help::lines(app, body.width.into()).len(),
        _ => 0,
    };
    app.fit(body, help_lines) || has_expired
}

#[cfg(test)]
mod tests;
