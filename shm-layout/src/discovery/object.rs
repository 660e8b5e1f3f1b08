//! The shared-memory object behind a segment: its mapping and its pages.
//!
//! Only this file uses the `shared_memory` crate. The crate creates and opens objects safely
//! (exclusive, 0600, no symbolic link followed), but leaves some things to its caller, which this
//! file does:
//!
//! | the crate | here |
//! |---|---|
//! | keeps its descriptor for ever | a creator closes it at once and maps the object anew: a host that becomes a daemon closes every descriptor, and our later close would hit another file of that number |
//! | unlinks on drop, in a forked child too | never owns the name: only [`unlink`] removes it |
//! | sizes with `ftruncate` only | [`Object::back`] puts pages under a range before anything touches it |
//! | opens read-write only | [`Object::open`] takes the write permission back at once; [`Object::unlock`] gives it to the control pages |
//! | mode is cut by the umask | set to 0600 afterwards |
//! | ends the program if its few allocations (the name, a boxed mapping) find no memory | [`heap::has_room`] is called first. If another thread uses up the memory in between, the program ends: no other step of pfp's start can end it |
//!
//! All of this can run inside the host program, so it prints nothing, never panics, and returns
//! each failure as an error.

mod pages;

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use shared_memory::{Shmem, ShmemConf, ShmemError};

use super::name::Name;
use super::system::{current_pid, page_size};
use crate::descriptors::above_standard;
use crate::heap::{self, NoMemory, ShortText};
use crate::reader::truncation::Watched;

/// The system has no pages for a range: `/dev/shm` or the machine is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

impl fmt::Display for NoSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no space in /dev/shm")
    }
}

impl std::error::Error for NoSpace {}

/// A mapped shared-memory object.
///
/// The bytes are accessible only through a raw pointer: other processes write them at any time, so
/// no Rust reference to them is allowed. Dropping the object unmaps it, but keeps its name.
#[repr(C)]
pub struct Object {
    name: Name,
    map: *mut u8,
    len: usize,
    file: FileStatus,
    role: Role,
}

/// The use of the mapping, which determines who unmaps it.
#[repr(C)]
enum Role {
    /// A process that has created the object, or has opened another process's object to share it.
    /// Only the process that made the mapping unmaps it; a forked child does not.
    Mapped { pid: libc::pid_t },
    /// A viewer. The crate unmaps the mapping; our own descriptor shows the file's current length.
    /// Fields are dropped in this order, so the watch ends before the mapping and the descriptor
    /// are dropped.
    Viewer { watched: Watched, _crate: Shmem, file: OwnedFd },
}

// SAFETY: only the raw pointer keeps an Object from being Send. All methods take &self, change
// nothing in it, and make system calls that any thread may make; code that reads or writes through
// the pointer has its own safety comment.
unsafe impl Send for Object {}
// SAFETY: all methods take &self, change nothing in it, and make system calls that any thread may
// make.
unsafe impl Sync for Object {}

impl Object {
    /// Makes an object under a fresh random name, see [`Object::create_as`].
    ///
    /// # Errors
    ///
    /// Fails like [`Object::create_as`] and [`Name::random`].
    pub fn create(bytes: usize) -> io::Result<Object> {
        Object::create_as(Name::random()?, bytes)
    }

    /// Makes and maps an object of at least `bytes` bytes (whole pages) for this user alone,
    /// whatever the umask. The object is all zeros and sparse: back a range before touching it.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if the name is taken. `InvalidInput` for a size of 0 or beyond the address
    /// space. `FileTooLarge` if the size exceeds the process's file size limit, which would raise a
    /// signal. Else the system's error. No object is left behind.
    pub fn create_as(name: Name, bytes: usize) -> io::Result<Object> {
        let len = match bytes.checked_next_multiple_of(page_size()) {
            Some(len) if len > 0 && len <= isize::MAX as usize => len,
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        };
        check_file_limit(len as u64)?;
        if !heap::has_room() {
            return Err(NoMemory.into());
        }
        let make = || ShmemConf::new().os_id(name.as_str()).size(len).create();
        let mut shmem = above_standard(make).map_err(to_io)?;
        shmem.set_owner(false);
        // The crate closes its descriptor and unmaps; the object keeps its name.
        drop(shmem);
        let opened = check_created(&name, len).and_then(|made| {
            let object = Object::open_shared(&name)?;
            // Another program may have replaced the object since it was made.
            let is_made = object.len == len && object.file.is_same_file(&made);
            if is_made { Ok(object) } else { Err(io::ErrorKind::InvalidData.into()) }
        });
        let Ok(object) = &opened else {
            unlink(&name).ok();
            return opened;
        };
        keep_from_dumps(object.map, len);
        if object.file.backed > 0 {
            pages::make_sparse(object.map, len);
        }
        opened
    }

    /// Opens and maps another process's object, all of it write-protected.
    ///
    /// # Errors
    ///
    /// `NotFound` if it is gone; `PermissionDenied` if it belongs to another
    /// user or may not be opened for writing (which the control pages need);
    /// `InvalidData` if it is empty, no regular file, or was swapped for
    /// another while it was being opened.
    pub fn open(name: &Name) -> io::Result<Object> {
        let file = open_path(name)?;
        let before = FileStatus::of(file.as_raw_fd())?;
        before.check_is_ours().map_err(|foreign| foreign.in_words(name))?;
        if before.len == 0 {
            return Err(bad(name, "is empty"));
        }
        let open = || ShmemConf::new().os_id(name.as_str()).open();
        let shmem = above_standard(open).map_err(to_io)?;
        let map = shmem.as_ptr();
        let len = shmem.len();
        // SAFETY: the range is exactly the mapping that the crate has just made, and no other code
        // has its address yet.
        if unsafe { libc::mprotect(map.cast(), len, libc::PROT_READ) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // The crate opened the object by its name. If the name leads to the same file before and
        // after, that file is the one the crate has mapped: its inode cannot be reused while `file`
        // is open.
        let after = FileStatus::of(open_path(name)?.as_raw_fd())?;
        if !after.is_same_file(&before) {
            return Err(bad(name, "was replaced while it was being opened"));
        }
        let watched = Watched::new(map, len, file.as_raw_fd())?;
        let role = Role::Viewer { watched, _crate: shmem, file };
        Ok(Object { name: *name, map, len, file: before, role })
    }

    /// Opens another process's object and maps it writable, as its creator does. Closes the
    /// descriptor.
    ///
    /// # Errors
    ///
    /// Fails like [`Object::open`].
    pub fn open_shared(name: &Name) -> io::Result<Object> {
        let descriptor = open(name, libc::O_RDWR | libc::O_NONBLOCK)?;
        let file = FileStatus::of(descriptor.as_raw_fd())?;
        file.check_is_ours()?;
        let len = match usize::try_from(file.len) {
            Ok(len) if len > 0 && len <= isize::MAX as usize => len,
            _ => return Err(io::ErrorKind::InvalidData.into()),
        };
        // SAFETY: a new mapping of an open file, at an address of the kernel's choice.
        let map = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                descriptor.as_raw_fd(),
                0,
            )
        };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let role = Role::Mapped { pid: current_pid() };
        Ok(Object { name: *name, map: map.cast(), len, file, role })
    }

    /// The first byte of the mapping, at a page boundary.
    ///
    /// Valid for [`Object::len`] bytes as long as the object exists, unless a process truncates the
    /// file: a reader of a foreign object must [survive](crate::reader::truncation::survive) that.
    pub fn as_ptr(&self) -> *mut u8 {
        self.map
    }

    /// The length of the mapping in bytes, which is the file's length when it was mapped.
    #[allow(clippy::len_without_is_empty, reason = "an object of no bytes cannot be mapped")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The length of the file now. Less than [`Object::len`] means that it was
    /// truncated and touching the rest of the mapping raises SIGBUS.
    ///
    /// # Errors
    ///
    /// The system's error. Never fails for an object that [`Object::open`] made.
    pub fn file_len(&self) -> io::Result<u64> {
        match &self.role {
            Role::Viewer { file, .. } => Ok(FileStatus::of(file.as_raw_fd())?.len),
            Role::Mapped { .. } => {
                let now = FileStatus::of(open_path(&self.name)?.as_raw_fd())?;
                if !now.is_same_file(&self.file) {
                    return Err(bad(&self.name, "was replaced"));
                }
                Ok(now.len)
            }
        }
    }

    /// Whether the file is shorter than the mapping: a missing part was touched, or the file's
    /// length shows it. Always false for a creator's object.
    pub fn is_cut(&self) -> bool {
        match &self.role {
            Role::Viewer { watched, file, .. } => {
                watched.is_cut()
                    || FileStatus::of(file.as_raw_fd()).is_ok_and(|now| now.len < self.len as u64)
            }
            Role::Mapped { .. } => false,
        }
    }

    /// Whether this process has opened the object as a viewer. Then another process writes to it.
    pub(crate) fn is_watched(&self) -> bool {
        matches!(self.role, Role::Viewer { .. })
    }

    /// The object as a file to read. Parts without pages read as zeros and take no memory, unlike
    /// reads through the mapping.
    ///
    /// # Errors
    ///
    /// `NotFound` if its name is gone, `InvalidData` if the name leads to another file now; else
    /// the system's error.
    #[allow(clippy::disallowed_methods, reason = "only a long path takes memory")]
    pub(crate) fn to_file(&self) -> io::Result<File> {
        // A viewer's descriptor leads to the file even if the name is gone.
        if let Role::Viewer { file, .. } = &self.role
            && let path = ShortText::<32>::of(format_args!("/proc/self/fd/{}", file.as_raw_fd()))
            && let Ok(file) = above_standard(|| File::open(path.as_str()))
        {
            return Ok(file);
        }
        let file = open(&self.name, libc::O_RDONLY | libc::O_NONBLOCK)?;
        if !FileStatus::of(file.as_raw_fd())?.is_same_file(&self.file) {
            return Err(bad(&self.name, "was replaced"));
        }
        Ok(file.into())
    }

    /// The object's name.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Makes a range of an opened object writable, such as the control pages. The range must be
    /// whole pages.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the range is empty, not page-aligned or not inside
    /// the mapping; else the system's error.
    pub fn unlock(&self, range: Range<usize>) -> io::Result<()> {
        let page = page_size();
        let mapped = self.len.next_multiple_of(page);
        if range.start >= range.end
            || range.end > mapped
            || !range.start.is_multiple_of(page)
            || !range.end.is_multiple_of(page)
        {
            let name = self.name;
            return Err(in_words(
                io::ErrorKind::InvalidInput,
                format_args!("{name}: expected whole pages inside {mapped} bytes, found {range:?}"),
            ));
        }
        // SAFETY: the range was just checked to be whole pages of this mapping.
        let refused = unsafe {
            libc::mprotect(
                self.map.add(range.start).cast(),
                range.end - range.start,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        };
        if refused != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // Only the process that made the mapping unmaps it: a forked child may not have the mapping
        // (MADV_DONTFORK), but something else at its address.
        if let Role::Mapped { pid } = self.role
            && pid == current_pid()
        {
            // SAFETY: `open_shared` made this mapping in this process, and nothing else unmaps it.
            unsafe { libc::munmap(self.map.cast(), self.len) };
        }
    }
}

impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Object")
            .field("name", &self.name)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Removes an object's name. Processes that have mapped the object keep it.
///
/// # Errors
///
/// `NotFound` if there is none; else the system's error.
pub fn unlink(name: &Name) -> io::Result<()> {
    // SAFETY: a NUL-terminated name that outlives the call.
    if unsafe { libc::shm_unlink(name.as_cstr().as_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Like [`unlink`], but accepts a missing name. False if the name is still there.
pub fn unlink_if_there(name: &Name) -> bool {
    // A read-only file system refuses even to remove a missing name.
    unlink(name).is_ok()
        || open_path(name).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Number of an object's bytes that are backed by memory; `None` if the object is gone.
///
/// # Errors
///
/// The system's error, unless that is "not found".
pub fn backed_bytes(name: &Name) -> io::Result<Option<u64>> {
    match open_path(name) {
        Ok(file) => Ok(Some(FileStatus::of(file.as_raw_fd())?.backed)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(e),
    }
}

/// Identity of a file, and the properties that are checked before the file is trusted.
#[repr(C)]
#[derive(Clone, Copy)]
struct FileStatus {
    device: u64,
    inode: u64,
    mode: u32,
    owner: u32,
    links: u64,
    len: u64,
    backed: u64,
}

impl FileStatus {
    fn of(file: RawFd) -> io::Result<FileStatus> {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the buffer has the size of a stat. An invalid descriptor only causes an error.
        if unsafe { libc::fstat(file, stat.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: zeroed and then filled in by the call; any bytes are valid.
        let stat = unsafe { stat.assume_init() };
        Ok(FileStatus {
            device: stat.st_dev,
            inode: stat.st_ino,
            mode: stat.st_mode,
            owner: stat.st_uid,
            #[allow(clippy::unnecessary_cast, reason = "narrower on some architectures")]
            links: stat.st_nlink as u64,
            len: u64::try_from(stat.st_size).unwrap_or(0),
            backed: u64::try_from(stat.st_blocks).unwrap_or(0) * 512,
        })
    }

    fn is_same_file(&self, other: &FileStatus) -> bool {
        (self.device, self.inode) == (other.device, other.inode)
    }

    /// Checks that this is a regular file of this user, under one name. Root may open any user's.
    fn check_is_ours(&self) -> Result<(), Foreign> {
        if self.mode & libc::S_IFMT != libc::S_IFREG {
            return Err(Foreign::Kind);
        }
        // SAFETY: the call has no arguments and cannot fail.
        let user = unsafe { libc::geteuid() };
        if user != 0 && self.owner != user {
            return Err(Foreign::Owner { expected: user, found: self.owner });
        }
        if self.links != 1 {
            return Err(Foreign::Names);
        }
        Ok(())
    }
}

/// Reasons why a file cannot be an object of this user.
enum Foreign {
    Kind,
    Owner { expected: u32, found: u32 },
    Names,
}

impl Foreign {
    fn in_words(self, name: &Name) -> io::Error {
        match self {
            Self::Kind => bad(name, "is not a regular file"),
            Self::Owner { expected, found } => in_words(
                io::ErrorKind::PermissionDenied,
                format_args!(
                    "{name}: expected an object of user {expected}, found one of user {found}"
                ),
            ),
            Self::Names => bad(name, "is linked under several names, or has been removed"),
        }
    }
}

impl From<Foreign> for io::Error {
    /// The conversion allocates nothing.
    fn from(foreign: Foreign) -> Self {
        match foreign {
            Foreign::Owner { .. } => io::ErrorKind::PermissionDenied.into(),
            Foreign::Kind | Foreign::Names => io::ErrorKind::InvalidData.into(),
        }
    }
}

/// Right after the creation, checks that the name leads to the created file, and sets the mode.
fn check_created(name: &Name, len: usize) -> io::Result<FileStatus> {
    let path = open_path(name)?;
    let file = FileStatus::of(path.as_raw_fd())?;
    file.check_is_ours()?;
    if file.len != len as u64 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    if file.mode & 0o7777 != 0o600 {
        crate::discovery::directory::chmod(&path, 0o600)?;
    }
    Ok(file)
}

/// Excludes a mapping from core dumps, so that the host's dumps are as small as without pfp. If the
/// system refuses, dumps contain the mapping.
pub(crate) fn keep_from_dumps(map: *mut u8, len: usize) {
    // SAFETY: advice about a mapping of this process, which does not change its contents.
    unsafe { libc::madvise(map.cast(), len, libc::MADV_DONTDUMP) };
}

/// A descriptor that only identifies the file, whatever its type and mode.
fn open_path(name: &Name) -> io::Result<OwnedFd> {
    open(name, libc::O_PATH)
}

/// Opens the file of an object; follows no link, and `exec` closes the descriptor.
fn open(name: &Name, flags: libc::c_int) -> io::Result<OwnedFd> {
    let path = name.path();
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: the path is a NUL-terminated array that outlives the call.
    let file = above_standard(|| unsafe { libc::open(path.as_ptr().cast(), flags) });
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a descriptor that was opened above and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// If a file grows beyond RLIMIT_FSIZE, the system raises SIGXFSZ, which ends the host. So check
/// the limit first.
pub(crate) fn check_file_limit(bytes: u64) -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the buffer is an rlimit that outlives the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &mut limit) } == 0 && limit.rlim_cur < bytes {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(())
}

fn to_io(error: ShmemError) -> io::Error {
    match error {
        ShmemError::MappingIdExists => io::ErrorKind::AlreadyExists.into(),
        ShmemError::MapSizeZero => io::ErrorKind::InvalidInput.into(),
        ShmemError::MapCreateFailed(errno)
        | ShmemError::MapOpenFailed(errno)
        | ShmemError::UnknownOsError(errno) => io::Error::from_raw_os_error(errno as i32),
        _ => io::ErrorKind::Other.into(),
    }
}

fn bad(name: &Name, what: &str) -> io::Error {
    in_words(io::ErrorKind::InvalidData, format_args!("shared-memory object {name} {what}"))
}

#[allow(clippy::disallowed_methods, reason = "only viewers open what others have made")]
fn in_words(kind: io::ErrorKind, text: fmt::Arguments<'_>) -> io::Error {
    io::Error::new(kind, text.to_string())
}
