//! What a process had allocated at several moments, for traces that show figures over time.

use std::collections::BTreeMap;

use pfp_model::{allocs, heap_samples};
use pfp_read::snapshot::{Heap, Snapshot};

/// What a process had allocated at one moment.
#[derive(Clone, Debug)]
pub struct AllocsAt {
    /// Ticks since the begin of the exported time.
    pub elapsed_ticks: u64,
    /// The memory of the process that was not freed.
    pub heap: Option<Heap>,
    /// By point: allocated bytes so far, and bytes that were not freed. Points without allocations
    /// are left out.
    pub points: BTreeMap<u32, [u64; 2]>,
}

impl AllocsAt {
    /// The moment of a snapshot.
    pub fn of(snapshot: &Snapshot) -> Self {
        let of_point = |point: u32| {
            let cells = snapshot.cells_of(point);
            let bytes = [allocs(cells).bytes, heap_samples(cells).live_bytes];
            (bytes != [0; 2]).then_some((point, bytes))
        };
        let points = snapshot.points.iter().filter_map(|point| of_point(point.id)).collect();
        Self { elapsed_ticks: snapshot.elapsed_ticks, heap: snapshot.heap, points }
    }
}

/// Values of one figure, each with its time in ticks.
pub(super) type Values = Vec<(u64, f64)>;

/// Bytes of a point that were not freed.
pub(super) fn live(moments: &[AllocsAt], point: u32) -> Values {
    let of = |moment: &AllocsAt| Some((moment.elapsed_ticks, moment.points.get(&point)?[1] as f64));
    moments.iter().filter_map(of).collect()
}

/// Bytes that a point allocated per second, between each moment and the one before it. After a
/// reset, these are the bytes since the reset.
pub(super) fn rates(moments: &[AllocsAt], point: u32, ticks_per_second: f64) -> Values {
    let bytes = |moment: &AllocsAt| moment.points.get(&point).map_or(0, |[bytes, _]| *bytes);
    let of = |pair: &[AllocsAt]| {
        let [before, now] = pair else { return None };
        let ticks = now.elapsed_ticks.checked_sub(before.elapsed_ticks).filter(|it| *it > 0)?;
        let grown = bytes(now).checked_sub(bytes(before)).unwrap_or(bytes(now));
        Some((now.elapsed_ticks, grown as f64 * ticks_per_second / ticks as f64))
    };
    moments.windows(2).filter_map(of).collect()
}
