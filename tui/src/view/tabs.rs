//! The screens of a process, and which of them is on: a line above the last.
//!
//! ```text
//!  1 Points  2 Detail [3 Threads] 4 Timeline
//! ```
//!
//! A low screen needs its lines for figures; its first line tells instead.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::Look;
use crate::app::{App, Screen};

/// From this height on there is a line for them.
const HIGH: u16 = 16;

/// Whether there is a line for them on a screen of this height.
pub(super) fn has_room(app: &App, height: u16) -> bool {
    height >= HIGH && app.screen.tab().is_some()
}

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, look: &Look) {
    if area.is_empty() {
        return;
    }
    let tabs = |named: bool| {
        let spans = Screen::TABS.iter().enumerate().map(|(place, (screen, name))| {
            let number = place + 1;
            if *screen == app.screen {
                Span::styled(format!("[{number} {name}]"), look.theme.key)
            } else if named {
                Span::styled(format!(" {number} {name} "), look.theme.faint)
            } else {
                Span::styled(format!(" {number} "), look.theme.faint)
            }
        });
        Line::from_iter(spans)
    };
    let whole = tabs(true);
    let fits = whole.width() <= usize::from(area.width);
    frame.render_widget(if fits { whole } else { tabs(false) }, area);
}
