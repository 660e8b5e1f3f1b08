//! Which columns the table has, and in which order.

use super::{App, Overlay};
use crate::columns::Column;

impl App {
    /// All columns to choose from: those of the table in its order, then the
    /// others.
    pub fn column_choices(&self) -> Vec<Column> {
        let others = Column::ALL.into_iter().filter(|column| !self.columns.contains(column));
        self.columns.iter().copied().chain(others).collect()
    }

    /// The column under the chooser's cursor.
    fn chosen(&mut self) -> Option<&mut Column> {
        match &mut self.overlay {
            Some(Overlay::Columns(cursor)) => Some(cursor),
            _ => None,
        }
    }

    /// Moves the chooser's cursor; returns whether there is one.
    pub(super) fn walk_columns(&mut self, rows: isize) -> bool {
        let choices = self.column_choices();
        let Some(cursor) = self.chosen() else {
            return false;
        };
        let place = choices.iter().position(|column| column == cursor).unwrap_or(0);
        *cursor = choices[place.saturating_add_signed(rows).min(choices.len() - 1)];
        true
    }

    /// Puts the column under the cursor into the table, or takes it out.
    pub(super) fn check_column(&mut self) {
        let Some(column) = self.chosen().map(|column| *column) else {
            return;
        };
        match self.columns.iter().position(|chosen| *chosen == column) {
            // Without these nobody knows what a row is.
            Some(_) if column.stays() => {}
            Some(place) => drop(self.columns.remove(place)),
            None => self.columns.push(column),
        }
    }

    /// Moves the column under the cursor to the left or the right. The first
    /// stays where it is: the cursor of the table is drawn in it.
    pub(super) fn move_column(&mut self, right: bool) {
        let Some(column) = self.chosen().map(|column| *column) else {
            return;
        };
        let Some(place) = self.columns.iter().position(|chosen| *chosen == column) else {
            return;
        };
        let with = if right { place + 1 } else { place.saturating_sub(1) };
        if place >= 1 && with >= 1 && with < self.columns.len() {
            self.columns.swap(place, with);
        }
    }
}
