//! A file as a source, which yields the same snapshot at each poll.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, anyhow};
use pfp_shm_layout::copy::{self, Note};
use pfp_shm_layout::header::{Facts, FormatError};
use pfp_shm_layout::segment::{OpenError, Segment};

use super::guard::clean_places;
use super::symbol::readable;
use super::{BadPlace, Refusal, Source, live};
use crate::files::input::Input;
use crate::files::{json, zstd_file};
use crate::local_time::unix_ns;
use crate::snapshot::Snapshot;

/// A snapshot from a file, or from a copy of a segment.
#[derive(Debug)]
pub struct FileSource {
    snapshot: Snapshot,
}

impl FileSource {
    /// Makes a source of a snapshot that was read already.
    pub fn of(snapshot: Snapshot) -> Self {
        Self { snapshot }
    }

    /// Reads a file or standard input in any form. An error states what was expected, what was
    /// found and what to do.
    pub(super) fn read(input: &Input, path: &Path) -> Result<Self> {
        let unreadable = |error| json::unreadable(path, error);
        let start = input.start().map_err(unreadable)?;
        let changed = match input {
            Input::File(file) => file.metadata().map_err(unreadable)?.modified().ok(),
            Input::Stdin(_) => Some(SystemTime::now()),
        };
        let snapshot = match input {
            // Reads only the parts of the file that have data: most of a segment is holes.
            Input::File(file) if copy::is_copy(&start) => {
                copy::read(file).map(|copy| of_copy(copy, changed)).map_err(explain)
            }
            _ if is_known(&start) => parse(&input.bytes().map_err(unreadable)?, changed),
            // Reject the file by its first bytes, whatever its length.
            _ if start.is_empty() => json::parse(&start),
            _ => Err(anyhow!(UNKNOWN)),
        };
        let shown = path.display();
        let mut snapshot =
            snapshot.with_context(|| format!("{shown} is not a snapshot that can be shown"))?;
        // A snapshot that a program wrote itself has symbols where a viewer's has readable names.
        for point in &mut snapshot.points {
            if let Some(name) = readable(&point.name) {
                point.name = name;
            }
        }
        Ok(Self { snapshot })
    }
}

/// Whether the first bytes are those of a snapshot in any form.
pub(super) fn is_known(start: &[u8]) -> bool {
    let text = start.trim_ascii_start();
    // If the start is only blanks, the content is unknown and may be JSON.
    let is_text = text.first().map_or(!start.is_empty(), |&first| first == b'{');
    copy::is_copy(start) || zstd_file::is_compressed(start) || is_text
}

const UNKNOWN: &str = "expected JSON as `pfp-top snapshot` writes it, a copy of a segment or a \
                       recording, found other data";

/// Reads a file's content in any form.
fn parse(bytes: &[u8], changed: Option<SystemTime>) -> Result<Snapshot> {
    if copy::is_copy(bytes) {
        return copy::read_from(bytes).map(|copy| of_copy(copy, changed)).map_err(explain);
    }
    if !zstd_file::is_compressed(bytes) {
        return json::parse(bytes);
    }
    let packed = zstd_file::unpack(bytes)?;
    if !copy::is_copy(packed.start()) {
        return json::parse_compressed(packed);
    }
    let copy = copy::read_from(packed.reader()).map_err(|error| match error {
        OpenError::Io(error) => zstd_file::explain(error, bytes.len() as u64),
        error => explain(error),
    })?;
    Ok(of_copy(copy, changed))
}

fn of_copy(
    (segment, facts, note): (Segment, Facts, Option<Note>),
    changed: Option<SystemTime>,
) -> Snapshot {
    live::picture::of_copy(segment, facts, note, changed.map_or(0, unix_ns))
}

/// Explains why a copy of a segment cannot be read, and what to do.
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

impl Source for FileSource {
    fn picture(&mut self) -> Result<Snapshot> {
        Ok(self.snapshot.clone())
    }

    fn is_process(&self) -> bool {
        false
    }

    fn read_only(&self) -> Option<&str> {
        Some("a snapshot file cannot be changed; attach to the process instead")
    }

    fn bad_places(&self) -> Vec<BadPlace> {
        clean_places(self.snapshot.late_places())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::files::atomic_file::Existing;
    use crate::source::synthetic::Synthetic;

    /// A file that a program has written itself contains symbols.
    #[test]
    fn symbols_of_files_are_read() {
        let mut source = Synthetic::new();
        let snapshot = source.snapshot_mut();
        snapshot.points[0].name = "_ZN5space3fooEibc".to_owned();
        let name = snapshot.points[1].name.clone();
        let folder = tempfile::tempdir().expect("there is room");
        let path = folder.path().join("snapshot.json");
        json::write(snapshot, &path, Existing::Keep).expect("there is room");
        let input = Input::open(&path, is_known).expect("it is a file");
        let read = FileSource::read(&input, &path).expect("it is a snapshot");
        let names: Vec<_> = read.snapshot.points.iter().map(|point| &*point.name).collect();
        assert_eq!(names[..2], ["space::foo(int, bool, char)", &name]);
    }
}
