//! Signals that ask the program to end: SIGINT, SIGTERM, SIGHUP.
//!
//! In the terminal's raw mode, Ctrl-C comes as a key. Otherwise, and for the other two always, the
//! signal comes here. A command that is stuck, for instance writing to a pipe that nobody reads, is
//! ended after `GRACE`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::{process, thread, time::Duration};

use anyhow::{Context, Result};
use crossterm::terminal::{disable_raw_mode, is_raw_mode_enabled};

/// The time a command may take to end when asked to.
const GRACE: Duration = Duration::from_secs(3);
/// Exit status of a command that a signal ended, like in shells.
pub const INTERRUPTED: u8 = 130;

/// Gives the terminal back while its screen is stuck. Nothing else can be restored from here.
fn give_back_terminal() {
    /// Mouse off, alternate screen off, cursor on.
    const BACK: &[u8] = b"\x1b[?1006l\x1b[?1000l\x1b[?1049l\x1b[?25h";
    if is_raw_mode_enabled().unwrap_or_default() {
        let mut output =
            libc::pollfd { fd: libc::STDOUT_FILENO, events: libc::POLLOUT, revents: 0 };
        // Not by `io::stdout`: the thread that is stuck may hold its lock.
        // SAFETY: one descriptor, and a slice with its length.
        unsafe {
            if libc::poll(&raw mut output, 1, 0) == 1 {
                libc::write(output.fd, BACK.as_ptr().cast(), BACK.len());
            }
        }
    }
    let _ = disable_raw_mode();
}

/// Knows whether the program was asked to end.
#[derive(Debug)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    wake: Receiver<()>,
}

impl Interrupt {
    /// Takes the signals over. Once per process. Whatever the command is doing, the process
    /// ends soon after a signal.
    pub fn install() -> Result<Self> {
        Self::install_with(|| {
            thread::sleep(GRACE);
            give_back_terminal();
            process::exit(INTERRUPTED.into());
        })
    }

    /// Takes the signals over for a command that has its own limit for ending: a child's, or a last
    /// push's.
    pub fn install_patiently() -> Result<Self> {
        Self::install_with(|| {})
    }

    fn install_with(at_last: impl Fn() + Send + 'static) -> Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        let (send, wake) = mpsc::channel();
        let flag = Arc::clone(&raised);
        ctrlc::set_handler(move || {
            // Relaxed: the flag alone is the message.
            flag.store(true, Ordering::Relaxed);
            // If nobody listens any more, nobody needs waking.
            let _ = send.send(());
            at_last();
        })
        .context("signals cannot be taken over")?;
        Ok(Self { raised, wake })
    }

    /// Whether the program was asked to end.
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Sleeps, or wakes up early when asked to end; returns whether it slept
    /// through.
    pub fn sleep(&self, time: Duration) -> bool {
        if !self.raised() {
            // The flag tells both outcomes apart.
            let _ = self.wake.recv_timeout(time);
        }
        !self.raised()
    }
}
