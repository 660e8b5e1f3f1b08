//! Processes of this machine that are out of this user's sight: those of other users, and
//! those in containers.
//!
//! A room is a user within a file system. The processes of other rooms are found through
//! `/proc`, as far as that may be asked: by root, and by the owner of a user namespace. For
//! each room an agent is started that [`enter`]s it, and shows what that user sees there. So
//! nothing of another user's is read, followed or changed with more rights than they have.

mod enter;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};

pub use self::enter::enter;
use super::namespaces::id_inside;
use super::via::{Via, Way};
use super::{BadPlace, Candidate, Discovery, Refusal, Refused, Source};

/// Time between two looks for processes of other rooms.
const LOOK: Duration = Duration::from_secs(2);
/// What the programs of a room were told about where to announce themselves.
const VARIABLES: [&str; 2] = ["PFP_DIR", "XDG_RUNTIME_DIR"];
/// Rooms that are entered at most. Anyone can make as many as they like.
const MOST: usize = 256;
/// Digits that a container is called by.
const SHORT: usize = 12;

/// The rooms that may be entered.
#[derive(Clone, Default)]
pub(super) struct Rooms(Rc<RefCell<Known>>);

#[derive(Default)]
struct Known {
    keep: bool,
    rooms: Vec<Room>,
    /// Processes in rooms beyond [`MOST`].
    left_out: usize,
    looked: Option<Instant>,
}

struct Room {
    key: Key,
    via: Via,
    /// A process that is there.
    pid: u32,
    found: Discovery,
}

/// What tells one room from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    user: u32,
    files: Files,
    /// Inodes of the user and the pid namespace.
    spaces: [u64; 2],
    variables: [Option<OsString>; 2],
}

/// A file system: the inode of the mount namespace, and the root in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Files {
    space: u64,
    root: (u64, u64),
}

impl Rooms {
    /// With `keep`, points that were toggled stay as they are when an agent is lost.
    pub(super) fn new(keep: bool) -> Self {
        Self(Rc::new(RefCell::new(Known { keep, ..Known::default() })))
    }

    /// Adds the processes of other rooms to those of this one. With `PFP_DIR`, it was said where
    /// to look, and nothing is added.
    pub(super) fn add_to(&self, discovery: &mut Discovery) {
        if std::env::var_os("PFP_DIR").is_some_and(|set| !set.is_empty()) {
            return;
        }
        let mut known = self.0.borrow_mut();
        if known.looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
            let is_first = known.looked.is_none();
            known.look(is_first);
            known.looked = Some(Instant::now());
        }
        let mut ids: HashSet<String> =
            discovery.candidates.iter().map(|known| known.segment_id.clone()).collect();
        for room in &known.rooms {
            for candidate in &room.found.candidates {
                // Rooms may share a folder.
                if ids.insert(candidate.segment_id.clone()) {
                    discovery.candidates.push(candidate.clone());
                }
            }
            discovery.refused.extend(room.found.refused.iter().cloned());
        }
        if known.left_out > 0 {
            let why = format!(
                "expected processes of at most {MOST} users and containers, found {} more: \
                 `pfp-top list --via` into each shows them",
                known.left_out
            );
            discovery.refused.push(Refused { pid: None, why: Refusal::Permission(why) });
        }
        discovery.unseen = count_unseen(&ids);
    }

    /// Rooms whose agents cannot be asked now.
    pub(super) fn bad_places(&self) -> Vec<BadPlace> {
        self.0.borrow().rooms.iter().filter_map(|room| room.via.bad_place()).collect()
    }

    /// Attaches to a process of another room; none if it is in none of them.
    pub(super) fn attach(&self, candidate: &Candidate) -> Option<Result<Box<dyn Source>>> {
        let mut known = self.0.borrow_mut();
        let is_it = |known: &Candidate| known.segment_id == candidate.segment_id;
        let room = known.rooms.iter_mut().find(|room| room.found.candidates.iter().any(is_it))?;
        Some(room.via.watch_later(candidate))
    }
}

impl Known {
    /// Looks for rooms, and into them. Those that are found later than the first time are not
    /// waited for.
    fn look(&mut self, is_first: bool) {
        let mut there: HashMap<usize, Vec<Resident>> = HashMap::new();
        self.left_out = 0;
        for (key, resident) in residents() {
            let place = match self.rooms.iter().position(|room| room.key == key) {
                Some(place) => place,
                None if self.rooms.len() == MOST => {
                    self.left_out += 1;
                    continue;
                }
                None => {
                    self.rooms.push(Room::open(key, resident.pid, self.keep, is_first));
                    self.rooms.len() - 1
                }
            };
            there.entry(place).or_default().push(resident);
        }
        for (place, room) in self.rooms.iter_mut().enumerate() {
            match there.get(&place) {
                Some(residents) => room.look(residents),
                None => room.found = Discovery::default(),
            }
        }
        // Who is still watched there keeps the agent.
        let mut place = 0;
        self.rooms.retain(|room| {
            place += 1;
            there.contains_key(&(place - 1)) || room.via.is_in_use()
        });
    }
}

impl Room {
    fn open(key: Key, pid: u32, keep: bool, may_wait: bool) -> Self {
        let variables = VARIABLES.into_iter().zip(key.variables.clone()).collect();
        let way = Way::into_room(key.name(pid), Entrance { key: key.clone(), pid }, variables);
        let via = Via::of_room(way, keep, may_wait);
        Self { via, key, pid, found: Discovery::default() }
    }

    fn look(&mut self, residents: &[Resident]) {
        let is_there = residents.iter().any(|resident| resident.pid == self.pid);
        if let (false, [first, ..]) = (is_there, residents) {
            self.pid = first.pid;
        }
        match self.via.look() {
            Ok(None) => {}
            Ok(Some(mut found)) => {
                for candidate in &mut found.candidates {
                    let here = residents.iter().find(|resident| resident.inside == candidate.pid);
                    candidate.pid_here = here
                        .filter(|resident| candidate.runs() && resident.pid != resident.inside)
                        .map(|resident| resident.pid);
                }
                self.found = found;
            }
            Err(error) => {
                let why = Refusal::Permission(format!("process {}: {error:#}", self.pid));
                self.found.refused = vec![Refused { pid: Some(self.pid), why }];
            }
        }
    }
}

/// How a room is entered: through a process that is there.
#[derive(Clone, Debug)]
pub(super) struct Entrance {
    key: Key,
    /// One that was there when the room was found.
    pid: u32,
}

impl Entrance {
    /// A process that is there now.
    ///
    /// # Errors
    ///
    /// If there is none any more.
    pub(super) fn resident(&self) -> Result<u32> {
        let is_there = |pid: u32| {
            let (user, files, status) = room_of(pid)?;
            let (key, _) = resident(pid, user, files, &status)?;
            Some(key == self.key)
        };
        if is_there(self.pid) == Some(true) {
            return Ok(self.pid);
        }
        let mut all = residents().into_iter();
        let found = all.find_map(|(key, resident)| (key == self.key).then_some(resident.pid));
        found.ok_or_else(|| {
            anyhow!("expected an instrumented process to enter by, found that they have ended")
        })
    }
}

/// An instrumented process of another room.
struct Resident {
    pid: u32,
    /// Its id in its own pid namespace.
    inside: u32,
}

/// The instrumented processes of other rooms that may be looked into.
fn residents() -> Vec<(Key, Resident)> {
    let own = own_room();
    let mut all = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some((user, files, status)) = room_of(pid)
            && (user, Some(files)) != own
            && !segments_of(pid).is_empty()
        {
            all.extend(resident(pid, user, files, &status));
        }
    }
    all
}

/// The user and the files of this process.
fn own_room() -> (u32, Option<Files>) {
    // SAFETY: geteuid has no preconditions and cannot fail.
    (unsafe { libc::geteuid() }, Files::of("self"))
}

/// The user, the files and the status of a process; none if it may not be looked into.
fn room_of(pid: u32) -> Option<(u32, Files, String)> {
    let files = Files::of(&pid.to_string())?;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    Some((user_of(&status)?, files, status))
}

fn resident(pid: u32, user: u32, files: Files, status: &str) -> Option<(Key, Resident)> {
    let process = format!("/proc/{pid}");
    let space = |kind: &str| Some(fs::metadata(format!("{process}/ns/{kind}")).ok()?.ino());
    let environment = fs::read(format!("{process}/environ")).unwrap_or_default();
    let variables = VARIABLES.map(|name| variable_of(&environment, name));
    let key = Key { user, files, spaces: [space("user")?, space("pid")?], variables };
    Some((key, Resident { pid, inside: id_inside(status).unwrap_or(pid) }))
}

/// Where a process is, and what it tells of itself.
#[derive(Debug)]
pub struct Whereabouts {
    /// What its room is called; none for this one.
    pub room: Option<String>,
    /// Its id in its own pid namespace.
    pub inside: u32,
    /// Ids of the segments that it has mapped: none if it is not instrumented.
    pub segments: Vec<String>,
    /// What it was told about where to announce itself.
    pub variables: Vec<(&'static str, Option<OsString>)>,
}

/// Where this process is.
///
/// # Errors
///
/// If there is none of this id, or this user may not look into it.
pub fn whereabouts(pid: u32) -> Result<Whereabouts, Refusal> {
    let refused = || {
        super::foreign(pid).unwrap_or_else(|| {
            Refusal::Permission(format!(
                "expected the right to look into process {pid}, found none: it has more rights \
                 than this one"
            ))
        })
    };
    let (user, files, status) = room_of(pid).ok_or_else(refused)?;
    let is_own = (user, Some(files)) == own_room();
    let (key, resident) = resident(pid, user, files, &status).ok_or_else(refused)?;
    Ok(Whereabouts {
        room: (!is_own).then(|| key.name(pid)),
        inside: resident.inside,
        segments: segments_of(pid),
        variables: VARIABLES.into_iter().zip(key.variables).collect(),
    })
}

impl Files {
    /// Of a process; none where that may not be asked.
    fn of(process: &str) -> Option<Self> {
        let space = fs::metadata(format!("/proc/{process}/ns/mnt")).ok()?.ino();
        let root = fs::metadata(format!("/proc/{process}/root")).ok()?;
        Some(Self { space, root: (root.dev(), root.ino()) })
    }
}

impl Key {
    /// What a room is called: by its user, its container, or both.
    fn name(&self, pid: u32) -> String {
        if Files::of("self") == Some(self.files) {
            return user_name(self.user);
        }
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        // A container's users are its own.
        let user = |of_container: bool| match self.user {
            0 => String::new(),
            user if of_container => format!("uid{user}."),
            user => format!("{}.", user_name(user)),
        };
        match container_of(&groups) {
            Some(container) => user(true) + &container,
            None => user(false) + &self.place(pid),
        }
    }

    /// What the place is called that is no container's: a root in the file system here, or a mount
    /// namespace.
    fn place(&self, pid: u32) -> String {
        let is_here = Files::of("self").is_some_and(|own| own.space == self.files.space);
        let root = fs::read_link(format!("/proc/{pid}/root")).ok().filter(|_| is_here);
        let name = root.as_deref().and_then(Path::file_name);
        let name = name.map(|name| name.to_string_lossy().into_owned());
        name.unwrap_or_else(|| format!("mnt{}", self.files.space))
    }
}

/// Ids of the segments that a process has mapped.
fn segments_of(pid: u32) -> Vec<String> {
    let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    let id = |line: &[u8]| {
        let name = line.rsplit(|byte| *byte == b'/').next()?;
        let digits = name.strip_prefix(b"pfp-")?.get(..32)?;
        let is_id = digits.iter().all(u8::is_ascii_hexdigit);
        is_id.then(|| String::from_utf8_lossy(digits).into_owned())
    };
    let mut ids: Vec<String> = maps.split(|byte| *byte == b'\n').filter_map(id).collect();
    ids.dedup();
    ids
}

/// The effective user, by a process's status.
fn user_of(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().nth(1)?.parse().ok()
}

fn variable_of(environment: &[u8], name: &str) -> Option<OsString> {
    let mut all = environment.split(|byte| *byte == 0);
    let value = all.find_map(|it| it.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
    Some(OsString::from_vec(value.to_vec()))
}

/// The short id of a container, by the control groups of a process in it: what Docker, podman
/// and Kubernetes put there has 64 hex digits.
fn container_of(groups: &str) -> Option<String> {
    let mut words = groups.split(|letter: char| !letter.is_ascii_alphanumeric());
    let is_id = |word: &&str| word.len() == 64 && word.bytes().all(|it| it.is_ascii_hexdigit());
    Some(words.rfind(is_id)?[..SHORT].to_owned())
}

fn user_name(user: u32) -> String {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let named = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(user)).then(|| name.to_owned())
    });
    named.unwrap_or_else(|| format!("uid{user}"))
}

/// Segments of other users in this `/dev/shm` that none of the processes found has, and that
/// processes have: of those that crashed, segments may be left. Who has a segment holds the lock
/// of a file, and the kernel tells everyone who does.
fn count_unseen(found: &HashSet<String>) -> usize {
    // SAFETY: geteuid has no preconditions and cannot fail.
    let own = unsafe { libc::geteuid() };
    let mut unseen: HashMap<u32, usize> = HashMap::new();
    for object in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = object.file_name();
        let Some(digits) = name.as_bytes().strip_prefix(b"pfp-") else { continue };
        if digits.len() == 32
            && !found.contains(&*String::from_utf8_lossy(digits))
            && let Ok(about) = object.metadata()
            && about.uid() != own
        {
            *unseen.entry(about.uid()).or_default() += 1;
        }
    }
    if unseen.is_empty() {
        return 0;
    }
    let Ok(locks) = fs::read_to_string("/proc/locks") else { return unseen.values().sum() };
    let mut holders: HashMap<u32, usize> = HashMap::new();
    for pid in holders_of(&locks) {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        if let Some(user) = user_of(&status) {
            *holders.entry(user).or_default() += 1;
        }
    }
    let living = |(user, count): (&u32, &usize)| holders.get(user).map_or(0, |it| *count.min(it));
    unseen.iter().map(living).sum()
}

/// The processes that hold a file for themselves alone, by the kernel's list of locks.
fn holders_of(locks: &str) -> HashSet<u32> {
    let holder = |line: &str| {
        let mut words = line.split_ascii_whitespace().skip(1);
        let is_lock =
            [words.next()?, words.next()?, words.next()?] == ["FLOCK", "ADVISORY", "WRITE"];
        words.next()?.parse().ok().filter(|_| is_lock)
    };
    locks.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_called_by_its_control_group() {
        let id = "3f2a91c0b7de".to_owned() + &"0".repeat(52);
        for groups in [
            format!("0::/system.slice/docker-{id}.scope\n"),
            format!("12:memory:/docker/{id}\n1:name=systemd:/docker/{id}\n"),
            format!("0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{id}.scope\n"),
            format!("0::/user.slice/libpod-{id}.scope/container\n"),
        ] {
            assert_eq!(container_of(&groups).as_deref(), Some("3f2a91c0b7de"), "{groups}");
        }
        assert_eq!(container_of("0::/user.slice/session-1.scope\n"), None);
    }

    #[test]
    fn who_holds_a_lock_is_read() {
        let locks = "1: FLOCK  ADVISORY  READ 20 fe:00:60 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 21 fe:00:61 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 22 fe:00:61 0 EOF\n\
                     3: OFDLCK ADVISORY  WRITE -1 fe:00:62 0 EOF\n\
                     4: POSIX  ADVISORY  WRITE 23 fe:00:63 0 EOF\n";
        assert_eq!(holders_of(locks), HashSet::from([21]));
        assert_eq!(holders_of("nonsense\n\n"), HashSet::new());
    }

    #[test]
    fn what_proc_says_is_read() {
        assert_eq!(user_of("Name:\tx\nUid:\t0\t33\t0\t33\nGid:\t1\t1\t1\t1\n"), Some(33));
        assert_eq!(user_of("Name:\tx\n"), None);
        let environment = b"A=1\0PFP_DIR=/run/x=y\0XPFP_DIR=2\0";
        assert_eq!(variable_of(environment, "PFP_DIR"), Some("/run/x=y".into()));
        assert_eq!(variable_of(environment, "DIR"), None);
        assert_eq!(user_name(0), "root");
        assert_eq!(user_name(u32::MAX - 7), format!("uid{}", u32::MAX - 7));
        assert!(segments_of(std::process::id()).is_empty());
    }
}
