//! A file as a source: one picture, always the same.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, anyhow, bail};
use pfp_shm_layout::copy;
use pfp_shm_layout::header::FormatError;
use pfp_shm_layout::segment::OpenError;

use super::{Change, Refusal, Source, live};
use crate::export::{json, packed};
use crate::snapshot::Snapshot;

/// A snapshot that was written to a file, or a copy of a segment.
#[derive(Debug)]
pub struct FileSource {
    snapshot: Snapshot,
}

impl FileSource {
    /// Reads the file, whatever its form. An error says what was expected, what was
    /// found and what to do.
    pub fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).map_err(|error| json::unreadable(path, error))?;
        let snapshot = read(&mut file)
            .with_context(|| format!("{} is not a snapshot that can be shown", path.display()))?;
        Ok(Self { snapshot })
    }
}

fn read(file: &mut File) -> Result<Snapshot> {
    let about = file.metadata()?;
    let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = changed.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    let of_copy = |(segment, facts, note)| live::of_copy(segment, facts, note, changed);

    let mut bytes = Vec::new();
    file.take(8).read_to_end(&mut bytes)?;
    if copy::is_copy(&bytes) && about.is_file() {
        // Only what there is of it.
        return copy::read(file).map(of_copy).map_err(explain);
    }
    file.read_to_end(&mut bytes)?;
    if packed::is_packed(&bytes) {
        bytes = packed::unpack(&bytes)?;
    }
    if copy::is_copy(&bytes) {
        return copy::parse(&bytes).map(of_copy).map_err(|error| explain(error.into()));
    }
    json::parse(&bytes)
}

/// Says of a copy of a segment that cannot be read what to do.
fn explain(error: OpenError) -> anyhow::Error {
    match error {
        OpenError::Format(error @ FormatError::Version { .. }) => {
            Refusal::Version(error.to_string()).into()
        }
        OpenError::Format(
            error @ (FormatError::Geometry { .. } | FormatError::TooShort { .. }),
        ) => {
            anyhow!("expected a whole copy of a segment, but {error}; copy it again")
        }
        error => anyhow!(error),
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
