//! Groups of threads of one process that begin phases together.

use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::time::Duration;

use pfp::Point;
use pfp::reading::{keeping_errno, stamp};
use pfp_shm_layout::heap;
use pfp_shm_layout::liveness::Identity;

use super::barrier::{Head, Member, Place, Words};
use super::{
    JOIN_TIMEOUT, MAX_MEMBERS, ROOM, identity, introduce, locked, nanoseconds, wait_point,
};
use crate::Synced;

/// Clones are the same group; see [`crate::ThreadGroup`].
#[derive(Clone, Debug)]
pub(crate) struct Threads {
    /// `None` if memory ran out.
    shared: Option<Handle>,
}

/// A counted reference to a group. `Arc` would end the program if memory runs out.
#[derive(Debug)]
struct Handle(NonNull<Shared>);

#[derive(Debug)]
struct Shared {
    handles: AtomicUsize,
    name: String,
    key: u64,
    head: Head,
    members: Box<[Member]>,
    /// Slot of each thread, by the thread's number.
    places: Mutex<Vec<(u64, Place)>>,
    join_timeout_ns: AtomicU64,
    wait: Option<&'static Point>,
}

/// All groups. The handles in this list are not counted: a group's last counted handle removes it.
static GROUPS: Mutex<Vec<ManuallyDrop<Handle>>> = Mutex::new(Vec::new());

// SAFETY: a handle is a pointer to a value that is `Sync`, and an atomic counts the handles.
unsafe impl Send for Handle {}
// SAFETY: a handle is a pointer to a value that is `Sync`, and an atomic counts the handles.
unsafe impl Sync for Handle {}

impl Handle {
    /// The first handle of a new group. `None` if memory runs out.
    fn new(name: &str, stated: u32) -> Option<Self> {
        let made = heap::boxed(Shared::new(name, stated)?).ok()?;
        Some(Self(NonNull::from(Box::leak(made))))
    }
}

impl Deref for Handle {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: the group is not freed before its last handle is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.handles.fetch_add(1, Relaxed);
        Self(self.0)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let one_less = |handles| (handles > 1).then(|| handles - 1);
        // Release pairs with the acquire below.
        if self.handles.fetch_update(Release, Relaxed, one_less).is_ok() {
            return;
        }
        // While this thread holds the lock, no other thread finds the group in the list. If the
        // lock cannot be acquired, as can happen in a forked child, the group stays.
        let Some(mut groups) = locked(&GROUPS) else { return };
        // Acquire, so that the freeing thread sees all changes through other handles.
        if self.handles.fetch_sub(1, AcqRel) == 1 {
            groups.retain(|group| group.0 != self.0);
            drop(groups);
            // SAFETY: the pointer is from a box. This was the last handle, and the list no longer
            // has the group.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// Number of the calling thread, which no other thread of the process ever gets.
fn own_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Relaxed);
    }
    OWN.try_with(|own| *own).unwrap_or(0)
}

impl Shared {
    /// `None` if memory runs out.
    fn new(name: &str, stated: u32) -> Option<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let stated = stated.min(MAX_MEMBERS);
        let capacity = if stated == 0 { ROOM } else { stated };
        let group = Self {
            handles: AtomicUsize::new(1),
            name: heap::text(name).ok()?,
            key: NEXT.fetch_add(1, Relaxed),
            head: Head::default(),
            members: heap::collect((0..capacity).map(|_| Member::default())).ok()?.into(),
            places: Mutex::new(Vec::new()),
            join_timeout_ns: AtomicU64::new(nanoseconds(JOIN_TIMEOUT)),
            wait: wait_point(name),
        };
        group.words().prepare(stated);
        Some(group)
    }

    fn words(&self) -> Words<'_> {
        Words { head: &self.head, members: &self.members, private: true }
    }

    /// Slot of the calling thread, which enters if it is not a member yet. `None` if living threads
    /// hold all slots, or memory runs out.
    fn place(&self) -> Option<Place> {
        let mut places = locked(&self.places)?;
        let own = own_number();
        if let Some(&(_, place)) = places.iter().find(|&&(thread, _)| thread == own) {
            return Some(place);
        }
        places.try_reserve(1).ok()?;
        let this = Identity::of_this_thread();
        let index = self.members.iter().position(|member| {
            // Acquire pairs with `group-enter`.
            member.active.load(Acquire) == 0 || !identity(member).is_thread_here()
        })?;
        let place = self.words().enter(index as u32, |member| introduce(member, &this));
        // The previous holder of the slot has left or is dead.
        places.retain(|&(_, other)| !other.is_same_place(&place));
        #[allow(clippy::disallowed_methods, reason = "there is room for it")]
        places.push((own, place));
        Some(place)
    }

    /// Waits for the other threads. Also returns the round.
    fn wait(&self) -> Option<(u32, super::Arrived)> {
        let place = self.place()?;
        let words = self.words();
        let round = words.arrive(place, stamp())?;
        let join_timeout = Duration::from_nanos(self.join_timeout_ns.load(Relaxed));
        let is_alive = |index: u32| identity(&words.members[index as usize]).is_thread_here();
        Some((round, words.wait(place, round, join_timeout, is_alive)))
    }
}

impl Threads {
    pub(crate) fn named(name: &str, members: u32) -> Self {
        let Some(mut groups) = locked(&GROUPS) else {
            return Self { shared: Handle::new(name, members) };
        };
        let known =
            groups.iter().find(|group| group.name == name).map(|group| Handle::clone(group));
        let shared = known.or_else(|| {
            groups.try_reserve(1).ok()?;
            let made = Handle::new(name, members)?;
            #[allow(clippy::disallowed_methods, reason = "there is room for it")]
            groups.push(ManuallyDrop::new(Handle(made.0)));
            Some(made)
        });
        Self { shared }
    }

    pub(crate) fn set_join_timeout(&self, join_timeout: Duration) {
        if let Some(shared) = &self.shared {
            shared.join_timeout_ns.store(nanoseconds(join_timeout), Relaxed);
        }
    }

    pub(crate) fn join(&self) -> bool {
        self.shared.as_ref().and_then(|shared| shared.place()).is_some()
    }

    pub(crate) fn leave(&self) {
        let Some(shared) = &self.shared else { return };
        let Some(mut places) = locked(&shared.places) else { return };
        let own = own_number();
        if let Some(at) = places.iter().position(|&(thread, _)| thread == own) {
            let (_, place) = places.swap_remove(at);
            drop(places);
            shared.words().leave(place);
        }
    }

    pub(crate) fn key(&self) -> u64 {
        self.shared.as_ref().map_or(0, |shared| shared.key)
    }

    /// Waits for the other threads. Also returns the round.
    pub(crate) fn wait(&self) -> (u32, Synced) {
        let began = stamp();
        let shared = self.shared.as_ref();
        let guard = shared.and_then(|shared| shared.wait).map(|point| point.measure());
        let waited = keeping_errno(|| shared?.wait());
        drop(guard);
        let round = waited.map_or(0, |(round, _)| round);
        (round, Synced::of(waited.map(|(_, arrived)| arrived), began))
    }
}
