//! Snapshots and helpers for the tests of several formats.

use super::format::Format;
use super::subject::Subject;
use pfp_model::Model;
use pfp_read::snapshot::{Record, Snapshot};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

/// Microseconds of the made-up clock, in ticks.
pub(super) const US: u64 = 2600;

pub(super) fn record(
    lane: u32,
    point: u32,
    (from_us, to_us): (u64, u64),
    exclusive_us: u64,
    depth: u32,
    context: u32,
) -> Record {
    let (start, span) = (from_us * US, (to_us - from_us) * US);
    Record { lane, point, start, span, exclusive: exclusive_us * US, depth, context }
}

/// Two threads, a task of one of them, time off the CPU, lost records, and a region with
/// unknown content.
pub(super) fn snapshot() -> Snapshot {
    let mut snapshot = Synthetic::new().poll().unwrap();
    snapshot.records = vec![
        record(0, 2, (100, 140), 40, 1, 0),
        record(0, 3, (150, 190), 10, 1, 0),
        record(0, 1, (0, 200), 120, 0, 0),
        record(0, 1, (210, 260), 20, 0, 7),
        record(0, 4, (250, 300), 50, 0, 0),
        record(1, 5, (310, 320), 10, 1, 0),
        record(1, 4, (300, 400), 90, 0, 0),
    ];
    snapshot.lanes[0].records_written = 5;
    snapshot.lanes[1].records_written = 12;
    snapshot
}

/// Exports the points of a model that pass, in this format.
pub(super) fn written(format: Format, model: &Model, passes: impl Fn(u32) -> bool) -> Vec<u8> {
    let subject = Subject::new(model, |figures| passes(figures.id()), false).unwrap();
    let mut out = Vec::new();
    format.write(&subject, &mut out).unwrap();
    out
}

/// Exports all points of the snapshot in this format, after a change to it.
pub(super) fn exported(format: Format, change: impl FnOnce(&mut Snapshot)) -> Vec<u8> {
    let mut snapshot = snapshot();
    change(&mut snapshot);
    written(format, &Model::of(snapshot), |_| true)
}
