//! The event loop: poll, mend, draw, wait for a key; and the terminal, which
//! is given back however it ends.

use std::io;
use std::mem::ManuallyDrop;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::event::{self, Event};
use ratatui::DefaultTerminal;
use ratatui::layout::{Position, Rect};

use super::App;
use crate::interrupt::Interrupt;
use crate::view::{self, Look};

/// How long a signal to leave may go unnoticed at most.
const PATIENCE: Duration = Duration::from_millis(200);

/// The terminal, given back when dropped. A panic is covered by the hook that
/// `ratatui::try_init` sets, which also restores before the message is shown.
///
/// Neither `ratatui::restore` nor the drop of its terminal is called: when the
/// terminal is gone they complain about it to that very terminal, panic because
/// they cannot, and the toggles would never be put back.
struct Screen(ManuallyDrop<DefaultTerminal>);

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.0.show_cursor();
        let _ = ratatui::try_restore();
    }
}

/// Runs the viewer in the terminal until the user leaves or a signal asks to.
pub fn run(app: &mut App, look: &Look, interrupt: &Interrupt) -> Result<()> {
    let terminal = ratatui::try_init().context("the terminal cannot be used")?;
    let mut screen = Screen(ManuallyDrop::new(terminal));
    let mut changed = true;
    while !app.quit && !interrupt.raised() {
        let now = Instant::now();
        if app.next_poll().is_some_and(|due| due <= now) {
            app.poll(now);
            changed = true;
        }
        let area = Rect::from((Position::ORIGIN, screen.0.size()?));
        changed |= app.settle(view::room(app, look, area), now);
        if changed {
            screen.0.draw(|frame| view::draw(frame, app, look))?;
        }
        changed = take_input(app)?;
    }
    Ok(())
}

/// Waits for input until something is due, then takes all there is. Returns
/// whether there was any.
fn take_input(app: &mut App) -> io::Result<bool> {
    let now = Instant::now();
    let wait = app.next_change().map_or(PATIENCE, |due| due.saturating_duration_since(now));
    let mut any = false;
    // The terminal itself is asked first: of one that is gone, crossterm would
    // read the end again and again and never return.
    if is_gone(wait.min(PATIENCE)) {
        app.quit = true;
        return Ok(false);
    }
    while event::poll(Duration::ZERO)? {
        match event::read()? {
            Event::Key(key) => app.key(key, Instant::now()),
            // Whatever the new size is, the next drawing asks for it.
            Event::Resize(..) => {}
            _ => {}
        }
        any = true;
        if app.quit {
            break;
        }
    }
    Ok(any)
}

/// Waits until there is input, a signal, or no more time; true if the terminal
/// has been taken away. Where standard input is no terminal, crossterm finds one
/// by itself and this only waits.
fn is_gone(wait: Duration) -> bool {
    let mut input = libc::pollfd { fd: libc::STDIN_FILENO, events: libc::POLLIN, revents: 0 };
    // SAFETY: asks about a descriptor; a closed one is answered with 0.
    if unsafe { libc::isatty(libc::STDIN_FILENO) } == 0 {
        // One that is gone is not a terminal either.
        input.events = 0;
    }
    let milliseconds = wait.as_millis().min(i32::MAX as u128) as i32;
    // SAFETY: one descriptor in a structure that we own.
    let ready = unsafe { libc::poll(&raw mut input, 1, milliseconds) };
    ready > 0 && input.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
}
