//! A recording as a source: it yields the snapshot at its cursor.

use anyhow::Result;

use super::guard::clean_places;
use super::{BadPlace, Source};
use crate::files::recording::Recording;
use crate::snapshot::Snapshot;

impl Source for Recording {
    fn picture(&mut self) -> Result<Snapshot> {
        self.shown()
    }

    fn add_records(&mut self, snapshot: &mut Snapshot) {
        Self::add_records(self, snapshot);
    }

    fn recording(&mut self) -> Option<&mut Recording> {
        Some(self)
    }

    fn is_process(&self) -> bool {
        false
    }

    fn read_only(&self) -> Option<&str> {
        Some("a recording cannot be changed; attach to the process instead")
    }

    fn bad_places(&self) -> Vec<BadPlace> {
        clean_places(self.late_places().to_vec())
    }
}
