//! The subject of an export: the figures of one snapshot, and the points to export.

use std::collections::HashMap;
use std::sync::Arc;

use super::moments::AllocsAt;
use pfp_model::{Figures, Model, WeighedBy};
use pfp_read::snapshot::{Process, Snapshot};

/// Plausible rates of a clock, ticks per second.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=1e12;

/// A snapshot to export.
#[derive(Debug)]
pub struct Subject<'a> {
    model: &'a Model,
    snapshot: Arc<Snapshot>,
    points: Vec<ExportedPoint<'a>>,
    /// Whether to export figures thread by thread.
    pub per_thread: bool,
    /// What `folded` weighs stacks by.
    pub weighed_by: WeighedBy,
    /// The moments at which a trace shows allocations, in the order of time. If it is empty, the
    /// snapshot is the only moment.
    pub moments: Vec<AllocsAt>,
    /// With figures thread by thread, in formats that number lanes: this lane and all later ones
    /// are exported as one.
    pub lanes_apart: u32,
    /// Whether to export histograms, in formats where they are optional.
    pub histograms: bool,
    /// The time at which the sums begin.
    pub begin: Begin,
    ticks_per_second: f64,
}

/// Begin of a process's sums, nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub struct Begin {
    /// Time at which its segment was created.
    pub segment_unix_ns: u64,
    /// Time of the first poll; if the clock rate has changed since, time of the first poll with the
    /// new rate. Figures that resets discarded before the first poll are unknown.
    pub watched_unix_ns: u64,
    /// Whether the clock rate has changed since the first poll, so that no sum continues from
    /// before the change.
    pub rebased: bool,
}

impl Begin {
    /// Begin of the sums of a point that had been reset this many times at the first poll.
    pub fn of(self, resets: u32) -> u64 {
        match self.rebased || resets > 0 {
            true => self.watched_unix_ns,
            false => self.segment_unix_ns,
        }
    }
}

/// An exported point.
#[derive(Clone, Debug)]
pub struct ExportedPoint<'a> {
    /// The figures of the point.
    pub figures: &'a Figures,
    /// The name of the point, made unique in its process: if two points have the same name, the
    /// place in the source is added. If the place is equal as well, the point's number is added.
    pub label: String,
}

impl<'a> Subject<'a> {
    /// Exports the points of the model's last snapshot that pass. `None` before the model's first
    /// snapshot.
    pub fn new(
        model: &'a Model,
        passes: impl Fn(&Figures) -> bool,
        per_thread: bool,
    ) -> Option<Self> {
        let snapshot = model.shared_snapshot()?;
        let labels = labels(model.points());
        let shown = model.points().iter().zip(labels).filter(|(figures, _)| passes(figures));
        let points = shown.map(|(figures, label)| ExportedPoint { figures, label }).collect();
        let rate = snapshot.clock.ticks_per_second;
        // A damaged file must not cause a division by zero.
        let ticks_per_second = if PLAUSIBLE.contains(&rate) { rate } else { 1e9 };
        let lanes_apart = u32::MAX;
        let begin = Begin {
            segment_unix_ns: snapshot.process.started_unix_ns,
            watched_unix_ns: snapshot.taken_unix_ns,
            rebased: false,
        };
        Some(Self {
            model,
            snapshot,
            points,
            per_thread,
            weighed_by: WeighedBy::Time,
            moments: Vec::new(),
            lanes_apart,
            histograms: true,
            begin,
            ticks_per_second,
        })
    }

    /// The exported snapshot.
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// The model behind the snapshot.
    pub fn model(&self) -> &'a Model {
        self.model
    }

    /// The points, in the order of their ids.
    pub fn points(&self) -> &[ExportedPoint<'a>] {
        &self.points
    }

    /// A point, if it is exported.
    pub fn point(&self, id: u32) -> Option<&ExportedPoint<'a>> {
        let place = self.points.binary_search_by_key(&id, |shown| shown.figures.id());
        place.ok().map(|place| &self.points[place])
    }

    /// The name of a thread, or the number of its lane if the thread has no name.
    pub fn thread(&self, id: u32) -> String {
        let name =
            self.snapshot.lane(id).map(|lane| lane.name.as_str()).filter(|name| !name.is_empty());
        name.map_or_else(|| format!("lane {id}"), str::to_owned)
    }

    /// The process of a point: its own if the point has one, else the snapshot's.
    pub fn process(&self, figures: &'a Figures) -> &Process {
        figures.process().unwrap_or(&self.snapshot.process)
    }

    /// Ticks per second; never zero.
    pub fn ticks_per_second(&self) -> f64 {
        self.ticks_per_second
    }

    /// Ticks as nanoseconds, with the fraction.
    pub fn ns(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.ticks_per_second
    }

    /// Ticks as whole nanoseconds. Rounding keeps the order of moments.
    pub fn whole_ns(&self, ticks: u64) -> u64 {
        // In integers: a double cannot hold the nanoseconds of a long life exactly.
        let per_1000_s = ((self.ticks_per_second * 1000.0).round() as u128).max(1);
        let ns = (u128::from(ticks) * 1_000_000_000_000 + per_1000_s / 2) / per_1000_s;
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

fn labels(points: &[Figures]) -> Vec<String> {
    let of = |figures: &Figures| figures.point().process;
    let place = |figures: &Figures| {
        let point = figures.point();
        format!("{} ({}:{})", figures.name(), point.file, point.line)
    };
    let mut names: HashMap<(Option<u32>, String), usize> = HashMap::new();
    for figures in points {
        *names.entry((of(figures), figures.name())).or_default() += 1;
    }
    let mut places: HashMap<(Option<u32>, String), usize> = HashMap::new();
    let is_lone = |figures: &Figures| names[&(of(figures), figures.name())] == 1;
    for figures in points.iter().filter(|figures| !is_lone(figures)) {
        *places.entry((of(figures), place(figures))).or_default() += 1;
    }
    let label = |figures: &Figures| {
        if is_lone(figures) {
            return figures.name();
        }
        let at = place(figures);
        // A name may have been chosen to look like another point's label.
        let key = (of(figures), at);
        match places[&key] == 1 && !names.contains_key(&key) {
            true => key.1,
            false => format!("{} #{}", key.1, figures.id()),
        }
    };
    points.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn points_of_the_same_name_get_unique_labels() {
        let mut source = Synthetic::new();
        for (id, name, line) in
            [(1, "same", 7), (2, "same", 8), (3, "twin", 9), (4, "twin", 9), (5, "", 1)]
        {
            let point = &mut source.snapshot_mut().points[id];
            (point.name, point.line) = (name.into(), line);
        }
        let model = Model::of(source.poll().unwrap());
        let subject = Subject::new(&model, |figures| figures.id() > 0, false).unwrap();
        let labels: Vec<_> = subject.points().iter().map(|shown| shown.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "same (src/work.rs:7)",
                "same (src/work.rs:8)",
                "twin (src/work.rs:9) #3",
                "twin (src/work.rs:9) #4",
                "#5",
                "sort.recursive",
                "net.wait",
                "config.reload"
            ]
        );
        assert!(subject.point(0).is_none() && subject.point(8).is_some());
    }

    #[test]
    fn nanoseconds_are_exact_after_years() {
        let model = Model::of(Synthetic::new().poll().unwrap());
        let subject = Subject::new(&model, |_| true, false).unwrap();
        // Two years of a 2.6 GHz clock, and thirteen ticks.
        let years = 2_600_000_000 * 63_072_000;
        assert_eq!(subject.whole_ns(years + 13), 63_072_000_000_000_005);
        assert_eq!(subject.whole_ns(u64::MAX), 7_094_901_566_811_366_006);
    }
}
