//! A recording as a source: it yields the moment at its cursor.

use anyhow::{Result, bail};

use super::{BadPlace, Change, Source};
use crate::files::recording::Recording;
use crate::snapshot::Snapshot;

const READ_ONLY: &str = "a recording cannot be changed; attach to the process instead";

impl Source for Recording {
    fn poll(&mut self) -> Result<Snapshot> {
        self.shown()
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        Self::add_records(self, snapshot);
    }

    fn act(&mut self, _change: Change) -> Result<()> {
        bail!(READ_ONLY)
    }

    fn recording(&mut self) -> Option<&mut Recording> {
        Some(self)
    }

    fn is_process(&self) -> bool {
        false
    }

    fn read_only(&self) -> Option<&str> {
        Some(READ_ONLY)
    }

    fn bad_places(&self) -> Vec<BadPlace> {
        self.late_places().to_vec()
    }
}
