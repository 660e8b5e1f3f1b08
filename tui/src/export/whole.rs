//! Files written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether [`write`] may replace a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Only if the user said so.
    Yes,
    /// A file that exists is an error.
    No,
}

/// Why a file was not written.
#[derive(Debug)]
pub enum WriteError {
    /// There is a file of that name already, and it was not to be replaced.
    Exists,
    /// The system refused.
    Io(io::Error),
}

impl std::fmt::Display for WriteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exists => f.write_str("the file exists already"),
            Self::Io(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WriteError {}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Writes what `fill` writes to `path`: whole or not at all.
///
/// It is written to a neighbour of another name first, brought to the disk, and
/// only then given its name, so that a full disk, a crash or a kill at any step
/// leaves the file of before or the new one.
pub fn write(
    path: &Path,
    overwrite: Overwrite,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    // Asked early so that a wrong name costs no work; asked again, without a
    // race, when the file gets its name.
    if overwrite == Overwrite::No && fs::symlink_metadata(path).is_ok() {
        return Err(WriteError::Exists);
    }
    let file = tempfile::Builder::new()
        .prefix(".pfp-snapshot-")
        // As any new file: the user's umask decides who may read it.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    let mut out = BufWriter::new(file);
    fill(&mut out)?;
    let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.as_file().sync_all()?;
    let named = match overwrite {
        Overwrite::Yes => file.persist(path),
        Overwrite::No => file.persist_noclobber(path),
    };
    if let Err(refused) = named {
        return Err(match refused.error.kind() {
            io::ErrorKind::AlreadyExists => WriteError::Exists,
            _ => WriteError::Io(refused.error),
        });
    }
    // The name is on the disk only once its folder is.
    File::open(folder)?.sync_all()?;
    Ok(())
}
