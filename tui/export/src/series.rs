//! The series for monitoring, independent of the format: each point of each process, optionally
//! thread by thread, and their labels.

use std::sync::Arc;

use super::subject::Subject;
use pfp_model::amounts;
use pfp_read::snapshot::{self, Cell, Loss, Point, PointState, Snapshot, total};
use pfp_read::waits::WaitTotals;

/// The series of one snapshot: of a process, or of several processes that are watched as one.
#[derive(Debug)]
pub(super) struct ProcessSeries {
    pub(super) snapshot: Arc<Snapshot>,
    pub(super) process: String,
    per_thread: bool,
    /// Whether histograms are exported.
    pub(super) histograms: bool,
    /// This lane and all later lanes are exported as one.
    lanes: u32,
    ticks_per_second: f64,
    pub(super) points: Vec<SeriesPoint>,
}

/// A point of a [`ProcessSeries`].
#[derive(Debug)]
pub(super) struct SeriesPoint {
    pub(super) labels: Labels,
    id: u32,
    pub(super) load: Option<f64>,
    pub(super) enabled: bool,
    /// Its slow calls. `None` if it has none, and no limit.
    pub(super) slow_calls: Option<u64>,
    /// The number of resets before the first poll. OTLP needs it for the start times of sums.
    #[cfg(feature = "otlp")]
    pub(super) resets: u32,
}

fn slow_calls(point: &Point) -> Option<u64> {
    (point.limit.is_some() || point.slow_calls > 0).then_some(point.slow_calls)
}

/// The labels of a series.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    pub(super) process: String,
    pub(super) pid: u32,
    pub(super) point: Option<String>,
    /// The word for where the point's time was spent, if not on a CPU.
    pub(super) elsewhere: Option<&'static str>,
    /// The name of a lane's last thread, and the lane's number. Several lanes exported as one have
    /// no number.
    pub(super) thread: Option<(String, Option<u32>)>,
    pub(super) kind: Option<&'static str>,
    /// Name of an amount.
    pub(super) amount: Option<String>,
    /// The reason of a wait, and the variable that the thread waited for.
    pub(super) wait: Option<(String, String)>,
}

const WALL: &str = "wall";

fn elsewhere(point: &snapshot::Point) -> Option<&'static str> {
    match (point.wall, point.device) {
        (true, _) => Some(WALL),
        (false, true) => Some("device"),
        (false, false) => None,
    }
}

impl Labels {
    /// Whether the point has wall-clock time, and so no exclusive time.
    pub(super) fn is_wall(&self) -> bool {
        self.elsewhere == Some(WALL)
    }
}

impl ProcessSeries {
    pub(super) fn of(subject: &Subject<'_>) -> Self {
        let points = subject.points().iter().map(|shown| {
            let process = subject.process(shown.figures);
            let labels = Labels {
                process: process.name.clone(),
                pid: process.pid,
                point: Some(shown.label.clone()),
                elsewhere: elsewhere(shown.figures.point()),
                ..Labels::default()
            };
            SeriesPoint {
                labels,
                id: shown.figures.id(),
                // A device's load is left out, so that loads add up to CPUs.
                load: shown.figures.load().filter(|_| !shown.figures.point().device),
                enabled: shown.figures.state() == PointState::On,
                slow_calls: slow_calls(shown.figures.point()),
                #[cfg(feature = "otlp")]
                resets: shown.figures.point().resets,
            }
        });
        Self {
            points: points.collect(),
            snapshot: Arc::clone(subject.snapshot()),
            process: subject.snapshot().process.name.clone(),
            per_thread: subject.per_thread,
            histograms: subject.histograms,
            lanes: subject.lanes_apart,
            ticks_per_second: subject.ticks_per_second(),
        }
    }

    /// Gives the process another name, in all its series.
    pub(super) fn rename(&mut self, name: &str) {
        for point in &mut self.points {
            name.clone_into(&mut point.labels.process);
        }
        name.clone_into(&mut self.process);
    }

    pub(super) fn seconds(&self, ticks: u64) -> f64 {
        ticks as f64 / self.ticks_per_second
    }

    /// Seconds that measuring took, by its calibrated cost.
    pub(super) fn overhead(&self) -> f64 {
        let pair = self.seconds(self.snapshot.clock.overhead_pair);
        total(&self.snapshot.cells).count as f64 * pair
    }

    pub(super) fn of_process(&self) -> Labels {
        Labels {
            process: self.process.clone(),
            pid: self.snapshot.process.pid,
            ..Labels::default()
        }
    }

    /// The amounts of the point with these cells: names and sums.
    pub(super) fn amounts(&self, cells: &[Arc<Cell>]) -> impl Iterator<Item = (&str, u128)> {
        let point = cells.first().and_then(|cell| self.snapshot.point(cell.point));
        let names = point.map_or(&[][..], |point| &point.amounts);
        names.iter().map(String::as_str).zip(amounts(cells))
    }

    /// Calls `show` with the seconds waited for each reason by each point.
    pub(super) fn waits<E>(
        &self,
        mut show: impl FnMut(&Labels, f64) -> Result<(), E>,
    ) -> Result<(), E> {
        for total in WaitTotals::of(&self.snapshot).iter().flat_map(|totals| &totals.waits) {
            let Some(id) = total.point else { continue };
            let place = self.points.binary_search_by_key(&id, |point| point.id);
            let Ok(place) = place else { continue };
            let wait = Some((total.reason.clone(), total.name.clone()));
            let labels = Labels { wait, ..self.points[place].labels.clone() };
            show(&labels, total.ns as f64 / 1e9)?;
        }
        Ok(())
    }

    /// Calls `show` with every series of points, or of points and threads, and its cells; stops at
    /// the first error.
    pub(super) fn each<E>(
        &self,
        mut show: impl FnMut(&Labels, &SeriesPoint, &[Arc<Cell>]) -> Result<(), E>,
    ) -> Result<(), E> {
        for point in &self.points {
            let cells = self.snapshot.cells_of(point.id);
            if !self.per_thread {
                show(&point.labels, point, cells)?;
                continue;
            }
            let (apart, others) =
                cells.split_at(cells.partition_point(|cell| cell.lane < self.lanes));
            for cell in apart {
                let lane = self.snapshot.lane(cell.lane);
                let name = lane.map(|lane| lane.name.clone()).unwrap_or_default();
                let thread = Some((name, Some(cell.lane)));
                let labels = Labels { thread, ..point.labels.clone() };
                show(&labels, point, std::slice::from_ref(cell))?;
            }
            if !others.is_empty() {
                let thread = Some(("(others)".to_owned(), None));
                show(&Labels { thread, ..point.labels.clone() }, point, others)?;
            }
        }
        Ok(())
    }
}

/// Losses by kind. Busy cells have a metric of their own.
pub(super) fn losses(snapshot: &Snapshot) -> impl Iterator<Item = (&'static str, u64)> {
    let kinds = Loss::ALL.into_iter().filter(|kind| *kind != Loss::CellsBusy);
    kinds.map(|kind| (kind.name(), snapshot.losses[kind]))
}
