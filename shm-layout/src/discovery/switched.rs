//! Files beside the beacons that note which points a viewer has switched on or off and will
//! restore. If a viewer is killed, other viewers find its switches in these files.
//!
//! ```text
//!  DIR/switched/<hex of the segment>.<hex of the viewer>
//!
//!  byte number ID is '-' where the viewer switched the point ID off, '+' where it switched it
//!  on, and zero where the point is as the viewer found it
//! ```
//!
//! The viewer holds the file's lock, which the kernel releases when the viewer ends. A viewer that
//! makes an orderly exit restores its switches and removes its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

use crate::discovery::beacon;
use crate::discovery::directory::Directory;
use crate::discovery::held::{self, LockedFile};
use crate::discovery::liveness::{Lock, lock};
use crate::discovery::name::Name;
use crate::heap;

/// The folder, in the directory of beacons.
const FOLDER: &str = "switched";
/// Maximum number of files that are read.
const MAX_FILES: usize = 256;
/// Maximum number of bytes read of a file: one for each point that a segment can have.
const MAX_BYTES: u64 = 1 << 24;

const OFF: u8 = b'-';
const ON: u8 = b'+';

/// The switches of this viewer in one segment, noted until this value is dropped.
#[derive(Debug)]
pub struct Switched {
    held: LockedFile,
}

impl Switched {
    /// Starts to note the switches of this viewer.
    ///
    /// # Errors
    ///
    /// The system's error; `Unsupported` if the file system has no locks.
    pub fn start(dir: &Directory, segment: &Name) -> io::Result<Self> {
        let name =
            || heap::c_string(&[segment.hex().as_bytes(), b".", Name::random()?.hex().as_bytes()]);
        Ok(Self { held: LockedFile::start(dir, FOLDER, name)? })
    }

    /// Notes that this viewer switches a point on or off. `None` notes that the point is as the
    /// viewer found it.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn note(&self, point: u32, on: Option<bool>) -> io::Result<()> {
        let byte = on.map_or(0, |on| if on { ON } else { OFF });
        self.held.file.write_all_at(&[byte], point.into())
    }

    fn name(&self) -> &CStr {
        &self.held.name
    }
}

/// Another viewer's switches in a segment.
#[derive(Debug)]
pub struct Others {
    folder: Directory,
    name: CString,
    file: File,
    /// Whether the viewer was killed before it restored its switches.
    pub is_dead: bool,
    /// The switched points by id: true if a point was switched on, false if it was switched off.
    pub points: BTreeMap<u32, bool>,
}

impl Others {
    /// Removes those switches of a dead viewer for which `keep` returns false. Also removes the
    /// viewer's file once no switch is left.
    pub fn retain(&mut self, mut keep: impl FnMut(u32, bool) -> bool) {
        let file = &self.file;
        self.points
            .retain(|&id, &mut on| keep(id, on) || file.write_all_at(&[0], id.into()).is_err());
        if self.points.is_empty() {
            self.folder.remove(&self.name).ok();
            held::remove_folder(&self.folder);
        }
    }
}

/// The switches of other viewers in a segment. Removes the files of dead viewers about segments
/// whose process is gone. Removes a dead viewer's switch that another dead viewer's file has, too,
/// so the number of files does not grow with the number of killed viewers.
pub fn others(dir: &Directory, segment: &Name, own: Option<&Switched>) -> Vec<Others> {
    let Ok(folder) = Directory::open(&dir.path().join(FOLDER)) else { return Vec::new() };
    let Ok((names, _)) = folder.names(MAX_FILES) else { return Vec::new() };
    let own = own.map(Switched::name);
    let mut found = Vec::new();
    for name in names.into_iter().filter(|name| Some(name.as_c_str()) != own) {
        let object = name.to_bytes().get(..32).and_then(Name::from_hex);
        let is_wanted = object.as_ref() == Some(segment);
        if !is_wanted && object.is_some_and(|object| is_there(dir, &object)) {
            continue;
        }
        let Ok(others) = read(&folder, &name) else { continue };
        if is_wanted {
            found.push(others);
        } else if others.is_dead {
            folder.remove(&name).ok();
        }
    }
    // All viewers keep the switch in the same file, so two that read at once do not remove both.
    found.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    let mut kept = BTreeSet::new();
    for dead in found.iter_mut().filter(|other| other.is_dead) {
        dead.retain(|id, on| kept.insert((id, on)));
    }
    found
}

/// Removes the files of dead viewers about segments whose process is gone.
pub(crate) fn sweep(dir: &Directory) {
    let nobody = Name::from_id(0);
    drop(others(dir, &nobody, None));
    if let Ok(folder) = Directory::open(&dir.path().join(FOLDER)) {
        held::remove_folder(&folder);
    }
}

fn is_there(dir: &Directory, segment: &Name) -> bool {
    beacon::file_of(segment).and_then(|name| dir.open_file(&name)).is_ok()
}

fn read(folder: &Directory, name: &CStr) -> io::Result<Others> {
    let file = folder.open_to_lock(name)?;
    // A shared lock, so that two viewers that ask at once do not take each other for the owner.
    // Closing the descriptor releases the lock.
    let is_dead = lock(&file, libc::LOCK_SH)? == Lock::Taken;
    let mut bytes = Vec::new();
    (&file).take(MAX_BYTES).read_to_end(&mut bytes)?;
    let switched = |(id, byte): (usize, &u8)| match *byte {
        ON => Some((id as u32, true)),
        OFF => Some((id as u32, false)),
        _ => None,
    };
    let points = bytes.iter().enumerate().filter_map(switched).collect();
    Ok(Others {
        folder: Directory::open(folder.path())?,
        name: name.to_owned(),
        file,
        is_dead,
        points,
    })
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::discovery::directory::TemporaryDirectory;

    /// Leaves the switches of a dead viewer: its file exists, and is not locked.
    fn leave(dir: &Directory, segment: &Name, bytes: &[u8]) {
        let folder = Directory::create(&dir.path().join(FOLDER)).unwrap();
        let name = format!("{}.{}", segment.hex(), Name::random().unwrap().hex());
        let file = folder.create_file(&CString::new(name).unwrap()).unwrap();
        file.write_all_at(bytes, 0).unwrap();
    }

    fn files(dir: &Directory) -> usize {
        std::fs::read_dir(dir.path().join(FOLDER)).map_or(0, Iterator::count)
    }

    fn points(others: &[Others]) -> Vec<(bool, Vec<(u32, bool)>)> {
        let points = |other: &Others| other.points.iter().map(|(id, on)| (*id, *on)).collect();
        others.iter().map(|other| (other.is_dead, points(other))).collect()
    }

    #[test]
    fn other_viewers_see_what_one_has_switched_until_it_ends() {
        let place = TemporaryDirectory::new("switched");
        let (dir, segment) = (&place.0, Name::from_id(7));
        let own = Switched::start(dir, &segment).unwrap();
        own.note(9, Some(true)).unwrap();
        own.note(3, Some(false)).unwrap();
        own.note(5, Some(false)).unwrap();
        own.note(5, None).unwrap();
        let seen = others(dir, &segment, None);
        assert_eq!(points(&seen), [(false, vec![(3, false), (9, true)])]);
        assert_eq!(points(&others(dir, &segment, Some(&own))), []);
        assert_eq!(points(&others(dir, &Name::from_id(8), None)), [], "of another process");
        drop((own, seen));
        assert_eq!(points(&others(dir, &segment, None)), []);
        assert!(!dir.path().join(FOLDER).exists());
    }

    #[test]
    fn viewers_that_are_killed_again_and_again_leave_one_file() {
        let place = TemporaryDirectory::new("switched");
        let (dir, segment) = (&place.0, Name::from_id(7));
        drop(dir.create_file(&beacon::file_of(&segment).unwrap()).unwrap());
        let own = Switched::start(dir, &segment).unwrap();
        own.note(1, Some(false)).unwrap();
        for _ in 0..5 {
            leave(dir, &segment, b"\0-\0+");
            let seen = others(dir, &segment, Some(&own));
            let left = seen.iter().flat_map(|other| &other.points);
            assert_eq!(left.collect::<Vec<_>>(), [(&1, &false), (&3, &true)]);
            assert_eq!(files(dir), 2, "that of the living viewer, and one more");
        }
        assert_eq!(points(&others(dir, &segment, None)).len(), 2, "a living viewer keeps its own");
    }

    #[test]
    fn a_dead_viewers_switches_are_known_until_they_are_put_back() {
        let place = TemporaryDirectory::new("switched");
        let (dir, segment) = (&place.0, Name::from_id(7));
        drop(dir.create_file(&beacon::file_of(&segment).unwrap()).unwrap());
        leave(dir, &segment, b"\0-\0+");
        // Reading the switches of another process changes nothing, and two viewers may read at the
        // same time.
        assert_eq!(points(&others(dir, &Name::from_id(8), None)), []);
        let mut seen = others(dir, &segment, None);
        let left = [(true, vec![(1, false), (3, true)])];
        assert_eq!(
            (points(&seen), points(&others(dir, &segment, None))),
            (left.to_vec(), left.to_vec())
        );
        seen[0].retain(|id, _| id != 1);
        assert_eq!(points(&others(dir, &segment, None)), [(true, vec![(3, true)])]);
        sweep(dir);
        assert_eq!(files(dir), 1, "its process is there");
        seen[0].retain(|_, _| false);
        drop(seen);
        assert!(!dir.path().join(FOLDER).exists());

        leave(dir, &segment, b"-");
        dir.remove(&beacon::file_of(&segment).unwrap()).unwrap();
        sweep(dir);
        assert!(!dir.path().join(FOLDER).exists(), "its process is gone");
    }
}
