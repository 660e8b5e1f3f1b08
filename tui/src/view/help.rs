//! The help: every key and what it does, from the table that dispatches them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Look, draw_scrolled};
use crate::app::keys::Binding;
use crate::app::{App, Screen};
use crate::text;

/// Columns for the names of the keys, and for those of a narrow screen.
const KEYS: usize = 19;
const KEYS_NARROW: usize = 12;
/// From this width on the keys get their full room.
const WIDE: usize = 60;

pub(super) fn draw(frame: &mut Frame, area: Rect, app: &App, offset: usize, look: &Look) {
    let name = app.screen.tab().map_or("", |tab| Screen::TABS[tab].name);
    let heading = Line::styled(format!(" Keys {name}").trim_end().to_owned(), look.theme.process);
    let lines = lines(app, look, area.width.into());
    draw_scrolled(frame, area, heading, lines, offset);
}

pub(super) fn lines(app: &App, look: &Look, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line> = Vec::new();
    // First what works here alone or nearly so, then what works on most screens.
    let fits = |binding: &&Binding| app.common.replay.is_some() || !binding.is_of_recordings();
    let keys = |is_common: bool| {
        let groups = app
            .view()
            .keys()
            .iter()
            .copied()
            .flatten()
            .filter(move |group| group.is_common == is_common);
        groups.flat_map(|group| group.bindings).filter(fits)
    };
    let mut list = |title: &str, bindings: &mut dyn Iterator<Item = &'static Binding>| {
        let found: Vec<&Binding> = bindings.collect();
        if !title.is_empty() && !found.is_empty() {
            lines.push(Line::default());
            lines.push(Line::styled(format!(" {title}"), look.theme.process));
        }
        for binding in found {
            let names: Vec<String> = binding.keys.iter().map(|key| key.name()).collect();
            lines.extend(entry(&names.join(" "), binding.help, width, look));
        }
    };
    list("", &mut keys(false));
    list("On all screens", &mut keys(true));
    let legend = app.view().legend(look);
    if !legend.is_empty() {
        lines.push(Line::default());
        lines.push(Line::styled(" What stands there", look.theme.process));
    }
    for (term, meaning) in legend {
        lines.extend(entry(&term, meaning, width, look));
    }
    lines
}

/// Keys at the left, words at the right, both broken where they do not fit.
fn entry(keys: &str, words: &str, width: usize, look: &Look) -> Vec<Line<'static>> {
    let room = if width >= WIDE { KEYS } else { KEYS_NARROW };
    let keys = text::wrapped(keys, room);
    let words = text::wrapped(words, width.saturating_sub(room + 2).max(1));
    let line = |lines: &[String], row: usize| lines.get(row).cloned().unwrap_or_default();
    (0..keys.len().max(words.len()))
        .map(|row| {
            let keys = text::fit(&line(&keys, row), room, look.glyphs.ellipsis);
            Line::from(vec![
                Span::raw(" "),
                Span::styled(keys, look.theme.key),
                Span::raw(" "),
                Span::raw(line(&words, row)),
            ])
        })
        .collect()
}
