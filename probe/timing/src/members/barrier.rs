//! The words of a group, and the waits of its members.
//!
//! The caller chooses the slots of members, and judges whether a member is alive.
//!
//! | site | pairs with | makes visible |
//! |---|---|---|
//! | `group-change` fence | itself | two changes at once (a member arrives, enters, leaves or is removed) to the thread that passes the fence later |
//! | `group-arrive` store | `group-look` load | what a member did before it arrived, and its stamp |
//! | `group-complete` CAS | `group-pass` load | what all members did before they arrived, to the members that go on |
//! | `group-enter` store | `group-member` load | the member's identity, to members that check whether it is alive |
//!
//! All other accesses are relaxed. Each thread that changes a word on which a round depends calls
//! `complete_round` afterwards, which reads the words after its fence. So of two threads that
//! change words at the same time, the one whose fence is later sees both changes.

use core::time::Duration;
use std::time::Instant;

use super::futex;
use crate::sync::{AtomicU32, AtomicU64, Ordering::Relaxed, fence_at, ord};

pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"pfpgroup");
pub(super) const VERSION: u64 = 1;
/// Minimum and maximum time to sleep before a check for missing members.
const NAPS: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(64)];
/// Number of loads of `completed` before a thread goes to sleep. They take a few microseconds.
const SPINS: u32 = 400;

/// The words of the group as a whole.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) magic: AtomicU64,
    /// Version; capacity in the upper half.
    pub(super) version: AtomicU64,
    /// Stated number of members, or 0.
    pub(super) stated: AtomicU64,
    /// Number of members that have joined, including those that have left.
    joined: AtomicU64,
    /// Complete rounds, modulo 2^32. Sleepers wait on this word.
    completed: AtomicU32,
    /// Set once the group no longer waits for members that never joined.
    excused: AtomicU32,
}

/// The words of one member.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub(super) struct Member {
    /// Number of the slot's holder; each holder gets a new number. 0 if the slot is free.
    pub(super) active: AtomicU64,
    /// Number of the last holder.
    holders: AtomicU64,
    /// Rounds in which the member has arrived, modulo 2^32.
    pub(super) arrived: AtomicU32,
    /// Id of the process or thread.
    pub(super) id: AtomicU32,
    /// Stamps of the member's last arrivals in an even and in an odd round. Two are enough, because
    /// active members are at most one round apart.
    stamps: [AtomicU64; 2],
    /// Start time of the process or thread.
    pub(super) start: AtomicU64,
    pub(super) boot: [AtomicU64; 2],
    pub(super) pidns: AtomicU64,
}

/// Outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Latest stamp of the members that arrived.
    pub(super) last: u64,
    /// Number of members that this wait found dead.
    pub(super) dead: u32,
    /// Number of members that were stated and did not join in time.
    pub(super) absent: u32,
    /// False if the caller left, or was judged dead, so it did not wait.
    pub(super) is_member: bool,
}

/// A member's slot, and the holder number that identifies this member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    index: u32,
    holder: u64,
}

impl Place {
    /// Whether both have the same slot. The holders may differ.
    #[must_use]
    pub(super) fn is_same_place(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

/// The words of a group, in private or in shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Words<'a> {
    pub(super) head: &'a Head,
    pub(super) members: &'a [Member],
    /// Whether only threads of this process sleep on the words.
    pub(super) private: bool,
}

/// Whether the count `rounds`, which wraps, has reached `n`.
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

    /// Claims a slot for the caller. No other thread may claim that slot at the same time.
    /// `introduce` writes the caller's identity to the member's words.
    pub(super) fn enter(&self, index: u32, introduce: impl FnOnce(&Member)) -> Place {
        let member = &self.members[index as usize];
        // The store of `arrived` below is not an arrival, because the other members skip an
        // inactive slot.
        let holder = member.holders.load(Relaxed).wrapping_add(1).max(1);
        member.active.store(0, Relaxed);
        member.holders.store(holder, Relaxed);
        introduce(member);
        let pass = || member.arrived.store(self.head.completed.load(Relaxed), Relaxed);
        pass();
        // Pairs with `group-member`.
        member.active.store(holder, ord!("group-enter", Release));
        // The others wait for this member from here on, so it counts as having passed all earlier
        // rounds. One more round may be completed at this moment; the member passes it at once.
        fence_at!("group-change", SeqCst);
        pass();
        self.head.joined.fetch_add(1, Relaxed);
        // The others may have waited for this member to join.
        self.complete_round();
        Place { index, holder }
    }

    pub(super) fn leave(&self, place: Place) {
        let member = &self.members[place.index as usize];
        let _ = member.active.compare_exchange(place.holder, 0, Relaxed, Relaxed);
        self.complete_round();
    }

    /// Number of members that were stated and have never joined.
    pub(super) fn absent(&self) -> u32 {
        let absent = self.head.stated.load(Relaxed).saturating_sub(self.head.joined.load(Relaxed));
        u32::try_from(absent).unwrap_or(u32::MAX)
    }

    /// Completes the round if all members have arrived. Must be called after each change of a word
    /// that shows whether all have arrived.
    pub(super) fn complete_round(&self) {
        // Pairs with itself: of two threads, the later one sees the changes of both.
        fence_at!("group-change", SeqCst);
        let done = self.head.completed.load(Relaxed);
        let next = done.wrapping_add(1);
        if self.absent() > 0 && self.head.excused.load(Relaxed) == 0 {
            return;
        }
        let mut any = false;
        for member in self.members.iter().filter(|member| member.active.load(Relaxed) != 0) {
            // Pairs with `group-arrive`.
            if !has(member.arrived.load(ord!("group-look", Acquire)), next) {
                return;
            }
            any = true;
        }
        // Pairs with `group-pass`.
        let complete = ord!("group-complete", Release);
        if any && self.head.completed.compare_exchange(done, next, complete, Relaxed).is_ok() {
            self.wake();
        }
    }

    /// Whether all members that were active in a round have arrived.
    pub(super) fn is_complete(&self, round: u32) -> bool {
        // Pairs with `group-complete`.
        has(self.head.completed.load(ord!("group-pass", Acquire)), round)
    }

    /// Counts the caller as arrived, with a stamp of the clock that all members use. Returns the
    /// round, or `None` if the caller is not a member.
    pub(super) fn arrive(&self, place: Place, stamp: u64) -> Option<u32> {
        let member = &self.members[place.index as usize];
        if member.active.load(Relaxed) != place.holder {
            return None;
        }
        let round = member.arrived.load(Relaxed).wrapping_add(1);
        member.stamps[round as usize % 2].store(stamp, Relaxed);
        // Pairs with `group-look`.
        member.arrived.store(round, ord!("group-arrive", Release));
        self.complete_round();
        Some(round)
    }

    /// Waits until a round is complete. Waits at most `join_timeout` for members that were stated
    /// and have never joined.
    pub(super) fn wait(
        &self,
        place: Place,
        round: u32,
        join_timeout: Duration,
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
                // Checks the clock, because a signal may end the sleep early.
                if looked.elapsed() < nap {
                    continue;
                }
                (nap, looked) = ((nap * 2).min(NAPS[1]), Instant::now());
                dead += self.remove_dead(place.index, round, &is_alive);
                if self.absent() > 0 && began.elapsed() >= join_timeout {
                    self.head.excused.store(1, Relaxed);
                }
                self.complete_round();
                let member = &self.members[place.index as usize];
                if member.active.load(Relaxed) != place.holder {
                    return Arrived { last: 0, dead, absent: self.absent(), is_member: false };
                }
            }
        }
        Arrived { last: self.last_stamp(round), dead, absent: self.absent(), is_member: true }
    }

    /// Removes dead members that have not arrived. Returns their number.
    pub(super) fn remove_dead(&self, own: u32, round: u32, is_alive: &impl Fn(u32) -> bool) -> u32 {
        let mut dead = 0;
        for (index, member) in self.members.iter().enumerate() {
            // Pairs with `group-enter`: the identity can be looked up.
            let holder = member.active.load(ord!("group-member", Acquire));
            let index = index as u32;
            if holder == 0 || index == own || has(member.arrived.load(Relaxed), round) {
                continue;
            }
            // CAS, so that a new member in this slot is not removed.
            if !is_alive(index)
                && member.active.compare_exchange(holder, 0, Relaxed, Relaxed).is_ok()
            {
                dead += 1;
            }
        }
        dead
    }

    /// Latest stamp of the members that arrived in a round, including those that have left since.
    pub(super) fn last_stamp(&self, round: u32) -> u64 {
        let came = self.members.iter().filter(|member| {
            let ahead = member.arrived.load(Relaxed).wrapping_sub(round);
            member.holders.load(Relaxed) != 0 && ahead <= 1
        });
        came.map(|member| member.stamps[round as usize % 2].load(Relaxed)).max().unwrap_or(0)
    }

    /// Sleeps until the next wake-up or the end of `time`, unless the round is complete.
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
