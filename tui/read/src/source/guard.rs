//! Cleans all data from outside ([`super::Source::poll`]): makes text safe to show, and sorts and
//! corrects figures. The result satisfies the guarantees that [`crate::snapshot`] states.

use std::borrow::Cow;
use std::sync::Arc;

use super::{BadPlace, Discovery};
use crate::snapshot::{AMOUNTS, Edge, End, Process, Snapshot};
use crate::text::{clean, clean_in_place};

/// Makes the names and reasons of places safe to show.
pub fn clean_places(mut places: Vec<BadPlace>) -> Vec<BadPlace> {
    for place in &mut places {
        clean_in_place(&mut place.name);
        place.why.iter_mut().for_each(clean_in_place);
    }
    places
}

/// Makes all text in a discovery safe to show.
pub fn clean_discovery(discovery: &mut Discovery) {
    for candidate in &mut discovery.candidates {
        clean_in_place(&mut candidate.name);
        clean_in_place(&mut candidate.exe);
        clean_in_place(&mut candidate.segment_id);
        clean_end(&mut candidate.end);
    }
    if let Some(instead) = &mut discovery.instead {
        clean_in_place(instead);
    }
    for refused in &mut discovery.refused {
        clean_in_place(refused.why.words_mut());
    }
    for path in &mut discovery.searched {
        if let Cow::Owned(clean) = clean(&path.to_string_lossy()) {
            *path = clean.into();
        }
    }
}

fn clean_end(end: &mut Option<End>) {
    if let Some(End::ReplacedBy(name)) = end {
        clean_in_place(name);
    }
}

fn clean_process(process: &mut Process) {
    clean_end(&mut process.end);
    for text in [
        &mut process.name,
        &mut process.exe,
        &mut process.segment_id,
        &mut process.boot_id,
        &mut process.host,
    ] {
        clean_in_place(text);
    }
}

pub(crate) fn clean_snapshot(snapshot: &mut Snapshot) {
    clean_process(&mut snapshot.process);
    for member in &mut snapshot.process.members {
        clean_process(member);
        // Members have no members of their own.
        member.members.clear();
    }
    let clock = &mut snapshot.clock;
    // JSON cannot represent NaN and infinity, so a file with such a rate could not be read back.
    if !clock.ticks_per_second.is_finite() {
        clock.ticks_per_second = 0.0;
    }
    clock.reported_ticks_per_second = clock.reported_ticks_per_second.filter(|v| v.is_finite());
    clock.core_hz = clock.core_hz.filter(|v| v.is_finite());

    for point in &mut snapshot.points {
        clean_in_place(&mut point.name);
        clean_in_place(&mut point.file);
        point.alpha = point.alpha.filter(|v| v.is_finite());
        point.amounts.truncate(AMOUNTS);
        point.amounts.iter_mut().for_each(clean_in_place);
    }
    for lane in &mut snapshot.lanes {
        clean_in_place(&mut lane.name);
    }
    for call in &mut snapshot.slow {
        let is_clean = |text: &String| matches!(clean(text), Cow::Borrowed(_));
        if call.depth > 255 || !is_clean(&call.why) || !call.waited_for.iter().all(is_clean) {
            let call = Arc::make_mut(call);
            call.depth %= 256;
            clean_in_place(&mut call.why);
            call.waited_for.iter_mut().for_each(clean_in_place);
        }
    }
    // A report that was sampled here is clean already.
    if let Some(waits) = snapshot.waits.as_mut().filter(|waits| !waits.is_clean) {
        Arc::make_mut(waits).clean();
    }
    snapshot.points.sort_by_key(|point| point.id);
    snapshot.points.dedup_by_key(|point| point.id);
    snapshot.lanes.sort_by_key(|lane| lane.id);
    snapshot.lanes.dedup_by_key(|lane| lane.id);
    snapshot.cells.sort_by_key(|cell| cell.key());
    snapshot.cells.dedup_by_key(|cell| cell.key());
    snapshot.slow.sort_by_key(|call| call.key());
    snapshot.slow.dedup_by_key(|call| call.key());
    snapshot.edges.sort_by_key(Edge::key);
    snapshot.edges.dedup_by_key(|edge| edge.key());
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;
    use crate::snapshot::SlowCall;
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;
    use crate::waits::WaitsReport;

    struct Hostile;

    impl Source for Hostile {
        fn picture(&mut self) -> Result<Snapshot> {
            let mut snapshot = Synthetic::new().poll()?;
            snapshot.process.name = "\x1b]0;owned\x07".into();
            snapshot.points[1].name = "\u{202e}evil\r\n".into();
            snapshot.lanes[0].name = "\u{9b}2J".into();
            snapshot.clock.ticks_per_second = f64::NAN;
            snapshot.points.reverse();
            let twin = snapshot.points[0].clone();
            snapshot.points.push(twin);
            snapshot.cells.reverse();
            let edge = |point| Edge { point, ..Edge::default() };
            snapshot.edges = vec![edge(2), edge(1), edge(2)];
            let limit = Some("\x1b[2J".into());
            let why = "\x1b[1mnow".into();
            let waited_for = Some("lock \x1b[2J".into());
            let call = SlowCall { why, waited_for, depth: u32::MAX, ..SlowCall::default() };
            snapshot.slow = vec![Arc::new(call)];
            snapshot.waits = Some(Arc::new(WaitsReport { limit, ..WaitsReport::default() }));
            Ok(snapshot)
        }
    }

    #[test]
    fn hostile_snapshots_come_out_clean_and_in_order() {
        let snapshot = Hostile.poll().unwrap();
        let json = serde_json::to_string(&snapshot).unwrap();
        for hostile in ["\\u001b", "\\u0007", "\\r", "\u{202e}", "\u{9b}", "null,\"reported"] {
            assert!(!json.contains(hostile), "{hostile:?}");
        }
        assert_eq!(snapshot.slow[0].depth, 255);
        assert!(snapshot.points.is_sorted_by(|a, b| a.id < b.id));
        assert!(snapshot.cells.is_sorted_by(|a, b| a.key() < b.key()));
        assert!(snapshot.edges.is_sorted_by(|a, b| a.key() < b.key()));
    }
}
