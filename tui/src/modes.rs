//! The modes of a terminal that has a screen: raw input, the alternate screen, clicks, pasting.
//!
//! One guard sets them, and every way out puts back all of them: an error while they are being set,
//! the end of the screen, a panic, and a signal while the screen is stuck.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};

/// Turns on clicks and the wheel, with coordinates of any size. Unlike crossterm's command, it
/// leaves out mouse movement.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1006h";
/// Makes the terminal mark pasted text, so that it differs from typed keys.
const PASTE_ON: &[u8] = b"\x1b[?2004h";
/// Turns everything off again: mouse, pasting, the alternate screen; and shows the cursor.
const ALL_OFF: &[u8] = b"\x1b[?1006l\x1b[?1000l\x1b[?2004l\x1b[?1049l\x1b[?25h";

/// Whether any mode may be set.
///
/// Relaxed throughout: the flag decides who puts the modes back, and orders nothing else.
static SET: AtomicBool = AtomicBool::new(false);

/// Puts the modes back when dropped, and before the message of a panic.
#[derive(Debug)]
pub(crate) struct Modes {
    mouse: bool,
}

impl Modes {
    /// Sets the modes.
    pub(crate) fn set(mouse: bool) -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let message = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                put_back();
                message(panic);
            }));
        });
        // If setting a mode fails, dropping `modes` puts back the modes that are set already.
        let modes = Self { mouse };
        modes.set_again()?;
        Ok(modes)
    }

    /// Sets them once more, whatever state the terminal is in.
    pub(crate) fn set_again(&self) -> io::Result<()> {
        SET.store(true, Ordering::Relaxed);
        // crossterm does not set raw mode again while it believes that the mode is on.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        write_all(PASTE_ON)?;
        if self.mouse {
            write_all(MOUSE_ON)?;
        }
        Ok(())
    }

    /// Puts them back for a while.
    pub(crate) fn pause(&self) {
        put_back();
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        put_back();
    }
}

/// Puts the modes back, once: a second time would move the cursor, and the shell would write over
/// the message of a panic.
fn put_back() {
    if SET.swap(false, Ordering::Relaxed) {
        // Errors mean that the terminal is gone. The write may block, so it comes last.
        let _ = disable_raw_mode();
        let _ = write_all(ALL_OFF);
    }
}

/// Puts the modes back while the screen's thread is stuck, perhaps with the lock of `io::stdout`.
pub(crate) fn put_back_stuck() {
    if SET.swap(false, Ordering::Relaxed) {
        let mut output =
            libc::pollfd { fd: libc::STDOUT_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one descriptor in a structure that we own, and a static slice with its length.
        unsafe {
            if libc::poll(&raw mut output, 1, 0) == 1 {
                libc::write(output.fd, ALL_OFF.as_ptr().cast(), ALL_OFF.len());
            }
        }
        let _ = disable_raw_mode();
    }
}

/// Writes at once, past the frame's buffer.
fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(bytes)?;
    out.flush()
}
