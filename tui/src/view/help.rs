//! The help: every key and what it does, from the table that dispatches them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Look, draw_scrolled};
use crate::app::keys::Binding;
use crate::app::{App, Screen};
use crate::text;

/// Columns for the names of keys.
const KEYS: usize = 12;
/// From this width on the keys stand in two columns.
const WIDE: usize = 100;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, offset: usize, look: &Look) {
    let name = app.screen.tab().map_or("", |tab| Screen::TABS[tab].name);
    let heading = Line::styled(format!(" Keys {name}").trim_end().to_owned(), look.theme.process);
    let lines = lines(app, look, area.width.into());
    draw_scrolled(frame, area, heading, lines, offset);
}

pub(super) fn lines(app: &App, look: &Look, width: usize) -> Vec<Line<'static>> {
    // First what works here alone or nearly so, then what works on most screens.
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
    let title = |text: &str| Line::styled(format!(" {text}"), look.theme.process);
    let column = if width >= WIDE { width / 2 } else { width };
    let entries = |is_common: bool| {
        keys(is_common).flat_map(|b| entry(&names(&b), b.help, column, look)).collect::<Vec<_>>()
    };
    let mut lines = entries(false);
    let common = entries(true);
    if !lines.is_empty() && !common.is_empty() {
        lines.extend([Line::default(), title("On all screens")]);
    }
    lines.extend(common);
    if width >= WIDE {
        lines = in_two_columns(lines, column);
    }
    let more = keys(false).chain(keys(true)).filter(|binding| !binding.more.is_empty());
    let more: Vec<_> = more.map(|binding| (names(&binding), binding.more)).collect();
    for (heading, list) in
        [("What stands there", app.view().legend(look)), ("More about keys", more)]
    {
        if !list.is_empty() {
            lines.extend([Line::default(), title(heading)]);
        }
        lines.extend(list.into_iter().flat_map(|(term, text)| entry(&term, text, width, look)));
    }
    lines
}

/// The second half of the lines beside the first.
fn in_two_columns(mut lines: Vec<Line<'static>>, column: usize) -> Vec<Line<'static>> {
    let mut right = lines.split_off(lines.len().div_ceil(2)).into_iter();
    for line in &mut lines {
        let Some(beside) = right.next() else { break };
        line.push_span(" ".repeat(column.saturating_sub(line.width())));
        line.extend(beside.spans);
    }
    lines
}

/// Keys at the left, words at the right, both broken where they do not fit.
fn entry(keys: &str, words: &str, width: usize, look: &Look) -> Vec<Line<'static>> {
    let keys = text::wrapped(keys, KEYS);
    let words = text::wrapped(words, width.saturating_sub(KEYS + 3).max(1));
    let line = |lines: &[String], row: usize| lines.get(row).cloned().unwrap_or_default();
    (0..keys.len().max(words.len()))
        .map(|row| {
            let keys = text::fit(&line(&keys, row), KEYS, look.glyphs.ellipsis);
            Line::from(vec![
                Span::raw(" "),
                Span::styled(keys, look.theme.key),
                Span::raw(" "),
                Span::raw(line(&words, row)),
            ])
        })
        .collect()
}
