//! Repeated measurements of one thing, with what a careful person would ask of them.

use std::fmt;

use super::student::t_quantile;
use crate::named;
use pfp::reading::{core_hz, now, stamp};

/// How sure the interval is.
const CONFIDENCE: f64 = 0.95;
/// A trend is called one if chance makes it no more often than this.
const TREND_BY_CHANCE: f64 = 0.01;
/// And if it is more than this part of the mean: with many samples chance explains
/// nothing any more.
const TREND_THAT_MATTERS: f64 = 0.01;
/// The deviation in a window, as a part of its mean, up to which it is stable.
const STABLE: f64 = 0.05;
/// How far the ends of the confidence interval are from the mean, as a part of it, up to
/// which it is worth telling without a word.
const WIDE: f64 = 0.25;
/// A difference of the core's clock before and after that is more than its
/// measuring's own error.
const CLOCK_CHANGED: f64 = 0.02;

/// What [`crate::sample`] found. Times are seconds; compiled out, there are no samples.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampled {
    /// What was sampled.
    pub name: String,
    /// Runs before the first that counts.
    pub warmups: u32,
    /// Runs that count.
    pub samples: u32,
    /// Mean of a run's time on the CPU; 0 without samples.
    pub mean: f64,
    /// Sample standard deviation; 0 below two samples.
    pub deviation: f64,
    /// Least and greatest.
    pub least: f64,
    /// See `least`.
    pub greatest: f64,
    /// The middle one, or the mean of the two in the middle.
    pub median: f64,
    /// The interval that holds the true mean with a probability of 95 %, if runs are
    /// independent and alike: `mean` minus and plus `t * deviation / sqrt(samples)`,
    /// with the quantile t of Student's distribution for `samples - 1` degrees of
    /// freedom ("Student", "The probable error of a mean", Biometrika 6, 1908). From
    /// minus to plus infinity below two samples.
    pub low: f64,
    /// See `low`.
    pub high: f64,
    /// Whether the runs had settled.
    pub settled: Settled,
    /// The core's clock before the first run that counts and after the last, hertz:
    /// how many dependent additions it does in a second. None where that cannot be
    /// measured.
    pub core_hz: Option<(f64, f64)>,
    /// The two differ by more than 2 %: times of before and after are not comparable.
    pub core_clock_changed: bool,
    /// Wall-clock seconds that the runs that count took together.
    pub elapsed: f64,
}

/// Whether samples had settled. Two things are asked, in the order of the variants; the
/// first that is not so is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// There is no trend and the last runs vary little.
    Yes,
    /// Fewer than eight samples: nobody can say.
    TooFew,
    /// The runs became slower or faster: the means of the first half and of the last
    /// differ by more than 1 % of the mean, and chance explains that in less than
    /// one case of a hundred (Welch's test: B. L. Welch, Biometrika 34, 1947). More
    /// warm-ups help.
    Trend,
    /// In none of the windows of a quarter of the samples, of those that end in the
    /// second half, was the deviation at most 5 % of the mean: the criterion of
    /// A. Georges, D. Buytaert, L. Eeckhout, "Statistically rigorous Java performance
    /// evaluation", OOPSLA 2007, 3.3, with the middle half of each window, so that
    /// one interrupt does not decide it. The machine is busy, or the work differs
    /// from run to run.
    Unstable,
}

impl Settled {
    /// Whether they had.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// Runs `work` `warmups` times and then `samples` times, and says how long one of the
/// latter takes on a CPU and how far that can be trusted. Each of the `samples` runs
/// is also a measurement of the point `name`; the warm-ups are not recorded.
///
/// ```
/// let found = pfp_timing::sample("sum", 10, 30, || (0..1000u64).sum::<u64>());
/// println!("{found}");
/// assert!(found.low <= found.mean && found.mean <= found.high);
/// ```
///
/// Of each run the time counts that the thread was on a CPU, with what is nested in
/// it; on the `wall` clock source it is wall-clock time, as ever.
pub fn sample<R>(name: &str, warmups: u32, samples: u32, mut work: impl FnMut() -> R) -> Sampled {
    let point = named::point(name);
    let rate = pfp::ticks_per_second();
    for _ in 0..warmups {
        std::hint::black_box(work());
    }
    let mut taken = Vec::with_capacity(samples as usize);
    let core_before = core_hz(rate);
    let started = stamp();
    for _ in 0..samples {
        let guard = point.map(|point| point.measure());
        let before = now();
        std::hint::black_box(work());
        let after = now();
        drop(guard);
        taken.extend(difference(before, after));
    }
    let elapsed = stamp().wrapping_sub(started);
    let core_after = core_hz(rate);
    // What two readings one after the other come to is no time of the work's.
    let nothing = (0..16).filter_map(|_| difference(now(), now())).min().unwrap_or(0);
    for ticks in &mut taken {
        *ticks = ticks.saturating_sub(nothing);
    }
    // As exactly as it is known by now.
    let rate = pfp::ticks_per_second();
    Sampled::of(name, warmups, &taken, rate, (core_before, core_after))
        .with_elapsed(elapsed as f64 / rate)
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

impl Settled {
    fn of(samples: &[f64]) -> Self {
        /// For two halves with a deviation each, and a window that is one.
        const FEWEST: usize = 8;
        if samples.len() < FEWEST {
            return Self::TooFew;
        }
        let (first, last) = samples.split_at(samples.len() / 2);
        let (mean, first, last) = (mean(samples), (moments(first)), (moments(last)));
        let difference = (first.mean - last.mean).abs();
        if difference > TREND_THAT_MATTERS * mean && difference > first.chance(&last) {
            return Self::Trend;
        }
        let window = (samples.len() / 4).max(4);
        let from = samples.len() / 2;
        let stable = (from..=samples.len() - window).any(|at| {
            let mut window = samples[at..at + window].to_vec();
            window.sort_unstable_by(f64::total_cmp);
            let quarter = window.len() / 4;
            let middle = moments(&window[quarter..window.len() - quarter]);
            middle.variance.sqrt() <= STABLE * middle.mean
        });
        if stable { Self::Yes } else { Self::Unstable }
    }
}

fn mean(values: &[f64]) -> f64 {
    // The sum of nothing would be minus zero.
    values.iter().fold(0.0, |sum, value| sum + value) / values.len().max(1) as f64
}

struct Moments {
    count: f64,
    mean: f64,
    variance: f64,
}

fn moments(values: &[f64]) -> Moments {
    let (count, mean) = (values.len() as f64, mean(values));
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = if count > 1.0 { squares / (count - 1.0) } else { 0.0 };
    Moments { count, mean, variance }
}

impl Moments {
    /// The difference of two means up to which chance is an explanation.
    fn chance(&self, other: &Self) -> f64 {
        let (a, b) = (self.variance / self.count, other.variance / other.count);
        if a + b <= 0.0 {
            return 0.0;
        }
        let freedom = (a + b).powi(2) / (a * a / (self.count - 1.0) + b * b / (other.count - 1.0));
        t_quantile(TREND_BY_CHANCE, freedom) * (a + b).sqrt()
    }
}

impl Sampled {
    fn of(
        name: &str,
        warmups: u32,
        ticks: &[u64],
        rate: f64,
        core: (Option<f64>, Option<f64>),
    ) -> Self {
        let samples: Vec<f64> = ticks.iter().map(|&ticks| ticks as f64 / rate).collect();
        let Moments { count, mean, variance } = moments(&samples);
        let mut sorted = samples.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let at = |place: usize| sorted.get(place).copied().unwrap_or(0.0);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            0 => f64::midpoint(at(middle.saturating_sub(1)), at(middle)),
            _ => at(middle),
        };
        let half = match sorted.len() {
            0 | 1 => f64::INFINITY,
            _ => t_quantile(1.0 - CONFIDENCE, count - 1.0) * (variance / count).sqrt(),
        };
        let core_hz = core.0.zip(core.1);
        let core_clock_changed =
            core_hz.is_some_and(|(a, b)| (a - b).abs() > CLOCK_CHANGED * a.max(b));
        Self {
            name: name.to_owned(),
            warmups,
            samples: u32::try_from(samples.len()).unwrap_or(u32::MAX),
            mean,
            deviation: variance.sqrt(),
            least: at(0),
            greatest: at(sorted.len().saturating_sub(1)),
            median,
            low: mean - half,
            high: mean + half,
            settled: Settled::of(&samples),
            core_hz,
            core_clock_changed,
            elapsed: 0.0,
        }
    }

    fn with_elapsed(self, elapsed: f64) -> Self {
        Self { elapsed, ..self }
    }
}

/// A time with three digits and a unit.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0.abs() {
            infinite if infinite.is_infinite() => (self.0, "s"),
            s if s >= 1.0 => (self.0, "s"),
            s if s >= 1e-3 => (self.0 * 1e3, "ms"),
            s if s >= 1e-6 => (self.0 * 1e6, "us"),
            _ => (self.0 * 1e9, "ns"),
        };
        let digits = if value.abs() >= 100.0 { 0 } else { 2 - usize::from(value.abs() >= 10.0) };
        write!(out, "{value:.digits$} {unit}")
    }
}

impl fmt::Display for Sampled {
    /// One line of figures, and one for each thing to mind.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, samples, warmups, .. } = self;
        write!(out, "{name}: {}", Seconds(self.mean))?;
        if *samples > 1 {
            write!(out, ", 95 % sure {} to {}", Seconds(self.low), Seconds(self.high))?;
            write!(out, ", deviation {}", Seconds(self.deviation))?;
        }
        write!(out, "; {samples} samples after {warmups} warm-ups")?;
        match self.settled {
            Settled::Yes => {}
            Settled::TooFew => write!(out, "\n  warning: too few samples to see if they settled")?,
            Settled::Trend => write!(
                out,
                "\n  warning: not settled: the last half differs from the first; warm up more"
            )?,
            Settled::Unstable => {
                write!(out, "\n  warning: not settled: the last samples still vary")?;
            }
        }
        let half = self.high - self.mean;
        if *samples > 1 && half > WIDE * self.mean {
            let share = half / self.mean * 100.0;
            write!(out, "\n  warning: the mean is known to {share:.0} % only; take more samples")?;
        }
        if let (true, Some((before, after))) = (self.core_clock_changed, self.core_hz) {
            let (before, after) = (before / 1e9, after / 1e9);
            write!(
                out,
                "\n  warning: the core's clock changed from {before:.2} to {after:.2} GHz"
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: f64 = 1e9;
    const STEADY: (Option<f64>, Option<f64>) = (Some(3e9), Some(3.01e9));

    fn of(ticks: &[u64]) -> Sampled {
        Sampled::of("it", 1, ticks, RATE, STEADY)
    }

    /// Noise that is the same each time.
    fn noise(at: u64) -> u64 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 11
    }

    #[test]
    fn the_interval_is_students() {
        // Worked by hand: mean 12, deviation sqrt(10), t(4) 2.776.
        let found = of(&[8, 10, 12, 14, 16]);
        assert!((found.mean - 12e-9).abs() < 1e-15, "{found:?}");
        assert!((found.deviation - 10f64.sqrt() * 1e-9).abs() < 1e-15, "{found:?}");
        let half = 2.776 * 2f64.sqrt() * 1e-9;
        assert!((found.high - found.mean - half).abs() < 1e-12, "{found:?}");
        assert!((found.mean - found.low - half).abs() < 1e-12, "{found:?}");
        assert_eq!((found.least, found.median, found.greatest), (8e-9, 12e-9, 16e-9));
        let one = of(&[7]);
        assert!(one.low == f64::NEG_INFINITY && one.high == f64::INFINITY, "{one:?}");
        assert_eq!((one.mean, one.median), (7e-9, 7e-9));
        let none = of(&[]);
        assert_eq!((none.mean, none.samples, none.settled), (0.0, 0, Settled::TooFew));
    }

    #[test]
    fn what_has_settled_is_told_from_what_has_not() {
        let flat: Vec<u64> = (0..40).map(|at| 1000 + noise(at)).collect();
        assert_eq!(of(&flat).settled, Settled::Yes);
        // One interrupt is not the machine's unrest.
        let mut interrupted = flat.clone();
        interrupted[35] = 9000;
        assert_eq!(of(&interrupted).settled, Settled::Yes);
        let warming: Vec<u64> = (0..40).map(|at| 1000 + 20 * (40 - at) + noise(at)).collect();
        assert_eq!(of(&warming).settled, Settled::Trend);
        // Half a per cent is a trend for the test, and none that matters.
        let drifting: Vec<u64> = (0..400).map(|at| 10_000 + at / 8).collect();
        assert_eq!(of(&drifting).settled, Settled::Yes);
        let wild: Vec<u64> = (0..40).map(|at| 100 + 90 * noise(at)).collect();
        assert_eq!(of(&wild).settled, Settled::Unstable);
        assert_eq!(of(&flat[..7]).settled, Settled::TooFew);
    }

    #[test]
    fn a_change_of_the_cores_clock_is_warned_of() {
        let ticks = [1000; 20];
        assert!(!of(&ticks).core_clock_changed);
        let slower = Sampled::of("it", 0, &ticks, RATE, (Some(3e9), Some(2.5e9)));
        assert!(slower.core_clock_changed);
        let text = slower.to_string();
        assert!(text.contains("core's clock changed from 3.00 to 2.50 GHz"), "{text}");
        let unknown = Sampled::of("it", 0, &ticks, RATE, (None, Some(2.5e9)));
        assert!(!unknown.core_clock_changed && unknown.core_hz.is_none());
    }

    #[test]
    fn it_is_said_in_words() {
        let found = of(&[1_200_000; 10]);
        let text = "it: 1.20 ms, 95 % sure 1.20 ms to 1.20 ms, deviation 0.00 ns; \
                    10 samples after 1 warm-ups";
        assert_eq!(found.to_string(), text);
        assert!(of(&[5, 6]).to_string().contains("too few"));
        let none = "it: 0.00 ns; 0 samples after 1 warm-ups\n  warning: too few";
        assert!(of(&[]).to_string().starts_with(none), "{}", of(&[]));
        // Seldom and large: the runs have settled, and their mean is not known.
        let mut seldom = [3_000; 40];
        seldom[7] = 900_000;
        let found = of(&seldom).to_string();
        // Worked by hand: mean 25,425, deviation 141,828, t(39) 2.0227.
        assert!(
            found.ends_with("\n  warning: the mean is known to 178 % only; take more samples"),
            "{found}"
        );
    }
}
