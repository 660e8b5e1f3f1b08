use std::sync::Arc;

use super::*;
use crate::histogram::{edges_of, number_of};
use pfp_read::snapshot::{Bucket, Cell, Stats};
use pfp_read::source::Source;
use pfp_read::source::synthetic::Synthetic;

/// Pseudo-random numbers that are the same on every machine (Steele, Lea, Flood: SplitMix64).
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A normally distributed number, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.next(), self.next());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

const POINTS: usize = 4;
const SECOND: u64 = 2_600_000_000;

/// A run of ten seconds with these durations of each point, ticks.
fn run(id: u64, durations: &[Vec<f64>]) -> Snapshot {
    let mut snapshot = Synthetic::new().poll().unwrap();
    snapshot.process.segment_id = format!("{id:032x}");
    snapshot.elapsed_ticks = 10 * SECOND;
    snapshot.points.truncate(durations.len() + 1);
    let cells = durations.iter().zip(1..).map(|(durations, point)| {
        let mut counts = BTreeMap::new();
        for ticks in durations {
            *counts.entry(number_of(*ticks as u64)).or_insert(0) += 1;
        }
        let bucket = |(number, count): (&u64, &u64)| {
            let (low, high) = edges_of(*number);
            Bucket { low: low as u64, width: (high - low) as u64, count: *count }
        };
        let stats = Stats {
            count: durations.len() as u64,
            exclusive: durations.iter().map(|ticks| *ticks as u64).sum(),
            min: 0,
            max: u64::MAX,
            ..Stats::default()
        };
        Arc::new(Cell {
            point,
            stats,
            histogram: counts.iter().map(bucket).collect(),
            ..Cell::default()
        })
    });
    snapshot.cells = cells.collect();
    snapshot
}

/// Runs of a program whose runs differ by `deviation`, and whose first point takes longer by the
/// share `slower`.
fn runs(dice: &mut Dice, n: usize, deviation: f64, slower: f64) -> Vec<ProgramRun> {
    let one = |id: usize, dice: &mut Dice| {
        // All points of a run share this factor, as they share the clock rate and the machine's
        // other work.
        let speed = (deviation * dice.normal()).exp();
        let point = |place: usize, dice: &mut Dice| {
            let typical = 26_000.0 * (place + 1) as f64 * speed;
            let typical = if place == 0 { typical * (1.0 + slower) } else { typical };
            (0..1000).map(|_| typical * (0.1 * dice.normal()).exp()).collect::<Vec<f64>>()
        };
        let durations: Vec<_> = (0..POINTS).map(|place| point(place, dice)).collect();
        run(id as u64 + (dice.next() * 1e15) as u64, &durations)
    };
    ProgramRun::all((0..n).map(|id| one(id, dice)).collect())
}

fn limits(text: &str) -> Vec<Limit> {
    text.split(',').map(|limit| Limit::parse(limit).unwrap()).collect()
}

/// The number of failures of a gate in 100 tries.
fn failures(seed: u64, n: usize, deviation: f64, slower: f64) -> usize {
    let mut dice = Dice(seed);
    let limits = limits("p50=5%,mean=5%,load=5%");
    let fails = |_: &usize| {
        let before = runs(&mut dice, n, deviation, 0.0);
        let now = runs(&mut dice, n, deviation, slower);
        let judged = judge(&before, &now, &limits, ASSUMED_DEVIATION, |_| true);
        assert_eq!(judged.rows.len(), 3 * POINTS);
        judged.count(GateFinding::Failed) > 0
    };
    (0..100).filter(fails).count()
}

#[test]
fn a_gate_passes_equal_runs_and_finds_five_per_cent() {
    assert!(failures(1, 5, 0.005, 0.0) <= 5);
    assert!(failures(2, 5, 0.005, 0.05) >= 95);
}

/// Few runs that differ much, and a change of half the limit, raise no alarm.
#[test]
fn few_runs_raise_no_alarm() {
    for (seed, n, deviation) in [(3, 5, 0.05), (4, 2, 0.02), (5, 1, ASSUMED_DEVIATION), (6, 8, 0.1)]
    {
        let alarms = failures(seed, n, deviation, 0.0);
        assert!(alarms <= 5, "{n} runs that differ by {deviation}: {alarms} of 100");
    }
    assert!(failures(7, 5, 0.005, 0.025) <= 5);
}

#[test]
fn a_gate_is_unsure_where_more_runs_would_decide() {
    let mut dice = Dice(8);
    let limits = limits("p50=5%");
    let both = |dice: &mut Dice, slower| {
        let before = runs(dice, 1, 0.0, 0.0);
        judge(&before, &runs(dice, 1, 0.0, slower), &limits, ASSUMED_DEVIATION, |_| true)
    };
    let judged = both(&mut dice, 0.05);
    assert_eq!((judged.count(GateFinding::Failed), judged.assumed), (0, Some(ASSUMED_DEVIATION)));
    let first = judged.rows.iter().find(|row| row.limit.metric == Metric::Quantile(0.5)).unwrap();
    assert_eq!(first.finding, GateFinding::Unsure, "{judged:?}");
    // A large change is found all the same.
    assert_eq!(both(&mut dice, 0.5).count(GateFinding::Failed), 1);
}

#[test]
fn snapshots_of_one_process_are_one_run() {
    let mut source = Synthetic::new();
    let snapshots: Vec<_> = source.polls(6);
    let whole = ProgramRun::all(vec![snapshots[5].clone()]);
    let cut = ProgramRun::all(snapshots.into_iter().rev().collect());
    assert_eq!((cut.len(), cut[0].steps.len()), (1, 6));
    let observed = |run: &ProgramRun, metric| run.measured()["io.parse"].observe(metric).unwrap();
    for metric in [Metric::Quantile(0.5), Metric::Mean, Metric::Load, Metric::Rate] {
        let (cut, whole) = (observed(&cut[0], metric), observed(&whole[0], metric));
        assert_eq!(cut.value, whole.value, "windows make up the whole");
        assert!(cut.within >= whole.within);
    }
    let judged = judge(&whole, &cut, &limits("p50=5%"), ASSUMED_DEVIATION, |_| true);
    assert_eq!((judged.runs_before, judged.runs_now), (1, 1));
    assert!(judged.rows.iter().all(|row| row.change == 0.0 && row.finding == GateFinding::Unsure));
}

/// A t statistic computed by hand: logarithms 0, 0.02 against 0.20, 0.22; pooled variance 0.0002,
/// error 0.01414, limit 10 %, so t = (0.2 - ln 1.05) / 0.01414 = 10.692. For this t and two degrees
/// of freedom, Student's table has p = 0.004316.
#[test]
fn the_test_agrees_with_students_table() {
    let run = |value: f64| Observation { value, within: 0.0, of_calls: 0.0, resolution: 0.0 };
    let limit = Limit::parse("mean=10%").unwrap();
    let found = test(&[run(0.0), run(0.02)], &[run(0.20), run(0.22)], limit, 1.0).unwrap();
    assert!((found.change - 0.2).abs() < 1e-12);
    assert!((found.deviation - 0.0002_f64.sqrt()).abs() < 1e-12);
    assert!((found.p - 0.004_316).abs() < 2e-6, "{}", found.p);
    // The one-sided 99 % bound for two degrees of freedom is 6.965 in the table.
    assert!((found.reach / 0.0002_f64.sqrt() - 6.965).abs() < 1e-3);
    // With one run on each side, the bound is that for a normal distribution, 2.326.
    let found = test(&[run(0.0)], &[run(0.2)], limit, 0.05).unwrap();
    assert!((found.reach / (0.05 * 2.0_f64.sqrt()) - 2.326).abs() < 1e-3);
}

#[test]
fn a_lower_rate_and_more_of_any_other_metric_are_worse() {
    let durations = |n: usize| vec![vec![26_000.0; n]];
    let side = |first: u64, n: usize| {
        ProgramRun::all((0..4).map(|id| run(first + id, &durations(n + id as usize % 2))).collect())
    };
    let judged = |metric: &str, now: usize| {
        judge(&side(0, 1000), &side(10, now), &limits(metric), 0.02, |_| true).rows[0].clone()
    };
    assert_eq!(judged("rate=5%", 900).finding, GateFinding::Failed);
    assert!((judged("rate=5%", 900).change + 0.1).abs() < 0.001);
    assert_eq!(judged("rate=5%", 1100).finding, GateFinding::Fine);
    for metric in ["count=5%", "load=5%"] {
        assert_eq!(judged(metric, 1100).finding, GateFinding::Failed);
        assert_eq!(judged(metric, 900).finding, GateFinding::Fine);
    }
}

/// One run on each side does not show how much a number of calls varies, so calls count as
/// independent.
#[test]
fn a_few_calls_more_in_one_run_are_no_regression() {
    let side = |id: u64, n: usize| ProgramRun::all(vec![run(id, &[vec![26_000.0; n]])]);
    let judged = |metric: &str, before: usize, now: usize| {
        let judged = judge(&side(0, before), &side(1, now), &limits(metric), 0.02, |_| true);
        judged.rows[0].finding
    };
    for metric in ["count=5%", "load=5%"] {
        assert_eq!(judged(metric, 25, 32), GateFinding::Unsure);
        assert_eq!(judged(metric, 25_000, 32_000), GateFinding::Failed);
    }
    assert_eq!(judged("rate=5%", 32, 25), GateFinding::Unsure);
    assert_eq!(judged("rate=5%", 32_000, 25_000), GateFinding::Failed);
}

#[test]
fn metrics_without_enough_measurements_are_listed() {
    let side = |first: u64, sizes: &[usize]| {
        let durations: Vec<_> = sizes.iter().map(|n| vec![26_000.0; *n]).collect();
        ProgramRun::all(vec![run(first, &durations)])
    };
    let limits = limits("p50=5%,p99=5%");
    let judged =
        judge(&side(0, &[1000, 100, 10, 50]), &side(1, &[1000, 100, 10]), &limits, 0.02, |_| true);
    let too_few: Vec<_> =
        judged.too_few.iter().map(|it| (it.name.as_str(), it.metric.word())).collect();
    assert_eq!(
        too_few,
        [("io.crc", "p50".into()), ("io.crc", "p99".into()), ("io.read", "p99".into())]
    );
    assert_eq!((judged.gone.as_slice(), judged.new.len()), (&["lz.compress".to_owned()][..], 0));
}

#[test]
fn limits_are_parsed_in_every_notation() {
    for (text, expected, written) in [
        ("p50=5%", Metric::Quantile(0.5), "p50=5%"),
        ("p99.9 = 0.5", Metric::Quantile(0.999), "p99.9=0.5%"),
        ("rate=10%", Metric::Rate, "rate=10%"),
        ("load=3%", Metric::Load, "load=3%"),
    ] {
        let limit = Limit::parse(text).unwrap();
        match (limit.metric, expected) {
            // Converting to per cent and back may change the last digit.
            (Metric::Quantile(found), Metric::Quantile(expected)) => {
                assert!((found - expected).abs() < 1e-12, "{limit:?}");
            }
            (found, expected) => assert_eq!(found, expected),
        }
        assert_eq!(limit.text(), written);
    }
    for (text, said) in [
        ("p50", "METRIC=PERCENT"),
        ("p0=5%", "expected p50"),
        ("p100=5%", "expected p50"),
        ("max=5%", "found max"),
        ("p50=0%", "above 0"),
        ("rate=100%", "above 0"),
        ("p50=x", "found x"),
    ] {
        let error = Limit::parse(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn a_common_change_of_most_points_is_reported() {
    let judged = |factors: [f64; 6]| {
        let side = |first: u64, factors: [f64; 6]| {
            let durations = factors.map(|factor| vec![26_000.0 * factor; 500]);
            ProgramRun::all((0..3).map(|n| run(first + n, &durations)).collect())
        };
        judge(&side(10, [1.0; 6]), &side(20, factors), &limits("p50=50%"), 0.02, |_| true)
    };
    let common = judged([1.2, 1.2, 1.25, 1.2, 1.15, 1.2]).common();
    assert!(common.is_some_and(|by| (0.15..0.25).contains(&by)), "{common:?}");
    assert_eq!(judged([1.4, 1.0, 1.0, 1.0, 1.0, 1.0]).common(), None);
}
