//! Files as sources. A file's kind follows from its content, not its name.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{FileSource, Source, file, group};
use crate::files::input::Input;
use crate::files::json::unreadable;
use crate::files::recording::{MAGIC, Moment, Recording};
use crate::model::between;
use crate::snapshot::Snapshot;

/// Opens a snapshot file, a copy of a segment, or a recording at its last moment, compressed or
/// not. The kind follows from the content, not the name. `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    let unreadable = |error| unreadable(path, error);
    let input = Input::open(path, file::is_known).map_err(unreadable)?;
    let is_recording = input.start().map_err(unreadable)?.starts_with(&MAGIC);
    match input {
        Input::File(file) if is_recording => Ok(Box::new(Recording::read(file, path)?)),
        Input::Stdin(_) if is_recording => {
            bail!("expected a file, since a recording is read here and there, found a pipe")
        }
        input => Ok(Box::new(FileSource::read(&input, path)?)),
    }
}

/// Opens a recording at one of its moments; without a moment, any file that [`open`] can open.
///
/// # Errors
///
/// If the file cannot be opened or read, if the recording has no such moment, or if a moment of
/// another kind of file is requested.
pub fn open_at(path: &Path, moment: Option<&Moment>) -> Result<Box<dyn Source>> {
    let mut source = open(path)?;
    let Some(moment) = moment else { return Ok(source) };
    let shown = path.display();
    match source.recording() {
        Some(recording) => {
            let place = recording.find(moment).with_context(|| shown.to_string())?;
            recording.seek(place);
            Ok(source)
        }
        None => bail!(
            "expected a recording to look for {moment} in, found that {shown} is a snapshot, of \
             one moment only; leave the moment out"
        ),
    }
}

/// Opens several files as one, each at its last moment or the given one; with `sum`, points of one
/// name become one.
///
/// # Errors
///
/// Like [`open_at`]; also if two files are of one process, or their clocks cannot be summed.
pub fn open_group(
    paths: &[PathBuf],
    sum: bool,
    moment: Option<&Moment>,
) -> Result<Box<dyn Source>> {
    let mut files = group::files::FileGroup::default();
    for path in paths {
        let mut source = open_at(path, moment)?;
        let mut snapshot = source.poll()?;
        source.add_records(&mut snapshot);
        files.add(path, snapshot)?;
    }
    let mut group = files.together(sum)?;
    let mut snapshot = group.poll()?;
    group.add_records(&mut snapshot);
    Ok(Box::new(FileSource::of(snapshot)))
}

/// Reads several files, each as [`read`] does, and sums them: points of one name become one.
///
/// # Errors
///
/// Like [`read`] and [`open_group`].
pub fn read_sum(paths: &[PathBuf], span: &Span) -> Result<Snapshot> {
    let mut files = group::files::FileGroup::default();
    for path in paths {
        files.add(path, read(path, span, false)?)?;
    }
    files.together(true)?.poll()
}

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
    between(&first, to).with_context(|| no_moment_behind(from, path))
}

/// Like [`read`], but returns up to `most` windows of a recording. All begin with the span; their
/// ends are spread over it, and the last window is the whole span.
///
/// # Errors
///
/// Like [`read`].
pub fn read_steps(path: &Path, span: &Span, most: usize) -> Result<Vec<Snapshot>> {
    let mut source = open_at(path, span.to.as_ref())?;
    let (last, first) = match (source.recording(), &span.from) {
        // Use the open source, since standard input cannot be opened twice.
        (None, None) => return Ok(vec![source.poll()?]),
        (None, Some(_)) => return Ok(vec![read(path, span, false)?]),
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
        steps.extend(match &from {
            Some(from) => between(from, end),
            None => Some(end),
        });
    }
    if let (Some(from), true) = (&span.from, steps.is_empty()) {
        bail!(no_moment_behind(from, path));
    }
    Ok(steps)
}

fn no_moment_behind(from: &Moment, path: &Path) -> String {
    let path = path.display();
    format!(
        "expected a moment behind {from} to look at what was measured since, found none in {path}"
    )
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
