//! Reads a recording in a thread of its own, since its disk may hang.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};

use pfp_read::snapshot::Snapshot;
use pfp_read::source::{Frames, Growth, ReadingJob, Recording};

/// After a jump, the maximum number of snapshots before the cursor that are read.
const BEFORE: usize = 120;
/// Time limit for reading snapshots other than the one to show.
const READ_LIMIT: Duration = Duration::from_millis(100);

/// A snapshot and its index.
pub(in crate::app) type Placed<T> = (usize, T);

/// What a job reads.
#[derive(Clone, Default)]
pub(super) struct Order {
    /// Whether to look for new snapshots.
    pub(super) refresh: bool,
    /// The snapshots to show.
    pub(super) range: Option<Range>,
    /// Whether to read the records of the last snapshot of the range.
    pub(super) with_records: bool,
    /// A snapshot that was read already, to read its records.
    pub(super) records_of: Option<Placed<Arc<Snapshot>>>,
    /// A snapshot that is to be saved with its records.
    pub(super) save: Option<Placed<Arc<Snapshot>>>,
    /// Indices of the snapshots at which the windows of the screen begin.
    pub(super) windows: Vec<usize>,
}

/// Snapshots of a recording, of which the last is the one to show.
#[derive(Clone, Copy)]
pub(super) enum Range {
    /// The last snapshot, and as many before it as can be read quickly.
    Before(usize),
    /// The snapshots after the first index, up to the second, as far as that is quick.
    Between(usize, usize),
}

/// What a job has read.
#[derive(Default)]
pub(super) struct Found {
    /// Whether a recorder writes to the file, and the new snapshots.
    pub(super) growth: Option<io::Result<(bool, Growth)>>,
    /// The snapshots to show, in the order of their indices.
    pub(super) snapshots: Vec<Placed<Snapshot>>,
    /// Why the last snapshot of the range was not read.
    pub(super) error: Option<Error>,
    /// The snapshot on the screen with its records.
    pub(super) with_records: Option<Snapshot>,
    /// The snapshot to save, with its records.
    pub(super) to_save: Option<Snapshot>,
    pub(super) windows: Vec<Snapshot>,
}

/// A job that reads a recording.
pub(in crate::app) struct Reading {
    pub(super) order: Order,
    job: ReadingJob<Found>,
    since: Instant,
}

impl Order {
    /// Whether there is nothing to read.
    pub(super) fn is_empty(&self) -> bool {
        let snapshots = [&self.records_of, &self.save];
        !self.refresh
            && self.range.is_none()
            && self.windows.is_empty()
            && snapshots.iter().all(|it| it.is_none())
    }

    /// Starts to read.
    pub(super) fn start(self, recording: &Recording, now: Instant) -> io::Result<Reading> {
        let order = self.clone();
        let job = recording.start(move |frames| self.read(frames))?;
        Ok(Reading { order, job, since: now })
    }

    fn read(self, frames: &mut Frames) -> Found {
        let mut found = Found::default();
        if self.refresh {
            // Check `grows` before the refresh. If the recorder ended between a refresh and a later
            // check, the snapshots written in between would never be read.
            let grows = frames.grows();
            found.growth = Some(frames.refresh().map(|growth| (grows, growth)));
        }
        match self.range {
            Some(Range::Before(last)) => found.read_before(frames, last),
            Some(Range::Between(first, last)) => found.read_between(frames, first, last),
            None => {}
        }
        let add_records = |(place, mut snapshot): Placed<Snapshot>| {
            frames.add_records(place, &mut snapshot);
            snapshot
        };
        let copy = |(place, snapshot): Placed<Arc<Snapshot>>| (place, Snapshot::clone(&snapshot));
        let shown = found.snapshots.last().filter(|_| self.with_records).cloned();
        found.with_records = shown.or(self.records_of.map(copy)).map(add_records);
        found.to_save = self.save.map(copy).map(add_records);
        // A damaged snapshot is skipped. Without a snapshot to show, the windows are of no use.
        let windows = self.windows.into_iter().filter(|_| found.error.is_none());
        found.windows = windows.filter_map(|place| frames.snapshot(place).ok()).collect();
        found
    }
}

impl Range {
    /// Index of the snapshot to show.
    pub(super) fn last(self) -> usize {
        let (Self::Before(last) | Self::Between(_, last)) = self;
        last
    }
}

impl Found {
    pub(super) fn failed(error: Error) -> Self {
        Self { error: Some(error), ..Self::default() }
    }

    fn read_before(&mut self, frames: &mut Frames, last: usize) {
        let start = Instant::now();
        match frames.snapshot(last) {
            Ok(snapshot) => self.snapshots.push((last, snapshot)),
            Err(error) => return self.error = Some(error),
        }
        for place in (0..last).rev().take(BEFORE) {
            if self.snapshots.len() > 1 && start.elapsed() > READ_LIMIT {
                break;
            }
            // Stop at a damaged snapshot: the history begins after it.
            let Ok(snapshot) = frames.snapshot(place) else { break };
            self.snapshots.push((place, snapshot));
        }
        self.snapshots.reverse();
    }

    fn read_between(&mut self, frames: &mut Frames, first: usize, last: usize) {
        let start = Instant::now();
        for place in first + 1..=last {
            if place + 1 < last && start.elapsed() > READ_LIMIT {
                continue;
            }
            match frames.snapshot(place) {
                Ok(snapshot) => self.snapshots.push((place, snapshot)),
                Err(error) => return self.error = Some(error),
            }
        }
    }
}

impl Reading {
    /// What was read. `None` if the job still reads.
    pub(super) fn found(&self) -> Option<Result<Found>> {
        self.job.result()
    }

    /// How long the job has read.
    pub(super) fn age(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }
}
