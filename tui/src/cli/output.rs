//! Printing and writing, shared by all commands.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow};

use crate::files::json::Existing;
use crate::text;

/// Exit status where nothing is found to show, as for `Refusal::NoTarget`.
pub(super) const NO_TARGET: u8 = 3;

/// Writes to standard output. A reader that has gone, like `head`, is fine.
pub(super) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Writes a line to standard error. Nobody may be there to read it.
pub(super) fn warn(line: &str) {
    let line = text::clean_lines(line);
    let _ = writeln!(io::stderr(), "pfp-top: {line}");
}

pub(super) fn overwrite(force: bool) -> Existing {
    if force { Existing::Replace } else { Existing::Keep }
}

/// The exit status of writing a file.
pub(super) fn written(result: io::Result<()>, path: &Path) -> Result<u8> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
        result => result.with_context(|| format!("{} was not written", path.display())).map(|()| 0),
    }
}

/// Refuses a file that exists and may not be replaced, so that a bad name fails at once.
pub(super) fn check_new(path: &Path, force: bool) -> Result<()> {
    if force || path.symlink_metadata().is_err() { Ok(()) } else { Err(exists(path)) }
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow!("{} exists already: give another name, or --force", path.display())
}
