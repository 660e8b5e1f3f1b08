//! The small file by which a segment is found, and whose lock shows that its process lives.
//!
//! A beacon is named like its object, `<32 hex>.beacon`, and reads:
//!
//! ```text
//! pfp-beacon 1
//! object=/pfp-00112233445566778899aabbccddeeff
//! pid=4242
//! start=1234567
//! boot=5e1c0ffee5e1c0ffee5e1c0ffee5e1c0
//! pidns=4026531836
//! created_unix_ns=1767225600000000000
//! exe=/usr/bin/my%25prog
//! name=my prog
//! ```
//!
//! `exe` and `name` have every byte but printable ASCII written as `%xx`, so
//! that no value breaks a line. The file never changes. Its name ends in `.new` until the beacon is
//! **lit**: renamed, so that viewers find it. By then the file is whole and locked.
//!
//! **The lock.** It is held through a mapping: lock the file, map one page of it, close the
//! descriptor. The open file, and with it the lock, lives as long as the mapping. The mapping is
//! not copied into a child (MADV_DONTFORK), so the lock ends with this process, whatever children
//! it leaves and whichever descriptors the program closes.
//!
//! **The order.** Prepare the beacon, make the object of that name, and light the beacon when
//! others may find the object; at the end remove the object's name first, and then the beacon. So a
//! process that is killed at any moment leaves no object without a beacon. Sweepers remove the
//! object and the beacon, whether the beacon is lit or not.

use std::ffi::{CStr, CString, OsStr};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::atomic_file::rename_new;
use crate::discovery::collector::CollectorProbe;
use crate::discovery::directory::{Directory, FileId};
use crate::discovery::liveness::{Identity, Liveness, Lock, Watch, judge, lock};
use crate::discovery::name::Name;
use crate::discovery::object;
use crate::discovery::system::{current_pid, page_size, unix_ns};
use crate::heap::{self, Grow, NoMemory};

/// The version of the text, in its first line.
pub const VERSION: u32 = 1;
/// Maximum length of a beacon, in bytes.
pub const MAX_BYTES: usize = 4096;
/// Maximum length of a name, in bytes; the rest is cut off.
pub const MAX_NAME: usize = 128;
/// Maximum length of a program's path, in bytes. The end of a longer path is kept.
pub const MAX_EXE: usize = 1024;

const MAGIC: &str = "pfp-beacon ";
const ENDING: &str = ".beacon";
const DRAFT: &str = ".0.new";
const UNFINISHED: &str = ".new";

/// The contents of a beacon.
///
/// The program chose the name and the path: code that prints them removes control characters first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Info {
    /// Name of the shared-memory object.
    pub object: Name,
    /// The process that records into the object.
    pub process: Identity,
    /// When the beacon was prepared, in nanoseconds since 1970.
    pub created_unix_ns: u64,
    /// The program's path, at most [`MAX_EXE`] bytes, empty if unknown.
    pub exe: PathBuf,
    /// The name that the user chose, at most [`MAX_NAME`] bytes; empty without one.
    pub name: String,
}

/// Why a text is not a beacon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Another version, newer or older.
    Version(u32),
    /// Any other defect, with the number of its line.
    Text {
        /// Counted from 1.
        line: usize,
        /// The expected content of the line.
        expected: &'static str,
    },
    /// Memory ran out, so nothing is known of the text.
    NoMemory,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::Version(found) => {
                write!(f, "expected beacon version {VERSION}, found {found}")
            }
            Malformed::Text { line, expected } => {
                write!(f, "damaged beacon: expected {expected} on line {line}")
            }
            Malformed::NoMemory => NoMemory.fmt(f),
        }
    }
}

impl std::error::Error for Malformed {}

impl Info {
    /// Whether the process that lit this beacon runs; asks the system each time.
    ///
    /// # Errors
    ///
    /// The beacon exists, but cannot be read.
    pub fn liveness(&self, dir: &Directory) -> io::Result<Liveness> {
        match self.open(dir)? {
            Some(file) => judge(&file, &self.process),
            None => Ok(Liveness::Gone),
        }
    }

    /// Watches the process that lit this beacon. `None` if the beacon is gone.
    ///
    /// # Errors
    ///
    /// Fails like [`Self::liveness`].
    pub fn watch(&self, dir: &Directory) -> io::Result<Option<Watch>> {
        Ok(self.open(dir)?.map(|file| Watch::new(file, self.process)))
    }

    fn open(&self, dir: &Directory) -> io::Result<Option<File>> {
        match dir.open_file(&self.file_name()?) {
            Ok(file) => Ok(Some(file)),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Describes the calling process, at this time. A name that is too long is cut.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn of_this_process(object: Name, name: &str) -> io::Result<Info> {
        let exe = exe_of_this_process()?;
        Ok(Info {
            object,
            process: Identity::of_this_process(),
            created_unix_ns: unix_ns(),
            exe: heap::path(&[cut_exe(&exe).as_os_str().as_bytes()])?,
            name: heap::text(cut_name(name))?,
        })
    }

    /// The file's text.
    ///
    /// # Errors
    ///
    /// Memory runs out.
    pub fn to_text(&self) -> Result<String, NoMemory> {
        let Info { object, process, created_unix_ns, exe, name } = self;
        let Identity { pid, start, boot, pidns } = process;
        heap::format(format_args!(
            "{MAGIC}{VERSION}\nobject={object}\npid={pid}\nstart={start}\nboot={boot:032x}\n\
             pidns={pidns}\ncreated_unix_ns={created_unix_ns}\nexe={}\nname={}\n",
            Escaped(cut_exe(exe).as_os_str().as_bytes()),
            Escaped(cut_name(name).as_bytes()),
        ))
    }

    fn copy(&self) -> Result<Self, NoMemory> {
        let exe = heap::path(&[self.exe.as_os_str().as_bytes()])?;
        Ok(Self { exe, name: heap::text(&self.name)?, ..*self })
    }

    /// Reads a file's text. It accepts exactly what [`Info::to_text`] writes.
    ///
    /// # Errors
    ///
    /// [`Malformed`] for any other text. No bytes make it panic.
    pub fn parse(text: &[u8]) -> Result<Info, Malformed> {
        let mut lines = Lines { rest: text, line: 0 };
        if text.len() > MAX_BYTES {
            return Err(lines.expected("at most 4096 bytes"));
        }
        let version = lines.value(MAGIC, "pfp-beacon 1")?;
        let version: u32 = number(version).ok_or(lines.expected("pfp-beacon 1"))?;
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let object = lines.value("object=", "object=")?;
        let object = std::str::from_utf8(object)
            .ok()
            .and_then(Name::parse)
            .ok_or(lines.expected("object=/pfp- and 32 hex digits"))?;
        let pid = lines.value("pid=", "pid=")?;
        let pid = number(pid)
            .filter(|&pid: &u32| (1..=i32::MAX as u32).contains(&pid))
            .ok_or(lines.expected("pid= and a process id"))?;
        let start = lines.value("start=", "start=")?;
        let start = number(start).ok_or(lines.expected("start= and a number"))?;
        let boot = lines.value("boot=", "boot=")?;
        let boot = Name::from_hex(boot).ok_or(lines.expected("boot= and 32 hex digits"))?.id();
        let pidns = lines.value("pidns=", "pidns=")?;
        let pidns = number(pidns).ok_or(lines.expected("pidns= and a number"))?;
        let created = lines.value("created_unix_ns=", "created_unix_ns=")?;
        let created_unix_ns =
            number(created).ok_or(lines.expected("created_unix_ns= and a number"))?;
        let exe = lines.value("exe=", "exe=")?;
        let mut bytes = [0; MAX_EXE];
        let exe = unescape(exe, &mut bytes)
            .filter(|exe| !exe.contains(&0))
            .ok_or(lines.expected("exe= and an escaped path"))?;
        let exe = heap::path(&[exe]).map_err(|_| Malformed::NoMemory)?;
        let name = lines.value("name=", "name=")?;
        let name = unescape(name, &mut bytes[..MAX_NAME])
            .and_then(|name| std::str::from_utf8(name).ok())
            .ok_or(lines.expected("name= and an escaped name"))?;
        let name = heap::text(name).map_err(|_| Malformed::NoMemory)?;
        if !lines.rest.is_empty() {
            lines.line += 1;
            return Err(lines.expected("the end"));
        }
        Ok(Info {
            object,
            process: Identity { pid, start, boot, pidns },
            created_unix_ns,
            exe,
            name,
        })
    }

    /// The name of the beacon's file.
    pub(crate) fn file_name(&self) -> io::Result<CString> {
        file_of(&self.object)
    }

    /// Reads an open beacon. The outer error is the system's.
    pub(crate) fn read(file: &File) -> io::Result<Result<Info, Malformed>> {
        Ok(Info::parse(&heap::read(file, MAX_BYTES + 1)?))
    }
}

/// The path of the calling process's program; empty if that is not known.
///
/// # Errors
///
/// Memory runs out.
pub fn exe_of_this_process() -> Result<PathBuf, NoMemory> {
    use std::os::unix::ffi::OsStringExt;
    // The buffer is on the heap, because the stack may be a signal handler's.
    let mut path = Vec::new();
    path.try_resize_with(libc::PATH_MAX as usize, || 0)?;
    let link = c"/proc/self/exe";
    // SAFETY: a NUL-terminated path; writes at most `path.len()` bytes.
    let len = unsafe { libc::readlink(link.as_ptr(), path.as_mut_ptr().cast(), path.len()) };
    let len = usize::try_from(len).ok().filter(|&len| len < path.len()).unwrap_or(0);
    path.truncate(len);
    Ok(std::ffi::OsString::from_vec(path).into())
}

/// A beacon, which viewers find once it is lit. It stays lit until the process exits or is killed,
/// even if this value is dropped or the process forks.
#[derive(Debug)]
pub struct Beacon {
    info: Info,
    /// Path of the beacon's file. A descriptor is not stored instead, because a host that becomes a
    /// daemon closes all descriptors, and the descriptor's number may then belong to another file.
    path: CString,
    /// Path of the file before it is lit.
    draft: CString,
    /// Identifies the file, because another program may have put a file under either path.
    id: FileId,
    /// Set a moment after the beacon was lit, so false does not prove that it is not lit.
    is_lit: AtomicBool,
    /// The page that holds the lock. `None` if the file system supports no locks.
    page: Option<LockPage>,
    /// Finds out whether a viewer collects the segments of ended processes.
    collector_probe: CollectorProbe,
}

impl Beacon {
    /// Lights the beacon of a segment of the calling process at once.
    ///
    /// # Errors
    ///
    /// Fails like [`Beacon::prepare`] and [`Beacon::light`]. A failed call leaves no file behind.
    pub fn lit(dir: &Directory, info: &Info) -> io::Result<Box<Beacon>> {
        let beacon = Beacon::prepare(dir, info)?;
        if let Err(error) = beacon.light() {
            beacon.extinguish().ok();
            return Err(error);
        }
        Ok(beacon)
    }

    /// Makes and locks the beacon of a segment of the calling process. Viewers find the beacon once
    /// it is [lit](Self::light).
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if its name is taken, or a sweeper was faster; else the system's error. A
    /// failed call leaves no file behind.
    pub fn prepare(dir: &Directory, info: &Info) -> io::Result<Box<Beacon>> {
        // Only one name is tried. Otherwise a child that is forked in the middle of this would
        // leave a second draft, by which a sweeper would remove the parent's object.
        let draft = file_name(&info.object, DRAFT.as_bytes())?;
        let file = dir.create_file(&draft)?;
        let prepared = Beacon::fill(dir, info, &draft, &file);
        // If a sweeper has removed this draft, another thread may have made a draft of the same
        // name, which must stay.
        if prepared.is_err() && dir.leads_to(&draft, &file).unwrap_or(true) {
            dir.remove(&draft).ok();
        }
        prepared
    }

    /// Locks, writes and maps a draft.
    fn fill(
        dir: &Directory,
        info: &Info,
        draft: &CStr,
        mut file: &File,
    ) -> io::Result<Box<Beacon>> {
        let taken = lock(file, libc::LOCK_EX)?;
        // Before this lock, a sweeper may have mistaken the draft for a dead process's.
        if taken == Lock::Held || !dir.leads_to(draft, file)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let text = info.to_text()?;
        let path = |name: &CStr| {
            heap::c_string(&[dir.path().as_os_str().as_bytes(), b"/", name.to_bytes()])
        };
        // Allocated before the page is mapped, so that no mapping is left if memory runs out.
        let mut beacon = heap::boxed(Beacon {
            info: info.copy()?,
            path: path(&info.file_name()?)?,
            draft: path(draft)?,
            id: FileId::of(file)?,
            is_lit: AtomicBool::new(false),
            page: None,
            collector_probe: CollectorProbe::new(dir)?,
        })?;
        object::check_file_limit(text.len() as u64)?;
        file.write_all(text.as_bytes())?;
        if taken == Lock::Taken {
            beacon.page = Some(LockPage::hold(file)?);
        }
        Ok(beacon)
    }

    /// Lights the beacon: from now on others find it. Several threads may call this.
    ///
    /// # Errors
    ///
    /// `AlreadyExists` if its final name is taken; else the system's error.
    pub fn light(&self) -> io::Result<()> {
        if self.is_lit.load(Relaxed) {
            return Ok(());
        }
        match rename_new(&self.draft, &self.path) {
            // Another thread was faster.
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.id.is_at(&self.path) => {}
            renamed => renamed?,
        }
        self.is_lit.store(true, Relaxed);
        Ok(())
    }

    /// The contents of the beacon.
    pub fn info(&self) -> &Info {
        &self.info
    }

    /// Whether a viewer collects the segments of ended processes. If so, this process must leave
    /// its object and its beacon when it ends. Makes one system call, of a kind that an ending
    /// process makes anyway.
    pub fn is_awaited(&self) -> bool {
        self.collector_probe.has_collector()
    }

    /// Removes the beacon of a process that continues. Remove the object's name first. In a child
    /// of the process that lit the beacon, this does nothing.
    ///
    /// # Errors
    ///
    /// Fails like [`Beacon::remove`].
    pub fn extinguish(self) -> io::Result<()> {
        let removed = self.remove();
        if self.is_callers()
            && let Some(page) = self.page
        {
            // SAFETY: the calling process lit the beacon, so it has mapped the page.
            unsafe { page.release() };
        }
        removed
    }

    /// Like [`Self::extinguish`], for a process that is ending: the process's end releases the
    /// lock. Makes one system call, which removes the name.
    ///
    /// # Errors
    ///
    /// The system's error; the next sweep will then find a dead beacon.
    pub fn remove(&self) -> io::Result<()> {
        if !self.is_callers() {
            return Ok(());
        }
        let remove = |path: &CString| {
            // SAFETY: a NUL-terminated path that outlives the call.
            match unsafe { libc::unlink(path.as_ptr()) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        if self.is_lit.load(Relaxed) {
            return remove(&self.path);
        }
        match remove(&self.draft) {
            // Another thread may have lit it just now.
            Err(_) if self.id.is_at(&self.path) => remove(&self.path),
            removed => removed,
        }
    }

    /// Whether the calling process lit the beacon. Also true if a filter refuses `getpid`.
    fn is_callers(&self) -> bool {
        let pid = current_pid();
        pid <= 0 || u32::try_from(pid) == Ok(self.info.process.pid)
    }
}

/// The name of the file of an object's beacon.
pub(crate) fn file_of(object: &Name) -> io::Result<CString> {
    file_name(object, ENDING.as_bytes())
}

/// The object whose beacon has this file name; `None` for other files.
pub(crate) fn object_of(file: &CStr) -> Option<Name> {
    let hex = file.to_bytes().strip_suffix(ENDING.as_bytes())?;
    Name::from_hex(hex)
}

/// Whether the file is a beacon that was never finished.
pub(crate) fn is_unfinished(file: &CStr) -> bool {
    let bytes = file.to_bytes();
    bytes.ends_with(UNFINISHED.as_bytes())
        && bytes.get(..32).and_then(Name::from_hex).is_some()
        && bytes.get(32) == Some(&b'.')
}

/// The path in the form that beacons store, for comparisons.
pub(crate) fn cut_exe(exe: &Path) -> &Path {
    let bytes = exe.as_os_str().as_bytes();
    let start = bytes.len().saturating_sub(MAX_EXE);
    Path::new(OsStr::from_bytes(&bytes[start..]))
}

fn cut_name(name: &str) -> &str {
    let mut end = name.len().min(MAX_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn file_name(object: &Name, ending: &[u8]) -> io::Result<CString> {
    heap::c_string(&[object.hex().as_bytes(), ending])
}

/// A page of a locked file, mapped so that the lock outlives the descriptor. The lock ends with the
/// process, or by [`Self::release`].
#[derive(Debug)]
pub struct LockPage(usize);

impl LockPage {
    /// Maps a page of a file that this process has locked.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn hold(file: &File) -> io::Result<Self> {
        let len = page_size();
        let access = libc::PROT_READ;
        let (fd, shared) = (file.as_raw_fd(), libc::MAP_SHARED);
        // SAFETY: a new mapping at an address that the kernel chooses. No code reads the mapping,
        // which only keeps the open file and the file's lock alive.
        let map = unsafe { libc::mmap(std::ptr::null_mut(), len, access, shared, fd, 0) };
        if map == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = Self(map as usize);
        object::keep_from_dumps(map.cast(), len);
        // SAFETY: exactly the mapping made above.
        if unsafe { libc::madvise(map, len, libc::MADV_DONTFORK) } != 0 {
            let error = io::Error::last_os_error();
            // SAFETY: this process has made the mapping just now.
            unsafe { page.release() };
            return Err(error);
        }
        Ok(page)
    }

    /// Releases the lock.
    ///
    /// # Safety
    ///
    /// The calling process has called [`Self::hold`] itself: a forked child may have another
    /// mapping at the page's address.
    pub unsafe fn release(self) {
        // SAFETY: a page that `hold` mapped in this process. `release` consumes the only value
        // that has the page's address, so the page is unmapped once.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, page_size()) };
    }
}

/// The lines of a text, each with its key.
struct Lines<'a> {
    rest: &'a [u8],
    line: usize,
}

impl<'a> Lines<'a> {
    /// The value in the next line, which begins with `key`.
    fn value(&mut self, key: &str, expected: &'static str) -> Result<&'a [u8], Malformed> {
        self.line += 1;
        let end = self.rest.iter().position(|&b| b == b'\n');
        let line = end.and_then(|end| self.rest.get(..end));
        let value = line
            .and_then(|line| line.strip_prefix(key.as_bytes()))
            .ok_or(self.expected(expected))?;
        self.rest = end.and_then(|end| self.rest.get(end + 1..)).unwrap_or_default();
        Ok(value)
    }

    fn expected(&self, expected: &'static str) -> Malformed {
        Malformed::Text { line: self.line, expected }
    }
}

/// A decimal number as `to_text` writes it: only digits, no leading zero.
fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let plain = text.iter().all(u8::is_ascii_digit) && (text.len() == 1 || text.first()? != &b'0');
    std::str::from_utf8(text).ok().filter(|_| plain)?.parse().ok()
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && byte != b'%'
}

/// Bytes with all but printable ASCII written as `%xx`.
pub(crate) struct Escaped<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for &byte in self.0 {
            match is_plain(byte) {
                true => out.write_char(byte.into())?,
                false => write!(out, "%{byte:02x}")?,
            }
        }
        Ok(())
    }
}

/// Decodes an escaped text into `room`. `None` if [`Escaped`] would not write this text, or if
/// `room` is too small.
pub(crate) fn unescape<'a>(text: &[u8], room: &'a mut [u8]) -> Option<&'a [u8]> {
    let nibble = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut len = 0;
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        let is_escaped = byte == b'%';
        let byte =
            if is_escaped { nibble(rest.next()?)? << 4 | nibble(rest.next()?)? } else { byte };
        if is_plain(byte) == is_escaped {
            return None;
        }
        *room.get_mut(len)? = byte;
        len += 1;
    }
    Some(&room[..len])
}
