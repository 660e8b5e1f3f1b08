//! A program's view of its own points.

use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use pfp_shm_layout::amounts::MOST;
use pfp_shm_layout::cell::{Cell, CellPicture, CellRead, Sums};
use pfp_shm_layout::control::Control;
use pfp_shm_layout::segment::Segment;

use crate::engine::process;
use crate::point::Point;

/// Statistics of a point since its last reset, over all threads. Ticks of the
/// [tick counter](crate::ticks_per_second) where not said otherwise.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Stats {
    /// Finished measurements.
    pub count: u64,
    /// Ticks of the regions themselves, on a CPU.
    pub exclusive: u64,
    /// Ticks with nested regions, on a CPU; recursion counted once.
    pub inclusive: u64,
    /// Ticks between begin and end in which the thread did not run.
    pub off_cpu: u64,
    /// Switches noticed between begin and end.
    pub switches: u64,
    /// Least exclusive ticks; 0 without a measurement.
    pub min: u64,
    /// Most exclusive ticks.
    pub max: u64,
    /// Exclusive ticks of the last measurement; of several threads, of any.
    pub last: u64,
    /// Exponential average of exclusive ticks, weighted by count over threads;
    /// 0 while averaging is off.
    pub average: f64,
    /// The weight of a new value in that average; 0 while averaging is off.
    pub alpha: f64,
    sums: Sums,
}

impl Stats {
    /// Mean exclusive ticks; 0 without a measurement.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.sums.mean().unwrap_or(0.0)
    }

    /// Sample variance of exclusive ticks; 0 below two measurements.
    #[must_use]
    pub fn variance(&self) -> f64 {
        self.sums.variance().unwrap_or(0.0)
    }
}

pub(crate) fn of_point(point: &'static Point) -> Option<Stats> {
    // None for a refused point too: its number is another one's.
    let (stats, _) = of_points(point.word()?, std::iter::once(point))?;
    (stats.count > 0).then_some(stats)
}

/// Statistics of points that follow the same control word, all together, and the
/// sums of amounts that their cells have; none without a process.
pub(crate) fn of_points(
    word: &AtomicU64,
    points: impl Iterator<Item = &'static Point>,
) -> Option<(Stats, [u128; MOST])> {
    let control = Control(word.load(Relaxed));
    let process = process::current()?;
    let mut all = Collected { epoch: control.epoch(), ..Collected::default() };
    for point in points {
        for lane in &process.lanes {
            // SAFETY: null, or pages that stay mapped as long as the process runs.
            let thread = unsafe { lane.load(Acquire).as_ref() };
            if let Some(cell) = thread.and_then(|thread| thread.cell_of_any(point.index())) {
                all.add(&process.segment, cell);
            }
        }
        for offset in process.segment.entry(point.index())?.shared_cells() {
            if let Some(cell) = process.segment.shared_cell(offset) {
                all.add(&process.segment, cell);
            }
        }
    }
    let Collected { sums, weighted, averaged, amounts, .. } = all;
    let stats = Stats {
        count: sums.count,
        exclusive: sums.exclusive,
        inclusive: sums.inclusive,
        off_cpu: sums.off_cpu,
        switches: sums.switches,
        min: if sums.count > 0 { sums.min } else { 0 },
        max: sums.max,
        last: sums.last,
        average: weighted / averaged.max(1) as f64,
        alpha: control.alpha().unwrap_or(0.0),
        sums,
    };
    Some((stats, amounts))
}

/// What several cells have together.
#[derive(Default)]
struct Collected {
    epoch: u32,
    sums: Sums,
    weighted: f64,
    averaged: u64,
    amounts: [u128; MOST],
}

impl Collected {
    fn add(&mut self, segment: &Segment, cell: &Cell) {
        let Some(picture) = read(segment, cell).filter(|it| it.epoch == self.epoch) else { return };
        self.weighted += picture.live.average() * picture.live.count as f64;
        self.averaged += picture.live.count;
        self.sums.merge(&picture.live);
        self.sums.merge(&picture.settled);
        if picture.live.count > 0 {
            self.sums.last = picture.live.last;
        }
        for of in [picture.amounts.live, picture.amounts.settled] {
            for (sum, more) in self.amounts.iter_mut().zip(of) {
                *sum += u128::from(more);
            }
        }
    }
}

/// Copies a cell while its thread may write it.
fn read(segment: &Segment, cell: &Cell) -> Option<CellPicture> {
    let mut picture = CellPicture::default();
    // Bounded, so that a caller on the writing thread itself, in a signal
    // handler, cannot hang.
    (0..1000).find_map(|_| {
        let whole = cell.read_with(&mut picture, |chunk| segment.sums(chunk));
        (whole == CellRead::Whole).then(|| std::mem::take(&mut picture))
    })
}
