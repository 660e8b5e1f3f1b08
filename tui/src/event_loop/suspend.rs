//! Stopping and going on under a shell's job control.
//!
//! In raw mode, Ctrl-Z is a key; SIGTSTP comes from elsewhere. In both cases the terminal is given
//! back first, and set up again on SIGCONT, which also comes after a SIGSTOP that no process can
//! see.

use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGCONT, SIGTSTP};

use crate::signals;

/// Knows whether the program was asked to stop, or goes on after a stop.
///
/// Relaxed throughout: each flag alone is the message.
#[derive(Debug)]
pub(super) struct Suspension {
    asked: Arc<AtomicBool>,
    continued: Arc<AtomicBool>,
    /// Whether SIGTSTP was ignored at the start: then no shell would continue the program.
    is_ignored: bool,
}

impl Suspension {
    /// Takes the signals over.
    pub(super) fn install() -> io::Result<Self> {
        let [asked, continued] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let is_ignored = signals::is_ignored(SIGTSTP);
        if !is_ignored {
            signal_hook::flag::register(SIGTSTP, Arc::clone(&asked))?;
        }
        signal_hook::flag::register(SIGCONT, Arc::clone(&continued))?;
        Ok(Self { asked, continued, is_ignored })
    }

    /// Whether a signal has asked to stop since this was last asked.
    pub(super) fn asked(&self) -> bool {
        self.asked.swap(false, Ordering::Relaxed)
    }

    /// Whether the program goes on after a stop, since this was last asked.
    pub(super) fn continued(&self) -> bool {
        self.continued.swap(false, Ordering::Relaxed)
    }

    /// Stops the whole job, like Ctrl-Z in a plain terminal, and returns when it goes on; returns
    /// at once without a shell.
    pub(super) fn stop(&self) -> io::Result<()> {
        if self.is_ignored {
            return Ok(());
        }
        // SAFETY: an all-zero `sigaction` is a valid value of that plain struct.
        let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
        let act = |handler, old: *mut libc::sigaction| {
            // SAFETY: as above.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = handler;
            // SAFETY: both structures live across the call; neither handler is code.
            match unsafe { libc::sigaction(SIGTSTP, &raw const action, old) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // The others first. A signal to a process may come late and to another thread; a raised
        // signal stops before `raise` returns.
        act(libc::SIG_IGN, &raw mut ours)?;
        // SAFETY: sends a signal to the processes of this job.
        unsafe { libc::kill(0, SIGTSTP) };
        act(libc::SIG_DFL, ptr::null_mut())?;
        // SAFETY: stops this process until it is told to go on.
        unsafe { libc::raise(SIGTSTP) };
        // SAFETY: puts back what was there.
        unsafe { libc::sigaction(SIGTSTP, &raw const ours, ptr::null_mut()) };
        self.asked();
        self.continued();
        Ok(())
    }
}
