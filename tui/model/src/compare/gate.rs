//! Checks whether a program became slower than a limit allows, from several runs.
//!
//! Thousands of measurements make the error *within* one run tiny. Yet two runs of one program
//! differ by per cents: by the clock of the core, by the addresses of code and data, by other work
//! on the machine. So the variation between runs counts, and a run is one observation:
//!
//! ```text
//! before  x x  x x x          each x the logarithm of one run's p50 (or other metric)
//! now           y yy y   y    change = mean of y - mean of x
//! ```
//!
//! - **Error.** The variance between runs is pooled from both sides, with `a + b - 2`
//!   degrees of freedom. It is at least the variance by chance within a run: for quantiles
//!   after R. S. Woodruff (J. Am. Stat. Assoc. 47, 1952), for means the variance over the
//!   count. With one run on each side, counts, rates and loads have the variance of
//!   independent calls. If snapshots cut a run into windows, the spread of the windows
//!   counts (batch means). The width of a histogram's bucket is added, since a quantile
//!   may be anywhere in its bucket. One run on each side does not show how much runs
//!   differ; then the deviation is the user's `--deviation`.
//! - **Test.** Student's one-sided t test of the change being above *half the limit*,
//!   at 1 %, adjusted after Benjamini and Hochberg for all tests of a comparison. So
//!   a change of at most half the limit raises an alarm in one try of a hundred, and a
//!   change of the whole limit is found as soon as the error is below about an eighth of
//!   the limit. A change between the two may raise an alarm or not.
//! - **Unsure.** If a regression of the whole limit is not shown and not excluded, the finding is
//!   *unsure*. An unsure finding is reported and raises no alarm; more runs would decide it.

pub mod report;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::effect::{FEWEST, mean_variance, quantile_resolution, quantile_variance};
use super::{LEVEL, adjusted, common_move};
use crate::{PointWindow, between};
use pfp_read::snapshot::{Process, Snapshot};

/// The test, for reports.
pub const TEST: &str =
    "t test between runs, change above half the limit, Benjamini-Hochberg 1%; bounds 99% each";
/// The assumed deviation between runs, as a share, where each side has only one run.
pub const ASSUMED_DEVIATION: f64 = 0.02;
/// Minimum number of measurements beyond a quantile, on either side.
const FEWEST_BEYOND: f64 = 5.0;
/// Changes up to this share of a limit count as no change.
const TOLERANCE: f64 = 0.5;

/// A figure of a point that a gate checks. Reports contain its name.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(into = "String")]
pub enum Metric {
    /// A quantile of exclusive time, by its share in (0, 1).
    Quantile(f64),
    /// Mean exclusive time.
    Mean,
    /// Share of one CPU.
    Load,
    /// Number of measurements in the whole run.
    Count,
    /// Measurements per second. A lower rate is worse.
    Rate,
}

/// The metrics with a fixed name, which are all but the quantiles.
const NAMED: [(&str, Metric); 4] = [
    ("mean", Metric::Mean),
    ("load", Metric::Load),
    ("count", Metric::Count),
    ("rate", Metric::Rate),
];

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.word()
    }
}

impl Metric {
    /// The name of the metric: `p50`, `mean`.
    pub fn word(self) -> String {
        match self {
            Self::Quantile(share) => format!("p{}", (share * 1e6).round() / 1e4),
            metric => NAMED.iter().find(|(_, it)| *it == metric).map_or("", |it| it.0).into(),
        }
    }

    /// Whether the metric is a time. If so, its values are seconds.
    pub fn is_time(self) -> bool {
        matches!(self, Self::Quantile(_) | Self::Mean)
    }

    /// +1 if a greater value is worse, -1 if a smaller one is.
    fn sign(self) -> f64 {
        if self == Self::Rate { -1.0 } else { 1.0 }
    }

    /// The value of the metric in a window; times in seconds. `None` if there are too few
    /// measurements.
    fn of(self, window: &PointWindow, ticks_per_second: f64) -> Option<f64> {
        let value = match self {
            Self::Quantile(share) => {
                let beyond = window.in_buckets() * share.min(1.0 - share);
                let enough = window.in_buckets() >= FEWEST && beyond >= FEWEST_BEYOND;
                window.quantile(share).filter(|_| enough)? / ticks_per_second
            }
            Self::Mean => {
                window.mean().filter(|_| window.count as f64 >= FEWEST)? / ticks_per_second
            }
            Self::Load => window.load()?,
            Self::Count => window.count as f64,
            Self::Rate => window.rate()?,
        };
        (value > 0.0 && value.is_finite()).then_some(value)
    }

    /// Relative variance of the metric by chance within the window.
    fn chance(self, window: &PointWindow) -> f64 {
        match self {
            Self::Quantile(share) => quantile_variance(window, share),
            Self::Mean => mean_variance(window),
            // Only several runs show how much these metrics vary.
            Self::Load | Self::Count | Self::Rate => 0.0,
        }
    }

    /// Relative variance of the metric if calls were independent of each other. This variance is
    /// used if each side has only one run, since a single run does not show how much the number of
    /// calls varies.
    fn chance_of_calls(self, window: &PointWindow) -> f64 {
        let n = (window.count as f64).max(1.0);
        match self {
            Self::Quantile(_) | Self::Mean => 0.0,
            Self::Count | Self::Rate => 1.0 / n,
            Self::Load => 1.0 / n + mean_variance(window),
        }
    }

    /// Relative variance of the metric due to the width of its bucket.
    fn resolution(self, window: &PointWindow) -> f64 {
        match self {
            Self::Quantile(share) => quantile_resolution(window, share),
            _ => 0.0,
        }
    }
}

/// How much worse a metric may become.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The metric that is limited.
    pub metric: Metric,
    /// The largest allowed change, as a share above 0.
    #[serde(rename = "limit")]
    pub share: f64,
}

impl Limit {
    /// Parses `p50=5%`. An error states what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (metric, share) =
            text.split_once('=').ok_or("expected METRIC=PERCENT, such as p50=5%")?;
        let word = metric.trim();
        let named = NAMED.iter().find(|(name, _)| *name == word).map(|(_, metric)| *metric);
        let quantile = || {
            let percent = word.strip_prefix('p')?.parse::<f64>().ok()?;
            (percent > 0.0 && percent < 100.0).then_some(Metric::Quantile(percent / 100.0))
        };
        let metric = named.or_else(quantile).ok_or_else(|| {
            format!("expected p50, p90, p99 (or another), mean, load, count or rate, found {word}")
        })?;
        let most = if metric == Metric::Rate { 100.0 } else { 1e6 };
        match share.trim().trim_end_matches('%').parse::<f64>() {
            Ok(percent) if percent > 0.0 && percent < most => {
                Ok(Self { metric, share: percent / 100.0 })
            }
            _ => Err(format!("expected per cent above 0, such as 5%, found {share}")),
        }
    }

    /// The limit as the user wrote it: `p50=5%`.
    pub fn text(self) -> String {
        format!("{}={}%", self.metric.word(), (self.share * 1e6).round() / 1e4)
    }

    /// A part of the limit, as a change of the metric's logarithm: `of` is the part, from 0 to 1.
    /// The result is positive for all metrics; positive is worse.
    fn distance(self, of: f64) -> f64 {
        let sign = self.metric.sign();
        sign * (sign * self.share * of).ln_1p()
    }
}

/// One run of a program: successive snapshots of one process.
#[derive(Clone, Debug)]
pub struct ProgramRun {
    /// The snapshot after which the run counts. `None` to count from its start.
    from: Option<Snapshot>,
    /// Snapshots, at least one; each ends a window.
    steps: Vec<Snapshot>,
}

impl ProgramRun {
    /// The measurements of a process after `from` and up to the last of `steps`. `None` without
    /// steps.
    pub fn since(from: Snapshot, steps: Vec<Snapshot>) -> Option<Self> {
        (!steps.is_empty()).then_some(Self { from: Some(from), steps })
    }

    /// The runs in these snapshots. Snapshots of the same process are windows of one run.
    pub fn all(snapshots: Vec<Snapshot>) -> Vec<Self> {
        let mut runs: Vec<Self> = Vec::new();
        for snapshot in snapshots {
            let id = &snapshot.process.segment_id;
            match runs.iter_mut().find(|run| run.steps[0].process.segment_id == *id) {
                Some(run) => run.steps.push(snapshot),
                None => runs.push(Self { from: None, steps: vec![snapshot] }),
            }
        }
        for run in &mut runs {
            run.steps.sort_by_key(|snapshot| snapshot.elapsed_ticks);
            run.steps.dedup_by_key(|snapshot| snapshot.elapsed_ticks);
        }
        runs
    }

    /// Whether the runs share a process and overlap in time.
    pub fn overlaps(&self, other: &Self) -> bool {
        let [this, that] = [self, other].map(Self::last);
        // Snapshots of different groups have only the wall clock in common.
        let time: fn(&Snapshot) -> u64 = match this.process.segment_id == that.process.segment_id {
            true => |snapshot| snapshot.elapsed_ticks,
            false => |snapshot| snapshot.taken_unix_ns,
        };
        let begin = |run: &Self| run.from.as_ref().map_or(0, time);
        let is_in = |process: &Process| {
            that.processes().iter().any(|it| it.segment_id == process.segment_id)
        };
        this.processes().iter().any(is_in) && begin(self) < time(that) && begin(other) < time(this)
    }

    /// The last snapshot of the run.
    pub fn last(&self) -> &Snapshot {
        // A run has at least one snapshot.
        &self.steps[self.steps.len() - 1]
    }

    /// All measurements of the run, as a snapshot.
    pub(super) fn whole(&self) -> Cow<'_, Snapshot> {
        let last = self.last();
        match &self.from {
            None => Cow::Borrowed(last),
            Some(from) => Cow::Owned(
                between(from, last.clone()).unwrap_or_else(|| last.without_measurements()),
            ),
        }
    }

    /// The measurements of each point by its name, in each window and in total. Points of the same
    /// name are added up.
    fn measured(&self) -> BTreeMap<String, RunPoint> {
        let mut ids: BTreeMap<String, Vec<u32>> = BTreeMap::new();
        // Point 0 is the calibration.
        for point in self.last().points.iter().filter(|it| it.number.unwrap_or(it.id) != 0) {
            ids.entry(point.shown_name()).or_default().push(point.id);
        }
        let rate = self.last().clock.ticks_per_second;
        let sum = |from: Option<&Snapshot>, to: &Snapshot, ids: &[u32]| {
            let mut parts = ids.iter().filter_map(|id| PointWindow::between(from, to, *id));
            let first = parts.next().unwrap_or_default();
            parts.fold(first, |sum, part| sum.plus(&part))
        };
        let measured = ids.into_iter().map(|(name, ids)| {
            let from = std::iter::once(self.from.as_ref()).chain(self.steps.iter().map(Some));
            let windows = from.zip(&self.steps).map(|(from, to)| sum(from, to, &ids)).collect();
            let whole = sum(self.from.as_ref(), self.last(), &ids);
            (name, RunPoint { whole, windows, rate })
        });
        measured.collect()
    }
}

/// The measurements of one point in one run.
struct RunPoint {
    whole: PointWindow,
    windows: Vec<PointWindow>,
    rate: f64,
}

/// A metric of one run.
#[derive(Clone, Copy, Debug)]
struct Observation {
    /// The logarithm of the value.
    value: f64,
    /// The variance of the logarithm within the run.
    within: f64,
    /// The variance if calls were independent. Used if each side has only one run.
    of_calls: f64,
    /// The variance that a quantile has because only its bucket is known; 0 for other metrics.
    resolution: f64,
}

impl RunPoint {
    fn observe(&self, metric: Metric) -> Option<Observation> {
        let value = metric.of(&self.whole, self.rate)?.ln();
        let values = self.windows.iter().map(|window| Some(metric.of(window, self.rate)?.ln()));
        // With two windows, the spread of the windows is too uncertain to use.
        let batches = match values.collect::<Option<Vec<f64>>>() {
            Some(values) if values.len() > 2 && metric != Metric::Count => {
                squares(&values) / (values.len() - 1) as f64 / values.len() as f64
            }
            _ => 0.0,
        };
        let within = metric.chance(&self.whole).max(batches);
        let of_calls = metric.chance_of_calls(&self.whole);
        Some(Observation { value, within, of_calls, resolution: metric.resolution(&self.whole) })
    }
}

/// The finding on one metric of one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GateFinding {
    /// The metric became worse by more than half the limit, and chance does not explain that.
    Failed,
    /// A change as large as the limit is possible, but chance may explain the observed change.
    Unsure,
    /// A change as large as the limit is excluded.
    Fine,
}

impl GateFinding {
    /// The finding in a word, for reports.
    pub fn word(self) -> &'static str {
        match self {
            Self::Failed => "FAILED",
            Self::Unsure => "unsure",
            Self::Fine => "fine",
        }
    }
}

/// One metric of one point, on both sides. Reports contain it in this form.
#[derive(Clone, Debug, Serialize)]
pub struct GateRow {
    /// The point.
    pub name: String,
    /// The limit that was checked.
    #[serde(flatten)]
    pub limit: Limit,
    /// The finding.
    pub finding: GateFinding,
    /// Geometric mean over the earlier runs; times in seconds, loads in CPUs.
    pub before: f64,
    /// Geometric mean over the new runs, in the unit of `before`.
    pub now: f64,
    /// The relative change.
    pub change: f64,
    /// The change is above this with 99 % confidence.
    #[serde(rename = "change_above")]
    pub low: f64,
    /// The change is below this with 99 % confidence.
    #[serde(rename = "change_below")]
    pub high: f64,
    /// The deviation between runs that the judgement used, as a share.
    pub deviation: f64,
    /// Probability of this change or a greater one if the true change were half the limit, adjusted
    /// for the number of tests.
    pub p: f64,
    /// Number of earlier runs that have the point.
    pub runs_before: usize,
    /// Number of new runs that have the point.
    pub runs_now: usize,
}

/// The result of a gate. Reports contain it in this form.
#[derive(Clone, Debug, Serialize)]
pub struct Judgement {
    /// Number of earlier runs.
    pub runs_before: usize,
    /// Number of new runs.
    pub runs_now: usize,
    /// The assumed deviation between runs. `None` if several runs show it.
    #[serde(rename = "assumed_deviation")]
    pub assumed: Option<f64>,
    /// All judged metrics, the worst first.
    #[serde(rename = "gates")]
    pub rows: Vec<GateRow>,
    /// Points that only the earlier runs have.
    #[serde(rename = "only_before")]
    pub gone: Vec<String>,
    /// Points that only the new runs have.
    #[serde(rename = "only_now")]
    pub new: Vec<String>,
    /// Points and metrics without a finding, because there are too few measurements, or because
    /// their time is unknown after a reset.
    pub too_few: Vec<TooFew>,
}

/// A metric of a point without a finding.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TooFew {
    /// The point.
    pub name: String,
    /// The metric.
    pub metric: Metric,
}

impl Judgement {
    /// The relative change of most points' times, if they changed in the same direction. The cause
    /// may be the machine or the whole program, so no verdict is based on it.
    pub fn common(&self) -> Option<f64> {
        let times = self.rows.iter().filter(|row| row.limit.metric.is_time());
        let first = times.clone().map(|row| row.limit.metric).next()?;
        let one_each = times.filter(|row| row.limit.metric == first);
        let mut moves: Vec<f64> = one_each.map(|row| row.change.ln_1p()).collect();
        common_move(&mut moves).map(f64::exp_m1)
    }

    /// Number of rows with this finding.
    pub fn count(&self, finding: GateFinding) -> usize {
        self.rows.iter().filter(|row| row.finding == finding).count()
    }
}

/// Judges the points that `admits` accepts. `deviation` is the assumed deviation between runs, as a
/// share; it is used if each side has only one run.
pub fn judge(
    before: &[ProgramRun],
    now: &[ProgramRun],
    limits: &[Limit],
    deviation: f64,
    admits: impl Fn(&str) -> bool,
) -> Judgement {
    let sides = [before, now].map(|runs| runs.iter().map(ProgramRun::measured).collect::<Vec<_>>());
    let names = |side: &[BTreeMap<String, RunPoint>]| -> HashSet<String> {
        let used = side.iter().flatten().filter(|(_, measured)| measured.whole.count > 0);
        used.map(|(name, _)| name.clone()).filter(|name| admits(name)).collect()
    };
    let [known, found] = sides.each_ref().map(|side| names(side));
    let sorted = |names: &mut dyn Iterator<Item = &String>| {
        let mut names: Vec<String> = names.cloned().collect();
        names.sort();
        names
    };
    let mut judgement = Judgement {
        rows: Vec::new(),
        runs_before: before.len(),
        runs_now: now.len(),
        too_few: Vec::new(),
        gone: sorted(&mut known.difference(&found)),
        new: sorted(&mut found.difference(&known)),
        assumed: (before.len() + now.len() <= 2).then_some(deviation),
    };
    let mut p_values = Vec::new();
    for name in sorted(&mut known.intersection(&found)) {
        for limit in limits {
            let observe = |side: &[BTreeMap<String, RunPoint>]| -> Vec<Observation> {
                let measured = side.iter().filter_map(|run| run.get(&name));
                measured.filter_map(|measured| measured.observe(limit.metric)).collect()
            };
            let [a, b] = sides.each_ref().map(|side| observe(side));
            match test(&a, &b, *limit, deviation) {
                Some(tested) => {
                    p_values.push(tested.p);
                    judgement.rows.push(tested.row(name.clone(), *limit));
                }
                None => judgement.too_few.push(TooFew { name: name.clone(), metric: limit.metric }),
            }
        }
    }
    for (row, p) in judgement.rows.iter_mut().zip(adjusted(&p_values)) {
        row.p = p;
        let worst = if row.limit.metric.sign() > 0.0 { row.high } else { -row.low };
        row.finding = match () {
            () if p <= LEVEL => GateFinding::Failed,
            () if worst >= row.limit.share => GateFinding::Unsure,
            () => GateFinding::Fine,
        };
    }
    judgement.rows.sort_by(|a, b| a.p.total_cmp(&b.p));
    judgement
}

/// The change of one metric, as a logarithm; positive is worse.
struct TestedMetric {
    a: Vec<f64>,
    b: Vec<f64>,
    change: f64,
    /// The distance of the 99 % bounds from the change.
    reach: f64,
    deviation: f64,
    p: f64,
}

impl TestedMetric {
    fn row(&self, name: String, limit: Limit) -> GateRow {
        let sign = limit.metric.sign();
        let share = |change: f64| (sign * change).exp_m1();
        let (one, other) = (share(self.change - self.reach), share(self.change + self.reach));
        GateRow {
            name,
            limit,
            before: mean(&self.a).exp(),
            now: mean(&self.b).exp(),
            runs_before: self.a.len(),
            runs_now: self.b.len(),
            change: share(self.change),
            low: one.min(other),
            high: one.max(other),
            deviation: self.deviation,
            p: self.p,
            finding: GateFinding::Fine,
        }
    }
}

fn test(a: &[Observation], b: &[Observation], limit: Limit, assumed: f64) -> Option<TestedMetric> {
    if a.is_empty() || b.is_empty() {
        return None;
    }
    let values = |side: &[Observation]| side.iter().map(|run| run.value).collect::<Vec<_>>();
    let of_both = |of: fn(&Observation) -> f64| {
        a.iter().chain(b).map(of).sum::<f64>() / (a.len() + b.len()) as f64
    };
    let within = of_both(|run| run.within);
    let (x, y) = (values(a), values(b));
    let freedom = (a.len() + b.len() - 2) as f64;
    let variance = match freedom > 0.0 {
        true => ((squares(&x) + squares(&y)) / freedom).max(within),
        false => assumed * assumed + within.max(of_both(|run| run.of_calls)),
    };
    let parts = 1.0 / a.len() as f64 + 1.0 / b.len() as f64;
    let error = (variance * parts + 2.0 * of_both(|run| run.resolution)).sqrt();
    let change = limit.metric.sign() * (mean(&y) - mean(&x));
    let beyond = change - limit.distance(TOLERANCE);
    let (p, bound) = tail(beyond, error, freedom);
    let deviation = variance.sqrt();
    Some(TestedMetric { a: x, b: y, change, reach: bound * error, deviation, p })
}

/// The probability that chance alone makes the change exceed half the limit by `beyond`, and the
/// distance of the 99 % bound in standard errors. Without degrees of freedom, the error counts as
/// known, and the normal distribution replaces Student's.
fn tail(beyond: f64, error: f64, freedom: f64) -> (f64, f64) {
    let level = 1.0 - LEVEL;
    let (cdf, bound): (Box<dyn Fn(f64) -> f64>, f64) = match StudentsT::new(0.0, 1.0, freedom) {
        Ok(t) if freedom > 0.0 => (Box::new(move |x| t.sf(x)), t.inverse_cdf(level)),
        _ => {
            let normal = Normal::standard();
            (Box::new(move |x| normal.sf(x)), normal.inverse_cdf(level))
        }
    };
    // If figures do not vary at all, any difference is real.
    let p = if error > 0.0 { cdf(beyond / error) } else { f64::from(beyond <= 0.0) };
    (p, bound)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sum of squared distances from the mean.
fn squares(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean) * (value - mean)).sum()
}

#[cfg(test)]
mod tests;
