//! Groups: threads, or processes, that wait for one another.
//!
//! ```text
//!    0 +--------------------------------------------------------------+
//!      | magic | version, capacity | stated | joined | completed | .. |
//!  128 +--------------------------------------------------------------+
//!      | member 0: active | arrived | stamps[2] | who                 |
//!  256 +--------------------------------------------------------------+
//!      | member 1 ...
//! ```
//!
//! **Arriving.** Every member counts its own arrivals, in a word that nobody else
//! writes. The group as a whole counts the rounds that are complete: round `n` is, once
//! all active members have arrived `n` times. Whoever may have been the last to make
//! that so (by arriving, leaving, or finding that another has died) looks, and moves
//! `completed` on by one exchange; the others sleep on that word, for a bounded time,
//! after which they look who is missing and whether it lives. So a member that dies at
//! any moment, also between its arrival and the look, holds nobody up for longer.
//!
//! The words and their orders are in `group/barrier.rs`.
//!
//! **Over processes** ([`SharedGroup`]) the words lie in an object of their own beside the
//! segments. A file in the directory of beacons, named by the group's name, tells the
//! object's. It is locked by bytes (open file description locks, held through a mapping
//! as a beacon's lock is): byte `i` by the process that is member `i`, for as long as it
//! lives; byte `JOINING` for a moment by who joins, leaves or sweeps. Who comes to a
//! file whose members are all gone starts afresh under a new object.

mod barrier;
mod futex;

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Duration;

use crate::discovery::beacon;
use crate::discovery::directory::Directory;
use crate::discovery::liveness::{Identity, Liveness};
use crate::discovery::name::Name;
use crate::discovery::object::{self, Object};
use crate::discovery::system::current_pid;
use crate::heap::{self, NoMemory, ShortText};
use barrier::{Head, MAGIC, Member, VERSION, Words};

pub use barrier::{Arrived, Place};

/// Most members of a group.
pub const MAX_MEMBERS: u32 = 4096;
/// Members of a group whose number was not stated for which there is room.
pub const ROOM: u32 = 256;

/// The byte that is locked by who joins, leaves or sweeps.
const JOINING: u32 = MAX_MEMBERS;

const _: () = assert!(size_of::<Head>() == 128 && size_of::<Member>() == 128);
const _: () = assert!(offset_of!(Head, magic) == 0);

/// Who a member is, where others look it up.
fn introduce(member: &Member, who: &Identity) {
    member.id.store(who.pid, Relaxed);
    member.start.store(who.start, Relaxed);
    member.boot[0].store((who.boot >> 64) as u64, Relaxed);
    member.boot[1].store(who.boot as u64, Relaxed);
    member.pidns.store(who.pidns, Relaxed);
}

fn identity(words: &Words<'_>, index: u32) -> Identity {
    let member = &words.members[index as usize];
    let [high, low] = [0, 1].map(|half| u128::from(member.boot[half].load(Relaxed)));
    Identity {
        pid: member.id.load(Relaxed),
        start: member.start.load(Relaxed),
        boot: high << 64 | low,
        pidns: member.pidns.load(Relaxed),
    }
}

/// A group of the threads of one process. Who may take which place, and who lives, the
/// caller knows.
#[derive(Debug)]
pub struct PrivateGroup {
    head: Head,
    members: Box<[Member]>,
}

impl PrivateGroup {
    /// A group of `stated` members, or if that is 0 of those that join.
    #[must_use]
    #[allow(
        clippy::disallowed_methods,
        reason = "pfp-timing takes memory where a program asks it to"
    )]
    pub fn new(stated: u32) -> Self {
        let capacity = if stated == 0 { ROOM } else { stated.min(MAX_MEMBERS) };
        let members = (0..capacity).map(|_| Member::default()).collect();
        let group = Self { head: Head::default(), members };
        group.words().prepare(stated.min(MAX_MEMBERS));
        group
    }

    fn words(&self) -> Words<'_> {
        Words { head: &self.head, members: &self.members, private: true }
    }

    /// Takes a place for a thread; none if all are taken by threads that live. One
    /// caller at a time.
    pub fn enter(&self, thread: &Identity, is_alive: impl Fn(&Identity) -> bool) -> Option<Place> {
        let words = self.words();
        let index = (0..self.members.len() as u32).find(|&index| {
            // Meets `group-enter`.
            self.members[index as usize].active.load(Acquire) == 0
                || !is_alive(&identity(&words, index))
        })?;
        Some(words.enter(index, |member| introduce(member, thread)))
    }

    /// Gives a place up.
    pub fn leave(&self, place: Place) {
        self.words().leave(place);
    }

    /// Says that the holder of a place has come; the round, none if it is no member.
    pub fn arrive(&self, place: Place, stamp: u64) -> Option<u32> {
        self.words().arrive(place, stamp)
    }

    /// Waits until all have come to a round; see [`SharedGroup::wait`].
    pub fn wait(
        &self,
        place: Place,
        round: u32,
        patience: Duration,
        is_alive: impl Fn(&Identity) -> bool,
    ) -> Arrived {
        let words = self.words();
        words.wait(place, round, patience, |index| is_alive(&identity(&words, index)))
    }
}

/// A membership of the calling process in a group over processes. Dropping it leaves the
/// group, in the process that joined it.
#[derive(Debug)]
pub struct SharedGroup {
    object: Object,
    capacity: u32,
    place: Place,
    /// The page that holds the locks.
    held: usize,
    pid: libc::pid_t,
    directory: PathBuf,
    file: CString,
    /// Device and inode of that file.
    file_id: (u64, u64),
}

impl SharedGroup {
    /// Joins the group of this name, which is made if there is none.
    ///
    /// # Errors
    ///
    /// `InvalidInput` for a number of members that is not the one it was made with, or
    /// above [`MAX_MEMBERS`]; `QuotaExceeded` if it has no place left; `WouldBlock` if others
    /// were at it all the time; `StorageFull` without memory; else what the system
    /// answered.
    pub fn join(directory: &Directory, name: &str, stated: u32) -> io::Result<Self> {
        /// A millisecond apart: who joins or leaves takes well below one.
        const TRIES: u32 = 5000;
        if stated > MAX_MEMBERS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let file_name = file_name(name)?;
        for _ in 0..TRIES {
            let file = match directory.create_file(&file_name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    directory.open_to_lock(&file_name)
                }
                made => made,
            };
            match file {
                Ok(file) if lock(&file, JOINING, libc::F_WRLCK)? => {
                    // A sweeper may have been here between our opening and our locking.
                    if directory.leads_to(&file_name, &file)? {
                        let joined = Self::enter(directory, name, &file_name, file, stated);
                        return joined;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// With the file's lock, which ends with it.
    fn enter(
        directory: &Directory,
        name: &str,
        file_name: &CString,
        mut file: File,
        stated: u32,
    ) -> io::Result<Self> {
        let has_members = is_locked(&file, 0..MAX_MEMBERS)?;
        let known = read(&mut file)?;
        let object = match (has_members, known) {
            (true, Some(known)) => Object::open_shared(&known)?,
            // Members, and not the file that they had.
            (true, None) => return Err(io::ErrorKind::InvalidData.into()),
            (false, known) => {
                if let Some(old) = known {
                    let _ = object::unlink(&old);
                }
                found(&mut file, name, stated)?
            }
        };
        let capacity = check(&object, stated)?;
        let index = (0..capacity)
            .find(|&index| is_locked(&file, index..index + 1).is_ok_and(|locked| !locked))
            .ok_or(io::ErrorKind::QuotaExceeded)?;
        if !lock(&file, index, libc::F_WRLCK)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let meta = file.metadata()?;
        let held = beacon::hold(&file)?;
        let words = words_of(&object, capacity);
        let this = Identity::of_this_process();
        let place = words.enter(index, |member| introduce(member, &this));
        let group = Self {
            object,
            capacity,
            place,
            held,
            pid: current_pid(),
            directory: heap::path(&[directory.path().as_os_str().as_bytes()])?,
            file: heap::c_string(&[file_name.to_bytes()])?,
            file_id: (meta.dev(), meta.ino()),
        };
        lock(&file, JOINING, libc::F_UNLCK)?;
        Ok(group)
    }

    /// Whether the calling process is the one that joined: a forked child is not.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.pid == current_pid()
    }

    /// The name of its object.
    #[must_use]
    pub fn object(&self) -> &Name {
        self.object.name()
    }

    fn words(&self) -> Words<'_> {
        words_of(&self.object, self.capacity)
    }

    /// Says that this process has come; the round, none if it is no member.
    pub fn arrive(&self, stamp: u64) -> Option<u32> {
        if !self.is_own() {
            return None;
        }
        self.words().arrive(self.place, stamp)
    }

    /// Waits until all have come to a round, or are dead. Members that were stated and
    /// never came are waited for no longer than `patience`, once.
    #[must_use]
    pub fn wait(&self, round: u32, patience: Duration) -> Arrived {
        let here = Identity::of_this_process();
        let words = self.words();
        words.wait(self.place, round, patience, |index| {
            self.is_alive(index, &identity(&words, index), &here)
        })
    }

    /// By its lock, which ends exactly with its process; if that is held or cannot be
    /// asked, by whether that process can be there at all.
    fn is_alive(&self, index: u32, who: &Identity, here: &Identity) -> bool {
        let file = Directory::open_plainly(&self.directory)
            .and_then(|directory| directory.open_to_lock(&self.file))
            .ok()
            .filter(|file| {
                file.metadata().is_ok_and(|meta| (meta.dev(), meta.ino()) == self.file_id)
            });
        let locked = file.and_then(|file| is_locked(&file, index..index + 1).ok());
        locked != Some(false) && who.judged_from(here) == Liveness::Alive
    }
}

impl Drop for SharedGroup {
    fn drop(&mut self) {
        // A forked child is not a member, and does not hold the lock.
        if !self.is_own() {
            return;
        }
        self.words().leave(self.place);
        beacon::let_go(self.held);
        if let Ok(directory) = Directory::open_plainly(&self.directory) {
            let _ = remove_if_empty(&directory, &self.file);
        }
    }
}

/// The words of an object whose length was checked.
fn words_of(object: &Object, capacity: u32) -> Words<'_> {
    let base = object.as_ptr();
    // SAFETY: `check` has seen that the object is long enough for so many members, all of
    // which is backed; it is mapped as long as the object lives, at a page boundary. Every
    // field is an atomic, for which any bytes are a value.
    let (head, members) = unsafe {
        let first = base.add(size_of::<Head>()).cast::<Member>();
        (&*base.cast::<Head>(), std::slice::from_raw_parts(first, capacity as usize))
    };
    Words { head, members, private: false }
}

fn bytes_for(capacity: u32) -> usize {
    size_of::<Head>() + capacity as usize * size_of::<Member>()
}

/// Makes the object of a group, and writes its name into the group's file.
fn found(file: &mut File, name: &str, stated: u32) -> io::Result<Object> {
    let capacity = if stated == 0 { ROOM } else { stated };
    // The name first, so that a process killed at any moment leaves no object without a file.
    let object_name = Name::random()?;
    let text = text(&object_name, name)?;
    object::check_file_limit(text.len() as u64)?;
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(text.as_bytes())?;
    let object = Object::create_as(object_name, bytes_for(capacity))?;
    if object.back(0, bytes_for(capacity)).is_err() {
        object::unlink(object.name()).ok();
        return Err(io::ErrorKind::StorageFull.into());
    }
    words_of(&object, capacity).prepare(stated);
    Ok(object)
}

/// Reads an object's head once, and believes it as far as the object is long.
#[allow(clippy::disallowed_methods, reason = "a program that joins is told in words")]
fn check(object: &Object, stated: u32) -> io::Result<u32> {
    let bad = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidData, what.to_owned()));
    if object.len() < bytes_for(1) {
        return bad("the group's object is too short");
    }
    let words = words_of(object, 0);
    let version = words.head.version.load(Relaxed);
    if words.head.magic.load(Relaxed) != MAGIC || version as u32 != VERSION as u32 {
        return bad("not a group's object of this version");
    }
    let capacity = (version >> 32) as u32;
    if capacity == 0 || capacity > MAX_MEMBERS || bytes_for(capacity) > object.len() {
        return bad("the group's object is damaged");
    }
    if words.head.stated.load(Relaxed) != u64::from(stated) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the group was made for another number of members",
        ));
    }
    if object.back(0, bytes_for(capacity)).is_err() {
        return Err(io::ErrorKind::StorageFull.into());
    }
    Ok(capacity)
}

const ENDING: &str = ".group";
const FIRST_LINE: &str = "pfp-group 1\n";

/// The file of a group: its name's hash (FNV-1a, 128 bits).
fn file_name(name: &str) -> io::Result<CString> {
    let hash = name.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d_u128, |hash, byte| {
        (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    });
    heap::c_string(&[ShortText::<64>::of(format_args!("{hash:032x}{ENDING}")).as_bytes()])
}

/// Whether a file in the directory is a group's.
pub(crate) fn is_group(file: &std::ffi::CStr) -> bool {
    file.to_bytes().strip_suffix(ENDING.as_bytes()).is_some_and(|hex| Name::from_hex(hex).is_some())
}

fn text(object: &Name, name: &str) -> Result<String, NoMemory> {
    let end = name.char_indices().nth(128).map_or(name.len(), |(end, _)| end);
    let name = name[..end].escape_default();
    heap::format(format_args!("{FIRST_LINE}object={object}\nname={name}\n"))
}

/// The object that a group's file names. `None` if the file was never finished.
fn read(file: &mut File) -> io::Result<Option<Name>> {
    file.rewind()?;
    let text = heap::read(file, beacon::MAX_BYTES)?;
    let Ok(text) = std::str::from_utf8(&text) else { return Ok(None) };
    let object = text.strip_prefix(FIRST_LINE).and_then(|rest| rest.strip_prefix("object="));
    Ok(object.and_then(|rest| Name::parse(rest.split_once('\n')?.0)))
}

/// Removes a group that has no member; false if it has one, or somebody is at it.
pub(crate) fn remove_if_empty(directory: &Directory, name: &std::ffi::CStr) -> io::Result<bool> {
    let mut file = match directory.open_to_lock(name) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    if !lock(&file, JOINING, libc::F_WRLCK)?
        || is_locked(&file, 0..MAX_MEMBERS)?
        || !directory.leads_to(name, &file)?
    {
        return Ok(false);
    }
    if let Some(object) = read(&mut file)? {
        match object::unlink(&object) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    directory.remove(name)?;
    Ok(true)
}

fn bytes_lock(kind: libc::c_int, bytes: std::ops::Range<u32>) -> libc::flock {
    // SAFETY: a structure of plain numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = bytes.start.into();
    lock.l_len = (bytes.end - bytes.start).into();
    lock
}

/// Locks or unlocks a byte for this open file, without waiting; false if another has it.
fn lock(file: &File, byte: u32, kind: libc::c_int) -> io::Result<bool> {
    loop {
        let lock = bytes_lock(kind, byte..byte + 1);
        // SAFETY: an open descriptor, and a structure that outlives the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            _ => return Err(error),
        }
    }
}

/// Whether another open file has one of these bytes locked.
fn is_locked(file: &File, bytes: std::ops::Range<u32>) -> io::Result<bool> {
    let mut lock = bytes_lock(libc::F_WRLCK, bytes);
    // SAFETY: an open descriptor, and a structure of ours that the call fills in.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::c_int::from(lock.l_type) != libc::F_UNLCK)
}
