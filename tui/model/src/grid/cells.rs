//! Aligned cells: width and alignment of each column, and how a row is assembled.

use std::borrow::Cow;

use pfp_read::text;

/// One column of a grid.
#[derive(Clone, Debug)]
pub struct Slot {
    pub title: Cow<'static, str>,
    pub width: usize,
    is_left: bool,
    /// Whether long cells are cut at their end. Names often differ at their ends, so they are cut
    /// in the middle.
    is_text: bool,
    /// The column's key, by which a click on the title finds the column; empty if the column has no
    /// key.
    pub key: &'static str,
}

/// The columns of a table, separated by a blank.
#[derive(Clone, Debug)]
pub struct Grid {
    /// The columns from left to right, with their widths.
    pub slots: Vec<Slot>,
    /// The sign for cut text.
    pub ellipsis: char,
}

impl Grid {
    /// A table without columns yet.
    pub fn new(ellipsis: char) -> Self {
        Self { slots: Vec::new(), ellipsis }
    }

    fn with(mut self, title: Cow<'static, str>, width: usize, is_left: bool) -> Self {
        self.slots.push(Slot { title, width, is_left, is_text: false, key: "" });
        self
    }

    /// Adds a column whose cells are left-aligned, and cut if too long.
    pub fn left(self, title: impl Into<Cow<'static, str>>, width: usize) -> Self {
        self.with(title.into(), width, true)
    }

    /// Adds a column of figures, which are right-aligned.
    pub fn right(self, title: impl Into<Cow<'static, str>>, width: usize) -> Self {
        self.with(title.into(), width, false)
    }

    /// Sets whether long cells of the last column are cut at their end.
    pub(super) fn cuts_end(mut self, is_text: bool) -> Self {
        if let Some(slot) = self.slots.last_mut() {
            slot.is_text = is_text;
        }
        self
    }

    /// Gives the last column a key, so that a click on its title can sort.
    pub fn sorts(mut self, key: &'static str) -> Self {
        if let Some(slot) = self.slots.last_mut() {
            slot.key = key;
        }
        self
    }

    /// The content in the width of a column, cut or filled with blanks.
    pub fn aligned(&self, slot: &Slot, content: &str) -> String {
        if slot.is_left && slot.is_text {
            return text::fit(content, slot.width, self.ellipsis);
        }
        if slot.is_left {
            let cut = text::cut_middle(content, slot.width, self.ellipsis);
            return text::fit(&cut, slot.width, self.ellipsis);
        }
        let missing = slot.width.saturating_sub(text::width(content));
        " ".repeat(missing) + content
    }

    /// The cells, aligned.
    pub fn cells<S: AsRef<str>>(&self, cells: impl IntoIterator<Item = S>) -> Vec<String> {
        let cells = self.slots.iter().zip(cells);
        cells.map(|(slot, content)| self.aligned(slot, content.as_ref())).collect()
    }

    /// The cells, aligned and joined to a row.
    pub fn line<S: AsRef<str>>(&self, cells: impl IntoIterator<Item = S>) -> String {
        self.cells(cells).join(" ")
    }

    /// The row of the titles.
    pub fn titles(&self) -> String {
        self.line(self.slots.iter().map(|slot| &slot.title))
    }

    /// Key of the column that the user clicked on. `place` is the distance from the left edge of
    /// the table, in characters.
    pub fn key_at(&self, place: usize) -> Option<&'static str> {
        let mut right = 0;
        let slot = self.slots.iter().find(|slot| {
            // Includes the blank to the right of the column.
            right += slot.width + 1;
            place < right
        });
        slot.map(|slot| slot.key).filter(|key| !key.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_end_at_the_right_and_names_keep_their_end() {
        let grid = Grid::new('~').left("Name", 5).right("Count", 6).right("", 3).sorts("x");
        assert_eq!(grid.titles(), "Name   Count    ");
        assert_eq!(grid.line(["abcdefg", "12", "5"]), "ab~fg     12   5");
        assert_eq!(grid.line(["a", "1234567", "5"]), "a     1234567   5", "figures are never cut");
        assert_eq!(
            [0, 12, 13, 15, 17].map(|at| grid.key_at(at)),
            [None, None, Some("x"), Some("x"), None]
        );
    }
}
