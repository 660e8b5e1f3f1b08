//! What can be asked for wrongly.

use std::fmt;
use std::time::Duration;

/// A weight for an exponential average that is not in (0, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlphaError {
    /// The weight that was asked for.
    pub alpha: f64,
}

impl fmt::Display for AlphaError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "expected a weight in (0, 1], which is period / time constant, found {}; choose a \
             time constant that is not shorter than the period",
            self.alpha
        )
    }
}

impl std::error::Error for AlphaError {}

/// Why a numbered point cannot be set.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SetError {
    /// The weight is not in (0, 1].
    Alpha(AlphaError),
    /// There is no point of this number.
    NoSuchPoint {
        /// The number.
        id: u32,
    },
}

impl fmt::Display for SetError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alpha(error) => error.fmt(out),
            Self::NoSuchPoint { id } => {
                write!(out, "expected a point number below {}, found {id}", crate::NUMERIC)
            }
        }
    }
}

impl std::error::Error for SetError {}

/// `period / tau`, or something outside (0, 1] where that is no number.
pub(crate) fn alpha_of(period: Duration, tau: Duration) -> f64 {
    if tau.is_zero() { 0.0 } else { period.as_secs_f64() / tau.as_secs_f64() }
}
