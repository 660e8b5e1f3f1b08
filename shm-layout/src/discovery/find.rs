//! Finds segments, and removes the segments of dead processes.
//!
//! At an orderly exit a process removes its segment, or leaves it to a viewer that watches all
//! processes ([`collector`]). The segment of a crashed process stays readable until it is collected
//! ([`gc`]), its program starts again ([`sweep`], which keeps the last few), a viewer looks for
//! processes ([`trim`], likewise), or another program starts and needs the space.
//!
//! **Removing.** The sweeper opens the beacon, takes the exclusive lock without waiting, checks
//! that the name still leads to the locked file, removes the object, then the beacon, and releases
//! the lock. A live process holds that lock, so its segment cannot be removed; two sweepers cannot
//! hold it at once; and a sweeper that is killed in between leaves the beacon, so a later sweeper
//! finds and removes what is left.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::discovery::beacon::{self, Info, Malformed};
use crate::discovery::collector;
use crate::discovery::directory::Directory;
use crate::discovery::directory::MAX_FILES;
use crate::discovery::failure;
use crate::discovery::group_file;
use crate::discovery::liveness::{self, Hold, Liveness};
use crate::discovery::name::Name;
use crate::discovery::object;
use crate::discovery::switched;
use crate::heap::{Grow, NoMemory};

/// How many dead segments of a program are kept when it starts again.
pub const KEEP: usize = 3;

/// The contents of one directory.
#[derive(Debug)]
pub struct Found {
    /// The segments, the newest first.
    pub entries: Vec<Entry>,
    /// Beacons that could not be read, and why.
    pub unreadable: Vec<(PathBuf, String)>,
    /// The directory.
    pub looked_in: PathBuf,
    /// The directory has more than [`MAX_FILES`] files, so some were not read.
    pub truncated: bool,
}

/// A segment.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The contents of its beacon.
    pub info: Info,
    /// Alive or Dead, never Gone.
    pub state: Liveness,
    /// The memory of its object. `None` if the object is gone, because its process is ending or the
    /// machine has rebooted.
    pub object_bytes: Option<u64>,
    /// Path of the beacon.
    pub path: PathBuf,
}

/// The result of a sweep.
#[derive(Debug, Default)]
pub struct Swept {
    /// The segments that were removed.
    pub removed: Vec<Entry>,
    /// Dead segments that could not be removed, also damaged and unfinished beacons, and why.
    pub failed: Vec<(PathBuf, io::Error)>,
}

impl Swept {
    /// The memory that was freed, in bytes.
    pub fn freed_bytes(&self) -> u64 {
        self.removed.iter().filter_map(|e| e.object_bytes).sum()
    }
}

/// Reads every beacon in a directory. Beacons that vanish in between are skipped.
///
/// # Errors
///
/// The directory cannot be read.
#[allow(clippy::disallowed_methods, reason = "only viewers look for all")]
pub fn find(dir: &Directory) -> io::Result<Found> {
    let (names, truncated) = dir.names(MAX_FILES)?;
    let mut found = Found {
        entries: Vec::new(),
        unreadable: Vec::new(),
        looked_in: dir.path().to_owned(),
        truncated,
    };
    for name in &names {
        let Some(object) = beacon::object_of(name) else {
            continue;
        };
        match look(dir, name, &object) {
            Ok(Seen::Entry(entry, _)) => found.entries.push(entry),
            Ok(Seen::Vanished) => {}
            Ok(Seen::Damaged(_, why)) => found.unreadable.push((dir.path_of(name)?, why.into())),
            Ok(Seen::OtherVersion(why)) => {
                found.unreadable.push((dir.path_of(name)?, why.to_string()));
            }
            Err(e) => found.unreadable.push((dir.path_of(name)?, e.to_string())),
        }
    }
    newest_first(&mut found.entries, |entry| entry);
    Ok(found)
}

/// Reads the beacon of one segment in a directory. `None` if it is missing or unreadable.
pub fn find_one(dir: &Directory, object: &Name) -> Option<Entry> {
    match look(dir, &beacon::file_of(object).ok()?, object) {
        Ok(Seen::Entry(entry, _)) => Some(entry),
        _ => None,
    }
}

/// Removes the segment of a process that has ended. Returns whether it did: a live process keeps
/// its segment.
///
/// # Errors
///
/// The system's error.
pub fn remove_one(dir: &Directory, object: &Name) -> io::Result<bool> {
    let name = beacon::file_of(object)?;
    match look(dir, &name, object) {
        Ok(Seen::Entry(entry, file)) => {
            remove(dir, &name, &file, Some(object), Some(&entry.info.process))
        }
        _ => Ok(false),
    }
}

/// Reads every beacon in all directories where this user's beacons may be. Missing directories are
/// skipped; a refused directory is reported with its path.
#[allow(clippy::disallowed_methods, reason = "only viewers look everywhere")]
pub fn find_everywhere() -> (Vec<Found>, Vec<String>) {
    let mut all = Vec::new();
    let mut refused = Vec::new();
    for path in Directory::candidates() {
        match Directory::open(&path).and_then(|dir| find(&dir)) {
            Ok(found) => all.push(found),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => refused.push(e.to_string()),
        }
    }
    (all, refused)
}

/// Removes the dead segments of each program, except its newest `keep`. A program's next start does
/// this, too, but after a crash of many processes at once there may be no such start. While a
/// viewer collects ended processes, all segments stay.
#[allow(clippy::disallowed_methods, reason = "only viewers trim")]
pub fn trim(dir: &Directory, found: &mut Found, keep: usize) {
    let mut dead = HashMap::<_, usize>::new();
    let mut is_one_too_many = |entry: &Entry| {
        let is_kept = entry.state != Liveness::Dead || entry.object_bytes.is_none();
        !is_kept && {
            let kept = dead.entry(entry.info.exe.clone()).or_default();
            *kept += 1;
            *kept > keep
        }
    };
    // The entries are sorted, newest first.
    let surplus: Vec<bool> = found.entries.iter().map(&mut is_one_too_many).collect();
    if !surplus.contains(&true) || collector::sweep(dir) {
        return;
    }
    let mut surplus = surplus.into_iter();
    found.entries.retain(|entry| {
        let is_surplus = surplus.next().unwrap_or_default();
        // A segment that cannot be removed stays in the list.
        !is_surplus || !remove_one(dir, &entry.info.object).unwrap_or_default()
    });
}

/// Called when a program starts, before it takes memory of its own. Of the same program's dead
/// segments, it retains the newest `keep` that still have an object, and removes the others. Of all
/// programs' dead segments, it retains the newest ones that together take at most `bytes`. While a
/// viewer collects the segments, `keep` does not apply.
///
/// # Errors
///
/// The directory cannot be read.
pub fn sweep(dir: &Directory, exe: &Path, keep: usize, bytes: u64) -> io::Result<Swept> {
    let exe = beacon::cut_exe(exe);
    let mut swept = Swept::default();
    let (names, _) = dir.names(MAX_FILES)?;
    let mut dead = Vec::new();
    for name in &names {
        if beacon::is_unfinished(name) {
            remove_unfinished(dir, name, &mut swept);
        } else if group_file::is_group_file(name) {
            swept.note_failure(dir, name, group_file::remove_if_unused(dir, name));
        } else if let Some(object) = beacon::object_of(name)
            && let Ok(Seen::Entry(entry, _)) = look(dir, name, &object)
            && entry.state == Liveness::Dead
        {
            // The file is closed for now, because the host may be short of descriptors.
            dead.try_push((entry, name))?;
        }
    }
    // The beacons were read before this check, so a collector that the check misses has started
    // after these processes ended, and does not expect their segments.
    let keep = if collector::sweep(dir) { MAX_FILES } else { keep };
    newest_first(&mut dead, |(entry, _)| entry);
    let (mut kept, mut kept_bytes) = (0, 0);
    for (entry, name) in dead {
        let (is_own, takes) = (entry.info.exe == exe, entry.object_bytes.unwrap_or(0));
        let is_one_too_many = is_own && (kept == keep || entry.object_bytes.is_none());
        if !is_one_too_many && takes <= bytes.saturating_sub(kept_bytes) {
            kept += usize::from(is_own);
            kept_bytes += takes;
            continue;
        }
        let file = dir.open_file(name);
        remove_dead(dir, name, file, entry, &mut swept);
    }
    Ok(swept)
}

/// Removes everything that dead processes of any program left.
///
/// # Errors
///
/// The directory cannot be read.
pub fn gc(dir: &Directory) -> io::Result<Swept> {
    let mut swept = Swept::default();
    collector::sweep(dir);
    switched::sweep(dir);
    let (names, _) = dir.names(MAX_FILES)?;
    for name in &names {
        if beacon::is_unfinished(name) {
            remove_unfinished(dir, name, &mut swept);
            continue;
        }
        if group_file::is_group_file(name) {
            swept.note_failure(dir, name, group_file::remove_if_unused(dir, name));
            continue;
        }
        if failure::is_note(name) {
            swept.note_failure(dir, name, dir.remove(name).map(|()| true));
            continue;
        }
        let Some(object) = beacon::object_of(name) else {
            continue;
        };
        match look(dir, name, &object) {
            Ok(Seen::Entry(entry, file)) if entry.state == Liveness::Dead => {
                remove_dead(dir, name, Ok(file), entry, &mut swept);
            }
            // A power failure can leave an empty file under a finished name.
            Ok(Seen::Damaged(file, _)) => {
                let removed = remove(dir, name, &file, Some(&object), None);
                swept.note_failure(dir, name, removed);
            }
            Ok(_) => {}
            Err(e) => swept.note_failure(dir, name, Err(e)),
        }
    }
    Ok(swept)
}

impl Swept {
    /// Adds a failure to the list, unless memory runs out.
    fn note_failure(&mut self, dir: &Directory, name: &CStr, removed: io::Result<bool>) {
        if let Err(e) = removed
            && let Ok(path) = dir.path_of(name)
        {
            let _ = self.failed.try_push((path, e));
        }
    }
}

/// The result of reading a beacon.
enum Seen {
    Entry(Entry, File),
    /// A file of this user's that no version of pfp has written.
    Damaged(File, &'static str),
    /// A file that another version of pfp can read.
    OtherVersion(Malformed),
    Vanished,
}

fn look(dir: &Directory, name: &CStr, object: &Name) -> io::Result<Seen> {
    let file = match dir.open_file(name) {
        Ok(file) => file,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Seen::Vanished),
        Err(e) => return Err(e),
    };
    let info = match Info::read(&file)? {
        Ok(info) if info.object == *object => info,
        Ok(_) => return Ok(Seen::Damaged(file, "names another segment's object")),
        Err(why @ Malformed::Version(_)) => return Ok(Seen::OtherVersion(why)),
        Err(Malformed::Text { expected, .. }) => return Ok(Seen::Damaged(file, expected)),
        Err(Malformed::NoMemory) => return Err(NoMemory.into()),
    };
    let entry = Entry {
        state: liveness::judge(&file, &info.process)?,
        object_bytes: object::backed_bytes(object)?,
        path: dir.path_of(name)?,
        info,
    };
    Ok(Seen::Entry(entry, file))
}

fn newest_first<T>(items: &mut [T], entry: impl Fn(&T) -> &Entry) {
    // A stable sort would allocate.
    items.sort_unstable_by_key(|item| {
        let info = &entry(item).info;
        (Reverse(info.created_unix_ns), info.object)
    });
}

fn remove_dead(
    dir: &Directory,
    name: &CStr,
    file: io::Result<File>,
    entry: Entry,
    swept: &mut Swept,
) {
    let process = Some(&entry.info.process);
    let removed = match file {
        Ok(file) => remove(dir, name, &file, Some(&entry.info.object), process),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    };
    match removed {
        Ok(true) => {
            // If memory runs out, the segment is removed, but not listed.
            let _ = swept.removed.try_push(entry);
        }
        other => swept.note_failure(dir, name, other),
    }
}

fn remove_unfinished(dir: &Directory, name: &CStr, swept: &mut Swept) {
    let removed = match dir.open_file(name) {
        // A process makes the object only after it has written its beacon, so a beacon that cannot
        // be read has no object.
        Ok(file) => Info::read(&file).and_then(|info| {
            let is_own = |info: &&Info| name.to_bytes().starts_with(info.object.hex().as_bytes());
            let info = info.as_ref().ok().filter(is_own);
            remove(dir, name, &file, info.map(|info| &info.object), info.map(|info| &info.process))
        }),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    };
    swept.note_failure(dir, name, removed);
}

/// Removes an object, then its beacon, if the process is dead and no other sweeper is removing
/// them. Returns whether it did.
fn remove(
    dir: &Directory,
    name: &CStr,
    file: &File,
    object: Option<&Name>,
    process: Option<&liveness::Identity>,
) -> io::Result<bool> {
    match liveness::try_lock(dir, name, file, process)? {
        Hold::Refused | Hold::Moved => return Ok(false),
        Hold::Firm => {}
    }
    let missing_is_fine = |result: io::Result<()>| match result {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    if let Some(object) = object {
        missing_is_fine(object::unlink(object))?;
    }
    missing_is_fine(dir.remove(name))?;
    Ok(true)
}
