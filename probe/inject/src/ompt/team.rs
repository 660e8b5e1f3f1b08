//! Open regions: the state that a forking thread shares with the members of its team.

use std::cell::UnsafeCell;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::place::Region;

/// Maximum number of regions that are open or have members that have not left. A further region is
/// not measured, and counts as refused.
const TEAMS: usize = 1024;

/// An open region. The slot is reused when the last reference is gone.
#[repr(align(64))]
pub(super) struct Team {
    /// Number of references. The forking thread has one until the join, and each member has one
    /// until it has recorded its last wait.
    references: AtomicU32,
    /// Reading of the counter at the end of the region; 0 before the end.
    end: AtomicU64,
    /// Written by the thread that claims the slot, before it shares the team.
    begun: UnsafeCell<Option<RegionStart>>,
}

#[derive(Clone, Copy)]
pub(super) struct RegionStart {
    pub(super) region: &'static Region,
    /// Counter at the fork.
    pub(super) start: u64,
}

// SAFETY: `begun` is written only while the writer has the only reference. The runtime's fork
// orders the write before each member's read.
unsafe impl Sync for Team {}

static ALL: [Team; TEAMS] = [const {
    Team { references: AtomicU32::new(0), end: AtomicU64::new(0), begun: UnsafeCell::new(None) }
}; TEAMS];

impl Team {
    /// Claims a team for a region that begins. The search starts at slot `first`.
    pub(super) fn take(region: &'static Region, start: u64, first: usize) -> Option<&'static Self> {
        let free = (0..TEAMS).map(|step| &ALL[first.wrapping_add(step) % TEAMS]).find(|team| {
            // Acquire pairs with `leave`: the previous owners no longer access the slot.
            team.references.load(Relaxed) == 0
                && team.references.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
        });
        let Some(team) = free else {
            pfp::c::count_refusal();
            return None;
        };
        team.end.store(0, Relaxed);
        // SAFETY: this thread has raised `references` from 0 to 1, so no other thread refers to the
        // team.
        unsafe { *team.begun.get() = Some(RegionStart { region, start }) };
        Some(team)
    }

    /// The region and the time of the fork.
    pub(super) fn begun(&self) -> Option<RegionStart> {
        // SAFETY: the caller holds a reference, so no thread writes `begun`.
        unsafe { *self.begun.get() }
    }

    /// Adds a reference. Another reference to the team must exist until this call returns.
    pub(super) fn join(&self) {
        self.references.fetch_add(1, Relaxed);
    }

    /// Drops a reference. Release pairs with the acquire in `take`.
    pub(super) fn leave(&self) {
        self.references.fetch_sub(1, AcqRel);
    }

    /// Publishes the end of the region. Release pairs with the acquire in `end`.
    pub(super) fn ended(&self, now: u64) {
        self.end.store(now.max(1), Release);
    }

    /// Counter at the end of the region; `None` before. Acquire pairs with the release in `ended`.
    pub(super) fn end(&self) -> Option<u64> {
        Some(self.end.load(Acquire)).filter(|&end| end != 0)
    }
}
