//! The user's answers to overlays: prompts, questions, and the choosers of columns.

use super::App;
use crate::common::{Action, Overlay, Prompt, PromptSubject, Screen};
use crate::screens::Outcome;
use pfp_model::filter::Filter;
use pfp_model::grid::TableLayout;
use pfp_read::files::json::Existing;

impl App {
    /// Carries out an action on the overlay. Returns false if the overlay does not handle it.
    pub(super) fn act_on_overlay(&mut self, action: Action) -> bool {
        let Some(overlay) = self.overlay.take() else { return false };
        match (action, overlay) {
            (Action::Accept, overlay) => self.accept(overlay),
            (Action::Cancel, Overlay::Replace(prompt)) => {
                self.overlay = Some(Overlay::Typed(prompt));
            }
            (Action::Cancel, Overlay::Typed(prompt)) if prompt.asked == PromptSubject::Filter => {
                self.filter_by(Filter::new(prompt.first_text()).unwrap_or_default());
            }
            (Action::Cancel | Action::Back, _) => {}
            (Action::LeaveRunning | Action::EndProgram, _) => {
                self.ends_program = action == Action::EndProgram;
                self.quit = true;
            }
            (Action::Up | Action::Down, Overlay::Typed(mut prompt)) => {
                prompt.recall(action == Action::Up);
                self.overlay = Some(Overlay::Typed(prompt));
                self.typed();
            }
            (Action::Invert, Overlay::Sort(_)) => self.invert(),
            (Action::Check, Overlay::Columns(column)) => {
                if let Some(table) = self.view_mut().0.table_mut() {
                    table.check(column);
                }
                self.overlay = Some(Overlay::Columns(column));
            }
            (Action::ColumnLeft | Action::ColumnRight, Overlay::Columns(column)) => {
                let right = action == Action::ColumnRight;
                let offered = self.columns_offered();
                if let Some(table) = self.view_mut().0.table_mut() {
                    table.move_column(column, right, &|key| offered.contains(&key));
                }
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

    /// The overlay with its cursor moved by some rows; false if it has no cursor.
    fn moved(&self, overlay: Overlay, by: isize) -> (Overlay, bool) {
        match overlay {
            // The offset may be beyond the end of the help; `App::fit` clamps it.
            Overlay::Help(offset) => (Overlay::Help(offset.saturating_add_signed(by)), true),
            Overlay::Columns(column) => {
                (Overlay::Columns(further(&self.columns_offered(), column, by)), true)
            }
            Overlay::Palette(prompt, place) => {
                let last = self.palette(&prompt.text()).len().saturating_sub(1);
                let place = place.saturating_add_signed(by).min(last);
                (Overlay::Palette(prompt, place), true)
            }
            Overlay::Sort(key) => {
                let mut keys = self.columns_offered();
                keys.retain(|key| self.view().table().is_some_and(|table| table.sorts(key)));
                (Overlay::Sort(further(&keys, key, by)), true)
            }
            other => (other, false),
        }
    }

    /// Accepts the typed text, the chosen entry, or a yes.
    fn accept(&mut self, overlay: Overlay) {
        match overlay {
            Overlay::Typed(prompt) => self.take(prompt),
            Overlay::Replace(prompt) => self.save(prompt, Existing::Replace),
            Overlay::Sort(key) => self.sort_by(key, None),
            Overlay::Palette(prompt, place) => {
                let found = self.palette(&prompt.text()).get(place).map(|it| it.action);
                match found {
                    Some(action) => self.act(action, self.common.now),
                    None => self.overlay = Some(Overlay::Palette(prompt, place)),
                }
            }
            Overlay::Ask(question) => self.carry_out(question),
            other => self.overlay = Some(other),
        }
    }

    /// Accepts the typed text.
    fn take(&mut self, prompt: Prompt) {
        match prompt.asked {
            // A valid filter already applies while it is typed.
            PromptSubject::Filter if prompt.error.is_none() => {
                if let Some(why) = self.common.filter.unknown_words() {
                    self.common.say(why);
                }
                self.remember_filter(prompt.text());
            }
            PromptSubject::Filter => self.overlay = Some(Overlay::Typed(prompt)),
            PromptSubject::Alpha(id) => self.set_alpha(id, prompt),
            PromptSubject::Limit(id) => self.set_limit(id, prompt),
            PromptSubject::Find(_) => {
                let (view, common) = self.view_mut();
                let outcome = view.find(prompt, common);
                self.carry_on(outcome);
            }
            PromptSubject::Moment => self.seek(prompt),
            PromptSubject::File => self.save(prompt, Existing::Keep),
            // The palette accepts its text itself.
            PromptSubject::Command => {}
        }
    }

    fn sort_by(&mut self, key: &str, descending: Option<bool>) {
        if let Some(table) = self.view_mut().0.table_mut() {
            table.sort_by(key, descending);
        }
        self.carry_on(Outcome::Arrange);
    }

    /// Opens the menu of columns to sort by.
    pub(super) fn choose_sorting(&mut self) {
        self.overlay = self.view().table().map(|table| Overlay::Sort(table.sorted().key));
    }

    /// Opens the menu of columns to show.
    pub(super) fn choose_columns(&mut self) {
        let offered = self.columns_offered();
        let Some(table) = self.view().table() else { return };
        let by = Some(table.sorted().key).filter(|key| offered.contains(key));
        self.overlay = by.or(offered.first().copied()).map(Overlay::Columns);
    }

    /// The keys of the columns that the table on the screen can have.
    fn columns_offered(&self) -> Vec<&'static str> {
        let table = self.view().table().into_iter();
        let keys = table.flat_map(|table| table.columns()).map(|(heading, _)| heading.key);
        keys.filter(|key| self.view().offers(key, &self.common)).collect()
    }

    /// Sorts by the next visible column to the right, or to the left.
    pub(super) fn move_sorting(&mut self, right: bool) {
        let mut keys = self.columns_offered();
        let Some(table) = self.view().table() else { return };
        keys.retain(|key| table.shows(key) && table.sorts(key));
        let Some(last) = keys.len().checked_sub(1) else { return };
        let place = keys.iter().position(|key| *key == table.sorted().key).unwrap_or(0);
        let by = if right { 1 } else { last };
        self.sort_by(keys[(place + by) % keys.len()], None);
    }

    /// Reverses the order of the rows.
    pub(super) fn invert(&mut self) {
        if let Some(sorted) = self.view().table().map(TableLayout::sorted) {
            self.sort_by(sorted.key, Some(!sorted.descending));
        }
    }

    /// Opens the prompt for the screen's own filter, or else for the filter of points. A screen
    /// that does not list points is replaced by the table of points first.
    pub(super) fn ask_filter(&mut self) {
        if let Some((filter, what)) = self.view_mut().0.own_filter() {
            let prompt = Prompt::new(PromptSubject::Find(what), filter.text());
            self.overlay = Some(Overlay::Typed(prompt));
            return;
        }
        if !self.has_points() {
            self.show(Screen::Points);
        }
        let prompt = Prompt::new(PromptSubject::Filter, self.common.filter.text());
        self.overlay = Some(Overlay::Typed(prompt.with_earlier(self.filters.clone())));
    }

    fn remember_filter(&mut self, text: String) {
        self.filters.retain(|known| *known != text);
        if !text.is_empty() {
            self.filters.push(text);
        }
    }

    /// Reacts to a change of the text in a prompt.
    pub(super) fn typed(&mut self) {
        if let Some(Overlay::Palette(_, place)) = &mut self.overlay {
            *place = 0;
        }
        let Some(Overlay::Typed(prompt)) = &mut self.overlay else { return };
        prompt.error = None;
        if prompt.asked == PromptSubject::Filter {
            match Filter::new(&prompt.text()) {
                Ok(filter) => self.filter_by(filter),
                // The rows stay as they are until the filter is valid again.
                Err(why) => prompt.error = Some(why),
            }
        }
    }

    pub(super) fn filter_by(&mut self, filter: Filter) {
        self.common.filter = filter;
        self.carry_on(Outcome::Arrange);
    }
}

/// The element `by` places after `one`; beyond an end of the list, the element at that end.
fn further<T: Copy + PartialEq>(all: &[T], one: T, by: isize) -> T {
    let place = all.iter().position(|it| *it == one).unwrap_or(0);
    all.get(place.saturating_add_signed(by).min(all.len().saturating_sub(1)))
        .copied()
        .unwrap_or(one)
}
