//! Signals that ask the program to end: SIGINT, SIGTERM, SIGHUP.
//!
//! In the terminal's raw mode Ctrl-C comes as a key; everywhere else, and for
//! the other two always, the signal comes here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context, Result};

/// Knows whether the program was asked to end.
#[derive(Debug)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    wake: Receiver<()>,
}

impl Interrupt {
    /// Takes the signals over. Once per process.
    pub fn install() -> Result<Self> {
        let raised = Arc::new(AtomicBool::new(false));
        let (send, wake) = mpsc::channel();
        let flag = Arc::clone(&raised);
        ctrlc::set_handler(move || {
            // Relaxed: the flag alone is the message.
            flag.store(true, Ordering::Relaxed);
            // Nobody may be listening any more; then nobody needs waking.
            let _ = send.send(());
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
            // Both outcomes are told apart by the flag.
            let _ = self.wake.recv_timeout(time);
        }
        !self.raised()
    }
}
