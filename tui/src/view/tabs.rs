//! The line of tabs above the last line: the screens of a process, with the visible one marked.
//!
//! ```text
//!  1 Points  2 Detail [3 Threads] 4 Timeline
//! ```
//!
//! A low screen does not have this line; its first line has the name of the screen instead.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::common::{Screen, Tab};

/// Minimum height of a screen with this line.
const HIGH: u16 = 16;

/// Whether a screen of this height has the line.
pub(super) fn has_room(app: &App, height: u16) -> bool {
    height >= HIGH && app.screen.tab().is_some()
}

/// The screen whose name is at this column of the line.
pub(super) fn hit(app: &App, width: usize, column: usize) -> Option<Screen> {
    let all = names(app, true);
    let fits = all.iter().map(|name| name.chars().count()).sum::<usize>() <= width;
    let mut right = 0;
    let place = names(app, fits).iter().position(|name| {
        right += name.chars().count();
        column < right
    });
    place.map(|place| Screen::TABS[place].screen)
}

/// The text of each tab.
fn names(app: &App, named: bool) -> Vec<String> {
    let name = |tab: &Tab| {
        let (key, name) = (app.key_to(tab.screen), tab.name);
        match (tab.screen == app.screen, named) {
            (true, _) => format!("[{key} {name}]"),
            (false, true) => format!(" {key} {name} "),
            (false, false) => format!(" {key} "),
        }
    };
    Screen::TABS.iter().map(name).collect()
}

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let styles = &app.common.styles;
    if area.is_empty() {
        return;
    }
    let tabs = |named: bool| {
        let spans = names(app, named).into_iter().zip(Screen::TABS).map(|(name, tab)| {
            let is_on = tab.screen == app.screen;
            Span::styled(name, if is_on { styles.theme.key } else { styles.theme.faint })
        });
        Line::from_iter(spans)
    };
    let whole = tabs(true);
    let fits = whole.width() <= usize::from(area.width);
    frame.render_widget(if fits { whole } else { tabs(false) }, area);
}
