//! The time between two snapshots, and loads over it.

use std::collections::HashMap;

use pfp_read::snapshot::Snapshot;

/// For each of several processes, the ticks between its figures in two snapshots, if known.
pub(super) fn own_intervals(before: &Snapshot, now: &Snapshot) -> Vec<Option<u64>> {
    let then: HashMap<&str, u64> = before.aged().collect();
    let own = |(id, age): (&str, u64)| age.checked_sub(*then.get(id)?);
    now.aged().map(own).collect()
}

/// The ticks of one process in the result of [`own_intervals`]. `process` is its index.
pub(super) fn of_place(own: &[Option<u64>], process: Option<u32>) -> Option<u64> {
    *own.get(process? as usize)?
}

/// The time between two snapshots.
#[derive(Clone, Copy)]
pub(super) struct Interval {
    pub(super) ticks: u64,
    pub(super) seconds: f64,
    /// Weight of this interval's load in the smoothed load, from 0 to 1.
    pub(super) weight: f64,
}

impl Interval {
    pub(super) fn of(ticks: u64, snapshot: &Snapshot, tau_seconds: f64) -> Self {
        let seconds = seconds(snapshot, ticks);
        Self { ticks, seconds, weight: (seconds / tau_seconds).clamp(0.0, 1.0) }
    }
}

/// Moves the smoothed load `before` towards the load `now` by the share `weight`. Returns `now` if
/// `before` is unknown.
pub(super) fn smoothed(before: Option<f64>, now: f64, weight: f64) -> f64 {
    before.map_or(now, |before| before + weight * (now - before))
}

pub(super) fn seconds(snapshot: &Snapshot, ticks: u64) -> f64 {
    ticks as f64 / snapshot.clock.ticks_per_second
}
