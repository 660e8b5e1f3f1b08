//! The event loop: poll, mend, draw, wait for a key; and the terminal, which
//! is given back however it ends.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event::{self, Event};
use ratatui::layout::{Position, Rect};

use super::App;
use crate::interrupt::Interrupt;
use crate::view::{self, Look};

/// How long a signal to leave may go unnoticed at most.
const PATIENCE: Duration = Duration::from_millis(200);

/// Gives the terminal back when dropped. A panic is covered by the hook that
/// `ratatui::try_init` sets, which also restores before the message is shown.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Runs the viewer in the terminal until the user leaves or a signal asks to.
pub fn run(app: &mut App, look: &Look, interrupt: &Interrupt) -> Result<()> {
    let mut terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let _restore = Restore;
    let mut changed = true;
    while !app.quit && !interrupt.raised() {
        let now = Instant::now();
        if app.next_poll().is_some_and(|due| due <= now) {
            app.poll(now);
            changed = true;
        }
        let area = Rect::from((Position::ORIGIN, terminal.size()?));
        changed |= app.settle(view::room(app, look, area), now);
        if changed {
            terminal.draw(|frame| view::draw(frame, app, look))?;
        }
        changed = take_input(app)?;
    }
    Ok(())
}

/// Waits for input until something is due, then takes all there is. Returns
/// whether there was any.
fn take_input(app: &mut App) -> io::Result<bool> {
    let now = Instant::now();
    let wait = app
        .next_change()
        .map_or(PATIENCE, |due| due.saturating_duration_since(now));
    let mut any = false;
    let mut wait = wait.min(PATIENCE);
    while event::poll(wait)? {
        match event::read()? {
            Event::Key(key) => app.key(key, Instant::now()),
            // Whatever the new size is, the next drawing asks for it.
            Event::Resize(..) => {}
            _ => {}
        }
        any = true;
        wait = Duration::ZERO;
        if app.quit {
            break;
        }
    }
    Ok(any)
}
