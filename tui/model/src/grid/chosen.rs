//! The user's choices for a table.

/// The order of a table's rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sorted {
    /// Key of the column.
    pub key: &'static str,
    /// Whether the greatest comes first.
    pub descending: bool,
}

/// A column of a table, without its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heading {
    /// The column's name in settings and commands, unique in its table.
    pub key: &'static str,
    /// The title above the column.
    pub title: &'static str,
    /// What the column shows, in a few words.
    pub meaning: &'static str,
    /// Whether the table always has the column.
    pub stays: bool,
    /// Whether sorting by the column begins with the greatest. `None` if rows cannot be sorted by
    /// it.
    pub sorts: Option<bool>,
}

/// The user's choices for a table: its columns from left to right, and its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableLayout {
    /// All columns in the order of the menu, and whether the table has them.
    columns: Vec<(Heading, bool)>,
    sorted: Sorted,
    /// The default columns and order.
    usual: (Vec<&'static str>, Sorted),
}

impl TableLayout {
    /// The initial choices: these columns, sorted by one of them.
    pub fn new(all: &[Heading], shown: &[&'static str], key: &'static str) -> Self {
        let descending = |it: &&Heading| it.key == key;
        let descending = all.iter().find(descending).and_then(|it| it.sorts).unwrap_or(true);
        let sorted = Sorted { key, descending };
        let mut chosen = Self { columns: Vec::new(), sorted, usual: (shown.to_vec(), sorted) };
        chosen.columns = all.iter().map(|heading| (*heading, false)).collect();
        chosen.show(shown);
        chosen
    }

    /// Shows these columns, in this order, and those that the table always has.
    pub fn show(&mut self, keys: &[&str]) {
        for (heading, is_shown) in &mut self.columns {
            *is_shown = heading.stays || keys.contains(&heading.key);
        }
        let place =
            |(heading, _): &(Heading, bool)| keys.iter().position(|key| *key == heading.key);
        // Fixed columns that are not named come first.
        self.columns.sort_by_key(|column| match (column.1, place(column)) {
            (true, None) => (0, 0),
            (true, Some(place)) => (1, place),
            (false, _) => (2, 0),
        });
    }

    /// All columns in the order of the menu, and whether the table has them.
    pub fn columns(&self) -> impl Iterator<Item = (Heading, bool)> + Clone {
        self.columns.iter().copied()
    }

    /// The keys of the columns that the table has, from left to right.
    pub fn shown(&self) -> Vec<&'static str> {
        let shown = self.columns.iter().filter(|(_, is_shown)| *is_shown);
        shown.map(|(heading, _)| heading.key).collect()
    }

    /// Whether the table has a column.
    pub fn shows(&self, key: &str) -> bool {
        self.columns.iter().any(|(heading, is_shown)| *is_shown && heading.key == key)
    }

    /// Whether the columns are the default ones.
    pub fn is_usual(&self) -> bool {
        self.shown() == self.usual.0
    }

    /// The order of the rows.
    pub fn sorted(&self) -> Sorted {
        self.sorted
    }

    /// Whether the rows can be sorted by a column.
    pub fn sorts(&self, key: &str) -> bool {
        self.columns.iter().any(|(heading, _)| heading.key == key && heading.sorts.is_some())
    }

    /// Sorts by a column, in its natural direction or a given one.
    pub fn sort_by(&mut self, key: &str, descending: Option<bool>) {
        let column = self.columns.iter().map(|(heading, _)| heading).find(|it| it.key == key);
        if let Some((key, natural)) = column.and_then(|it| Some((it.key, it.sorts?))) {
            self.sorted = Sorted { key, descending: descending.unwrap_or(natural) };
        }
    }

    /// Sorts by a heading that was clicked on; a second click reverses the order.
    pub fn click(&mut self, key: &str) {
        let same = self.sorted.key == key;
        self.sort_by(key, same.then_some(!self.sorted.descending));
    }

    /// Adds a column to the table, or removes it. Fixed columns, which identify a row, stay.
    pub fn check(&mut self, key: &str) {
        let column = self.columns.iter_mut().find(|(heading, _)| heading.key == key);
        if let Some((_, is_shown)) = column.filter(|(heading, _)| !heading.stays) {
            *is_shown = !*is_shown;
        }
    }

    /// Moves a column past its neighbour among the offered ones. The first column stays first,
    /// since the cursor is drawn in it.
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

    /// The choices that differ from the defaults: columns and order.
    pub fn own(&self) -> (Option<Vec<&'static str>>, Option<Sorted>) {
        let columns = (!self.is_usual()).then(|| self.shown());
        (columns, (self.sorted != self.usual.1).then_some(self.sorted))
    }
}
