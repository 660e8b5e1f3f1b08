//! What sampling finds, whether it measures or is compiled out.

/// What [`crate::sample`] found. Times are seconds; without measuring all figures are 0.
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
