//! What the threads of a process wait for, sampled in a thread.

use std::sync::Arc;

use crate::waits::{WaitNeeds, WaitsReport, WaitsThread};

/// The last report of the thread that samples the process.
#[derive(Debug, Default)]
pub(super) struct Waits {
    thread: Option<WaitsThread>,
    /// `None` before anybody needs a report.
    report: Option<Arc<WaitsReport>>,
}

impl Waits {
    /// Samples the process with this segment from now on as far as `needs` says. With
    /// [`WaitNeeds::Nothing`], ends the thread and drops the report.
    pub(super) fn need(&mut self, needs: WaitNeeds, segment: u128) {
        if needs == WaitNeeds::Nothing {
            *self = Self::default();
            return;
        }
        if self.report.is_none() {
            let started = WaitsThread::start(format!("{segment:032x}"), needs);
            let limit = started.as_ref().err().map(|error| format!("{error:#}"));
            self.thread = started.ok();
            self.report = Some(Arc::new(WaitsReport { limit, ..WaitsReport::default() }));
        }
        if let Some(thread) = &self.thread {
            thread.need(needs);
        }
    }

    /// The last report, which is empty before the first sample. It stays once the process has
    /// ended.
    pub(super) fn report(&mut self) -> Option<Arc<WaitsReport>> {
        if let Some(next) = self.thread.as_ref().and_then(WaitsThread::take) {
            self.report = Some(Arc::new(next));
        }
        self.report.clone()
    }
}
