//! A file as a source: one picture, always the same.

use std::fs::{File, Metadata};
use std::io::Read;
use std::path::Path;
use std::time::UNIX_EPOCH;

use anyhow::{Context, Result, anyhow, bail};
use pfp_shm_layout::copy::{self, Note};
use pfp_shm_layout::header::{Facts, FormatError};
use pfp_shm_layout::segment::{OpenError, Segment};

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
        let unreadable = |error| json::unreadable(path, error);
        let mut file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        let mut bytes = Vec::new();
        (&mut file).take(8).read_to_end(&mut bytes).map_err(unreadable)?;
        let snapshot = if copy::is_copy(&bytes) && about.is_file() {
            // Only what there is of it.
            copy::read(&file).map(|copy| of_copy(copy, &about)).map_err(explain)
        } else {
            file.read_to_end(&mut bytes).map_err(unreadable)?;
            parse(&bytes, &about)
        };
        let shown = path.display();
        let snapshot =
            snapshot.with_context(|| format!("{shown} is not a snapshot that can be shown"))?;
        Ok(Self { snapshot })
    }
}

/// Reads what a file holds, whatever its form.
fn parse(bytes: &[u8], about: &Metadata) -> Result<Snapshot> {
    if copy::is_copy(bytes) {
        return copy::read_from(bytes).map(|copy| of_copy(copy, about)).map_err(explain);
    }
    if !packed::is_packed(bytes) {
        return json::parse(bytes);
    }
    let packed = packed::unpack(bytes)?;
    if !copy::is_copy(packed.start()) {
        return json::parse_packed(packed);
    }
    let copy = copy::read_from(packed.reader()).map_err(|error| match error {
        OpenError::Io(error) => packed::explain(error, bytes.len() as u64),
        error => explain(error),
    })?;
    Ok(of_copy(copy, about))
}

fn of_copy((segment, facts, note): (Segment, Facts, Option<Note>), about: &Metadata) -> Snapshot {
    let changed = about.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let changed = changed.map_or(0, |since| u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
    live::of_copy(segment, facts, note, changed)
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
