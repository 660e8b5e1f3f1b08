//! A bounded memory of a point's load.

use std::collections::VecDeque;

/// How many samples a history keeps.
const KEPT: usize = 600;

/// The load over one interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When the interval ended, ticks since the segment was created.
    pub at_ticks: u64,
    /// Share of one CPU; none where it is not known: a reset, or a pause of
    /// the viewer.
    pub load: Option<f64>,
}

/// The last loads of one point, oldest first.
#[derive(Clone, Debug, Default)]
pub struct History {
    samples: VecDeque<Sample>,
}

impl History {
    /// Adds the newest sample, forgetting the oldest when full.
    pub(super) fn push(&mut self, sample: Sample) {
        if self.samples.len() == KEPT {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The last `n` samples, oldest first.
    pub fn last(&self, n: usize) -> impl Iterator<Item = &Sample> {
        self.samples.range(self.samples.len().saturating_sub(n)..)
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample yet.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_forgets_the_oldest_and_stays_bounded() {
        let mut history = History::default();
        assert!(history.is_empty());
        for at_ticks in 0..10_000 {
            history.push(Sample { at_ticks, load: None });
        }
        assert_eq!(history.len(), KEPT);
        let last: Vec<_> = history.last(2).map(|sample| sample.at_ticks).collect();
        assert_eq!(last, [9998, 9999]);
        assert_eq!(history.last(usize::MAX).count(), KEPT);
    }
}
