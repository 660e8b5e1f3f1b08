//! A process's measurements between two moments, as a snapshot of its own.
//!
//! ```text
//! process  |--------------------|=====================|
//!        start                from                    to
//! ```
//!
//! The result looks as if the process had begun at `from`: sums, histograms and losses are the
//! growth up to `to`, and times count from `from`. A point that was reset in between has its
//! measurements since the reset. A minimum is exact if it is smaller than the minimum before
//! `from`, and a maximum if it is greater than the maximum before `from`. Other extremes are known
//! to a bucket's width.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::histogram;
use pfp_read::snapshot::{Allocs, Cell, Edge, HeapSamples, Point, SlowCall, Snapshot, Stats};
use pfp_read::waits::WaitTotals;

/// The growth from `from` to `to`. `None` if `to` is of another process, or not later than `from`.
pub fn between(from: &Snapshot, mut to: Snapshot) -> Option<Snapshot> {
    let is_same = from.process.segment_id == to.process.segment_id;
    if !is_same || from.elapsed_ticks >= to.elapsed_ticks {
        return None;
    }
    let was_reset =
        |point: &&Point| from.point(point.id).is_some_and(|it| it.resets != point.resets);
    let reset: HashSet<u32> = to.points.iter().filter(was_reset).map(|point| point.id).collect();
    let before: HashMap<_, _> = from.cells.iter().map(|cell| (cell.key(), cell)).collect();
    let cells = to.cells.iter().filter_map(|cell| {
        match before.get(&cell.key()).filter(|_| !reset.contains(&cell.point)) {
            Some(before) => since(before, cell).map(Arc::new),
            None => Some(Arc::clone(cell)),
        }
    });
    to.cells = cells.collect();
    let edges: HashMap<_, &Edge> = from.edges.iter().map(|edge| (edge.key(), edge)).collect();
    to.edges.retain_mut(|edge| {
        if let Some(before) = edges.get(&edge.key()).filter(|_| !reset.contains(&edge.point)) {
            *edge = edge.combined(before, u64::saturating_sub);
        }
        edge.has_figures()
    });
    for lane in &mut to.lanes {
        if let Some(before) = from.lane(lane.id) {
            lane.records_written = lane.records_written.saturating_sub(before.records_written);
            lane.switches = lane.switches.saturating_sub(before.switches);
        }
        for open in &mut lane.open {
            open.start = open.start.saturating_sub(from.elapsed_ticks);
        }
    }
    // A process that joins a sum changes the number of resets, too. The sum's figures then include
    // measurements from before `from`, so the begin of the figures is unknown.
    let joined = to.process.members.iter().any(|member| !from.knows(member));
    for point in &mut to.points {
        let is_whole = reset.contains(&point.id);
        point.since_ticks = match point.begin_ticks() {
            _ if !is_whole && from.point(point.id).is_some() => Some(0),
            Some(_) if is_whole && joined && point.process.is_none() => None,
            begin => begin.map(|begin| begin.saturating_sub(from.elapsed_ticks)),
        }
        .filter(|since| *since > 0 || point.resets > 0);
        let before = from.point(point.id).map_or(0, |before| before.slow_calls);
        point.slow_calls = point.slow_calls.saturating_sub(before);
    }
    to.slow_dropped = to.slow_dropped.saturating_sub(from.slow_dropped);
    let later = |call: &Arc<SlowCall>| call.after(from.elapsed_ticks).map(Arc::new);
    to.slow = to.slow.iter().filter_map(later).collect();
    to.losses = to.losses.since(&from.losses);
    to.records.retain_mut(|record| record.move_after(from.elapsed_ticks));
    let totals = WaitTotals::between(from, &to);
    if let Some(waits) = &mut to.waits {
        Arc::make_mut(waits).totals = totals;
    }
    to.elapsed_ticks -= from.elapsed_ticks;
    to.process.started_unix_ns = from.taken_unix_ns;
    Some(to)
}

/// The growth of a cell from `before` to `now`. `None` if the cell has no figures in between.
fn since(before: &Cell, now: &Cell) -> Option<Cell> {
    let (then, sum) = (before.total(), now.total());
    let allocs = allocated(&before.allocs, &now.allocs);
    let heap = sampled(&before.heap, &now.heap);
    let Some(mut stats) = sum.since(&then).filter(|grown| grown.count > 0) else {
        let cell = Cell { point: now.point, lane: now.lane, allocs, heap, ..Cell::default() };
        return cell.has_figures().then_some(cell);
    };
    let histogram = histogram::subtract(&now.histogram, &before.histogram);
    let shortest = histogram.first().map_or(sum.min, |bucket| bucket.low);
    let longest =
        histogram.last().map_or(sum.max, |b| b.low.saturating_add(b.width.saturating_sub(1)));
    stats.min = if sum.min < then.min { sum.min } else { shortest.max(sum.min) };
    stats.max = if sum.max > then.max { sum.max } else { longest.min(sum.max) };
    Some(Cell { stats, retired: Stats::default(), histogram, allocs, heap, ..now.clone() })
}

/// What was allocated from `before` to `now`. The largest allocation may be from before.
fn allocated(before: &Allocs, now: &Allocs) -> Allocs {
    Allocs {
        calls: now.calls.saturating_sub(before.calls),
        allocs: now.allocs.saturating_sub(before.allocs),
        bytes: now.bytes.saturating_sub(before.bytes),
        freed: now.freed.saturating_sub(before.freed),
        allocs_inclusive: now.allocs_inclusive.saturating_sub(before.allocs_inclusive),
        bytes_inclusive: now.bytes_inclusive.saturating_sub(before.bytes_inclusive),
        freed_inclusive: now.freed_inclusive.saturating_sub(before.freed_inclusive),
        largest: if now.allocs_inclusive > before.allocs_inclusive { now.largest } else { 0 },
    }
}

/// The samples from `before` to `now`. Memory that is not freed yet is a state, so `now` has it.
fn sampled(before: &HeapSamples, now: &HeapSamples) -> HeapSamples {
    let grown = |class: usize| now.sizes[class].saturating_sub(before.sizes[class]);
    HeapSamples { sizes: std::array::from_fn(grown), ..*now }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PointWindow;
    use pfp_read::snapshot::{EnclosingRegion, Record, total};
    use pfp_read::source::synthetic::Synthetic;
    use pfp_read::source::{Change, Source};

    #[test]
    fn a_window_of_a_window_has_the_models_figures() {
        let mut source = Synthetic::new();
        let all: Vec<Snapshot> = source.polls(6);
        let window = between(&all[2], all[5].clone()).unwrap();
        assert_eq!(window.elapsed_ticks, all[5].elapsed_ticks - all[2].elapsed_ticks);
        assert_eq!(window.process.started_unix_ns, all[2].taken_unix_ns);
        for id in 1..8 {
            let expected = PointWindow::between(Some(&all[2]), &all[5], id).unwrap();
            let found = PointWindow::between(None, &window, id).unwrap();
            assert_eq!(found, expected, "{id}");
        }
        for cell in &window.cells {
            let stats = &cell.stats;
            assert!(stats.count > 0 && stats.min <= stats.max, "{stats:?}");
            let (first, last) = (cell.histogram[0], cell.histogram[cell.histogram.len() - 1]);
            assert!((first.low..first.low + first.width).contains(&stats.min), "{stats:?}");
            assert!((last.low..last.low + last.width).contains(&stats.max), "{stats:?}");
        }
        // Two parts of the window add up to the whole.
        let parts = [between(&all[2], all[3].clone()), between(&all[3], all[5].clone())];
        let sum = |s: &Snapshot| total(&s.cells);
        let parts = parts.map(|part| sum(&part.unwrap()));
        assert_eq!(parts[0].count + parts[1].count, sum(&window).count);
        assert_eq!(parts[0].squares + parts[1].squares, sum(&window).squares);
        assert_eq!(between(&all[5], all[2].clone()), None, "backwards");
        assert_eq!(between(&all[5], all[5].clone()), None, "nothing");
    }

    #[test]
    fn a_window_has_the_allocations_of_its_calls() {
        let mut all = Synthetic::new().polls(2);
        let sums = |calls, bytes, largest| Allocs { calls, bytes, largest, ..Allocs::default() };
        let one = Allocs { allocs: 1, allocs_inclusive: 1, ..Allocs::default() };
        let more = Allocs { calls: 5, bytes: 900, largest: 64, ..one };
        for (snapshot, allocs) in all.iter_mut().zip([sums(3, 800, 64), more]) {
            let place = snapshot.cells.iter().position(|cell| cell.point == 1).unwrap();
            let cell = Arc::make_mut(&mut snapshot.cells[place]);
            cell.allocs = allocs;
            (cell.heap.live_bytes, cell.heap.sizes[2]) = (7, allocs.bytes);
        }
        let window = between(&all[0], all[1].clone()).unwrap();
        let expected = Allocs { calls: 2, bytes: 100, largest: 64, ..one };
        let cell = &window.cells_of(1)[0];
        assert_eq!(cell.allocs, expected);
        assert_eq!((cell.heap.live_bytes, cell.heap.sizes[2]), (7, 100));
    }

    #[test]
    fn a_window_has_the_slow_calls_that_began_in_it() {
        let mut all = Synthetic::new().polls(2);
        let begin = all[0].elapsed_ticks;
        let call = |start| {
            let (lane, point, span, exclusive, depth, context) = (0, 1, 1, 1, 0, 0);
            let record = Record { lane, point, start, span, exclusive, depth, context };
            let around = EnclosingRegion { point: 2, start: start - 9 };
            let (records, enclosing) = (vec![record], vec![around]);
            Arc::new(SlowCall { start, records, enclosing, ..SlowCall::default() })
        };
        let slow = [vec![call(begin - 1)], vec![call(begin - 1), call(begin + 5)]];
        for (snapshot, (slow, count)) in all.iter_mut().zip(slow.into_iter().zip([4, 9])) {
            snapshot.slow = slow;
            (snapshot.slow_dropped, snapshot.points[1].slow_calls) = (count - 1, count);
        }
        let window = between(&all[0], all[1].clone()).unwrap();
        assert_eq!((window.slow_dropped, window.points[1].slow_calls), (5, 5));
        let [call] = &window.slow[..] else { panic!("{:?}", window.slow) };
        assert_eq!((call.start, call.records[0].start, call.enclosing[0].start), (5, 5, 0));
    }

    /// A region that is open all the time has no new measurements, but its memory is alive.
    #[test]
    fn a_window_has_the_live_memory_of_open_regions() {
        let all = Synthetic::new().polls(2);
        let (from, mut to) = (all[0].clone(), all[0].clone());
        to.elapsed_ticks = all[1].elapsed_ticks;
        let place = to.cells.iter().position(|cell| cell.point == 1).unwrap();
        let live = HeapSamples { live_bytes: 900, live_samples: 2, ..HeapSamples::default() };
        Arc::make_mut(&mut to.cells[place]).heap = live;
        let window = between(&from, to).unwrap();
        assert_eq!(window.cells.len(), 1, "nothing else has happened");
        assert_eq!(window.cells[0].heap, live);
        assert_eq!(window.cells[0].total(), Stats::default());
    }

    #[test]
    fn after_a_reset_a_window_has_later_measurements_only() {
        let mut source = Synthetic::new();
        let first = source.poll().unwrap();
        source.act(Change::Reset(1)).unwrap();
        let second = source.poll().unwrap();
        let window = between(&first, second.clone()).unwrap();
        let cells =
            |s: &Snapshot| s.cells.iter().filter(|c| c.point == 1).cloned().collect::<Vec<_>>();
        assert_eq!(cells(&window), cells(&second));
    }

    #[test]
    fn the_time_of_a_point_begins_with_the_window_or_at_the_reset() {
        let mut source = Synthetic::new();
        let mut all: Vec<Snapshot> = source.polls(3);
        source.act(Change::Reset(1)).unwrap();
        all.extend(source.polls(5));
        // Reset at the third poll.
        for (from, to, seconds) in [(0, 7, 5.0), (2, 7, 5.0), (4, 7, 3.0), (0, 1, 1.0)] {
            let window = between(&all[from], all[to].clone()).unwrap();
            let found = PointWindow::between(None, &window, 1).unwrap();
            assert_eq!(
                found,
                PointWindow::between(Some(&all[from]), &all[to], 1).unwrap(),
                "{from}"
            );
            assert_eq!(found.length.unwrap().seconds, seconds, "{from}");
        }
        let window = between(&all[1], all[7].clone()).unwrap();
        assert!(
            window.points.iter().all(|point| (point.resets > 0) == point.since_ticks.is_some())
        );
    }
}
