//! A text with the name of a point, and the parts of the name that a filter finds.

use std::ops::Range;

use ratatui::buffer::Buffer;

use crate::screens::prelude::*;

/// A text, and the parts of it that the filter finds, in bytes.
pub(super) struct NameCell {
    pub(super) text: String,
    found: Vec<Range<usize>>,
}

impl NameCell {
    /// A text that begins with the name of a point.
    pub(super) fn new(text: String, name: &str, filter: &Filter) -> Self {
        let found = if filter.is_on() { filter.found_in(name) } else { Vec::new() };
        Self { text, found }
    }

    /// A text without the name of a point.
    pub(super) const fn without(text: String) -> Self {
        Self { text, found: Vec::new() }
    }

    /// Puts a text before the name.
    pub(super) fn prefix(&mut self, text: &str) {
        self.text.insert_str(0, text);
        for part in &mut self.found {
            *part = part.start + text.len()..part.end + text.len();
        }
    }

    /// Cuts the end of the text as [`text::cut`] does.
    pub(super) fn cut_end(&mut self, columns: usize, ellipsis: char) {
        if text::width(&self.text) <= columns {
            return;
        }
        self.text = text::cut(&self.text, columns, ellipsis);
        let kept = self.text.strip_suffix(ellipsis).unwrap_or_default().len();
        self.found.iter_mut().for_each(|part| part.end = part.end.min(kept));
        self.found.retain(|part| part.start < part.end);
    }

    /// Keeps the first few visible ASCII characters of the text, without an ellipsis.
    pub(super) fn cut_to_initials(&mut self, columns: usize) {
        let letters = self.text.char_indices().filter(|(_, c)| c.is_ascii_graphic());
        let kept: Vec<(usize, char)> = letters.take(columns).collect();
        let is_found = |byte| self.found.iter().any(|part| part.contains(&byte));
        let found = kept.iter().enumerate().filter(|(_, (byte, _))| is_found(*byte));
        let found = found.map(|(place, _)| place..place + 1).collect();
        self.text = kept.iter().map(|(_, letter)| letter).collect();
        self.found = found;
    }

    /// Adds a style to the parts that the filter finds, after the text was drawn at a position.
    pub(super) fn mark(&self, buffer: &mut Buffer, area: Rect, at: Position, style: Style) {
        for part in &self.found {
            let parts = self.text.get(..part.start).zip(self.text.get(part.clone()));
            let Some((before, part)) = parts else { continue };
            let x = at.x.saturating_add(text::width(before) as u16);
            let part = Rect::new(x, at.y, text::width(part) as u16, 1);
            buffer.set_style(part.intersection(area), style);
        }
    }

    /// Cuts the text as [`text::scrolled`] does.
    pub(super) fn cut(&mut self, columns: usize, offset: usize, ellipsis: char) {
        if text::width(&self.text) <= columns {
            return;
        }
        let (left, right) = text::seen(&self.text, columns, offset);
        self.text = text::scrolled(&self.text, columns, offset, ellipsis);
        let before = if left.start > 0 { ellipsis.len_utf8() } else { 0 };
        let shown = [(before, left), (self.text.len() - right.len(), right)];
        let seen_of = |part: Range<usize>| {
            shown.clone().map(|(place, seen)| {
                let moved = |byte: usize| byte.clamp(seen.start, seen.end) - seen.start + place;
                moved(part.start)..moved(part.end)
            })
        };
        let found = std::mem::take(&mut self.found).into_iter().flat_map(seen_of);
        self.found = found.filter(|part| !part.is_empty()).collect();
    }
}
