//! The mouse: the wheel scrolls; a click selects a row, opens the selected row, or sorts by the
//! clicked heading.

use std::time::Instant;

use crossterm::event::{MouseButton, MouseEventKind};

use super::App;
use crate::common::{MouseTarget, Overlay};
use crate::screens::Outcome;

/// Rows per notch of the wheel.
const NOTCH: isize = 3;

impl App {
    /// Handles a mouse event; returns whether it had an effect.
    pub fn mouse(&mut self, event: MouseEventKind, target: MouseTarget, now: Instant) -> bool {
        self.common.now = now;
        let in_prompt = !matches!(self.overlay, None | Some(Overlay::Help(_)));
        match (event, target) {
            (MouseEventKind::Down(MouseButton::Left), MouseTarget::Key(action)) => {
                self.common.toast = None;
                self.act(action, now);
                return true;
            }
            _ if in_prompt => return false,
            (MouseEventKind::ScrollUp, _) => self.scroll(-NOTCH),
            (MouseEventKind::ScrollDown, _) => self.scroll(NOTCH),
            (MouseEventKind::Down(MouseButton::Left), MouseTarget::Tab(screen)) => {
                self.show(screen);
            }
            (MouseEventKind::Down(MouseButton::Left), target) => {
                let (view, common) = self.view_mut();
                match view.click(target, common) {
                    Outcome::Pass => return false,
                    outcome => self.carry_on(outcome),
                }
            }
            _ => return false,
        }
        self.common.toast = None;
        true
    }
}
