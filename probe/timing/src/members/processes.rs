//! Groups of processes that begin phases together.

use std::io;
use std::sync::Mutex;
use std::time::Duration;

use pfp::Point;
use pfp::reading::{keeping_errno, stamp};
use pfp_shm_layout::directory::Directory;

use super::membership::Membership;
use super::{JOIN_TIMEOUT, locked, wait_point};
use crate::Synced;

/// See [`crate::ProcessGroup`].
#[derive(Debug)]
pub(crate) struct Processes {
    membership: Membership,
    wait: Option<&'static Point>,
    join_timeout: Duration,
    /// The last arrival of this process for a thread group: the key and the round of the thread
    /// group, and the round of this process group. The first thread arrives and stores this; the
    /// other threads of its round find it here.
    round: Mutex<Option<((u64, u32), u32)>>,
}

impl Processes {
    pub(crate) fn join(name: &str, members: u32) -> io::Result<Self> {
        let directory = Directory::for_this_process()?;
        let membership = Membership::join(&directory, name, members)?;
        let (wait, round) = (wait_point(name), Mutex::new(None));
        Ok(Self { membership, wait, join_timeout: JOIN_TIMEOUT, round })
    }

    pub(crate) fn set_join_timeout(&mut self, join_timeout: Duration) {
        self.join_timeout = join_timeout;
    }

    /// Waits for the other processes. If threads wait together (`threads` is their group's key and
    /// round), the first of them arrives for all.
    pub(crate) fn wait(&self, threads: Option<(u64, u32)>) -> Synced {
        let began = stamp();
        let guard = self.wait.map(|point| point.measure());
        let arrived = keeping_errno(|| {
            let round = self.arrive(threads)?;
            Some(self.membership.wait(round, self.join_timeout))
        });
        drop(guard);
        Synced::of(arrived, began)
    }

    fn arrive(&self, threads: Option<(u64, u32)>) -> Option<u32> {
        let Some(threads) = threads else { return self.membership.arrive(stamp()) };
        let mut last = locked(&self.round)?;
        match *last {
            Some((known, round)) if known == threads => Some(round),
            _ => {
                let round = self.membership.arrive(stamp())?;
                *last = Some((threads, round));
                Some(round)
            }
        }
    }
}
