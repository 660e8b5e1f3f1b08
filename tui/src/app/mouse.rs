//! The mouse: a click selects a row, opens the selected row, switches a point by its mark, or sorts
//! by the clicked heading. The wheel scrolls; over the timeline or the load history it zooms, and
//! a drag there moves the time.

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
        if event == MouseEventKind::Down(MouseButton::Left) {
            self.grabbed = target;
        }
        // A message stays until an event has an effect. Take the old message first, since the
        // effect may show a new one.
        let toast = self.common.toast.take();
        let has_effect = self.act_by_mouse(event, target);
        if !has_effect {
            self.common.toast = toast;
        }
        has_effect
    }

    fn act_by_mouse(&mut self, event: MouseEventKind, target: MouseTarget) -> bool {
        let in_prompt = !matches!(self.overlay, None | Some(Overlay::Help(_)));
        let grabbed = self.grabbed;
        let (view, common) = (self.screens.get_mut(self.screen), &mut self.common);
        let outcome = match (event, target) {
            (MouseEventKind::Down(MouseButton::Left), MouseTarget::Key(action)) => {
                Outcome::Act(action)
            }
            _ if in_prompt => Outcome::Pass,
            (MouseEventKind::ScrollUp | MouseEventKind::ScrollDown, _) => {
                let up = event == MouseEventKind::ScrollUp;
                match view.wheel(up, target, common) {
                    Outcome::Pass => {
                        self.scroll(if up { -NOTCH } else { NOTCH });
                        Outcome::Done
                    }
                    outcome => outcome,
                }
            }
            (MouseEventKind::Down(MouseButton::Left), MouseTarget::Tab(screen)) => {
                Outcome::Show(screen)
            }
            (MouseEventKind::Down(MouseButton::Left), _) => view.click(target, common),
            (MouseEventKind::Drag(MouseButton::Left), _) => view.drag(grabbed, target, common),
            _ => Outcome::Pass,
        };
        let has_effect = !matches!(outcome, Outcome::Pass);
        self.carry_on(outcome);
        has_effect
    }
}
