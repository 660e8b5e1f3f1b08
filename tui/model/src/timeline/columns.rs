//! Divides the regions of a timeline into columns of the screen, and joins adjacent columns that
//! look alike into runs.

use std::ops::Range;

use super::{Region, ThreadTrack, TimelineLevel};

/// The visible part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelineWindow {
    /// Begin of the window, ticks since the segment was created.
    pub from: u64,
    /// Length of the window; at least one tick.
    pub ticks: u64,
    /// Number of columns in which it is drawn.
    pub columns: usize,
}

impl TimelineWindow {
    /// The position of a moment, in columns; it may be outside the window.
    pub fn place(&self, at: u64) -> f64 {
        let since =
            if at >= self.from { (at - self.from) as f64 } else { -((self.from - at) as f64) };
        since / self.ticks.max(1) as f64 * self.columns as f64
    }

    /// The column of a moment. `None` outside the window.
    pub fn column(&self, at: u64) -> Option<usize> {
        let place = self.place(at);
        (0.0..self.columns as f64).contains(&place).then_some(place as usize)
    }
}

/// The content of one column of a level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimelineColumn {
    /// Number of regions that are in it, at least in part.
    pub regions: u32,
    /// Number of regions that begin in it.
    pub begun: u32,
    /// Index of the region that takes most of it.
    pub most: Option<usize>,
    /// Share of the column that is covered by regions.
    pub covered: f64,
    /// Share of the column in which regions were on a CPU.
    pub on: f64,
    /// Share of the column that the region `most` takes.
    best: f64,
}

impl TimelineColumn {
    /// The CPU share to show: of the region if there is one, of the column if there are many.
    pub fn on_share(&self) -> f64 {
        let of = if self.regions > 1 { self.covered.max(1.0) } else { self.covered };
        if of > 0.0 { (self.on / of).min(1.0) } else { 1.0 }
    }
}

/// Adjacent columns that show the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRun {
    /// The columns.
    pub columns: Range<usize>,
    /// Index in the level of the region that the run shows, or of one of the regions.
    pub region: usize,
    /// Number of short regions of one point that the run combines. `None` for a single region.
    pub many: Option<u32>,
}

/// The columns of every level of a thread.
pub fn columns(track: &ThreadTrack, window: TimelineWindow) -> Vec<Vec<TimelineColumn>> {
    let mut all: Vec<Vec<TimelineColumn>> = vec![Vec::new(); track.levels.len()];
    // Go from the innermost level out: a region was on a CPU if the regions inside it were.
    for (place, level) in track.levels.iter().enumerate().rev() {
        let inside = track.levels.get(place + 1).filter(|inside| inside.strand == level.strand);
        let inside = inside.map(|_| all[place + 1].clone());
        all[place] = of_level(level, inside.as_deref(), window);
    }
    all
}

fn of_level(
    level: &TimelineLevel,
    inside: Option<&[TimelineColumn]>,
    window: TimelineWindow,
) -> Vec<TimelineColumn> {
    let mut columns = vec![TimelineColumn::default(); window.columns];
    for (place, region) in level.regions.iter().enumerate() {
        let Some((range, from, to)) = taken(region, window) else { continue };
        let own = region.on_share();
        for column in range.clone() {
            let covered = (to.min((column + 1) as f64) - from.max(column as f64)).clamp(0.0, 1.0);
            let found = &mut columns[column];
            let (nested, nested_on) = match inside.map(|inside| &inside[column]) {
                Some(inside) if inside.covered > 0.0 && region.nested > 0 => {
                    let nested = inside.covered.min(covered);
                    (nested, nested * (inside.on / inside.covered).min(1.0))
                }
                _ => (0.0, 0.0),
            };
            found.regions += 1;
            found.begun += u32::from(column == range.start && from >= 0.0);
            found.covered += covered;
            found.on += (covered - nested) * own + nested_on;
            if found.most.is_none() || covered > found.best {
                found.best = covered;
                found.most = Some(place);
            }
        }
    }
    columns
}

/// The columns of a region, at least one, with its exact begin and end in columns. `None` if the
/// region is outside the window.
fn taken(region: &Region, window: TimelineWindow) -> Option<(Range<usize>, f64, f64)> {
    let (from, to) = (window.place(region.start), window.place(region.end));
    if to < 0.0 || from >= window.columns as f64 || window.columns == 0 {
        return None;
    }
    let first = from.max(0.0) as usize;
    let last = (to.ceil() as usize).clamp(first + 1, window.columns.max(first + 1));
    Some((first..last.min(window.columns), from, to))
}

/// The runs of a level, from left to right.
pub fn runs(
    level: &TimelineLevel,
    columns: &[TimelineColumn],
    window: TimelineWindow,
) -> Vec<ColumnRun> {
    let mut runs: Vec<ColumnRun> = Vec::new();
    for (place, column) in columns.iter().enumerate() {
        let Some(most) = column.most else { continue };
        let region = &level.regions[most];
        let is_long = window.place(region.end) - window.place(region.start) >= 1.5;
        let many = (column.regions > 1 && !is_long).then_some(column.begun);
        if let Some(last) = runs.last_mut().filter(|last| last.columns.end == place) {
            let same = match (last.many, many) {
                (None, None) => last.region == most,
                (Some(_), Some(_)) => level.regions[last.region].point == region.point,
                _ => false,
            };
            if same {
                last.columns.end = place + 1;
                last.many = last.many.map(|n| n + many.unwrap_or(0));
                continue;
            }
        }
        runs.push(ColumnRun { columns: place..place + 1, region: most, many });
    }
    runs
}
