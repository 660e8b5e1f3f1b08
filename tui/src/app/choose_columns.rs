//! Which columns the table has, and in which order.

use super::{App, Overlay};
use crate::columns::Column;

/// All columns: these first, then the others.
pub(super) fn choices(columns: &[Column]) -> Vec<Column> {
    let others = Column::ALL.into_iter().filter(|column| !columns.contains(column));
    columns.iter().copied().chain(others).collect()
}

impl App {
    /// All columns to choose from, those of the table in its order.
    pub fn column_choices(&self) -> &[Column] {
        &self.choices
    }

    /// The column under the chooser's cursor, and its place.
    fn chosen(&self) -> Option<(Column, usize)> {
        let Some(Overlay::Columns(cursor)) = self.overlay else {
            return None;
        };
        Some((cursor, self.choices.iter().position(|column| *column == cursor)?))
    }

    /// Moves the chooser's cursor; returns whether there is one.
    pub(super) fn walk_columns(&mut self, rows: isize) -> bool {
        let Some((_, place)) = self.chosen() else {
            return false;
        };
        let place = place.saturating_add_signed(rows).min(self.choices.len() - 1);
        self.overlay = Some(Overlay::Columns(self.choices[place]));
        true
    }

    /// Puts the column under the cursor into the table, or takes it out.
    pub(super) fn check_column(&mut self) {
        // Without some nobody knows what a row is.
        let Some((column, _)) = self.chosen().filter(|(column, _)| !column.stays()) else {
            return;
        };
        let mut chosen = self.columns.clone();
        match chosen.iter().position(|other| *other == column) {
            Some(place) => drop(chosen.remove(place)),
            None => chosen.push(column),
        }
        self.take_columns(&chosen);
    }

    /// Moves the column under the cursor to the left or the right. The first
    /// stays where it is: the cursor of the table is drawn in it.
    pub(super) fn move_column(&mut self, right: bool) {
        let Some((_, place)) = self.chosen() else {
            return;
        };
        let with = if right { place + 1 } else { place.saturating_sub(1) };
        if place >= 1 && with >= 1 && with < self.choices.len() {
            self.choices.swap(place, with);
            self.take_columns(&self.columns.clone());
        }
    }

    /// Takes these columns, in the order in which all of them stand.
    fn take_columns(&mut self, chosen: &[Column]) {
        let is_chosen = |column: &Column| chosen.contains(column);
        self.columns = self.choices.iter().copied().filter(is_chosen).collect();
    }
}
