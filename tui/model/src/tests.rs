//! Tests of the model's arithmetic against simple computation, and of its history against every
//! change of a process between two polls.

use super::*;
use pfp_read::snapshot::{Cell, Loss, Process, Stats, total};
use pfp_read::source::synthetic::{Synthetic, TICKS_PER_SECOND};
use pfp_read::source::{Change, Source};

fn next(source: &mut Synthetic, model: &mut Model) -> News {
    model.fold(source.poll().unwrap())
}

/// A process after this many polls, and the model of it.
fn polled(times: usize) -> (Synthetic, Model) {
    let (mut source, mut model) = (Synthetic::new(), Model::default());
    for _ in 0..times {
        next(&mut source, &mut model);
    }
    (source, model)
}

/// Stats of these values, added up one by one.
fn stats(values: &[u64]) -> Stats {
    let mut stats = Stats::default();
    for &value in values {
        stats.count += 1;
        stats.exclusive += value;
        stats.inclusive += 2 * value;
        stats.off_cpu += value / 2;
        stats.squares += u128::from(value) * u128::from(value);
        stats.min = stats.min.min(value);
        stats.max = stats.max.max(value);
        stats.last = value;
    }
    stats
}

#[test]
fn totals_over_lanes_and_ended_threads_are_those_of_all_values() {
    let parts: [&[u64]; 4] = [&[5, 9, 1_000], &[7], &[], &[88, 2]];
    let cells = [(0, 1), (2, 3)].map(|(now, before)| {
        let (stats, retired) = (stats(parts[now]), stats(parts[before]));
        Arc::new(Cell { stats, retired, ..Cell::default() })
    });
    let mut expected = stats(&parts.concat());
    let found = total(&cells);
    expected.last = 1_000;
    assert_eq!(found, expected);
    assert_eq!(total(&cells[..0]).min, u64::MAX);
}

#[test]
fn variance_agrees_with_two_passes_even_far_from_zero() {
    for offset in [0, 1_000_000_007, 1 << 45] {
        let values: Vec<u64> = (0..1000).map(|i| offset + (i * i * 31) % 173).collect();
        // The reference computes with the distance from the offset, where floating point is precise
        // enough.
        let near: Vec<f64> = values.iter().map(|v| (v - offset) as f64).collect();
        let mean = near.iter().sum::<f64>() / 1000.0;
        let expected = near.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 999.0;
        let found = stats(&values).deviation().unwrap().powi(2);
        assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    }
    assert_eq!(stats(&[5]).deviation(), None);
    assert_eq!(stats(&[5, 5, 5]).deviation(), Some(0.0));
    let torn = Stats { squares: 1, ..stats(&[5, 9]) };
    assert_eq!(torn.deviation(), None);
    // One measurement is zero because the thread was off the CPU. The extremes leave it out, and
    // they limit the deviation.
    let squares = [500, 560, 0].map(|ticks: u128| ticks * ticks).iter().sum();
    let with_zero = Stats { count: 3, exclusive: 1_060, squares, min: 500, max: 560, ..stats(&[]) };
    assert_eq!(with_zero.deviation(), Some(1_350.0_f64.sqrt()));
    let greatest =
        Stats { count: u64::MAX, exclusive: u64::MAX, squares: u128::MAX, ..Stats::default() };
    assert!(greatest.deviation().is_some_and(f64::is_finite));
}

#[test]
fn off_share_is_off_over_span() {
    let stats = Stats { inclusive: 30, off_cpu: 70, ..Stats::default() };
    assert_eq!(stats.off_share(), Some(0.7));
    assert_eq!(Stats::default().off_share(), None);
}

#[test]
fn the_first_snapshot_shows_the_whole_life() {
    let (mut source, mut model) = (Synthetic::new(), Model::default());
    assert_eq!(next(&mut source, &mut model), News::Later);
    assert_eq!(model.basis(), Basis::Life);
    let (figures, snapshot) = (model.point(1).unwrap(), model.snapshot().unwrap());
    let life = snapshot.elapsed_ticks as f64;
    let expected = figures.total().exclusive as f64 / life;
    assert_eq!(figures.load(), Some(expected));
    assert!(figures.history().is_empty());
}

#[test]
fn rates_and_loads_are_differences_over_the_interval() {
    let (mut source, mut model) = polled(1);
    let before = model.point(1).unwrap().total().clone();
    next(&mut source, &mut model);
    let figures = model.point(1).unwrap();
    let calls = (figures.total().count - before.count) as f64;
    let ticks = (figures.total().exclusive - before.exclusive) as f64;
    assert_eq!(model.basis(), Basis::Interval);
    assert_eq!(figures.rate(), Some(calls));
    assert_eq!(figures.load(), Some(ticks / TICKS_PER_SECOND as f64));
}

/// Wall-clock spans overlap, so their load may exceed one CPU, and no sum of loads includes it. A
/// device's time has no load.
#[test]
fn wall_clock_spans_have_a_load_outside_all_sums() {
    let (mut source, mut model) = (Synthetic::new(), Model::default());
    let hottest = {
        next(&mut source, &mut model);
        next(&mut source, &mut model);
        model.hottest().unwrap().id()
    };
    for (wall, expects) in [(true, true), (false, false)] {
        let point = source.snapshot_mut().points.iter_mut().find(|it| it.id == hottest).unwrap();
        (point.device, point.wall) = (true, wall);
        let mut model = Model::default();
        next(&mut source, &mut model);
        assert_eq!(model.point(hottest).unwrap().load().is_some(), expects, "of a life");
        let before = model.point(hottest).unwrap().total().exclusive;
        next(&mut source, &mut model);
        let figures = model.point(hottest).unwrap();
        let ticks = (figures.total().exclusive - before) as f64;
        let load = expects.then_some(ticks / TICKS_PER_SECOND as f64);
        assert_eq!(figures.load(), load);
        assert_ne!(model.hottest().unwrap().id(), hottest);
    }
}

#[test]
fn load_is_smoothed_by_the_time_that_really_passed() {
    let (mut source, mut model) = (Synthetic::new(), Model::new(4.0));
    let mut snapshots: Vec<_> = source.polls(4);
    // The third poll came late.
    snapshots.remove(2);
    let exclusive = |s: &Snapshot| total(s.cells_of(3)).exclusive as f64;
    let load = |a: &Snapshot, b: &Snapshot| {
        (exclusive(b) - exclusive(a)) / (b.elapsed_ticks - a.elapsed_ticks) as f64
    };
    let (first, second) = (load(&snapshots[0], &snapshots[1]), load(&snapshots[1], &snapshots[2]));
    for snapshot in snapshots {
        model.fold(snapshot);
    }
    let expected = first + 2.0 / 4.0 * (second - first);
    let found = model.point(3).unwrap().load().unwrap();
    assert!((found - expected).abs() < 1e-12);
}

#[test]
fn a_point_that_is_switched_off_has_no_load_to_fade_out() {
    let (mut source, mut model) = polled(2);
    assert!(model.point(1).unwrap().load().is_some_and(|load| load > 0.1));
    source.act(Change::Disable(1)).unwrap();
    next(&mut source, &mut model);
    next(&mut source, &mut model);
    assert_eq!(model.point(1).unwrap().load(), Some(0.0));
}

#[test]
fn a_reset_of_unknown_time_leaves_a_gap_and_no_nonsense() {
    let (mut source, mut model) = polled(2);
    source.act(Change::Reset(1)).unwrap();
    source.snapshot_mut().points[1].since_ticks = None;
    next(&mut source, &mut model);
    let figures = model.point(1).unwrap();
    assert_eq!((figures.rate(), figures.load()), (None, None));
    assert_eq!(figures.history().last(1).next().unwrap().load, None);
    next(&mut source, &mut model);
    assert!(model.point(1).unwrap().rate().is_some_and(|rate| rate > 0.0));
}

/// Polls are a second apart. The point is reset a quarter of a second before the last one.
#[test]
fn rates_and_loads_are_since_the_reset() {
    let mut source = Synthetic::new();
    let mut snapshots: Vec<_> = source.polls(2);
    source.act(Change::Reset(1)).unwrap();
    snapshots.push(source.poll().unwrap());
    let quarter = TICKS_PER_SECOND / 4;
    let now = snapshots.last_mut().unwrap();
    now.points[1].since_ticks = Some(now.elapsed_ticks - quarter);
    let sums = total(now.cells_of(1));
    let expected = (4.0 * sums.count as f64, sums.exclusive as f64 / quarter as f64);
    assert!(expected.0 > 0.0 && expected.1 > 0.0);

    // Compute the rates once over an interval that includes the reset, and once from a single
    // snapshot.
    let mut interval = Model::new(0.25);
    for snapshot in &snapshots[1..] {
        interval.fold(snapshot.clone());
    }
    let mut alone = Model::default();
    alone.fold(snapshots[2].clone());
    for (model, basis) in [(&interval, Basis::Interval), (&alone, Basis::Life)] {
        let figures = model.point(1).unwrap();
        assert_eq!(model.basis(), basis);
        let (rate, load) = (figures.rate().unwrap(), figures.load().unwrap());
        assert!((rate / expected.0 - 1.0).abs() < 1e-9, "{basis:?}: {rate} {expected:?}");
        assert!((load / expected.1 - 1.0).abs() < 1e-9, "{basis:?}: {load} {expected:?}");
    }
    // A point that was not reset has the rate of the whole interval.
    let other = |model: &Model| model.point(2).unwrap().rate().unwrap();
    let mut unchanged = Model::default();
    snapshots[2].points[1].resets = 0;
    unchanged.fold(snapshots[2].clone());
    assert_eq!(other(&alone), other(&unchanged));
    // Impossible times of a reset: the present moment, and before the interval.
    for since in [snapshots[2].elapsed_ticks, snapshots[1].elapsed_ticks - 1] {
        snapshots[2].points[1].resets = 1;
        snapshots[2].points[1].since_ticks = Some(since);
        let mut model = Model::default();
        for snapshot in &snapshots[1..] {
            model.fold(snapshot.clone());
        }
        let figures = model.point(1).unwrap();
        assert_eq!((figures.rate(), figures.load()), (None, None));
    }
}

#[test]
fn counts_that_shrink_without_a_reset_are_no_rate() {
    let (mut source, mut model) = polled(1);
    source.snapshot_mut().cells.clear();
    next(&mut source, &mut model);
    assert_eq!(model.point(4).unwrap().rate(), None);
}

#[test]
fn a_point_that_appears_counts_from_zero() {
    let (mut source, mut model) = (Synthetic::new(), Model::default());
    let mut first = source.poll().unwrap();
    first.points.retain(|point| point.id != 3);
    first.cells.retain(|cell| cell.point != 3);
    model.fold(first);
    next(&mut source, &mut model);
    let figures = model.point(3).unwrap();
    assert_eq!(figures.rate(), Some(figures.total().count as f64));
}

/// Snapshots are a second apart.
#[test]
fn live_memory_grows_since_the_first_snapshot_or_the_last_reset() {
    let mut source = Synthetic::new();
    let mut with_live = |bytes: u64, reset: bool| {
        if reset {
            source.act(Change::Reset(1)).unwrap();
        }
        let mut snapshot = source.poll().unwrap();
        let place = snapshot.cells.iter().position(|cell| cell.point == 1).unwrap();
        Arc::make_mut(&mut snapshot.cells[place]).heap.live_bytes = bytes;
        snapshot
    };
    let snapshots =
        [(9_000, false), (11_000, false), (10_000, false), (10_000, true), (5_000, false)];
    let snapshots = snapshots.map(|(bytes, reset)| with_live(bytes, reset));
    let growth_of = |snapshots: &[Snapshot]| {
        let mut model = Model::default();
        let growth = snapshots.iter().map(|snapshot| {
            model.fold(snapshot.clone());
            model.point(1).and_then(|figures| figures.live_growth())
        });
        growth.collect::<Vec<_>>()
    };
    let growth = [None, Some(2_000.0), Some(500.0), None, Some(-5_000.0)];
    assert_eq!(growth_of(&snapshots), growth);

    // The growth since a mark.
    let mut model = Model::default();
    for (place, snapshot) in snapshots[..3].iter().enumerate() {
        model.fold(snapshot.clone());
        if place == 1 {
            model.mark_live();
        }
    }
    let figures = model.point(1).unwrap();
    assert_eq!((figures.live_grown(), figures.live_growth()), (Some(-1_000.0), Some(-1_000.0)));

    // A point that appears had no memory before. In a sum, it may be of a process that has just
    // joined, with memory of any age.
    let without = |snapshot: &Snapshot| {
        let mut snapshot = snapshot.clone();
        snapshot.points.retain(|point| point.id != 1);
        snapshot.cells.retain(|cell| cell.point != 1);
        snapshot
    };
    let mut later = [without(&snapshots[0]), snapshots[1].clone(), snapshots[2].clone()];
    assert_eq!(growth_of(&later), [None, Some(11_000.0), Some(5_000.0)]);
    for snapshot in &mut later {
        snapshot.process.members = vec![Process::default(), Process::default()];
    }
    assert_eq!(growth_of(&later), [None, None, Some(-1_000.0)]);
    // The memory of a process that ends leaves the sum, and is no decline.
    later[2].process.members[1].state = ProcessState::Crashed;
    assert_eq!(growth_of(&later), [None, None, None]);
}

#[test]
fn another_process_in_its_place_starts_anew() {
    let (mut source, mut model) = polled(2);
    source.snapshot_mut().process.segment_id = "f".repeat(32);
    assert_eq!(next(&mut source, &mut model), News::Replaced);
    assert_eq!(model.basis(), Basis::Life);
    assert!(model.point(1).unwrap().history().is_empty());
}

#[test]
fn the_last_figures_of_a_process_stay() {
    let (mut source, mut model) = polled(2);
    source.snapshot_mut().process.state = ProcessState::Crashed;
    assert_eq!(next(&mut source, &mut model), News::Ended);
    let load = model.point(4).unwrap().load();
    assert!(load.is_some_and(|load| load > 0.0));
    assert_eq!(next(&mut source, &mut model), News::Later);
    assert_eq!(model.point(4).unwrap().load(), load);
}

#[test]
fn a_pause_is_a_gap_in_the_history() {
    let (mut source, mut model) = polled(3);
    model.pause();
    next(&mut source, &mut model);
    let loads: Vec<_> =
        model.point(1).unwrap().history().last(9).map(|s| s.load.is_some()).collect();
    assert_eq!(loads, [true, true, false, true]);
}

#[test]
fn losses_are_worded_only_if_there_are_any() {
    let mut snapshot = Synthetic::new().poll().unwrap();
    let reported = |snapshot: &Snapshot| lost::reported(&snapshot.losses).collect::<Vec<_>>();
    assert_eq!(reported(&snapshot), []);
    snapshot.losses[Loss::BeginsRefused] = 7;
    snapshot.losses[Loss::RecordsLost] = 1;
    assert_eq!(reported(&snapshot), [(Loss::BeginsRefused, 7)]);
}
