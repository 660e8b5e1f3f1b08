//! The help: all keys with their actions, from the table that also dispatches them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::macros::line;
use ratatui::text::{Line, Span};

use crate::app::App;
use crate::common::keys::Binding;
use crate::common::{Action, Screen};
use crate::styles::{Styles, beside, draw_scrolled};
use pfp_read::text;

/// Width of the names of keys.
const KEYS: usize = 12;
/// Pairs of actions that share a line.
const TOGETHER: &[([Action; 2], &str)] = &[
    ([Action::Up, Action::Down], "one row up, down; in Detail the point above, below"),
    ([Action::PageUp, Action::PageDown], "one screen up, down"),
    ([Action::Top, Action::Bottom], "to the first row, the last"),
    ([Action::Faster, Action::Slower], "poll more often, less often"),
    ([Action::SortLeft, Action::SortRight], "sort by the column to the left, right"),
    ([Action::ScrollLeft, Action::ScrollRight], "scroll long names to the left, right"),
    ([Action::NextScreen, Action::PreviousScreen], "the next screen, the previous one"),
    ([Action::ToggleAll, Action::ResetAll], "switch, reset all points shown; asks first"),
    ([Action::Suspend, Action::Redraw], "suspend (fg resumes); redraw the screen"),
];
/// The use of the mouse.
const MOUSE: &str = "a click selects a row, and a second one opens it; on the mark of a point it \
                     switches the point, on a heading it sorts; the wheel scrolls; over the \
                     timeline and the load in Detail the wheel zooms, and a drag moves the time";
/// Minimum width for keys in two columns.
const WIDE: usize = 100;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, offset: usize) {
    let styles = &app.common.styles;
    let name = app.screen.tab().map_or("", |tab| Screen::TABS[tab].name);
    let heading = Line::styled(format!(" Keys {name}").trim_end().to_owned(), styles.theme.process);
    let lines = lines(app, area.width.into());
    draw_scrolled(frame, area, heading, lines, offset);
}

pub(super) fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let styles = &app.common.styles;
    // The screen's own keys come first, then the common ones.
    let fits = |binding: &Binding| {
        let is_of_use = app.common.replay.is_some() || !binding.is_of_recordings();
        is_of_use && !binding.keys.is_empty()
    };
    let keys = |is_common: bool| {
        let groups = app.view().keys().iter().copied().flatten();
        let groups = groups.filter(move |group| group.is_common == is_common);
        groups.flat_map(|group| group.bindings).map(|own| app.chosen(*own)).filter(fits)
    };
    let names =
        |binding: &Binding| binding.keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(" ");
    let title = |text: &str| Line::styled(format!(" {text}"), styles.theme.process);
    let column = if width >= WIDE { width / 2 } else { width };
    let entries = |is_common: bool| {
        let all: Vec<Binding> = keys(is_common).collect();
        let of = |action: Action| all.iter().find(|binding| binding.action == action);
        let shows = || all.iter().filter(|it| matches!(it.action, Action::Show(_)));
        let entries = all.iter().filter_map(|binding| match binding.action {
            Action::Show(_) if shows().next().map(|it| it.action) == Some(binding.action) => {
                let last = shows().next_back().map_or(String::new(), Binding::key_name);
                let others = shows().flat_map(|it| it.keys.iter().skip(1)).map(|key| key.name());
                let keys = [format!("{} .. {last}", binding.key_name())].into_iter().chain(others);
                Some((keys.collect::<Vec<_>>().join(" "), "the screens named below"))
            }
            Action::Show(_) => None,
            action => {
                let group = TOGETHER.iter().find(|(actions, _)| actions.contains(&action));
                match group.and_then(|([a, b], words)| Some((of(*a)?, of(*b)?, *words))) {
                    Some((_, b, _)) if b.action == action => None,
                    Some((a, b, words)) => {
                        let long = format!("{} {}", names(a), names(b));
                        let short = format!("{} {}", a.key_name(), b.key_name());
                        Some((if long.len() <= KEYS { long } else { short }, words))
                    }
                    None => Some((names(binding), binding.help)),
                }
            }
        });
        entries.flat_map(|(keys, words)| entry(&keys, words, column, styles)).collect::<Vec<_>>()
    };
    let mut lines = entries(false);
    let common = entries(true);
    if !lines.is_empty() && !common.is_empty() {
        lines.push(title("On all screens"));
    }
    lines.extend(common);
    if width >= WIDE {
        let right = lines.split_off(lines.len().div_ceil(2));
        lines = beside(lines, right, column);
    }
    let more = keys(false).chain(keys(true)).filter(|binding| !binding.more.is_empty());
    let mouse = app.common.options.mouse.then(|| ("Mouse".to_owned(), MOUSE));
    let more = more.map(|binding| (names(&binding), binding.more)).chain(mouse).collect();
    for (heading, list) in [("Legend", app.view().legend(styles)), ("More about keys", more)] {
        if !list.is_empty() {
            lines.push(title(heading));
        }
        lines.extend(list.into_iter().flat_map(|(term, text)| entry(&term, text, width, styles)));
    }
    lines
}

/// Keys on the left, text on the right, both wrapped if they do not fit.
fn entry(keys: &str, words: &str, width: usize, styles: &Styles) -> Vec<Line<'static>> {
    let keys = text::wrapped(keys, KEYS);
    let words = text::wrapped(words, width.saturating_sub(KEYS + 3));
    let line = |lines: &[String], row: usize| lines.get(row).cloned().unwrap_or_default();
    (0..keys.len().max(words.len()))
        .map(|row| {
            let keys = text::fit(&line(&keys, row), KEYS, styles.glyphs.ellipsis);
            line![" ", Span::styled(keys, styles.theme.key), " ", line(&words, row)]
        })
        .collect()
}
