//! Two windows of measurements beside each other, and whether they differ.
//!
//! Durations have long tails, and there are so many of them that any two windows
//! differ "significantly". So a verdict asks for two things at once: that chance
//! does not explain the difference, and that it is as large as to matter.
//!
//! - **Chance**: the test of Mann and Whitney, which compares ranks and so asks
//!   nothing of the shape of the distributions. Measurements in one bucket are
//!   ties, and the variance is corrected for them. With `a` measurements before
//!   and `b` since, `a_k` and `b_k` of them in bucket `k`, `n = a + b`:
//!
//!   ```text
//!   U     = sum b_k (a_1 + ... + a_(k-1) + a_k / 2)
//!   var U = a b / 12 (n + 1 - sum (t^3 - t) / (n (n - 1))),   t = a_k + b_k
//!   z     = (|U - a b / 2| - 1/2) / sqrt(var U)
//!   ```
//!
//!   (H. B. Mann, D. R. Whitney, Ann. Math. Stat. 18, 1947; for ties E. L.
//!   Lehmann, Nonparametrics, 1975, section 1.4.)
//! - **Size**: the probability of superiority `A = U / (a b)`, that a measurement
//!   since takes longer than one before, with ties as halves; 0.5 is no
//!   difference. It has to be beyond 0.56, the "small" effect of A. Vargha and
//!   H. D. Delaney (J. Educ. Behav. Stat. 25, 2000), and median or mean have to
//!   have moved the same way by 5 %, more than a bucket is wide.
//! - **The tail** is a hundredth of the measurements and moves no rank sum. So the
//!   shares beyond the longest hundredth of both together are compared as well: the
//!   chi-squared test of two proportions; the one share has to be twice the other,
//!   and the 99th percentile to have moved by a quarter: long ones come in bursts.
//! - **Many points** are tested at once: a hundred tests at 1 % find one difference
//!   where there is none. The levels are adjusted as Y. Benjamini and Y. Hochberg
//!   have it (J. R. Stat. Soc. B 57, 1995), so that of the differences shown no more
//!   than a hundredth is expected to be none.
//! - Where there are so few measurements that a difference that matters could not
//!   be told from none, the verdict says so, rather than "no difference".
//!
//! Most points of one process that move the same way at once are moved by the machine: another
//! load, another clock rate. Then only those differ that have moved further than the others
//! ([`Comparison::common`]). Different processes are compared without that: they may be of
//! different programs, and all of one slower.
//!
//! The test takes measurements for independent. Those of a program resemble their
//! neighbours, which makes chance look too small; the sizes asked for are what
//! keeps verdicts honest then.

pub(crate) mod columns;
pub mod effect;
pub mod gate;
mod markdown;
pub mod report;
mod statistics;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::model::{BUCKETS_AT_ONCE, Window};
use crate::snapshot::{Point, Snapshot};
use crate::text;
use statistics::{RankTest, TailTest, rank_test, tail_test};
pub(crate) use statistics::{adjusted, side_by_side};

/// The test, by the names of those who found it.
pub const TEST: &str = "Mann-Whitney, Benjamini-Hochberg 1%, A beyond .56 and 5%";
/// What makes a difference, for the screen.
pub const DIFFERS: &str = "5 % or more, statistically significant (? explains)";
/// Of the differences shown, this share may be none.
pub const LEVEL: f64 = 0.01;
/// How far the probability of superiority has to be from 0.5.
const SUPERIORITY: f64 = 0.06;
/// How far median or mean have to move, as a share.
const SHIFT: f64 = 0.05;
/// Fewer measurements than this in a window are not tested.
const FEWEST: f64 = 20.0;
/// The share of the longest measurements that is the tail.
const TAIL: f64 = 0.01;
/// How many measurements of the tail are expected in each window, at least.
const FEWEST_IN_TAIL: f64 = 10.0;
/// How many times as many there have to be in one as in the other.
const TAIL_RATIO: f64 = 2.0;
/// How far the 99th percentile has to move, as a share.
const TAIL_SHIFT: f64 = 0.25;
/// A standard deviation over a median distance from the median, of what is normal.
const DEVIATION: f64 = 1.4826;
/// Points are moved by the machine if this share of them moves the same way, and there
/// are so many.
const MOST_POINTS: f64 = 0.6;
const FEWEST_POINTS: usize = 5;
/// Clocks whose rates differ by less count as one: calibrations differ.
const SAME_RATE: f64 = 0.001;
/// Standard deviations within which 95 of 100 lie.
pub(super) const NINETY_FIVE: f64 = 1.96;

/// What can be said of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Its measurements take longer than before.
    Slower,
    /// They take less long.
    Faster,
    /// Most take as long as before, the longest became more.
    SlowerTail,
    /// Most take as long as before, the longest became fewer.
    FasterTail,
    /// It has moved as most points have: the machine has changed, not the program.
    AsTheRest,
    /// No difference that matters.
    NoDifference,
    /// Not enough measurements to say anything.
    TooFew,
    /// The baseline does not know the point.
    New,
    /// Only the baseline knows the point.
    Gone,
}

impl Verdict {
    /// In words, at most 13 columns.
    pub fn words(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::SlowerTail => "slower tail",
            Self::FasterTail => "faster tail",
            Self::AsTheRest => "as the rest",
            Self::NoDifference => "no difference",
            Self::TooFew => "too few",
            Self::New => "new",
            Self::Gone => "gone",
        }
    }
}

/// What windows are compared with: everything up to a moment, or between two.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// When it begins, ticks since the segment was created.
    from_ticks: u64,
    until: Arc<Snapshot>,
    file: Option<String>,
    /// What each point of `until` had measured, in the order of its points. It does
    /// not change any more, and every poll is compared with it.
    measured: Arc<[Measured]>,
}

/// What a point had measured when a baseline was taken.
#[derive(Debug)]
struct Measured {
    id: u32,
    /// Within the baseline.
    within: Window,
    /// In all its life until then.
    life: Window,
}

impl Baseline {
    /// All that this snapshot holds; `file` is the name of the file it is from.
    pub fn of(snapshot: Snapshot, file: Option<String>) -> Self {
        Self::between(None, snapshot, file)
    }

    /// The measurements of a snapshot file, which is called by its name.
    pub fn of_file(file: &Path, snapshot: Snapshot) -> Self {
        let name = file.file_name().map(|name| text::clean(&name.to_string_lossy()).into_owned());
        Self::of(snapshot, name)
    }

    fn between(from: Option<&Snapshot>, until: Snapshot, file: Option<String>) -> Self {
        let measured = until.points.iter().map(|point| Measured {
            id: point.id,
            within: Window::between(from, &until, point.id).unwrap_or_default(),
            life: Window::life(&until, point.id),
        });
        let measured = measured.collect();
        let from_ticks = from.map_or(0, |from| from.elapsed_ticks);
        Self { from_ticks, until: Arc::new(until), file, measured }
    }

    /// The process at its end.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.until
    }

    /// What a point measured in it.
    fn within(&self, id: u32) -> Window {
        self.measured(id).map_or_else(Window::default, |known| known.within.clone())
    }

    fn measured(&self, id: u32) -> Option<&Measured> {
        let place = self.measured.binary_search_by_key(&id, |known| known.id).ok()?;
        Some(&self.measured[place])
    }

    /// What was measured since this baseline, up to a later snapshot of the same
    /// process; of another process, all of it. None if nothing can have been.
    pub fn next(&self, now: &Snapshot) -> Option<Self> {
        if self.until.process.segment_id != now.process.segment_id {
            return Some(Self::of(now.clone(), None));
        }
        (self.until.elapsed_ticks < now.elapsed_ticks)
            .then(|| Self::between(Some(&self.until), now.clone(), None))
    }

    /// The moment up to which it goes.
    pub fn until(&self) -> &Snapshot {
        &self.until
    }

    /// The file it is from; none where it was taken on the screen.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// How long it is, seconds.
    pub fn seconds(&self) -> f64 {
        let ticks = self.until.elapsed_ticks.saturating_sub(self.from_ticks);
        ticks as f64 / self.until.clock.ticks_per_second
    }
}

/// A point in both windows.
#[derive(Clone, Debug)]
pub struct Row {
    /// Its id in what is compared with the baseline. One that is gone has none; it
    /// has a number that no point has, from the greatest down.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// What it measured in the baseline.
    pub before: Window,
    /// What it measured since, in the same ticks.
    pub since: Window,
    /// Probability that a measurement since takes longer than one before.
    pub superiority: Option<f64>,
    /// What can be said.
    pub verdict: Verdict,
    /// How many comparisons ago `since` was looked up.
    ago: u32,
}

impl Row {
    #[cfg(test)]
    pub(super) fn made_up(
        before: Window,
        since: Window,
        superiority: Option<f64>,
        verdict: Verdict,
    ) -> Self {
        Self { id: 1, name: "made up".into(), before, since, superiority, verdict, ago: 0 }
    }

    /// By how much the load changed, as a share of one CPU.
    pub fn load_change(&self) -> Option<f64> {
        match (self.before.load(), self.since.load()) {
            (Some(before), Some(since)) => Some(since - before),
            _ => None,
        }
    }

    /// By how much the mean changed, as a share of what it was.
    pub fn mean_change(&self) -> Option<f64> {
        change(self.before.mean(), self.since.mean())
    }

    /// By how much a quantile changed, as a share of what it was.
    pub fn quantile_change(&self, share: f64) -> Option<f64> {
        change(self.before.quantile(share), self.since.quantile(share))
    }

    /// By how much the rate changed, as a share of what it was.
    pub fn rate_change(&self) -> Option<f64> {
        change(self.before.rate(), self.since.rate())
    }
}

/// By how much a figure changed, as a share of what it was.
fn change(before: Option<f64>, since: Option<f64>) -> Option<f64> {
    let (before, since) = (before?, since?);
    (before > 0.0).then(|| since / before - 1.0)
}

/// All points in both windows.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Those that measured in either, the greatest change of load first.
    pub rows: Vec<Row>,
    /// How long it is since the baseline, seconds.
    pub seconds: f64,
    /// Ticks per second of the clock that all ticks in it are of.
    pub ticks_per_second: f64,
    /// Points that only the baseline has.
    pub gone: usize,
    /// The process, where it is not the baseline's own: `my_app[4711]`.
    pub other: Option<String>,
    /// By how much most points have moved at once, as a share; none where they have not, or
    /// where that is not looked at.
    pub common: Option<f64>,
    /// Segment id of the process that is compared with the baseline.
    segment_id: String,
}

impl Comparison {
    /// The baseline beside what was measured since: of the same process what a
    /// later snapshot has more, of another one all it has. None for a snapshot of
    /// the same process that is not later.
    pub fn new(baseline: &Baseline, now: &Snapshot) -> Option<Self> {
        Self::new_within(BUCKETS_AT_ONCE, baseline, now, None)
    }

    /// The same within the time of a frame, however many threads have measured
    /// these points: where there is too much to look up anew, those rows are that
    /// are oldest, and the windows of the others end some polls earlier, as
    /// `known` has them. That one is to be of the same baseline.
    pub fn new_after(baseline: &Baseline, now: &Snapshot, known: Option<Self>) -> Option<Self> {
        Self::new_within(BUCKETS_AT_ONCE, baseline, now, known)
    }

    fn new_within(
        buckets: usize,
        baseline: &Baseline,
        now: &Snapshot,
        known: Option<Self>,
    ) -> Option<Self> {
        let base = baseline.until();
        let is_same = base.process.segment_id == now.process.segment_id;
        if is_same && base.elapsed_ticks >= now.elapsed_ticks {
            return None;
        }
        let rate = now.clock.ticks_per_second;
        let ratio = rate / base.clock.ticks_per_second;
        let is_one_clock = !ratio.is_finite() || ratio <= 0.0 || (ratio - 1.0).abs() < SAME_RATE;
        let since_snapshot = is_same.then_some(base);
        let in_ticks_of_now = |window: Window| match is_one_clock {
            true => window,
            false => window.in_other_ticks(ratio),
        };
        let nothing = Window::default();
        let known = known.filter(|known| known.segment_id == now.process.segment_id);
        let mut kept = kept(buckets, known, now);
        let mut twins = Twins::of(base, is_same);
        let mut rows = Vec::new();
        for point in &now.points {
            let twin = twins.take(point);
            if let Some(row) = kept.remove(&point.id) {
                rows.push(Row { ago: row.ago + 1, ..row });
                continue;
            }
            let verdict = if twin.is_some() { Verdict::TooFew } else { Verdict::New };
            let before = in_ticks_of_now(match twin {
                Some(id) => baseline.within(id),
                None => Window::empty(baseline.from_ticks, base),
            });
            let life = baseline.measured(point.id).map_or(&nothing, |known| &known.life);
            let from = since_snapshot.map(|base| (base, life));
            let since = Window::since(from, now, point.id).unwrap_or_default();
            if before.count > 0 || since.count > 0 {
                let (id, name) = (point.id, name_of(point));
                rows.push(Row { id, name, before, since, superiority: None, verdict, ago: 0 });
            }
        }
        let left = twins.left(base);
        for (place, point) in (0..).zip(&left) {
            let before = in_ticks_of_now(baseline.within(point.id));
            if before.count > 0 {
                let (id, name) = (u32::MAX - place, name_of(point));
                let since = Window::empty(since_snapshot.map_or(0, |base| base.elapsed_ticks), now);
                let verdict = Verdict::Gone;
                rows.push(Row { id, name, before, since, superiority: None, verdict, ago: 0 });
            }
        }
        judge(&mut rows);
        let common = is_same.then(|| judge_against_all(&mut rows)).flatten();
        let size = |row: &Row| row.load_change().map_or(-1.0, f64::abs);
        rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let before = since_snapshot.map_or(0, |base| base.elapsed_ticks);
        let seconds = now.elapsed_ticks.saturating_sub(before) as f64 / rate;
        let process = &now.process;
        let other = (!is_same).then(|| format!("{}[{}]", process.name, process.pid));
        let (gone, segment_id) = (left.len(), process.segment_id.clone());
        Some(Self { rows, seconds, ticks_per_second: rate, gone, other, common, segment_id })
    }

    /// The row of a point.
    pub fn row(&self, id: u32) -> Option<&Row> {
        self.rows.iter().find(|row| row.id == id)
    }
}

/// The rows that there is no time to make anew, by the ids of their points.
fn kept(mut buckets: usize, known: Option<Comparison>, now: &Snapshot) -> HashMap<u32, Row> {
    let mut rows = known.map_or_else(Vec::new, |known| known.rows);
    rows.sort_by_key(|row| Reverse(row.ago));
    let is_too_much = |row: &Row| {
        let is_too_much = buckets == 0;
        buckets = buckets.saturating_sub(Window::buckets(now, row.id));
        is_too_much
    };
    let first = rows.iter().position(is_too_much).unwrap_or(rows.len());
    rows.drain(first..).map(|row| (row.id, row)).collect()
}

pub(super) fn name_of(point: &Point) -> String {
    point.shown_name()
}

/// Finds the point of the baseline that is the same: in one process by its id, in
/// another by its name and, where several have that, its place in the source.
enum Twins<'a> {
    ById(HashSet<u32>),
    ByName(HashMap<String, Vec<&'a Point>>),
}

impl<'a> Twins<'a> {
    fn of(base: &'a Snapshot, is_same_process: bool) -> Self {
        if is_same_process {
            return Self::ById(base.points.iter().map(|point| point.id).collect());
        }
        let mut points: HashMap<String, Vec<&Point>> = HashMap::new();
        for point in &base.points {
            points.entry(name_of(point)).or_default().push(point);
        }
        Self::ByName(points)
    }

    fn take(&mut self, point: &Point) -> Option<u32> {
        let points = match self {
            Self::ById(ids) => return ids.take(&point.id),
            Self::ByName(points) => points,
        };
        let named = points.get_mut(&name_of(point))?;
        let is_there = |other: &&Point| (&other.file, other.line) == (&point.file, point.line);
        // Lines move from one build to the next.
        let place = named.iter().position(is_there).unwrap_or(0);
        (place < named.len()).then(|| named.remove(place).id)
    }

    /// Those of `base` that were not found, in the order of their ids.
    fn left(self, base: &'a Snapshot) -> Vec<&'a Point> {
        match self {
            Self::ById(ids) => base.points.iter().filter(|point| ids.contains(&point.id)).collect(),
            Self::ByName(points) => {
                let mut left: Vec<&Point> = points.into_values().flatten().collect();
                left.sort_by_key(|point| point.id);
                left
            }
        }
    }
}

/// Gives every row its verdict.
fn judge(rows: &mut [Row]) {
    let tested: Vec<_> = rows
        .iter()
        .map(|row| {
            let (before, since) = (&row.before, &row.since);
            let enough = before.in_buckets().min(since.in_buckets()) >= FEWEST;
            let counts = enough.then(|| side_by_side(before, since));
            let counts = counts.as_deref();
            (counts.and_then(rank_test), counts.and_then(tail_test))
        })
        .collect();
    let p_values: Vec<f64> = tested
        .iter()
        .flat_map(|(rank, tail)| [rank.map(|t| t.p), tail.map(|t| t.p)])
        .flatten()
        .collect();
    let mut adjusted = adjusted(&p_values).into_iter();
    let mut is_beyond_chance =
        |is_tested: bool| is_tested && adjusted.next().is_some_and(|p| p <= LEVEL);
    for (row, (rank, tail)) in rows.iter_mut().zip(tested) {
        let rank_counts = is_beyond_chance(rank.is_some());
        let tail_counts = is_beyond_chance(tail.is_some());
        // Of a row that was kept these are of the comparison before.
        row.superiority = None;
        if !matches!(row.verdict, Verdict::New | Verdict::Gone) {
            row.verdict = Verdict::TooFew;
        }
        let Some(rank) = rank else { continue };
        row.superiority = Some(rank.superiority);
        row.verdict = if let Some(verdict) = shifted(row, &rank).filter(|_| rank_counts) {
            verdict
        } else if let Some(verdict) =
            tail.and_then(|t| tail_shifted(row, &t)).filter(|_| tail_counts)
        {
            verdict
        } else if NINETY_FIVE * rank.deviation <= SUPERIORITY {
            Verdict::NoDifference
        } else {
            Verdict::TooFew
        };
    }
}

/// Takes back the verdict of every point that has moved no further than most have.
/// Returns by how much those have, as a share; none where they have not.
fn judge_against_all(rows: &mut [Row]) -> Option<f64> {
    let moved = |row: &Row| row.superiority.and(row.quantile_change(0.5)).map(f64::ln_1p);
    let mut moves: Vec<f64> = rows.iter().filter_map(moved).filter(|by| by.is_finite()).collect();
    let far = SHIFT.ln_1p();
    let common = common_move(&mut moves)?;
    // How far they are apart: what is within that of the others is one of them.
    let mut apart: Vec<f64> = moves.iter().map(|by| (by - common).abs()).collect();
    apart.sort_by(f64::total_cmp);
    let apart = far.max(NINETY_FIVE * DEVIATION * apart[apart.len() / 2]);
    for row in rows {
        let (way, by) = match row.verdict {
            Verdict::Slower => (1.0, row.quantile_change(0.5)),
            Verdict::Faster => (-1.0, row.quantile_change(0.5)),
            Verdict::SlowerTail => (1.0, row.quantile_change(1.0 - TAIL)),
            Verdict::FasterTail => (-1.0, row.quantile_change(1.0 - TAIL)),
            _ => continue,
        };
        let mean = row.mean_change().map(f64::ln_1p);
        let further = [by.map(f64::ln_1p), mean].into_iter().flatten();
        if way * common > 0.0 && !further.into_iter().all(|by| way * (by - common) >= apart) {
            row.verdict = Verdict::AsTheRest;
        }
    }
    Some(common.exp_m1())
}

/// By how much most points have moved the same way, of the logarithms of how much each has;
/// none if they have not. It leaves them in order.
pub(super) fn common_move(moves: &mut [f64]) -> Option<f64> {
    let far = SHIFT.ln_1p();
    let share = |way: f64| {
        let same = moves.iter().filter(|by| way * **by >= far).count();
        same as f64 / moves.len() as f64
    };
    if moves.len() < FEWEST_POINTS || share(1.0).max(share(-1.0)) < MOST_POINTS {
        return None;
    }
    moves.sort_by(f64::total_cmp);
    Some(moves[moves.len() / 2])
}

/// The shift of most measurements, if it is large enough to matter.
fn shifted(row: &Row, rank: &RankTest) -> Option<Verdict> {
    let moves = [row.mean_change(), row.quantile_change(0.5)];
    let moved = |way: f64| moves.iter().flatten().any(|by| way * by >= SHIFT);
    if rank.superiority >= 0.5 + SUPERIORITY && moved(1.0) {
        Some(Verdict::Slower)
    } else if rank.superiority <= 0.5 - SUPERIORITY && moved(-1.0) {
        Some(Verdict::Faster)
    } else {
        None
    }
}

/// The shift of the longest measurements, if it is large enough to matter.
fn tail_shifted(row: &Row, tail: &TailTest) -> Option<Verdict> {
    let moved = row.quantile_change(1.0 - TAIL)?;
    if tail.since >= TAIL_RATIO * tail.before && moved >= TAIL_SHIFT {
        Some(Verdict::SlowerTail)
    } else if tail.before >= TAIL_RATIO * tail.since && moved <= -TAIL_SHIFT {
        Some(Verdict::FasterTail)
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
