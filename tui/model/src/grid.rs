//! Tables of aligned cells, for the screen and for text exports, and the scrolling of lists.

mod cells;
mod chosen;
pub mod table;

pub use self::cells::Grid;
pub use self::chosen::{Heading, Sorted, TableLayout};
pub use self::table::Kind;
pub use self::table::{CellContext, Fitted, Table, TableColumn, grid_of, table};

/// The scroll position of a list.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scroll {
    /// Number of rows scrolled out at the top.
    pub offset: usize,
}

impl Scroll {
    /// Scrolls row `place` of a list of `len` rows into view, if `rows` rows are visible. Returns
    /// whether the position changed.
    pub fn settle(&mut self, rows: usize, (place, len): (usize, usize)) -> bool {
        let offset = self.offset.min(len.saturating_sub(rows)).min(place);
        let offset = offset.max((place + 1).saturating_sub(rows));
        std::mem::replace(&mut self.offset, offset) != offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_is_scrolled_into_sight_and_no_further() {
        let mut scroll = Scroll::default();
        assert!(scroll.settle(5, (7, 20)));
        assert_eq!(scroll.offset, 3);
        assert!(!scroll.settle(5, (4, 20)));
        assert!(scroll.settle(5, (0, 2)));
        assert_eq!(scroll.offset, 0);
    }
}
