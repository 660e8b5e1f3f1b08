//! What was lost or refused, explained: what it means for the figures, on which
//! threads it happened, and what can be done.

use crate::snapshot::{Amiss, Lane, Losses, Snapshot};
use crate::units;

use super::in_words;

/// So many threads are named with each.
const THREADS: usize = 3;

/// What a loss means, by the words in which it is counted.
const MEANINGS: [(&str, &str); 8] = [
    (
        super::NO_PLACE,
        "the table of points was full, so they are not measured and have no row; PFP_POINTS=N \
         gives the program's next start room for N",
    ),
    (
        super::NO_SPACE,
        "there was no memory left for them in /dev/shm or within PFP_MEMORY_MB; what was \
         measured there is missing from the figures, or from their histograms",
    ),
    (
        super::SHARED,
        "more threads ran than there are lanes; what they measured is counted, but together; \
         PFP_LANES=N gives the program's next start room for N",
    ),
    (
        super::MISMATCHED,
        "an end without its begin measures nothing; one that comes before the ends of the \
         regions inside gives those up, so they are not counted",
    ),
    (
        super::TOO_DEEP,
        "more regions were open than a thread has room for, as in deep recursion or by begins \
         without an end; those further in are not measured",
    ),
    (
        super::BACKWARDS,
        "the time-stamp counter was less than before, stood still or jumped, as on a machine \
         whose cores disagree or that was suspended or moved; such a measurement counts with \
         the CPU time, or as no time",
    ),
    (
        super::MISSED,
        "there was no memory for the thread's lane or for a cell of it, or a signal handler \
         came while its thread claimed its lane; they are missing from the figures",
    ),
    (
        super::NO_RECORD,
        "there was no memory for the ring, or the thread has none, or a signal handler \
         interrupted pfp itself; they are in the figures, and missing from timeline and traces",
    ),
];

/// Whether anything is to be explained.
pub fn is_any(snapshot: &Snapshot) -> bool {
    // Records are overwritten for good reason.
    let Losses { records_lost, cells_busy, .. } = snapshot.losses;
    snapshot.losses != Losses { records_lost, cells_busy, ..Losses::default() }
}

/// The words of a loss, in the singular where there is one of it.
pub fn words(count: u64, what: &str) -> String {
    match what.split_once("s ") {
        Some((one, "share the overflow lane")) if count == 1 => {
            format!("{one} shares the overflow lane")
        }
        Some((one, rest)) if count == 1 => format!("{one} {rest}"),
        _ => what.to_owned(),
    }
}

/// Each kind of loss in a sentence or two; what is read again at the next poll is none.
pub fn explained(snapshot: &Snapshot) -> Vec<String> {
    let lasting = Losses { cells_busy: 0, ..snapshot.losses.clone() };
    let explain = |(count, what): (u64, &'static str)| {
        let meaning = MEANINGS.iter().find(|(known, _)| *known == what).map_or("", |(_, m)| m);
        let on = threads(&snapshot.lanes, what);
        format!("{} {}{on}: {meaning}.", units::count(count), words(count, what))
    };
    in_words(&lasting).into_iter().map(explain).chain(without_caller(&snapshot.lanes)).collect()
}

/// What has no caller of its own, since a lane had no room for another pair of caller and
/// callee. No figure of a point lacks anything by that.
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

/// What went wrong on a lane, each kind in words with its count.
pub fn on_lane(amiss: &Amiss) -> Vec<(u64, &'static str)> {
    let &Amiss { mismatched_ends, begins_refused, clock_anomalies, records_missed } = amiss;
    in_words(&Losses {
        mismatched_ends,
        begins_refused,
        clock_anomalies,
        records_missed,
        ..Losses::default()
    })
}

/// ` (worker 10, main 2)`: where it is known, and the most first.
fn threads(lanes: &[Lane], what: &str) -> String {
    let of = |lane: &Lane| {
        let found = on_lane(&lane.amiss).into_iter().find(|(_, words)| *words == what);
        found.map(|(count, _)| (count, lane.name.clone()))
    };
    named(lanes.iter().filter_map(of).collect())
}

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
    use crate::source::Source;
    use crate::source::synthetic::Synthetic;

    #[test]
    fn one_of_a_kind_is_said_in_the_singular() {
        assert_eq!(words(1, crate::model::NO_PLACE), "point without a place");
        assert_eq!(words(1, crate::model::SHARED), "thread shares the overflow lane");
        assert_eq!(words(1, crate::model::BACKWARDS), "time the clock went astray");
        assert_eq!(words(2, crate::model::NO_PLACE), "points without a place");
    }

    #[test]
    fn every_loss_is_explained_with_the_threads_it_happened_on() {
        let mut snapshot = Synthetic::new().poll().unwrap();
        (snapshot.losses.cells_busy, snapshot.losses.records_lost) = (1, 1);
        assert!(explained(&snapshot).is_empty() && !is_any(&snapshot));
        snapshot.losses = Losses {
            points_refused: 1,
            space_refused: 2,
            lanes_overflowed: 3,
            mismatched_ends: 4,
            begins_refused: 1_000,
            clock_anomalies: 6,
            records_lost: 7,
            cells_busy: 8,
            begins_missed: 9,
            records_missed: 10,
        };
        for (lane, begins_refused) in snapshot.lanes.iter_mut().zip([200, 0, 800]) {
            lane.amiss = Amiss { begins_refused, ..Amiss::default() };
        }
        assert!(is_any(&snapshot));
        let said = explained(&snapshot);
        assert_eq!(said.len(), MEANINGS.len(), "{said:?}");
        for ((said, (known, meaning)), count) in said.iter().zip(MEANINGS).zip(1..) {
            assert!(said.contains(&words(count, known)) && said.contains(meaning), "{said}");
        }
        assert!(said[4].starts_with("1.00k begins nested too deep (packer 800, main 200): more"));
        assert!(said[3].starts_with("4 ends not of the innermost region: an end"));
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
