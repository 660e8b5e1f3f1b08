//! The process as a whole: the number of CPUs that it uses, and the recent maximum of its points'
//! loads. That maximum scales bars and curves.

use std::collections::VecDeque;

use super::interval::{Interval, smoothed};
use pfp_read::snapshot::{ProcessState, Snapshot};

/// Number of polls whose greatest load is remembered.
const POLLS: usize = 60;
/// Number of polls that may exceed the scale, so that a single burst does not flatten all others.
const ODD: usize = 2;
/// Possible upper ends of the scale below one CPU.
const STEPS: [f64; 4] = [0.05, 0.1, 0.25, 0.5];

/// The CPUs that a process uses, and the highest loads of its points.
#[derive(Debug, Default)]
pub(super) struct Busy {
    /// Number of CPUs that the process uses, smoothed.
    pub(super) cpus: Option<f64>,
    /// The greatest load of a point in each of the last polls, newest last.
    tops: VecDeque<f64>,
    /// The greatest smoothed load on the screen.
    shown: f64,
}

impl Busy {
    /// Adds an interval.
    pub(super) fn take(&mut self, before: &Snapshot, now: &Snapshot, interval: Interval) {
        let spent = before.usage.zip(now.usage).filter(|_| running(before) == running(now));
        let spent = spent.and_then(|(before, now)| now.cpu_ns.checked_sub(before.cpu_ns));
        let load = spent.map(|spent| spent as f64 / 1e9 / interval.seconds);
        self.cpus = match load {
            Some(load) => Some(smoothed(self.cpus, load, interval.weight)),
            // When a process joins or ends, the sum of CPU times jumps. So the number of CPUs that
            // the other processes used is unknown: keep the last value.
            None => self.cpus.filter(|_| now.usage.is_some()),
        };
    }

    /// Remembers the greatest load of a poll, and the greatest on the screen.
    pub(super) fn remember(&mut self, top: f64, shown: f64) {
        self.shown = shown;
        self.tops.push_back(top);
        if self.tops.len() > POLLS {
            self.tops.pop_front();
        }
    }

    /// The upper end of a scale for all loads on the screen, and for nearly all loads of the last
    /// polls: a round share of a CPU, or a number of whole CPUs.
    pub(super) fn scale(&self) -> f64 {
        let mut tops: Vec<f64> = self.tops.iter().copied().collect();
        tops.sort_by(|a, b| b.total_cmp(a));
        let top = tops.get(ODD).or(tops.last()).copied().unwrap_or(0.0).max(self.shown);
        STEPS.into_iter().find(|step| top <= *step).unwrap_or_else(|| top.ceil().max(1.0))
    }
}

/// Number of running processes.
fn running(snapshot: &Snapshot) -> usize {
    let members = snapshot.process.members.iter();
    members.filter(|member| member.state == ProcessState::Running).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::snapshot::{Process, Usage};
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn the_scale_is_round_and_fits_recent_loads() {
        let mut busy = Busy::default();
        for (load, end) in [(0.0, 0.05), (0.09, 0.1), (0.57, 1.0), (1.01, 2.0)] {
            (0..=ODD).for_each(|_| busy.remember(load, load));
            assert_eq!(busy.scale(), end, "{load}");
        }
        busy.remember(0.01, 0.01);
        assert_eq!(busy.scale(), 2.0);
        (0..POLLS).for_each(|_| busy.remember(0.2, 0.2));
        assert_eq!(busy.scale(), 0.25);
    }

    #[test]
    fn a_single_burst_does_not_set_the_scale() {
        let mut busy = Busy::default();
        (0..10).for_each(|_| busy.remember(0.3, 0.3));
        busy.remember(1.9, 0.62);
        assert_eq!(busy.scale(), 1.0, "the bar of the smoothed load fits");
        busy.remember(0.3, 0.45);
        assert_eq!(busy.scale(), 0.5);
    }

    #[test]
    fn the_share_of_the_cpus_is_of_the_same_processes() {
        let used = |cpu_ns: u64, members: usize| {
            let mut snapshot = Synthetic::new().poll().unwrap();
            let usage = Usage { cpu_ns, memory_bytes: 0, threads: 1, cpus: 2 };
            snapshot.usage = (cpu_ns > 0).then_some(usage);
            snapshot.process.members = vec![Process::default(); members];
            snapshot
        };
        let interval = Interval { ticks: 1, seconds: 2.0, weight: 0.5 };
        let mut busy = Busy::default();
        busy.take(&used(1_000_000_000, 1), &used(4_000_000_000, 1), interval);
        assert_eq!(busy.cpus, Some(1.5));
        busy.take(&used(4_000_000_000, 1), &used(5_000_000_000, 1), interval);
        assert_eq!(busy.cpus, Some(1.0));
        // A process has joined, with all the CPU time that it has used before.
        busy.take(&used(5_000_000_000, 1), &used(99_000_000_000, 2), interval);
        assert_eq!(busy.cpus, Some(1.0));
        busy.take(&used(5_000_000_000, 1), &used(0, 1), interval);
        assert_eq!(busy.cpus, None);
    }
}
