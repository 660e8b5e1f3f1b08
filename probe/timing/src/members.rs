//! How members of a group of threads or of processes wait for one another.
//!
//! ```text
//!    0 +--------------------------------------------------------------+
//!      | magic | version, capacity | stated | joined | completed | .. |
//!  128 +--------------------------------------------------------------+
//!      | member 0: active | arrived | stamps[2] | identity            |
//!  256 +--------------------------------------------------------------+
//!      | member 1 ...
//! ```
//!
//! Each member counts its own arrivals, in a word that no other member writes. The group counts
//! complete rounds: round `n` is complete once all active members have arrived `n` times. A member
//! that may have made a round complete (it arrived, left, or found that another has died) checks
//! all members, and increments `completed` by one CAS; the others sleep on that word. A sleeper
//! wakes after a bounded time, and checks which members are missing and whether they live. So a
//! member that dies at any moment, also between its arrival and its check, delays the others for
//! that time at most.
//!
//! | file | contents |
//! |---|---|
//! | `barrier` | the words and their orderings |
//! | `futex` | sleep and wake |
//! | `threads` | a group whose words are in the memory of one process |
//! | `membership` | a group whose words are in shared memory: join, leave, and find dead members |
//! | `processes` | a group of processes: the point of its waits, and threads that arrive together |

mod barrier;
mod futex;
mod membership;
mod processes;
mod threads;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use pfp::Point;
use pfp::reading::stamp;
use pfp_shm_layout::liveness::Identity;

use crate::{Synced, named};
use barrier::{Arrived, Member};

pub(crate) use processes::Processes;
pub(crate) use threads::Threads;

/// Maximum number of members of a group.
const MAX_MEMBERS: u32 = 4096;
/// Capacity of a group whose number of members was not stated.
const ROOM: u32 = 256;

/// Default of the maximum time to wait for members that were stated and have never joined.
const JOIN_TIMEOUT: Duration = Duration::from_secs(60);

impl Synced {
    /// Outcome of a wait that began at the stamp `began`.
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

/// Writes a member's identity to its words, where the others look it up.
fn introduce(member: &Member, who: &Identity) {
    member.id.store(who.pid, Relaxed);
    member.start.store(who.start, Relaxed);
    member.boot[0].store((who.boot >> 64) as u64, Relaxed);
    member.boot[1].store(who.boot as u64, Relaxed);
    member.pidns.store(who.pidns, Relaxed);
}

fn identity(member: &Member) -> Identity {
    let [high, low] = [0, 1].map(|half| u128::from(member.boot[half].load(Relaxed)));
    Identity {
        pid: member.id.load(Relaxed),
        start: member.start.load(Relaxed),
        boot: high << 64 | low,
        pidns: member.pidns.load(Relaxed),
    }
}

/// Maximum time that a thread waits for another one to join or leave a group.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);

/// Acquires a lock, even if a panic of the program has poisoned it. Gives up after
/// [`LOCK_TIMEOUT`], because in a forked child, the holder may be a thread of the parent.
fn locked<T>(lock: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    let mut since = None;
    loop {
        match lock.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
        if since.get_or_insert_with(Instant::now).elapsed() > LOCK_TIMEOUT {
            return None;
        }
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Point of the waits for a group.
fn wait_point(name: &str) -> Option<&'static Point> {
    named::point("wait:", name)
}
