//! What groups of threads and of processes wait by.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::{Duration, Instant};

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::group::{Arrived, Place, PrivateGroup, SharedGroup};
use pfp_shm_layout::liveness::Identity;

use pfp::Point;
use pfp::reading::{keeping_errno, stamp};

use crate::{Synced, named};

/// How long members are waited for that were stated and never came, unless said
/// otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

impl Synced {
    /// How a wait that began then has ended.
    fn of(arrived: Option<Arrived>, began: u64) -> Self {
        let waited = stamp().wrapping_sub(began);
        match arrived.filter(|arrived| arrived.is_member) {
            Some(Arrived { last, dead, absent, .. }) => {
                Self { all_came: Some(last), waited, dead, absent, not_member: false }
            }
            None => Self { waited, not_member: true, ..Self::default() },
        }
    }
}

/// How long a thread waits for one that joins or leaves a group at the same time.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// A lock that a panic of the program's does not spoil, and that a forked child, which
/// may find it taken by a thread that it does not have, does not wait for for ever.
fn locked<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let mut since = None;
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(spoilt)) => return Some(spoilt.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
        if since.get_or_insert_with(Instant::now).elapsed() > LOCK_PATIENCE {
            return None;
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The point of the waits for a group.
fn wait_point(name: &str) -> Option<&'static Point> {
    named::point(&format!("wait:{name}"))
}

/// The threads of this process that come to a phase together; see [`crate::ThreadGroup`].
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    key: u64,
    group: PrivateGroup,
    /// Which thread has which place, by the thread's own number.
    members: Mutex<Vec<(u64, Place)>>,
    patience_ns: AtomicU64,
    wait: Option<&'static Point>,
}

static GROUPS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// The calling thread's number, which no other thread of the process has or had.
fn own_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

impl Threads {
    pub(crate) fn named(name: &str, members: u32) -> Self {
        let make = || {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            Arc::new(Shared {
                name: name.to_owned(),
                key: NEXT.fetch_add(1, Relaxed),
                group: PrivateGroup::new(members),
                members: Mutex::new(Vec::new()),
                patience_ns: AtomicU64::new(nanoseconds(PATIENCE)),
                wait: wait_point(name),
            })
        };
        let Some(mut groups) = locked(&GROUPS) else { return Self { shared: make() } };
        groups.retain(|group| group.strong_count() > 0);
        let known = groups.iter().filter_map(Weak::upgrade).find(|group| group.name == name);
        let shared = known.unwrap_or_else(|| {
            let made = make();
            groups.push(Arc::downgrade(&made));
            made
        });
        Self { shared }
    }

    pub(crate) fn set_patience(&self, patience: Duration) {
        self.shared.patience_ns.store(nanoseconds(patience), Relaxed);
    }

    pub(crate) fn join(&self) -> bool {
        self.place().is_some()
    }

    pub(crate) fn leave(&self) {
        let Some(mut members) = locked(&self.shared.members) else { return };
        let own = own_number();
        if let Some(at) = members.iter().position(|&(thread, _)| thread == own) {
            let (_, place) = members.swap_remove(at);
            drop(members);
            self.shared.group.leave(place);
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.shared.key
    }

    fn place(&self) -> Option<Place> {
        let mut members = locked(&self.shared.members)?;
        let own = own_number();
        if let Some(&(_, place)) = members.iter().find(|&&(thread, _)| thread == own) {
            return Some(place);
        }
        let this = Identity::of_this_thread();
        let place = self.shared.group.enter(&this, Identity::is_thread_here)?;
        // A place has one holder: what it was before is over.
        members.retain(|&(_, other)| !other.is_same_place(&place));
        members.push((own, place));
        Some(place)
    }

    /// Comes to a phase and waits for the others; also the number of the round.
    pub(crate) fn wait(&self) -> (u32, Synced) {
        let began = stamp();
        let guard = self.shared.wait.map(|point| point.measure());
        let patience = Duration::from_nanos(self.shared.patience_ns.load(Relaxed));
        let arrived = keeping_errno(|| {
            let place = self.place()?;
            let round = self.shared.group.arrive(place, stamp())?;
            let group = &self.shared.group;
            Some((round, group.wait(place, round, patience, Identity::is_thread_here)))
        });
        drop(guard);
        let round = arrived.map_or(0, |(round, _)| round);
        (round, Synced::of(arrived.map(|(_, arrived)| arrived), began))
    }
}

/// The processes that come to a phase together; see [`crate::ProcessGroup`].
#[derive(Debug)]
pub(crate) struct Processes {
    group: SharedGroup,
    wait: Option<&'static Point>,
    patience: Duration,
    /// For threads that come together: of which round of which of their groups they
    /// have come, and what round that is here.
    round: Mutex<Option<((u64, u32), u32)>>,
}

impl Processes {
    pub(crate) fn join(name: &str, members: u32) -> io::Result<Self> {
        let group = Directory::for_this_process()
            .and_then(|directory| SharedGroup::join(&directory, name, members))?;
        Ok(Self { group, wait: wait_point(name), patience: PATIENCE, round: Mutex::new(None) })
    }

    pub(crate) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Comes to a phase and waits for the others. Of threads that have come together,
    /// in a round of theirs, the first comes for all.
    pub(crate) fn wait(&self, threads: Option<(u64, u32)>) -> Synced {
        let began = stamp();
        let guard = self.wait.map(|point| point.measure());
        let arrived = keeping_errno(|| {
            let round = self.arrive(threads)?;
            Some(self.group.wait(round, self.patience))
        });
        drop(guard);
        Synced::of(arrived, began)
    }

    fn arrive(&self, threads: Option<(u64, u32)>) -> Option<u32> {
        let Some(threads) = threads else { return self.group.arrive(stamp()) };
        let mut last = locked(&self.round)?;
        match *last {
            Some((known, round)) if known == threads => Some(round),
            _ => {
                let round = self.group.arrive(stamp())?;
                *last = Some((threads, round));
                Some(round)
            }
        }
    }
}
