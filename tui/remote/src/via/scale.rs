//! Converts ticks of different clocks to nanoseconds.
//!
//! Each machine's clock has its own rate. In nanoseconds, figures of all machines are comparable.

use std::sync::Arc;

use pfp_read::snapshot::{Cell, Drained, Record, SlowCall, Snapshot, Stats};

const PER_SECOND: f64 = 1e9;
/// Rates that differ by less than this share count as equal: following a smaller refinement would
/// change all figures for no gain.
const SAME_RATE: f64 = 2e-5;

/// Converts ticks of one clock to nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockScale(f64);

impl ClockScale {
    /// The conversion for a clock with this rate; without a rate, ticks stay as they are.
    pub(super) fn of(ticks_per_second: f64) -> Self {
        let scale = PER_SECOND / ticks_per_second;
        Self(if scale.is_finite() && scale > 0.0 { scale } else { 1.0 })
    }

    /// The conversion for a clock that now reports this rate: `known`, unless the rate has changed
    /// by more than [`SAME_RATE`]. Mostly only the first rate changes that much, since a process
    /// measures it within 0.2 ms.
    pub(super) fn follow(known: Option<Self>, ticks_per_second: f64) -> Self {
        let new = Self::of(ticks_per_second);
        known.filter(|known| (new.0 / known.0 - 1.0).abs() < SAME_RATE).unwrap_or(new)
    }

    /// Converts a snapshot.
    pub(super) fn snapshot(self, snapshot: &mut Snapshot) {
        let clock = &mut snapshot.clock;
        clock.ticks_per_second = PER_SECOND;
        clock.reported_ticks_per_second = None;
        clock.overhead_inside = self.ticks(clock.overhead_inside);
        clock.overhead_pair = self.ticks(clock.overhead_pair);
        snapshot.elapsed_ticks = self.ticks(snapshot.elapsed_ticks);
        snapshot.ages.iter_mut().for_each(|age| *age = self.ticks(*age));
        for point in &mut snapshot.points {
            point.since_ticks = point.since_ticks.map(|ticks| self.ticks(ticks));
        }
        for open in snapshot.lanes.iter_mut().flat_map(|lane| &mut lane.open) {
            open.start = self.ticks(open.start);
            open.on_cpu = open.on_cpu.map(|ticks| self.ticks(ticks));
        }
        for edge in &mut snapshot.edges {
            edge.exclusive = self.ticks(edge.exclusive);
            edge.inclusive = self.ticks(edge.inclusive);
        }
        for cell in &mut snapshot.cells {
            self.cell(Arc::make_mut(cell));
        }
        for call in &mut snapshot.slow {
            self.slow_call(Arc::make_mut(call));
        }
        self.records(&mut snapshot.records);
    }

    fn slow_call(self, call: &mut SlowCall) {
        (call.start, call.span) = self.period(call.start, call.span);
        let SlowCall { inclusive, exclusive, off_cpu, kernel, .. } = call;
        let before = kernel.as_mut().map(|counts| &mut counts.before);
        for ticks in [inclusive, exclusive, off_cpu].into_iter().chain(before) {
            *ticks = self.ticks(*ticks);
        }
        for region in &mut call.enclosing {
            region.start = self.ticks(region.start);
        }
        self.records(&mut call.records);
        self.records(&mut call.others);
    }

    /// Converts the records of rings.
    pub(super) fn drained(self, lanes: &mut [Drained]) {
        lanes.iter_mut().for_each(|lane| self.records(&mut lane.records));
    }

    pub(super) fn records(self, records: &mut [Record]) {
        for record in records {
            (record.start, record.span) = self.period(record.start, record.span);
            record.exclusive = self.ticks(record.exclusive);
        }
    }

    fn cell(self, cell: &mut Cell) {
        let of_tuples = cell.tuples.iter_mut().map(|tuple| &mut tuple.stats);
        for stats in [&mut cell.stats, &mut cell.retired].into_iter().chain(of_tuples) {
            self.stats(stats);
        }
        for bucket in &mut cell.histogram {
            (bucket.low, bucket.width) = self.period(bucket.low, bucket.width);
            bucket.width = bucket.width.max(1);
        }
    }

    fn stats(self, stats: &mut Stats) {
        let squares = |squares: u128| (squares as f64 * self.0 * self.0) as u128;
        *stats = stats.converted(|ticks| self.ticks(ticks), squares);
    }

    /// Converts a begin and a length. Equal ends stay equal.
    fn period(self, start: u64, span: u64) -> (u64, u64) {
        let end = self.ticks(start.saturating_add(span));
        let start = self.ticks(start);
        (start, end.saturating_sub(start))
    }

    fn ticks(self, ticks: u64) -> u64 {
        // `u64::MAX` marks a missing value, so it stays.
        if ticks == u64::MAX { ticks } else { (ticks as f64 * self.0).round() as u64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pfp_read::source::Source;
    use pfp_read::source::synthetic::Synthetic;

    #[test]
    fn a_call_and_the_one_around_it_still_end_together() {
        for start in 0..100 {
            let record = Record {
                lane: 0,
                point: 1,
                start: 1_000 + start,
                span: 500 - start,
                exclusive: 7,
                depth: 0,
                context: 0,
            };
            let mut records = [record];
            let mut call = SlowCall { start: 1_000, span: 500, ..SlowCall::default() };
            ClockScale::of(24e6 + 1.0).records(&mut records);
            ClockScale::of(24e6 + 1.0).slow_call(&mut call);
            assert_eq!(records[0].end(), call.end(), "{start}");
        }
    }

    #[test]
    fn conversion_keeps_seconds() {
        let before = Synthetic::new().poll().unwrap();
        let mut after = before.clone();
        let rate = before.clock.ticks_per_second;
        ClockScale::of(rate).snapshot(&mut after);
        let near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * one.abs() + 2e-9;
        assert!(near(before.elapsed_ticks as f64 / rate, after.elapsed_ticks as f64 / PER_SECOND));
        for (old, new) in before.cells.iter().zip(&after.cells) {
            for time in [|s: &Stats| s.exclusive, |s: &Stats| s.inclusive, |s: &Stats| s.max] {
                let [old, new] = [(time(&old.stats), rate), (time(&new.stats), PER_SECOND)]
                    .map(|(ticks, rate)| ticks as f64 / rate);
                assert!(near(old, new), "{old} {new}");
            }
            assert_eq!(old.stats.count, new.stats.count);
            let counts =
                |cell: &Cell| cell.histogram.iter().map(|bucket| bucket.count).sum::<u64>();
            assert_eq!(counts(old), counts(new));
            let [old, new] = [(old, rate), (new, PER_SECOND)]
                .map(|(cell, rate)| cell.stats.squares as f64 / rate / rate);
            assert!((old - new).abs() <= 1e-6 * old, "{old} {new}");
        }
        let mut empty = Stats::default();
        ClockScale::of(rate).stats(&mut empty);
        assert_eq!(empty, Stats::default());
        assert_eq!(ClockScale::of(0.0).ticks(7), 7);
    }

    #[test]
    fn a_refined_rate_is_followed_and_jitter_is_not() {
        let follow =
            |known: f64, rate: f64| ClockScale::follow(Some(ClockScale::of(known)), rate).0;
        assert_eq!(ClockScale::follow(None, 2.6e9).0, ClockScale::of(2.6e9).0);
        // A first rate that is wrong by 200 ppm makes an error of 17 s per day.
        assert_eq!(follow(2.60052e9, 2.6e9), ClockScale::of(2.6e9).0);
        assert_eq!(follow(2.6e9, 2.600_01e9), ClockScale::of(2.6e9).0);
        assert_eq!(follow(2.6e9, 1e9), 1.0, "another clock");
    }
}
