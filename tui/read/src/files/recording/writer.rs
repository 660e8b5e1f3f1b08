//! Writes recordings: appends snapshots to a file, which is valid after each one.
//!
//! A frame is a single write at the end of the file. If the disk is full, a partial frame is
//! removed; if the recorder is killed, readers skip the partial frame. The recorder locks the file,
//! so that readers know that the file grows, and a second recorder is refused.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use pfp_shm_layout::atomic_file::check_replaceable;

use super::format::{Encoder, FileHeader};
use super::reader::Recording;
use crate::files::input;
use crate::files::json::Existing;
use crate::snapshot::{Drained, ProcessState, Snapshot};

/// Maximum number of frames between two key frames.
const KEY_EVERY: u32 = 60;

/// Appends to a recording.
pub struct Writer {
    file: File,
    /// Number of bytes of the whole frames.
    len: u64,
    frames: u64,
    encoder: Encoder,
    key: Option<KeyFrame>,
    /// The moment of the last snapshot.
    last: FrameTimes,
}

/// The moment of a snapshot by several clocks; nanoseconds.
#[derive(Clone, Copy)]
struct FrameTimes {
    /// Time since the first snapshot.
    since_first: u64,
    /// Age of the process, by a monotonic clock.
    age: u64,
    unix: u64,
}

impl FrameTimes {
    fn of(snapshot: &Snapshot, since_first: u64) -> Self {
        let age = snapshot.elapsed_ticks as f64 / snapshot.clock.ticks_per_second * 1e9;
        Self { since_first, age: age as u64, unix: snapshot.taken_unix_ns }
    }

    /// The moment of the next snapshot of the same process.
    fn next(self, snapshot: &Snapshot) -> Self {
        let mut next = Self::of(snapshot, 0);
        let later = match snapshot.process.state {
            ProcessState::Running => next.age.saturating_sub(self.age),
            // The age of an ended process no longer grows, so use the wall clock.
            _ => next.unix.saturating_sub(self.unix),
        };
        next.since_first = self.since_first.saturating_add(later);
        next
    }
}

/// The last key frame.
struct KeyFrame {
    number: u64,
    snapshot: Snapshot,
    /// Compressed size of the snapshot, in bytes.
    bytes: usize,
    /// Whether the differences from this key have become nearly as large as a key frame.
    spent: bool,
}

impl Writer {
    /// Begins a recording with a first snapshot. The file appears together with that snapshot, or
    /// not at all.
    ///
    /// # Errors
    ///
    /// If the file exists and may not be replaced, or if writing fails.
    pub fn create(
        path: &Path,
        overwrite: Existing,
        interval_ns: u64,
        first: &Snapshot,
        events: &[Drained],
    ) -> Result<Self> {
        let shown = path.display();
        let exists = || format!("{shown} exists already: give another name, --append or --force");
        ensure!(overwrite == Existing::Replace || fs::symlink_metadata(path).is_err(), exists());
        let failed = || format!("{shown} was not written");
        check_replaceable(path).with_context(failed)?;
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let neighbour = tempfile::Builder::new()
            .prefix(".pfp-recording-")
            // As for any new file, the umask decides who may read it.
            .permissions(fs::Permissions::from_mode(0o666))
            .tempfile_in(folder)
            .with_context(failed)?;
        let header = FileHeader::new(interval_ns).encode();
        neighbour.as_file().write_all_at(&header, 0).with_context(failed)?;
        let mut writer = Self {
            file: neighbour.as_file().try_clone().with_context(failed)?,
            len: header.len() as u64,
            frames: 0,
            encoder: Encoder::new().with_context(failed)?,
            key: None,
            last: FrameTimes::of(first, 0),
        };
        ensure!(lock(&writer.file)?, "the new file is locked by another process");
        writer.append(first, events).with_context(failed)?;
        let named = match overwrite {
            Existing::Replace => neighbour.persist(path),
            Existing::Keep => neighbour.persist_noclobber(path),
        };
        match named {
            Ok(_) => Ok(writer),
            Err(refused) if refused.error.kind() == io::ErrorKind::AlreadyExists => bail!(exists()),
            Err(refused) => Err(refused.error).with_context(failed),
        }
    }

    /// Continues a recording of the same process. Also returns its last snapshot, and the number of
    /// bytes of a partial frame that were removed.
    ///
    /// # Errors
    ///
    /// If the file is not a recording, is being written, or cannot be written.
    pub fn resume(path: &Path) -> Result<(Self, Snapshot, u64)> {
        let shown = path.display();
        let file = fs::metadata(path)
            .and_then(|about| input::check_regular(&about))
            .and_then(|()| OpenOptions::new().read(true).write(true).open(path));
        let file = file.with_context(|| format!("{shown} cannot be appended to"))?;
        ensure!(lock(&file)?, "another pfp-top is recording into {shown}; stop it first");
        let mut known = Recording::read(file.try_clone()?, path)?;
        let (len, frames) = (known.whole_bytes(), known.len() as u64);
        let since_first = known.since_first(known.cursor()).as_nanos() as u64;
        let last = known.shown()?;
        let found = file.metadata()?.len();
        ensure!(
            !known.is_damaged(),
            "expected a recording that is whole, found {shown} damaged after {frames} snapshots; \
             record into another file"
        );
        file.set_len(len)?;
        let encoder = Encoder::new()?;
        let moment = FrameTimes::of(&last, since_first);
        let writer = Self { file, len, frames, encoder, key: None, last: moment };
        Ok((writer, last, found.saturating_sub(len)))
    }

    /// Appends a snapshot and the rings' new records since the previous one.
    ///
    /// # Errors
    ///
    /// If writing fails; the file is then as it was before.
    pub fn append(&mut self, snapshot: &Snapshot, events: &[Drained]) -> io::Result<()> {
        let number = self.frames;
        let back = |key: &KeyFrame| (number - key.number) as u32;
        let key = self.key.as_ref().filter(|key| !key.spent && back(key) < KEY_EVERY);
        let against = key.map(|key| (back(key), &key.snapshot));
        let is_key = against.is_none();
        let moment = self.last.next(snapshot);
        let place = (number, moment.since_first);
        let (frame, bytes) = self.encoder.frame(place, snapshot, against, events)?;
        let mut written = self.file.write_all_at(&frame, self.len);
        if is_key {
            // Sync each key frame, so that a power failure can only damage later frames.
            written = written.and_then(|()| self.file.sync_data());
        }
        if let Err(error) = written {
            // If this fails, too, readers skip a partial frame, and the next append overwrites it.
            let _ = self.file.set_len(self.len);
            return Err(error);
        }
        match &mut self.key {
            Some(key) if !is_key => key.spent = bytes > key.bytes / 4 * 3,
            key => {
                let snapshot = Snapshot { records: Vec::new(), ..snapshot.clone() };
                *key = Some(KeyFrame { number, snapshot, bytes, spent: false });
            }
        }
        self.len += frame.len() as u64;
        self.frames += 1;
        self.last = moment;
        Ok(())
    }

    /// Syncs the file to the disk.
    ///
    /// # Errors
    ///
    /// If syncing fails.
    pub fn finish(&mut self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Size of the file, in bytes.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Number of snapshots in the file.
    pub fn frames(&self) -> u64 {
        self.frames
    }
}

/// Locks the file for writing. Returns false if another process has locked it.
fn lock(file: &File) -> io::Result<bool> {
    // SAFETY: `file` is open, so its descriptor is valid.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } {
        0 => Ok(true),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    /// /dev/null stands in for a disk that accepts the frame but fails to sync it.
    #[test]
    fn a_key_frame_that_cannot_be_synced_is_not_appended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.pfprec");
        let mut source = Synthetic::new();
        let all: Vec<Snapshot> = (0..3).map(|_| source.poll().unwrap()).collect();
        let mut writer = Writer::create(&path, Existing::Keep, 1, &all[0], &[]).unwrap();

        writer.key = None;
        let before = (writer.frames(), writer.bytes());
        let null = OpenOptions::new().write(true).open("/dev/null").unwrap();
        let file = std::mem::replace(&mut writer.file, null);
        writer.append(&all[1], &[]).unwrap_err();
        assert_eq!((writer.frames(), writer.bytes()), before);
        assert!(writer.key.is_none(), "no frame may refer to this one");

        writer.file = file;
        writer.append(&all[2], &[]).unwrap();
        let mut found = Recording::read(File::open(&path).unwrap(), &path).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found.shown().unwrap().elapsed_ticks, all[2].elapsed_ticks);
    }
}
