//! The terminal modes for a screen: raw input, the alternate screen, clicks, pasting.
//!
//! One guard sets them, and every exit restores all of them: an error while they are being set, the
//! end of the screen, a panic, and a signal while the screen is stuck.

use std::io::{self, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, disable_raw_mode, enable_raw_mode};

/// Enables clicks, the wheel and drags, with coordinates of any size. Unlike crossterm's command,
/// it leaves out movement without a pressed button. Terminals that do not know drags keep to
/// clicks.
const MOUSE_ON: &[u8] = b"\x1b[?1000h\x1b[?1002h\x1b[?1006h";
/// Makes the terminal mark pasted text, which distinguishes it from typed keys.
const PASTE_ON: &[u8] = b"\x1b[?2004h";
/// Disables everything again: mouse, pasting, the alternate screen; and shows the cursor.
const ALL_OFF: &[u8] = b"\x1b[?1006l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[?1049l\x1b[?25h";

/// Whether the terminal may have modes that must be restored.
///
/// Relaxed throughout: the flag only decides which thread restores the modes, and orders nothing
/// else.
static SET: AtomicBool = AtomicBool::new(false);

/// Restores the modes when dropped, and before the message of a panic.
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
        // If setting a mode fails, dropping `modes` restores those that are set already.
        let modes = Self { mouse };
        modes.set_again()?;
        Ok(modes)
    }

    /// Sets the modes again, whatever state the terminal is in.
    pub(crate) fn set_again(&self) -> io::Result<()> {
        SET.store(true, Ordering::Relaxed);
        // crossterm does not set raw mode if it believes that the mode is on.
        disable_raw_mode()?;
        enable_raw_mode()?;
        execute!(io::stdout(), EnterAlternateScreen)?;
        write_all(PASTE_ON)?;
        if self.mouse {
            write_all(MOUSE_ON)?;
        }
        Ok(())
    }

    /// Restores the modes until [`Self::set_again`] is called.
    pub(crate) fn pause(&self) {
        put_back();
    }
}

impl Drop for Modes {
    fn drop(&mut self) {
        put_back();
    }
}

/// Restores the modes, but only once. Restoring them again would move the cursor, and the shell
/// would overwrite the message of a panic.
fn put_back() {
    if SET.swap(false, Ordering::Relaxed) {
        // Errors mean that the terminal is gone. The write may block, so it comes last.
        let _ = disable_raw_mode();
        let _ = write_all(ALL_OFF);
    }
}

/// Restores the modes while the screen's thread is stuck. It does not use `io::stdout`, whose lock
/// that thread may hold.
pub(crate) fn put_back_stuck() {
    if SET.swap(false, Ordering::Relaxed) {
        let mut output =
            libc::pollfd { fd: libc::STDOUT_FILENO, events: libc::POLLOUT, revents: 0 };
        // SAFETY: `output` and the static slice are valid during the calls, with the right lengths.
        unsafe {
            if libc::poll(&raw mut output, 1, 0) == 1 {
                libc::write(output.fd, ALL_OFF.as_ptr().cast(), ALL_OFF.len());
            }
        }
        let _ = disable_raw_mode();
    }
}

/// Writes directly, bypassing the frame's buffer.
fn write_all(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout();
    out.write_all(bytes)?;
    out.flush()
}
