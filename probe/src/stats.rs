//! A program's view of its own points.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use pfp_shm_layout::cell::{Cell, CellPicture, CellRead, Sums};
use pfp_shm_layout::control::Control;

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
    let control = Control(point.word()?.load(Relaxed));
    let process = process::current()?;
    let mut sums = Sums::default();
    let (mut weighted, mut averaged) = (0.0, 0);
    let mut add = |cell: &Cell| {
        let Some(picture) = read(cell) else { return };
        if picture.epoch == control.epoch() {
            weighted += picture.live.average() * picture.live.count as f64;
            averaged += picture.live.count;
            sums.merge(&picture.live);
            sums.merge(&picture.settled);
            if picture.live.count > 0 {
                sums.last = picture.live.last;
            }
        }
    };
    for lane in &process.lanes {
        // SAFETY: null, or pages that stay mapped as long as the process runs.
        let thread = unsafe { lane.load(Acquire).as_ref() };
        if let Some(cell) = thread.and_then(|thread| thread.cell_of_any(point.index())) {
            add(cell);
        }
    }
    let offset = process.segment.entry(point.index())?.shared_cell();
    if let Some(cell) = process.segment.shared_cell(offset) {
        add(cell);
    }
    (sums.count > 0).then(|| Stats {
        count: sums.count,
        exclusive: sums.exclusive,
        inclusive: sums.inclusive,
        off_cpu: sums.off_cpu,
        switches: sums.switches,
        min: sums.min,
        max: sums.max,
        last: sums.last,
        average: weighted / averaged.max(1) as f64,
        alpha: control.alpha().unwrap_or(0.0),
        sums,
    })
}

/// Copies a cell while its thread may write it.
fn read(cell: &Cell) -> Option<CellPicture> {
    let mut picture = CellPicture::default();
    // Bounded, so that a caller on the writing thread itself, in a signal
    // handler, cannot hang.
    (0..1000).find_map(|_| {
        (cell.read(&mut picture) == CellRead::Whole).then(|| std::mem::take(&mut picture))
    })
}
