//! What the mouse does: the wheel walks, a click selects, a click on what is
//! selected opens it, a click on a heading sorts.

use std::time::Instant;

use crossterm::event::{MouseButton, MouseEventKind};

use super::{Action, App, Overlay, Screen};
use crate::columns::{Column, Sorting};

/// Rows that a notch of the wheel walks over.
const NOTCH: isize = 3;

/// What lies under the mouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// This row of the list, counted from its first.
    Row(usize),
    /// This line of the timeline, at a moment.
    Moment(usize, u64),
    /// The name of a screen.
    Tab(Screen),
    /// A key that is hinted at in the last line.
    Key(Action),
    /// The heading of a column.
    Heading(Column),
    /// Nothing that minds it.
    Nothing,
}

impl App {
    /// Takes in what the mouse did; returns whether it meant anything.
    pub fn mouse(&mut self, event: MouseEventKind, target: Target, now: Instant) -> bool {
        let in_prompt = !matches!(self.overlay, None | Some(Overlay::Help(_)));
        match event {
            MouseEventKind::Down(MouseButton::Left) if matches!(target, Target::Key(_)) => {
                let Target::Key(action) = target else { return false };
                self.common.toast = None;
                self.act(action, now);
                return true;
            }
            _ if in_prompt => return false,
            MouseEventKind::ScrollUp => self.wheel(-NOTCH, now),
            MouseEventKind::ScrollDown => self.wheel(NOTCH, now),
            MouseEventKind::Down(MouseButton::Left) => match target {
                Target::Row(place) => self.click(place, now),
                Target::Moment(line, moment) => self.timeline.click(line, moment),
                Target::Tab(screen) => self.show(screen, now),
                Target::Heading(column) if column.sorts() => {
                    let inverts = self.sorting.column == column;
                    let sorting =
                        if inverts { self.sorting.inverted() } else { Sorting::by(column) };
                    self.sort_by(sorting, now);
                }
                Target::Heading(_) | Target::Key(_) | Target::Nothing => return false,
            },
            _ => return false,
        }
        self.common.toast = None;
        true
    }

    fn wheel(&mut self, rows: isize, now: Instant) {
        if self.screen == Screen::Detail && self.overlay.is_none() {
            self.detail_offset = self.detail_offset.saturating_add_signed(rows);
        } else {
            self.walk(rows, now);
        }
    }

    fn click(&mut self, place: usize, now: Instant) {
        let (cursor, _) = self.cursor();
        if place == cursor {
            self.open(now);
        } else {
            self.walk(place as isize - cursor as isize, now);
        }
    }

    /// To the row of this place.
    #[cfg(test)]
    pub(crate) fn walk_to(&mut self, place: usize, now: Instant) {
        if place != self.cursor().0 {
            self.click(place, now);
        }
    }
}
