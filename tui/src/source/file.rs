//! A snapshot file as a source: one picture, always the same.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Change, Source};
use crate::export::json;
use crate::snapshot::Snapshot;

/// A snapshot that was written to a file.
#[derive(Debug)]
pub struct FileSource {
    snapshot: Snapshot,
}

impl FileSource {
    /// Reads the file; see [`json::read`] for what can be wrong with it.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self { snapshot: json::read(path)? })
    }
}

const READ_ONLY: &str = "a snapshot file cannot be changed; attach to the process instead";

impl Source for FileSource {
    fn poll(&mut self) -> Result<Snapshot> {
        Ok(self.snapshot.clone())
    }

    fn act(&mut self, _change: Change) -> Result<()> {
        bail!(READ_ONLY)
    }

    fn is_process(&self) -> bool {
        false
    }

    fn read_only(&self) -> Option<&str> {
        Some(READ_ONLY)
    }
}
