//! The model: successive snapshots folded into the figures that are shown.
//!
//! The model knows no terminal and no shared memory. Table, detail, text and files all take a
//! point's figures from [`Figures`].
//!
//! The difference of two snapshots shows what happened *between* them:
//!
//! ```text
//! count      1000 ......... 1800      rate = 800 / elapsed seconds
//! exclusive   5e8 ......... 9e8       load = 4e8 / elapsed ticks
//!            |---- interval ----|
//! ```
//!
//! One snapshot alone has no interval, so its rates are over the whole life of the process
//! ([`Basis::Life`]), or over the time since a point's last reset ([`Length::collected`]). If the
//! time of the reset is unknown, a point has no rate.

pub mod alpha;
mod between;
mod busy;
mod calls;
pub mod columns;
pub mod compare;
pub mod cost;
mod figures;
pub mod filter;
pub mod grid;
pub mod headline;
pub mod histogram;
mod history;
mod interval;
pub mod left_over;
mod lifetime;
pub mod log;
pub mod lost;
mod open;
mod point_warning;
pub mod recent;
pub mod roofline;
mod row;
pub mod slow;
pub mod span;
mod stacks;
pub mod threads;
pub mod timeline;
pub mod tree;
mod window;
mod window_history;

use std::collections::HashMap;
use std::sync::Arc;

pub use between::between;
pub use calls::{CallEnd, Calls, Related};
pub use figures::{
    Amount, BYTES, FLOPS, Figures, LaneFigures, TupleFigures, allocs, amounts, heap_samples,
    intensity,
};
pub use histogram::Quantiles;
pub use history::{History, LoadSlice, Sample};
pub use lifetime::Lifetime;
pub(crate) use open::open_regions;
pub use open::{OpenNow, OpenRegion};
pub use point_warning::PointWarning;
pub(crate) use row::PointRow;
pub use stacks::share_out;
pub use stacks::{Stacks, WeighedBy, Weight};
pub use tree::Frame;
pub use window::{Length, PointWindow};
pub use window_history::{HistogramWindow, WindowHistory, WindowStats};

use interval::{Interval, of_place, own_intervals, seconds};
use pfp_read::snapshot::{LaneKind, PointFlag, PointState, ProcessState, Snapshot};

/// Default time constant of the smoothed load, seconds.
pub const TAU_SECONDS: f64 = 5.0;

/// Maximum number of histogram buckets that are added up before the next frame is drawn; this many
/// take some milliseconds. If there are more buckets, some rows show older figures.
pub(crate) const BUCKETS_AT_ONCE: usize = 1 << 20;

/// The time over which rates and loads are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The whole life of the process.
    Life,
    /// The time since the previous snapshot.
    Interval,
}

/// The news about the process as a whole that [`Model::fold`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// A later snapshot of the same process.
    Later,
    /// Another process than before; all state of the old one is dropped.
    Replaced,
    /// The process ran before and has ended now.
    Ended,
}

/// Maximum number of reasons that have a number, and the name of all further ones.
const MOST_REASONS: usize = 1_000;
const OTHER_REASONS: &str = "other waits";

/// All figures that the views show.
#[derive(Debug)]
pub struct Model {
    snapshot: Option<Arc<Snapshot>>,
    points: Vec<Figures>,
    threads: Vec<threads::Thread>,
    open: Vec<OpenRegion>,
    basis: Basis,
    tau_seconds: f64,
    busy: busy::Busy,
    /// The reasons of waits that have a number, and their numbers.
    reasons: Vec<Arc<str>>,
    reason_numbers: HashMap<Arc<str>, u32>,
}

impl Default for Model {
    fn default() -> Self {
        Self::new(TAU_SECONDS)
    }
}

impl Model {
    /// A model without a snapshot; `tau_seconds` is the time constant of the load.
    pub fn new(tau_seconds: f64) -> Self {
        Self {
            snapshot: None,
            points: Vec::new(),
            threads: Vec::new(),
            open: Vec::new(),
            basis: Basis::Life,
            tau_seconds,
            busy: busy::Busy::default(),
            reasons: Vec::new(),
            reason_numbers: HashMap::new(),
        }
    }

    /// A model of one snapshot.
    pub fn of(snapshot: impl Into<Arc<Snapshot>>) -> Self {
        let mut model = Self::default();
        model.fold(snapshot);
        model
    }

    /// Folds the next snapshot into the model.
    pub fn fold(&mut self, snapshot: impl Into<Arc<Snapshot>>) -> News {
        let snapshot = snapshot.into();
        let before = self.snapshot.replace(Arc::clone(&snapshot));
        let before = before.filter(|b| b.process.segment_id == snapshot.process.segment_id);
        let Some(before) = before else {
            let news = if self.points.is_empty() { News::Later } else { News::Replaced };
            self.basis = Basis::Life;
            self.points = Figures::all(&snapshot);
            let seconds = seconds(&snapshot, snapshot.elapsed_ticks);
            self.open = open_regions(&snapshot);
            self.threads = threads::life(&snapshot, &self.open, seconds);
            self.show_open();
            for figures in &mut self.points {
                figures.take_life();
            }
            self.busy = busy::Busy::default();
            self.remember_top();
            return news;
        };

        let ran = |s: &Snapshot| s.process.state == ProcessState::Running;
        let elapsed = snapshot.elapsed_ticks.checked_sub(before.elapsed_ticks);
        // Both lists are in the order of their ids.
        let mut old =
            std::mem::replace(&mut self.points, Figures::all(&snapshot)).into_iter().peekable();
        // If the process has ended or its clock stands still, nothing happens between snapshots:
        // the last figures stay.
        let interval = elapsed.filter(|&ticks| ticks > 0 && ran(&before));
        let tau_seconds = self.tau_seconds;
        let interval_of = |ticks| Interval::of(ticks, &snapshot, tau_seconds);
        if let Some(ticks) = interval {
            self.basis = Basis::Interval;
            self.busy.take(&before, &snapshot, interval_of(ticks));
        }
        let were_open = std::mem::replace(&mut self.open, open_regions(&snapshot));
        self.show_open();
        let grown = match interval {
            // Regions that were open when the process ended are not part of any figure.
            Some(ticks) if ran(&snapshot) => open::grown(&were_open, &self.open, ticks),
            _ => Vec::new(),
        };
        // After a reset, an open region's own time is unknown.
        let is_reset = !self.open.is_empty() && was_reset(&before, &snapshot);
        let ends = ran(&before) && !ran(&snapshot);
        let own = own_intervals(&before, &snapshot);
        self.threads = match interval {
            _ if ends => threads::end(&snapshot, seconds(&snapshot, snapshot.elapsed_ticks)),
            Some(ticks) => {
                let (grown, interval) =
                    (if is_reset { &[][..] } else { &grown }, interval_of(ticks));
                threads::interval(&snapshot, &before, &self.threads, grown, &own, interval)
            }
            None => threads::keep(&snapshot, &self.threads),
        };
        for figures in &mut self.points {
            while old.next_if(|old| old.id() < figures.id()).is_some() {}
            let old = old.next_if(|old| old.id() == figures.id());
            // Each process of a group may have been polled at other times than the group, so it has
            // an interval of its own.
            let of_process = of_place(&own, figures.point().process);
            let interval = interval.map(|ticks| of_process.unwrap_or(ticks));
            // Figures from before a process joined do not belong to this interval.
            let joined = old.is_none() && figures.process().is_some_and(|p| !before.knows(p));
            // After a process has ended, a point of it shows the load over the process's life.
            let ended = figures.process().is_some() && figures.is_ended();
            let had_ended = old.as_ref().is_some_and(Figures::is_ended);
            match interval {
                _ if had_ended => figures.keep(old),
                Some(_) if ended => {
                    figures.keep(old);
                    figures.take_end();
                }
                Some(_) if joined => {}
                Some(_) if figures.is_late() || old.as_ref().is_some_and(Figures::is_late) => {
                    figures.keep(old);
                    figures.take_gap();
                }
                // The process has not been read again since, so loads and rates stay.
                Some(0) => figures.keep(old),
                Some(ticks) => {
                    let of_point = grown.iter().filter(|((_, point), _)| *point == figures.id());
                    let open = match is_reset && figures.open().is_some() {
                        true => None,
                        false => Some(of_point.map(|(_, ticks)| ticks).sum()),
                    };
                    figures.take_interval(old, open, &own, interval_of(ticks));
                }
                None => figures.keep(old),
            }
            if ends {
                figures.take_end();
            }
        }
        if interval.is_some() {
            self.remember_top();
        }
        if ends { News::Ended } else { News::Later }
    }

    /// The number of a reason of waits, for [`Frame::Wait`]. If there are too many reasons, the
    /// further ones share a number.
    pub fn reason_number(&mut self, reason: &str) -> u32 {
        if let Some(number) = self.reason_numbers.get(reason) {
            return *number;
        }
        let number = self.reasons.len();
        if number < MOST_REASONS {
            let reason: Arc<str> = reason.into();
            self.reasons.push(Arc::clone(&reason));
            self.reason_numbers.insert(reason, number as u32);
        }
        number as u32
    }

    /// The reason with this number, as in `lock JOBS`.
    pub fn reason(&self, number: u32) -> &str {
        self.reasons.get(number as usize).map_or(OTHER_REASONS, |reason| reason)
    }

    fn remember_top(&mut self) {
        let newest = |figures: &Figures| figures.history().last(1).next()?.load;
        let of_cpus = self.points.iter().filter(|figures| !figures.point().device);
        let most = |load: &dyn Fn(&Figures) -> Option<f64>| {
            of_cpus.clone().filter_map(load).fold(0.0, f64::max)
        };
        self.busy.remember(most(&newest), most(&Figures::load));
    }

    /// Number of CPUs that the process uses, by the kernel's count of its CPU time, smoothed.
    /// `None` if unknown.
    pub fn busy_cpus(&self) -> Option<f64> {
        self.busy.cpus
    }

    /// The upper end of a scale for all loads on the screen, and for nearly all loads of the last
    /// polls.
    pub fn load_scale(&self) -> f64 {
        self.busy.scale()
    }

    /// The point with the greatest load.
    pub fn hottest(&self) -> Option<&Figures> {
        let load = |figures: &&Figures| figures.load().unwrap_or(0.0);
        let of_cpus = self.points.iter().filter(|figures| !figures.point().device);
        let hottest = of_cpus.max_by(|a, b| load(a).total_cmp(&load(b)))?;
        (load(&hottest) > 0.0).then_some(hottest)
    }

    /// Stores the open regions in their points.
    fn show_open(&mut self) {
        if self.open.is_empty() {
            return;
        }
        for figures in &mut self.points {
            figures.open = OpenNow::of(figures.id(), &self.open);
        }
    }

    /// Marks a time without snapshots, so that histories show a gap.
    pub fn pause(&mut self) {
        for figures in &mut self.points {
            figures.mark_gap();
        }
    }

    /// From now on, counts the growth of live memory from this moment.
    pub fn mark_live(&mut self) {
        self.points.iter_mut().for_each(Figures::mark_live);
    }

    /// Shows a change of a point's state at once; the next snapshot confirms it.
    pub fn expect_state(&mut self, id: u32, state: PointState) {
        if let Ok(place) = self.place(id) {
            self.points[place].state = state;
        }
    }

    /// Shows a change of a point's flag at once; the next snapshot confirms it.
    pub fn expect_flag(&mut self, id: u32, flag: PointFlag, on: bool) {
        if let Ok(place) = self.place(id) {
            self.points[place].flags[flag as usize] = on;
        }
    }

    /// The last snapshot. `None` before the first.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        self.snapshot.as_deref()
    }

    /// The last snapshot, for a caller that stores it.
    pub fn shared_snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.clone()
    }

    /// Time constant of the smoothed load, seconds.
    pub fn tau_seconds(&self) -> f64 {
        self.tau_seconds
    }

    /// Whether the process has ended.
    pub fn has_ended(&self) -> bool {
        self.snapshot().is_some_and(|last| last.process.state != ProcessState::Running)
    }

    /// The time over which rates and loads are taken.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// The points, in the order of their ids.
    pub fn points(&self) -> &[Figures] {
        &self.points
    }

    /// One point.
    pub fn point(&self, id: u32) -> Option<&Figures> {
        self.place(id).ok().map(|place| &self.points[place])
    }

    /// The threads, in the order of their lanes.
    pub fn thread_figures(&self) -> &[threads::Thread] {
        &self.threads
    }

    /// The open regions of running threads, lane by lane, the outermost first.
    pub fn open_regions(&self) -> &[OpenRegion] {
        &self.open
    }

    /// Whether the model has the points of several processes side by side.
    pub fn has_processes(&self) -> bool {
        self.points.first().is_some_and(|figures| figures.point().process.is_some())
    }

    /// Number of running threads that have measured.
    pub fn threads(&self) -> usize {
        self.snapshot().map_or(0, |snapshot| {
            snapshot.lanes.iter().filter(|lane| lane.kind == LaneKind::Live).count()
        })
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        self.points.binary_search_by_key(&id, Figures::id)
    }
}

/// Whether a point was reset between two snapshots.
fn was_reset(before: &Snapshot, now: &Snapshot) -> bool {
    let mut old = before.points.iter().peekable();
    now.points.iter().any(|point| {
        while old.next_if(|old| old.id < point.id).is_some() {}
        let same = old.next_if(|old| old.id == point.id);
        same.is_some_and(|same| same.resets != point.resets)
    })
}

#[cfg(test)]
mod tests;
