//! Declared tables: lists of columns, each with all its properties. The kind of a column decides
//! how its cells are written, filtered, exported, sorted and summed.

use std::cmp::Ordering;

use super::cells::Grid;
use super::chosen::{Heading, Sorted, TableLayout};
use pfp_read::source::Discovery;
use pfp_read::text;
use pfp_read::units::{self, NONE, Scale, Unit};

/// The kind of a column's cells, and so how they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// A picture, for the screen only.
    Picture,
    /// A share, written in per cent.
    Share,
    /// The time of one measurement, in ticks.
    Time,
    /// A sum of such times, in ticks.
    Sum,
    /// A count of events.
    Count,
    /// A number that is written in full.
    Whole,
    /// A rate or a ratio.
    Rate,
    /// A probability.
    Odds,
    /// The change of a share, in percentage points.
    Points,
    /// A relative change.
    Change,
}

impl Kind {
    /// A figure of this kind in words.
    pub fn written(self, value: Option<f64>, scale: &Scale) -> String {
        let Some(value) = value.filter(|_| self != Self::Picture) else {
            return if self == Self::Picture { "" } else { NONE }.into();
        };
        match self {
            Self::Text | Self::Picture => String::new(),
            Self::Share => units::percent(value),
            Self::Time => scale.single(value),
            Self::Sum => scale.ticks(value),
            Self::Count => units::count(value as u64),
            Self::Whole => value.to_string(),
            Self::Rate => units::si(value),
            Self::Odds => format!("{value:.2}"),
            Self::Points => units::points(value),
            Self::Change => units::change(value),
        }
    }

    /// The value to sort by: changes by their absolute value; a missing figure is less than all
    /// others.
    fn order(self, value: Option<f64>) -> f64 {
        let size = |value: f64| match self {
            Self::Points | Self::Change => value.abs(),
            _ => value,
        };
        value.map_or(f64::NEG_INFINITY, size)
    }
}

/// The context in which the cells of a table are written.
pub trait CellContext {
    /// The scale of ticks; without ticks, times are seconds.
    fn scale(&self) -> Scale {
        Scale { ticks_per_second: 1.0, unit: Unit::Time }
    }
}

impl CellContext for Scale {
    fn scale(&self) -> Scale {
        *self
    }
}

/// A table of processes has no ticks.
impl CellContext for Discovery {}

/// Declares the columns of a table: key, title, width, kind with the figure of a row (or its words,
/// for [`Kind::Text`]), further properties, and a description.
#[macro_export]
macro_rules! table {
    (
        $row:ty, $with:ty;
        $($key:expr, $title:expr, $width:expr, $kind:ident($of:expr)
            $(.$more:ident($($argument:expr),*))*, $meaning:expr;)*
    ) => {
        $crate::grid::table::Table(&[$(
            $crate::table!(@column $row, $with; $key, $title, $width, $kind, $of, $meaning)
                $(.$more($($argument),*))*,
        )*])
    };
    (@column $row:ty, $with:ty; $key:expr, $title:expr, $width:expr, Text, $of:expr, $meaning:expr) => {
        $crate::grid::table::TableColumn::<$row, $with>::words($key, $title, $width, $of, $meaning)
    };
    (@column $row:ty, $with:ty; $key:expr, $title:expr, $width:expr, $kind:ident, $of:expr, $meaning:expr) => {{
        use $crate::grid::table::{Kind, TableColumn};
        TableColumn::<$row, $with>::new($key, $title, $width, Kind::$kind, $of, $meaning)
    }};
}
pub use crate::table;

/// A column of a table with rows of type `R`. Its cells are written with the context `C`.
pub struct TableColumn<R: 'static, C: 'static> {
    /// The column's heading.
    pub heading: Heading,
    /// The kind of the column's figures.
    pub kind: Kind,
    /// The column's minimum and maximum width on the screen, with room for the sorting mark.
    pub width: (usize, usize),
    /// Whether the column's cells are aligned at the left.
    pub is_left: bool,
    /// Whether long cells are cut at their end.
    cuts_end: bool,
    /// Rank: on a narrow screen, columns with the greatest rank are dropped first.
    rank: u8,
    is_usual: bool,
    /// The column's name in CSV and JSON, without the unit of times.
    pub exported: &'static str,
    /// Whether the sum of all rows makes sense.
    pub is_summed: bool,
    value: fn(&R, &C) -> Option<f64>,
    /// The text of a cell, if the kind does not define it.
    text: Option<fn(&R, &C) -> String>,
    /// The order of rows, if it is not by figures or words.
    order: Option<fn(&R, &R) -> Ordering>,
}

/// Declares methods of a column that set some of its fields.
macro_rules! properties {
    ($(
        $(#[$doc:meta])*
        $name:ident($($with:ident: $type:ty)?) $($field:ident $(.$part:tt)? = $value:expr),+;
    )*) => {$(
        $(#[$doc])*
        pub const fn $name(mut self $(, $with: $type)?) -> Self {
            $(self.$field $(.$part)? = $value;)+
            self
        }
    )*};
}

impl<R, C: CellContext> TableColumn<R, C> {
    /// A column of figures, which are right-aligned. Sorting by it begins with the greatest.
    pub const fn new(
        key: &'static str,
        title: &'static str,
        width: usize,
        kind: Kind,
        value: fn(&R, &C) -> Option<f64>,
        meaning: &'static str,
    ) -> Self {
        let sorts = if matches!(kind, Kind::Picture) { None } else { Some(true) };
        let heading = Heading { key, title, meaning, stays: false, sorts };
        let (width, exported) = ((width, width), key);
        let (is_left, cuts_end, is_usual, is_summed) = (false, false, true, false);
        let (rank, text, order) = (u8::MAX, None, None);
        Self {
            heading,
            kind,
            width,
            is_left,
            cuts_end,
            rank,
            is_usual,
            exported,
            is_summed,
            value,
            text,
            order,
        }
    }

    /// A column of words, which are left-aligned. Sorting by it begins with the least.
    pub const fn words(
        key: &'static str,
        title: &'static str,
        width: usize,
        text: fn(&R, &C) -> String,
        meaning: &'static str,
    ) -> Self {
        Self::new(key, title, width, Kind::Text, |_, _| None, meaning)
            .text(text)
            .left(width)
            .least()
    }

    properties! {
        /// Aligns cells at the left, and lets the column grow to this width.
        left(most: usize) is_left = true, width.1 = most;
        /// Aligns cells at the right.
        right() is_left = false;
        /// Cuts long cells at their end, and not in the middle like names.
        cut() cuts_end = true;
        /// Makes the column a fixed one, which the user cannot remove.
        stays() heading.stays = true;
        /// Sets the rank: on a narrow screen, columns with the greatest rank are dropped first.
        rank(rank: u8) rank = rank;
        /// Leaves the column out of the table until the user adds it.
        spare() is_usual = false;
        /// Sets how cells are written.
        text(text: fn(&R, &C) -> String) text = Some(text);
        /// Sets how the column sorts rows, least first.
        order(order: fn(&R, &R) -> Ordering) order = Some(order), heading.sorts = Some(false);
        /// Makes sorting by the column begin with the least.
        least() heading.sorts = Some(false);
        /// Makes sorting by the column begin with the greatest.
        greatest() heading.sorts = Some(true);
        /// Makes rows not sortable by the column.
        unsorted() heading.sorts = None;
        /// Sets the column's name in CSV and JSON.
        exported(exported: &'static str) exported = exported;
        /// Marks that the sum of all rows makes sense.
        summed() is_summed = true;
    }

    /// The figure of a row: a share, ticks or a number.
    pub fn value(&self, row: &R, with: &C) -> Option<f64> {
        (self.value)(row, with)
    }

    /// The cell of a row; empty if the screen draws it.
    pub fn cell(&self, row: &R, with: &C) -> String {
        match self.text {
            Some(text) => text(row, with),
            None => self.kind.written(self.value(row, with), &with.scale()),
        }
    }

    /// Compares two rows by this column.
    pub fn compare(&self, a: &R, b: &R, with: &C) -> Ordering {
        match (self.order, self.kind) {
            (Some(order), _) => order(a, b),
            (None, Kind::Text) => self.cell(a, with).cmp(&self.cell(b, with)),
            (None, kind) => {
                let order = |row| kind.order(self.value(row, with));
                order(a).total_cmp(&order(b))
            }
        }
    }
}

/// A declared table: all its columns.
pub struct Table<R: 'static, C: 'static>(pub &'static [TableColumn<R, C>]);

impl<R, C: CellContext> Table<R, C> {
    /// The headings of all columns.
    pub fn headings(&self) -> Vec<Heading> {
        self.0.iter().map(|column| column.heading).collect()
    }

    /// The table's default layout, sorted by the column with this key.
    pub fn usual(&self, key: &'static str) -> TableLayout {
        let usual = self.0.iter().filter(|column| column.is_usual).map(|it| it.heading.key);
        TableLayout::new(&self.headings(), &usual.collect::<Vec<_>>(), key)
    }

    /// The column with this key.
    pub fn column(&self, key: &str) -> Option<&'static TableColumn<R, C>> {
        self.0.iter().find(|column| column.heading.key == key)
    }

    fn shown(&self, chosen: &TableLayout) -> Vec<&'static TableColumn<R, C>> {
        chosen.shown().into_iter().filter_map(|key| self.column(key)).collect()
    }

    /// The columns that fit into this width beside a mark. The mark is the first cell of each row,
    /// for the cursor; `mark` is the mark's width.
    pub fn fit(
        &self,
        chosen: &TableLayout,
        mark: impl Into<Option<usize>>,
        width: usize,
        ellipsis: char,
    ) -> Fitted<R, C> {
        self.fit_offered(chosen, |_| true, mark, width, ellipsis)
    }

    /// Like [`Self::fit`], with only the columns that have something to show.
    pub fn fit_offered(
        &self,
        chosen: &TableLayout,
        is_offered: impl Fn(&str) -> bool,
        mark: impl Into<Option<usize>>,
        width: usize,
        ellipsis: char,
    ) -> Fitted<R, C> {
        let mut shown = self.shown(chosen);
        shown.retain(|column| is_offered(column.heading.key));
        Fitted::new(shown, chosen.is_usual(), mark, (width, ellipsis), |column| column.width)
    }

    /// Sorts rows; equal ones keep their order.
    pub fn sort(&self, chosen: &TableLayout, rows: &mut [&R], with: &C) {
        let Sorted { key, descending } = chosen.sorted();
        if let Some(column) = self.column(key) {
            rows.sort_by(|a, b| match descending {
                true => column.compare(b, a, with),
                false => column.compare(a, b, with),
            });
        }
    }

    /// All columns of these rows as text, below their titles. The first column is as wide as its
    /// cells, but at most `most` characters.
    pub fn text(&self, rows: &[R], with: &C, most: usize) -> String {
        self.text_offered(rows, with, most, |_| true)
    }

    /// Like [`Self::text`], with only the columns that have something to show.
    pub fn text_offered(
        &self,
        rows: &[R],
        with: &C,
        most: usize,
        is_offered: impl Fn(&str) -> bool,
    ) -> String {
        let columns = || self.0.iter().filter(|column| is_offered(column.heading.key));
        let name = self.0.first().into_iter().flat_map(|column| {
            let title = text::width(column.heading.title);
            rows.iter().map(|row| text::width(&column.cell(row, with))).chain([title])
        });
        let name = name.max().unwrap_or(0).min(most);
        let widths = columns().map(|column| column.width.0);
        let widths = std::iter::once(name).chain(widths.skip(1));
        let grid = grid_of(columns().zip(widths), None, '~');
        let line = |row| grid.line(columns().map(|column| column.cell(row, with)));
        std::iter::once(grid.titles()).chain(rows.iter().map(line)).map(|it| it + "\n").collect()
    }

    /// A row as text, with the titles of its cells.
    pub fn row(&self, chosen: &TableLayout, row: &R, with: &C) -> String {
        let columns = self.shown(chosen).into_iter();
        let cells = columns.map(|it| (it.heading.title, it.cell(row, with)));
        // Pictures have no text.
        let cells = cells.filter(|(_, cell)| !cell.is_empty());
        cells.map(|(title, cell)| format!("{title} {cell}")).collect::<Vec<_>>().join("  ")
    }
}

/// The columns of a table that fit on the screen.
pub struct Fitted<R: 'static, C: 'static> {
    /// The columns that fit, from left to right.
    pub columns: Vec<&'static TableColumn<R, C>>,
    /// The grid; its first slot is the mark, if there is one.
    pub grid: Grid,
    /// Width of the table.
    pub width: usize,
}

impl<R, C> Fitted<R, C> {
    /// Chooses the columns that fit beside a mark of some width. If room is short, the columns with
    /// the greatest ranks are dropped; if the user has ordered the columns, the last ones are.
    /// Columns with the least ranks grow first.
    pub fn new(
        mut columns: Vec<&'static TableColumn<R, C>>,
        by_rank: bool,
        mark: impl Into<Option<usize>>,
        (width, ellipsis): (usize, char),
        widths: impl Fn(&TableColumn<R, C>) -> (usize, usize),
    ) -> Self {
        let mark = mark.into();
        let before = mark.map_or(0, |mark| mark + 1);
        let mut left = loop {
            let used = before + columns.iter().map(|it| widths(it).0 + 1).sum::<usize>();
            let ranks = columns.iter().filter(|it| !it.heading.stays).map(|it| it.rank);
            let (most, last) = (ranks.max(), columns.iter().rposition(|it| !it.heading.stays));
            // The last column is not followed by a blank.
            match ((width + 1).checked_sub(used), most, last) {
                (Some(left), ..) => break left,
                (None, Some(most), _) if by_rank => {
                    columns.retain(|it| it.heading.stays || it.rank != most);
                }
                (None, _, Some(last)) => drop(columns.remove(last)),
                (None, _, None) => break 0,
            }
        };
        let mut grown: Vec<usize> = columns.iter().map(|it| widths(it).0).collect();
        let mut places: Vec<usize> = (0..columns.len()).collect();
        places.sort_by_key(|place| columns[*place].rank);
        for place in places {
            let (least, most) = widths(columns[place]);
            let more = left.min(most.saturating_sub(least));
            grown[place] += more;
            left -= more;
        }
        if let (Some(width), Some(true)) = (grown.last_mut(), columns.last().map(|it| it.is_left)) {
            *width += left;
        }
        let grid = grid_of(columns.iter().copied().zip(grown), mark, ellipsis);
        Self { columns, grid, width }
    }
}

/// The grid of columns with these widths, beside a mark of some width.
pub fn grid_of<R: 'static, C: 'static>(
    columns: impl IntoIterator<Item = (&'static TableColumn<R, C>, usize)>,
    mark: impl Into<Option<usize>>,
    ellipsis: char,
) -> Grid {
    let grid = Grid::new(ellipsis);
    let grid = match mark.into() {
        Some(mark) => grid.left("", mark),
        None => grid,
    };
    columns.into_iter().fold(grid, |grid, (column, width)| {
        let title = column.heading.title;
        let grid = if column.is_left { grid.left(title, width) } else { grid.right(title, width) };
        grid.cuts_end(column.cuts_end).sorts(column.heading.key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { ticks_per_second: 1.0, unit: Unit::Time };

    static TABLE: Table<(u32, &str), Scale> = table! {
        (u32, &str), Scale;
        "name", "Name", 4, Text(|row, _| row.1.into()).left(8).stays(), "";
        "size", "Size", 4, Whole(|row, _| Some(row.0.into())).rank(1), "";
        "more", "More", 4, Text(|_, _| String::new()).right().rank(2).unsorted(), "";
        "spare", "Spare", 5, Text(|_, _| "x".into()).right().spare(), "";
    };

    #[test]
    fn a_table_shows_the_chosen_columns_that_fit() {
        let mut chosen = TABLE.usual("size");
        let titles = |chosen: &TableLayout, width| TABLE.fit(chosen, 1, width, '~').grid.titles();
        assert_eq!(titles(&chosen, 30), "  Name     Size More");
        assert_eq!(titles(&chosen, 18), "  Name   Size More");
        assert_eq!(titles(&chosen, 14), "  Name    Size", "the one of the greatest rank goes");
        assert_eq!(titles(&chosen, 3), "  Name", "what stays stays");
        chosen.check("spare");
        chosen.check("name");
        chosen.move_column("spare", false, &|key| key != "more");
        assert_eq!(chosen.shown(), ["name", "spare", "more", "size"]);
        assert_eq!(titles(&chosen, 16), "  Name     Spare", "now the last goes first");
        chosen.move_column("spare", false, &|_| true);
        assert_eq!(chosen.shown()[0], "name", "the first stays first");
        let (columns, sorted) = chosen.own();
        assert_eq!((columns.map(|it| it.len()), sorted), (Some(4), None));
        chosen.show(&["size"]);
        assert_eq!(chosen.shown(), ["name", "size"]);
    }

    #[test]
    fn rows_follow_the_chosen_order_and_columns() {
        let mut chosen = TABLE.usual("size");
        let (a, b) = ((1, "b"), (2, "a"));
        let sorted = |chosen: &TableLayout| {
            let mut rows = [&a, &b];
            TABLE.sort(chosen, &mut rows, &SCALE);
            rows.map(|row| row.0)
        };
        assert_eq!(sorted(&chosen), [2, 1]);
        chosen.click("size");
        assert_eq!(sorted(&chosen), [1, 2]);
        chosen.click("name");
        assert_eq!(sorted(&chosen), [2, 1]);
        chosen.click("more");
        assert_eq!(chosen.sorted().key, "name", "it cannot be sorted by that");
        chosen.check("spare");
        assert_eq!(TABLE.row(&chosen, &a, &SCALE), "Name b  Size 1  Spare x");
    }
}
