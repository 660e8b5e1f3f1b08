//! Files written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether [`write()`] may replace a file.
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
    match (overwrite, fs::symlink_metadata(path)) {
        (Overwrite::No, Ok(_)) => return Err(WriteError::Exists),
        // Put in the place of a device, a file would take it away from everybody.
        (Overwrite::Yes, Ok(there)) if !there.is_file() && !there.is_symlink() => {
            let why = "expected a file to replace, found something else, such as a device or a \
                       folder: give the name of a file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why).into());
        }
        _ => {}
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_on_the_way_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "precious").unwrap();
        let failed = write(&path, Overwrite::Yes, |out| {
            out.write_all(&[b'x'; 100_000])?;
            Err(io::Error::other("no more"))
        });
        assert!(matches!(failed, Err(WriteError::Io(_))));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing left behind");
    }

    #[test]
    fn only_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = write(&path, Overwrite::Yes, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("give the name of a file"), "{error}");
        assert!(!fs::symlink_metadata(&path).unwrap().is_file());
    }
}
