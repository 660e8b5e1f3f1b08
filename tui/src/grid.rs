//! Tables of aligned cells: how wide each column is, on which side its cells stand, and
//! how a row of them is put together. Every table of the screen and the one in text is one.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::text;

/// One column of a grid.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) title: Cow<'static, str>,
    width: usize,
    is_left: bool,
    /// Long cells are cut at their end; names differ there, so they are cut in the middle.
    is_text: bool,
    /// By which it is named; empty where it is not.
    pub(crate) key: &'static str,
}

/// The columns of a table, with one blank between them.
#[derive(Clone, Debug)]
pub struct Grid {
    pub(crate) slots: Vec<Slot>,
    /// In place of what is cut.
    pub(crate) ellipsis: char,
}

/// What the rows of a table are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// Key of the column.
    pub key: &'static str,
    /// Greatest first.
    pub descending: bool,
}

/// A column without its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// By which it is named.
    pub key: &'static str,
    /// What stands over it.
    pub title: &'static str,
    /// What it shows, in a few words.
    pub meaning: &'static str,
    /// The table always has it.
    pub stays: bool,
    /// Whether its rows are sorted greatest first at first; none where they cannot be sorted.
    pub sorts: Option<bool>,
}

/// What a person chooses of a table: its columns from left to right, and what its rows are
/// sorted by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// All columns in the order in which they can be chosen, and whether the table has them.
    columns: Vec<(Heading, bool)>,
    sorted: Sorted,
    /// What it has unless somebody chooses.
    usual: (Vec<&'static str>, Sorted),
}

impl Chosen {
    /// The table of these columns first, which is sorted by one of them.
    pub fn new(all: &[Heading], shown: &[&'static str], key: &'static str) -> Self {
        let descending = |it: &&Heading| it.key == key;
        let descending = all.iter().find(descending).and_then(|it| it.sorts).unwrap_or(true);
        let sorted = Sorted { key, descending };
        let mut chosen = Self { columns: Vec::new(), sorted, usual: (shown.to_vec(), sorted) };
        chosen.columns = all.iter().map(|heading| (*heading, false)).collect();
        chosen.show(shown);
        chosen
    }

    /// Shows these columns, in this order, and those that it always has.
    pub fn show(&mut self, keys: &[&str]) {
        for (heading, is_shown) in &mut self.columns {
            *is_shown = heading.stays || keys.contains(&heading.key);
        }
        let place =
            |(heading, _): &(Heading, bool)| keys.iter().position(|key| *key == heading.key);
        // What stays without being named comes first.
        self.columns.sort_by_key(|column| match (column.1, place(column)) {
            (true, None) => (0, 0),
            (true, Some(place)) => (1, place),
            (false, _) => (2, 0),
        });
    }

    /// All columns, in the order in which they can be chosen, and whether the table has them.
    pub fn columns(&self) -> impl Iterator<Item = (Heading, bool)> + Clone {
        self.columns.iter().copied()
    }

    /// The keys of the columns that it has, from left to right.
    pub fn shown(&self) -> Vec<&'static str> {
        let shown = self.columns.iter().filter(|(_, is_shown)| *is_shown);
        shown.map(|(heading, _)| heading.key).collect()
    }

    /// Whether it has a column.
    pub fn shows(&self, key: &str) -> bool {
        self.columns.iter().any(|(heading, is_shown)| *is_shown && heading.key == key)
    }

    /// Whether nobody has chosen other columns.
    pub fn is_usual(&self) -> bool {
        self.shown() == self.usual.0
    }

    /// What the rows are sorted by.
    pub fn sorted(&self) -> Sorted {
        self.sorted
    }

    /// Whether the rows can be sorted by a column.
    pub fn sorts(&self, key: &str) -> bool {
        self.columns.iter().any(|(heading, _)| heading.key == key && heading.sorts.is_some())
    }

    /// Sorts by a column, in its natural direction or the one that is asked for.
    pub fn sort_by(&mut self, key: &str, descending: Option<bool>) {
        let column = self.columns.iter().map(|(heading, _)| heading).find(|it| it.key == key);
        if let Some((key, natural)) = column.and_then(|it| Some((it.key, it.sorts?))) {
            self.sorted = Sorted { key, descending: descending.unwrap_or(natural) };
        }
    }

    /// Sorts by a heading that was clicked on: a second click turns the order round.
    pub fn click(&mut self, key: &str) {
        let same = self.sorted.key == key;
        self.sort_by(key, same.then_some(!self.sorted.descending));
    }

    /// Puts a column into the table, or takes it out. Without some nobody knows what a row is.
    pub fn check(&mut self, key: &str) {
        let column = self.columns.iter_mut().find(|(heading, _)| heading.key == key);
        if let Some((_, is_shown)) = column.filter(|(heading, _)| !heading.stays) {
            *is_shown = !*is_shown;
        }
    }

    /// Moves a column to the left or the right of its neighbour among those on offer. The first
    /// stays where it is: the cursor is drawn in it.
    pub fn move_column(&mut self, key: &str, right: bool, is_offered: &dyn Fn(&str) -> bool) {
        let places = (0..self.columns.len()).filter(|at| is_offered(self.columns[*at].0.key));
        let places: Vec<usize> = places.collect();
        let Some(place) = places.iter().position(|at| self.columns[*at].0.key == key) else {
            return;
        };
        let with = if right { place + 1 } else { place.saturating_sub(1) };
        if place >= 1 && with >= 1 && with < places.len() {
            self.columns.swap(places[place], places[with]);
        }
    }

    /// What was chosen and is not usual: the columns, and the sorting.
    pub fn own(&self) -> (Option<Vec<&'static str>>, Option<Sorted>) {
        let columns = (!self.is_usual()).then(|| self.shown());
        (columns, (self.sorted != self.usual.1).then_some(self.sorted))
    }
}

/// A column with its cells, as the tables with rows of one kind declare it; `C` is what the
/// cells are written with.
pub(crate) struct Column<R, C> {
    pub(crate) heading: Heading,
    /// Columns of the screen at least, and at most where there is room.
    width: (usize, usize),
    is_left: bool,
    is_text: bool,
    /// Where room is short, those with the greatest go first.
    rank: u8,
    is_usual: bool,
    pub(crate) cell: fn(&R, &C) -> String,
    compare: Option<fn(&R, &R) -> Ordering>,
}

impl<R, C> Column<R, C> {
    /// A column of figures, which end at the right.
    pub(crate) const fn new(
        key: &'static str,
        title: &'static str,
        width: usize,
        meaning: &'static str,
        cell: fn(&R, &C) -> String,
    ) -> Self {
        let heading = Heading { key, title, meaning, stays: false, sorts: None };
        let width = (width, width);
        Self {
            heading,
            width,
            is_left: false,
            is_text: false,
            rank: 1,
            is_usual: true,
            cell,
            compare: None,
        }
    }

    /// Columns of the screen at least.
    pub(crate) fn least_width(&self) -> usize {
        self.width.0
    }

    /// Whether its cells begin at the left.
    pub(crate) fn is_left(&self) -> bool {
        self.is_left
    }

    /// Its cells begin at the left, and take up to so many columns where there is room.
    pub(crate) const fn left(mut self, most: usize) -> Self {
        self.is_left = true;
        self.width.1 = most;
        self
    }

    /// As [`Self::left`], and cells that are too long are cut at their end.
    pub(crate) const fn text(mut self, most: usize) -> Self {
        self.is_text = true;
        self.left(most)
    }

    /// The table always has it.
    pub(crate) const fn stays(mut self) -> Self {
        self.heading.stays = true;
        self
    }

    /// When room is short, the greatest rank goes first.
    pub(crate) const fn rank(mut self, rank: u8) -> Self {
        self.rank = rank;
        self
    }

    /// The table has it only if somebody chooses it.
    pub(crate) const fn spare(mut self) -> Self {
        self.is_usual = false;
        self
    }

    /// Rows can be sorted by it, the greatest first.
    pub(crate) const fn greatest(mut self, compare: fn(&R, &R) -> Ordering) -> Self {
        self.compare = Some(compare);
        self.heading.sorts = Some(true);
        self
    }

    /// Rows can be sorted by it, the least first.
    pub(crate) const fn least(mut self, compare: fn(&R, &R) -> Ordering) -> Self {
        self.compare = Some(compare);
        self.heading.sorts = Some(false);
        self
    }
}

/// What has no figure counts as less than every figure.
pub(crate) fn by_figure(a: Option<f64>, b: Option<f64>) -> Ordering {
    let key = |figure: Option<f64>| figure.unwrap_or(f64::NEG_INFINITY);
    key(a).total_cmp(&key(b))
}

/// A table as it is declared: all its columns.
pub(crate) struct Table<R: 'static, C: 'static>(pub(crate) &'static [Column<R, C>]);

impl<R: 'static, C: 'static> Table<R, C> {
    /// What it has unless somebody chooses, sorted by this column.
    pub(crate) fn usual(&self, key: &'static str) -> Chosen {
        let usual = self.0.iter().filter(|column| column.is_usual).map(|it| it.heading.key);
        let headings = self.0.iter().map(|column| column.heading);
        Chosen::new(&headings.collect::<Vec<_>>(), &usual.collect::<Vec<_>>(), key)
    }

    fn column(&self, key: &str) -> Option<&'static Column<R, C>> {
        self.0.iter().find(|column| column.heading.key == key)
    }

    fn shown(&self, chosen: &Chosen) -> Vec<&'static Column<R, C>> {
        chosen.shown().into_iter().filter_map(|key| self.column(key)).collect()
    }

    /// The columns that there is room for, behind so many for a mark, and their grid. Of the
    /// usual columns the least needed give way first; of others, which somebody has put in
    /// their order, the last.
    pub(crate) fn fit(
        &self,
        chosen: &Chosen,
        mark: usize,
        width: usize,
        ellipsis: char,
    ) -> (Vec<&'static Column<R, C>>, Grid) {
        let mut columns = self.shown(chosen);
        let mut left = loop {
            let used = mark + columns.iter().map(|it| it.width.0 + 1).sum::<usize>();
            let ranks = columns.iter().filter(|it| !it.heading.stays).map(|it| it.rank);
            let (most, last) = (ranks.max(), columns.iter().rposition(|it| !it.heading.stays));
            match (width.checked_sub(used), most, last) {
                (Some(left), ..) => break left,
                (None, Some(most), _) if chosen.is_usual() => {
                    columns.retain(|it| it.heading.stays || it.rank != most);
                }
                (None, _, Some(last)) => drop(columns.remove(last)),
                (None, _, None) => break 0,
            }
        };
        // The most needed columns grow first.
        let mut widths: Vec<usize> = columns.iter().map(|it| it.width.0).collect();
        let mut places: Vec<usize> = (0..columns.len()).collect();
        places.sort_by_key(|place| columns[*place].rank);
        for place in places {
            let (least, most) = columns[place].width;
            widths[place] += left.min(most - least);
            left -= left.min(most - least);
        }
        if let (Some(width), Some(true)) = (widths.last_mut(), columns.last().map(|it| it.is_left))
        {
            *width += left;
        }
        let grid = columns.iter().zip(widths).fold(
            Grid::new(ellipsis).left("", mark),
            |grid, (column, width)| {
                let title = column.heading.title;
                let grid =
                    if column.is_left { grid.left(title, width) } else { grid.right(title, width) };
                grid.cuts_end(column.is_text).sorts(column.heading.key)
            },
        );
        (columns, grid)
    }

    /// Puts rows in order; equals stay as they are.
    pub(crate) fn sort(&self, chosen: &Chosen, rows: &mut [&R]) {
        let Sorted { key, descending } = chosen.sorted();
        if let Some(compare) = self.column(key).and_then(|column| column.compare) {
            rows.sort_by(|a, b| if descending { compare(b, a) } else { compare(a, b) });
        }
    }

    /// A row as text, with the titles of its cells.
    pub(crate) fn row(&self, chosen: &Chosen, row: &R, with: &C) -> String {
        let columns = self.shown(chosen).into_iter();
        let cells = columns.map(|it| (it.heading.title, (it.cell)(row, with)));
        // Pictures have no words.
        let cells = cells.filter(|(_, cell)| !cell.is_empty());
        cells.map(|(title, cell)| format!("{title} {cell}")).collect::<Vec<_>>().join("  ")
    }
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

    /// With one more column, whose cells begin at the left and are cut where they are too
    /// long.
    pub fn left(self, title: impl Into<Cow<'static, str>>, width: usize) -> Self {
        self.with(title.into(), width, true)
    }

    /// With one more column, whose cells are figures and end at the right.
    pub fn right(self, title: impl Into<Cow<'static, str>>, width: usize) -> Self {
        self.with(title.into(), width, false)
    }

    /// Whether cells of the last column that are too long are cut at their end.
    fn cuts_end(mut self, is_text: bool) -> Self {
        if let Some(slot) = self.slots.last_mut() {
            slot.is_text = is_text;
        }
        self
    }

    /// The last column has this name.
    pub fn sorts(mut self, key: &'static str) -> Self {
        if let Some(slot) = self.slots.last_mut() {
            slot.key = key;
        }
        self
    }

    /// Columns that the first so many of them take, with the blanks behind them.
    pub fn width(&self) -> usize {
        self.slots.iter().map(|slot| slot.width + 1).sum()
    }

    pub(crate) fn aligned(&self, slot: &Slot, content: &str) -> String {
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

    /// Cells as wide as their columns.
    pub fn cells<S: AsRef<str>>(&self, cells: impl IntoIterator<Item = S>) -> Vec<String> {
        let cells = self.slots.iter().zip(cells);
        cells.map(|(slot, content)| self.aligned(slot, content.as_ref())).collect()
    }

    /// A row.
    pub fn line<S: AsRef<str>>(&self, cells: impl IntoIterator<Item = S>) -> String {
        self.cells(cells).join(" ")
    }

    /// The row of the titles.
    pub fn titles(&self) -> String {
        self.line(self.slots.iter().map(|slot| &slot.title))
    }

    /// Key of the column at this place, counted from the left.
    pub fn key_at(&self, place: usize) -> Option<&'static str> {
        let mut right = 0;
        let slot = self.slots.iter().find(|slot| {
            // With the blank behind it.
            right += slot.width + 1;
            place < right
        });
        slot.map(|slot| slot.key).filter(|key| !key.is_empty())
    }
}

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
    fn figures_end_at_the_right_and_names_keep_their_end() {
        let grid = Grid::new('~').left("Name", 5).right("Count", 6).right("", 3).sorts("x");
        assert_eq!(grid.titles(), "Name   Count    ");
        assert_eq!(grid.line(["abcdefg", "12", "5"]), "ab~fg     12   5");
        assert_eq!(grid.line(["a", "1234567", "5"]), "a     1234567   5", "figures are never cut");
        assert_eq!(grid.width(), 17);
        assert_eq!(
            [0, 12, 13, 15, 17].map(|at| grid.key_at(at)),
            [None, None, Some("x"), Some("x"), None]
        );
    }

    type Of = Column<(u32, &'static str), ()>;

    static TABLE: Table<(u32, &str), ()> = Table(&[
        Of::new("name", "Name", 4, "", |row, ()| row.1.into())
            .left(8)
            .stays()
            .least(|a, b| a.1.cmp(b.1)),
        Of::new("size", "Size", 4, "", |row, ()| row.0.to_string()).greatest(|a, b| a.0.cmp(&b.0)),
        Of::new("more", "More", 4, "", |_, ()| String::new()).rank(2),
        Of::new("spare", "Spare", 5, "", |_, ()| "x".into()).spare(),
    ]);

    #[test]
    fn a_table_has_what_was_chosen_in_its_order_as_far_as_there_is_room() {
        let mut chosen = TABLE.usual("size");
        let titles = |chosen: &Chosen, width| TABLE.fit(chosen, 1, width, '~').1.titles();
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
    fn rows_are_sorted_and_copied_by_what_was_chosen() {
        let mut chosen = TABLE.usual("size");
        let (a, b) = ((1, "b"), (2, "a"));
        let sorted = |chosen: &Chosen| {
            let mut rows = [&a, &b];
            TABLE.sort(chosen, &mut rows);
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
        assert_eq!(TABLE.row(&chosen, &a, &()), "Name b  Size 1  Spare x");
    }

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
