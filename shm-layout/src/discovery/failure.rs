//! Notes a failed start. A program prints nothing if it cannot measure, so a file beside the
//! beacons shows the reason to viewers.
//!
//! Each program has one file, `<16 hex>.failed`, about its last start if that start failed. The
//! next start that succeeds removes the file.
//!
//! ```text
//! pfp-failure 1
//! pid=4242
//! stage=segment
//! errno=28
//! exe=/usr/bin/my%25prog
//! ```
//!
//! If the program has no free descriptor, it cannot write a file. Then the note is a symbolic link
//! whose target is the same text.

use std::ffi::{CStr, CString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::discovery::beacon::{Escaped, MAX_EXE, cut_exe, unescape};
use crate::discovery::directory::Directory;
use crate::discovery::directory::MAX_FILES;
use crate::discovery::object;
use crate::heap::{self, NoMemory, ShortText};

const MAGIC: &str = "pfp-failure 1";
const ENDING: &str = ".failed";
/// Maximum length of a note, in bytes.
const MAX_BYTES: usize = 4096;

/// The part that could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The shared memory: nothing is measured.
    Segment,
    /// The private memory that refers to the shared memory: nothing is measured.
    Process,
    /// The beacon: the process is measured, and viewers do not find it.
    Beacon,
}

const STAGES: [(Stage, &str); 3] =
    [(Stage::Segment, "segment"), (Stage::Process, "process"), (Stage::Beacon, "beacon")];

impl Stage {
    /// Advice for the system's error number, or 0 without one.
    #[must_use]
    #[allow(clippy::disallowed_macros, reason = "only viewers give advice")]
    pub fn advice(self, errno: i32) -> String {
        let place = match self {
            Self::Beacon => "the folder of the beacons",
            Self::Segment | Self::Process => "/dev/shm",
        };
        match errno {
            libc::ENOSPC | libc::EDQUOT => {
                format!(
                    "make room in {place} (`pfp-top gc`, `df`), or mount it larger, and restart \
                     the program"
                )
            }
            libc::ENOMEM => "the machine, its control group or `ulimit -v` has no memory left: \
                             set PFP_MEMORY_MB to a smaller size"
                .into(),
            libc::EMFILE | libc::ENFILE => "pfp needs five free descriptors at the start: raise \
                                            `ulimit -n`, or call init() before the program opens \
                                            its own"
                .into(),
            libc::EACCES | libc::EPERM | libc::EROFS => format!(
                "{place} must be writable for the program's user: check its mode, its mount and \
                 the security profile"
            ),
            libc::EFBIG => "`ulimit -f` is lower than the segment: raise it, or set \
                            PFP_MEMORY_MB lower"
                .into(),
            libc::EINVAL if self == Self::Process => {
                "the kernel must be able to wipe memory in forked children: use Linux 4.14 or newer"
                    .into()
            }
            _ => "restart the program; `strace -f` shows what the system refuses".into(),
        }
    }
}

/// A failed start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The process.
    pub pid: u32,
    /// The program's path.
    pub exe: PathBuf,
    /// The part that could not be made.
    pub stage: Stage,
    /// The system's error number, or 0 without one.
    pub errno: i32,
}

/// The name of a program's note: FNV-1a of its path. Two programs with the same hash share a note,
/// like two runs of one program.
fn file_name(exe: &Path) -> io::Result<CString> {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in cut_exe(exe).as_os_str().as_bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    heap::c_string(&[ShortText::<32>::of(format_args!("{hash:016x}{ENDING}")).as_bytes()])
}

/// Whether a file of that name is a note.
pub(crate) fn is_note(name: &CStr) -> bool {
    name.to_bytes().strip_suffix(ENDING.as_bytes()).is_some_and(|hash| hash.len() == 16)
}

impl Failure {
    /// Writes the note, and replaces an earlier note.
    ///
    /// # Errors
    ///
    /// The system's error: the reason that kept the program from starting may also prevent the
    /// note.
    pub fn note(&self, dir: &Directory) -> io::Result<()> {
        let text = self.to_text()?;
        object::check_file_limit(text.len() as u64)?;
        forget(dir, &self.exe);
        let name = file_name(&self.exe)?;
        let written = dir.create_file(&name).and_then(|mut file| file.write_all(text.as_bytes()));
        if written.is_err() {
            // Half a note is useless, so it is removed.
            let _ = dir.remove(&name);
            return self.note_at(dir.path());
        }
        written
    }

    /// Leaves the note as a symbolic link, without opening the directory, which would take a
    /// descriptor.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` unless only this user can write to the directory; else the system's
    /// error.
    pub fn note_at(&self, dir: &Path) -> io::Result<()> {
        let text = heap::c_string(&[self.to_text()?.as_bytes()])?;
        Directory::leave_link(dir, &file_name(&self.exe)?, &text)
    }

    fn to_text(&self) -> Result<String, NoMemory> {
        let Self { pid, exe, stage, errno } = self;
        let stage = STAGES.iter().find(|(known, _)| known == stage).map_or("", |(_, word)| word);
        let exe = Escaped(cut_exe(exe).as_os_str().as_bytes());
        heap::format(format_args!("{MAGIC}\npid={pid}\nstage={stage}\nerrno={errno}\nexe={exe}\n"))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != MAGIC {
            return None;
        }
        let mut value = |key: &str| lines.next()?.strip_prefix(key)?.strip_prefix('=');
        let pid = value("pid")?.parse().ok()?;
        let word = value("stage")?;
        let stage = STAGES.iter().find(|(_, known)| *known == word)?.0;
        let errno = value("errno")?.parse().ok()?;
        let mut bytes = [0; MAX_EXE];
        let exe = heap::path(&[unescape(value("exe")?.as_bytes(), &mut bytes)?]).ok()?;
        Some(Self { pid, exe, stage, errno })
    }
}

/// The system's number of an error, even if the error wraps another one or has only a kind; 0 if no
/// number is known.
pub fn errno_of(error: &io::Error) -> i32 {
    if let Some(errno) = error.raw_os_error() {
        return errno;
    }
    let mut cause = error.get_ref().and_then(|inner| inner.source());
    while let Some(inner) = cause {
        if let Some(errno) = inner.downcast_ref().and_then(io::Error::raw_os_error) {
            return errno;
        }
        cause = inner.source();
    }
    match error.kind() {
        io::ErrorKind::StorageFull => libc::ENOSPC,
        io::ErrorKind::FileTooLarge => libc::EFBIG,
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::AlreadyExists => libc::EEXIST,
        io::ErrorKind::Interrupted => libc::EINTR,
        _ => 0,
    }
}

/// Removes a program's note, if there is one.
pub fn forget(dir: &Directory, exe: &Path) {
    // The removal may fail, because most programs have no note.
    let _ = file_name(exe).and_then(|name| dir.remove(&name));
}

/// All notes in a directory. Other files are skipped.
///
/// # Errors
///
/// The directory cannot be read.
pub fn find(dir: &Directory) -> io::Result<Vec<Failure>> {
    let read = |name: &CString| {
        let text = match dir.open_file(name) {
            Ok(file) => heap::read(file, MAX_BYTES).ok()?,
            Err(_) => dir.read_link(name, MAX_BYTES).ok()?,
        };
        Failure::parse(std::str::from_utf8(&text).ok()?)
    };
    let (names, _) = dir.names(MAX_FILES)?;
    Ok(heap::collect(names.iter().filter(|name| is_note(name)).filter_map(read))?)
}

// Miri does not support the system calls of these tests.
#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_note_is_found_until_it_is_forgotten() {
        let path = std::env::temp_dir().join(format!("pfp-failure-{}", std::process::id()));
        let dir = Directory::create(&path).expect("there is room");
        let of = |errno| Failure {
            pid: 42,
            exe: "/usr/bin/my %prog\n".into(),
            stage: Stage::Beacon,
            errno,
        };
        of(28).note(&dir).expect("there is room");
        of(24).note(&dir).expect("there is room");
        assert_eq!(find(&dir).expect("it can be read"), [of(24)]);
        forget(&dir, Path::new("/usr/bin/another"));
        assert_eq!(find(&dir).expect("it can be read").len(), 1);
        // A note can be left without a descriptor.
        of(23).note_at(&path).expect("there is room");
        assert_eq!(find(&dir).expect("it can be read"), [of(23)]);
        of(28).note(&dir).expect("there is room");
        assert_eq!(find(&dir).expect("it can be read"), [of(28)]);
        of(23).note_at(&path).expect("there is room");
        forget(&dir, &of(24).exe);
        assert_eq!(find(&dir).expect("it can be read"), []);
        std::fs::remove_dir(path).expect("nothing is left in it");
    }

    #[test]
    fn a_note_is_left_in_no_directory_that_others_can_write_to() {
        let path = std::env::temp_dir().join(format!("pfp-failure-open-{}", std::process::id()));
        std::fs::create_dir(&path).expect("there is room");
        let note = Failure { pid: 1, exe: "/bin/app".into(), stage: Stage::Segment, errno: 24 };
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("it is ours");
        let refused = note.note_at(&path).map_err(|error| error.kind());
        let left = std::fs::read_dir(&path).expect("it is ours").count();
        std::fs::remove_dir(&path).expect("nothing is left in it");
        assert_eq!((refused, left), (Err(io::ErrorKind::PermissionDenied), 0));
    }

    /// A link with the note's name is replaced, and its target stays unchanged.
    #[test]
    fn a_note_is_written_through_no_link() {
        let path = std::env::temp_dir().join(format!("pfp-failure-link-{}", std::process::id()));
        let dir = Directory::create(&path).expect("there is room");
        let note = Failure { pid: 1, exe: "/bin/app".into(), stage: Stage::Segment, errno: 24 };
        let name = path.join(file_name(&note.exe).unwrap().to_str().expect("it is plain text"));
        let victim = path.join("victim");
        std::fs::write(&victim, "precious").expect("there is room");
        let links: [fn(&Path, &Path) -> io::Result<()>; 2] =
            [|to, at| std::os::unix::fs::symlink(to, at), |to, at| std::fs::hard_link(to, at)];
        let ways: [fn(&Failure, &Directory) -> io::Result<()>; 2] =
            [Failure::note, |note, dir| note.note_at(dir.path())];
        for write in ways {
            for link in links {
                link(&victim, &name).expect("there is room");
                write(&note, &dir).expect("there is room");
                assert_eq!(find(&dir).expect("it can be read"), std::slice::from_ref(&note));
                assert_eq!(std::fs::read(&victim).expect("it is there"), b"precious");
                forget(&dir, &note.exe);
            }
        }
        std::fs::remove_dir_all(path).expect("it is ours");
    }

    #[test]
    fn errno_is_found_in_wrapped_errors() {
        let gone = Path::new("/no/such/place/at/all");
        assert_eq!(errno_of(&Directory::open(gone).expect_err("it is not there")), libc::ENOENT);
        assert_eq!(errno_of(&io::Error::from_raw_os_error(libc::EMFILE)), libc::EMFILE);
        assert_eq!(errno_of(&io::ErrorKind::StorageFull.into()), libc::ENOSPC);
        assert_eq!(errno_of(&io::Error::other("something")), 0);
    }

    #[test]
    fn malformed_notes_are_rejected() {
        for text in ["", "pfp-failure 2\n", "pfp-failure 1\npid=x", "pfp-failure 1\npid=1\n"] {
            assert_eq!(Failure::parse(text), None, "{text:?}");
        }
    }
}
