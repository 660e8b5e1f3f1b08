//! What a poll costs behind the reader: the fold of 1,000 points on 8 lanes into
//! figures, their order by a percentile, and the drawing of a screen.
//!
//! `cargo bench -p pfp-top`

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Result, bail};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use pfp_top::app::{App, Options};
use pfp_top::columns::{Column, Sorting};
use pfp_top::model::Model;
use pfp_top::snapshot::{Cell, Point, PointState, Snapshot, Stats};
use pfp_top::source::synthetic::{Synthetic, bucket_of};
use pfp_top::source::{Change, Machine, Source};
use pfp_top::view::{self, Look};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

const POINTS: u32 = 1_000;
const LANES: u32 = 8;

/// A process in which every point measures once on every lane between two polls.
struct Busy {
    /// The cells of each are written anew when nobody looks at them any more, as
    /// those of a live process are.
    next: [Snapshot; 2],
    polls: u64,
}

impl Busy {
    fn new() -> Self {
        let mut snapshot = Synthetic::new().poll().expect("it always can");
        let point = |id| Point {
            id,
            name: format!("part{}.region{id}", id % 10),
            file: "src/work.rs".into(),
            line: id,
            state: PointState::On,
            alpha: None,
            resets: 0,
            process: None,
            number: None,
        };
        snapshot.points = (0..POINTS).map(point).collect();
        let cell = |point, lane| {
            // Four octaves, every bucket in use.
            let mut histogram = Vec::new();
            let mut low = 480_u64 << (point % 7);
            while histogram.len() < 128 {
                let bucket = bucket_of(low);
                low = bucket.low + bucket.width;
                histogram.push(pfp_top::snapshot::Bucket { count: 7, ..bucket });
            }
            let (min, max) = (histogram[0].low, low);
            let stats = Stats { count: 900, exclusive: 900_000, min, max, ..Stats::default() };
            let retired = Stats::default();
            Arc::new(Cell { point, lane, stats, retired, in_flight: false, histogram })
        };
        let cells = || {
            (0..POINTS).flat_map(|point| (0..LANES).map(move |lane| cell(point, lane))).collect()
        };
        let with = |cells| Snapshot { cells, ..snapshot.clone() };
        Self { next: [with(cells()), with(cells())], polls: 0 }
    }
}

impl Source for Busy {
    fn poll(&mut self) -> Result<Snapshot> {
        self.polls += 1;
        self.next.swap(0, 1);
        let snapshot = &mut self.next[0];
        snapshot.elapsed_ticks = self.polls * 100_000_000;
        for cell in &mut snapshot.cells {
            let stats = &mut Arc::make_mut(cell).stats;
            stats.count = 900 + self.polls;
            stats.exclusive = 1_000 * stats.count;
        }
        Ok(snapshot.clone())
    }

    fn act(&mut self, _: Change) -> Result<()> {
        bail!("nobody asks")
    }

    fn is_process(&self) -> bool {
        true
    }
}

fn fold(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("1,000 points x 8 lanes, all changed");
    for (name, column) in [("fold", None), ("fold and order by p99", Some(Column::P99))] {
        let (mut source, mut model) = (Busy::new(), Model::default());
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || source.poll().expect("it always can"),
                |snapshot| {
                    model.fold(snapshot);
                    column.map(|column| black_box(Sorting::by(column).order(model.points())))
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

fn draw(criterion: &mut Criterion) {
    let now = Instant::now();
    let mut app = App::new(Options::default(), Box::new(Machine), now);
    app.watch(Box::new(Busy::new()), now);
    let look = Look::new(true, false);
    let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("it is only memory");
    let area = terminal.get_frame().area();
    app.settle(view::room(&app, &look, area), now);
    criterion.bench_function("draw of a table of 120 x 40, all changed", |bencher| {
        let mut draw = |app: &App| {
            terminal.draw(|frame| view::draw(frame, app, &look)).expect("it is only memory");
        };
        bencher.iter_custom(|frames| {
            let mut time = std::time::Duration::ZERO;
            for _ in 0..frames {
                app.poll(now);
                let start = Instant::now();
                draw(&app);
                time += start.elapsed();
            }
            time
        });
    });
}

criterion_group!(benches, fold, draw);
criterion_main!(benches);
