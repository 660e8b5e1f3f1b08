//! The finder of an open group, which searches only after a process has announced itself.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;

use pfp_read::source::{BadPlace, Candidate, Discovery, Finder, Source, announced};

use super::Machine;

/// Finds the processes of this machine. A group searches at each poll, so this opens segments only
/// after a new announcement.
#[derive(Default)]
pub(super) struct Newcomers {
    seen: BTreeSet<PathBuf>,
    /// Number of polls left that search for processes. More than one is needed, since a process
    /// announces itself a moment before it can be watched.
    looks: u32,
    /// Moment of the last new announcement.
    since: Option<Instant>,
    machine: Machine,
}

impl Newcomers {
    /// Makes a finder that calls `machine` after new announcements only.
    pub(super) fn new(machine: Machine) -> Self {
        Self { machine, ..Self::default() }
    }
}

impl Finder for Newcomers {
    fn discover(&mut self) -> Result<Discovery> {
        const LOOKS: u32 = 3;
        const LOOK_FOR: Duration = Duration::from_secs(2);
        let now = announced();
        if !now.is_subset(&self.seen) {
            self.looks = LOOKS;
            self.since = Some(Instant::now());
        }
        self.seen = now;
        if self.looks == 0 && self.since.is_none_or(|since| since.elapsed() >= LOOK_FOR) {
            let mut discovery = Discovery::default();
            self.machine.add_rooms(&mut discovery);
            return Ok(discovery);
        }
        // For a screen, another search begins in the background once the last one has ended.
        if self.machine.searches_in_background() {
            self.machine.prepare();
        }
        // The last look has the result of a search that began after the announcement.
        if !self.machine.awaits() {
            self.looks = self.looks.saturating_sub(1);
        }
        self.machine.discover()
    }

    fn attach(&mut self, candidate: &Candidate) -> Result<Box<dyn Source>> {
        self.machine.watch(candidate)
    }

    fn bad_places(&mut self) -> Vec<BadPlace> {
        self.machine.bad_places()
    }

    fn let_go(&mut self, segment_id: &str) {
        self.machine.let_go(segment_id);
    }
}
