//! Whether a point's calls per second, and its load, differ between two windows.
//!
//! A point may be called nine times as often while each call takes as long as before. So calls and
//! load have verdicts of their own, by two criteria, like the time of a call:
//!
//! - **Chance.** A figure `A` over `t` seconds has the variance `u A / t`. If calls are
//!   independent, `u` is 1 for calls per second (Poisson); for the load, it is the mean square of a
//!   call's time divided by the mean (compound Poisson). Bursts increase `u`. The polls since the
//!   baseline show the actual `u`: with an amount `c` in a poll of `d` seconds,
//!
//!   ```text
//!   u A = (sum c^2 / d - (sum c)^2 / sum d) / (polls - 1)        (batch means)
//!   ```
//!
//!   and if this `u` exceeds that of independent calls, the `u` of both windows grows in the same
//!   proportion. The test compares the square roots of the figures, whose variance is `u / 4t` even
//!   for few calls (M. S. Bartlett, J. R. Stat. Soc. Suppl. 3, 1936). Two windows of different
//!   processes, or with fewer than `FEWEST_POLLS` polls between them, do not show how much the
//!   figures vary. For these, a deviation of [`ASSUMED_DEVIATION`] is assumed for each window.
//!   Levels are adjusted for the number of points, as for times.
//! - **Size.** The figure has to grow by a quarter (`SHIFT`), or fall by a fifth, which undoes that
//!   growth. A load also has to change by at least one per cent of a CPU.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::statistics::{adjusted, two_sided};
use super::{DiffRow, FEWEST, LEVEL, NINETY_FIVE};
use crate::PointWindow;
use crate::histogram::edges_of;

/// The test, for reports.
pub const TEST: &str = "calls and load: a quarter or more (load: and a point), beyond chance and \
                        their variation between polls, or 10% where that is unknown";
/// The least relative change that matters.
const SHIFT: f64 = 0.25;
/// The least change of a load that matters, in CPUs.
const LEAST_LOAD: f64 = 0.01;
/// A change that must be excluded before two windows count as the same.
const EXCLUDED: f64 = 0.5;
/// The assumed relative deviation of a figure between two windows, where no polls show it.
pub const ASSUMED_DEVIATION: f64 = 0.1;
/// Fewer polls than this do not show how much a figure varies.
const FEWEST_POLLS: u32 = 10;

/// The verdict on calls per second, or on a load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Volume {
    /// More than before.
    More,
    /// Less than before.
    Less,
    /// There is no difference that matters.
    Same,
    /// Too little is known for a verdict.
    #[default]
    Unsure,
}

impl Volume {
    /// The verdict in words, at most 6 columns.
    pub fn words(self) -> &'static str {
        match self {
            Self::More => "more",
            Self::Less => "less",
            Self::Same => "same",
            Self::Unsure => "unsure",
        }
    }

    /// Whether the figure is more or less than before.
    pub fn differs(self) -> bool {
        matches!(self, Self::More | Self::Less)
    }
}

/// Sums over successive polls from which the variation of a figure follows.
#[derive(Clone, Copy, Debug, Default)]
struct Polls {
    number: u32,
    time: f64,
    amount: f64,
    /// The sum over all polls of the squared amount divided by the poll's time.
    squares: f64,
}

impl Polls {
    fn add(&mut self, amount: f64, time: f64) {
        self.number += 1;
        self.time += time;
        self.amount += amount;
        self.squares += amount * amount / time;
    }

    /// The variance of the amount per unit of time, if there are enough polls.
    fn variance(&self) -> Option<f64> {
        let spread = self.squares - self.amount * self.amount / self.time;
        (self.number >= FEWEST_POLLS).then(|| spread.max(0.0) / f64::from(self.number - 1))
    }
}

/// The variation of a point's calls and load over the polls since the baseline.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Variation {
    calls: Polls,
    load: Polls,
}

impl Variation {
    /// Adds the growth of the window from `before`, at the previous poll, to `now`. Starts over
    /// after a reset.
    pub(super) fn after(mut self, before: &PointWindow, now: &PointWindow) -> Self {
        let Some((old, new)) = before.length.zip(now.length) else { return Self::default() };
        let (seconds, ticks) = (new.seconds - old.seconds, new.ticks - old.ticks);
        let is_growth = now.count >= before.count && now.exclusive >= before.exclusive;
        if !is_growth || seconds < 0.0 {
            return Self::default();
        }
        if seconds > 0.0 && ticks > 0.0 {
            self.calls.add((now.count - before.count) as f64, seconds);
            self.load.add(now.exclusive - before.exclusive, ticks);
        }
        self
    }
}

/// One figure of a window: its value, the length of the window, and `u`, which the head of this
/// file defines.
#[derive(Clone, Copy)]
struct Figure {
    value: f64,
    time: f64,
    unit: f64,
}

/// A comparison of one figure of a point.
#[derive(Clone, Copy)]
struct TestedFigure {
    before: f64,
    since: f64,
    /// The standard deviation of the logarithm of the ratio.
    error: f64,
    p: f64,
    is_load: bool,
}

/// Gives every row its verdicts. `is_same` says whether both windows are of one process.
pub(super) fn judge(rows: &mut [DiffRow], is_same: bool) {
    for is_load in [false, true] {
        let tested: Vec<_> = rows.iter().map(|row| test(row, is_load, is_same)).collect();
        let p_values: Vec<f64> = tested.iter().flatten().map(|tested| tested.p).collect();
        let mut adjusted = adjusted(&p_values).into_iter();
        for (row, tested) in rows.iter_mut().zip(tested) {
            let verdict = tested.map_or(Volume::Unsure, |tested| {
                verdict(&tested, adjusted.next().is_some_and(|p| p <= LEVEL))
            });
            *(if is_load { &mut row.load } else { &mut row.calls }) = verdict;
        }
    }
}

fn verdict(tested: &TestedFigure, is_beyond_chance: bool) -> Volume {
    let TestedFigure { before, since, error, is_load, .. } = *tested;
    let matters = since.max(before) >= (1.0 + SHIFT) * since.min(before)
        && (!is_load || (since - before).abs() >= LEAST_LOAD);
    match (matters, is_beyond_chance) {
        (true, true) if since > before => Volume::More,
        (true, true) => Volume::Less,
        (false, _) if NINETY_FIVE * error <= EXCLUDED.ln_1p() => Volume::Same,
        (false, _) if is_load && since.max(before) < LEAST_LOAD => Volume::Same,
        _ => Volume::Unsure,
    }
}

fn test(row: &DiffRow, is_load: bool, is_same: bool) -> Option<TestedFigure> {
    if row.is_calibration || ((row.before.count + row.since.count) as f64) < FEWEST {
        return None;
    }
    let (mut before, mut since) = (figure(&row.before, is_load)?, figure(&row.since, is_load)?);
    // A window without time on a CPU has no `u` of its own and uses the other window's.
    let known = |one: f64, other: f64| [one, other, 1.0].into_iter().find(|unit| *unit > 0.0);
    let units = (known(before.unit, since.unit)?, known(since.unit, before.unit)?);
    (before.unit, since.unit) = units;
    let polls = if is_load { row.variation.load } else { row.variation.calls };
    let variance = polls.variance();
    if let Some(variance) = variance.filter(|_| since.value > 0.0) {
        let bursts = (variance / since.value / since.unit).max(1.0);
        before.unit *= bursts;
        since.unit *= bursts;
    }
    let is_shown = is_same && variance.is_some();
    let assumed = if is_shown { 0.0 } else { ASSUMED_DEVIATION };
    let root = |it: Figure| (it.value + 0.375 * it.unit / it.time).sqrt();
    let variance = |it: Figure| {
        let assumed = assumed * root(it);
        it.unit / (4.0 * it.time) + assumed * assumed / 4.0
    };
    let deviation = (variance(before) + variance(since)).sqrt();
    let distance = (root(since) - root(before)).abs() / deviation;
    let p = match StudentsT::new(0.0, 1.0, f64::from(polls.number.saturating_sub(1))) {
        Ok(t) if is_shown => 2.0 * t.sf(distance),
        _ => two_sided(distance),
    };
    let relative = |it: Figure| 4.0 * variance(it) / (root(it) * root(it));
    let error = (relative(before) + relative(since)).sqrt();
    Some(TestedFigure { before: before.value, since: since.value, error, p, is_load })
}

fn figure(window: &PointWindow, is_load: bool) -> Option<Figure> {
    let length = window.length?;
    Some(match is_load {
        false => Figure { value: window.rate()?, time: length.seconds, unit: 1.0 },
        true => Figure { value: window.load()?, time: length.ticks, unit: mean_square(window) },
    })
}

/// The mean square of a call's time over its mean, in ticks.
fn mean_square(window: &PointWindow) -> f64 {
    let middle = |number: u64| {
        let (low, high) = edges_of(number);
        (low + high) / 2.0
    };
    let sum = |power: i32| {
        window.spread.iter().map(|(number, n)| n * middle(*number).powi(power)).sum::<f64>()
    };
    match (sum(1), sum(2)) {
        (sum, squares) if sum > 0.0 => squares / sum,
        // Without a histogram, the times are assumed to be distributed exponentially.
        _ => 2.0 * window.mean().unwrap_or(0.0),
    }
}

#[cfg(test)]
mod tests;
