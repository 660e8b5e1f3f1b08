//! Files written whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::Path;

use pfp_shm_layout::atomic_file::{Existing, WholeFile};

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
    /// The file exists, and it may not be replaced.
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
        match error.kind() {
            io::ErrorKind::AlreadyExists => Self::Exists,
            _ => Self::Io(error),
        }
    }
}

/// Bytes that are buffered before a write.
const AT_ONCE: usize = 1 << 18;

/// Writes what `fill` writes to `path`: whole or not at all; see [`WholeFile`].
pub fn write(
    path: &Path,
    overwrite: Overwrite,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), WriteError> {
    write_file(path, overwrite, |file| {
        let mut out = BufWriter::with_capacity(AT_ONCE, file);
        fill(&mut out)?;
        out.flush()
    })
}

/// Like [`write()`], without a buffer and with a file that may have holes.
pub fn write_file(
    path: &Path,
    overwrite: Overwrite,
    fill: impl FnOnce(&mut WholeFile) -> io::Result<()>,
) -> Result<(), WriteError> {
    let existing = match overwrite {
        Overwrite::Yes => Existing::Replace,
        Overwrite::No => Existing::Keep,
    };
    let mut file = WholeFile::create(path, existing)?;
    fill(&mut file)?;
    Ok(file.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

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
