//! The recent measurements of one point: its figures and histogram now, minus those at an earlier
//! moment.
//!
//! Only the point on the Detail screen has such a history. A history of all points would copy the
//! segment twice a second.

use std::collections::VecDeque;

use super::figures::Figures;
use super::histogram;
use pfp_read::snapshot::{Bucket, Stats};

/// Seconds between two stored moments.
const STEP_SECONDS: f64 = 0.5;
/// Number of stored moments, which covers the longest window.
const KEPT: usize = 130;

/// The measurements that the histogram shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistogramWindow {
    /// All measurements since the point was last reset.
    #[default]
    All,
    /// The measurements since the moment that the user marked. Before the user marks a moment, the
    /// measurements since the detail was opened.
    Mark,
    /// The last ten seconds.
    Last10,
    /// The last minute.
    Last60,
}

impl HistogramWindow {
    /// The next window in the cycle.
    #[must_use]
    pub fn next(self) -> Self {
        match self {
            Self::All => Self::Mark,
            Self::Mark => Self::Last10,
            Self::Last10 => Self::Last60,
            Self::Last60 => Self::All,
        }
    }
}

/// A point's figures at one moment.
#[derive(Clone, Debug)]
struct PointSample {
    at_ticks: u64,
    total: Stats,
    buckets: Vec<Bucket>,
}

/// The stored moments of one point.
#[derive(Debug, Default)]
pub struct WindowHistory {
    /// Id and number of resets of the point whose figures are stored.
    of: Option<(u32, u32)>,
    moments: VecDeque<PointSample>,
    mark: Option<PointSample>,
}

/// The measurements in a window.
#[derive(Clone, Debug, PartialEq)]
pub struct WindowStats {
    /// Length of the window; shorter than requested while too little is known.
    pub seconds: f64,
    /// Whether the window begins at the user's mark.
    pub is_marked: bool,
    /// The sums; extremes are since the last reset.
    pub total: Stats,
    /// The histogram.
    pub buckets: Vec<Bucket>,
}

impl WindowHistory {
    /// Adds the point's current figures. Another point, or a reset, starts over.
    pub fn follow(&mut self, now: &Figures, at_ticks: u64, ticks_per_second: f64) {
        let of = Some((now.id(), now.point().resets));
        if self.of != of {
            *self = Self { of, ..Self::default() };
        }
        let due = |last: &PointSample| {
            at_ticks.saturating_sub(last.at_ticks) as f64 >= STEP_SECONDS * ticks_per_second
        };
        if self.moments.back().is_none_or(due) {
            if self.moments.len() == KEPT {
                self.moments.pop_front();
            }
            self.moments.push_back(PointSample::of(now, at_ticks));
        }
    }

    /// Drops all moments except the mark, before the model goes back in time.
    pub fn rewind(&mut self) {
        self.moments.clear();
    }

    /// Starts the window [`HistogramWindow::Mark`] now.
    pub fn mark(&mut self, now: &Figures, at_ticks: u64) {
        self.mark = Some(PointSample::of(now, at_ticks));
    }

    /// The point's measurements in a window. `None` for [`HistogramWindow::All`], and if the
    /// earlier moment is unknown.
    pub fn stats(
        &self,
        since: HistogramWindow,
        now: &Figures,
        at_ticks: u64,
        ticks_per_second: f64,
    ) -> Option<WindowStats> {
        if self.of != Some((now.id(), now.point().resets)) {
            return None;
        }
        let ago = |seconds: f64| {
            let at = |moment: &&PointSample| {
                at_ticks.saturating_sub(moment.at_ticks) as f64 >= seconds * ticks_per_second
            };
            self.moments.iter().rev().find(at).or(self.moments.front())
        };
        let before = match since {
            HistogramWindow::All => None,
            HistogramWindow::Mark => self.mark.as_ref().or(self.moments.front()),
            HistogramWindow::Last10 => ago(10.0),
            HistogramWindow::Last60 => ago(60.0),
        }?;
        let now = PointSample::of(now, at_ticks);
        let total = now.total.since(&before.total)?;
        Some(WindowStats {
            seconds: at_ticks.saturating_sub(before.at_ticks) as f64 / ticks_per_second,
            is_marked: since == HistogramWindow::Mark && self.mark.is_some(),
            total,
            buckets: histogram::subtract(&now.buckets, &before.buckets),
        })
    }
}

impl PointSample {
    fn of(figures: &Figures, at_ticks: u64) -> Self {
        Self { at_ticks, total: figures.total().clone(), buckets: figures.buckets() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::Model;
    use pfp_read::source::synthetic::Synthetic;

    const RATE: f64 = 1e9;

    /// A point with this number of measurements of 100 ticks each, of which every tenth takes
    /// 1,000.
    fn model(count: u64, resets: u32) -> Model {
        let mut snapshot = Synthetic::new().snapshot_mut().clone();
        snapshot.clock.ticks_per_second = RATE;
        snapshot.points.truncate(1);
        snapshot.points[0].resets = resets;
        let id = snapshot.points[0].id;
        let (short, long) = (count - count / 10, count / 10);
        let stats = Stats {
            count,
            exclusive: short * 100 + long * 1000,
            squares: u128::from(short) * 10_000 + u128::from(long) * 1_000_000,
            min: 100,
            max: 1000,
            ..Stats::default()
        };
        let histogram = vec![
            Bucket { low: 100, width: 2, count: short },
            Bucket { low: 992, width: 32, count: long },
        ];
        let lane = snapshot.lanes[0].id;
        let cell =
            pfp_read::snapshot::Cell { point: id, lane, stats, histogram, ..Default::default() };
        snapshot.cells = vec![Arc::new(cell)];
        let mut model = Model::default();
        model.fold(snapshot);
        model
    }

    fn seconds(seconds: f64) -> u64 {
        (seconds * RATE) as u64
    }

    #[test]
    fn the_last_seconds_are_now_less_then() {
        let mut history = WindowHistory::default();
        for step in 0..200 {
            let at = f64::from(step) * 0.5;
            let count = 1000 + 100 * u64::from(step as u32);
            history.follow(&model(count, 0).points()[0], seconds(at), RATE);
        }
        assert_eq!(history.moments.len(), KEPT);
        let now = model(1000 + 100 * 200, 0);
        let now = &now.points()[0];
        let at = seconds(100.0);
        assert_eq!(history.stats(HistogramWindow::All, now, at, RATE), None);
        for (window, length) in [(HistogramWindow::Last10, 10.0), (HistogramWindow::Last60, 60.0)] {
            let stats = history.stats(window, now, at, RATE).expect("that long ago is known");
            assert_eq!(stats.seconds, length);
            // Each half second has 100 measurements, 10 of them long.
            let count = (length * 200.0) as u64;
            assert_eq!(stats.total.count, count);
            assert_eq!(stats.total.mean(), Some(190.0));
            let counts: Vec<u64> = stats.buckets.iter().map(|bucket| bucket.count).collect();
            assert_eq!(counts, [count - count / 10, count / 10]);
            let deviation = stats.total.deviation().expect("many");
            // The deviation of the values is sqrt(0.9 * 0.1) * 900 = 270.
            assert!((deviation - 270.0).abs() < 0.1, "{deviation}");
        }
    }

    #[test]
    fn a_window_is_shorter_while_less_is_known() {
        let mut history = WindowHistory::default();
        history.follow(&model(1000, 0).points()[0], seconds(0.0), RATE);
        let now = model(1500, 0);
        let stats = history.stats(HistogramWindow::Last60, &now.points()[0], seconds(2.0), RATE);
        let stats = stats.expect("since it was opened");
        assert_eq!((stats.seconds, stats.total.count), (2.0, 500));
    }

    #[test]
    fn a_mark_is_where_counting_starts() {
        let mut history = WindowHistory::default();
        history.follow(&model(1000, 0).points()[0], seconds(0.0), RATE);
        history.mark(&model(1200, 0).points()[0], seconds(1.0));
        let now = model(1500, 0);
        let stats = history.stats(HistogramWindow::Mark, &now.points()[0], seconds(3.0), RATE);
        let stats = stats.expect("since the mark");
        assert_eq!((stats.seconds, stats.total.count), (2.0, 300));
    }

    #[test]
    fn a_reset_and_another_point_start_afresh() {
        let mut history = WindowHistory::default();
        history.follow(&model(1000, 0).points()[0], seconds(0.0), RATE);
        history.mark(&model(1000, 0).points()[0], seconds(0.0));
        let reset = model(10, 1);
        assert_eq!(
            history.stats(HistogramWindow::Mark, &reset.points()[0], seconds(1.0), RATE),
            None
        );
        history.follow(&reset.points()[0], seconds(1.0), RATE);
        let now = model(30, 1);
        let stats = history.stats(HistogramWindow::Mark, &now.points()[0], seconds(2.0), RATE);
        assert_eq!(stats.map(|stats| stats.total.count), Some(20));
    }

    #[test]
    fn every_window_has_its_turn() {
        let mut window = HistogramWindow::default();
        let mut seen = Vec::new();
        while !seen.contains(&window) {
            seen.push(window);
            window = window.next();
        }
        assert_eq!(seen.len(), 4);
        assert_eq!(window, HistogramWindow::All);
    }
}
