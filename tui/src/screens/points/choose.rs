//! Which columns the table has, and in which order.

use super::Points;
use crate::app::Common;
use crate::columns::{Column, There};

/// All columns: these first, then the others.
pub(super) fn choices(columns: &[Column]) -> Vec<Column> {
    let others = Column::ALL.into_iter().filter(|column| !columns.contains(column));
    columns.iter().copied().chain(others).collect()
}

impl Points {
    /// All columns to choose from, the table's first and in its order. The process's column is
    /// left out where there is one process only.
    pub(crate) fn choices(&self, common: &Common) -> Vec<Column> {
        Column::shown(&self.choices, There::of(&common.model))
    }

    /// Puts a column into the table, or takes it out.
    pub(crate) fn check(&mut self, column: Column) {
        // Without some nobody knows what a row is.
        if column.stays() {
            return;
        }
        let mut chosen = self.columns.clone();
        match chosen.iter().position(|other| *other == column) {
            Some(place) => drop(chosen.remove(place)),
            None => chosen.push(column),
        }
        self.take(&chosen);
    }

    /// Moves a column to the left or the right. The first stays where it is: the cursor
    /// of the table is drawn in it.
    pub(crate) fn move_column(&mut self, column: Column, right: bool, common: &Common) {
        let choices = self.choices(common);
        let Some(place) = choices.iter().position(|other| *other == column) else { return };
        let with = if right { place + 1 } else { place.saturating_sub(1) };
        if let Some(other) = choices.get(with).copied().filter(|_| place >= 1 && with >= 1) {
            // They may not be neighbours among all.
            for choice in &mut self.choices {
                *choice = match *choice {
                    found if found == column => other,
                    found if found == other => column,
                    found => found,
                };
            }
            self.take(&self.columns.clone());
        }
    }

    /// Takes these columns, in the order in which all of them stand.
    fn take(&mut self, chosen: &[Column]) {
        let is_chosen = |column: &Column| chosen.contains(column);
        self.columns = self.choices.iter().copied().filter(is_chosen).collect();
    }
}
