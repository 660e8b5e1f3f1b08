//! Groups of threads and of processes that begin a phase together.

use std::io;
use std::time::Duration;

use crate::members::{Processes, Threads};

/// Outcome of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Synced {
    /// Tick counter at the last arrival, which is one value for all members. `None` if the call did
    /// not wait.
    pub all_came: Option<u64>,
    /// Ticks from the call to its return.
    pub waited: u64,
    /// Number of members that this wait found dead: threads that have ended, and processes that
    /// were killed. Later phases do not wait for them.
    pub dead: u32,
    /// Number of members that had not joined in time, out of the number for which the group was
    /// created. Later phases do not wait for them.
    pub absent: u32,
    /// True if the caller is not a member, so it did not wait: it has left, it is a forked child,
    /// the group is full, or memory ran out.
    pub not_member: bool,
}

impl Synced {
    /// Combines two successive waits.
    pub(super) fn and(self, next: Self) -> Self {
        Self {
            all_came: next.all_came.max(self.all_came),
            waited: self.waited.wrapping_add(next.waited),
            dead: self.dead + next.dead,
            absent: self.absent + next.absent,
            not_member: self.not_member || next.not_member,
        }
    }
}

/// A group of threads of this process that begin phases together.
///
/// A thread becomes a member when it first waits or calls [`join`](Self::join), and stays one until
/// it [leaves](Self::leave) or ends. Clones are the same group.
#[derive(Clone, Debug)]
pub struct ThreadGroup {
    pub(super) threads: Threads,
}

impl ThreadGroup {
    /// Returns the group of this name, which is created if it does not exist.
    ///
    /// A phase begins when `members` threads have arrived (at most 4,096). With 0, up to 256
    /// threads can join, and a phase begins when all threads that have joined have arrived.
    ///
    /// An existing group keeps its number of members. A group is removed when its last
    /// `ThreadGroup` is dropped. If memory runs out, the result belongs to no group, and no thread
    /// can join it.
    #[must_use]
    pub fn named(name: &str, members: u32) -> Self {
        Self { threads: Threads::named(name, members) }
    }

    /// Sets the maximum time to wait for members that have not joined yet, out of the number for
    /// which the group was created. The default is a minute. The group never waits for members that
    /// have joined and have ended.
    #[must_use]
    pub fn with_join_timeout(self, timeout: Duration) -> Self {
        self.threads.set_join_timeout(timeout);
        self
    }

    /// Makes the calling thread a member before it waits for a phase. Returns false if the group is
    /// full, or memory runs out.
    pub fn join(&self) -> bool {
        self.threads.join()
    }

    /// Ends the calling thread's membership, so the others no longer wait for it.
    pub fn leave(&self) {
        self.threads.leave();
    }
}

/// A group of processes that begin phases together, such as the ranks of a parallel job.
///
/// This process is a member from [`join`](Self::join) until this value is dropped or the process
/// ends, in any way. A killed process delays the others by about a tenth of a second at most. The
/// group's memory is an object in `/dev/shm`, which only this user can open. The last member to
/// leave removes the object. If that member was killed, pfp removes the object together with the
/// shared memory of ended programs.
#[derive(Debug)]
pub struct ProcessGroup {
    pub(super) processes: Processes,
}

impl ProcessGroup {
    /// Joins this user's group of this name, which is created if it does not exist. `members` is
    /// the number of processes to wait for (at most 4,096). With 0, up to 256 processes can join,
    /// and a phase waits for all processes that have joined.
    ///
    /// # Errors
    ///
    /// `InvalidInput` if `members` is too large or differs from the existing group's number;
    /// `InvalidData` if the existing group is of another version of pfp, or damaged;
    /// `QuotaExceeded` if the group is full; `StorageFull` without shared memory; `OutOfMemory`;
    /// otherwise the system's error.
    pub fn join(name: &str, members: u32) -> io::Result<Self> {
        Ok(Self { processes: Processes::join(name, members)? })
    }

    /// Sets the maximum time to wait for members that have not joined yet, out of the number for
    /// which the group was created. The default is a minute.
    #[must_use]
    pub fn with_join_timeout(mut self, timeout: Duration) -> Self {
        self.processes.set_join_timeout(timeout);
        self
    }
}
