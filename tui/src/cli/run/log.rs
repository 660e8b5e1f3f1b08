//! The file that a program's output goes to.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use pfp_shm_layout::directory::Directory;

use crate::cli::kept::state_folder;
use pfp_read::files::input;
use pfp_read::local_time;

/// Number of output files that are kept from earlier programs.
const KEPT: usize = 20;
/// Number of bytes at a file's end that are searched for the last lines.
const TAIL_BYTES: u64 = 1 << 16;

const PREFIX: &str = "run-";
const ENDING: &str = ".log";

/// The file, open for the program.
pub(super) struct LogFile {
    file: File,
    path: PathBuf,
    /// Whether pfp-top chose the name. If so, the file is removed if it is empty at the end.
    own: bool,
}

impl LogFile {
    /// Opens the file of that name, or a new file for this program.
    pub(super) fn create(named: Option<&Path>, program: &OsStr) -> Result<Self> {
        let (path, own) = match named {
            // Absolute, so that messages still name the file after the program has changed its
            // working directory.
            Some(path) => (std::path::absolute(path)?, false),
            None => (own_path(program)?, true),
        };
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .create_new(own)
            .truncate(!own)
            .mode(if own { 0o600 } else { 0o666 })
            // With O_NONBLOCK, opening a pipe without a reader fails instead of blocking.
            .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
            .open(&path)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        // The lock lasts as long as the program, or a process it started, has the file open.
        // SAFETY: `file` is open, so its descriptor is valid.
        unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_SH | libc::LOCK_NB) };
        // Clear O_NONBLOCK, so that the program's own writes block as usual.
        // SAFETY: `file` is open, so its descriptor is valid; clearing the status flags is allowed
        // for any file.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) };
        Ok(Self { file, path, own })
    }

    pub(super) fn file(&self) -> Result<File> {
        Ok(self.file.try_clone()?)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The last lines, without control sequences.
    pub(super) fn tail(&self, lines: usize) -> Result<Vec<String>> {
        let mut file = input::file(&self.path)?;
        let start = file.metadata()?.len().saturating_sub(TAIL_BYTES);
        file.seek(SeekFrom::Start(start))?;
        let mut last = VecDeque::new();
        for line in BufReader::new(file.take(TAIL_BYTES)).split(b'\n') {
            let line = String::from_utf8_lossy(&line?).into_owned();
            last.push_back(pfp_read::text::clean(&line).into_owned());
            if last.len() > lines {
                last.pop_front();
            }
        }
        Ok(last.into())
    }

    /// Removes the file if it is empty; otherwise returns its path.
    pub(super) fn tidy(self) -> Option<PathBuf> {
        let is_empty = self.file.metadata().is_ok_and(|meta| meta.len() == 0);
        if is_empty && self.own {
            // If this fails, an empty file stays.
            let _ = fs::remove_file(&self.path);
        }
        (!is_empty).then_some(self.path)
    }
}

/// The folder for the files of runs, which no other user can write to.
pub(super) fn folder() -> Result<PathBuf> {
    let folder = state_folder();
    let above = folder.parent().unwrap_or(&folder);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(above);
    // `Directory::create` checks that the folder belongs to this user, that no other user can write
    // to it, and that it is not a link.
    made.and_then(|()| Directory::create(&folder))
        .with_context(|| format!("{} cannot be used: give --log FILE", folder.display()))?;
    Ok(folder)
}

fn own_path(program: &OsStr) -> Result<PathBuf> {
    let folder = folder()?;
    prune(&folder);
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy();
    let plain = |c: char| if c.is_alphanumeric() || "._-".contains(c) { c } else { '_' };
    let name: String = name.chars().take(40).map(plain).collect();
    let time = local_time::file_stamp(local_time::unix_ns(std::time::SystemTime::now()));
    let pid = std::process::id();
    Ok(folder.join(format!("{PREFIX}{name}-{time}-{pid}{ENDING}")))
}

/// Removes old files. The last few files stay, and so do those that programs still write to.
fn prune(folder: &Path) {
    let Ok(files) = fs::read_dir(folder) else { return };
    let is_ours = |name: &OsStr| {
        name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(ENDING))
    };
    let mut logs: Vec<_> = files
        .flatten()
        .filter(|file| is_ours(&file.file_name()))
        .filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file.path())))
        .collect();
    logs.sort();
    let is_in_use = |path: &Path| {
        // SAFETY: `file` is open during the call, so its descriptor is valid.
        File::open(path).is_ok_and(|file| unsafe {
            libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) != 0
        })
    };
    for (_, path) in logs.iter().rev().skip(KEPT - 1).filter(|(_, path)| !is_in_use(path)) {
        // A file that cannot be removed does no harm.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::super::program::tests::wait_for;
    use super::*;
    use std::io::Write;
    use std::time::SystemTime;

    #[test]
    fn the_end_of_a_long_output_is_shown_without_control_sequences() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let log = LogFile::create(Some(&path), OsStr::new("x")).unwrap();
        let mut file = log.file().unwrap();
        for line in 0..20_000 {
            writeln!(file, "line {line}").unwrap();
        }
        writeln!(file, "\x1b]0;owned\x07").unwrap();
        let tail = log.tail(3).unwrap();
        assert_eq!(tail[..2], ["line 19998", "line 19999"]);
        assert!(!tail[2].contains('\x1b'), "{tail:?}");
        assert_eq!(log.tidy(), Some(path));
    }

    #[test]
    fn only_the_last_logs_are_kept_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("mine.txt"), "").unwrap();
        for n in 0..KEPT + 5 {
            fs::write(folder.path().join(format!("run-x-{n:02}.log")), "").unwrap();
        }
        // The oldest file belongs to a program that still runs.
        let used = folder.path().join("run-x-00.log");
        let log = LogFile::create(Some(&used), OsStr::new("x")).unwrap();
        let program = log.file().unwrap();
        File::options()
            .write(true)
            .open(&used)
            .unwrap()
            .set_modified(SystemTime::UNIX_EPOCH)
            .unwrap();
        let left = || {
            prune(folder.path());
            fs::read_dir(folder.path()).unwrap().count()
        };
        assert_eq!(left(), KEPT - 1 + 2, "room for the next one, the used and the other file");
        assert!(folder.path().join("mine.txt").exists() && used.exists());
        drop(log);
        assert!(left() == KEPT - 1 + 2 && used.exists());
        drop(program);
        // A child that another test starts has this test's files open until it executes its program.
        wait_for("the file to be removed", || (left() == KEPT - 1 + 1).then_some(()));
        assert!(!used.exists());
    }
}
