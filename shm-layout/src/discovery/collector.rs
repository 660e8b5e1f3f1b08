//! Viewers that watch all processes, and collect the segments that ended processes leave for them.
//!
//! ```text
//!  viewer                                 process
//!  makes DIR/collectors/HEX, locked
//!                                         ends: DIR/collectors is there,
//!                                         so object and beacon stay
//!  reads the segment, removes both
//! ```
//!
//! If a collector is killed, the kernel releases its lock, and the next sweep removes its file. The
//! segments left for it are then limited like a crashed process's.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::discovery::directory::Directory;
use crate::discovery::held::{LockedFile, remove_folder};
use crate::discovery::liveness::{Lock, lock};
use crate::discovery::name::Name;
use crate::heap::{self, NoMemory};

/// The folder of collectors, in the directory of beacons.
const FOLDER: &str = "collectors";
/// Maximum number of collectors that are read.
const MAX_NAMES: usize = 256;

/// Registers this viewer as a collector of ended processes' segments, until this value is dropped.
#[derive(Debug)]
pub struct Collector {
    held: LockedFile,
}

impl Collector {
    /// From now on, ending processes leave their segments.
    ///
    /// # Errors
    ///
    /// The system's error; `Unsupported` where the file system has no locks.
    pub fn start(dir: &Directory) -> io::Result<Self> {
        let name = || heap::c_string(&[Name::random()?.hex().as_bytes()]);
        Ok(Self { held: LockedFile::start(dir, FOLDER, name)? })
    }

    /// Whether no other collector lives. A living collector may still need the segments.
    pub fn is_alone(&self) -> bool {
        count_living(&self.held.folder, Some(&self.held.name)).is_ok_and(|living| living == 0)
    }
}

/// Removes the files of dead collectors. Returns whether any collector lives.
pub fn sweep(dir: &Directory) -> bool {
    let Ok(path) = folder_of(dir) else { return false };
    let Ok(folder) = Directory::open_plainly(&path) else { return false };
    let lives = count_living(&folder, None).is_ok_and(|living| living > 0);
    if !lives {
        remove_folder(&folder);
    }
    lives
}

/// Counts the living collectors, except this one, and removes the files of dead ones.
fn count_living(folder: &Directory, but: Option<&CString>) -> io::Result<usize> {
    let mut living = 0;
    for name in folder.names(MAX_NAMES)?.0.iter().filter(|name| Some(*name) != but) {
        let Ok(file) = folder.open_file(name) else { continue };
        match lock(&file, libc::LOCK_EX)? {
            Lock::Taken if folder.leads_to(name, &file)? => folder.remove(name)?,
            Lock::Taken | Lock::Unsupported => {}
            Lock::Held => living += 1,
        }
    }
    Ok(living)
}

fn folder_of(dir: &Directory) -> Result<PathBuf, NoMemory> {
    heap::path(&[dir.path().as_os_str().as_bytes(), b"/", FOLDER.as_bytes()])
}

/// The system call by which an ending process finds collectors. Its path is prepared in advance.
#[derive(Debug)]
pub(crate) struct CollectorProbe(CString);

impl CollectorProbe {
    /// Fails if the path is too long for system calls, or memory runs out.
    pub(crate) fn new(dir: &Directory) -> io::Result<Self> {
        heap::c_string(&[folder_of(dir)?.as_os_str().as_bytes(), b"/."]).map(Self)
    }

    /// Whether there are collectors. `unlink` refuses a path that ends in a dot, with EISDIR if the
    /// folder exists. An ending process calls `unlink` anyway, so it needs no other kind of system
    /// call for this.
    pub(crate) fn has_collector(&self) -> bool {
        // SAFETY: a NUL-terminated path that outlives the call.
        let refused = unsafe { libc::unlink(self.0.as_ptr()) } != 0;
        refused && io::Error::last_os_error().raw_os_error() == Some(libc::EISDIR)
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;
    use crate::discovery::directory::TemporaryDirectory;

    #[test]
    fn a_process_learns_of_collectors_and_removes_nothing() {
        let place = TemporaryDirectory::new("collectors");
        let dir = &place.0;
        let probe = CollectorProbe::new(dir).unwrap();
        assert!(!probe.has_collector());
        std::fs::write(folder_of(dir).unwrap(), "somebody's").unwrap();
        assert!(!probe.has_collector());
        assert_eq!(std::fs::read(folder_of(dir).unwrap()).unwrap(), b"somebody's");
        assert!(Collector::start(dir).is_err() && !sweep(dir));
        std::fs::remove_file(folder_of(dir).unwrap()).unwrap();

        let first = Collector::start(dir).unwrap();
        assert!(probe.has_collector() && first.is_alone() && sweep(dir));
        let second = Collector::start(dir).unwrap();
        assert!(!first.is_alone() && !second.is_alone());
        drop(first);
        assert!(probe.has_collector() && second.is_alone());
        drop(second);
        assert!(!probe.has_collector() && !folder_of(dir).unwrap().exists());
    }

    #[test]
    fn a_dead_collector_is_swept() {
        let place = TemporaryDirectory::new("collectors");
        let dir = &place.0;
        let folder = Directory::create(&folder_of(dir).unwrap()).unwrap();
        drop(folder.create_file(c"dead").unwrap());
        let alive = Collector::start(dir).unwrap();
        assert!(alive.is_alone());
        assert_eq!(folder.names(9).unwrap().0, std::slice::from_ref(&alive.held.name));
        drop(alive);
        drop(Directory::create(&folder_of(dir).unwrap()).unwrap().create_file(c"dead").unwrap());
        assert!(!sweep(dir) && !folder_of(dir).unwrap().exists());
    }

    #[test]
    fn programs_that_start_keep_no_collector_from_starting() {
        let place = TemporaryDirectory::new("collectors");
        let dir = &place.0;
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Relaxed) {
                        sweep(dir);
                    }
                });
            }
            let failed = (0..2000).filter_map(|_| Collector::start(dir).err()).next();
            done.store(true, Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
        assert!(!sweep(dir) && !folder_of(dir).unwrap().exists());
    }
}
