//! Parts of a file's time: a recording has many moments, a snapshot just one.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use pfp_read::snapshot::Snapshot;
use pfp_read::source::{Moment, open_at};

use super::between;

/// A part of a file's time: a recording has many moments, a snapshot just one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Start of the part. `None` for the start of the process.
    pub from: Option<Moment>,
    /// End of the part. `None` for the last moment.
    pub to: Option<Moment>,
}

/// Reads the content of a file up to a moment, or between two moments; with `with_records`,
/// including its records.
///
/// # Errors
///
/// Like [`open_at`]; also if the span is empty.
pub fn read(path: &Path, span: &Span, with_records: bool) -> Result<Snapshot> {
    let mut source = open_at(path, span.to.as_ref())?;
    let mut to = source.poll()?;
    if with_records {
        source.add_records(&mut to);
    }
    let Some(from) = &span.from else { return Ok(to) };
    let first = open_at(path, Some(from))?.poll()?;
    between(&first, to).with_context(|| no_snapshot_after(from, path))
}

/// Like [`read`], but returns up to `most` windows of a recording, each converted by `of`. All
/// windows begin with the span. Their ends are spread over the span, and the last window is the
/// whole span.
///
/// # Errors
///
/// Like [`read`].
pub fn read_steps<T>(
    path: &Path,
    span: &Span,
    most: usize,
    of: impl Fn(Snapshot) -> T,
) -> Result<Vec<T>> {
    let mut source = open_at(path, span.to.as_ref())?;
    let (last, first) = match (source.recording(), &span.from) {
        // Use the open source, since standard input cannot be opened twice.
        (None, None) => return Ok(vec![of(source.poll()?)]),
        (None, Some(_)) => return Ok(vec![of(read(path, span, false)?)]),
        (Some(recording), from) => {
            let first = from.as_ref().map(|from| recording.find(from)).transpose();
            (recording.cursor(), first.with_context(|| path.display().to_string())?)
        }
    };
    let mut at = |place: usize| {
        if let Some(recording) = source.recording() {
            recording.seek(place);
        }
        source.poll()
    };
    let from = first.map(&mut at).transpose()?;
    let begin = first.unwrap_or(0);
    let places = (1..=most).map(|step| begin + last.saturating_sub(begin) * step / most);
    let mut places: Vec<usize> = places.filter(|place| *place > begin || *place == last).collect();
    places.dedup();
    let mut steps = Vec::with_capacity(places.len());
    for place in places {
        let end = at(place)?;
        let window = match &from {
            Some(from) => between(from, end),
            None => Some(end),
        };
        steps.extend(window.map(&of));
    }
    if let (Some(from), true) = (&span.from, steps.is_empty()) {
        bail!(no_snapshot_after(from, path));
    }
    Ok(steps)
}

fn no_snapshot_after(from: &Moment, path: &Path) -> String {
    let path = path.display();
    format!("expected a snapshot after {from}, found none in {path}")
}

/// Cuts a recording into parts of about the length `long`, and returns the snapshots at the cuts. A
/// remainder that is too short is left out.
///
/// # Errors
///
/// Like [`open_at`]; also if the file is not a recording, or shorter than one part.
pub fn read_parts(path: &Path, span: &Span, long: Duration) -> Result<Vec<Snapshot>> {
    let mut source = open_at(path, span.to.as_ref())?;
    let shown = path.display();
    let Some(recording) = source.recording() else {
        bail!("expected a recording to cut in parts, found that {shown} is a snapshot");
    };
    let last = recording.cursor();
    let first = match &span.from {
        Some(from) => recording.find(from).with_context(|| shown.to_string())?,
        None => 0,
    };
    let places = recording.cut(first, last, long);
    if places.len() < 2 {
        let found = recording.since_first(last).saturating_sub(recording.since_first(first));
        bail!(
            "expected at least {}s of {shown}, found {}s there",
            long.as_secs_f64(),
            found.as_secs_f64()
        );
    }
    let mut at = |place: usize| {
        if let Some(recording) = source.recording() {
            recording.seek(place);
        }
        source.poll()
    };
    places.into_iter().map(&mut at).collect()
}
