//! Compares two windows of measurements, and decides whether they differ.
//!
//! Durations have long tails, and there are so many measurements that nearly any two windows differ
//! "significantly". So a verdict needs two things at once: chance does not explain the difference,
//! and the difference is large enough to matter.
//!
//! - **Chance**: the test of Mann and Whitney. It compares ranks, so it assumes nothing about the
//!   shape of the distributions. Measurements in one bucket are ties, and the variance is corrected
//!   for them. With `a` measurements before and `b` since, `a_k` and `b_k` of them in bucket `k`,
//!   `n = a + b`:
//!
//!   ```text
//!   U     = sum b_k (a_1 + ... + a_(k-1) + a_k / 2)
//!   var U = a b / 12 (n + 1 - sum (t^3 - t) / (n (n - 1))),   t = a_k + b_k
//!   z     = (|U - a b / 2| - 1/2) / sqrt(var U)
//!   ```
//!
//!   (H. B. Mann, D. R. Whitney, Ann. Math. Stat. 18, 1947; for ties E. L. Lehmann,
//!   Nonparametrics, 1975, section 1.4.)
//! - **Size**: the probability of superiority `A = U / (a b)`: the probability that a measurement
//!   since the baseline takes longer than one in the baseline, with ties as halves. 0.5 means no
//!   difference. It has to be beyond 0.56, or below 0.44: the "small" effect of A. Vargha and H. D.
//!   Delaney (J. Educ. Behav. Stat. 25, 2000). The median or the mean also has to change in the
//!   same direction by 5 %, which is more than the width of a bucket.
//! - **The tail** is a hundredth of the measurements and does not change a rank sum. So a second
//!   test takes the longest hundredth of both windows together, and compares the share of each
//!   window that is in it (chi-squared, two proportions). One share has to be twice the other, and
//!   the 99th percentile has to change by a quarter, since long measurements come in bursts.
//! - **Many points** are tested at once: a hundred tests at 1 % find one difference by chance. The
//!   levels are adjusted after Y. Benjamini and Y. Hochberg (J. R. Stat. Soc. B 57, 1995), so that
//!   at most a hundredth of the reported differences is expected to be false.
//! - If there are so few measurements that the test could miss a difference that matters, the
//!   verdict is "too few", and not "no difference".
//!
//! These tests compare the time of one call. The number of calls and the load have verdicts of
//! their own ([`volume`]).
//!
//! If most points of one process change in the same direction at once, the cause is the machine:
//! another load, another clock rate. In that case, only points that changed more than the others
//! count as different ([`Comparison::common`]). This rule does not apply to windows of two
//! different processes: these may run different programs, and all points of one program may be
//! slower.
//!
//! The test assumes that measurements are independent. Neighbouring measurements of a program
//! resemble each other, so the test underestimates chance. The verdicts stay reliable, since a
//! difference must also have a minimum size.

pub mod columns;
pub mod effect;
pub mod exact;
pub mod gate;
mod markdown;
pub mod report;
mod statistics;
pub mod volume;
mod waits;

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::{BUCKETS_AT_ONCE, PointWindow};
use pfp_read::snapshot::{Point, ProcessState, Snapshot};
use pfp_read::text;
use pfp_read::waits::WaitTotals;
use statistics::{RankTest, TAIL, TailTest, rank_test, tail_test};
pub(crate) use statistics::{adjusted, side_by_side};
use volume::{Variation, Volume};
pub use waits::WaitChange;

/// The name of the test.
pub const TEST: &str = "Mann-Whitney, Benjamini-Hochberg 1%, A beyond .56 and 5%";
/// The criteria of a difference, for the screen.
pub const DIFFERS: &str = "time 5 %, calls and load 25 %, significantly (? explains)";
/// The share of shown differences that may be false.
pub const LEVEL: f64 = 0.01;
/// The least distance of the probability of superiority from 0.5.
const SUPERIORITY: f64 = 0.06;
/// The least relative change of median or mean.
const SHIFT: f64 = 0.05;
/// Fewer measurements than this in a window are not tested.
const FEWEST: f64 = 20.0;
/// The least ratio of the two tails.
const TAIL_RATIO: f64 = 2.0;
/// The least relative change of the 99th percentile.
const TAIL_SHIFT: f64 = 0.25;
/// Ratio of the standard deviation to the median absolute deviation, for a normal distribution.
const DEVIATION: f64 = 1.4826;
/// If this share of many points changes in the same direction, the cause is the machine.
const MOST_POINTS: f64 = 0.6;
/// Fewer points than this do not show whether the machine has changed.
const FEWEST_POINTS: usize = 5;
/// Clock rates that differ by less count as equal, since calibrations differ.
const SAME_RATE: f64 = 0.001;
/// Number of standard deviations around the mean that contain 95 % of a normal distribution.
pub(super) const NINETY_FIVE: f64 = 1.96;

/// The verdict on the time of a point's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The point's measurements take longer than before.
    Slower,
    /// The point's measurements take less time than before.
    Faster,
    /// Most calls take as long as before, but there are more long ones.
    SlowerTail,
    /// Most calls take as long as before, but there are fewer long ones.
    FasterTail,
    /// The point changed like most points: the machine has changed, not the program.
    AsTheRest,
    /// There is no difference that matters.
    NoDifference,
    /// There are not enough measurements for a verdict.
    TooFew,
    /// The baseline does not have the point.
    New,
    /// Only the baseline has the point.
    Gone,
}

impl Verdict {
    /// The verdict in words, at most 13 columns.
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

/// The measurements to compare with: everything up to a moment, or between two moments.
#[derive(Clone, Debug)]
pub struct Baseline {
    /// Begin of the baseline, ticks since the segment was created.
    from_ticks: u64,
    until: Arc<Snapshot>,
    file: Option<String>,
    /// The measurements of each point of `until`, in the order of its points. The measurements are
    /// cached, since every poll is compared with them.
    measured: Arc<[BaselinePoint]>,
    /// The waits within the baseline. `None` if they were not sampled.
    waits: Option<WaitTotals>,
}

/// The measurements of a point when the baseline was taken.
#[derive(Debug)]
struct BaselinePoint {
    id: u32,
    /// The measurements within the baseline.
    within: PointWindow,
    /// All measurements since the point's last reset.
    life: PointWindow,
}

impl Baseline {
    /// A baseline of all measurements in a snapshot; `file` is the name of its file.
    pub fn of(snapshot: Snapshot, file: Option<String>) -> Self {
        Self::between(None, snapshot, file)
    }

    /// A baseline of a snapshot file, with the file's name.
    pub fn of_file(file: &Path, snapshot: Snapshot) -> Self {
        let name = file.file_name().map(|name| text::clean(&name.to_string_lossy()).into_owned());
        Self::of(snapshot, name)
    }

    fn between(from: Option<&Snapshot>, until: Snapshot, file: Option<String>) -> Self {
        let measured = until.points.iter().map(|point| BaselinePoint {
            id: point.id,
            within: PointWindow::between(from, &until, point.id).unwrap_or_default(),
            life: PointWindow::life(&until, point.id),
        });
        let measured = measured.collect();
        let from_ticks = from.map_or(0, |from| from.elapsed_ticks);
        let waits = match from {
            Some(from) => WaitTotals::between(from, &until),
            None => WaitTotals::of(&until).cloned(),
        };
        Self { from_ticks, until: Arc::new(until), file, measured, waits }
    }

    /// The measurements of a point in the baseline.
    fn within(&self, id: u32) -> PointWindow {
        self.measured(id).map_or_else(PointWindow::default, |known| known.within.clone())
    }

    fn measured(&self, id: u32) -> Option<&BaselinePoint> {
        let place = self.measured.binary_search_by_key(&id, |known| known.id).ok()?;
        Some(&self.measured[place])
    }

    /// The next baseline: the measurements since this one, up to a later snapshot of the same
    /// process, or all measurements of another process. `None` if `now` is not later than this one.
    pub fn next(&self, now: &Snapshot) -> Option<Self> {
        if self.until.process.segment_id != now.process.segment_id {
            return Some(Self::of(now.clone(), None));
        }
        (self.until.elapsed_ticks < now.elapsed_ticks)
            .then(|| Self::between(Some(&self.until), now.clone(), None))
    }

    /// The snapshot at the end of the baseline.
    pub fn until(&self) -> &Snapshot {
        &self.until
    }

    /// The name of the baseline's file. `None` for a baseline that was taken on the screen.
    pub fn file(&self) -> Option<&str> {
        self.file.as_deref()
    }

    /// The length of the baseline, seconds.
    pub fn seconds(&self) -> f64 {
        let ticks = self.until.elapsed_ticks.saturating_sub(self.from_ticks);
        ticks as f64 / self.until.clock.ticks_per_second
    }
}

/// A point in both windows.
#[derive(Clone, Debug)]
pub struct DiffRow {
    /// The point's id in the compared snapshot. A point that only the baseline has gets a number
    /// that no point has, counting down from the greatest.
    pub id: u32,
    /// Name of the point.
    pub name: String,
    /// The point's measurements in the baseline.
    pub before: PointWindow,
    /// The point's measurements since the baseline, in ticks of the same clock.
    pub since: PointWindow,
    /// Probability that a measurement since the baseline takes longer than one in the baseline.
    pub superiority: Option<f64>,
    /// The verdict on the time of a call.
    pub verdict: Verdict,
    /// The verdict on calls per second.
    pub calls: Volume,
    /// The verdict on the load.
    pub load: Volume,
    /// The variation of calls and load since the baseline.
    variation: Variation,
    /// Whether this is the point of the calibration, which measures only at the program's start.
    is_calibration: bool,
    /// Number of comparisons that have reused this row since its `since` was computed.
    ago: u32,
}

impl DiffRow {
    fn new(
        point: (u32, String),
        before: PointWindow,
        since: PointWindow,
        verdict: Verdict,
    ) -> Self {
        let (calls, load) = (Volume::Unsure, Volume::Unsure);
        let ((id, name), variation) = (point, Variation::default());
        let superiority = None;
        let (is_calibration, ago) = (false, 0);
        Self {
            id,
            name,
            before,
            since,
            superiority,
            verdict,
            calls,
            load,
            variation,
            is_calibration,
            ago,
        }
    }

    /// The change of the load, in CPUs.
    pub fn load_change(&self) -> Option<f64> {
        Some(self.since.load()? - self.before.load()?)
    }

    /// The relative change of the mean.
    pub fn mean_change(&self) -> Option<f64> {
        change(self.before.mean(), self.since.mean())
    }

    /// The relative change of a quantile.
    pub fn quantile_change(&self, share: f64) -> Option<f64> {
        change(self.before.quantile(share), self.since.quantile(share))
    }

    /// The relative change of the rate.
    pub fn rate_change(&self) -> Option<f64> {
        change(self.before.rate(), self.since.rate())
    }
}

/// The relative change of a figure.
fn change(before: Option<f64>, since: Option<f64>) -> Option<f64> {
    let (before, since) = (before?, since?);
    (before > 0.0).then(|| since / before - 1.0)
}

/// All points in both windows.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Points that measured in either window, the greatest change of load first.
    pub rows: Vec<DiffRow>,
    /// Time since the baseline, seconds.
    pub seconds: f64,
    /// Ticks per second of the clock in which all ticks are given.
    pub ticks_per_second: f64,
    /// Points that only the baseline has.
    pub gone: usize,
    /// The process, if it is not the baseline's own: `my_app[4711]`.
    pub other: Option<String>,
    /// The common relative change of most points. `None` if they did not change together, or if the
    /// check does not apply.
    pub common: Option<f64>,
    /// The waits, those that changed most first. Empty unless both windows were sampled.
    pub waits: Vec<WaitChange>,
    /// Segment id of the process that is compared with the baseline.
    segment_id: String,
}

impl Comparison {
    /// Compares the baseline with the measurements since the baseline: the growth in a later
    /// snapshot of the same process, or all measurements of another process. `None` for an earlier
    /// snapshot of the same process.
    pub fn new(baseline: &Baseline, now: &Snapshot) -> Option<Self> {
        Self::renewed(baseline, now, None)
    }

    /// Compares all rows. `known` is the previous comparison with the same baseline; a chain of
    /// comparisons shows how much calls and load vary from poll to poll.
    pub fn renewed(baseline: &Baseline, now: &Snapshot, known: Option<Self>) -> Option<Self> {
        Self::new_within(usize::MAX, baseline, now, known)
    }

    /// Compares within the time of a frame, however many threads have measured. If there is no time
    /// to renew all rows, the oldest rows are renewed. The other rows keep their windows from
    /// `known`, and these windows end some polls earlier. `known` must be a comparison with the
    /// same baseline.
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
        if is_same && !is_later(base, now) {
            return None;
        }
        let rate = now.clock.ticks_per_second;
        let ratio = rate / base.clock.ticks_per_second;
        let is_one_clock = !ratio.is_finite() || ratio <= 0.0 || (ratio - 1.0).abs() < SAME_RATE;
        let since_snapshot = is_same.then_some(base);
        let in_ticks_of_now = |window: PointWindow| match is_one_clock {
            true => window,
            false => window.in_other_ticks(ratio),
        };
        let nothing = PointWindow::default();
        let known = known.filter(|known| known.segment_id == now.process.segment_id);
        let (mut kept, earlier) = kept(buckets, known, now);
        let mut twins = Twins::of(base, is_same);
        let mut rows = Vec::new();
        for point in &now.points {
            let twin = twins.take(point);
            if let Some(row) = kept.remove(&point.id) {
                rows.push(DiffRow { ago: row.ago + 1, ..row });
                continue;
            }
            let verdict = if twin.is_some() { Verdict::TooFew } else { Verdict::New };
            let before = in_ticks_of_now(match twin {
                Some(id) => baseline.within(id),
                None => PointWindow::empty(baseline.from_ticks, base),
            });
            let life = baseline.measured(point.id).map_or(&nothing, |known| &known.life);
            let from = since_snapshot.map(|base| (base, life));
            let since = PointWindow::since(from, now, point.id).unwrap_or_default();
            if before.count > 0 || since.count > 0 {
                let variation = earlier
                    .get(&point.id)
                    .map(|row| row.variation.after(&row.since, &since))
                    .unwrap_or_default();
                let row = DiffRow::new((point.id, point.shown_name()), before, since, verdict);
                let is_calibration = point.number.unwrap_or(point.id) == 0;
                rows.push(DiffRow { variation, is_calibration, ..row });
            }
        }
        let left = twins.left(base);
        for (place, point) in (0..).zip(&left) {
            let before = in_ticks_of_now(baseline.within(point.id));
            if before.count > 0 {
                let since =
                    PointWindow::empty(since_snapshot.map_or(0, |base| base.elapsed_ticks), now);
                let point = (u32::MAX - place, point.shown_name());
                rows.push(DiffRow::new(point, before, since, Verdict::Gone));
            }
        }
        judge(&mut rows);
        volume::judge(&mut rows, is_same);
        let common = is_same.then(|| judge_against_all(&mut rows)).flatten();
        let size = |row: &DiffRow| row.load_change().map_or(-1.0, f64::abs);
        rows.sort_by(|a, b| size(b).total_cmp(&size(a)));
        let before = since_snapshot.map_or(0, |base| base.elapsed_ticks);
        let seconds = now.elapsed_ticks.saturating_sub(before) as f64 / rate;
        let process = &now.process;
        let other = (!is_same).then(|| process.to_string());
        let (gone, segment_id) = (left.len(), process.segment_id.clone());
        let waits = waits::changes(baseline, now);
        let ticks_per_second = rate;
        Some(Self { rows, seconds, ticks_per_second, gone, other, common, waits, segment_id })
    }

    /// The row of a point.
    pub fn row(&self, id: u32) -> Option<&DiffRow> {
        self.rows.iter().find(|row| row.id == id)
    }
}

/// Whether `now` was taken after `base`, of the same process. The age of a dead process ends with
/// its last activity, so it can be less than the age in a snapshot that was taken while the process
/// still ran.
fn is_later(base: &Snapshot, now: &Snapshot) -> bool {
    let runs = |snapshot: &Snapshot| snapshot.process.state == ProcessState::Running;
    match (runs(base), runs(now)) {
        (true, false) => true,
        (false, true) => false,
        _ => base.elapsed_ticks < now.elapsed_ticks,
    }
}

/// Splits the rows of the previous comparison into rows to reuse, because there is too little time
/// to compute them, and rows to compute again. Keys are the points' ids.
fn kept(
    mut buckets: usize,
    known: Option<Comparison>,
    now: &Snapshot,
) -> (HashMap<u32, DiffRow>, HashMap<u32, DiffRow>) {
    let mut rows = known.map_or_else(Vec::new, |known| known.rows);
    rows.sort_by_key(|row| Reverse(row.ago));
    let is_too_much = |row: &DiffRow| {
        let is_too_much = buckets == 0;
        buckets = buckets.saturating_sub(PointWindow::buckets(now, row.id));
        is_too_much
    };
    let first = rows.iter().position(is_too_much).unwrap_or(rows.len());
    let by_id = |rows: Vec<DiffRow>| rows.into_iter().map(|row| (row.id, row)).collect();
    let kept = rows.split_off(first);
    (by_id(kept), by_id(rows))
}

/// Matches points with those of the baseline: by id in the same process, else by name and, if
/// several have that name, by the place in the source.
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
            points.entry(point.shown_name()).or_default().push(point);
        }
        Self::ByName(points)
    }

    fn take(&mut self, point: &Point) -> Option<u32> {
        let points = match self {
            Self::ById(ids) => return ids.take(&point.id),
            Self::ByName(points) => points,
        };
        let named = points.get_mut(&point.shown_name())?;
        let is_there = |other: &&Point| (&other.file, other.line) == (&point.file, point.line);
        // Line numbers change from one build to the next.
        let place = named.iter().position(is_there).unwrap_or(0);
        (place < named.len()).then(|| named.remove(place).id)
    }

    /// Points of `base` without a match, in the order of their ids.
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
fn judge(rows: &mut [DiffRow]) {
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
        // A reused row still has these values from the previous comparison.
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

/// Replaces the verdict of every point that has changed no more than most points. Returns the
/// common relative change, if there is one.
fn judge_against_all(rows: &mut [DiffRow]) -> Option<f64> {
    let moved = |row: &DiffRow| row.superiority.and(row.quantile_change(0.5)).map(f64::ln_1p);
    let mut moves: Vec<f64> = rows.iter().filter_map(moved).filter(|by| by.is_finite()).collect();
    let far = SHIFT.ln_1p();
    let common = common_move(&mut moves)?;
    // Distances from the common change. A point within the usual distance changed together with the
    // others.
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

/// The common change of most points, from the logarithms of all changes. `None` if most did not
/// change in the same direction. Sorts `moves`.
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

/// The verdict on the measurements as a whole, if their change is large enough to matter.
fn shifted(row: &DiffRow, rank: &RankTest) -> Option<Verdict> {
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

/// The verdict on the longest measurements, if their change is large enough to matter.
fn tail_shifted(row: &DiffRow, tail: &TailTest) -> Option<Verdict> {
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
