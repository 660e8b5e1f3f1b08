//! Regions that are under way: what the thread that met one tells its team.

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::place::Region;

/// Regions that can be under way at a time, or not left by all of their threads yet. One more
/// is not measured, and that is counted.
const TEAMS: usize = 1024;

/// A region that is under way, for as long as anybody refers to it.
#[repr(align(64))]
pub(super) struct Team {
    /// The thread that met the region, until its end, and each member until it has recorded.
    references: AtomicU32,
    /// The counter at the end; 0 before.
    end: AtomicU64,
    /// Written by whoever has taken it, before anybody else knows of it.
    begun: UnsafeCell<Option<RegionStart>>,
}

#[derive(Clone, Copy)]
pub(super) struct RegionStart {
    pub(super) region: &'static Region,
    /// The counter at the fork.
    pub(super) start: u64,
}

// SAFETY: `begun` is written while nobody else refers to the team, and handed on by the runtime,
// which forks and thereby orders.
unsafe impl Sync for Team {}

static ALL: [Team; TEAMS] = [const {
    Team { references: AtomicU32::new(0), end: AtomicU64::new(0), begun: UnsafeCell::new(None) }
}; TEAMS];

impl Team {
    /// Takes a team for a region that begins; `first` is where to look first.
    pub(super) fn take(region: &'static Region, start: u64, first: usize) -> Option<&'static Self> {
        let free = (0..TEAMS).map(|step| &ALL[first.wrapping_add(step) % TEAMS]).find(|team| {
            // Acquire meets `leave`: whoever had it before is done with it.
            team.references.load(Relaxed) == 0
                && team.references.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        });
        let Some(team) = free else {
            pfp::c::count_refusal();
            return None;
        };
        team.end.store(0, Relaxed);
        // SAFETY: it was nobody's, and nobody else knows of it yet.
        unsafe { *team.begun.get() = Some(RegionStart { region, start }) };
        Some(team)
    }

    /// What was known at the fork.
    pub(super) fn begun(&self) -> Option<RegionStart> {
        // SAFETY: the caller refers to it, so nobody writes.
        unsafe { *self.begun.get() }
    }

    /// Refers to it, while somebody else does who will not leave meanwhile.
    pub(super) fn join(&self) {
        self.references.fetch_add(1, Relaxed);
    }

    /// Refers to it no longer. Release meets `take`.
    pub(super) fn leave(&self) {
        self.references.fetch_sub(1, AcqRel);
    }

    /// Says when it ended. Release meets `end`.
    pub(super) fn ended(&self, now: u64) {
        self.end.store(now.max(1), Release);
    }

    /// The counter at its end; none before. Acquire meets `ended`.
    pub(super) fn end(&self) -> Option<u64> {
        Some(self.end.load(Acquire)).filter(|&end| end != 0)
    }
}
