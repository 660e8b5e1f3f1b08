//! Printing, writing and waiting, shared by all commands.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde::Serialize;

use pfp_read::files::atomic_file::{self, Existing};

/// Exit status if there is nothing to show, as for `Refusal::NoTarget`.
pub(super) const NO_TARGET: u8 = 3;

/// Writes to standard output; see [`print_by`].
pub(super) fn print(text: &str) -> io::Result<bool> {
    print_by(|out| out.write_all(text.as_bytes()))
}

/// Lets `write` write to standard output. Returns false if the reader has closed it, as `head`
/// does; that is not an error.
pub(super) fn print_by(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<bool> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true),
    }
}

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<bool> {
    Ok(print(&(serde_json::to_string_pretty(value)? + "\n"))?)
}

/// A progress line on standard error; does nothing if standard error is not a terminal.
pub(super) struct Progress {
    pub(super) shown: bool,
}

impl Progress {
    pub(super) fn on_terminal() -> Self {
        Self { shown: io::stderr().is_terminal() }
    }

    pub(super) fn show(&self, line: &str) {
        if self.shown {
            let _ = write!(io::stderr(), "\r{line}\x1b[K");
        }
    }

    pub(super) fn clear(&self) {
        self.show("");
    }
}

/// The next instant after now that is a multiple of `interval` after `start`.
pub(super) fn next_moment(start: Instant, interval: Duration) -> Instant {
    let round = start.elapsed().as_nanos() / interval.as_nanos() + 1;
    let since = u64::try_from(round * interval.as_nanos()).unwrap_or(u64::MAX);
    start + Duration::from_nanos(since)
}

pub(super) fn overwrite(force: bool) -> Existing {
    if force { Existing::Replace } else { Existing::Keep }
}

/// Writes a file, whole or not at all.
pub(super) fn write_file(
    path: &Path,
    force: bool,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    written(atomic_file::write(path, overwrite(force), fill), path)
}

/// Turns an error of writing a file into a message with the file's name.
pub(super) fn written(result: io::Result<()>, path: &Path) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(exists(path)),
        result => result.with_context(|| format!("{} was not written", path.display())),
    }
}

/// Refuses an existing file that may not be replaced, so that the command fails at the start.
pub(super) fn check_new(path: &Path, force: bool) -> Result<()> {
    if force || path.symlink_metadata().is_err() { Ok(()) } else { Err(exists(path)) }
}

fn exists(path: &Path) -> anyhow::Error {
    anyhow!("{} exists already: give another name, or --force", path.display())
}
