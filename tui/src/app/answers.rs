//! What the user answers to what lies over a screen: lines that are typed, questions, and
//! the choosers of columns.

use std::time::Instant;

use super::{Action, App, Filter, Overlay, Prompt};
use crate::columns::{Column, Sorting};
use crate::export::json::Overwrite;
use crate::screens::Outcome;

impl App {
    /// Does what a key asks of what lies over the screen; false if that is not for it.
    pub(super) fn act_on_overlay(&mut self, action: Action, now: Instant) -> bool {
        let Some(overlay) = self.overlay.take() else { return false };
        match (action, overlay) {
            (Action::Accept, overlay) => self.accept(overlay, now),
            (Action::Cancel, Overlay::Replace(prompt)) => {
                self.overlay = Some(Overlay::Write(prompt));
            }
            (Action::Cancel | Action::Back, _) => {}
            (Action::Unfilter, _) => self.filter_by(Filter::default(), now),
            (Action::Up | Action::Down, Overlay::Filter(mut prompt)) => {
                prompt.recall(action == Action::Up);
                self.overlay = Some(Overlay::Filter(prompt));
                self.typed(now);
            }
            (Action::Invert, Overlay::Sort(_)) => self.sort_by(self.sorting().inverted(), now),
            (Action::Check, Overlay::Columns(column)) => {
                self.screens.points.check(column);
                self.overlay = Some(Overlay::Columns(column));
            }
            (Action::ColumnLeft | Action::ColumnRight, Overlay::Columns(column)) => {
                let right = action == Action::ColumnRight;
                self.screens.points.move_column(column, right, &self.common);
                self.overlay = Some(Overlay::Columns(column));
            }
            (action, overlay) => {
                let rows = self.common.rows as isize;
                let by = match action {
                    Action::Up => -1,
                    Action::Down => 1,
                    Action::PageUp => -rows,
                    Action::PageDown => rows,
                    Action::Top => isize::MIN,
                    Action::Bottom => isize::MAX,
                    _ => 0,
                };
                let (overlay, has_moved) = self.moved(overlay, by);
                self.overlay = Some(overlay);
                return has_moved && by != 0;
            }
        }
        true
    }

    /// An overlay with its cursor so many rows further down, if it has one.
    fn moved(&self, overlay: Overlay, by: isize) -> (Overlay, bool) {
        let moved = |column: Column, to_sort: bool| {
            let choices = self.screens.points.choices(&self.common, to_sort);
            let place = choices.iter().position(|choice| *choice == column).unwrap_or(0);
            choices[place.saturating_add_signed(by).min(choices.len() - 1)]
        };
        match overlay {
            // Kept within the text when the size of the screen is next known.
            Overlay::Help(offset) => (Overlay::Help(offset.saturating_add_signed(by)), true),
            Overlay::Columns(column) => (Overlay::Columns(moved(column, false)), true),
            Overlay::Sort(column) => (Overlay::Sort(moved(column, true)), true),
            other => (other, false),
        }
    }

    /// Takes what was typed or chosen, or a yes.
    fn accept(&mut self, overlay: Overlay, now: Instant) {
        match overlay {
            Overlay::Write(prompt) => self.write(prompt, Overwrite::No, now),
            Overlay::Replace(prompt) => self.write(prompt, Overwrite::Yes, now),
            // What was typed so far is in force already, unless it is no filter.
            Overlay::Filter(prompt) if prompt.trouble.is_none() => {
                self.remember_filter(prompt.text());
            }
            Overlay::Find(prompt) => {
                let (view, common) = self.view_mut();
                let outcome = view.find(prompt, common, now);
                self.carry_on(outcome, now);
            }
            Overlay::Sort(column) => self.sort_by(Sorting::by(column), now),
            Overlay::Weight(id, prompt) => self.set_weight(id, prompt, now),
            Overlay::Ask(question) => self.carry_out(question, now),
            Overlay::Seek(prompt) => self.seek(prompt, now),
            other => self.overlay = Some(other),
        }
    }

    fn sorting(&self) -> Sorting {
        self.screens.points.sorting
    }

    fn sort_by(&mut self, sorting: Sorting, now: Instant) {
        self.screens.points.sorting = sorting;
        self.carry_on(Outcome::Arrange, now);
    }

    /// Opens the line for the filter, on a screen that shows what passes it.
    pub(super) fn ask_filter(&mut self, now: Instant) {
        if !self.view().is_filtered() {
            self.show(super::Screen::Points, now);
        }
        let prompt = Prompt::new("filter", self.common.filter.text());
        self.overlay = Some(Overlay::Filter(prompt.with_earlier(self.filters.clone())));
    }

    fn remember_filter(&mut self, text: String) {
        self.filters.retain(|known| *known != text);
        if !text.is_empty() {
            self.filters.push(text);
        }
    }

    /// Minds what was just typed into a prompt.
    pub(super) fn typed(&mut self, now: Instant) {
        let filter = match &mut self.overlay {
            Some(Overlay::Filter(prompt)) => match Filter::new(&prompt.text()) {
                Ok(filter) => {
                    prompt.trouble = None;
                    filter
                }
                // The rows stay as they are until it can be read again.
                Err(why) => return prompt.trouble = Some(why),
            },
            other => {
                if let Some(prompt) = other.as_mut().and_then(Overlay::prompt_mut) {
                    prompt.trouble = None;
                }
                return;
            }
        };
        self.filter_by(filter, now);
    }

    pub(super) fn filter_by(&mut self, filter: Filter, now: Instant) {
        self.common.filter = filter;
        self.carry_on(Outcome::Arrange, now);
    }
}
