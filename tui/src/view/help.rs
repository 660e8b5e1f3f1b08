//! The help: every key and what it does, from the table that dispatches them.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{Look, draw_scrolled};
use crate::app::keys::BINDINGS;
use crate::text;

/// Columns for the names of the keys.
const KEYS: usize = 18;

pub(super) fn draw(frame: &mut Frame, area: Rect, offset: usize, look: &Look) {
    let heading = Line::styled(" Keys", look.theme.process);
    draw_scrolled(frame, area, heading, lines(look), offset);
}

pub(super) fn lines(look: &Look) -> Vec<Line<'static>> {
    let names = |keys: &[crate::app::keys::Key]| {
        keys.iter()
            .map(|key| key.name())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let bindings = BINDINGS.iter().map(|binding| {
        let keys = text::fit(&names(binding.keys), KEYS, look.glyphs.ellipsis);
        Line::from(vec![
            Span::raw(" "),
            Span::styled(keys, look.theme.key),
            Span::raw(" "),
            Span::raw(binding.help),
        ])
    });
    let signs = [
        (look.glyphs.on, "the point measures"),
        (look.glyphs.off, "the point is off"),
        (
            look.glyphs.invalid,
            "the point is invalid (INVAL): begun twice without an end; e makes it valid",
        ),
    ];
    let signs = signs.into_iter().map(|(glyph, meaning)| {
        let glyph = text::fit(&glyph.to_string(), KEYS, look.glyphs.ellipsis);
        Line::from(vec![
            Span::raw(" "),
            Span::styled(glyph, look.theme.key),
            Span::raw(format!(" {meaning}")),
        ])
    });
    bindings
        .chain(std::iter::once(Line::default()))
        .chain(signs)
        .collect()
}
