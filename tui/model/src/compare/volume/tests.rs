//! Verdicts on calls and loads of points whose true change is known.

use super::*;
use crate::Length;
use crate::compare::Verdict;
use crate::compare::tests::{Chance, row};
use crate::histogram::number_of;

/// Ticks are nanoseconds.
const TICKS: f64 = 1e9;

impl Chance {
    /// A number of independent events, `mean` on average.
    fn events(&mut self, mean: f64) -> u64 {
        let (mut number, mut left) = (0, mean);
        loop {
            left += (1.0 - self.uniform()).ln();
            if left < 0.0 {
                return number;
            }
            number += 1;
        }
    }
}

/// A window with `count` calls of 100 us each.
fn window(count: u64, seconds: f64) -> PointWindow {
    let (spread, exclusive) = (vec![(number_of(100_000), count as f64)], count as f64 * 100_000.0);
    let length = Some(Length { ticks: seconds * TICKS, seconds });
    let spread = if count > 0 { spread } else { Vec::new() };
    PointWindow { count, exclusive, length, spread, ..PointWindow::default() }
}

/// The verdicts on calls and load of two windows.
fn judged(before: PointWindow, since: PointWindow, is_same: bool) -> (Volume, Volume) {
    let mut rows = [row(before, since)];
    judge(&mut rows, is_same);
    (rows[0].calls, rows[0].load)
}

#[test]
fn more_calls_of_the_same_length_are_more_calls_and_more_load() {
    let mut rows = [row(window(2_500, 10.0), window(21_500, 10.0))];
    crate::compare::judge(&mut rows);
    judge(&mut rows, false);
    assert!(rows[0].rate_change().unwrap() > 7.5 && rows[0].load_change().unwrap() > 0.18);
    // The time of a call has not changed.
    assert!(!matches!(rows[0].verdict, Verdict::Slower | Verdict::Faster), "{:?}", rows[0]);
    assert_eq!((rows[0].calls, rows[0].load), (Volume::More, Volume::More));
    assert_eq!(
        judged(window(21_500, 10.0), window(2_500, 10.0), false),
        (Volume::Less, Volume::Less)
    );
    // Calls appear, and disappear.
    assert_eq!(judged(window(0, 10.0), window(2_500, 10.0), false), (Volume::More, Volume::More));
    assert_eq!(judged(window(2_500, 10.0), window(0, 10.0), false), (Volume::Less, Volume::Less));
}

#[test]
fn the_calibration_point_is_not_judged() {
    let mut rows = [row(window(20_000, 10.0), window(0, 10.0))];
    rows[0].is_calibration = true;
    judge(&mut rows, true);
    assert_eq!((rows[0].calls, rows[0].load), (Volume::Unsure, Volume::Unsure));
}

#[test]
fn windows_of_any_length_are_compared_by_the_second() {
    for (seconds, count) in [(1.0, 1_000), (10.0, 10_000), (300.0, 300_000)] {
        let found = judged(window(10_000, 10.0), window(count, seconds), false);
        assert_eq!(found, (Volume::Same, Volume::Same), "{seconds}");
    }
    // No length is known after a reset at an unknown time.
    let unknown = PointWindow { length: None, ..window(5_000, 1.0) };
    assert_eq!(judged(window(10, 10.0), unknown, false), (Volume::Unsure, Volume::Unsure));
}

#[test]
fn small_changes_and_few_calls_are_no_difference() {
    // A fifth more calls.
    assert_eq!(judged(window(10_000, 10.0), window(12_000, 10.0), false).0, Volume::Same);
    // A third more calls may be chance between two runs, but not within one process.
    assert_eq!(judged(window(10_000, 10.0), window(13_300, 10.0), false).0, Volume::Unsure);
    let third = |each: u64| {
        let mut row = row(window(20_000, 20.0), window(0, 0.0));
        for seconds in 1..=20 {
            let now = window(each * seconds, seconds as f64);
            row.variation = row.variation.after(&row.since, &now);
            row.since = now;
        }
        let mut rows = [row];
        judge(&mut rows, true);
        rows[0].calls
    };
    assert_eq!([third(1_330), third(1_100)], [Volume::More, Volume::Same]);
    // Twice as many calls, but few of them.
    assert_eq!(judged(window(9, 10.0), window(18, 10.0), false).0, Volume::Unsure);
    assert_eq!(judged(window(3, 10.0), window(6, 10.0), false).0, Volume::Unsure);
    // The point's calls never take time on a CPU.
    let idle =
        |count| PointWindow { exclusive: 0.0, spread: vec![(0, 0.0)], ..window(count, 10.0) };
    assert_eq!(judged(idle(500), idle(500), false), (Volume::Same, Volume::Same));
    // A negligible load that grows tenfold.
    let found = judged(window(50, 10.0), window(500, 10.0), false);
    assert_eq!(found, (Volume::More, Volume::Same));
}

#[test]
fn a_load_grows_without_more_calls_where_calls_take_longer() {
    let long = PointWindow {
        exclusive: 1_000.0 * 900_000.0,
        spread: vec![(number_of(900_000), 1_000.0)],
        ..window(1_000, 1.0)
    };
    assert_eq!(judged(window(1_000, 1.0), long, false), (Volume::Same, Volume::More));
}

/// The windows of a pair have independent calls at the same rate, so nearly no pair is found to
/// differ: within one process, where the polls show how much calls vary, and between two processes.
#[test]
fn calls_at_the_same_rate_rarely_differ() {
    let mut chance = Chance(0x5851_f42d_4c95_7f2d);
    for is_same in [false, true] {
        let mut wrong = 0;
        for round in 0..300 {
            let rate = [3.0, 20.0, 150.0][round % 3];
            let polls = 12 + round as u64 % 30;
            let mut row = row(window(chance.events(rate * 40.0), 40.0), window(0, 0.0));
            for _ in 0..polls {
                let length = row.since.length.unwrap().seconds + 1.0;
                let now = window(row.since.count + chance.events(rate), length);
                row.variation = row.variation.after(&row.since, &now);
                row.since = now;
            }
            let mut rows = [row];
            judge(&mut rows, is_same);
            wrong += usize::from(rows[0].calls.differs() || rows[0].load.differs());
        }
        // Two tests at 1 % each: 6 are expected at most, and more than 16 in one of 10,000 tries.
        assert!(wrong <= 16, "{wrong} of 300, {is_same}");
    }
}

/// Calls come a thousand at a time, once in ten polls. Some windows have twice as many bursts as
/// others. If the calls counted as independent, all of these windows would be found to differ.
#[test]
fn bursts_raise_no_alarm() {
    let mut chance = Chance(0x1405_7b7e_f767_814f);
    let (mut wrong, mut halves) = (0, 0);
    for _ in 0..200 {
        let mut row = row(window(1_000 * chance.events(4.0), 40.0), window(0, 0.0));
        for _ in 0..40 {
            let length = row.since.length.unwrap().seconds + 1.0;
            let burst = if chance.uniform() < 0.1 { 1_000 } else { 0 };
            let now = window(row.since.count + burst, length);
            row.variation = row.variation.after(&row.since, &now);
            row.since = now;
        }
        let change = row.rate_change().unwrap_or(0.0);
        halves += usize::from(change.abs() >= 0.5);
        let mut rows = [row];
        judge(&mut rows, true);
        wrong += usize::from(rows[0].calls.differs());
    }
    assert!(halves > 50, "{halves} of 200 have half as many more or less");
    assert!(wrong <= 10, "{wrong} of 200");
}
