//! Files as sources. A file's kind follows from its content, not its name.

use std::path::Path;

use anyhow::{Context, Result, bail};

use super::{FileSource, Source, file};
use crate::files::input::Input;
use crate::files::json::unreadable;
use crate::files::recording::{MAGIC, Moment, Recording};

/// Opens a snapshot file, a copy of a segment, or a recording at its last moment, compressed or
/// not. The kind follows from the content, not the name. `-` is standard input.
pub fn open(path: &Path) -> Result<Box<dyn Source>> {
    let unreadable = |error| unreadable(path, error);
    let input = Input::open(path, file::is_known).map_err(unreadable)?;
    let is_recording = input.start().map_err(unreadable)?.starts_with(&MAGIC);
    match input {
        Input::File(file) if is_recording => Ok(Box::new(Recording::read(file, path)?)),
        Input::Stdin(_) if is_recording => {
            bail!("expected a file, since a recording needs random access, found a pipe")
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
