//! Groups of threads of one process that begin phases together.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use pfp::Point;
use pfp::reading::{keeping_errno, stamp};
use pfp_shm_layout::liveness::Identity;

use super::barrier::{Head, Member, Place, Words};
use super::{MAX_MEMBERS, PATIENCE, ROOM, identity, introduce, locked, nanoseconds, wait_point};
use crate::Synced;

/// Clones are the same group; see [`crate::ThreadGroup`].
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    key: u64,
    head: Head,
    members: Box<[Member]>,
    /// Slot of each thread, by the thread's number.
    places: Mutex<Vec<(u64, Place)>>,
    patience_ns: AtomicU64,
    wait: Option<&'static Point>,
}

static GROUPS: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Number of the calling thread, which no other thread of the process ever gets.
fn own_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

impl Shared {
    fn new(name: &str, stated: u32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let stated = stated.min(MAX_MEMBERS);
        let capacity = if stated == 0 { ROOM } else { stated };
        let group = Self {
            name: name.to_owned(),
            key: NEXT.fetch_add(1, Relaxed),
            head: Head::default(),
            members: (0..capacity).map(|_| Member::default()).collect(),
            places: Mutex::new(Vec::new()),
            patience_ns: AtomicU64::new(nanoseconds(PATIENCE)),
            wait: wait_point(name),
        };
        group.words().prepare(stated);
        group
    }

    fn words(&self) -> Words<'_> {
        Words { head: &self.head, members: &self.members, private: true }
    }

    /// Slot of the calling thread, which enters if it is not a member yet. `None` if living threads
    /// hold all slots.
    fn place(&self) -> Option<Place> {
        let mut places = locked(&self.places)?;
        let own = own_number();
        if let Some(&(_, place)) = places.iter().find(|&&(thread, _)| thread == own) {
            return Some(place);
        }
        let this = Identity::of_this_thread();
        let index = self.members.iter().position(|member| {
            // Acquire pairs with `group-enter`.
            member.active.load(Acquire) == 0 || !identity(member).is_thread_here()
        })?;
        let place = self.words().enter(index as u32, |member| introduce(member, &this));
        // The previous holder of the slot has left or is dead.
        places.retain(|&(_, other)| !other.is_same_place(&place));
        places.push((own, place));
        Some(place)
    }

    /// Waits for the other threads. Also returns the round.
    fn wait(&self) -> Option<(u32, super::Arrived)> {
        let place = self.place()?;
        let words = self.words();
        let round = words.arrive(place, stamp())?;
        let patience = Duration::from_nanos(self.patience_ns.load(Relaxed));
        let is_alive = |index: u32| identity(&words.members[index as usize]).is_thread_here();
        Some((round, words.wait(place, round, patience, is_alive)))
    }
}

impl Threads {
    pub(crate) fn named(name: &str, members: u32) -> Self {
        let make = || Arc::new(Shared::new(name, members));
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
        self.shared.place().is_some()
    }

    pub(crate) fn leave(&self) {
        let Some(mut places) = locked(&self.shared.places) else { return };
        let own = own_number();
        if let Some(at) = places.iter().position(|&(thread, _)| thread == own) {
            let (_, place) = places.swap_remove(at);
            drop(places);
            self.shared.words().leave(place);
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.shared.key
    }

    /// Waits for the other threads. Also returns the round.
    pub(crate) fn wait(&self) -> (u32, Synced) {
        let began = stamp();
        let guard = self.shared.wait.map(|point| point.measure());
        let waited = keeping_errno(|| self.shared.wait());
        drop(guard);
        let round = waited.map_or(0, |(round, _)| round);
        (round, Synced::of(waited.map(|(_, arrived)| arrived), began))
    }
}
