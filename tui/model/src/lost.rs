//! Explains losses: their effect on the figures, the threads on which they happened, and what can
//! be done.

use pfp_read::snapshot::{Lane, Loss, Losses, Snapshot};
use pfp_read::units;

/// Maximum number of threads that are named with each loss.
const THREADS: usize = 3;

/// Whether there are losses to explain.
pub fn is_any(snapshot: &Snapshot) -> bool {
    snapshot.losses.lasting().next().is_some()
}

/// The losses to report, with their counts. Overwritten records are left out, since a ring
/// overwrites records by design.
pub fn reported(losses: &Losses) -> impl Iterator<Item = (Loss, u64)> {
    losses.iter().filter(|(kind, _)| *kind != Loss::RecordsLost)
}

/// A loss in words, in the singular for a count of one.
pub fn words(kind: Loss, count: u64) -> String {
    match (kind, kind.words().split_once("s ")) {
        (Loss::ClockAnomalies, _) if count == 1 => "clock anomaly".to_owned(),
        (Loss::MismatchedEnds, _) if count == 1 => "mismatched end".to_owned(),
        (Loss::LanesOverflowed, _) if count == 1 => "thread shares the overflow lane".to_owned(),
        (_, Some((one, rest))) if count == 1 => format!("{one} {rest}"),
        _ => kind.words().to_owned(),
    }
}

/// Each kind of loss in a sentence or two. Cells that are read again at the next poll are left out.
pub fn explained(snapshot: &Snapshot) -> Vec<String> {
    let explain = |(kind, count): (Loss, u64)| {
        let of = |lane: &Lane| Some((lane.amiss[kind], lane.name.clone())).filter(|it| it.0 > 0);
        let on = named(snapshot.lanes.iter().filter_map(of).collect());
        format!("{} {}{on}: {}.", units::count(count), words(kind, count), kind.meaning())
    };
    snapshot.losses.lasting().map(explain).chain(without_caller(&snapshot.lanes)).collect()
}

/// A sentence about measurements without a known caller, because a lane had no room for another
/// pair of caller and callee. All figures of points include these measurements.
fn without_caller(lanes: &[Lane]) -> Option<String> {
    let lanes: Vec<&Lane> = lanes.iter().filter(|lane| lane.unplaced > 0).collect();
    let all: u64 = lanes.iter().map(|lane| lane.unplaced).fold(0, u64::saturating_add);
    let on = named(lanes.iter().map(|lane| (lane.unplaced, lane.name.clone())).collect());
    (all > 0).then(|| {
        format!(
            "callers of {} calls{on}: the thread had no room for more pairs of caller and callee; \
             the calls are in all figures, and in callers and the tree under (other callers).",
            units::count(all)
        )
    })
}

/// ` (worker 10, main 2)`: the threads with the most losses first.
fn named(mut found: Vec<(u64, String)>) -> String {
    found.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let named = |(count, name): &(u64, String)| format!("{name} {}", units::count(*count));
    let mut names: Vec<String> = found.iter().take(THREADS).map(named).collect();
    if found.len() > THREADS {
        names.push("...".into());
    }
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn a_single_loss_is_worded_in_the_singular() {
        assert_eq!(words(Loss::PointsRefused, 1), "point not measured: table full");
        assert_eq!(words(Loss::LanesOverflowed, 1), "thread shares the overflow lane");
        assert_eq!(words(Loss::ClockAnomalies, 1), "clock anomaly");
        assert_eq!(words(Loss::MismatchedEnds, 1), "mismatched end");
        assert_eq!(words(Loss::PointsRefused, 2), "points not measured: table full");
    }

    #[test]
    fn every_loss_is_explained_with_the_threads_it_happened_on() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        for kind in [Loss::CellsBusy, Loss::RecordsLost] {
            snapshot.losses[kind] = 1;
        }
        assert!(explained(&snapshot).is_empty() && !is_any(&snapshot));
        snapshot.losses = Loss::ALL.into_iter().zip(1..).collect();
        snapshot.losses[Loss::BeginsRefused] = 1_000;
        for (lane, begins_refused) in snapshot.lanes.iter_mut().zip([200, 0, 800]) {
            lane.amiss[Loss::BeginsRefused] = begins_refused;
        }
        assert!(is_any(&snapshot));
        let said = explained(&snapshot);
        assert_eq!(said.len(), Loss::ALL.len() - 2, "{said:?}");
        for (said, (kind, count)) in said.iter().zip(snapshot.losses.lasting()) {
            assert!(said.contains(&words(kind, count)) && said.contains(kind.meaning()), "{said}");
        }
        assert!(said[4].starts_with("1.00k begins nested too deep (packer 800, main 200): more"));
        assert!(said[3].starts_with("4 mismatched ends: an end"));
    }

    #[test]
    fn calls_without_a_caller_are_explained_and_are_no_loss() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        snapshot.lanes[1].unplaced = 12;
        let said = explained(&snapshot);
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].starts_with("callers of 12 calls (reader 12): the thread had"), "{said:?}");
        assert!(!is_any(&snapshot), "no figure lacks anything");
    }
}
