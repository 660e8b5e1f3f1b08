//! Tests of finding, retaining and sweeping segments, with real processes.
//!
//! A test that needs another process starts this binary again with a role (see `roles`), and talks
//! to it through its standard input and output. The tests wait for a line that a process prints, or
//! for its end, never for a time.
#![cfg(target_os = "linux")]

mod actors;
#[path = "../common/counting.rs"]
mod counting;
mod lock;
mod memory;
mod planted;
mod roles;
mod sweeping;
mod text;

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::find::{Entry, find};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object;

pub(crate) const PAGE: usize = 4096;
pub(crate) const NOBODY: u32 = 65534;

/// A directory of the test's own, removed at its end.
pub(crate) struct Base(PathBuf);

impl Base {
    pub(crate) fn new() -> Base {
        let id = Name::random().unwrap();
        let path = std::env::temp_dir().join(format!("pfp-test-{}", id.hex()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Base(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn directory(&self) -> Directory {
        Directory::create(self.path()).unwrap()
    }
}

impl Drop for Base {
    fn drop(&mut self) {
        // Objects that a test left in shared memory are removed with its directory.
        if let Ok(found) = Directory::open(&self.0).and_then(|dir| find(&dir)) {
            for entry in found.entries {
                object::unlink(&entry.info.object).ok();
            }
        }
        fs::remove_dir_all(&self.0).ok();
    }
}

pub(crate) fn only_entry(dir: &Directory) -> Entry {
    let found = find(dir).unwrap();
    assert_eq!(found.entries.len(), 1, "{found:?}");
    found.entries.into_iter().next().unwrap()
}

pub(crate) fn flock(file: &File, kind: i32) {
    // SAFETY: the descriptor is open as long as `file` lives, and the call takes no pointers.
    let refused = unsafe { libc::flock(file.as_raw_fd(), kind | libc::LOCK_NB) };
    assert_eq!(refused, 0);
}

pub(crate) fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path that outlives the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Prints on the terminal why a test covers less on this machine. Writes to stderr directly,
/// because the harness captures what a passing test prints.
pub(crate) fn skipped(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "\nSKIPPED {what}: {why}");
}

pub(crate) fn is_root() -> bool {
    // SAFETY: the call takes no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
