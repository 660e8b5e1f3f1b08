//! Repeated measurements of a piece of work, with statistics that show how reliable they are.

use std::fmt;

use super::student::t_quantile;
use crate::{heap, named};
use pfp::reading::{core_hz, now, stamp};

/// Confidence of the interval.
const CONFIDENCE: f64 = 0.95;
/// Probability below which chance does not count as an explanation of a difference between the
/// first and the second half of the samples.
const TREND_BY_CHANCE: f64 = 0.01;
/// Difference between the halves, as a fraction of the mean, up to which it does not count as a
/// trend. Needed because with many samples, even differences that are too small to matter are
/// significant.
const TREND_THAT_MATTERS: f64 = 0.01;
/// Maximum deviation within a stable window, as a fraction of its mean.
const STABLE: f64 = 0.05;
/// Half-width of the confidence interval, as a fraction of the mean, above which the text warns.
const WIDE: f64 = 0.25;
/// Relative difference between the core's clock before and after the runs, above which it is a
/// change and not an error of the measurement.
const CLOCK_CHANGED: f64 = 0.02;

/// Result of [`crate::sample`]. Times are in seconds. If measuring is compiled out, or memory runs
/// out, the number of samples is 0.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Sampled {
    /// Name of the work; empty if memory ran out.
    pub name: String,
    /// Number of warm-up runs.
    pub warmups: u32,
    /// Number of measured runs.
    pub samples: u32,
    /// Mean of a run's time on the CPU; 0 without samples.
    pub mean: f64,
    /// Sample standard deviation; 0 below two samples.
    pub deviation: f64,
    /// Smallest time of a run on the CPU; 0 without samples.
    pub least: f64,
    /// Greatest time of a run on the CPU; 0 without samples.
    pub greatest: f64,
    /// Median: the middle time, or the mean of the two in the middle.
    pub median: f64,
    /// Lower end of the confidence interval, which contains the true mean with a probability of 95
    /// % if runs are independent and identically distributed. The interval is `mean` minus and plus
    /// `t * deviation / sqrt(samples)`, where t is the quantile of Student's distribution for
    /// `samples - 1` degrees of freedom ("Student", "The probable error of a mean", Biometrika 6,
    /// 1908). Infinite below two samples.
    pub low: f64,
    /// Upper end of the confidence interval; see `low`.
    pub high: f64,
    /// Whether the runs had settled.
    pub settled: Settled,
    /// The core's clock frequency before the first run that counts and after the last one, in
    /// hertz: the number of dependent additions per second. `None` if it cannot be measured.
    pub core_hz: Option<(f64, f64)>,
    /// Whether the two frequencies differ by more than 2 %. If so, times before and after the
    /// change are not comparable.
    pub core_clock_changed: bool,
    /// Wall-clock seconds of all runs that count.
    pub elapsed: f64,
}

/// Whether samples had settled. The checks are made in the order of the last three variants; the
/// first that applies is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// The runs show no trend, and the last ones vary little.
    Yes,
    /// There are fewer than eight samples, too few to decide.
    TooFew,
    /// The runs became slower or faster: the means of the first and the last half differ by more
    /// than 1 % of the mean, and chance explains that with a probability of less than 1 % (Welch's
    /// test: B. L. Welch, Biometrika 34, 1947). More warm-ups help.
    Trend,
    /// The last runs vary: no window in the second half, each a quarter of the samples long, has a
    /// deviation of at most 5 % of its mean. This is the criterion of A. Georges, D. Buytaert, L.
    /// Eeckhout, "Statistically rigorous Java performance evaluation", OOPSLA 2007, 3.3, applied to
    /// the middle half of each window, so that one interrupt does not decide. The machine is busy,
    /// or the work differs from run to run.
    Unstable,
}

impl Settled {
    /// Whether the samples had settled.
    #[must_use]
    pub fn is_yes(self) -> bool {
        self == Self::Yes
    }
}

/// Runs `work` `warmups` times and then `samples` times. Returns how long one of the `samples` runs
/// takes on a CPU, and how reliable that is. Each of these runs is also a measurement of the point
/// `name`; the warm-ups are not recorded.
///
/// ```
/// let found = pfp_timing::sample("sum", 10, 30, || (0..1000u64).sum::<u64>());
/// println!("{found}");
/// assert!(found.low <= found.mean && found.mean <= found.high);
/// ```
///
/// The time of a run is the thread's on-CPU time, including nested regions. With the `wall` clock
/// source, it is wall-clock time.
pub fn sample<R>(name: &str, warmups: u32, samples: u32, mut work: impl FnMut() -> R) -> Sampled {
    let point = named::point("", name);
    let rate = pfp::ticks_per_second();
    for _ in 0..warmups {
        std::hint::black_box(work());
    }
    let mut taken = Vec::new();
    let has_room = taken.try_reserve_exact(samples as usize).is_ok();
    let core_before = core_hz(rate);
    let started = stamp();
    for _ in 0..samples {
        let guard = point.map(|point| point.measure());
        let before = now();
        std::hint::black_box(work());
        let after = now();
        drop(guard);
        taken.extend(difference(before, after).filter(|_| has_room));
    }
    let elapsed = stamp().wrapping_sub(started);
    let core_after = core_hz(rate);
    // The difference of two successive readings is the cost of measuring.
    let nothing = (0..16).filter_map(|_| difference(now(), now())).min().unwrap_or(0);
    for ticks in &mut taken {
        *ticks = ticks.saturating_sub(nothing);
    }
    // Read again, because the rate has become more accurate.
    let rate = pfp::ticks_per_second();
    Sampled::of(name, warmups, &taken, rate, (core_before, core_after))
        .with_elapsed(elapsed as f64 / rate)
}

fn difference(before: Option<u64>, after: Option<u64>) -> Option<u64> {
    Some(after?.saturating_sub(before?))
}

impl Settled {
    /// Overwrites `scratch`, which is as long as `samples`.
    fn of(samples: &[f64], scratch: &mut [f64]) -> Self {
        /// Eight samples give two halves and a window of four samples, each with a deviation.
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
        let window = &mut scratch[..(samples.len() / 4).max(4)];
        let from = samples.len() / 2;
        let stable = (from..=samples.len() - window.len()).any(|at| {
            window.copy_from_slice(&samples[at..at + window.len()]);
            window.sort_unstable_by(f64::total_cmp);
            let quarter = window.len() / 4;
            let middle = moments(&window[quarter..window.len() - quarter]);
            middle.variance.sqrt() <= STABLE * middle.mean
        });
        if stable { Self::Yes } else { Self::Unstable }
    }
}

fn mean(values: &[f64]) -> f64 {
    // `Iterator::sum` of no values would be minus zero.
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
    /// The largest difference of two means that chance explains.
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
        let seconds = || heap::collect(ticks.iter().map(|&ticks| ticks as f64 / rate)).ok();
        let (samples, mut sorted) = seconds().zip(seconds()).unwrap_or_default();
        let Moments { count, mean, variance } = moments(&samples);
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
            name: heap::text(name).unwrap_or_default(),
            warmups,
            samples: u32::try_from(samples.len()).unwrap_or(u32::MAX),
            mean,
            deviation: variance.sqrt(),
            least: at(0),
            greatest: at(sorted.len().saturating_sub(1)),
            median,
            low: mean - half,
            high: mean + half,
            settled: Settled::of(&samples, &mut sorted),
            core_hz,
            core_clock_changed,
            elapsed: 0.0,
        }
    }

    fn with_elapsed(self, elapsed: f64) -> Self {
        Self { elapsed, ..self }
    }
}

/// Formats a time with three digits and a unit.
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
    /// Writes one line of figures, and one line for each warning.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, samples, warmups, .. } = self;
        write!(out, "{name}: {}", Seconds(self.mean))?;
        if *samples > 1 {
            write!(
                out,
                ", 95 % confidence interval {} to {}",
                Seconds(self.low),
                Seconds(self.high)
            )?;
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
            write!(out, "\n  warning: the mean is uncertain by {share:.0} %; take more samples")?;
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

    /// Reproducible noise.
    fn noise(at: u64) -> u64 {
        (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % 11
    }

    #[test]
    fn the_interval_is_students() {
        // Calculated by hand: mean 12, deviation sqrt(10), t(4) 2.776.
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
    fn settled_and_unsettled_samples_are_distinguished() {
        let flat: Vec<u64> = (0..40).map(|at| 1000 + noise(at)).collect();
        assert_eq!(of(&flat).settled, Settled::Yes);
        // One interrupt does not make samples unstable.
        let mut interrupted = flat.clone();
        interrupted[35] = 9000;
        assert_eq!(of(&interrupted).settled, Settled::Yes);
        let warming: Vec<u64> = (0..40).map(|at| 1000 + 20 * (40 - at) + noise(at)).collect();
        assert_eq!(of(&warming).settled, Settled::Trend);
        // Half a per cent is significant for Welch's test, but too small to be a trend.
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
    fn a_result_prints_its_figures_and_warnings() {
        let found = of(&[1_200_000; 10]);
        let text = "it: 1.20 ms, 95 % confidence interval 1.20 ms to 1.20 ms, deviation 0.00 ns; \
                    10 samples after 1 warm-ups";
        assert_eq!(found.to_string(), text);
        assert!(of(&[5, 6]).to_string().contains("too few"));
        let none = "it: 0.00 ns; 0 samples after 1 warm-ups\n  warning: too few";
        assert!(of(&[]).to_string().starts_with(none), "{}", of(&[]));
        // Rare and large outliers: the runs have settled, but the mean is uncertain.
        let mut seldom = [3_000; 40];
        seldom[7] = 900_000;
        let found = of(&seldom).to_string();
        // Calculated by hand: mean 25,425, deviation 141,828, t(39) 2.0227.
        assert!(
            found.ends_with("\n  warning: the mean is uncertain by 178 %; take more samples"),
            "{found}"
        );
    }
}
