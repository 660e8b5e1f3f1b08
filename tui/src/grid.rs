//! Tables of aligned cells, and where lists are scrolled to. Every table of the screen and the
//! one in text is one.

mod cells;
mod chosen;
pub(crate) mod table;

pub use self::cells::Grid;
pub use self::chosen::{Chosen, Heading, Sorted};
pub use self::table::Kind;
pub(crate) use self::table::{Column, Table, Written, fitting, grid_of, table};

/// Where a list is scrolled to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scroll {
    /// Rows scrolled out at the top.
    pub offset: usize,
}

impl Scroll {
    /// Scrolls so that the cursor's row is in sight among `rows`; returns whether it had to.
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
