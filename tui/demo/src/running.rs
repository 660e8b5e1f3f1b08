//! Whether the demo is to go on.

use std::os::unix::process::parent_id;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::Options;

/// Asked by every thread before its next piece of work; nobody has to be told that it is over.
pub(crate) struct Running {
    stop: Arc<AtomicBool>,
    until: Option<Instant>,
    parent: Option<u32>,
}

impl Running {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            stop: Arc::clone(&options.stop),
            // A time too far away to name is as good as none.
            until: options.run_for.and_then(|run_for| Instant::now().checked_add(run_for)),
            parent: options.parent,
        }
    }

    pub(crate) fn goes_on(&self) -> bool {
        // Relaxed: the flag is all there is to see.
        !self.stop.load(Ordering::Relaxed)
            && self.until.is_none_or(|until| Instant::now() < until)
            && self.parent.is_none_or(|parent| parent_id() == parent)
    }
}
