//! Tests of every column: its order, width and text.

use std::sync::Arc;

use super::sorting::Sorting;
use super::sorting::SteadyLoads;
use super::*;
use crate::Model;
use crate::filter::Filter;
use pfp_read::snapshot::{Cell, Stats};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;
use pfp_read::units;
use pfp_read::waits::{RUN_QUEUE, WaitTotal, WaitTotals, WaitsReport};

fn model() -> Model {
    let (mut source, mut model) = (Synthetic::new(), Model::default());
    for _ in 0..3 {
        model.fold(source.poll().unwrap());
    }
    model
}

#[test]
fn columns_always_fit_and_the_most_needed_stay() {
    for width in 24..200 {
        for all in [&Column::DEFAULT[..], Column::ALL] {
            for is_there in [false, true] {
                let available = Available {
                    processes: is_there,
                    hosts: is_there,
                    domains: is_there,
                    imbalance: is_there,
                    allocs: is_there,
                    waits: is_there,
                    wait_totals: is_there,
                };
                let fit = Fit::new(all, width, width % 70, available, '~');
                assert_eq!(fit.columns.contains(&Column::Process), is_there && width >= 60);
                assert!(is_there || !fit.columns.contains(&Column::Domain));
                let used: usize = fit.columns.iter().map(|column| fit.width(*column)).sum();
                assert!(used + fit.columns.len() - 1 <= width, "{width}");
                assert!([Column::On, Column::Name].iter().all(|c| fit.columns.contains(c)));
            }
        }
    }
    let narrow = Fit::new(&Column::DEFAULT, 38, 20, Available::default(), '~');
    assert!(narrow.columns.contains(&Column::Load));
    assert_eq!(Fit::new(&Column::DEFAULT, 120, 20, Available::default(), '~').columns.len(), 14);
    // The user's own order is kept, and its last columns are dropped first.
    let own = [Column::On, Column::P99, Column::Name, Column::Dev, Column::Load];
    assert_eq!(Fit::new(&own, 60, 20, Available::default(), '~').columns, own);
    assert_eq!(Fit::new(&own, 32, 10, Available::default(), '~').columns, own[..4]);
    let wide = Fit::new(&Column::DEFAULT, 300, 20, Available::default(), '~');
    assert!(wide.width(Column::Trend) > 40 && wide.width(Column::Bar) > 16);
    assert_eq!(wide.width(Column::Name), 20);
}

#[test]
fn every_sorting_orders_every_point() {
    let model = model();
    for column in Column::ALL.iter().copied() {
        let sorting = Sorting::by(column);
        let order = sorting.order(model.points());
        assert_eq!(order.len(), model.points().len());
        let sorted = order.windows(2).all(|pair| {
            let [a, b] = [pair[0], pair[1]].map(|id| model.point(id).unwrap());
            let order = column.compare(a, b);
            order.is_eq() || order.is_gt() == sorting.descending
        });
        assert!(sorted, "{column:?}");
    }
}

#[test]
fn quantiles_of_many_threads_are_computed_in_rotation() {
    let snapshot = |poll: u64, middles: [u64; 3]| {
        let mut snapshot = Synthetic::new().poll().unwrap();
        snapshot.elapsed_ticks += poll * 1000;
        snapshot.points.truncate(3);
        let cell = |(point, low): (usize, u64)| {
            let (count, max) = (poll + 1, u64::MAX);
            let stats = Stats { count, min: 0, max, ..Stats::default() };
            let histogram = vec![pfp_read::snapshot::Bucket { low, width: 1, count }];
            Arc::new(Cell { point: point as u32, stats, histogram, ..Cell::default() })
        };
        snapshot.cells = middles.into_iter().enumerate().map(cell).collect();
        snapshot
    };
    let sorting = Sorting::by(Column::P99);
    let mut model = Model::default();
    let order = |model: &Model| {
        let points = model.points().iter().collect();
        sorting.order_within(1, points, &SteadyLoads::of(model.points().iter()))
    };
    model.fold(snapshot(0, [30, 20, 10]));
    assert_eq!(order(&model), [0, 1, 2], "the first are all exact");
    let mut orders = Vec::new();
    for poll in 1..4 {
        model.fold(snapshot(poll, [10, 20, 30]));
        orders.push(order(&model));
    }
    assert_eq!(orders, [[1, 0, 2], [1, 0, 2], [2, 1, 0]], "one in each");
    // Without a time limit, the order is exact.
    model.fold(snapshot(4, [30, 20, 10]));
    assert_eq!(sorting.order(model.points()), [0, 1, 2]);
}

#[test]
fn points_without_a_name_show_their_number_behind_the_others() {
    let mut source = Synthetic::new();
    for id in [2, 5] {
        source.snapshot_mut().points[id].name.clear();
    }
    let mut model = Model::default();
    model.fold(source.poll().unwrap());
    let scale = Scale { ticks_per_second: 1e9, unit: units::Unit::Time };
    assert_eq!(Column::Name.text(model.point(5).unwrap(), &scale), "#5");
    let order = Sorting::by(Column::Name).order(model.points());
    assert_eq!(order[order.len() - 2..], [2, 5]);
}

#[test]
fn times_below_a_nanosecond_are_not_shown_as_zero() {
    let scale = Scale { ticks_per_second: 2.6e9, unit: units::Unit::Time };
    assert_eq!((scale.single(0.0), scale.single(2.0)), ("<1ns".into(), "<1ns".into()));
    assert_eq!(scale.single(26.0), "10.0ns");
    assert_eq!(Scale { unit: units::Unit::Cycles, ..scale }.single(0.0), "0cy");
}

#[test]
fn a_mean_too_short_to_be_exact_is_marked() {
    let (mut source, mut model) = (Synthetic::new(), Model::default());
    // Ten times this cost is more than the mean of lz.match, some 10,000 ticks, and less than that
    // of io.crc, 31,000.
    source.snapshot_mut().clock.overhead_pair = 2_000;
    model.fold(source.poll().unwrap());
    let scale = Scale { ticks_per_second: 2.6e9, unit: units::Unit::Time };
    let text = |id| Column::Avg.text(model.point(id).unwrap(), &scale);
    assert_eq!(text(5).find('~'), Some(0), "{}", text(5));
    assert_eq!(text(3).find('~'), None, "{}", text(3));
}

/// Annotations for other tools have a domain, and parallel regions an imbalance. Tables without
/// such points have no column for it.
#[test]
fn domains_and_imbalance_have_columns_where_there_are_any() {
    let shown = |change: &dyn Fn(&mut Synthetic)| {
        let (mut source, mut model) = (Synthetic::new(), Model::default());
        change(&mut source);
        model.fold(source.poll().unwrap());
        let available = Available::of(&model);
        let columns = Column::shown(&Column::DEFAULT, available);
        let is_shown = [Column::Domain, Column::Imbalance].map(|it| columns.contains(&it));
        (model, is_shown)
    };
    let (_, is_shown) = shown(&|_| ());
    assert_eq!(is_shown, [false, false]);
    let of_domain = |file: &'static str| {
        move |source: &mut Synthetic| {
            let point = &mut source.snapshot_mut().points[3];
            (point.name, point.file, point.line) = ("work work.c:3 busy".into(), file.into(), 0);
            (point.device, point.wall) = (true, true);
        }
    };
    let (model, is_shown) = shown(&of_domain("nvtx:a rather long name of a domain"));
    assert_eq!(is_shown, [true, false]);
    let (figures, scale) =
        (model.point(3).unwrap(), Scale { unit: units::Unit::Time, ticks_per_second: 1e9 });
    assert_eq!(Column::Domain.text(figures, &scale), "nvtx:a ~a domain");
    assert_eq!(Column::Name.text(figures, &scale), "work work.c:3 busy (wall)");
    assert_eq!(
        (Column::Excl.text(figures, &scale).as_str(), Column::Excl.value(figures)),
        (NONE, None)
    );
    let (model, is_shown) = shown(&of_domain("openmp:/usr/bin/work"));
    assert_eq!(is_shown, [true, true]);
    let figures = model.point(3).unwrap();
    assert_eq!(Column::Domain.text(figures, &scale), "openmp");
    let threads = figures.lanes().filter(|lane| lane.total.count > 0);
    let ticks: Vec<_> = threads.map(|lane| lane.total.exclusive as f64).collect();
    let mean = ticks.iter().sum::<f64>() / ticks.len() as f64;
    let most = ticks.iter().copied().fold(0.0, f64::max);
    assert!((figures.imbalance().unwrap() - most / mean).abs() < 1e-9, "{ticks:?}");
    // A point of a file with that name has a domain, too.
    let (model, is_shown) = shown(&|source| source.snapshot_mut().points[3].file = "nvtx:x".into());
    assert_eq!(is_shown, [false, false]);
    assert_eq!(model.point(3).unwrap().point().place(), "nvtx:x:130");
}

#[test]
fn waited_and_queued_are_amounts_to_sort_and_filter_by() {
    let mut snapshot = Synthetic::new().poll().unwrap();
    let total = |point, reason: &str, ns| WaitTotal {
        point: Some(point),
        reason: reason.into(),
        name: String::new(),
        ns,
    };
    let waits = vec![
        total(1, "lock", 1_500_000_000),
        total(1, "read", 500_000_000),
        total(1, RUN_QUEUE, 250_000_000),
        total(2, "sleep", 1_000_000),
    ];
    let totals = Some(WaitTotals { since_unix_ns: 1, seconds: 5.0, waits });
    snapshot.waits = Some(Arc::new(WaitsReport { totals, ..WaitsReport::default() }));
    let per_second = snapshot.clock.ticks_per_second;
    let model = Model::of(snapshot);
    let seconds = |column: Column, id: u32| {
        column.value(model.point(id).unwrap()).map(|ticks| ticks / per_second)
    };
    assert_eq!((seconds(Column::Waited, 1), seconds(Column::Queued, 1)), (Some(2.0), Some(0.25)));
    assert_eq!(seconds(Column::Waited, 3), Some(0.0));
    let filter = Filter::new("waited>1s").unwrap();
    let passes: Vec<_> = model.points().iter().filter(|it| filter.admits(it)).collect();
    assert_eq!(passes.iter().map(|it| it.id()).collect::<Vec<_>>(), [1]);
    // Without samples, the columns have nothing to show.
    let model = Model::of(Synthetic::new().poll().unwrap());
    assert_eq!(Column::Waited.value(model.point(1).unwrap()), None);
    assert!(Column::shown(&[Column::Waited], Available::of(&model)).is_empty());
}
