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
    let mut right = 0;
    let place = names(app, width).iter().position(|name| {
        right += name.chars().count();
        column < right
    });
    place.map(|place| Screen::TABS[place].screen)
}

/// The text of each tab: with its name and blanks around it, with fewer blanks, or without its
/// name, as the width permits.
fn names(app: &App, width: usize) -> Vec<String> {
    let forms: [fn(&str, &str) -> String; 4] = [
        |key, name| format!(" {key} {name} "),
        |key, name| format!(" {key} {name}"),
        |key, name| format!(" {key}{name}"),
        |key, _| format!(" {key} "),
    ];
    let names = |form: fn(&str, &str) -> String| -> Vec<String> {
        let name = |tab: &Tab| {
            let (key, name) = (app.key_to(tab.screen), tab.name);
            if tab.screen == app.screen { format!("[{key} {name}]") } else { form(&key, name) }
        };
        Screen::TABS.iter().map(name).collect()
    };
    let fits =
        |names: &Vec<String>| names.iter().map(|name| name.chars().count()).sum::<usize>() <= width;
    let [fitting @ .., shortest] = forms;
    fitting.into_iter().map(names).find(fits).unwrap_or_else(|| names(shortest))
}

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App) {
    let styles = &app.common.styles;
    if area.is_empty() {
        return;
    }
    let names = names(app, area.width.into()).into_iter();
    let spans = names.zip(Screen::TABS).map(|(name, tab)| {
        let is_on = tab.screen == app.screen;
        Span::styled(name, if is_on { styles.theme.key } else { styles.theme.faint })
    });
    frame.render_widget(Line::from_iter(spans), area);
}
