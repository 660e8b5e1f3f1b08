//! The file of a group of processes: how its members hold it, and when a sweeper removes it.
//!
//! A group (`ProcessGroup` in `pfp-timing`) has a shared-memory object, and a file in the directory
//! of beacons that names the object. Each member locks a byte of the file for as long as it lives,
//! by an open file description lock. Once a sweeper gets the lock of all bytes, the group has no
//! member, so the sweeper removes object and file.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use crate::discovery::directory::Directory;
use crate::discovery::name::Name;
use crate::discovery::object;
use crate::heap::{self, ShortText};

const ENDING: &str = ".group";
const KEY: &str = "object=";
/// Maximum length of the file, which is one line with the key and the object's name.
const MAX_BYTES: usize = 64;

/// Every byte of a file.
const ALL: Range<u32> = 0..u32::MAX;

/// Name of the file of the group that has this number.
///
/// # Errors
///
/// Memory runs out.
pub fn name_of(id: u128) -> io::Result<CString> {
    heap::c_string(&[ShortText::<64>::of(format_args!("{id:032x}{ENDING}")).as_bytes()])
}

/// Whether a file in the directory belongs to a group.
pub(crate) fn is_group_file(file: &CStr) -> bool {
    file.to_bytes().strip_suffix(ENDING.as_bytes()).is_some_and(|hex| Name::from_hex(hex).is_some())
}

/// Writes the name of the group's object into its file.
///
/// # Errors
///
/// `FileTooLarge` beyond the process's file size limit; else the system's error.
pub fn write(file: &File, object: &Name) -> io::Result<()> {
    let text = ShortText::<MAX_BYTES>::of(format_args!("{KEY}{object}\n"));
    object::check_file_limit(text.as_bytes().len() as u64)?;
    file.set_len(0)?;
    file.write_all_at(text.as_bytes(), 0)
}

/// Object that a group's file names. `None` if the file was never finished.
///
/// # Errors
///
/// The system's error; `OutOfMemory`.
pub fn read(file: &File) -> io::Result<Option<Name>> {
    let mut text = [0; MAX_BYTES];
    let len = file.read_at(&mut text, 0)?;
    let text = std::str::from_utf8(&text[..len]).ok();
    let object = text.and_then(|text| text.strip_prefix(KEY)?.strip_suffix('\n'));
    Ok(object.and_then(Name::parse))
}

/// Removes the object and the file of a group without members. False if the group has a member, or
/// another process is joining, leaving or sweeping the group.
///
/// # Errors
///
/// The system's error, unless the file or the object is gone.
pub fn remove_if_unused(directory: &Directory, name: &CStr) -> io::Result<bool> {
    let file = match directory.open_to_lock(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        opened => opened?,
    };
    // Another sweeper may have removed the file between our opening and our locking.
    if !lock(&file, ALL)? || !directory.leads_to(name, &file)? {
        return Ok(false);
    }
    if let Some(object) = read(&file)? {
        match object::unlink(&object) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    directory.remove(name)?;
    Ok(true)
}

/// Locks bytes for this open file without waiting. False if another open file has locked one of
/// them.
///
/// # Errors
///
/// The system's error.
pub fn lock(file: &File, bytes: Range<u32>) -> io::Result<bool> {
    match ask(file, libc::F_OFD_SETLK, libc::F_WRLCK, bytes) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Releases the bytes that [`lock`] has locked.
///
/// # Errors
///
/// The system's error.
pub fn unlock(file: &File, bytes: Range<u32>) -> io::Result<()> {
    ask(file, libc::F_OFD_SETLK, libc::F_UNLCK, bytes).map(drop)
}

/// Whether another open file has locked one of these bytes.
///
/// # Errors
///
/// The system's error.
pub fn is_locked(file: &File, bytes: Range<u32>) -> io::Result<bool> {
    ask(file, libc::F_OFD_GETLK, libc::F_WRLCK, bytes).map(|found| found != libc::F_UNLCK)
}

/// Calls `fcntl`, and returns the kind of lock that it left in the structure.
fn ask(
    file: &File,
    command: libc::c_int,
    kind: libc::c_int,
    bytes: Range<u32>,
) -> io::Result<libc::c_int> {
    // SAFETY: a structure of plain numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = bytes.start.into();
    lock.l_len = (bytes.end - bytes.start).into();
    loop {
        // SAFETY: an open descriptor, and a structure that outlives the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) } != -1 {
            return Ok(lock.l_type.into());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
