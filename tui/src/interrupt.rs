//! Signals that ask the program to end: SIGINT, SIGTERM, SIGHUP.
//!
//! A signal that was ignored when the program started stays ignored, as under `nohup`. In the
//! terminal's raw mode, Ctrl-C is a key and raises no signal. A command that is stuck, for instance
//! in a write to a full pipe, is ended `GRACE` after the signal.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::{process, thread, time::Duration};

use anyhow::{Context, Result};
use libc::c_int;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::{modes, signals};

/// The time a command may take to end after a signal.
const GRACE: Duration = Duration::from_secs(3);
/// Exit status of a command that a signal ended, as in shells.
pub const INTERRUPTED: u8 = 130;

/// The handlers of these signals. Shows whether a signal has asked the program to end.
#[derive(Debug)]
pub struct Interrupt {
    /// The number of the last signal; 0 before the first.
    raised: Arc<AtomicI32>,
    wake: Receiver<()>,
}

impl Interrupt {
    /// Installs the handlers. Whatever the command is doing, the process ends within `GRACE`
    /// after a signal.
    pub fn install() -> Result<Self> {
        Self::install_with(|| {
            thread::sleep(GRACE);
            modes::put_back_stuck();
            process::exit(INTERRUPTED.into());
        })
    }

    /// Installs the handlers without a time limit. The command itself must limit what it does
    /// after a signal, such as waiting for a child or a last push.
    pub fn install_without_time_limit() -> Result<Self> {
        Self::install_with(|| {})
    }

    fn install_with(at_last: impl Fn() + Send + Sync + 'static) -> Result<Self> {
        let raised = Arc::new(AtomicI32::new(0));
        let (send, wake) = mpsc::channel();
        let flag = Arc::clone(&raised);
        let asked_by = Arc::new(move |signal| {
            // Relaxed: the store publishes no other data.
            flag.store(signal, Ordering::Relaxed);
            // Sending fails only without a receiver, and then no thread waits.
            let _ = send.send(());
            at_last();
        });
        let taken = |signal: &c_int| !signals::is_ignored(*signal);
        if taken(&SIGINT) {
            let asked_by = Arc::clone(&asked_by);
            ctrlc::set_handler(move || asked_by(SIGINT))
                .context("cannot install a handler for SIGINT")?;
        }
        let mut others = Signals::new([SIGTERM, SIGHUP].iter().filter(|signal| taken(signal)))
            .context("cannot install handlers for SIGTERM and SIGHUP")?;
        let wait = move || others.forever().for_each(|signal| asked_by(signal));
        thread::Builder::new().name("signals".into()).spawn(wait)?;
        Ok(Self { raised, wake })
    }

    /// Whether the program was asked to end.
    pub fn raised(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that asked the program to end.
    pub fn signal(&self) -> Option<c_int> {
        Some(self.raised.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// Waits until a signal asks the program to end.
    pub fn wait(&self) {
        while self.sleep(Duration::MAX) {}
    }

    /// Sleeps, or returns early when asked to end; returns whether it slept the whole time.
    pub fn sleep(&self, time: Duration) -> bool {
        if !self.raised() {
            // Ignore whether the wait timed out or was woken: the flag has the result.
            let _ = self.wake.recv_timeout(time);
        }
        !self.raised()
    }
}
