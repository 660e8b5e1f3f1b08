//! Processes of this machine that this user cannot see directly: those of other users, and in
//! containers.
//!
//! A room is a user within a file system. Processes of other rooms are found through `/proc`, which
//! requires the rights of root or of a user namespace's owner. For each room, an agent is started.
//! The agent [`enter`]s the room and shows the processes that the room's user sees. So data of
//! another user is never read, followed or changed with more rights than that user has.

mod enter;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::Result;

pub use self::enter::enter;
use pfp_read::source::namespaces::effective_user;
use pfp_read::source::{BadPlace, Candidate, Discovery, Refusal, Refused, Source};

use super::residents::{Resident, RoomEntrance, RoomKey, VARIABLES, residents, user_of};
use super::via::{AgentCommand, RemoteFinder};

/// Time between two searches for processes of other rooms.
const LOOK: Duration = Duration::from_secs(2);
/// Maximum number of rooms that are entered, since any user can create any number.
const MAX_ROOMS: usize = 256;

/// The rooms of this machine that this user may enter, except its own. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Rooms(Rc<RefCell<KnownRooms>>);

#[derive(Default)]
struct KnownRooms {
    keep: bool,
    rooms: Vec<Room>,
    /// Number of processes in rooms beyond [`MAX_ROOMS`].
    left_out: usize,
    looked: Option<Instant>,
}

struct Room {
    key: RoomKey,
    via: RemoteFinder,
    /// A process in the room.
    pid: u32,
    found: Discovery,
}

impl Rooms {
    /// With `keep`, toggled points stay toggled if the connection to an agent is lost.
    pub(super) fn new(keep: bool) -> Self {
        Self(Rc::new(RefCell::new(KnownRooms { keep, ..KnownRooms::default() })))
    }

    /// Adds the processes of other rooms to this room's. If `PFP_DIR` is set, only that folder is
    /// searched, and nothing is added.
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
        // Rooms may share a folder, and then find the same processes: `add` skips known ones.
        known.rooms.iter().for_each(|room| discovery.add(&room.found));
        if known.left_out > 0 {
            let why = format!(
                "expected processes of at most {MAX_ROOMS} users and containers, found {} more: \
                 `pfp-top list --via` into each shows them",
                known.left_out
            );
            discovery.refuse(None, Refusal::Permission(why));
        }
        discovery.unseen = count_unseen(discovery);
    }

    /// Rooms whose agents cannot be reached now.
    pub(super) fn bad_places(&self) -> Vec<BadPlace> {
        self.0.borrow().rooms.iter().filter_map(|room| room.via.bad_place()).collect()
    }

    /// Attaches to a process of another room. `None` if no other room has the process.
    pub(super) fn attach(&self, candidate: &Candidate) -> Option<Result<Box<dyn Source>>> {
        let mut known = self.0.borrow_mut();
        let room = known.rooms.iter_mut().find(|room| room.found.has(candidate))?;
        Some(room.via.watch_later(candidate))
    }
}

impl KnownRooms {
    /// Searches for rooms, and for processes in them. Waits for the rooms' answers only in the
    /// first search.
    fn look(&mut self, is_first: bool) {
        let mut there: HashMap<usize, Vec<Resident>> = HashMap::new();
        self.left_out = 0;
        for (key, resident) in residents() {
            let place = match self.rooms.iter().position(|room| room.key == key) {
                Some(place) => place,
                None if self.rooms.len() == MAX_ROOMS => {
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
        // Drop the agents of rooms that have no processes any more, unless a process is watched.
        let mut place = 0;
        self.rooms.retain(|room| {
            place += 1;
            there.contains_key(&(place - 1)) || room.via.is_in_use()
        });
    }
}

impl Room {
    fn open(key: RoomKey, pid: u32, keep: bool, may_wait: bool) -> Self {
        let variables = VARIABLES.into_iter().zip(key.variables.clone()).collect();
        let way = AgentCommand::into_room(
            key.name(pid),
            RoomEntrance { key: key.clone(), pid },
            variables,
        );
        let via = RemoteFinder::of_room(way, keep, may_wait);
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

/// Counts segments of other users in this `/dev/shm` that belong to running processes that were not
/// found. Crashed processes leave segments behind, so not every segment has a running owner. But
/// each running owner holds an exclusive lock on its beacon, and every user can read the holders in
/// `/proc/locks`: a user has at most as many running owners as lock holders.
fn count_unseen(found: &Discovery) -> usize {
    let found: HashSet<&[u8]> =
        found.candidates.iter().map(|it| it.segment_id.as_bytes()).collect();
    let own = effective_user();
    let mut unseen: HashMap<u32, usize> = HashMap::new();
    for object in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = object.file_name();
        let Some(digits) = name.as_bytes().strip_prefix(b"pfp-") else { continue };
        if digits.len() == 32
            && !found.contains(digits)
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

/// The processes that hold an exclusive lock of a file, by the kernel's list of locks.
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
    fn holders_of_a_lock_are_parsed() {
        let locks = "1: FLOCK  ADVISORY  READ 20 fe:00:60 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 21 fe:00:61 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 22 fe:00:61 0 EOF\n\
                     3: OFDLCK ADVISORY  WRITE -1 fe:00:62 0 EOF\n\
                     4: POSIX  ADVISORY  WRITE 23 fe:00:63 0 EOF\n";
        assert_eq!(holders_of(locks), HashSet::from([21]));
        assert_eq!(holders_of("nonsense\n\n"), HashSet::new());
    }
}
