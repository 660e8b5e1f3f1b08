//! The words of a group, and how its members come together.
//!
//! Who may take which place, and who lives, the caller knows; where the words lie and
//! how one sleeps on one of them stands elsewhere.
//!
//! | site | meets | makes visible |
//! |---|---|---|
//! | `group-settle` fence | itself | of two that arrive, enter, leave or are buried at once, who comes by later sees both |
//! | `group-arrive` store | `group-look` load | what a member did before it came, and its stamp |
//! | `group-complete` CAS | `group-pass` load | what all did before they came, to those that go on |
//! | `group-enter` store | `group-member` load | who the member is, to those that ask whether it lives |
//!
//! What is not named needs no order: `settle` looks behind its fence, and a word that it
//! sees too late is seen by whoever changed it.

use core::time::Duration;
use std::time::Instant;

use super::futex;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed, fence_at, ord};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"pfpgroup");
pub(super) const VERSION: u64 = 1;
/// How long a sleeper sleeps at least and at most before it looks who is missing.
const NAPS: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(64)];
/// Looks at the word before going to sleep: some microseconds.
const SPINS: u32 = 400;

/// The words of the group as a whole.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) magic: AtomicU64,
    /// Capacity in the upper half.
    pub(super) version: AtomicU64,
    /// Members that were stated, 0 for none.
    pub(super) stated: AtomicU64,
    /// Members that have ever joined.
    joined: AtomicU64,
    /// Rounds that are complete, modulo 2^32. Sleepers wait here.
    completed: AtomicU32,
    /// Not 0 once members that never came are not waited for any more.
    excused: AtomicU32,
}

/// The words of one member.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(super) struct Member {
    /// A number that no earlier holder of this place had, while it is a member; 0 else.
    pub(super) active: AtomicU64,
    /// The last such number.
    holders: AtomicU64,
    /// Rounds it has arrived at, modulo 2^32.
    pub(super) arrived: AtomicU32,
    /// Process or thread.
    pub(super) id: AtomicU32,
    /// When it arrived, by whatever clock the members share; of even and odd rounds.
    /// No active member is more than one round ahead of another.
    stamps: [AtomicU64; 2],
    /// When the process or thread started.
    pub(super) start: AtomicU64,
    pub(super) boot: [AtomicU64; 2],
    pub(super) pidns: AtomicU64,
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// The latest stamp of those that arrived.
    pub last: u64,
    /// Members that were found dead in this wait.
    pub dead: u32,
    /// Members that were stated and have not come in time.
    pub absent: u32,
    /// Whether the caller waited at all: false if it is no member any more, because
    /// it left, or was taken for dead.
    pub is_member: bool,
}

/// A member's place, and that it is the member's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    index: u32,
    holder: u64,
}

impl Place {
    /// Whether both are the same place, of whichever holders.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

/// A group's words, wherever they lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub(super) head: &'a Head,
    pub(super) members: &'a [Member],
    /// Whether sleepers are of this process alone.
    pub(super) private: bool,
}

/// Whether `n` rounds are among `rounds`.
fn has(rounds: u32, n: u32) -> bool {
    rounds.wrapping_sub(n) as i32 >= 0
}

impl Words<'_> {
    pub(super) fn prepare(&self, stated: u32) {
        self.head.stated.store(u64::from(stated), Relaxed);
        let capacity = self.members.len() as u64;
        self.head.version.store(capacity << 32 | VERSION, Relaxed);
        self.head.magic.store(MAGIC, Relaxed);
    }

    /// Makes a place, which nobody else takes at this moment, the caller's.
    /// `introduce` says who the caller is, where others look it up.
    pub(super) fn enter(&self, index: u32, introduce: impl FnOnce(&Member)) -> Place {
        let member = &self.members[index as usize];
        // Not taken for an arrival: nobody looks at it before it is active.
        let holder = member.holders.load(Relaxed).wrapping_add(1).max(1);
        member.active.store(0, Relaxed);
        member.holders.store(holder, Relaxed);
        introduce(member);
        let pass = || member.arrived.store(self.head.completed.load(Relaxed), Relaxed);
        pass();
        // Meets `group-member`.
        member.active.store(holder, ord!("group-enter", Release));
        // The others wait for this member from here on, so it counts as having passed the rounds
        // before. One more may be completed at this moment, which it then passes at once.
        fence_at!("group-settle", SeqCst);
        pass();
        self.head.joined.fetch_add(1, Relaxed);
        // It may have been the one that the others waited for to come at all.
        self.settle();
        Place { index, holder }
    }

    pub(super) fn leave(&self, place: Place) {
        let member = &self.members[place.index as usize];
        let _ = member.active.compare_exchange(place.holder, 0, Relaxed, Relaxed);
        self.settle();
    }

    /// Members that were stated and never came.
    pub(super) fn absent(&self) -> u32 {
        let absent = self.head.stated.load(Relaxed).saturating_sub(self.head.joined.load(Relaxed));
        u32::try_from(absent).unwrap_or(u32::MAX)
    }

    /// Moves on if all have arrived. Whoever has changed what that depends on comes by
    /// here afterwards.
    pub(super) fn settle(&self) {
        // Meets itself: of two that come by, the later one sees what both have changed.
        fence_at!("group-settle", SeqCst);
        let done = self.head.completed.load(Relaxed);
        let next = done.wrapping_add(1);
        if self.absent() > 0 && self.head.excused.load(Relaxed) == 0 {
            return;
        }
        let mut any = false;
        for member in self.members.iter().filter(|member| member.active.load(Relaxed) != 0) {
            // Meets `group-arrive`.
            if !has(member.arrived.load(ord!("group-look", Acquire)), next) {
                return;
            }
            any = true;
        }
        // Meets `group-pass`.
        let complete = ord!("group-complete", Release);
        if any && self.head.completed.compare_exchange(done, next, complete, Relaxed).is_ok() {
            self.wake();
        }
    }

    /// Whether all have come to a round, or were not waited for.
    pub(super) fn is_complete(&self, round: u32) -> bool {
        // Meets `group-complete`.
        has(self.head.completed.load(ord!("group-pass", Acquire)), round)
    }

    /// The caller has come, at a moment of the members' clock; the round it has come to.
    pub(super) fn arrive(&self, place: Place, stamp: u64) -> Option<u32> {
        let member = &self.members[place.index as usize];
        if member.active.load(Relaxed) != place.holder {
            return None;
        }
        let round = member.arrived.load(Relaxed).wrapping_add(1);
        member.stamps[round as usize % 2].store(stamp, Relaxed);
        // Meets `group-look`.
        member.arrived.store(round, ord!("group-arrive", Release));
        self.settle();
        Some(round)
    }

    /// Waits until all have come to a round. Those that were stated and never came are
    /// waited for no longer than `patience`.
    pub(super) fn wait(
        &self,
        place: Place,
        round: u32,
        patience: Duration,
        is_alive: impl Fn(u32) -> bool,
    ) -> Arrived {
        let mut dead = 0;
        if !(0..SPINS).any(|_| {
            std::hint::spin_loop();
            self.is_complete(round)
        }) {
            let began = Instant::now();
            let (mut nap, mut looked) = (NAPS[0], began);
            while !self.is_complete(round) {
                self.sleep(round, nap);
                // By the clock, and not by how the sleep ended: signals may end each.
                if looked.elapsed() < nap {
                    continue;
                }
                (nap, looked) = ((nap * 2).min(NAPS[1]), Instant::now());
                dead += self.bury(place.index, round, &is_alive);
                if self.absent() > 0 && began.elapsed() >= patience {
                    self.head.excused.store(1, Relaxed);
                }
                self.settle();
                let member = &self.members[place.index as usize];
                if member.active.load(Relaxed) != place.holder {
                    return Arrived { last: 0, dead, absent: self.absent(), is_member: false };
                }
            }
        }
        Arrived { last: self.last_stamp(round), dead, absent: self.absent(), is_member: true }
    }

    /// Takes those for no members that have not come and do not live.
    pub(super) fn bury(&self, own: u32, round: u32, is_alive: &impl Fn(u32) -> bool) -> u32 {
        let mut dead = 0;
        for (index, member) in self.members.iter().enumerate() {
            // Meets `group-enter`: who it is can be looked up.
            let holder = member.active.load(ord!("group-member", Acquire));
            let index = index as u32;
            if holder == 0 || index == own || has(member.arrived.load(Relaxed), round) {
                continue;
            }
            // Exchanged, so that nobody else is buried who took the place meanwhile.
            if !is_alive(index)
                && member.active.compare_exchange(holder, 0, Relaxed, Relaxed).is_ok()
            {
                dead += 1;
            }
        }
        dead
    }

    /// When the last one came to a round, also one that has left since.
    pub(super) fn last_stamp(&self, round: u32) -> u64 {
        let came = self.members.iter().filter(|member| {
            let ahead = member.arrived.load(Relaxed).wrapping_sub(round);
            member.holders.load(Relaxed) != 0 && ahead <= 1
        });
        came.map(|member| member.stamps[round as usize % 2].load(Relaxed)).max().unwrap_or(0)
    }

    /// Sleeps until something may have changed, or the time is up.
    fn sleep(&self, round: u32, time: Duration) {
        let seen = self.head.completed.load(Relaxed);
        if !has(seen, round) {
            futex::wait(&self.head.completed, seen, time, self.private);
        }
    }

    fn wake(&self) {
        futex::wake(&self.head.completed, self.private);
    }
}
