//! The directory that holds the beacons, and every file access in it.
//!
//! The directory is the first of these that applies:
//!
//! 1. `$PFP_DIR`, for tests and for containers that share a directory;
//! 2. `$XDG_RUNTIME_DIR/pfp`, else `/run/user/<uid>/pfp`, if the directory
//!    above it is there and belongs to this user;
//! 3. `/tmp/pfp-<uid>`.
//!
//! A program chooses one of them. A service may have no `$XDG_RUNTIME_DIR` although its user's
//! shell has one, so a viewer searches all of them.
//!
//! All users can write to `/tmp`, so everything is checked: the directory is not a link, belongs to
//! this user, and no other user can write to it. It is held open, and each file in it is opened
//! through that descriptor, without following a link, and must be a regular file of this user's
//! under one name. Each refusal names the path, what was expected and what was found.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::descriptors::above_standard;
use crate::environment::variable;
use crate::heap::{self, Grow, NoMemory, ShortText};

/// Maximum number of files of a directory that are read in one call.
pub const MAX_FILES: usize = 4096;

/// An open directory of beacons, checked when it was opened.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    errors: Errors,
}

/// The form of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Errors {
    /// A text with the refused path, the expected state and the state that was found.
    InWords,
    /// Only the kind, or the system's number. A measured program uses this form, because a text
    /// takes memory, which may have run out.
    Plain,
}

impl Directory {
    /// The directories where segments of this user may be, in order of preference. Empty if memory
    /// runs out.
    pub fn candidates() -> Vec<PathBuf> {
        Directory::try_candidates().unwrap_or_default()
    }

    fn try_candidates() -> Result<Vec<PathBuf>, NoMemory> {
        let user = effective_user();
        let mut places = Vec::new();
        if let Some(dir) = variable(c"PFP_DIR").filter(|dir| !dir.is_empty()) {
            places.try_push(heap::path(&[dir.as_bytes()])?)?;
            return Ok(places);
        }
        let usual = ShortText::<32>::of(format_args!("/run/user/{user}"));
        let given = variable(c"XDG_RUNTIME_DIR").map(OsStr::as_bytes);
        for base in given.into_iter().chain([usual.as_bytes()]) {
            // `sudo` may pass on the variable of another user, to whose directory this process must
            // not write.
            let is_own = heap::c_string(&[base])
                .and_then(|base| status_at(libc::AT_FDCWD, &base, 0))
                .is_ok_and(|stat| is_directory(&stat) && stat.st_uid == user);
            let path = heap::path(&[base.strip_suffix(b"/").unwrap_or(base), b"/pfp"])?;
            if is_own && path.is_absolute() && !places.contains(&path) {
                places.try_push(path)?;
            }
        }
        let last = ShortText::<32>::of(format_args!("/tmp/pfp-{user}"));
        places.try_push(heap::path(&[last.as_bytes()])?)?;
        Ok(places)
    }

    /// The directory for this process's own beacon: the first candidate that exists or can be made.
    ///
    /// # Errors
    ///
    /// If all candidates fail, the error of [`Directory::create`] for the first candidate, without
    /// a text. `OutOfMemory` if memory runs out.
    pub fn for_this_process() -> io::Result<Directory> {
        let mut first_error = None;
        for path in Directory::try_candidates()? {
            match Directory::create_with(&path, Errors::Plain) {
                Ok(directory) => return Ok(directory),
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    /// Opens a directory and checks it. If it does not exist, makes it first, with mode 0700
    /// whatever the umask. The directory above has to exist.
    ///
    /// # Errors
    ///
    /// Fails like [`Directory::open`], except that `NotFound` means that the directory above is
    /// missing.
    pub fn create(path: &Path) -> io::Result<Directory> {
        Directory::create_with(path, Errors::InWords)
    }

    fn create_with(path: &Path, errors: Errors) -> io::Result<Directory> {
        let name = to_c(path.as_os_str())?;
        // SAFETY: a NUL-terminated path that outlives the call.
        if unsafe { libc::mkdir(name.as_ptr(), 0o700) } != 0 {
            let error = io::Error::last_os_error();
            // A directory that exists already is checked by `open_with`.
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(errors.at(path, error));
            }
        }
        Directory::open_with(path, errors)
    }

    /// Opens a directory and checks it.
    ///
    /// # Errors
    ///
    /// `NotFound`; `NotADirectory` for any other file, also a symbolic link;
    /// `PermissionDenied` if the directory belongs to another user or others may
    /// write to it; else the system's error.
    pub fn open(path: &Path) -> io::Result<Directory> {
        Directory::open_with(path, Errors::InWords)
    }

    /// [`Self::open`], with errors that take no memory.
    pub(crate) fn open_plainly(path: &Path) -> io::Result<Directory> {
        Directory::open_with(path, Errors::Plain)
    }

    fn open_with(path: &Path, errors: Errors) -> io::Result<Directory> {
        let name = to_c(path.as_os_str())?;
        // O_PATH, so that the directory is checked before anything in it is opened. Also, only
        // O_PATH opens a directory that this process has created under a umask of 0777.
        let at = |error| errors.at(path, error);
        let look = open_at(libc::AT_FDCWD, &name, libc::O_PATH, 0).map_err(at)?;
        let stat = status(look.as_raw_fd())?;
        let refuse = |kind, expected, found| Err(errors.refusal(kind, path, expected, found));
        if !is_directory(&stat) {
            return refuse(
                io::ErrorKind::NotADirectory,
                format_args!("a directory"),
                format_args!("{}", kind_of(stat.st_mode)),
            );
        }
        let user = effective_user();
        if stat.st_uid != user {
            return refuse(
                io::ErrorKind::PermissionDenied,
                format_args!("a directory of user {user}"),
                format_args!("one of user {}", stat.st_uid),
            );
        }
        if stat.st_mode & 0o022 != 0 {
            return refuse(
                io::ErrorKind::PermissionDenied,
                format_args!("a directory that only its owner can write to"),
                format_args!("mode {:04o}", stat.st_mode & 0o7777),
            );
        }
        if stat.st_mode & 0o700 != 0o700 {
            chmod(&look, 0o700).map_err(at)?;
        }
        let fd =
            open_at(look.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0).map_err(at)?;
        Ok(Directory { fd, path: heap::path(&[path.as_os_str().as_bytes()])?, errors })
    }

    /// The path by which the directory was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in the directory, for messages.
    pub(crate) fn path_of(&self, name: &CStr) -> Result<PathBuf, NoMemory> {
        heap::path(&[self.path.as_os_str().as_bytes(), b"/", name.to_bytes()])
    }

    /// Opens a file for reading, if this user could have made it here.
    pub(crate) fn open_file(&self, name: &CStr) -> io::Result<File> {
        self.open_as(name, libc::O_RDONLY)
    }

    /// Opens a file for reading and writing, as a lock of bytes requires.
    ///
    /// # Errors
    ///
    /// `NotFound`; `PermissionDenied` if this user could not have made the file here; else the
    /// system's error.
    pub fn open_to_lock(&self, name: &CStr) -> io::Result<File> {
        self.open_as(name, libc::O_RDWR)
    }

    fn open_as(&self, name: &CStr, access: libc::c_int) -> io::Result<File> {
        // O_NONBLOCK: opening a FIFO that another user planted here must not block.
        let fd = open_at(self.fd.as_raw_fd(), name, access | libc::O_NONBLOCK | libc::O_NOCTTY, 0)
            .map_err(|e| match e.raw_os_error() {
                Some(libc::ELOOP) => self.refusal(name, "a regular file", "a symbolic link"),
                _ => e,
            })?;
        let stat = status(fd.as_raw_fd())?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFREG {
            return Err(self.refusal(name, "a regular file", kind_of(stat.st_mode)));
        }
        let user = effective_user();
        if stat.st_uid != user {
            return Err(self.refusal(
                name,
                format_args!("a file of user {user}"),
                format_args!("one of user {}", stat.st_uid),
            ));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(self.refusal(
                name,
                "a file that only its owner can write to",
                format_args!("mode {:04o}", stat.st_mode & 0o7777),
            ));
        }
        if stat.st_nlink > 1 {
            return Err(self.refusal(
                name,
                "a file with one name",
                format_args!("{} names", stat.st_nlink),
            ));
        }
        if stat.st_nlink == 0 {
            // The file was removed after it was found.
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(File::from(fd))
    }

    /// Makes a new file, for its owner alone whatever the umask.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`; else the system's error.
    pub fn create_file(&self, name: &CStr) -> io::Result<File> {
        let fd =
            open_at(self.fd.as_raw_fd(), name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
        // The sticky bit makes cleaners of /tmp and of the runtime directory leave an old file
        // alone (XDG base directory specification).
        // SAFETY: an open descriptor and a plain number.
        if unsafe { libc::fchmod(fd.as_raw_fd(), 0o1600) } != 0 {
            let error = io::Error::last_os_error();
            self.remove(name).ok();
            return Err(error);
        }
        Ok(File::from(fd))
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: a NUL-terminated name that outlives the call.
        if unsafe { libc::unlinkat(self.fd.as_raw_fd(), name.as_ptr(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// The text of a symbolic link of this user's, at most `limit` bytes of it. The link is never
    /// followed.
    pub(crate) fn read_link(&self, name: &CStr, limit: usize) -> io::Result<Vec<u8>> {
        let stat = self.status_of(name)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return Err(self.refusal(name, "a symbolic link", kind_of(stat.st_mode)));
        }
        let user = effective_user();
        if stat.st_uid != user {
            return Err(self.refusal(
                name,
                format_args!("a link of user {user}"),
                format_args!("one of user {}", stat.st_uid),
            ));
        }
        let mut text = Vec::new();
        text.try_resize_with(limit, || 0u8)?;
        // SAFETY: a NUL-terminated name and a buffer of that length, which both outlive
        // the call.
        let read = unsafe {
            let to = text.as_mut_ptr().cast();
            libc::readlinkat(self.fd.as_raw_fd(), name.as_ptr(), to, text.len())
        };
        text.truncate(usize::try_from(read).map_err(|_| io::Error::last_os_error())?);
        Ok(text)
    }

    /// Leaves a text as the target of a symbolic link. This needs no free descriptor, unlike
    /// opening the directory or making a file. The link replaces any file of that name in the
    /// directory.
    pub(crate) fn leave_link(path: &Path, name: &CStr, text: &CStr) -> io::Result<()> {
        let to = heap::c_string(&[path.as_os_str().as_bytes(), b"/", name.to_bytes()])?;
        let path = to_c(path.as_os_str())?;
        let stat = status_at(libc::AT_FDCWD, &path, libc::AT_SYMLINK_NOFOLLOW)?;
        let is_trusted =
            is_directory(&stat) && stat.st_uid == effective_user() && stat.st_mode & 0o022 == 0;
        if !is_trusted {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Between the check and these two calls, only this user could replace the directory: /tmp
        // has the sticky bit. The calls do not follow a link in the last step.
        // SAFETY: NUL-terminated texts that outlive the calls.
        let refused = unsafe {
            libc::unlink(to.as_ptr());
            libc::symlink(text.as_ptr(), to.as_ptr())
        };
        if refused != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    fn status_of(&self, name: &CStr) -> io::Result<libc::stat> {
        status_at(self.fd.as_raw_fd(), name, libc::AT_SYMLINK_NOFOLLOW)
    }

    /// Whether the name still leads to the file that was opened by it.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn leads_to(&self, name: &CStr, file: &File) -> io::Result<bool> {
        let held = FileId::of(file)?;
        match self.status_of(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            named => Ok(FileId::from(&named?) == held),
        }
    }

    /// The names of at most `limit` files in the directory, and whether it has more.
    pub(crate) fn names(&self, limit: usize) -> io::Result<(Vec<CString>, bool)> {
        // A new descriptor, because reading a directory moves the position of its descriptor.
        let fd = open_at(self.fd.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .map_err(|e| self.errors.at(&self.path, e))?;
        let mut entries = Entries::over(fd)?;
        let mut names = Vec::new();
        while let Some(name) = entries.next()? {
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == limit {
                return Ok((names, true));
            }
            names.try_push(name)?;
        }
        Ok((names, false))
    }

    fn refusal(
        &self,
        name: &CStr,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> io::Error {
        match self.path_of(name) {
            Ok(path) => {
                let kind = io::ErrorKind::PermissionDenied;
                self.errors.refusal(
                    kind,
                    &path,
                    format_args!("{expected}"),
                    format_args!("{found}"),
                )
            }
            Err(error) => error.into(),
        }
    }
}

impl Errors {
    #[allow(clippy::disallowed_methods, clippy::disallowed_macros, reason = "only in words")]
    fn refusal(
        self,
        kind: io::ErrorKind,
        path: &Path,
        expected: fmt::Arguments<'_>,
        found: fmt::Arguments<'_>,
    ) -> io::Error {
        match self {
            Self::InWords => io::Error::new(
                kind,
                format!("{}: expected {expected}, found {found}", path.display()),
            ),
            Self::Plain => kind.into(),
        }
    }

    /// The system's error, with the path that it is about.
    #[allow(clippy::disallowed_methods, reason = "only in words")]
    fn at(self, path: &Path, error: io::Error) -> io::Error {
        match self {
            Self::InWords => io::Error::new(error.kind(), At { path: path.to_owned(), error }),
            Self::Plain => error,
        }
    }
}

/// A directory stream.
struct Entries {
    stream: *mut libc::DIR,
}

impl Entries {
    fn over(fd: OwnedFd) -> io::Result<Entries> {
        // SAFETY: an open directory; on success the stream owns the descriptor.
        let stream = unsafe { libc::fdopendir(fd.as_raw_fd()) };
        if stream.is_null() {
            return Err(io::Error::last_os_error());
        }
        std::mem::forget(fd);
        Ok(Entries { stream })
    }

    fn next(&mut self) -> io::Result<Option<CString>> {
        // SAFETY: the calling thread's errno is always valid. It is zeroed to distinguish the end
        // from an error.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open until drop, and `&mut` excludes other users.
        let entry = unsafe { libc::readdir(self.stream) };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(0) | None => Ok(None),
                _ => Err(error),
            };
        }
        // SAFETY: readdir returned an entry, whose name ends in NUL; it is
        // copied before the next call reuses it.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
        heap::c_string(&[name.to_bytes()]).map(Some)
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: the stream is open and is never used again.
        unsafe { libc::closedir(self.stream) };
    }
}

/// Sets the mode of the file behind a descriptor, which may have been opened with O_PATH.
pub(crate) fn chmod(file: &OwnedFd, mode: libc::mode_t) -> io::Result<()> {
    // fchmod refuses O_PATH descriptors, and the file's own path could lead to another file by now.
    // A path in `/proc/self/fd` leads to exactly the file that is open.
    let path = ShortText::<32>::of(format_args!("/proc/self/fd/{}\0", file.as_raw_fd()));
    let path =
        CStr::from_bytes_with_nul(path.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: a NUL-terminated path that outlives the call.
    if unsafe { libc::chmod(path.as_ptr(), mode) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `openat` that follows no link in the last step, and whose descriptor `exec` closes.
fn open_at(dir: RawFd, name: &CStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<OwnedFd> {
    loop {
        // SAFETY: a NUL-terminated name that outlives the call, and plain numbers.
        let fd = above_standard(|| unsafe {
            libc::openat(dir, name.as_ptr(), flags | libc::O_NOFOLLOW | libc::O_CLOEXEC, mode)
        });
        if fd >= 0 {
            // SAFETY: a descriptor that was just opened and has no other owner.
            return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

fn status(fd: RawFd) -> io::Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the buffer is a stat that outlives the call.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then filled in by the call; any bytes are valid.
    Ok(unsafe { stat.assume_init() })
}

/// The status of a path. `AT_SYMLINK_NOFOLLOW` in `flags` asks about a link itself.
fn status_at(dir: RawFd, name: &CStr, flags: libc::c_int) -> io::Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a NUL-terminated name and a stat, which both outlive the call.
    let refused = unsafe { libc::fstatat(dir, name.as_ptr(), stat.as_mut_ptr(), flags) };
    if refused != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then filled in by the call; any bytes are valid.
    Ok(unsafe { stat.assume_init() })
}

/// Device and inode of a file. Two files that exist at the same time differ in them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct FileId(libc::dev_t, libc::ino_t);

impl FileId {
    /// The identity of an open file.
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        status(file.as_raw_fd()).map(|stat| Self::from(&stat))
    }

    /// Whether a path leads to this file. False if the system refuses to answer.
    pub(crate) fn is_at(self, path: &CStr) -> bool {
        status_at(libc::AT_FDCWD, path, libc::AT_SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| Self::from(&stat) == self)
    }
}

impl From<&libc::stat> for FileId {
    fn from(stat: &libc::stat) -> Self {
        Self(stat.st_dev, stat.st_ino)
    }
}

fn is_directory(stat: &libc::stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFDIR
}

fn kind_of(mode: libc::mode_t) -> &'static str {
    match mode & libc::S_IFMT {
        libc::S_IFREG => "a regular file",
        libc::S_IFDIR => "a directory",
        libc::S_IFLNK => "a symbolic link",
        libc::S_IFIFO => "a FIFO",
        libc::S_IFSOCK => "a socket",
        _ => "a device",
    }
}

fn effective_user() -> libc::uid_t {
    // SAFETY: the call has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

fn to_c(text: &OsStr) -> io::Result<CString> {
    heap::c_string(&[text.as_bytes()])
}

/// The system's error with its path; [`failure::errno_of`](crate::discovery::failure::errno_of)
/// finds the error number in it.
#[derive(Debug)]
struct At {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.error)
    }
}

impl std::error::Error for At {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// A directory of beacons for tests, which is removed when this is dropped.
#[cfg(all(test, not(miri)))]
pub(crate) struct TemporaryDirectory(pub(crate) Directory);

#[cfg(all(test, not(miri)))]
impl TemporaryDirectory {
    pub(crate) fn new(about: &str) -> Self {
        let name = crate::discovery::name::Name::random().unwrap();
        let name = format!("pfp-{about}-{}", name.hex());
        Self(Directory::create(&std::env::temp_dir().join(name)).unwrap())
    }
}

#[cfg(all(test, not(miri)))]
impl Drop for TemporaryDirectory {
    fn drop(&mut self) {
        std::fs::remove_dir_all(self.0.path()).ok();
    }
}
