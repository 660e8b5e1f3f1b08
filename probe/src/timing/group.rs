//! Groups of threads and of processes that begin a phase together.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use std::time::Duration;

use pfp_shm_layout::directory::Directory;
use pfp_shm_layout::group::{Arrived, Place, PrivateGroup, SharedGroup};
use pfp_shm_layout::liveness::Identity;

use super::named;
use crate::clock::counter::stamp;
use crate::errno;
use crate::point::Point;

/// How long members are waited for that were stated and never came, unless said
/// otherwise.
const PATIENCE: Duration = Duration::from_secs(60);

/// How a wait ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synced {
    /// When the last one came, by the tick counter; the same for all members. None where
    /// nobody was waited for.
    pub all_came: Option<u64>,
    /// Ticks from the call to its return.
    pub waited: u64,
    /// Members that this wait found dead: threads that have ended and processes that
    /// were killed. They are waited for no more.
    pub dead: u32,
    /// Members that were stated, never came, and are waited for no more.
    pub absent: u32,
    /// The caller is no member (it left; or this is a forked child; or there is no place
    /// left in the group), so it did not wait.
    pub stranger: bool,
}

impl Synced {
    fn of(arrived: Option<Arrived>, began: u64) -> Self {
        let waited = stamp().wrapping_sub(began);
        match arrived.filter(|arrived| arrived.is_member) {
            Some(Arrived { last, dead, absent, .. }) => {
                Self { all_came: Some(last), waited, dead, absent, stranger: false }
            }
            None => Self { waited, stranger: true, ..Self::default() },
        }
    }

    /// One wait after the other.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            all_came: next.all_came.max(self.all_came),
            waited: self.waited.wrapping_add(next.waited),
            dead: self.dead + next.dead,
            absent: self.absent + next.absent,
            stranger: self.stranger || next.stranger,
        }
    }
}

/// A lock that a panic of the program's does not spoil, and that a forked child, which
/// may find it taken by a thread that it does not have, does not wait for for ever.
fn locked<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..100_000 {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(spoilt)) => return Some(spoilt.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The point of the waits for a group.
fn wait_point(name: &str) -> Option<&'static Point> {
    named::point(&format!("wait:{name}"))
}

/// The threads of this process that come to a phase together.
///
/// A thread becomes a member when it first comes (or by [`join`](Self::join)), and is one
/// until it [leaves](Self::leave) or ends. Clones are the same group.
#[derive(Clone, Debug)]
pub struct ThreadGroup {
    shared: Arc<Threads>,
}

#[derive(Debug)]
struct Threads {
    name: String,
    key: u64,
    group: PrivateGroup,
    /// Which thread has which place, by the thread's own number.
    members: Mutex<Vec<(u64, Place)>>,
    patience_ns: AtomicU64,
    wait: Option<&'static Point>,
}

static GROUPS: Mutex<Vec<Weak<Threads>>> = Mutex::new(Vec::new());

/// The calling thread's number, which no other thread of the process has or had.
fn own_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

impl ThreadGroup {
    /// The group of this name, made if there is none, of so many members (4,096 at
    /// most): a phase begins when as many have come. 0 members: those that have joined,
    /// whoever they are, up to 256.
    ///
    /// A group that is there already stays as it is. One that nobody refers to is no
    /// more.
    #[must_use]
    pub fn named(name: &str, members: u32) -> Self {
        let make = || {
            static NEXT: AtomicU64 = AtomicU64::new(1);
            Arc::new(Threads {
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

    /// Waits no longer than this for members that were stated and never came; a minute
    /// otherwise. Those that came and ended are not waited for anyhow.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        self.shared.patience_ns.store(nanoseconds(patience), Relaxed);
        self
    }

    /// Makes the calling thread a member before it comes to a phase; false if there is
    /// no place left.
    pub fn join(&self) -> bool {
        self.place().is_some()
    }

    /// The calling thread is a member no more: the others do not wait for it.
    pub fn leave(&self) {
        let Some(mut members) = locked(&self.shared.members) else { return };
        let own = own_number();
        if let Some(at) = members.iter().position(|&(thread, _)| thread == own) {
            let (_, place) = members.swap_remove(at);
            drop(members);
            self.shared.group.leave(place);
        }
    }

    pub(super) fn key(&self) -> u64 {
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
    pub(super) fn wait(&self) -> (u32, Synced) {
        let began = stamp();
        let guard = self.shared.wait.map(|point| point.measure());
        let patience = Duration::from_nanos(self.shared.patience_ns.load(Relaxed));
        let arrived = errno::kept(|| {
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

/// The processes that come to a phase together: the ranks of a parallel job, say.
///
/// This process is a member from [`join`](Self::join) until this value is dropped or the
/// process ends, in whatever way; a process that is killed holds nobody up for longer
/// than a tenth of a second or so. The group's memory is an object beside the segments,
/// for this user alone; the last one to leave removes it, and what killed processes left
/// is removed as their segments are.
#[derive(Debug)]
pub struct ProcessGroup {
    group: SharedGroup,
    wait: Option<&'static Point>,
    patience: Duration,
    /// For threads that come together: of which round of which of their groups they
    /// have come, and what round that is here.
    round: Mutex<Option<((u64, u32), u32)>>,
}

impl ProcessGroup {
    /// Joins the group of this name of this user, which is made if there is none, of so
    /// many members (4,096 at most). 0 members: those that have joined, up to 256.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if the group is there and of another number of members, or that is
    /// too large; `QuotaExceeded` if all its places are taken; `StorageFull`; else what
    /// the system answered.
    pub fn join(name: &str, members: u32) -> io::Result<Self> {
        let group = Directory::for_this_process()
            .and_then(|directory| SharedGroup::join(&directory, name, members))?;
        Ok(Self { group, wait: wait_point(name), patience: PATIENCE, round: Mutex::new(None) })
    }

    /// Waits no longer than this for members that were stated and never came; a minute
    /// otherwise.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Comes to a phase and waits for the others. Of threads that have come together,
    /// in a round of theirs, the first comes for all.
    pub(super) fn wait(&self, threads: Option<(u64, u32)>) -> Synced {
        let began = stamp();
        let guard = self.wait.map(|point| point.measure());
        let arrived = errno::kept(|| {
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
