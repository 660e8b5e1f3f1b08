//! A point's measurements in a window of time: the difference of two snapshots, histograms
//! included.
//!
//! ```text
//! process  |--------------------|=====================|
//!        start                baseline               now
//!               before                  since
//! ```
//!
//! A snapshot has sums since the point's last reset, so a window is the growth between two
//! snapshots. Two consecutive windows share no measurement. If a point was reset within its window,
//! the window begins at the reset ([`Length::collected`]).

use super::figures::allocs;
use super::histogram::{edges_of, number_of, spread};
use pfp_read::snapshot::{Allocs, Point, Snapshot, Stats, total};

/// The measurements of one point in a window of time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PointWindow {
    /// Number of measurements.
    pub count: u64,
    /// Sum of their exclusive ticks.
    pub exclusive: f64,
    /// Length of the window. `None` after a reset at an unknown time.
    pub length: Option<Length>,
    /// Measurements by bucket number, in rising order. The counts are integers unless they were
    /// converted to another clock.
    pub spread: Vec<(u64, f64)>,
    /// What the measurements have allocated.
    pub allocs: WindowAllocs,
}

/// What the measurements of a window have allocated, without nested regions that count theirs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowAllocs {
    /// Measurements that counted their allocations.
    pub calls: u64,
    /// Allocations.
    pub allocs: u64,
    /// Allocated bytes.
    pub bytes: u64,
}

impl WindowAllocs {
    fn combined(self, other: Self, with: fn(u64, u64) -> u64) -> Self {
        Self {
            calls: with(self.calls, other.calls),
            allocs: with(self.allocs, other.allocs),
            bytes: with(self.bytes, other.bytes),
        }
    }
}

/// The length of a window, by the process's clock and in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Length {
    /// Ticks.
    pub ticks: f64,
    /// Seconds.
    pub seconds: f64,
}

impl Length {
    /// The time over which a point's figures were collected: since its last reset, or since its
    /// process began. `None` if the begin of that time is unknown or was just now.
    pub fn collected(snapshot: &Snapshot, point: &Point) -> Option<Self> {
        Self::between(point.begin_ticks()?, snapshot)
    }

    fn between(before: u64, to: &Snapshot) -> Option<Self> {
        let ticks = to.elapsed_ticks.saturating_sub(before) as f64;
        let seconds = ticks / to.clock.ticks_per_second;
        (ticks > 0.0).then_some(Self { ticks, seconds })
    }
}

impl PointWindow {
    /// The point's measurements after `from` and up to `to`, two snapshots of one process; without
    /// `from`, since its last reset. `None` if `to` does not have the point.
    pub fn between(from: Option<&Snapshot>, to: &Snapshot, id: u32) -> Option<Self> {
        let life = from.map(|from| Self::life(from, id)).unwrap_or_default();
        Self::since(from.map(|from| (from, &life)), to, id)
    }

    /// Like [`Self::between`], given the point's measurements up to `from`.
    pub(crate) fn since(from: Option<(&Snapshot, &Self)>, to: &Snapshot, id: u32) -> Option<Self> {
        let point = to.point(id)?;
        let mut window = Self::life(to, id);
        let old = from.and_then(|(from, _)| from.point(id));
        window.length = match (from, old) {
            (Some((from, life)), Some(old)) if old.resets == point.resets => {
                window.subtract(life);
                Length::between(from.elapsed_ticks, to)
            }
            // The process existed when the window began, but the point did not.
            (Some((from, _)), None) if knows_process(from, to, point) => point
                .begin_ticks()
                .and_then(|begin| Length::between(begin.max(from.elapsed_ticks), to)),
            _ => Length::collected(to, point),
        };
        Some(window)
    }

    /// The empty window of a point that does not exist. `before` is its start, in ticks since the
    /// segment was created.
    pub fn empty(before: u64, to: &Snapshot) -> Self {
        Self { length: Length::between(before, to), ..Self::default() }
    }

    /// All measurements since the point's last reset.
    pub(crate) fn life(snapshot: &Snapshot, id: u32) -> Self {
        let cells = snapshot.cells_of(id);
        let Stats { count, exclusive, .. } = total(cells);
        let spread = spread(cells.iter().flat_map(|cell| &cell.histogram));
        let Allocs { calls, allocs, bytes, .. } = allocs(cells);
        let allocs = WindowAllocs { calls, allocs, bytes };
        Self { count, exclusive: exclusive as f64, length: None, spread, allocs }
    }

    /// Number of histogram buckets of a point, over all lanes.
    pub(crate) fn buckets(snapshot: &Snapshot, id: u32) -> usize {
        snapshot.cells_of(id).iter().map(|cell| cell.histogram.len()).sum()
    }

    fn subtract(&mut self, earlier: &Self) {
        self.count = self.count.saturating_sub(earlier.count);
        self.exclusive = (self.exclusive - earlier.exclusive).max(0.0);
        self.allocs = self.allocs.combined(earlier.allocs, u64::saturating_sub);
        let mut old = earlier.spread.iter().peekable();
        for (number, count) in &mut self.spread {
            while old.next_if(|(at, _)| at < number).is_some() {}
            if let Some((_, before)) = old.next_if(|(at, _)| at == number) {
                *count -= before;
            }
        }
        self.spread.retain(|(_, count)| *count > 0.0);
    }

    /// Converts to ticks of another clock, which advances by `ratio` ticks in one tick of this
    /// clock. If a converted bucket overlaps several buckets, it is divided in proportion to the
    /// overlaps.
    #[must_use]
    pub fn in_other_ticks(&self, ratio: f64) -> Self {
        let mut spread: Vec<(u64, f64)> = Vec::new();
        for (number, count) in &self.spread {
            let (low, high) = edges_of(*number);
            let (low, high) = (low * ratio, high * ratio);
            let last = number_of(high as u64);
            for other in number_of(low as u64)..=last {
                let (from, to) = edges_of(other);
                let share = (high.min(to) - low.max(from)) / (high - low);
                if share > 0.0 {
                    spread.push((other, count * share));
                }
            }
        }
        spread.sort_by_key(|(number, _)| *number);
        add_up(&mut spread);
        let length = self
            .length
            .map(|length| Length { ticks: length.ticks * ratio, seconds: length.seconds });
        let exclusive = self.exclusive * ratio;
        Self { count: self.count, exclusive, length, spread, allocs: self.allocs }
    }

    /// Adds another point's measurements. If the lengths differ, because a point was reset, the
    /// result has the longer one.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut spread = [self.spread.as_slice(), &other.spread].concat();
        spread.sort_by_key(|(number, _)| *number);
        add_up(&mut spread);
        Self {
            count: self.count.saturating_add(other.count),
            exclusive: self.exclusive + other.exclusive,
            length: self
                .length
                .zip(other.length)
                .map(|(one, other)| if other.ticks > one.ticks { other } else { one }),
            spread,
            allocs: self.allocs.combined(other.allocs, u64::saturating_add),
        }
    }

    /// Allocations of a call. `None` if no call counted them.
    pub fn allocs_per_call(&self) -> Option<f64> {
        self.per_call(self.allocs.allocs)
    }

    /// Allocated bytes of a call. `None` if no call counted them.
    pub fn alloc_bytes_per_call(&self) -> Option<f64> {
        self.per_call(self.allocs.bytes)
    }

    fn per_call(&self, sum: u64) -> Option<f64> {
        (self.allocs.calls > 0).then(|| sum as f64 / self.allocs.calls as f64)
    }

    /// Mean exclusive ticks. `None` without a measurement.
    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.exclusive / self.count as f64)
    }

    /// Measurements per second.
    pub fn rate(&self) -> Option<f64> {
        self.length.map(|length| self.count as f64 / length.seconds)
    }

    /// Share of one CPU.
    pub fn load(&self) -> Option<f64> {
        self.length.map(|length| self.exclusive / length.ticks)
    }

    /// The number of measurements in the buckets: fewer than all if the segment had no space for
    /// all buckets.
    pub fn in_buckets(&self) -> f64 {
        self.spread.iter().map(|(_, count)| count).sum()
    }

    /// The quantile of exclusive ticks, as if measurements were spread evenly over their buckets: a
    /// bucket is 3 % wide, and jumps from one middle to the next would look like changes.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let wanted = share * self.in_buckets();
        let mut so_far = 0.0;
        for (number, count) in &self.spread {
            if so_far + count >= wanted {
                let (low, high) = edges_of(*number);
                return Some(low + (high - low) * ((wanted - so_far) / count).clamp(0.0, 1.0));
            }
            so_far += count;
        }
        self.spread.last().map(|(number, _)| edges_of(*number).1)
    }
}

/// Merges equal adjacent buckets.
fn add_up(spread: &mut Vec<(u64, f64)>) {
    spread.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 += next.1;
        }
        same
    });
}

/// Whether `from` has the process of a point, or all processes over which the point is summed.
fn knows_process(from: &Snapshot, to: &Snapshot, point: &Point) -> bool {
    match point.process {
        Some(_) => to.member(point.process).is_none_or(|member| from.knows(member)),
        None => to.process.members.iter().all(|member| from.knows(member)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::synthetic::{Synthetic, TICKS_PER_SECOND};
    use pfp_read::source::{Change, Source};

    fn polls(n: usize) -> (Synthetic, Vec<Snapshot>) {
        let mut source = Synthetic::new();
        let snapshots = source.polls(n);
        (source, snapshots)
    }

    #[test]
    fn two_windows_make_up_the_whole_and_share_nothing() {
        let (_, s) = polls(6);
        for id in 1..8 {
            let before = PointWindow::between(None, &s[2], id).unwrap();
            let since = PointWindow::between(Some(&s[2]), &s[5], id).unwrap();
            let whole = PointWindow::between(None, &s[5], id).unwrap();
            assert_eq!(before.count + since.count, whole.count);
            assert_eq!(before.exclusive + since.exclusive, whole.exclusive);
            assert_eq!(before.in_buckets() + since.in_buckets(), whole.in_buckets());
            assert_eq!(since.in_buckets(), since.count as f64);
            let seconds = |window: &PointWindow| window.length.unwrap().seconds;
            assert_eq!(seconds(&since), 3.0);
            assert_eq!(seconds(&before) + seconds(&since), seconds(&whole));
        }
    }

    #[test]
    fn a_window_has_the_growth_between_two_snapshots() {
        let (_, s) = polls(2);
        let exclusive = |s: &Snapshot| -> u64 {
            s.cells.iter().filter(|cell| cell.point == 3).map(|cell| cell.stats.exclusive).sum()
        };
        let window = PointWindow::between(Some(&s[0]), &s[1], 3).unwrap();
        let ticks = (exclusive(&s[1]) - exclusive(&s[0])) as f64;
        assert_eq!(window.load(), Some(ticks / TICKS_PER_SECOND as f64));
        assert_eq!(window.rate(), Some(window.count as f64));
        assert_eq!(window.mean(), Some(ticks / window.count as f64));
    }

    #[test]
    fn a_window_with_a_reset_begins_there() {
        let (mut source, mut s) = polls(3);
        source.act(Change::Reset(1)).unwrap();
        s.extend(source.polls(4));
        let count = |s: &Snapshot| -> u64 {
            s.cells.iter().filter(|cell| cell.point == 1).map(|cell| cell.stats.count).sum()
        };
        // A reset at the third poll; polls are a second apart.
        for (from, to, before, seconds) in [
            (None, 6, 0, 4.0),
            (Some(0), 6, 0, 4.0),
            (Some(2), 4, 0, 2.0),
            (Some(4), 6, count(&s[4]), 2.0),
        ] {
            let window = PointWindow::between(from.map(|from| &s[from]), &s[to], 1).unwrap();
            assert_eq!(window.length.unwrap().seconds, seconds, "{from:?}");
            assert_eq!(window.rate(), Some((count(&s[to]) - before) as f64 / seconds), "{from:?}");
        }
        let whole = PointWindow::between(None, &s[6], 2).unwrap();
        assert_eq!(whole.length.unwrap().ticks, s[6].elapsed_ticks as f64, "not reset");
    }

    #[test]
    fn after_a_reset_of_unknown_time_there_are_measurements_but_no_length() {
        let (mut source, s) = polls(3);
        source.act(Change::Reset(1)).unwrap();
        source.snapshot_mut().points[1].since_ticks = None;
        let now = source.poll().unwrap();
        let window = PointWindow::between(Some(&s[2]), &now, 1).unwrap();
        assert!(
            window.count > 0 && window.count < PointWindow::between(None, &s[2], 1).unwrap().count
        );
        assert_eq!((window.length, window.load(), window.rate()), (None, None, None));
        assert!(PointWindow::between(Some(&s[2]), &now, 2).unwrap().length.is_some());
    }

    #[test]
    fn converting_to_another_clock_keeps_all_measurements() {
        let (_, s) = polls(4);
        let window = PointWindow::between(None, &s[3], 1).unwrap();
        for ratio in [0.31, 0.98, 1.0, 1.07, 2.0] {
            let other = window.in_other_ticks(ratio);
            assert!((other.in_buckets() / window.in_buckets() - 1.0).abs() < 1e-9, "{ratio}");
            for share in [0.1, 0.5, 0.9, 0.99] {
                let expected = window.quantile(share).unwrap() * ratio;
                let found = other.quantile(share).unwrap();
                assert!((found / expected - 1.0).abs() < 0.03, "{ratio} {share}: {found}");
            }
            assert_eq!(
                other.load().map(|load| (load * 1e6).round()),
                window.load().map(|load| (load * 1e6).round())
            );
        }
        assert_eq!(window.in_other_ticks(1.0).spread, window.spread);
    }
}
