//! A file that is written whole or not at all.
//!
//! The file is written without a name if the file system allows that, else under a temporary name
//! in the same folder. Then it is synced to the disk, and only then it gets its name, in one step.
//! So a full disk, a crash or a kill at any moment leaves the old file or the new one. In two cases
//! a second file may be left, too: if the file system has no nameless files, and if a file that is
//! to replace another one has only its temporary name yet. The name of such a file begins with
//! [`DRAFT`], and pfp ignores the file.
//!
//! Like everything that may run inside the host program, this module prints nothing, never panics,
//! and turns each refusal into an error. A file that would exceed the limit of a file's size is an
//! error, too, because the system would send a signal for the attempt.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::descriptors::above_standard;
use crate::discovery::name::Name;
use crate::discovery::object::check_file_limit;
use crate::heap::{self, ShortText};

/// Beginning of the temporary names of files.
pub const DRAFT: &str = ".pfp-draft-";

/// The treatment of an existing file of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// The old file stays, and the new one is refused.
    Keep,
    /// The new file replaces the old file.
    Replace,
}

/// A file that is being written. Dropped before [`WholeFile::finish`], it leaves nothing.
#[derive(Debug)]
pub struct WholeFile {
    file: File,
    path: CString,
    /// The path of the folder, with a slash behind it.
    folder: CString,
    existing: Existing,
    /// The temporary name. `None` while the file is nameless.
    draft: Option<CString>,
    /// Bytes written so far.
    len: u64,
}

impl WholeFile {
    /// Begins a file with the permissions that the umask leaves.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if a file of that name exists and is to be kept; `InvalidInput` if the path
    /// names no file, or if it is to replace something else than a file; else the system's error.
    pub fn create(path: &Path, existing: Existing) -> io::Result<Self> {
        if path.file_name().is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let folder = heap::c_string(&[folder.as_os_str().as_bytes(), b"/"])?;
        let path = heap::c_string(&[path.as_os_str().as_bytes()])?;
        // Checked early, so that a wrong name costs no work, and again without a race when the file
        // gets its name.
        if existing == Existing::Keep && kind_of(&path).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if existing == Existing::Replace && !is_replaceable(&path) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (file, draft) = match nameless(&folder) {
            Ok(file) => (file, None),
            // The file system has no nameless files, or `named` will return the same error.
            Err(_) => named(&folder)?,
        };
        Ok(Self { file, path, folder, existing, draft, len: 0 })
    }

    /// Skips bytes, which become a hole: they read as zeros and take no space.
    ///
    /// # Errors
    ///
    /// The file would become too long.
    pub fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.make_room(bytes)?;
        self.file.set_len(self.len)?;
        self.file.seek(SeekFrom::Start(self.len))?;
        Ok(())
    }

    /// Syncs the file to the disk and gives it its name.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the file is not to be replaced and another file has taken its name in the
    /// meantime; else the system's error. The path then leads to the old file, or to none, unless
    /// the error came from syncing the folder.
    pub fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        match (&self.draft, self.existing) {
            (None, Existing::Keep) => give_name(&self.file, &self.path)?,
            (None, Existing::Replace) => {
                let draft = draft_in(&self.folder)?;
                give_name(&self.file, &draft)?;
                // From here on the draft has to be removed if a step fails.
                let draft = self.draft.insert(draft);
                rename(draft, &self.path)?;
            }
            (Some(draft), Existing::Keep) => rename_new(draft, &self.path)?,
            (Some(draft), Existing::Replace) => rename(draft, &self.path)?,
        }
        self.draft = None;
        // The name is on the disk only after the folder has been synced.
        match open(&self.folder, libc::O_RDONLY)?.sync_all() {
            // Some file systems need not sync folders, or cannot.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced,
        }
    }

    /// Adds bytes to the length, if the limit of a file's size allows them.
    fn make_room(&mut self, bytes: u64) -> io::Result<()> {
        let len = self.len.checked_add(bytes).ok_or(io::ErrorKind::FileTooLarge)?;
        check_file_limit(len)?;
        self.len = len;
        Ok(())
    }
}

impl Write for WholeFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let before = self.len;
        self.make_room(bytes.len() as u64)?;
        let written = self.file.write(bytes);
        self.len = before + *written.as_ref().unwrap_or(&0) as u64;
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Some(draft) = &self.draft {
            // A destructor has no caller to report an error to.
            let _ = remove(draft);
        }
    }
}

/// Checks that a new file may take this path: the path is free, or leads to a regular file or to a
/// link. A link itself is replaced, not its target. A file in place of a device would hide the
/// device from all programs.
///
/// # Errors
///
/// `InvalidInput` if the path leads to anything else.
#[allow(clippy::disallowed_methods, reason = "only viewers ask for the words")]
pub fn check_replaceable(path: &Path) -> io::Result<()> {
    if is_replaceable(&heap::c_string(&[path.as_os_str().as_bytes()])?) {
        return Ok(());
    }
    let why = "expected a file to replace, found something else, such as a device or a folder: give \
               the name of a file";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

fn is_replaceable(path: &CStr) -> bool {
    kind_of(path).is_none_or(|kind| kind == libc::S_IFREG || kind == libc::S_IFLNK)
}

/// The file type of a path, as bits of its mode. `None` if the path does not exist.
fn kind_of(path: &CStr) -> Option<libc::mode_t> {
    let mut stat = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a NUL-terminated path and a place for a stat, which both outlive the call.
    let refused = unsafe { libc::lstat(path.as_ptr(), stat.as_mut_ptr()) } != 0;
    // SAFETY: zeroed and then filled in by the call; any bytes are valid.
    (!refused).then(|| unsafe { stat.assume_init() }.st_mode & libc::S_IFMT)
}

/// Opens a file, or creates it if the flags request that, with the permissions that the umask
/// leaves.
fn open(path: &CStr, flags: libc::c_int) -> io::Result<File> {
    loop {
        // SAFETY: a NUL-terminated path that outlives the call, and plain numbers.
        let open = || unsafe { libc::open(path.as_ptr(), flags | libc::O_CLOEXEC, 0o666) };
        let found = above_standard(open);
        if found >= 0 {
            // SAFETY: a descriptor that was opened just now and has no other owner.
            return Ok(unsafe { File::from_raw_fd(found) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// A file without a name, which vanishes with its last descriptor.
fn nameless(folder: &CStr) -> io::Result<File> {
    // [`give_name`] names the file through this folder.
    kind_of(DESCRIPTORS).ok_or(io::ErrorKind::NotFound)?;
    open(folder, libc::O_RDWR | libc::O_TMPFILE)
}

/// A file under a temporary name, and that name.
fn named(folder: &CStr) -> io::Result<(File, Option<CString>)> {
    let draft = draft_in(folder)?;
    let file = open(&draft, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)?;
    Ok((file, Some(draft)))
}

fn draft_in(folder: &CStr) -> io::Result<CString> {
    heap::c_string(&[folder.to_bytes(), DRAFT.as_bytes(), Name::random()?.hex().as_bytes()])
}

const DESCRIPTORS: &CStr = c"/proc/self/fd";

/// Names a file that has no name, unless something has that name already.
fn give_name(file: &File, to: &CStr) -> io::Result<()> {
    let number = ShortText::<16>::of(format_args!("/{}", file.as_raw_fd()));
    let from = heap::c_string(&[DESCRIPTORS.to_bytes(), number.as_bytes()])?;
    let flags = libc::AT_SYMLINK_FOLLOW;
    // SAFETY: NUL-terminated paths that outlive the call, and plain numbers.
    let refused =
        unsafe { libc::linkat(libc::AT_FDCWD, from.as_ptr(), libc::AT_FDCWD, to.as_ptr(), flags) };
    if refused != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn rename(from: &CStr, to: &CStr) -> io::Result<()> {
    // SAFETY: NUL-terminated paths that outlive the call.
    let refused = unsafe { libc::rename(from.as_ptr(), to.as_ptr()) };
    if refused != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn remove(path: &CStr) -> io::Result<()> {
    // SAFETY: a NUL-terminated path that outlives the call.
    let refused = unsafe { libc::unlink(path.as_ptr()) };
    if refused != 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Gives a file its final name, unless something has that name already.
pub(crate) fn rename_new(old: &CStr, new: &CStr) -> io::Result<()> {
    // The bare system call: older C libraries have no function for it.
    // SAFETY: NUL-terminated paths that outlive the call, and plain numbers.
    let refused = unsafe {
        libc::syscall(
            libc::SYS_renameat2,
            libc::AT_FDCWD,
            old.as_ptr(),
            libc::AT_FDCWD,
            new.as_ptr(),
            libc::RENAME_NOREPLACE,
        )
    };
    if refused == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if !matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS)) {
        return Err(error);
    }
    // A file system or kernel without that flag. `link` refuses a second name that is taken.
    // SAFETY: NUL-terminated paths that outlive the call.
    if unsafe { libc::link(old.as_ptr(), new.as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // If the removal fails, the file keeps the draft's name as a second name.
    let _ = remove(old);
    Ok(())
}

// Miri does not support the system calls of these tests.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    /// A folder that is removed after the test.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = Name::random().unwrap();
            let path = std::env::temp_dir().join(format!("pfp-whole-{}", name.hex()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> Vec<String> {
            let files = fs::read_dir(&self.0).unwrap();
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Begins a file as this file system allows, or, if `by_name`, as if the file system had no
    /// nameless files.
    fn begun(path: &Path, existing: Existing, by_name: bool) -> io::Result<WholeFile> {
        let mut file = WholeFile::create(path, existing)?;
        if by_name {
            (file.file, file.draft) = named(&file.folder)?;
        }
        Ok(file)
    }

    #[test]
    fn there_is_nothing_before_the_end_and_one_file_after_it() {
        for by_name in [false, true] {
            let folder = Folder::new();
            let path = folder.0.join("a");
            let mut file = begun(&path, Existing::Keep, by_name).unwrap();
            file.write_all(b"one").unwrap();
            file.skip(10_000).unwrap();
            file.write_all(b"two").unwrap();
            file.skip(5).unwrap();
            assert!(!path.exists());
            file.finish().unwrap();
            let read = fs::read(&path).unwrap();
            assert_eq!(
                (read.len(), &read[..3], &read[10_003..]),
                (10_011, &b"one"[..], &b"two\0\0\0\0\0"[..])
            );
            assert_eq!(folder.names(), ["a"]);
        }
    }

    #[test]
    fn an_unfinished_file_leaves_nothing() {
        for by_name in [false, true] {
            let folder = Folder::new();
            let mut file = begun(&folder.0.join("a"), Existing::Replace, by_name).unwrap();
            file.write_all(b"one").unwrap();
            drop(file);
            assert_eq!(folder.names(), [""; 0]);
        }
    }

    #[test]
    fn a_file_is_replaced_only_on_demand() {
        for by_name in [false, true] {
            let folder = Folder::new();
            let path = folder.0.join("a");
            // Another file gets the name while this one is being written.
            let mut kept = begun(&path, Existing::Keep, by_name).unwrap();
            kept.write_all(b"new").unwrap();
            fs::write(&path, "precious").unwrap();
            assert_eq!(kept.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            let early = WholeFile::create(&path, Existing::Keep).unwrap_err();
            assert_eq!(early.kind(), io::ErrorKind::AlreadyExists);
            assert_eq!(fs::read(&path).unwrap(), b"precious");

            let mut replaced = begun(&path, Existing::Replace, by_name).unwrap();
            replaced.write_all(b"new").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"precious");
            replaced.finish().unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"new");
            assert_eq!(folder.names(), ["a"]);
        }
    }

    #[test]
    fn the_umask_sets_the_permissions() {
        let folder = Folder::new();
        let plain = folder.0.join("plain");
        File::create(&plain).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        for by_name in [false, true] {
            let path = folder.0.join(format!("{by_name}"));
            begun(&path, Existing::Keep, by_name).unwrap().finish().unwrap();
            assert_eq!(mode(&path), mode(&plain));
        }
    }

    #[test]
    fn an_unusable_path_is_refused() {
        for wrong in ["", "/", "..", "/proc/self/no-such-folder/a", "/dev/full/a", "a\0b"] {
            let made = WholeFile::create(Path::new(wrong), Existing::Replace);
            assert!(made.and_then(WholeFile::finish).is_err(), "{wrong:?}");
        }
    }
}
