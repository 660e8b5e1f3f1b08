//! A file in a folder beside the beacons, locked as long as its process lives.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;

use crate::discovery::directory::Directory;
use crate::discovery::liveness::{Lock, lock};
use crate::heap;

/// A locked file, removed when this value is dropped. If the folder is empty then, the folder is
/// removed, too.
#[derive(Debug)]
pub(crate) struct LockedFile {
    pub(crate) folder: Directory,
    pub(crate) name: CString,
    /// Holds the lock.
    pub(crate) file: File,
}

impl LockedFile {
    /// Makes and locks a file of a new name in a folder of the directory of beacons.
    pub(crate) fn start(
        dir: &Directory,
        folder: &str,
        name: impl Fn() -> io::Result<CString>,
    ) -> io::Result<Self> {
        /// Maximum number of attempts. An attempt fails if a program that starts at the same time
        /// removes the folder while it is empty, or the file before it is locked.
        const CREATE_ATTEMPTS: u32 = 1000;
        let path = heap::path(&[dir.path().as_os_str().as_bytes(), b"/", folder.as_bytes()])?;
        let make = |name: &CStr| -> io::Result<(Directory, File)> {
            let folder = Directory::create(&path)?;
            let file = folder.create_file(name)?;
            Ok((folder, file))
        };
        for _ in 0..CREATE_ATTEMPTS {
            let name = name()?;
            let (folder, file) = match make(&name) {
                Ok(made) => made,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let locked = lock(&file, libc::LOCK_EX);
            if !matches!(locked, Ok(Lock::Taken | Lock::Held)) {
                folder.remove(&name).ok();
                remove_folder(&folder);
                locked?;
                return Err(io::ErrorKind::Unsupported.into());
            }
            if matches!(locked, Ok(Lock::Taken)) && folder.leads_to(&name, &file)? {
                return Ok(Self { folder, name, file });
            }
            folder.remove(&name).ok();
        }
        Err(io::ErrorKind::WouldBlock.into())
    }
}

impl Drop for LockedFile {
    fn drop(&mut self) {
        self.folder.remove(&self.name).ok();
        remove_folder(&self.folder);
    }
}

/// Removes a folder if it is empty.
pub(crate) fn remove_folder(folder: &Directory) {
    if let Ok(path) = heap::c_string(&[folder.path().as_os_str().as_bytes()]) {
        // SAFETY: a NUL-terminated path that outlives the call.
        unsafe { libc::rmdir(path.as_ptr()) };
    }
}
