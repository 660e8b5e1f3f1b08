//! The directory that holds the beacons, and every file access in it.
//!
//! The first of these that applies:
//!
//! 1. `$PFP_DIR`, for tests and for containers that share a directory;
//! 2. `$XDG_RUNTIME_DIR/pfp`, else `/run/user/<uid>/pfp`, if the directory
//!    above it is there and belongs to this user;
//! 3. `/tmp/pfp-<uid>`.
//!
//! A program picks one; a service may have no `$XDG_RUNTIME_DIR` where its
//! user's shell has one, so a viewer looks in all of them.
//!
//! `/tmp` belongs to everybody, so nothing is taken on trust: the directory
//! is a real one, of this user, that nobody else can write to; it is held
//! open, and each file in it is reached through that descriptor, without
//! following a link, and has to be a regular file of this user's under one
//! name. Each refusal names the path, the expected and the found.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::descriptors::above_standard;
use crate::environment::variable;

/// At most this many files of a directory are looked at in one go.
pub const MAX_FILES: usize = 4096;

/// An open directory of beacons, checked when it was opened.
#[derive(Debug)]
pub struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Directory {
    /// Where segments of this user may be found, the preferred place first.
    pub fn candidates() -> Vec<PathBuf> {
        let user = effective_user();
        let mut places = Vec::new();
        if let Some(dir) = variable(c"PFP_DIR").filter(|dir| !dir.is_empty()) {
            return vec![PathBuf::from(dir)];
        }
        if let Some(base) = variable(c"XDG_RUNTIME_DIR") {
            places.push(PathBuf::from(base));
        }
        places.push(PathBuf::from(format!("/run/user/{user}")));
        // `sudo` may hand on the variable of another user, whose directory is
        // not ours to write in.
        places.retain(|base| {
            base.is_absolute()
                && std::fs::metadata(base).is_ok_and(|meta| meta.is_dir() && meta.uid() == user)
        });
        for base in &mut places {
            base.push("pfp");
        }
        places.dedup();
        places.push(PathBuf::from(format!("/tmp/pfp-{user}")));
        places
    }

    /// The directory for this process's own beacon, made if need be: the
    /// first of the candidates that can be had.
    ///
    /// # Errors
    ///
    /// As [`Directory::create`], for the first candidate, if none can be had.
    pub fn for_this_process() -> io::Result<Directory> {
        let mut first_error = None;
        for path in Directory::candidates() {
            match Directory::create(&path) {
                Ok(directory) => return Ok(directory),
                Err(e) => first_error = first_error.or(Some(e)),
            }
        }
        Err(first_error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    /// Opens a directory and checks it, after making it, mode 0700 whatever
    /// the umask, if it is not there. The directory above has to exist.
    ///
    /// # Errors
    ///
    /// As [`Directory::open`], save `NotFound`, which is about the directory above.
    pub fn create(path: &Path) -> io::Result<Directory> {
        let name = to_c(path.as_os_str())?;
        // SAFETY: a NUL-terminated path that outlives the call.
        if unsafe { libc::mkdir(name.as_ptr(), 0o700) } != 0 {
            let error = io::Error::last_os_error();
            // Whatever stands there already is judged below.
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(at(path, error));
            }
        }
        Directory::open(path)
    }

    /// Opens a directory and checks it.
    ///
    /// # Errors
    ///
    /// `NotFound`; `NotADirectory` if something else, also a symbolic link,
    /// stands there; `PermissionDenied` if it is another user's or others may
    /// write to it; else what the system answered.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let name = to_c(path.as_os_str())?;
        // O_PATH: to be looked at before anything is opened. It is also the
        // only way to a directory that a umask of 0777 has just closed to us.
        let look = open_at(libc::AT_FDCWD, &name, libc::O_PATH, 0).map_err(|e| at(path, e))?;
        let stat = status(look.as_raw_fd())?;
        let refuse = |kind, expected: &str, found: String| {
            Err(io::Error::new(
                kind,
                format!("{}: expected {expected}, found {found}", path.display()),
            ))
        };
        if stat.st_mode & libc::S_IFMT != libc::S_IFDIR {
            let found = kind_of(stat.st_mode).to_owned();
            return refuse(io::ErrorKind::NotADirectory, "a directory", found);
        }
        let user = effective_user();
        if stat.st_uid != user {
            return refuse(
                io::ErrorKind::PermissionDenied,
                &format!("a directory of user {user}"),
                format!("user {}'s", stat.st_uid),
            );
        }
        if stat.st_mode & 0o022 != 0 {
            return refuse(
                io::ErrorKind::PermissionDenied,
                "a directory that only its owner can write to",
                format!("mode {:04o}", stat.st_mode & 0o7777),
            );
        }
        if stat.st_mode & 0o700 != 0o700 {
            chmod(&look, 0o700).map_err(|e| at(path, e))?;
        }
        let fd = open_at(look.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .map_err(|e| at(path, e))?;
        Ok(Directory { fd, path: path.to_owned() })
    }

    /// The path it was opened by.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it, for messages.
    pub(crate) fn path_of(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    /// Opens a file for reading, if it is one that this user could have made here.
    pub(crate) fn open_file(&self, name: &CStr) -> io::Result<File> {
        self.open_as(name, libc::O_RDONLY)
    }

    /// The same for writing, which locks of bytes want.
    pub(crate) fn open_to_lock(&self, name: &CStr) -> io::Result<File> {
        self.open_as(name, libc::O_RDWR)
    }

    fn open_as(&self, name: &CStr, access: libc::c_int) -> io::Result<File> {
        // O_NONBLOCK: a FIFO planted here must not make anybody wait.
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
            let (expected, found) = (format!("a file of user {user}"), stat.st_uid);
            return Err(self.refusal(name, &expected, &format!("user {found}'s")));
        }
        if stat.st_mode & 0o022 != 0 {
            let found = format!("mode {:04o}", stat.st_mode & 0o7777);
            return Err(self.refusal(name, "a file that only its owner can write to", &found));
        }
        if stat.st_nlink > 1 {
            let found = format!("{} names", stat.st_nlink);
            return Err(self.refusal(name, "a file with one name", &found));
        }
        if stat.st_nlink == 0 {
            // Removed since we found its name.
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(File::from(fd))
    }

    /// Makes a file that was not there, for its owner alone whatever the umask.
    pub(crate) fn create_file(&self, name: &CStr) -> io::Result<File> {
        let fd =
            open_at(self.fd.as_raw_fd(), name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
        // The sticky bit tells cleaners of /tmp and of the runtime directory
        // to leave an old file alone (XDG base directory specification).
        // SAFETY: an open descriptor and a plain number.
        if unsafe { libc::fchmod(fd.as_raw_fd(), 0o1600) } != 0 {
            let error = io::Error::last_os_error();
            self.remove(name).ok();
            return Err(error);
        }
        Ok(File::from(fd))
    }

    /// Gives a file its final name, unless something has that name already.
    pub(crate) fn rename_new(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        let dir = self.fd.as_raw_fd();
        // The bare system call: older C libraries have no function for it.
        // SAFETY: NUL-terminated names that outlive the call; plain numbers else.
        let refused = unsafe {
            libc::syscall(
                libc::SYS_renameat2,
                dir,
                from.as_ptr(),
                dir,
                to.as_ptr(),
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
        // A file system or kernel without that flag. A second name is refused
        // if it is taken; for a moment the file has two.
        // SAFETY: as above.
        if unsafe { libc::linkat(dir, from.as_ptr(), dir, to.as_ptr(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.remove(from)
    }

    /// Removes a file.
    pub(crate) fn remove(&self, name: &CStr) -> io::Result<()> {
        // SAFETY: a NUL-terminated name that outlives the call.
        if unsafe { libc::unlinkat(self.fd.as_raw_fd(), name.as_ptr(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// What a symbolic link of this user's says, at most `limit` bytes of it. It is never
    /// followed.
    pub(crate) fn read_link(&self, name: &CStr, limit: usize) -> io::Result<Vec<u8>> {
        let stat = self.status_of(name)?;
        if stat.st_mode & libc::S_IFMT != libc::S_IFLNK {
            return Err(self.refusal(name, "a symbolic link", kind_of(stat.st_mode)));
        }
        let user = effective_user();
        if stat.st_uid != user {
            let (expected, found) = (format!("a link of user {user}"), stat.st_uid);
            return Err(self.refusal(name, &expected, &format!("user {found}'s")));
        }
        let mut text = vec![0u8; limit];
        // SAFETY: a NUL-terminated name and a buffer of that length, which both outlive
        // the call.
        let read = unsafe {
            let to = text.as_mut_ptr().cast();
            libc::readlinkat(self.fd.as_raw_fd(), name.as_ptr(), to, text.len())
        };
        text.truncate(usize::try_from(read).map_err(|_| io::Error::last_os_error())?);
        Ok(text)
    }

    /// Leaves a text where no descriptor is to be had, so that no directory can be opened
    /// and no file be made: as a symbolic link that says it and leads nowhere, in place of
    /// whatever has that name in the directory.
    pub(crate) fn leave_link(path: &Path, name: &CStr, text: &CStr) -> io::Result<()> {
        let to = path.join(OsStr::from_bytes(name.to_bytes()));
        let (path, to) = (to_c(path.as_os_str())?, to_c(to.as_os_str())?);
        let stat = status_at(libc::AT_FDCWD, &path)?;
        let is_trusted = stat.st_mode & libc::S_IFMT == libc::S_IFDIR
            && stat.st_uid == effective_user()
            && stat.st_mode & 0o022 == 0;
        if !is_trusted {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // Between the look and these two, only this user could put another directory there:
        // /tmp has the sticky bit. Neither follows a link in the last step.
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
        status_at(self.fd.as_raw_fd(), name)
    }

    /// Whether the name still leads to the file that was opened by it.
    pub(crate) fn leads_to(&self, name: &CStr, file: &File) -> io::Result<bool> {
        let held = status(file.as_raw_fd())?;
        let named = match self.status_of(name) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            named => named?,
        };
        Ok((held.st_dev, held.st_ino) == (named.st_dev, named.st_ino))
    }

    /// The names of at most `limit` files in it, and whether there were more.
    pub(crate) fn names(&self, limit: usize) -> io::Result<(Vec<CString>, bool)> {
        // A descriptor of its own, because reading moves its position.
        let fd = open_at(self.fd.as_raw_fd(), c".", libc::O_RDONLY | libc::O_DIRECTORY, 0)
            .map_err(|e| at(&self.path, e))?;
        let mut entries = Entries::over(fd)?;
        let mut names = Vec::new();
        while let Some(name) = entries.next()? {
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            if names.len() == limit {
                return Ok((names, true));
            }
            names.push(name);
        }
        Ok((names, false))
    }

    fn refusal(&self, name: &CStr, expected: &str, found: &str) -> io::Error {
        io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{}: expected {expected}, found {found}", self.path_of(name).display()),
        )
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
        // SAFETY: the calling thread's errno, always valid. Setting it to zero
        // is how the end is told from an error.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open until drop, and &mut keeps others away.
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
        Ok(Some(unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) }.to_owned()))
    }
}

impl Drop for Entries {
    fn drop(&mut self) {
        // SAFETY: open until now, and never used again.
        unsafe { libc::closedir(self.stream) };
    }
}

/// Sets the mode of what a descriptor, also an O_PATH one, leads to.
pub(crate) fn chmod(file: &OwnedFd, mode: libc::mode_t) -> io::Result<()> {
    // fchmod refuses O_PATH descriptors, and a call by name could be led
    // astray; this name leads to exactly the file that is held.
    let path = to_c(OsStr::new(&format!("/proc/self/fd/{}", file.as_raw_fd())))?;
    // SAFETY: a NUL-terminated path that outlives the call.
    if unsafe { libc::chmod(path.as_ptr(), mode) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// `openat`, never through a link as the last step, never inherited by a new program.
fn open_at(dir: RawFd, name: &CStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<OwnedFd> {
    loop {
        // SAFETY: a NUL-terminated name that outlives the call; plain numbers else.
        let fd = above_standard(|| unsafe {
            libc::openat(dir, name.as_ptr(), flags | libc::O_NOFOLLOW | libc::O_CLOEXEC, mode)
        });
        if fd >= 0 {
            // SAFETY: a descriptor that was just opened and that nobody else owns.
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

/// Of what stands there itself, not of what it leads to.
fn status_at(dir: RawFd, name: &CStr) -> io::Result<libc::stat> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: a NUL-terminated name and a stat, which both outlive the call.
    let refused =
        unsafe { libc::fstatat(dir, name.as_ptr(), stat.as_mut_ptr(), libc::AT_SYMLINK_NOFOLLOW) };
    if refused != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed and then filled in by the call; any bytes are valid.
    Ok(unsafe { stat.assume_init() })
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
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

fn to_c(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), At { path: path.to_owned(), error })
}

/// What the system answered, and where; the number is still to be had, see
/// [`failure::errno_of`](crate::discovery::failure::errno_of).
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
