//! The event loop: poll, settle, draw, wait for a key. It also owns the terminal, and restores it
//! whatever ends the loop.

mod input;
mod suspend;

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Stdout};
use std::mem::ManuallyDrop;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use crossterm::clipboard::CopyToClipboard;
use crossterm::event::{self, Event};
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use crossterm::{execute, queue};
use ratatui::backend::CrosstermBackend;
use ratatui::layout::{Position, Rect};
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use self::input::Input;
use self::suspend::Suspension;
use crate::app::App;
use crate::common::Errand;
use crate::interrupt::Interrupt;
use crate::modes::Modes;
use crate::view;

/// Maximum time until the loop notices a signal that ends the program.
const SIGNAL_CHECK: Duration = Duration::from_millis(200);
/// Columns and rows of a terminal that does not report its size.
const UNKNOWN_SIZE: (u16, u16) = (80, 24);
/// Buffer size larger than a frame, so that a frame is written to the terminal in one piece.
const FRAME_BYTES: usize = 1 << 16;

/// Maximum width of a frame, and maximum number of its cells. An 8K screen with the smallest
/// readable font has fewer.
const MOST_COLUMNS: u16 = 2_000;
const MOST_CELLS: u32 = 1 << 19;

/// The terminal. Dropping it, also by a panic, restores the terminal.
///
/// ratatui's terminal is never dropped: if the terminal is gone, its drop tries to print an error
/// there and panics, and toggled points would never be restored.
struct TerminalScreen {
    terminal: ManuallyDrop<Terminal<CrosstermBackend<BufWriter<Stdout>>>>,
    area: Rect,
    modes: Modes,
    keyboard: Keyboard,
}

impl TerminalScreen {
    fn new(mouse: bool) -> io::Result<Self> {
        let keyboard = Keyboard::open()?;
        let modes = Modes::set(mouse)?;
        // After this call, crossterm reports a change of the size as an event.
        event::poll(Duration::ZERO)?;
        let area = area()?;
        let backend = CrosstermBackend::new(BufWriter::with_capacity(FRAME_BYTES, io::stdout()));
        // With another viewport, ratatui would query the size for every frame.
        let options = TerminalOptions { viewport: Viewport::Fixed(area) };
        let terminal = ManuallyDrop::new(Terminal::with_options(backend, options)?);
        let mut screen = Self { terminal, area, modes, keyboard };
        // Without an alternate screen, old text would stay between the rows.
        screen.clear()?;
        Ok(screen)
    }

    /// Draws a frame. Terminals with synchronized output show it all at once.
    fn draw(&mut self, frame: impl FnOnce(&mut Frame)) -> io::Result<()> {
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(frame)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Takes over the terminal again, whatever state it is in.
    fn enter(&mut self) -> io::Result<()> {
        self.modes.set_again()?;
        self.clear()
    }

    /// Clears the screen and adopts the terminal's size. Unlike `Terminal::clear`, it does not
    /// query the position of the cursor, since not every terminal answers.
    fn clear(&mut self) -> io::Result<()> {
        self.area = area()?;
        self.terminal.resize(self.area)
    }
}

/// The part of the terminal that is drawn on.
fn area() -> io::Result<Rect> {
    // A serial line does not report its size.
    let (width, height) = match crossterm::terminal::size()? {
        (0, _) | (_, 0) => UNKNOWN_SIZE,
        size => size,
    };
    Ok(bounded(width, height))
}

/// The whole terminal, or its top left part. This limits the memory of a frame, whatever size the
/// terminal reports.
fn bounded(width: u16, height: u16) -> Rect {
    let width = width.min(MOST_COLUMNS);
    let rows = MOST_CELLS / u32::from(width.max(1));
    let height = u32::from(height).min(rows) as u16;
    Rect::from((Position::ORIGIN, (width, height).into()))
}

/// The kinds of input that [`take_input`] handled.
#[derive(Default)]
struct InputKinds {
    any: bool,
    resized: bool,
}

/// Runs the viewer in the terminal until the user leaves or a signal asks it to end.
pub fn run(app: &mut App, interrupt: &Interrupt) -> Result<()> {
    let suspension = Suspension::install().context("cannot install signal handlers")?;
    let mouse = app.common.options.mouse;
    let mut screen = TerminalScreen::new(mouse).context("the terminal cannot be used")?;
    let mut input = Input::new();
    let mut changed = true;
    while !app.quit && !interrupt.raised() {
        let now = Instant::now();
        if app.next_poll().is_some_and(|due| due <= now) {
            app.poll(now);
            changed = true;
        }
        if app.next_check().is_some_and(|due| due <= now) {
            app.check(now);
            changed = true;
        }
        changed |= view::settle(app, screen.area, now);
        if changed {
            screen.draw(|frame| view::draw(frame, app))?;
        }
        let taken = take_input(app, &screen, &mut input)?;
        let mut suspend = suspension.asked();
        match app.common.errand.take() {
            Some(Errand::Copy(text)) => {
                execute!(io::stdout(), CopyToClipboard::to_clipboard_from(text))?;
            }
            Some(Errand::Redraw) => screen.clear()?,
            Some(Errand::Suspend) => suspend = true,
            None => {}
        }
        // If input and a new size arrive at the same moment, crossterm may report only the input.
        let resized = !app.quit && (taken.resized || area()? != screen.area);
        if resized {
            screen.clear()?;
        }
        changed = taken.any || resized;
        if suspend {
            screen.modes.pause();
            suspension.stop()?;
            screen.enter()?;
            changed = true;
        } else if suspension.continued() {
            screen.enter()?;
            changed = true;
        }
    }
    Ok(())
}

/// Waits for input until something is due, then handles all input that has arrived. Stops early at
/// an errand.
fn take_input(app: &mut App, screen: &TerminalScreen, input: &mut Input) -> io::Result<InputKinds> {
    let mut taken = InputKinds::default();
    if input.is_empty() {
        let now = Instant::now();
        let wait = app.next_change().map_or(SIGNAL_CHECK, |due| due.saturating_duration_since(now));
        let is_there = event::poll(Duration::ZERO)?;
        let wait = if is_there { Duration::ZERO } else { wait.min(SIGNAL_CHECK) };
        // Check the terminal first: if it is gone, crossterm would read end-of-file in an endless
        // loop.
        if screen.keyboard.is_gone(wait) {
            app.quit = true;
            return Ok(taken);
        }
        let is_typing = app.overlay.as_ref().is_some_and(|overlay| overlay.prompt().is_some());
        input.read((!is_there).then(Instant::now), is_typing)?;
    }
    while let Some(event) = input.next() {
        match event {
            Event::Key(key) => {
                app.key(key, Instant::now());
                taken.any = true;
            }
            Event::Mouse(mouse) => {
                let now = Instant::now();
                let place = Position { x: mouse.column, y: mouse.row };
                let target = view::hit(app, screen.area, place);
                taken.any |= app.mouse(mouse.kind, target, now);
                // The next event refers to the screen as this event has changed it.
                view::settle(app, screen.area, now);
            }
            Event::Paste(text) => {
                app.paste(&text, Instant::now());
                taken.any = true;
            }
            Event::Resize(..) => {
                taken.resized = true;
            }
            _ => {}
        }
        if app.quit || app.common.errand.is_some() {
            break;
        }
    }
    Ok(taken)
}

/// The terminal for keys, chosen as crossterm does: standard input, or else the process's terminal.
struct Keyboard(Option<File>);

impl Keyboard {
    fn open() -> io::Result<Self> {
        let is_input = io::stdin().is_terminal();
        Ok(Self(if is_input { None } else { Some(File::open("/dev/tty")?) }))
    }

    /// Waits for input or a signal, for at most this time. Returns true if the terminal is gone.
    fn is_gone(&self, wait: Duration) -> bool {
        let fd = self.0.as_ref().map_or(libc::STDIN_FILENO, AsRawFd::as_raw_fd);
        let mut input = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // Round up, since waits of 0 ms would spin.
        let milliseconds = wait.as_micros().div_ceil(1000).min(i32::MAX as u128) as i32;
        // SAFETY: `input` is one live `pollfd`, and the count is 1.
        let ready = unsafe { libc::poll(&raw mut input, 1, milliseconds) };
        ready > 0 && input.revents & (libc::POLLHUP | libc::POLLERR | libc::POLLNVAL) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_bounded_number_of_cells() {
        for (width, height) in [(0, 0), (80, 24), (1_300, 400), (300, 1_500)] {
            assert_eq!(bounded(width, height), Rect::new(0, 0, width, height));
        }
        for (width, height) in [(u16::MAX, u16::MAX), (u16::MAX, 1), (1, u16::MAX), (0, u16::MAX)] {
            let area = bounded(width, height);
            assert!(u32::from(area.width) * u32::from(area.height) <= MOST_CELLS, "{area}");
            assert!(area.width <= width && area.height <= height, "{area}");
        }
    }
}
