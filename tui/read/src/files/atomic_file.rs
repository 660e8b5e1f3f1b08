//! Files written whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::Path;

pub use pfp_shm_layout::atomic_file::Existing;
use pfp_shm_layout::atomic_file::{WholeFile, check_replaceable};

/// Size of the write buffer, in bytes.
const AT_ONCE: usize = 1 << 18;

/// Writes to `path` what `fill` produces: whole or not at all; see [`WholeFile`].
pub fn write(
    path: &Path,
    existing: Existing,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    write_file(path, existing, |file| {
        let mut out = BufWriter::with_capacity(AT_ONCE, file);
        fill(&mut out)?;
        out.flush()
    })
}

/// Like [`write()`], but unbuffered, and the file may have holes.
pub fn write_file(
    path: &Path,
    existing: Existing,
    fill: impl FnOnce(&mut WholeFile) -> io::Result<()>,
) -> io::Result<()> {
    // Check this here, since the library's error would not name the path.
    if path.file_name().is_none() {
        let why = format!("expected the name of a file, found {:?}", path.as_os_str());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    if existing == Existing::Replace {
        check_replaceable(path)?;
    }
    let mut file = WholeFile::create(path, existing)?;
    fill(&mut file)?;
    file.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_failed_write_keeps_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "precious").unwrap();
        let failed = write(&path, Existing::Replace, |out| {
            out.write_all(&[b'x'; 100_000])?;
            Err(io::Error::other("no more"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing left behind");
    }

    #[test]
    fn only_files_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let error = write(&path, Existing::Replace, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("give the name of a file"), "{error}");
        assert!(!fs::symlink_metadata(&path).unwrap().is_file());
    }
}
