//! Groups of threads and of processes that begin a phase together.

use std::io;
use std::time::Duration;

use crate::members::{Processes, Threads};

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
    pub not_member: bool,
}

impl Synced {
    /// One wait after the other.
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

/// The threads of this process that come to a phase together.
///
/// A thread becomes a member when it first comes (or by [`join`](Self::join)), and is one
/// until it [leaves](Self::leave) or ends. Clones are the same group.
#[derive(Clone, Debug)]
pub struct ThreadGroup {
    pub(super) threads: Threads,
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
        Self { threads: Threads::named(name, members) }
    }

    /// Waits no longer than this for members that were stated and never came; a minute
    /// otherwise. Those that came and ended are not waited for anyhow.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        self.threads.set_patience(patience);
        self
    }

    /// Makes the calling thread a member before it comes to a phase; false if there is
    /// no place left.
    pub fn join(&self) -> bool {
        self.threads.join()
    }

    /// The calling thread is a member no more: the others do not wait for it.
    pub fn leave(&self) {
        self.threads.leave();
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
    pub(super) processes: Processes,
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
        Ok(Self { processes: Processes::join(name, members)? })
    }

    /// Waits no longer than this for members that were stated and never came; a minute
    /// otherwise.
    #[must_use]
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.processes.set_patience(patience);
        self
    }
}
