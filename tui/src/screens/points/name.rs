//! The cell of a point's name, with the parts that the filter finds.

use std::ops::Range;

use crate::screens::prelude::*;

/// A text, and the parts of it that the filter finds, in bytes.
pub(super) struct NameCell {
    pub(super) text: String,
    pub(super) found: Vec<Range<usize>>,
}

impl NameCell {
    /// A text that begins with the name of a point.
    pub(super) fn new(text: String, figures: &Figures, filter: &Filter) -> Self {
        let found = if filter.is_on() { filter.found_in(&figures.name()) } else { Vec::new() };
        Self { text, found }
    }

    /// Puts a text before the name.
    pub(super) fn prefix(&mut self, text: &str) {
        self.text.insert_str(0, text);
        for part in &mut self.found {
            *part = part.start + text.len()..part.end + text.len();
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
