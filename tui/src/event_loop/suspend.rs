//! Stopping and continuing under a shell's job control.
//!
//! In raw mode, Ctrl-Z is a key; SIGTSTP is sent by another process. In both cases the terminal is
//! restored before the stop, and set up again on SIGCONT. A SIGSTOP cannot be caught, but the
//! SIGCONT that follows can.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCONT, SIGTSTP};

use crate::signals;

/// Knows whether the program was asked to stop, or continues after a stop.
///
/// Relaxed throughout: the flags publish no other data.
#[derive(Debug)]
pub(super) struct Suspension {
    asked: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
    /// Whether SIGTSTP was ignored at the start. If so, no shell would continue a stopped program.
    is_ignored: bool,
}

impl Suspension {
    /// Installs handlers for both signals.
    pub(super) fn install() -> io::Result<Self> {
        let [asked, continued] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let is_ignored = signals::is_ignored(SIGTSTP);
        if !is_ignored {
            signal_hook::flag::register(SIGTSTP, Arc::clone(&asked))?;
        }
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        Ok(Self { asked, continued, is_ignored })
    }

    /// Whether a signal to stop has arrived since the last call.
    pub(super) fn asked(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// Whether the program has continued after a stop since the last call.
    pub(super) fn continued(&self) -> bool {
        self.continued.swap(false, Ordering::Relaxed)
    }

    /// Stops the whole job, as Ctrl-Z does in cooked mode, and returns when it continues. Returns
    /// at once if there is no shell to continue it.
    pub(super) fn stop(&self) -> io::Result<()> {
        if self.is_ignored {
            return Ok(());
        }
        // SAFETY: a `sigaction` is plain numbers and a null handler; all zeros is a valid value.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        let act = |handler, old: *mut libc::sigaction| {
            // SAFETY: a `sigaction` is plain numbers and a null handler; all zeros is a valid
            // value.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler;
            // SAFETY: `action` and `old` are valid during the call, or `old` is null; SIG_IGN and
            // SIG_DFL run no code.
            match unsafe { libc::sigaction(SIGTSTP, &raw const action, old) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // Stop the other processes first, with SIGTSTP ignored here: a signal to a process may
        // arrive late and on another thread, whereas `raise` stops this process before it returns.
        act(libc::SIG_IGN, &raw mut ours)?;
        // SAFETY: `kill` takes plain numbers; 0 means the processes of this group.
        unsafe { libc::kill(0, SIGTSTP) };
        act(libc::SIG_DFL, ptr::null_mut())?;
        // SAFETY: `raise` takes a plain number; it stops this process until SIGCONT.
        unsafe { libc::raise(SIGTSTP) };
        // SAFETY: `ours` was filled by the first call and is live; null means that the old action
        // is not returned.
        unsafe { libc::sigaction(SIGTSTP, &raw const ours, ptr::null_mut()) };
        self.asked();
        self.continued();
        Ok(())
    }
}
