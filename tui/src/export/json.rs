//! Snapshot files: versioned JSON, written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use crate::snapshot::{FORMAT, Snapshot, VERSION};
use crate::source::Refusal;

/// Whether [`write()`] may replace a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Only if the user said so.
    Yes,
    /// A file that exists is an error.
    No,
}

/// Why a snapshot was not written.
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

/// Writes the snapshot to `path`: whole or not at all.
pub fn write(snapshot: &Snapshot, path: &Path, overwrite: Overwrite) -> Result<(), WriteError> {
    write_whole(path, overwrite, |file| {
        let mut out = BufWriter::new(file);
        serde_json::to_writer(&mut out, snapshot)?;
        out.write_all(b"\n")?;
        out.flush()
    })
}

/// Writes a file by what fills it, whole or not at all.
///
/// It is written to a neighbour of another name first, brought to the disk, and
/// only then given its name, so that a full disk, a crash or a kill at any step
/// leaves the file of before or the new one.
pub fn write_whole(
    path: &Path,
    overwrite: Overwrite,
    fill: impl FnOnce(&mut tempfile::NamedTempFile) -> io::Result<()>,
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
    let mut file = tempfile::Builder::new()
        .prefix(".pfp-snapshot-")
        // As any new file: the user's umask decides who may read it.
        .permissions(fs::Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    fill(&mut file)?;
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

/// What every version of the file says of itself.
#[derive(Deserialize)]
struct Label {
    format: String,
    version: u32,
}

/// Reads a snapshot file. Errors say what was expected, what was found and
/// what to do.
pub fn read(path: &Path) -> Result<Snapshot> {
    let shown = path.display();
    let text = fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Refusal::NoTarget(format!("there is no file {shown}")).into(),
        io::ErrorKind::PermissionDenied => {
            Refusal::Permission(format!("{shown} may not be read by this user")).into()
        }
        _ => anyhow!(error).context(format!("{shown} cannot be read")),
    })?;
    parse(&text).with_context(|| format!("{shown} is not a snapshot that can be shown"))
}

fn parse(text: &[u8]) -> Result<Snapshot> {
    let label: Label = serde_json::from_slice(text).map_err(explain)?;
    if label.format != FORMAT {
        return Err(anyhow!(
            "expected the format \"{FORMAT}\", found {:?}; `pfp-top snapshot` writes such files",
            label.format
        ));
    }
    if label.version != VERSION {
        let advice =
            if label.version > VERSION { "use a newer pfp-top" } else { "take the snapshot again" };
        return Err(Refusal::Version(format!(
            "expected version {VERSION} of the format, found {}; {advice}",
            label.version
        ))
        .into());
    }
    serde_json::from_slice(text).map_err(explain)
}

/// Says whether the file ends early or is something else altogether.
fn explain(error: serde_json::Error) -> anyhow::Error {
    use serde_json::error::Category;
    match error.classify() {
        Category::Eof => anyhow!(
            "expected a whole snapshot, but the file ends early (line {}, column {}); \
             it was cut off on its way: copy it again",
            error.line(),
            error.column()
        ),
        Category::Data => anyhow!("expected a snapshot of pfp, found other data: {error}"),
        Category::Syntax | Category::Io => {
            anyhow!("expected JSON as `pfp-top snapshot` writes it: {error}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    fn sample() -> Snapshot {
        Synthetic::new().poll().unwrap()
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        write(&sample(), &path, Overwrite::No).unwrap();
        assert_eq!(read(&path).unwrap(), sample());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else left behind");
    }

    #[test]
    fn a_file_is_replaced_only_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(write(&sample(), &path, Overwrite::No), Err(WriteError::Exists)));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        write(&sample(), &path, Overwrite::Yes).unwrap();
        assert_eq!(read(&path).unwrap(), sample());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let path = Path::new("/proc/self/no-such-folder/a.json");
        assert!(matches!(write(&sample(), path, Overwrite::No), Err(WriteError::Io(_))));
        // /dev/full takes the name lookup but no bytes; as a folder it fails.
        assert!(write(&sample(), Path::new("/dev/full/a.json"), Overwrite::Yes).is_err());
    }

    #[test]
    fn what_fails_on_the_way_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        fs::write(&path, "precious").unwrap();
        let failed = write_whole(&path, Overwrite::Yes, |out| {
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
        let error = write_whole(&path, Overwrite::Yes, |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("give the name of a file"), "{error}");
        assert!(!fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn errors_say_expected_found_and_what_to_do() {
        let whole = serde_json::to_string(&sample()).unwrap();
        let message = |text: &str| format!("{:#}", parse(text.as_bytes()).unwrap_err());

        let cut = message(&whole[..whole.len() / 2]);
        assert!(cut.contains("ends early") && cut.contains("copy it again"), "{cut}");

        let foreign = message(&whole.replacen(FORMAT, "elf-core", 1));
        assert!(foreign.contains(FORMAT) && foreign.contains("elf-core"), "{foreign}");

        let future = whole.replacen("\"version\":1", "\"version\":7", 1);
        let future = parse(future.as_bytes()).unwrap_err();
        assert!(future.downcast_ref::<Refusal>().is_some_and(|r| r.exit_status() == 5));
        let future = future.to_string();
        assert!(future.contains("version 1") && future.contains("found 7"), "{future}");

        assert!(message("not json").contains("expected JSON"));
        assert!(message("{\"a\":1}").contains("other data"));
        assert!(message("").contains("ends early"));
    }
}
