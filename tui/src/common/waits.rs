//! What the threads of the watched process wait for.

use pfp_model::waits::{SampledStack, WaitsReport, WaitsThread};

/// What a screen shows of the waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitNeeds {
    /// At most a summary.
    #[default]
    Summary,
    /// All reasons.
    Reasons,
    /// The stacks of open regions, each with its reason.
    Stacks,
}

/// The last report of the thread that samples the watched process.
#[derive(Debug, Default)]
pub struct Waits {
    /// The report. `None` before the first.
    pub report: Option<WaitsReport>,
    /// The stacks that were sampled since the poll before, if the screen needs them.
    pub stacks: Vec<SampledStack>,
    /// Why nothing, or less than usual, is known.
    pub note: Option<String>,
    thread: Option<(String, WaitsThread)>,
}

impl Waits {
    /// Samples the process with this segment from now on, or no process. Takes the next report, if
    /// there is one. `needs` says what the screen shows of it. Returns whether the report is another
    /// one now.
    pub(super) fn follow(&mut self, segment_id: Option<&str>, needs: WaitNeeds) -> bool {
        let had = self.report.is_some();
        if self.thread.as_ref().map(|(id, _)| id.as_str()) != segment_id {
            *self = Self::default();
            match segment_id.map(|id| WaitsThread::start(id.to_owned())) {
                Some(Ok(thread)) => self.thread = segment_id.map(|id| (id.to_owned(), thread)),
                Some(Err(error)) => self.note = Some(format!("{error:#}")),
                None => {}
            }
        }
        let Some((_, thread)) = &self.thread else { return had };
        thread.be_thorough(needs != WaitNeeds::Summary);
        thread.need_stacks(needs == WaitNeeds::Stacks);
        match thread.take() {
            Some(Ok((mut report, limit))) => {
                self.stacks = std::mem::take(&mut report.stacks);
                (self.report, self.note) = (Some(report), limit);
                return true;
            }
            Some(Err(why)) => self.note = Some(why),
            None => {}
        }
        had && self.report.is_none()
    }

    /// Whether each sampled stack includes what its thread waits for.
    pub(crate) fn samples_stacks(&self) -> bool {
        let runs = self.thread.as_ref().is_some_and(|(_, thread)| !thread.has_ended());
        self.report.is_some() && runs
    }

    /// Whether a process is sampled.
    pub(crate) fn has_begun(&self) -> bool {
        self.thread.is_some()
    }
}
