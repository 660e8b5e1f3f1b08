//! Membership of a process in a group of processes.
//!
//! The words of the group are in a shared-memory object beside the segments. The group's file,
//! which is beside the files by which viewers find processes (beacons), contains the object's name
//! ([`group_file`]). Each member locks the byte of the file at its index. A mapping of the file
//! holds the lock until the process ends ([`LockPage`]). A process locks the byte `JOINING` while
//! it joins. The first process that finds no member in the file creates a new object.

use std::ffi::CString;
use std::fs::{File, Metadata};
use std::io;
use std::mem::offset_of;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use pfp_shm_layout::beacon::LockPage;
use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::liveness::{Identity, Liveness};
use pfp_shm_layout::name::Name;
use pfp_shm_layout::object::{self, Object};
use pfp_shm_layout::{group_file, heap};

use super::barrier::{Arrived, Head, MAGIC, Member, Place, VERSION, Words};
use super::{MAX_MEMBERS, ROOM, identity, introduce};

/// The byte that a process locks while it joins.
const JOINING: Range<u32> = byte(MAX_MEMBERS);
const MEMBERS: Range<u32> = 0..MAX_MEMBERS;

const _: () = assert!(size_of::<Head>() == 128 && size_of::<Member>() == 128);
const _: () = assert!(offset_of!(Head, magic) == 0);

const fn byte(index: u32) -> Range<u32> {
    index..index + 1
}

/// Membership of this process. Dropping it leaves the group, unless a forked child drops it.
#[derive(Debug)]
pub(super) struct Membership {
    object: Object,
    capacity: u32,
    place: Place,
    /// Holds the lock on this member's byte. `None` once the membership is dropped.
    lock: Option<LockPage>,
    pid: u32,
    directory: PathBuf,
    file_name: CString,
    /// Device and inode of the group's file.
    file: (u64, u64),
}

impl Membership {
    /// Joins the group of this name, which is created if it does not exist.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `stated` differs from the existing group or exceeds [`MAX_MEMBERS`];
    /// `InvalidData` if the group is of another version, or damaged; `QuotaExceeded` if it is full;
    /// `WouldBlock` if other processes kept the file locked; `StorageFull` without shared memory;
    /// `OutOfMemory`; otherwise the system's error.
    pub(super) fn join(directory: &Directory, name: &str, stated: u32) -> io::Result<Self> {
        /// Number of attempts, one per millisecond. Another process that joins or leaves holds the
        /// lock for much less time than all of them take.
        const JOIN_ATTEMPTS: u32 = 5000;
        if stated > MAX_MEMBERS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file_name = group_file::name_of(hash(name))?;
        for _ in 0..JOIN_ATTEMPTS {
            let file = match directory.create_file(&file_name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    directory.open_to_lock(&file_name)
                }
                made => made,
            };
            match file {
                // A process that removes unused files may have removed this one before it was
                // locked.
                Ok(file)
                    if group_file::lock(&file, JOINING)?
                        && directory.leads_to(&file_name, &file)? =>
                {
                    return Self::enter(directory, file_name, &file, stated);
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Takes a free slot. The caller has locked `JOINING`.
    fn enter(
        directory: &Directory,
        file_name: CString,
        file: &File,
        stated: u32,
    ) -> io::Result<Self> {
        let has_members = group_file::is_locked(file, MEMBERS)?;
        let object = match (has_members, group_file::read(file)?) {
            (true, Some(known)) => Object::open_shared(&known)?,
            // There are members, but the file does not contain a valid name.
            (true, None) => return Err(io::ErrorKind::InvalidData.into()),
            (false, known) => {
                if let Some(old) = known {
                    let _ = object::unlink(&old);
                }
                make(file, stated)?
            }
        };
        let capacity = check(&object, stated)?;
        let is_free =
            |index: &u32| group_file::is_locked(file, byte(*index)).is_ok_and(|locked| !locked);
        let index = (0..capacity).find(is_free).ok_or(io::ErrorKind::QuotaExceeded)?;
        if !group_file::lock(file, byte(index))? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let id = file_id(&file.metadata()?);
        let path = heap::path(&[directory.path().as_os_str().as_bytes()])?;
        let lock = Some(LockPage::hold(file)?);
        let this = Identity::of_this_process();
        let place = words_of(&object, capacity).enter(index, |member| introduce(member, &this));
        // The mapping keeps the file description open, and with it all its locks, so `JOINING` must
        // be unlocked here.
        group_file::unlock(file, JOINING)?;
        let pid = std::process::id();
        Ok(Self { object, capacity, place, lock, pid, directory: path, file_name, file: id })
    }

    /// Whether the calling process has joined. False in a forked child.
    fn is_own(&self) -> bool {
        self.pid == std::process::id()
    }

    fn words(&self) -> Words<'_> {
        words_of(&self.object, self.capacity)
    }

    /// Counts this process as arrived. Returns the round, or `None` if the process is not a member.
    pub(super) fn arrive(&self, stamp: u64) -> Option<u32> {
        if !self.is_own() {
            return None;
        }
        self.words().arrive(self.place, stamp)
    }

    /// Waits until all members have arrived in a round, or are dead. For members that were stated
    /// and have never joined, it waits at most `join_timeout`; later rounds do not wait for them.
    pub(super) fn wait(&self, round: u32, join_timeout: Duration) -> Arrived {
        let here = Identity::of_this_process();
        let words = self.words();
        words.wait(self.place, round, join_timeout, |index| {
            self.is_alive(index, &identity(&words.members[index as usize]), &here)
        })
    }

    /// Whether a member is alive. It is dead if its lock is gone, since the lock ends with its
    /// process. If the lock is held or cannot be read, the member is dead only if its identity
    /// shows that its process no longer exists.
    fn is_alive(&self, index: u32, who: &Identity, here: &Identity) -> bool {
        let file = Directory::open(&self.directory)
            .and_then(|directory| directory.open_to_lock(&self.file_name))
            .ok()
            .filter(|file| file.metadata().is_ok_and(|found| file_id(&found) == self.file));
        let locked = file.and_then(|file| group_file::is_locked(&file, byte(index)).ok());
        locked != Some(false) && who.judged_from(here) == Liveness::Alive
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        // A forked child is not a member and has no lock.
        if !self.is_own() {
            return;
        }
        self.words().leave(self.place);
        if let Some(lock) = self.lock.take() {
            // SAFETY: this process created the page, because `is_own` returned true.
            unsafe { lock.release() };
        }
        if let Ok(directory) = Directory::open(&self.directory) {
            let _ = group_file::remove_if_unused(&directory, &self.file_name);
        }
    }
}

fn file_id(of: &Metadata) -> (u64, u64) {
    (of.dev(), of.ino())
}

/// Hash of a name (FNV-1a, 128 bits).
fn hash(name: &str) -> u128 {
    name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// The words of an object of checked length.
fn words_of(object: &Object, capacity: u32) -> Words<'_> {
    let base = object.as_ptr();
    // SAFETY: `check` has verified that the object is long enough for `capacity` members, and has
    // allocated all of it. It is mapped at a page boundary while the object exists. All fields are
    // atomics, for which any bytes are valid.
    let (head, members) = unsafe {
        let first = base.add(size_of::<Head>()).cast::<Member>();
        (&*base.cast::<Head>(), std::slice::from_raw_parts(first, capacity as usize))
    };
    Words { head, members, private: false }
}

fn bytes_for(capacity: u32) -> usize {
    size_of::<Head>() + capacity as usize * size_of::<Member>()
}

/// Creates the object of a group, and writes its name to the group's file.
fn make(file: &File, stated: u32) -> io::Result<Object> {
    let capacity = if stated == 0 { ROOM } else { stated };
    // The name is written first, so that a process killed at any time leaves no object without a
    // file.
    let name = Name::random()?;
    group_file::write(file, &name)?;
    let object = Object::create_as(name, bytes_for(capacity))?;
    if object.back(0, bytes_for(capacity)).is_err() {
        object::unlink(object.name()).ok();
        return Err(io::ErrorKind::StorageFull.into());
    }
    words_of(&object, capacity).prepare(stated);
    Ok(object)
}

/// Checks an object's head and length. Returns the capacity.
fn check(object: &Object, stated: u32) -> io::Result<u32> {
    let bad = || Err(io::ErrorKind::InvalidData.into());
    if object.len() < bytes_for(1) {
        return bad();
    }
    let words = words_of(object, 0);
    let version = words.head.version.load(Relaxed);
    if words.head.magic.load(Relaxed) != MAGIC || version as u32 != VERSION as u32 {
        return bad();
    }
    let capacity = (version >> 32) as u32;
    if capacity == 0 || capacity > MAX_MEMBERS || bytes_for(capacity) > object.len() {
        return bad();
    }
    if words.head.stated.load(Relaxed) != u64::from(stated) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if object.back(0, bytes_for(capacity)).is_err() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(capacity)
}
