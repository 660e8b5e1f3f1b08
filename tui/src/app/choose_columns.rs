//! Which columns the table has, and in which order.

use super::{App, Overlay};
use crate::columns::Column;

/// All columns: these first, then the others.
pub(super) fn choices(columns: &[Column]) -> Vec<Column> {
    let others = Column::ALL.into_iter().filter(|column| !columns.contains(column));
    columns.iter().copied().chain(others).collect()
}

impl App {
    /// All columns to choose from, those of the table in its order. That of the
    /// process is none where there is but one.
    pub fn column_choices(&self) -> Vec<Column> {
        let mut choices = Column::shown(&self.choices, self.common.model.has_processes());
        if matches!(self.overlay, Some(Overlay::Sort(_))) {
            choices.retain(|column| column.sorts());
        }
        choices
    }

    /// The columns of the table, those that are shown only of several processes
    /// where there are several.
    pub(super) fn shown_columns(&self) -> Vec<Column> {
        Column::shown(&self.columns, self.common.model.has_processes())
    }

    /// Opens the chooser on the column that the table is sorted by.
    pub(super) fn choose_columns(&mut self) {
        let by = self.sorting.column;
        let found = self.column_choices().contains(&by);
        self.overlay = Some(Overlay::Columns(if found { by } else { Column::Name }));
    }

    /// The column under the chooser's cursor, and its place among the choices.
    fn chosen(&self) -> Option<(Column, usize)> {
        let Some(Overlay::Columns(cursor) | Overlay::Sort(cursor)) = self.overlay else {
            return None;
        };
        Some((cursor, self.column_choices().iter().position(|column| *column == cursor)?))
    }

    /// Moves the chooser's cursor; returns whether there is one.
    pub(super) fn walk_columns(&mut self, rows: isize) -> bool {
        let Some((_, place)) = self.chosen() else {
            return false;
        };
        let choices = self.column_choices();
        let place = place.saturating_add_signed(rows).min(choices.len() - 1);
        self.overlay = match self.overlay {
            Some(Overlay::Sort(_)) => Some(Overlay::Sort(choices[place])),
            _ => Some(Overlay::Columns(choices[place])),
        };
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
        let Some((column, place)) = self.chosen() else {
            return;
        };
        let with = if right { place + 1 } else { place.saturating_sub(1) };
        let other = self.column_choices().get(with).copied();
        if let Some(other) = other.filter(|_| place >= 1 && with >= 1) {
            // They may not be neighbours among all.
            for choice in &mut self.choices {
                *choice = match *choice {
                    found if found == column => other,
                    found if found == other => column,
                    found => found,
                };
            }
            self.take_columns(&self.columns.clone());
        }
    }

    /// Takes these columns, in the order in which all of them stand.
    fn take_columns(&mut self, chosen: &[Column]) {
        let is_chosen = |column: &Column| chosen.contains(column);
        self.columns = self.choices.iter().copied().filter(is_chosen).collect();
    }
}
