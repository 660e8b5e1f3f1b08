//! Snapshot files: versioned JSON, compressed where the name ends in `.zst`, written whole or not
//! at all. docs/snapshot-format.md describes each field.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use super::Refusal;
use super::atomic_file;
pub use super::atomic_file::Existing;
use super::input;
use super::zstd_file;
use crate::snapshot::{FORMAT, Snapshot, VERSION};
use crate::text::clean;

/// Writes the snapshot to `path`, whole or not at all; see [`atomic_file::write`]. With a
/// name that ends in `.zst` it is compressed.
pub fn write(snapshot: &Snapshot, path: &Path, existing: Existing) -> io::Result<()> {
    atomic_file::write(path, existing, |out| {
        if zstd_file::is_named(path) {
            zstd_file::write(out, |out| print(snapshot, out))
        } else {
            print(snapshot, out)
        }
    })
}

fn print(snapshot: &Snapshot, mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer(&mut out, snapshot)?;
    out.write_all(b"\n")
}

/// The fields that every version has.
#[derive(Deserialize)]
struct Label {
    format: String,
    version: u32,
}

/// Reads a snapshot file, compressed or not, independent of its name. Errors state what was
/// expected, what was found and what to do.
pub fn read(path: &Path) -> Result<Snapshot> {
    let shown = path.display();
    let bytes = input::read(path, input::MAX_BYTES).map_err(|error| unreadable(path, error))?;
    parse(&bytes).with_context(|| format!("{shown} is not a snapshot that can be shown"))
}

/// Explains why a file cannot be read, as an error that has the exit status for that reason.
pub fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Refusal::NoTarget(format!("there is no file {shown}")).into(),
        io::ErrorKind::PermissionDenied => {
            Refusal::Permission(format!("{shown} may not be read by this user")).into()
        }
        _ => anyhow!(error).context(format!("{shown} cannot be read")),
    }
}

/// Parses a snapshot file, compressed or not.
pub fn parse(bytes: &[u8]) -> Result<Snapshot> {
    if zstd_file::is_compressed(bytes) {
        return parse_compressed(zstd_file::unpack(bytes)?);
    }
    parse_text(bytes)
}

/// Parses a compressed snapshot file whose start has been unpacked.
pub fn parse_compressed(packed: zstd_file::Compressed<'_>) -> Result<Snapshot> {
    // Check the first bytes before allocating memory for all of it.
    match packed.start().trim_ascii_start().first() {
        Some(b'{') | None => parse_text(&packed.text()?),
        Some(_) => Err(anyhow!(
            "expected JSON as `pfp-top snapshot` writes it, or a copy of a segment, found other \
             data when unpacked"
        )),
    }
}

fn parse_text(text: &[u8]) -> Result<Snapshot> {
    // Expect a snapshot of this version first, so that a valid file is parsed only once.
    let whole = serde_json::from_slice::<Snapshot>(text);
    if let Ok(snapshot) = &whole
        && (snapshot.format.as_str(), snapshot.version) == (FORMAT, VERSION)
    {
        return whole.map_err(explain);
    }
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
    whole.map_err(explain)
}

/// The text of a parsing error, cleaned for display, since it may quote any part of the parsed
/// text.
pub(crate) fn words(error: &serde_json::Error) -> String {
    clean(&error.to_string()).into_owned()
}

/// Explains whether the file ends early or is something else.
fn explain(error: serde_json::Error) -> anyhow::Error {
    use serde_json::error::Category;
    match error.classify() {
        Category::Eof => anyhow!(
            "expected a whole snapshot, but the file ends early (line {}, column {}); it was \
             truncated: copy it again",
            error.line(),
            error.column()
        ),
        Category::Data => {
            anyhow!("expected a snapshot of pfp, found other data: {}", words(&error))
        }
        Category::Syntax | Category::Io => {
            anyhow!("expected JSON as `pfp-top snapshot` writes it: {}", words(&error))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    fn sample() -> Snapshot {
        Synthetic::new().poll().unwrap()
    }

    #[test]
    fn a_written_snapshot_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let size = |name: &str| {
            let path = folder.path().join(name);
            write(&sample(), &path, Existing::Keep).unwrap();
            assert_eq!(read(&path).unwrap(), sample());
            fs::metadata(path).unwrap().len()
        };
        assert!(size("a.zst") < size("a.json") / 2);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else left behind");
    }

    #[test]
    fn a_file_is_replaced_only_on_demand() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.json");
        fs::write(&path, "precious").unwrap();
        let refused = write(&sample(), &path, Existing::Keep).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        write(&sample(), &path, Existing::Replace).unwrap();
        assert_eq!(read(&path).unwrap(), sample());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let path = Path::new("/proc/self/no-such-folder/a.json");
        let refused = write(&sample(), path, Existing::Keep).unwrap_err();
        assert_ne!(refused.kind(), io::ErrorKind::AlreadyExists);
        // `/dev/full` is not a folder, so creating a file in it fails.
        assert!(write(&sample(), Path::new("/dev/full/a.json"), Existing::Replace).is_err());
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

        // The message quotes the file's text, whose escape sequences must not reach a terminal.
        let hostile = message(&whole.replacen("\"running\"", "\"\\u001b]0;evil\\u0007\"", 1));
        assert!(hostile.contains("]0;evil"), "{hostile}");
        assert!(!hostile.contains(char::is_control), "{hostile:?}");

        assert!(message("not json").contains("expected JSON"));
        assert!(message("{\"a\":1}").contains("other data"));
        assert!(message("").contains("ends early"));
    }
}
